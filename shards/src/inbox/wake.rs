//! The eventfd that ends a shard's sleep, and its model under loom. It knows nothing of messages.

use crate::sync::{AtomicUsize, Ordering};
#[cfg(not(loom))]
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// An eventfd with a count of its writes; closed by its last holder.
#[derive(Debug)]
#[cfg(not(loom))]
pub(crate) struct WakeFd {
    fd: OwnedFd,
    wakes: AtomicUsize,
}

#[cfg(not(loom))]
impl WakeFd {
    /// A close-on-exec eventfd. It blocks: io_uring answers EAGAIN instead of waiting on a non-blocking one with
    /// some kernels, and [`WakeFd::drain`] never blocks all the same.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(WakeFd { fd, wakes: AtomicUsize::new(0) })
    }

    /// Makes the descriptor readable. From any thread.
    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        // eventfd(2): a write blocks or fails only near 2^64 - 1, which writes of 1 do not reach. EINTR is retried.
        while let Err(rustix::io::Errno::INTR) = rustix::io::write(&self.fd, &1u64.to_ne_bytes()) {}
    }

    /// The descriptor, to be watched for reading.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Takes what was written, and never blocks. For the owning shard only: two readers could block each other.
    #[cfg(test)]
    pub(crate) fn drain(&self) {
        let mut poll = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&rustix::event::Timespec::default())) == Ok(1) {
            // Readable, and no one else reads: this gives 8 bytes. EINTR leaves the count for the next time.
            let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        }
    }

    /// Sleeps until it is written, for at most `within`, and takes what was written. False: the time ran out.
    #[cfg(test)]
    pub(crate) fn wait(&self, within: std::time::Duration) -> bool {
        let mut poll = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::IN)];
        let within = rustix::event::Timespec::try_from(within).ok();
        let readable = rustix::event::poll(&mut poll, within.as_ref()) == Ok(1);
        self.drain();
        readable
    }

    /// How often it was written, ever.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed) as u64
    }
}

/// The model: a counter under a lock, waited for with a condition variable.
#[derive(Debug)]
#[cfg(loom)]
pub(crate) struct WakeFd {
    written: loom::sync::Mutex<u64>,
    readable: loom::sync::Condvar,
    wakes: AtomicUsize,
}

#[cfg(loom)]
impl WakeFd {
    pub(crate) fn new() -> Self {
        WakeFd {
            written: loom::sync::Mutex::new(0),
            readable: loom::sync::Condvar::new(),
            wakes: AtomicUsize::new(0),
        }
    }

    pub(crate) fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        *self.written.lock().unwrap() += 1;
        self.readable.notify_one();
    }

    /// Sleeps until it was written, and takes what was.
    pub(crate) fn sleep(&self) {
        let mut written = self.written.lock().unwrap();
        while *written == 0 {
            written = self.readable.wait(written).unwrap();
        }
        *written = 0;
    }

    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed) as u64
    }
}
