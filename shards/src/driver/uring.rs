//! The io_uring driver: operations in, one enter a turn, completions out.
//!
//! ```text
//!  submit ─▶ slot ─▶ entry ─▶ ring ──enter──▶ kernel
//!  next   ◀─ decode, one by one ◀─ batch ◀─reap─┘
//! ```
//!
//! What an entry points at lives in its slot (`slots.rs`) until the terminal completion; receive buffers live in
//! `ring_buffers.rs` until the kernel has filled them. This file keeps the promises of the seam on top: a receive
//! goes on until its end, whatever made the kernel stop it (no buffer, a full completion queue, a fairness cut,
//! single-shot mode); a cancel only asks; an orphan's bounty is released. Without a `stop` nothing is freed that
//! the kernel may still write to: it is leaked.

#![allow(unsafe_code, reason = "descriptors and bytes that only the kernel vouches for")]

mod complete;
mod entries;
mod finish;
mod ring;
#[cfg(test)]
mod tests;

use super::{
    Address, Completion, Descriptor, DriverAccount, DriverOptions, ListenOptions, Op, Owner, SendBuffer,
    SendParts, SendProgress, Shutdown, SocketOption, TurnResult, Wait,
    descriptors::{Descriptors, Listening, socket_address},
    ring_buffers::RingBuffers,
    slots::{Kind, Load, Message, Place, Slot, user_data},
};
use crate::{
    buffers::Pool,
    error::{Error, Result},
    inbox::WakeFd,
    sync::Arc,
    table::{Key, Table},
};
use entries::ReceiveMode;
use io_uring::squeue;
pub(super) use ring::{Extras, Raw, Ring, send_queue_bytes, tcp_progress};
use std::{
    collections::VecDeque,
    fmt, io,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

/// One shard's ring and everything that is in flight on it.
pub(crate) struct UringDriver {
    /// Closed first, before the memory below is freed.
    ring: Ring,
    buffers: RingBuffers,
    slots: Table<Slot>,
    loads: Table<Load>,
    descriptors: Descriptors,
    pool: Rc<Pool>,
    wake: Arc<WakeFd>,
    wake_armed: bool,
    stopping: bool,
    /// How a receive is armed on a socket that has bytes, or that may have some.
    receive: ReceiveMode,
    buffer_bytes: u32,
    /// Completions that were reaped; those before `at` have been given out.
    batch: Vec<Raw>,
    at: usize,
    /// Most completions in the batch: the kernel keeps the rest.
    batch_max: usize,
    /// Last completions of operations that the kernel knows nothing of any more.
    endings: Vec<Raw>,
    /// Receives that found no buffer, first come first served.
    starved: VecDeque<Key>,
    /// Operations that a cancel did not find although they have not ended.
    cancel_again: Vec<Key>,
    /// Entries that found the submission queue full; at most one start and one cancel per slot.
    backlog: VecDeque<squeue::Entry>,
    /// Message headers of past vectored sends.
    #[allow(clippy::vec_box, reason = "a header must not move while the kernel reads it")]
    spare_messages: Vec<Box<Message>>,
    /// The kernel did not take or give everything in the last turn.
    unfinished: bool,
    overflowing: bool,
    counts: Counts,
    #[cfg(debug_assertions)]
    in_flight: InFlight,
}

#[derive(Debug, Default)]
struct Counts {
    enters: u64,
    stale_completions: u64,
    buffer_shortages: u64,
    overflows: u64,
}

impl UringDriver {
    /// Makes the ring. It belongs to the calling thread from now on.
    pub(crate) fn new(options: &DriverOptions, pool: Rc<Pool>, wake: Arc<WakeFd>) -> Result<Self> {
        Self::with_extras(options, pool, wake, super::probe::allowed_extras())
    }

    /// The same, of the ring's extras only these.
    pub(super) fn with_extras(
        options: &DriverOptions,
        pool: Rc<Pool>,
        wake: Arc<WakeFd>,
        extras: Extras,
    ) -> Result<Self> {
        let (submissions, completions) = (options.submission_entries, options.completion_entries);
        let ring = patiently(|| Ring::new(submissions, completions, extras))
            .map_err(|source| Error::kernel("io_uring_setup", source))?;
        let buffers = RingBuffers::new(&ring.submitter(), options.buffers).map_err(|source| {
            Error::kernel(format!("register a ring of {} buffers", options.buffers), source)
        })?;
        let receive = if options.multishot_receive { ReceiveMode::Multishot } else { ReceiveMode::Once };
        let mut driver = UringDriver {
            ring,
            buffers,
            slots: Table::new(),
            loads: Table::new(),
            descriptors: Descriptors::new(),
            pool,
            wake,
            wake_armed: false,
            stopping: false,
            receive,
            buffer_bytes: options.buffer_bytes as u32,
            batch: Vec::with_capacity(completions as usize),
            at: 0,
            batch_max: completions as usize,
            endings: Vec::new(),
            starved: VecDeque::new(),
            cancel_again: Vec::new(),
            backlog: VecDeque::new(),
            spare_messages: Vec::new(),
            unfinished: false,
            overflowing: false,
            counts: Counts::default(),
            #[cfg(debug_assertions)]
            in_flight: InFlight::default(),
        };
        driver.arm_wake();
        Ok(driver)
    }

    /// The ring's extras in use.
    pub(super) fn extras(&self) -> Extras {
        self.ring.extras()
    }

    /// See [`super::Driver::submit`].
    #[inline]
    pub(crate) fn submit(&mut self, op: Op, owner: Owner) -> Key {
        match op {
            Op::Receive { socket } => self.submit_standing(Kind::Receive, socket, owner),
            Op::Send { socket, buffer } => {
                let message = match &buffer.parts {
                    SendParts::Vectored(_) => self.message_for(&buffer),
                    SendParts::Vec(_) | SendParts::Bytes(_) => None,
                };
                self.submit_loaded(Kind::Send, socket, owner, Load::Send { buffer, message })
            }
            Op::Accept { listener } => self.submit_standing(Kind::Accept, listener, owner),
            Op::Connect { socket, address } => match socket_address(&address) {
                Ok(address) => {
                    let load = Load::Connect { address: Some(Box::new(address)) };
                    self.submit_loaded(Kind::Connect, socket, owner, load)
                }
                Err(error) => self.refuse_connect(socket, owner, &error),
            },
            Op::Read { file, offset, mut buffer, len } => {
                buffer.clear();
                buffer.reserve(len);
                self.submit_loaded(Kind::Read, file, owner, Load::Read { buffer, offset, len })
            }
        }
    }

    /// See [`super::Driver::cancel`].
    pub(crate) fn cancel(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.cancelling {
            return;
        }
        slot.cancelling = true;
        let kind = slot.kind;
        match slot.place {
            Place::Kernel => self.push(entries::cancel_entry(kind, key)),
            Place::Starved => self.end(key),
            Place::Ending => {}
        }
    }

    /// See [`super::Driver::orphan`].
    #[cfg(test)]
    pub(crate) fn orphan(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.owner = Owner::Nobody;
            self.cancel(key);
        }
    }

    /// See [`super::Driver::turn`].
    pub(crate) fn turn(&mut self, wait: Wait) -> TurnResult {
        self.batch.drain(..self.at);
        self.at = 0;
        self.batch.append(&mut self.endings);
        self.buffers.refill(&self.pool);
        self.feed_starved();
        self.repeat_cancels();
        self.drain_backlog();
        let sleepless = !self.batch.is_empty() || !self.cancel_again.is_empty() || !self.backlog.is_empty();
        let (want, timeout) = match wait {
            _ if sleepless => (0, None),
            Wait::No | Wait::AtMost(Duration::ZERO) => (0, None),
            Wait::Forever => (1, None),
            Wait::AtMost(time) => (1, Some(time)),
        };
        self.unfinished = false;
        if want > 0 || self.ring.queued() > 0 || self.ring.wants_enter() {
            self.enter(want, timeout)?;
        }
        let room = self.batch_max.saturating_sub(self.batch.len());
        self.ring.reap(&mut self.batch, room);
        Ok(())
    }

    /// See [`super::Driver::next`].
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        while let Some(&raw) = self.batch.get(self.at) {
            self.at += 1;
            let completion = self.decode(raw);
            if completion.is_some() {
                return completion;
            }
        }
        None
    }

    /// See [`super::Driver::has_work`].
    pub(crate) fn has_work(&self) -> bool {
        self.at < self.batch.len()
            || self.unfinished
            || !self.endings.is_empty()
            || !self.cancel_again.is_empty()
            || !self.backlog.is_empty()
            || self.ring.has_work()
    }

    /// See [`super::Driver::account`].
    pub(crate) fn account(&self) -> DriverAccount {
        debug_assert_eq!(self.pool.account().loaned, self.buffers.filled(), "a receive buffer was lost");
        DriverAccount {
            in_flight: self.slots.len(),
            descriptors: self.descriptors.len(),
            buffers: self.pool.account(),
            enters: self.counts.enters,
            stale_completions: self.counts.stale_completions,
            buffer_shortages: self.counts.buffer_shortages,
            overflows: self.counts.overflows,
        }
    }

    // ---- entries ----

    fn submit_standing(&mut self, kind: Kind, fd: Descriptor, owner: Owner) -> Key {
        let key = self.insert(Slot::new(kind, fd, owner, Key::NONE));
        self.arm(key, true);
        key
    }

    /// Rule 1: everything into its final place first, then the entry that points at it.
    #[inline]
    fn submit_loaded(&mut self, kind: Kind, fd: Descriptor, owner: Owner, load: Load) -> Key {
        let load = self.loads.insert(load);
        let slot = Slot::new(kind, fd, owner, load);
        let key = self.insert(slot);
        if let Some(load) = self.loads.get_mut(load) {
            let entry = entries::loaded_entry(&slot, key, load);
            self.push(entry);
        }
        key
    }

    /// An address that cannot be written down for the kernel: refused at the next turn.
    fn refuse_connect(&mut self, fd: Descriptor, owner: Owner, error: &io::Error) -> Key {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        let load = self.loads.insert(Load::Connect { address: None });
        let slot = Slot { place: Place::Ending, ..Slot::new(Kind::Connect, fd, owner, load) };
        let key = self.insert(slot);
        self.endings.push((user_data(Kind::Connect, key), -errno, 0));
        key
    }

    #[inline]
    fn insert(&mut self, slot: Slot) -> Key {
        #[cfg(debug_assertions)]
        self.in_flight.add(slot.fd);
        self.slots.insert(slot)
    }

    /// A header for a send of several pieces; one piece needs none.
    fn message_for(&mut self, buffer: &SendBuffer) -> Option<Box<Message>> {
        buffer.slices().nth(1)?;
        Some(self.spare_messages.pop().unwrap_or_else(new_message))
    }

    /// Puts an accept or a receive to the kernel, at the start or once more.
    #[inline]
    fn arm(&mut self, key: Key, may_be_idle: bool) {
        let mode = self.receive_mode(may_be_idle);
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.place = Place::Kernel;
        let entry = entries::standing_entry(slot, key, mode, self.buffer_bytes);
        self.push(entry);
    }

    /// A receive that stays armed looks at the socket at once. Were it told to poll first, then what it finds
    /// ready would be one event to it: it takes the bytes, and an end or a reset that was already behind them makes
    /// no further event and is never told (io_uring/poll.c, `io_poll_check_events`). But looking takes a buffer in
    /// hand and fails without one, so while there is none, an idle socket is watched for a single receive.
    #[inline]
    fn receive_mode(&self, may_be_idle: bool) -> ReceiveMode {
        match self.receive {
            ReceiveMode::Multishot if self.buffers.filled() > 0 => ReceiveMode::Multishot,
            _ if may_be_idle => ReceiveMode::OnceWhenReady,
            mode => mode,
        }
    }

    /// After a completion without MORE: the operation goes on, unless its end was asked for.
    fn go_on(&mut self, key: Key, may_be_idle: bool) {
        match self.slots.get(key) {
            Some(slot) if slot.cancelling => self.end(key),
            _ => self.arm(key, may_be_idle),
        }
    }

    /// Ends an operation that is not with the kernel, by a completion of our own at the next turn.
    fn end(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.place = Place::Ending;
        self.endings.push((user_data(slot.kind, key), -libc::ECANCELED, 0));
    }

    fn arm_wake(&mut self) {
        self.wake_armed = true;
        self.push(entries::wake_entry(self.wake.as_fd().as_raw_fd()));
    }

    #[inline]
    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() && self.ring.push(&entry) {
            return;
        }
        self.push_when_full(entry);
    }

    /// The submission queue is full: let the kernel take it. What it does not take now waits for the next turn.
    #[cold]
    fn push_when_full(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            self.counts.enters += 1;
            let flushed = self.ring.enter(0, None);
            if flushed.is_ok() && self.ring.push(&entry) {
                return;
            }
        }
        self.backlog.push_back(entry);
    }

    fn drain_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            if self.ring.push(entry) {
                self.backlog.pop_front();
                continue;
            }
            self.counts.enters += 1;
            let flushed = self.ring.enter(0, None);
            if flushed.is_err() || self.ring.queued() > 0 {
                break;
            }
        }
    }

    /// Arms as many of the receives that wait for a buffer as there are buffers.
    fn feed_starved(&mut self) {
        let mut buffers = self.buffers.filled();
        while buffers > 0 {
            let Some(key) = self.starved.pop_front() else { return };
            let Some(slot) = self.slots.get_mut(key) else { continue };
            if slot.place == Place::Starved {
                slot.fed = false;
                buffers -= 1;
                self.arm(key, false);
            }
        }
    }

    /// A cancel may miss an operation that is between two states in the kernel. It is asked for until it ends.
    fn repeat_cancels(&mut self) {
        while let Some(key) = self.cancel_again.pop() {
            let Some(slot) = self.slots.get(key) else { continue };
            if slot.place == Place::Kernel {
                self.push(entries::cancel_entry(slot.kind, key));
            }
        }
    }

    fn enter(&mut self, want: u32, timeout: Option<Duration>) -> TurnResult {
        self.counts.enters += 1;
        let result = self.ring.enter(want, timeout);
        let overflowing = self.ring.overflowed();
        self.counts.overflows += u64::from(overflowing && !self.overflowing);
        self.overflowing = overflowing;
        match result.as_ref().map_err(io::Error::raw_os_error) {
            Ok(()) => self.unfinished = self.ring.queued() > 0,
            // A signal, or the time is over.
            Err(Some(libc::EINTR | libc::ETIME)) => {}
            // Out of memory for requests, or completions have to be reaped first: the next turn tries again.
            Err(Some(libc::EAGAIN | libc::EBUSY)) => self.unfinished = true,
            Err(_) => return result.map_err(|source| Error::kernel("io_uring_enter", source)),
        }
        Ok(())
    }
}

