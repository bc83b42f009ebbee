//! The simulated driver: the same contract over an in-memory network, with time that a test moves and faults that
//! a seed decides. It never blocks: a turn turns everything that is due into completions.
//!
//! ```text
//!   test ── SimClient ──▶ SimNet (segments on their way, agenda) ◀── SimDriver (operations, late completions)
//!     └── Clock::advance(to SimNet::next_event or the shard's next timer) ── turn ── …
//! ```
//!
//! A descriptor is an index into this driver's own table, lowest free first, as the kernel gives them out.

mod client;
mod faults;
mod net;
#[cfg(test)]
mod tests;

pub use client::SimClient;
pub use faults::SimFaults;
pub use net::End;
pub(crate) use net::SimNet;

use super::{
    Address, Completion, Descriptor, DriverAccount, DriverOptions, ListenOptions, Op, Outcome, Owner,
    SendBuffer, SendProgress, Shutdown, SocketOption, TurnResult, Wait,
    completions::{Completions, Ready},
};
use crate::{
    buffers::Pool,
    error::{Error, Result},
    table::{GENERATION_MASK, Key},
};
use net::{ListenerId, SocketId};
use rustix::io::Errno;
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::{fd::OwnedFd, unix::fs::FileExt},
    rc::Rc,
    time::Duration,
};

/// The driver of a shard that lives in a simulated network.
#[derive(Debug)]
pub(crate) struct SimDriver {
    net: SimNet,
    pool: Rc<Pool>,
    completions: Completions<Running>,
    held: Vec<Option<Held>>,
    /// Completions on their way to [`Completions`], by when they get there.
    late: BTreeMap<(Duration, u64), Ready>,
    late_count: u64,
    /// The network's activity when this driver last looked.
    seen: u64,
    /// Something was submitted or asked since the last turn, or a budget ended.
    unfinished: bool,
    /// A receive waits for a buffer.
    starved: bool,
    turns: u64,
    shortages: u64,
}

/// What a descriptor stands for.
#[derive(Debug)]
enum Held {
    Listener(ListenerId),
    Socket { id: SocketId, reset_at_close: bool },
    File(File),
}

/// An operation that goes on.
#[derive(Debug)]
struct Running {
    kind: Kind,
    /// When a cancel takes effect.
    cancel_at: Option<Duration>,
    /// When its last completion so far gets to its owner: a later one must not be there before.
    last_due: Duration,
    /// Until when no buffer is to be had.
    starved_until: Duration,
}

#[derive(Debug)]
enum Kind {
    Accept(ListenerId),
    Receive(SocketId),
    Send(SocketId, Option<SendBuffer>),
    Connect(SocketId),
    Read { file: Descriptor, offset: u64, buffer: Vec<u8>, len: usize },
}

/// Most completions of one operation in a turn: the others have their turn too.
const BUDGET: usize = 16;

impl SimDriver {
    /// A driver on this network. Buffers come from a pool of its own.
    pub(crate) fn new(net: &SimNet, options: &DriverOptions) -> Self {
        SimDriver {
            net: net.clone(),
            pool: Pool::new(options.buffer_bytes, options.buffers),
            completions: Completions::new(),
            held: Vec::new(),
            late: BTreeMap::new(),
            late_count: 0,
            seen: 0,
            unfinished: false,
            starved: false,
            turns: 0,
            shortages: 0,
        }
    }

    pub(crate) fn submit(&mut self, op: Op, owner: Owner) -> Key {
        let kind = match op {
            Op::Accept { listener } => match self.held(listener) {
                Held::Listener(id) => Kind::Accept(*id),
                other => panic!("accept on {other:?}"),
            },
            Op::Receive { socket } => Kind::Receive(self.socket_id(socket)),
            Op::Send { socket, buffer } => Kind::Send(self.socket_id(socket), Some(buffer)),
            Op::Connect { socket, address } => {
                let id = self.socket_id(socket);
                // A port nobody can listen on: whatever is not TCP is refused.
                self.net.connect_from(id, if let Address::Tcp(at) = address { at.port() } else { 0 });
                Kind::Connect(id)
            }
            Op::Read { file, offset, buffer, len } => Kind::Read { file, offset, buffer, len },
        };
        self.unfinished = true;
        let zero = Duration::ZERO;
        self.completions.insert(Running { kind, cancel_at: None, last_due: zero, starved_until: zero }, owner)
    }

