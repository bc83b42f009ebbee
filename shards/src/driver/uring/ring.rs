//! The kernel ring itself: set up, entries in, one enter, completions out. It knows no operation: what an entry
//! points at is kept alive by the driver's slots.
//!
//! `io_uring_enter` is called directly: the crate forgets a registered ring descriptor between two submitters.

#![allow(unsafe_code, reason = "system calls, and pushing entries that carry pointers")]

use io_uring::{IoUring, squeue};
use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
    time::Duration,
};

/// One completion as the kernel wrote it: `user_data`, `res`, `flags`.
pub(in crate::driver) type Raw = (u64, i32, u32);

/// What may be used when the kernel offers it. Everything else is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::driver) struct Extras {
    /// IORING_SETUP_NO_SQARRAY (6.6).
    pub(in crate::driver) no_sqarray: bool,
    /// IORING_ENTER_NO_IOWAIT (6.15): an idle shard is not shown as waiting for a disk.
    pub(in crate::driver) no_iowait: bool,
    /// IORING_REGISTER_RING_FDS (5.18): spares the descriptor look-up of each enter.
    pub(in crate::driver) registered: bool,
}

/// A ring, used by the thread that made it and no other (IORING_SETUP_SINGLE_ISSUER).
pub(in crate::driver) struct Ring {
    ring: IoUring,
    extras: Extras,
    /// What enter is given as descriptor, and the flags that go with every enter.
    enter_fd: i32,
    enter_flags: u32,
}

impl Ring {
    /// Makes a ring for the calling thread. Of `wanted`, what the kernel refuses is left out.
    pub(in crate::driver) fn new(submissions: u32, completions: u32, wanted: Extras) -> io::Result<Ring> {
        let (ring, no_sqarray) = match setup(submissions, completions, wanted.no_sqarray) {
            Ok(ring) => (ring, wanted.no_sqarray),
            Err(error) if wanted.no_sqarray && error.raw_os_error() == Some(libc::EINVAL) => {
                (setup(submissions, completions, false)?, false)
            }
            Err(error) => return Err(error),
        };
        // Regular files may block a worker of the kernel; a shard needs few of those (man io_uring_register).
        let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, WORKERS_MAX]);
        let no_iowait = wanted.no_iowait && ring.params().is_feature_no_iowait();
        let mut enter_flags = ENTER_GETEVENTS;
        if no_iowait {
            enter_flags |= ENTER_NO_IOWAIT;
        }
        let mut enter_fd = ring.as_raw_fd();
        let index = if wanted.registered { register_descriptor(enter_fd).ok() } else { None };
        if let Some(index) = index {
            enter_fd = index as i32;
            enter_flags |= ENTER_REGISTERED_RING;
        }
        let extras = Extras { no_sqarray, no_iowait, registered: index.is_some() };
        Ok(Ring { ring, extras, enter_fd, enter_flags })
    }

    /// What of the extras is in use.
    pub(in crate::driver) fn extras(&self) -> Extras {
        self.extras
    }

    /// For the registrations that the crate offers.
    pub(in crate::driver) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.ring.submitter()
    }

    /// Queues an entry; false if the queue is full.
    ///
    /// The driver keeps to: everything the entry points at lives in its slot until the terminal completion.
    #[inline]
    pub(in crate::driver) fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: runtime rules 1 and 2: what the entry points at is owned by an operation slot (or by the driver,
        // for the wake), and a slot is only freed by its terminal completion, or leaked.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// How many entries wait to be submitted.
    #[inline]
    pub(in crate::driver) fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Submits what is queued, lets the kernel do its deferred work and waits for `want` completions, at most
    /// `timeout` if there is one (man io_uring_enter, IORING_ENTER_EXT_ARG).
    #[inline]
    pub(in crate::driver) fn enter(&mut self, want: u32, timeout: Option<Duration>) -> io::Result<()> {
        let queued = self.queued() as u32;
        let Some(timeout) = timeout else {
            return enter(self.enter_fd, [queued, want, self.enter_flags], ptr::null(), 0);
        };
        let until = KernelTimespec {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: timeout.subsec_nanos().into(),
        };
        let argument = EnterArgument { timespec: (&raw const until) as u64, ..EnterArgument::NONE };
        let flags = self.enter_flags | ENTER_EXT_ARG;
        enter(self.enter_fd, [queued, want, flags], (&raw const argument).cast(), size_of::<EnterArgument>())
    }

    /// Moves up to `most` completions out of the ring.
    #[inline]
    pub(in crate::driver) fn reap(&mut self, into: &mut Vec<Raw>, most: usize) {
        let queue = self.ring.completion();
        into.extend(queue.take(most).map(|entry| (entry.user_data(), entry.result(), entry.flags())));
    }

    /// Whether a turn that does not wait would find something: completions in the ring, or work for an enter.
    #[inline]
    pub(in crate::driver) fn has_work(&self) -> bool {
        // SAFETY: the ring belongs to this thread (the driver is not Send) and no other view of the completion
        // queue lives now: `reap` ends its own before it returns.
        let completions = unsafe { self.ring.completion_shared() };
        !completions.is_empty() || self.wants_enter()
    }

    /// Whether the kernel keeps completions that did not fit into the ring (IORING_SQ_CQ_OVERFLOW).
    #[inline]
    pub(in crate::driver) fn overflowed(&mut self) -> bool {
        self.ring.submission().cq_overflow()
    }

    /// Whether only an enter makes progress: deferred work (IORING_SQ_TASKRUN), or completions that did not fit.
    #[inline]
    pub(in crate::driver) fn wants_enter(&self) -> bool {
        // SAFETY: as in `has_work`: one thread, and `push` and `queued` end their view before they return. Nothing
        // is pushed through this one.
        let submissions = unsafe { self.ring.submission_shared() };
        submissions.taskrun() || submissions.cq_overflow()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.extras.registered {
            // The registration holds the ring: without this, closing the descriptor would end nothing.
            let _ = unregister_descriptor(self.ring.as_raw_fd(), self.enter_fd as u32);
        }
    }
}