/// The descriptors: `descriptors.rs` does the work.
impl UringDriver {
    pub(crate) fn listen(&mut self, at: &Address, options: ListenOptions) -> Result<(Descriptor, Address)> {
        self.descriptors.listen(at, options, Listening::ByOperation)
    }

    pub(crate) fn socket(&mut self, to: &Address) -> Result<Descriptor> {
        self.descriptors.socket(to)
    }

    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> Descriptor {
        self.descriptors.adopt(fd)
    }

    pub(crate) fn release(&mut self, fd: Descriptor) -> Option<OwnedFd> {
        self.assert_idle(fd);
        self.descriptors.release(fd)
    }

    pub(crate) fn duplicate(&mut self, fd: Descriptor) -> io::Result<OwnedFd> {
        self.descriptors.duplicate(fd)
    }

    pub(crate) fn close(&mut self, fd: Descriptor) {
        self.assert_idle(fd);
        self.descriptors.close(fd);
    }

    pub(crate) fn shutdown(&mut self, fd: Descriptor, how: Shutdown) -> io::Result<()> {
        self.descriptors.shutdown(fd, how)
    }

    pub(crate) fn peer(&self, fd: Descriptor) -> io::Result<Option<SocketAddr>> {
        self.descriptors.peer(fd)
    }

