//! The epoll driver: the operation table carried out by readiness, edge-triggered.
//!
//! A descriptor is registered once, for everything, when its first operation has to wait. From then on the
//! kernel tells each change once, so the driver remembers what it was told ([`Socket::readable`]) and never asks
//! twice: a short read means that the socket is drained and the next edge tells of more; a full send buffer means
//! that the next edge tells of room. One request on a kept connection costs one `recv`, one `send` and a share of
//! an `epoll_wait`. Sends leave at the start of the next turn, all together (`epoll/sends.rs`).
//!
//! Sockets stay blocking and every call says `MSG_DONTWAIT`, so that the same descriptor serves under `uring`;
//! listeners and connecting sockets are non-blocking, as accept(2) and connect(2) have no such flag.
//!
//! What it will not do: hand out a completion between turns, read for one socket longer than its budget, or wait
//! for a disk (`file_reads.rs` does).

mod calls;
mod one_shot;
mod sends;
#[cfg(test)]
mod tests;

use super::{
    Address, Completion, Descriptor, DriverAccount, DriverOptions, ListenOptions, Op, Outcome, Owner,
    SendBuffer, SendProgress, Shutdown, SocketOption, TurnResult, Wait,
    completions::{Completions, Ready, bytes_in_table},
    descriptors::{Descriptors, Listening},
    file_reads::{FileRead, FileReadDone, FileReads},
};
use crate::{
    buffers::Pool,
    clock::Start,
    error::{Error, Result},
    inbox::WakeFd,
    sync::Arc,
    table::{Key, make_room},
};
use calls::{is_of_the_connection, receive_once};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
    net::SocketFlags,
};
use std::{collections::VecDeque, fmt, io, net::SocketAddr, os::fd::OwnedFd, rc::Rc, time::Duration};

/// The driver of one shard over one epoll set.
#[derive(Debug)]
pub(crate) struct EpollDriver {
    epoll: OwnedFd,
    events: Events,
    descriptors: Descriptors,
    /// Indexed by descriptor number, like the table of descriptors.
    sockets: Vec<Socket>,
    completions: Completions<Waiting>,
    pool: Rc<Pool>,
    file_reads: FileReads,
    /// Sends that were submitted since the last turn: the next begins with them.
    to_send: Vec<(Key, Descriptor, SendBuffer)>,
    /// Descriptors to be tried again without an edge: a budget ended, or an edge came before its operation.
    again: VecDeque<i32>,
    /// Descriptors whose receive found no buffer.
    starved: VecDeque<i32>,
    /// Descriptors whose open file has been given to another process too.
    duplicated: Vec<Descriptor>,
    /// The last turn handed out what was there and did not ask the kernel.
    skipped: bool,
    enters: u64,
    shortages: u64,
    /// Ends a wait; held so that the descriptor outlives its registration.
    _wake: Arc<WakeFd>,
}

/// What the last wait told.
struct Events(Vec<epoll::Event>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({})", self.0.len())
    }
}

/// What is known of a descriptor.
#[derive(Debug, Clone, Copy, Default)]
struct Socket {
    /// The `Receive` or `Accept` in flight.
    reader: Option<Key>,
    /// The `Send` or `Connect` that waits.
    writer: Option<Key>,
    registered: bool,
    /// An edge told of data and no short read has answered it.
    readable: bool,
    /// The peer has ended or the socket failed: no further edge will tell, so reading goes on to the very end.
    ended: bool,
    /// It is in [`EpollDriver::again`].
    queued: bool,
    /// It is in [`EpollDriver::starved`].
    starved: bool,
}

/// An operation that waits for an edge or a thread.
#[derive(Debug)]
enum Waiting {
    Accept(Descriptor),
    Receive(Descriptor),
    /// The buffer has a place of its own, so that the many receives that wait are small.
    Send(Descriptor, Option<Box<SendBuffer>>),
    Connect(Descriptor),
    Read,
}

/// Parts of what an idle connection costs: see `net/mod.rs`.
const _: () = assert!(size_of::<Socket>() + bytes_in_table::<Waiting>() <= 72);

/// Most buffers filled, or connections accepted, for one descriptor in a turn: the others have their turn too.
const BUDGET: usize = 16;
/// Most events taken in a turn.
const EVENTS_MAX: usize = 256;
/// The wake descriptor's name in the set; no descriptor has this number.
const WAKE: u64 = u64::MAX;

