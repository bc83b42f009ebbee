//! Which driver can work here, found by running real operations.

/// A driver that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

/// What the probe found.
#[derive(Debug, Clone)]
pub struct ProbeReport;
pub(super) fn allowed_extras() -> super::uring::Extras {
    super::uring::Extras { no_sqarray: true, no_iowait: true, registered: true }
}