/// SINGLE_ISSUER and DEFER_TASKRUN (6.1) are the driver's ground: work is done when the shard asks for it.
fn setup(submissions: u32, completions: u32, no_sqarray: bool) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_cqsize(completions)
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag();
    if no_sqarray {
        builder.setup_no_sqarray();
    }
    builder.build(submissions)
}

fn enter(
    fd: i32,
    [submit, want, flags]: [u32; 3],
    argument: *const libc::c_void,
    size: usize,
) -> io::Result<()> {
    // SAFETY: the queued entries are sound (see `push`); `argument` is null or a live `EnterArgument` of `size`
    // bytes, which the kernel only reads, during the call.
    let answer = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, submit, want, flags, argument, size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Registers the ring with the thread; gives its index (at most 16 a thread, else EBUSY).
fn register_descriptor(ring: i32) -> io::Result<u32> {
    let mut update = ResourceUpdate { offset: u32::MAX, reserved: 0, data: ring as u64 };
    change_registration(ring, REGISTER_RING_FDS, &mut update)?;
    Ok(update.offset)
}

fn unregister_descriptor(ring: i32, index: u32) -> io::Result<()> {
    let mut update = ResourceUpdate { offset: index, reserved: 0, data: 0 };
    change_registration(ring, UNREGISTER_RING_FDS, &mut update)
}

fn change_registration(ring: i32, what: u32, update: &mut ResourceUpdate) -> io::Result<()> {
    let update: *mut ResourceUpdate = update;
    // SAFETY: both registrations read and write one `struct io_uring_rsrc_update`, which `update` is.
    let answer = unsafe { libc::syscall(libc::SYS_io_uring_register, ring, what, update, 1) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes in a socket's send queue that the peer has not acknowledged (SIOCOUTQ; tcp(7), unix(7)).
pub(in crate::driver) fn send_queue_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int, and `bytes` is one, alive for the call.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes.max(0) as u64) }
}

/// State of a TCP socket, and bytes that its peer has acknowledged since it was connected (tcp(7), TCP_INFO). `None`
/// where the socket is of another kind or the kernel tells less.
pub(in crate::driver) fn tcp_progress(fd: BorrowedFd<'_>) -> Option<(u8, u64)> {
    let mut info = [0_u64; 32];
    let mut length = size_of_val(&info) as libc::socklen_t;
    let into = info.as_mut_ptr().cast::<libc::c_void>();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of `info`; both live for the call.
    let answer =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length) };
    // linux/tcp.h: eight bytes, 24 numbers of 32 bits, two rates, then `tcpi_bytes_acked`.
    const AT: usize = (8 + 24 * 4 + 2 * 8) / 8;
    (answer == 0 && length as usize >= (AT + 1) * 8).then(|| (info[0].to_ne_bytes()[0], info[AT]))
}

/// Threads of the kernel for work that blocks, per ring and kind.
const WORKERS_MAX: u32 = 4;

// linux/io_uring.h
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// `struct io_uring_getevents_arg`.
#[repr(C)]
struct EnterArgument {
    signal_mask: u64,
    signal_mask_size: u32,
    min_wait_us: u32,
    /// Address of a [`KernelTimespec`].
    timespec: u64,
}

impl EnterArgument {
    const NONE: EnterArgument =
        EnterArgument { signal_mask: 0, signal_mask_size: 0, min_wait_us: 0, timespec: 0 };
}

/// `struct __kernel_timespec`.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct ResourceUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}