impl EpollDriver {
    pub(crate) fn new(options: &DriverOptions, pool: Rc<Pool>, wake: Arc<WakeFd>) -> Result<Self> {
        debug_assert_eq!(options.buffer_bytes, pool.buffer_bytes());
        let failed = |error: Errno| Error::kernel("epoll_create1", error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        // Each write of an eventfd is an edge of its own, so nobody needs to read it.
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, wake.as_fd(), epoll::EventData::new_u64(WAKE), edges)
            .map_err(|error| Error::kernel("epoll_ctl of the wake descriptor", error.into()))?;
        Ok(EpollDriver {
            epoll,
            events: Events(Vec::with_capacity(EVENTS_MAX)),
            descriptors: Descriptors::new(),
            sockets: Vec::new(),
            completions: Completions::new(),
            pool,
            file_reads: FileReads::new(wake.clone()),
            to_send: Vec::new(),
            again: VecDeque::new(),
            starved: VecDeque::new(),
            duplicated: Vec::new(),
            skipped: false,
            enters: 0,
            shortages: 0,
            _wake: wake,
        })
    }

    pub(crate) fn submit(&mut self, op: Op, owner: Owner) -> Key {
        match op {
            Op::Send { socket, buffer } => self.submit_send(socket, buffer, owner),
            Op::Receive { socket } => {
                let key = self.completions.insert(Waiting::Receive(socket), owner);
                self.arm_reader(socket, key);
                key
            }
            Op::Accept { listener } => {
                let key = self.completions.insert(Waiting::Accept(listener), owner);
                match self.set_nonblocking(listener) {
                    Ok(()) => self.arm_reader(listener, key),
                    Err(error) => self.finish(key, Outcome::Failed(error)),
                }
                key
            }
            Op::Connect { socket, address } => {
                let key = self.completions.insert(Waiting::Connect(socket), owner);
                self.start_connect(socket, &address, key);
                key
            }
            Op::Read { file, offset, buffer, len } => {
                let key = self.completions.insert(Waiting::Read, owner);
                self.start_read(key, file, offset, (buffer, len));
                key
            }
        }
    }

    pub(crate) fn cancel(&mut self, key: Key) {
        let Some(waiting) = self.completions.get_mut(key) else { return };
        let cancelled = io::Error::from(Errno::CANCELED);
        let outcome = match waiting {
            Waiting::Accept(fd) | Waiting::Receive(fd) => {
                self.sockets[fd.0 as usize].reader = None;
                Outcome::Failed(cancelled)
            }
            Waiting::Send(fd, buffer) => {
                let (fd, buffer) = (*fd, buffer.take());
                self.sockets[fd.0 as usize].writer = None;
                let Some(buffer) = buffer else { return self.send_at_last(key) };
                Outcome::Sent { result: Err(cancelled), buffer: *buffer }
            }
            Waiting::Connect(fd) => {
                self.sockets[fd.0 as usize].writer = None;
                Outcome::Connected(Err(cancelled))
            }
            // A read that a thread has taken comes back by itself.
            Waiting::Read => match self.file_reads.cancel(key) {
                Some(buffer) => Outcome::Read { result: Err(cancelled), buffer },
                None => return,
            },
        };
        self.finish(key, outcome);
    }

    pub(crate) fn orphan(&mut self, key: Key) {
        self.completions.disown(key);
        self.cancel(key);
    }