    pub(crate) fn cancel(&mut self, key: Key) {
        let late = self.net.happens(|faults| faults.late_cancel);
        let at = self.net.now() + if late { self.net.lateness() } else { Duration::ZERO };
        if let Some(running) = self.completions.get_mut(key) {
            running.cancel_at.get_or_insert(at);
            self.net.alarm(at);
            self.unfinished = true;
        }
    }

    #[cfg(test)]
    pub(crate) fn orphan(&mut self, key: Key) {
        self.completions.disown(key);
        self.cancel(key);
    }

    /// The test moves time, but for a shard that goes down: what it waits for must come, or its patience end.
    pub(crate) fn turn(&mut self, wait: Wait) -> TurnResult {
        if let Wait::AtMost(time) = wait {
            self.net.pass(time);
        }
        self.turns += 1;
        self.net.pump();
        self.seen = self.net.activity();
        self.unfinished = false;
        self.starved = false;
        let now = self.net.now();
        // First those that were late: an operation's completions keep their order.
        while let Some(entry) = self.late.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let ready = entry.remove();
            self.hand_over(ready);
        }
        for key in self.completions.keys() {
            self.step(key, now);
        }
        self.completions.show();
        Ok(())
    }

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
        self.unfinished
            || self.completions.ready() > 0
            || self.seen != self.net.activity()
            || (self.starved && self.pool.has_room())
    }

    pub(crate) fn listen(&mut self, at: &Address, options: ListenOptions) -> Result<(Descriptor, Address)> {
        let Address::Tcp(at) = at else {
            return Err(Error::kernel("listen on a Unix socket", Errno::OPNOTSUPP.into()));
        };
        let backlog = usize::try_from(options.backlog).unwrap_or(1);
        let (id, port) = self
            .net
            .listen(at.port(), backlog, options.reuse_port)
            .map_err(|error| Error::kernel(format!("bind {at}"), error))?;
        Ok((self.hold(Held::Listener(id)), Address::Tcp(SocketAddr::new(at.ip(), port))))
    }

    pub(crate) fn socket(&mut self, _to: &Address) -> Result<Descriptor> {
        let id = self.net.open(false);
        Ok(self.hold(Held::Socket { id, reset_at_close: false }))
    }

    /// Takes over a file, for [`Op::Read`]. A real socket has no place in a simulated network.
    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> Descriptor {
        self.hold(Held::File(File::from(fd)))
    }

    /// Gives nothing away; the descriptor stays with this driver.
    pub(crate) fn release(&mut self, _fd: Descriptor) -> Option<OwnedFd> {
        None
    }

    /// There is no other process in a simulated network.
    pub(crate) fn duplicate(&mut self, _fd: Descriptor) -> io::Result<OwnedFd> {
        Err(Errno::OPNOTSUPP.into())
    }

    pub(crate) fn close(&mut self, fd: Descriptor) {
        let place = usize::try_from(fd.0).ok().and_then(|index| self.held.get_mut(index));
        match place.and_then(Option::take).expect("a descriptor is closed once") {
            Held::Listener(id) => self.net.unlisten(id),
            Held::Socket { id, reset_at_close } => {
                if reset_at_close {
                    self.net.reset(id);
                }
                self.net.close(id);
            }
            Held::File(_) => {}
        }
    }

    pub(crate) fn shutdown(&mut self, fd: Descriptor, how: Shutdown) -> io::Result<()> {
        let id = self.socket_id(fd);
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.net.deafen(id);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.net.finish(id);
        }
        Ok(())
    }

    pub(crate) fn peer(&self, fd: Descriptor) -> io::Result<Option<SocketAddr>> {
        let port = self.net.ports(self.socket_id(fd)).1;
        Ok(Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)))
    }

    pub(crate) fn set_option(&mut self, fd: Descriptor, option: SocketOption) -> io::Result<()> {
        if let SocketOption::Linger(time) = option
            && let Some(Held::Socket { reset_at_close, .. }) = self.held[fd.0 as usize].as_mut()
        {
            *reset_at_close = time == Some(Duration::ZERO);
        }
        Ok(())
    }

    pub(crate) fn send_progress(&self, fd: Descriptor) -> io::Result<SendProgress> {
        let unacknowledged = self.net.unacknowledged(self.socket_id(fd)) as u64;
        Ok(SendProgress { unacknowledged, acknowledged: None, peer_ended: false })
    }

    pub(crate) fn account(&self) -> DriverAccount {
        DriverAccount {
            in_flight: self.completions.in_flight(),
            descriptors: self.held.iter().flatten().count(),
            buffers: self.pool.account(),
            enters: self.turns,
            stale_completions: self.completions.stale(),
            buffer_shortages: self.shortages,
            overflows: 0,
        }
    }

    /// Ends everything at the present simulated time, however late it would have been.
    #[expect(clippy::boxed_local, reason = "one signature for the three drivers")]
    pub(crate) fn stop(mut self: Box<Self>, _within: Duration) -> usize {
        for key in self.completions.keys() {
            self.completions.disown(key);
            self.cut(key);
        }
        for (_, ready) in std::mem::take(&mut self.late) {
            self.completions.push(ready);
        }
        self.completions.show();
        while self.next().is_some() {}
        for index in 0..self.held.len() {
            if self.held[index].is_some() {
                self.close(Descriptor(index as i32));
            }
        }
        self.completions.in_flight()
    }

    fn hold(&mut self, held: Held) -> Descriptor {
        let free = self.held.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.held.push(None);
            self.held.len() - 1
        });
        self.held[index] = Some(held);
        Descriptor(index as i32)
    }

    fn held(&self, fd: Descriptor) -> &Held {
        let place = usize::try_from(fd.0).ok().and_then(|index| self.held.get(index));
        place.and_then(Option::as_ref).expect("the descriptor is open")
    }

    fn socket_id(&self, fd: Descriptor) -> SocketId {
        match self.held(fd) {
            Held::Socket { id, .. } => *id,
            other => panic!("{other:?} is not a socket"),
        }
    }

    /// Queues a completion, in time or late, alone or with a stale twin.
    fn emit(&mut self, key: Key, outcome: Outcome, more: bool) {
        let now = self.net.now();
        let late = self.net.happens(|faults| faults.late_completion);
        let delay = if late { self.net.lateness() } else { Duration::ZERO };
        let running = self.completions.get_mut(key).expect("an operation completes while it goes on");
        let due = running.last_due.max(now + delay);
        running.last_due = due;
        if !more {
            self.completions.set_over(key);
            if self.net.happens(|faults| faults.duplicate_completion) {
                self.emit_stale_twin(key);
            }
        }
        let ready = Ready { key, outcome, more };
        if due <= now {
            return self.hand_over(ready);
        }
        self.late_count += 1;
        self.late.insert((due, self.late_count), ready);
        self.net.alarm(due);
    }

    fn hand_over(&mut self, ready: Ready) {
        let waiting = self.completions.ready();
        if waiting > 0 && self.net.happens(|faults| faults.reorder) {
            let places = 1 + self.net.below(waiting);
            return self.completions.push_ahead(ready, places);
        }
        self.completions.push(ready);
    }

    /// What a kernel would deliver for the slot's tenant before this one. It holds a buffer if there is one.
    fn emit_stale_twin(&mut self, key: Key) {
        let generation = key.generation.wrapping_sub(1) & GENERATION_MASK;
        let outcome = match self.pool.loan() {
            Some(buffer) => Outcome::Received(self.pool.lease(buffer, 1)),
            None => Outcome::EndOfStream,
        };
        self.completions.push(Ready { key: Key { generation, ..key }, outcome, more: true });
    }

    /// Lets an operation do what can be done now.
    fn step(&mut self, key: Key, now: Duration) {
        let Some(running) = self.completions.get_mut(key) else { return };
        if running.cancel_at.is_some_and(|at| at <= now) {
            return self.cut(key);
        }
        match running.kind {
            Kind::Accept(listener) => self.step_accept(key, listener),
            Kind::Receive(socket) => self.step_receive(key, socket, now),
            Kind::Send(socket, _) => self.step_send(key, socket),
            Kind::Connect(socket) => {
                if let Some(result) = self.net.connected(socket) {
                    self.emit(key, Outcome::Connected(result), false);
                }
            }
            Kind::Read { .. } => self.step_read(key),
        }
    }

    /// The end of an operation that was cancelled.
    fn cut(&mut self, key: Key) {
        let Some(running) = self.completions.get_mut(key) else { return };
        let cancelled = || io::Error::from(Errno::CANCELED);
        let outcome = match &mut running.kind {
            Kind::Accept(_) | Kind::Receive(_) => Outcome::Failed(cancelled()),
            Kind::Send(_, buffer) => match buffer.take() {
                Some(buffer) => Outcome::Sent { result: Err(cancelled()), buffer },
                None => return,
            },
            Kind::Connect(_) => Outcome::Connected(Err(cancelled())),
            Kind::Read { buffer, .. } => {
                Outcome::Read { result: Err(cancelled()), buffer: std::mem::take(buffer) }
            }
        };
        self.emit(key, outcome, false);
    }

    fn step_accept(&mut self, key: Key, listener: ListenerId) {
        for _ in 0..BUDGET {
            let Some(id) = self.net.accept(listener) else { return };
            let fd = self.hold(Held::Socket { id, reset_at_close: false });
            self.emit(key, Outcome::Accepted(fd), true);
            // The connections behind this one stay in the queue, as with the kernel's EMFILE.
            if self.net.happens(|faults| faults.accept_error) {
                return self.emit(key, Outcome::Failed(Errno::MFILE.into()), false);
            }
        }
        self.unfinished = true;
    }

    fn step_receive(&mut self, key: Key, socket: SocketId, now: Duration) {
        for _ in 0..BUDGET {
            if !self.net.is_readable(socket) {
                return;
            }
            if self.net.happens(|faults| faults.spurious_cancel) {
                return self.cut(key);
            }
            if self.net.happens(|faults| faults.connection_error) {
                self.net.reset(socket);
            }
            let Some(mut buffer) = self.find_buffer(key, now) else { return };
            match self.net.receive(socket, &mut buffer) {
                Ok(0) => {
                    self.pool.return_loan(buffer);
                    return self.emit(key, Outcome::EndOfStream, false);
                }
                Ok(len) => {
                    let lease = self.pool.lease(buffer, len);
                    self.emit(key, Outcome::Received(lease), true);
                }
                Err(error) => {
                    self.pool.return_loan(buffer);
                    return self.emit(key, Outcome::Failed(error.into()), false);
                }
            }
        }
        self.unfinished = true;
    }

    /// A buffer for a receive that has something to read, unless there is none, or none is to be had by fault.
    fn find_buffer(&mut self, key: Key, now: Duration) -> Option<Vec<u8>> {
        let running = self.completions.get_mut(key).expect("it is being stepped");
        if running.starved_until > now {
            return None;
        }
        if self.net.happens(|faults| faults.out_of_buffers) {
            let until = now + self.net.lateness();
            running.starved_until = until;
            self.net.alarm(until);
            self.shortages += 1;
            return None;
        }
        let buffer = self.pool.loan();
        if buffer.is_none() {
            self.starved = true;
            self.shortages += 1;
        }
        buffer
    }

    fn step_send(&mut self, key: Key, socket: SocketId) {
        let space = match self.net.send_space(socket) {
            Ok(0) => return,
            Ok(_) if self.net.happens(|faults| faults.connection_error) => {
                self.net.reset(socket);
                Err(Errno::PIPE)
            }
            other => other,
        };
        if space.is_ok() && self.net.happens(|faults| faults.spurious_cancel) {
            return self.cut(key);
        }
        let short = self.net.happens(|faults| faults.short_send);
        let Some(Running { kind: Kind::Send(_, place), .. }) = self.completions.get_mut(key) else { return };
        let Some(mut buffer) = place.take() else { return };
        let result = space.map_err(io::Error::from).map(|space| {
            let whole = space.min(buffer.remaining());
            let count = if short && whole > 1 { 1 + self.net.below(whole - 1) } else { whole };
            let mut left = count;
            for slice in buffer.slices() {
                let here = left.min(slice.len());
                self.net.send(socket, &slice[..here]);
                left -= here;
            }
            buffer.sent += count;
            count
        });
        self.emit(key, Outcome::Sent { result, buffer }, false);
    }

    fn step_read(&mut self, key: Key) {
        let Some(Running { kind: Kind::Read { file, offset, buffer, len }, .. }) =
            self.completions.get_mut(key)
        else {
            return;
        };
        let (file, offset, len, mut buffer) = (*file, *offset, *len, std::mem::take(buffer));
        buffer.resize(len, 0);
        let result = match self.held(file) {
            Held::File(file) => file.read_at(&mut buffer, offset),
            _ => Err(Errno::INVAL.into()),
        };
        buffer.truncate(*result.as_ref().unwrap_or(&0));
        self.emit(key, Outcome::Read { result, buffer }, false);
    }
}