    pub(crate) fn set_option(&mut self, fd: Descriptor, option: SocketOption) -> io::Result<()> {
        self.descriptors.set_option(fd, option)
    }

    pub(crate) fn send_progress(&self, fd: Descriptor) -> io::Result<SendProgress> {
        self.descriptors.send_progress(fd)
    }

    /// Rule 5: the kernel keeps an operation's file open beyond close(2), and gives the number to the next one.
    #[inline]
    fn assert_idle(&self, fd: Descriptor) {
        #[cfg(debug_assertions)]
        assert_eq!(self.in_flight.on(fd), 0, "an operation is in flight on {fd:?}");
        let _ = fd;
    }
}

impl fmt::Debug for UringDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("UringDriver");
        shown.field("slots", &self.slots.len()).field("buffers", &self.buffers).field("counts", &self.counts);
        shown.finish_non_exhaustive()
    }
}

/// Operations in flight by descriptor number.
#[cfg(debug_assertions)]
#[derive(Debug, Default)]
struct InFlight(Vec<u32>);

#[cfg(debug_assertions)]
impl InFlight {
    fn on(&self, fd: Descriptor) -> u32 {
        self.0.get(fd.0 as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, fd: Descriptor) {
        let index = fd.0.max(0) as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] += 1;
    }

    fn remove(&mut self, fd: Descriptor) {
        self.0[fd.0.max(0) as usize] -= 1;
    }
}

fn new_message() -> Box<Message> {
    // SAFETY: `msghdr` and `iovec` are plain C structures of integers and pointers, for which zero is a value.
    Box::new(unsafe { std::mem::zeroed() })
}

/// Rings of the past are released behind the back of their closer; a setup that meets them is tried again.
fn patiently(make: impl Fn() -> io::Result<Ring>) -> io::Result<Ring> {
    for _ in 0..SETUP_TRIES {
        match make() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => std::thread::sleep(SETUP_PAUSE),
            answer => return answer,
        }
    }
    make()
}

/// How often, and how far apart, a setup is tried that had no memory.
const SETUP_TRIES: usize = 5;
const SETUP_PAUSE: Duration = Duration::from_millis(10);