    pub(crate) fn turn(&mut self, wait: Wait) -> TurnResult {
        self.send_all();
        // What is complete already (sends, mostly) is handed out before the kernel is asked for more: an idle moment
        // then costs one wait, not two. Never twice in a row, or sends could starve the receives.
        if self.completions.ready() > 0 && !std::mem::replace(&mut self.skipped, true) {
            self.completions.show();
            return Ok(());
        }
        self.skipped = false;
        let retries = self.again.len();
        self.wait(if self.has_work() { Wait::No } else { wait })?;
        for index in 0..self.events.0.len() {
            let event = self.events.0[index];
            let data = event.data;
            if data.u64() != WAKE {
                self.handle_event(data.u64() as i32, event.flags);
            }
        }
        for _ in 0..retries {
            let Some(fd) = self.again.pop_front() else { break };
            if std::mem::take(&mut self.sockets[fd as usize].queued) {
                self.handle_readable(Descriptor(fd));
            }
        }
        self.feed_starved();
        while let Some(done) = self.file_reads.next_done() {
            self.finish_read(done);
        }
        self.completions.show();
        Ok(())
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        loop {
            match self.completions.pop()? {
                Ok(completion) => return Some(completion),
                Err(Outcome::Accepted(fd)) => self.close(fd),
                Err(_) => {}
            }
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.completions.ready() > 0
            || !self.to_send.is_empty()
            || !self.again.is_empty()
            || (!self.starved.is_empty() && self.pool.has_room())
    }

    pub(crate) fn listen(&mut self, at: &Address, options: ListenOptions) -> Result<(Descriptor, Address)> {
        let (fd, real) = self.descriptors.listen(at, options, Listening::ByReadiness)?;
        self.track(fd);
        Ok((fd, real))
    }

    pub(crate) fn socket(&mut self, to: &Address) -> Result<Descriptor> {
        let fd = self.descriptors.socket(to)?;
        self.track(fd);
        Ok(fd)
    }

    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> Descriptor {
        let fd = self.descriptors.adopt(fd);
        self.track(fd);
        fd
    }

    pub(crate) fn release(&mut self, fd: Descriptor) -> Option<OwnedFd> {
        let socket = self.sockets.get(usize::try_from(fd.0).ok()?).copied()?;
        let owned = self.descriptors.release(fd)?;
        debug_assert!(
            socket.reader.is_none() && socket.writer.is_none(),
            "an operation is in flight on {fd:?}"
        );
        if socket.registered {
            // The open file lives on elsewhere, and with it the registration (epoll(7)).
            let _ = epoll::delete(&self.epoll, &owned);
        }
        self.sockets[fd.0 as usize] = Socket::default();
        Some(owned)
    }

    pub(crate) fn duplicate(&mut self, fd: Descriptor) -> io::Result<OwnedFd> {
        let twin = self.descriptors.duplicate(fd)?;
        if !self.duplicated.contains(&fd) {
            self.duplicated.push(fd);
        }
        Ok(twin)
    }

    pub(crate) fn close(&mut self, fd: Descriptor) {
        if self.duplicated.contains(&fd) {
            self.duplicated.retain(|twin| *twin != fd);
            if let Ok(open) = self.descriptors.get(fd) {
                // The open file may live on elsewhere, and with it the registration (epoll(7)).
                let _ = epoll::delete(&self.epoll, open);
            }
        }
        let socket = &mut self.sockets[fd.0 as usize];
        debug_assert!(
            socket.reader.is_none() && socket.writer.is_none(),
            "an operation is in flight on {fd:?}"
        );
        *socket = Socket::default();
        self.descriptors.close(fd);
    }

    pub(crate) fn shutdown(&mut self, fd: Descriptor, how: Shutdown) -> io::Result<()> {
        self.descriptors.shutdown(fd, how)?;
        if how != Shutdown::Write {
            self.sockets[fd.0 as usize].ended = true;
            self.try_again(fd);
        }
        Ok(())
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

    pub(crate) fn account(&self) -> DriverAccount {
        DriverAccount {
            in_flight: self.completions.in_flight(),
            descriptors: self.descriptors.len(),
            buffers: self.pool.account(),
            enters: self.enters,
            stale_completions: self.completions.stale(),
            buffer_shortages: self.shortages,
            overflows: 0,
        }
    }

    /// Only reads that a thread has taken can fail to return; they own their memory, so nothing needs to leak.
    pub(crate) fn stop(mut self: Box<Self>, within: Duration) -> usize {
        let started = Start::new();
        for key in self.completions.keys() {
            self.orphan(key);
        }
        loop {
            while self.next().is_some() {}
            let left = within.saturating_sub(started.elapsed());
            if self.completions.in_flight() == 0 || left.is_zero() || self.turn(Wait::AtMost(left)).is_err() {
                return self.completions.in_flight();
            }
        }
    }

    /// A fresh descriptor: whatever was known of its number belonged to another one.
    fn track(&mut self, fd: Descriptor) {
        let index = fd.0 as usize;
        if self.sockets.len() <= index {
            let more = index + 1 - self.sockets.len();
            make_room(&mut self.sockets, more);
            self.sockets.resize(index + 1, Socket::default());
        }
        self.sockets[index] = Socket::default();
    }

    fn wait(&mut self, wait: Wait) -> TurnResult {
        let timeout = match wait {
            Wait::No => Some(Timespec::default()),
            Wait::Forever => None,
            // Longer than the type can say is for ever.
            Wait::AtMost(time) => Timespec::try_from(time).ok(),
        };
        self.enters += 1;
        self.events.0.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events.0), timeout.as_ref()) {
            // A signal ends a wait early, as a wake does (signal(7): never restarted).
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::kernel("epoll_wait", error.into())),
        }
    }

    fn finish(&mut self, key: Key, outcome: Outcome) {
        self.completions.set_over(key);
        self.completions.push(Ready { key, outcome, more: false });
    }

    /// Sees to it that edges of this descriptor are told. The first is told at the next wait if there is anything
    /// to tell. Gives whether the descriptor is new to the set.
    fn register(&mut self, fd: Descriptor) -> io::Result<bool> {
        let socket = &mut self.sockets[fd.0 as usize];
        if socket.registered {
            return Ok(false);
        }
        let edges =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(fd.0 as u64);
        epoll::add(&self.epoll, self.descriptors.get(fd)?, data, edges)?;
        socket.registered = true;
        Ok(true)
    }

    fn set_nonblocking(&self, fd: Descriptor) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(self.descriptors.get(fd)?, true)?)
    }

    fn try_again(&mut self, fd: Descriptor) {
        let socket = &mut self.sockets[fd.0 as usize];
        if !std::mem::replace(&mut socket.queued, true) {
            self.again.push_back(fd.0);
        }
    }

    fn arm_reader(&mut self, fd: Descriptor, key: Key) {
        match self.register(fd) {
            Err(error) => return self.finish(key, Outcome::Failed(error)),
            Ok(true) => {}
            Ok(false) => {
                // What was told while nobody listened, or left behind by a failure, gives no edge again.
                let socket = &self.sockets[fd.0 as usize];
                if socket.readable || socket.ended {
                    self.try_again(fd);
                }
            }
        }
        let socket = &mut self.sockets[fd.0 as usize];
        debug_assert!(socket.reader.is_none(), "one receive or accept a descriptor");
        socket.reader = Some(key);
    }

    fn handle_event(&mut self, fd: i32, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let socket = &mut self.sockets[fd as usize];
        let fd = Descriptor(fd);
        let failed = flags.intersects(Flags::HUP | Flags::ERR);
        socket.ended |= failed || flags.contains(Flags::RDHUP);
        socket.readable |= socket.ended || flags.contains(Flags::IN);
        let (readable, writer) = (socket.readable, socket.writer);
        if readable {
            self.handle_readable(fd);
        }
        if let Some(key) = writer
            && (failed || flags.contains(Flags::OUT))
        {
            self.handle_writable(fd, key);
        }
    }

    fn handle_readable(&mut self, fd: Descriptor) {
        let Some(key) = self.sockets[fd.0 as usize].reader else { return };
        match self.completions.get_mut(key) {
            Some(Waiting::Receive(_)) => self.receive(fd, key),
            Some(Waiting::Accept(_)) => self.accept(fd, key),
            _ => {}
        }
    }

    /// Receives until the socket is drained, the budget is used up, or no buffer is left.
    fn receive(&mut self, fd: Descriptor, key: Key) {
        for _ in 0..BUDGET {
            let Some(mut buffer) = self.pool.loan() else { return self.starve(fd) };
            match receive_once(&self.descriptors, fd, &mut buffer) {
                Ok(0) => {
                    self.pool.return_loan(buffer);
                    return self.finish_reader(fd, key, Outcome::EndOfStream);
                }
                Ok(len) => {
                    let drained = len < buffer.len();
                    let lease = self.pool.lease(buffer, len);
                    self.completions.push(Ready { key, outcome: Outcome::Received(lease), more: true });
                    let socket = &mut self.sockets[fd.0 as usize];
                    if drained && !socket.ended {
                        socket.readable = false;
                        return;
                    }
                }
                Err(Errno::AGAIN) => {
                    self.pool.return_loan(buffer);
                    self.sockets[fd.0 as usize].readable = false;
                    return;
                }
                Err(error) => {
                    self.pool.return_loan(buffer);
                    return self.finish_reader(fd, key, Outcome::Failed(error.into()));
                }
            }
        }
        self.try_again(fd);
    }

    fn finish_reader(&mut self, fd: Descriptor, key: Key, outcome: Outcome) {
        self.sockets[fd.0 as usize].reader = None;
        self.finish(key, outcome);
    }

    fn starve(&mut self, fd: Descriptor) {
        self.shortages += 1;
        let socket = &mut self.sockets[fd.0 as usize];
        if !std::mem::replace(&mut socket.starved, true) {
            self.starved.push_back(fd.0);
        }
    }

    /// Gives buffers that came back to those who wait for them, the longest waiting first.
    fn feed_starved(&mut self) {
        for _ in 0..self.starved.len() {
            if !self.pool.has_room() {
                return;
            }
            let Some(fd) = self.starved.pop_front() else { return };
            if std::mem::take(&mut self.sockets[fd as usize].starved) {
                self.handle_readable(Descriptor(fd));
            }
        }
    }

    fn accept(&mut self, fd: Descriptor, key: Key) {
        for _ in 0..BUDGET {
            let accepted = match self.descriptors.get(fd) {
                Ok(listener) => rustix::net::accept_with(listener, SocketFlags::CLOEXEC),
                Err(error) => return self.finish_reader(fd, key, Outcome::Failed(error)),
            };
            match accepted {
                Ok(owned) => {
                    let accepted = self.adopt(owned);
                    self.completions.push(Ready { key, outcome: Outcome::Accepted(accepted), more: true });
                }
                Err(Errno::AGAIN) => {
                    self.sockets[fd.0 as usize].readable = false;
                    return;
                }
                Err(error) if is_of_the_connection(error) => {}
                Err(error) => return self.finish_reader(fd, key, Outcome::Failed(error.into())),
            }
        }
        self.try_again(fd);
    }
}
