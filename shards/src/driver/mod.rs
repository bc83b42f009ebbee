//! The one seam to the kernel, with three implementations behind it.
//!
//! ```text
//!   net, fs, shard  ──submit / cancel / orphan──▶  Driver  ──▶  uring | epoll | sim
//!                   ◀──────next() completions────          (turn: submit all, wait, reap)
//! ```
//!
//! The contract, the same for all three (`contract_tests.rs` runs it against each):
//!
//! 1. `submit` never completes inside the call; what comes back comes out of `next` after a `turn`.
//! 2. An operation owns its buffers until its terminal completion (`more == false`), whatever happens.
//! 3. `cancel` only asks. The terminal completion still comes: a result that was quicker, or `ECANCELED`.
//! 4. `orphan` also takes the owner away: nothing comes back, and the driver releases what the operation brings
//!    (descriptors are closed, buffers go back to the pool).
//! 5. `close` is called once no operation on that descriptor is in flight; the owner waits for that.
//! 6. A completion whose slot has another generation is counted, its buffer returned, and ignored.
//! 7. At most one `Receive` and one `Send` are in flight per socket.

mod completions;
#[cfg(test)]
mod contract_tests;
mod descriptors;
mod epoll;
mod file_reads;
mod op;
mod probe;
mod ring_buffers;
mod sim;
mod slots;
mod uring;

use crate::{
    buffers::{Pool, PoolAccount},
    error::{Error, Result},
    inbox::WakeFd,
    sync::Arc,
    table::Key,
};
pub(crate) use descriptors::{bind_listener, look_at_listener};
pub(crate) use op::*;
pub use op::{SEND_PARTS_MAX, SendParts, Shutdown, Vectored};
pub use probe::{DriverChoice, DriverKind, ProbeReport, probe};
pub use sim::{End, SimClient, SimFaults};
pub(crate) use sim::{SimDriver, SimNet};
use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

/// The driver of one shard.
#[derive(Debug)]
pub(crate) enum Driver {
    Uring(Box<uring::UringDriver>),
    Epoll(Box<epoll::EpollDriver>),
    Sim(Box<SimDriver>),
    /// After [`Driver::stop`]: nothing is in flight, and whatever is asked is refused. Destructors that run after
    /// the end of a shard come here.
    Gone,
}

/// What a driver is made with.
#[derive(Debug, Clone)]
pub(crate) struct DriverOptions {
    /// Submission queue entries (uring): a power of two, 4 or more.
    pub(crate) submission_entries: u32,
    /// Completion queue entries (uring): a power of two, at least twice the submission entries.
    pub(crate) completion_entries: u32,
    /// Receive buffers in the ring (uring: a power of two) and most in use at once (others).
    pub(crate) buffers: usize,
    /// Size of a receive buffer in bytes.
    pub(crate) buffer_bytes: usize,
    /// Whether multishot receive may be used; the probe's finding, or false by choice.
    pub(crate) multishot_receive: bool,
}

/// What a driver counted, for accounts that must balance and for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DriverAccount {
    /// Operations that have not had their terminal completion.
    pub(crate) in_flight: usize,
    /// Descriptors this driver owns.
    pub(crate) descriptors: usize,
    /// Where the receive buffers are.
    pub(crate) buffers: PoolAccount,
    /// Kernel enters (io_uring_enter, epoll_wait), ever.
    pub(crate) enters: u64,
    /// Completions with a stale generation, ever.
    pub(crate) stale_completions: u64,
    /// Times a receive found no buffer, ever.
    pub(crate) buffer_shortages: u64,
    /// Completion queue overflows the kernel reported, ever.
    pub(crate) overflows: u64,
}

/// How a listening socket is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenOptions {
    /// Length of the accept queue.
    pub(crate) backlog: i32,
    /// SO_REUSEPORT: one socket per shard on the same port, the kernel spreads connections by hash.
    pub(crate) reuse_port: bool,
}

/// A socket option that may be changed on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketOption {
    /// TCP_NODELAY. Accepted sockets have it from their listener.
    NoDelay(bool),
    /// SO_KEEPALIVE with TCP_KEEPIDLE = TCP_KEEPINTVL = the duration.
    KeepAlive(Option<Duration>),
    /// SO_LINGER; zero resets the connection at close.
    Linger(Option<Duration>),
    /// SO_RCVBUF in bytes (the kernel doubles it).
    ReceiveBuffer(usize),
    /// SO_SNDBUF in bytes (the kernel doubles it).
    SendBuffer(usize),
}

/// How much the peer has taken, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendProgress {
    /// Bytes in the socket's send queue that the peer has not acknowledged (SIOCOUTQ).
    pub(crate) unacknowledged: u64,
    /// Bytes that the peer has acknowledged, ever, where the kernel counts them (TCP_INFO).
    pub(crate) acknowledged: Option<u64>,
    /// The peer's end has arrived, whether or not all before it has been received.
    pub(crate) peer_ended: bool,
}

macro_rules! each {
    ($self:expr, $driver:ident => $call:expr, $gone:expr) => {
        match $self {
            Driver::Uring($driver) => $call,
            Driver::Epoll($driver) => $call,
            Driver::Sim($driver) => $call,
            Driver::Gone => $gone,
        }
    };
}

impl Driver {
    /// Makes a real driver for the calling thread. `wake` ends a waiting `turn` when it is written to.
    pub(crate) fn new(kind: DriverKind, options: &DriverOptions, wake: Arc<WakeFd>) -> Result<Driver> {
        let pool = Pool::new(options.buffer_bytes, options.buffers);
        Ok(match kind {
            DriverKind::Uring => Driver::Uring(Box::new(uring::UringDriver::new(options, pool, wake)?)),
            DriverKind::Epoll => Driver::Epoll(Box::new(epoll::EpollDriver::new(options, pool, wake)?)),
        })
    }

    /// Hands an operation to the kernel (at the next turn, or now if the queue is full).
    #[inline]
    pub(crate) fn submit(&mut self, op: Op, owner: Owner) -> Key {
        each!(self, driver => driver.submit(op, owner), Key::NONE)
    }

    /// Asks that the operation end soon. A key whose operation is over is ignored.
    pub(crate) fn cancel(&mut self, key: Key) {
        each!(self, driver => driver.cancel(key), ());
    }

    /// Takes the owner away and asks that the operation end.
    #[cfg(test)]
    pub(crate) fn orphan(&mut self, key: Key) {
        each!(self, driver => driver.orphan(key), ());
    }

    /// One turn: submits everything, waits as told unless completions are already there, reaps.
    pub(crate) fn turn(&mut self, wait: Wait) -> TurnResult {
        each!(self, driver => driver.turn(wait), Err(Error::Stopping))
    }

    /// The next completion that was reaped.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        each!(self, driver => driver.next(), None)
    }

    /// Whether work is left that a `turn` with [`Wait::No`] would find at once (reaped completions, kernel task
    /// work, an unfinished drain): the shard must not sleep.
    pub(crate) fn has_work(&self) -> bool {
        each!(self, driver => driver.has_work(), false)
    }

    /// Makes a listening socket (TCP_NODELAY set, so that accepted ones have it). Gives the real address: port 0
    /// becomes the port the kernel chose.
    pub(crate) fn listen(&mut self, at: &Address, options: ListenOptions) -> Result<(Descriptor, Address)> {
        each!(self, driver => driver.listen(at, options), Err(Error::Stopping))
    }

    /// Makes a socket for [`Op::Connect`] to this address.
    pub(crate) fn socket(&mut self, to: &Address) -> Result<Descriptor> {
        each!(self, driver => driver.socket(to), Err(Error::Stopping))
    }

    /// Takes over a descriptor made elsewhere (an accepted socket from another shard, an opened file).
    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> Descriptor {
        each!(self, driver => driver.adopt(fd), NOT_A_DESCRIPTOR)
    }

    /// Gives a descriptor away, for another shard. `None` under the simulator.
    pub(crate) fn release(&mut self, fd: Descriptor) -> Option<OwnedFd> {
        each!(self, driver => driver.release(fd), None)
    }

    /// A second descriptor of the same socket, for another process. Not under the simulator.
    pub(crate) fn duplicate(&mut self, fd: Descriptor) -> io::Result<OwnedFd> {
        each!(self, driver => driver.duplicate(fd), Err(gone()))
    }

    /// Closes. No operation on it may be in flight.
    pub(crate) fn close(&mut self, fd: Descriptor) {
        each!(self, driver => driver.close(fd), ());
    }

    /// shutdown(2), at once.
    pub(crate) fn shutdown(&mut self, fd: Descriptor, how: Shutdown) -> io::Result<()> {
        each!(self, driver => driver.shutdown(fd, how), Err(gone()))
    }

    /// Address of the peer; Unix sockets answer `None`.
    pub(crate) fn peer(&self, fd: Descriptor) -> io::Result<Option<SocketAddr>> {
        each!(self, driver => driver.peer(fd), Err(gone()))
    }

    /// Sets a socket option, at once.
    pub(crate) fn set_option(&mut self, fd: Descriptor, option: SocketOption) -> io::Result<()> {
        each!(self, driver => driver.set_option(fd, option), Err(gone()))
    }

    /// What the peer has taken so far.
    pub(crate) fn send_progress(&self, fd: Descriptor) -> io::Result<SendProgress> {
        each!(self, driver => driver.send_progress(fd), Err(gone()))
    }

    /// The accounts.
    pub(crate) fn account(&self) -> DriverAccount {
        each!(self, driver => driver.account(), DriverAccount::default())
    }

    /// Short name, as in `--driver` and the start line.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Driver::Uring(_) => "io_uring",
            Driver::Epoll(_) => "epoll",
            Driver::Sim(_) => "sim",
            Driver::Gone => "none",
        }
    }

    /// The end: cancels every operation, drops its owner and reaps until none is in flight or the deadline is
    /// over. Gives how many did not return; their memory is then leaked with the driver, never freed.
    pub(crate) fn stop(&mut self, within: Duration) -> usize {
        match std::mem::replace(self, Driver::Gone) {
            Driver::Gone => 0,
            driver => each!(driver, driver => driver.stop(within), 0),
        }
    }
}

/// What a driver that is gone gives for a descriptor (which it closes by dropping it).
const NOT_A_DESCRIPTOR: Descriptor = Descriptor(-1);

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}
