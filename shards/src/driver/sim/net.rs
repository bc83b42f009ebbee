//! The simulated network: sockets, listeners and segments on their way.
//! It knows no operations: [`super::SimDriver`] turns what happens here into completions, and
//! [`super::SimClient`] is the other side's hand.

use super::faults::{Chance, SimFaults};
use crate::clock::Clock;
use rustix::io::Errno;
use std::{
    cell::RefCell,
    collections::{BTreeSet, VecDeque},
    fmt, io,
    rc::Rc,
    time::Duration,
};

/// A simulated network. Clones are the same network; it belongs to one thread.
#[derive(Clone)]
pub(crate) struct SimNet {
    state: Rc<RefCell<State>>,
}

/// How the other end of a stream was seen to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All data came, then the end.
    Fin,
    /// The connection was refused or reset; data may be lost.
    Rst,
}

/// Index of a socket in the network; never given away twice.
pub(super) type SocketId = usize;
/// Index of a listener in the network; never given away twice.
pub(super) type ListenerId = usize;

struct State {
    clock: Clock,
    chance: Chance,
    faults: SimFaults,
    sockets: Vec<Option<Socket>>,
    listeners: Vec<Option<Listener>>,
    /// What will happen when, and to which socket ([`ALARM`] for a driver's own time).
    agenda: BTreeSet<(Duration, SocketId)>,
    activity: u64,
    next_port: u16,
}

struct Listener {
    port: u16,
    backlog: usize,
    queue: VecDeque<(Duration, SocketId)>,
}

enum Segment {
    Data(Vec<u8>),
    End(End),
}

/// One end of a connection.
#[derive(Default)]
struct Socket {
    local_port: u16,
    peer_port: u16,
    peer: Option<SocketId>,
    /// On their way to this end, in order of arrival.
    incoming: VecDeque<(Duration, Segment)>,
    /// Bytes among `incoming`.
    in_flight: usize,
    /// Arrived and not read.
    arrived: VecDeque<u8>,
    /// Everything that ever arrived (kept at client ends only).
    history: Option<Vec<u8>>,
    /// The bound of what is on its way and unread; `None` takes everything.
    window: Option<usize>,
    /// How the incoming direction ended.
    end: Option<End>,
    /// ECONNRESET is reported once, then EPIPE.
    reset_reported: bool,
    /// This end has sent FIN or RST.
    finished: bool,
    /// `shutdown(SHUT_RD)` was called: what comes is dropped.
    deaf: bool,
    /// Nobody holds this end any more: data that still comes is answered with RST.
    closed: bool,
    /// When an asked-for connection is there, and whether it was accepted.
    connecting: Option<(Duration, bool)>,
}

/// Bytes on their way at most when the reader takes everything; also the window of a server's end.
const WINDOW_BYTES: usize = 256 * 1024;
/// First of the ports given out to clients and for port 0.
const FIRST_PORT: u16 = 10_000;
const ALARM: SocketId = usize::MAX;

impl SimNet {
    /// A network in which everything is decided by `seed` and happens on `clock`.
    pub(crate) fn new(seed: u64, clock: Clock, faults: SimFaults) -> Self {
        let state = State {
            clock,
            chance: Chance::new(seed),
            faults,
            sockets: Vec::new(),
            listeners: Vec::new(),
            agenda: BTreeSet::new(),
            activity: 0,
            next_port: FIRST_PORT,
        };
        SimNet { state: Rc::new(RefCell::new(state)) }
    }

    /// The simulated time (as the clock counts) of the next thing that will happen in the network or to a
    /// completion that is late; `None` when nothing will happen by itself.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.state.borrow().agenda.first().map(|(at, _)| *at)
    }

    /// Lets everything arrive that is due. A driver does it in each turn; clients may see more after it.
    pub(crate) fn pump(&self) {
        let mut state = self.state.borrow_mut();
        let now = state.clock.now();
        while let Some(&(at, id)) = state.agenda.first() {
            if at > now {
                break;
            }
            state.agenda.pop_first();
            state.activity += 1;
            if id != ALARM {
                state.deliver(id, now);
            }
        }
    }

    /// Changes the faults from now on.
    pub(crate) fn set_faults(&self, change: impl FnOnce(&mut SimFaults)) {
        change(&mut self.state.borrow_mut().faults);
    }

    /// How much too late a wait for a deadline ends this time; zero unless [`SimFaults::late_wake`] strikes.
    pub(crate) fn wake_delay(&self) -> Duration {
        if self.happens(|faults| faults.late_wake) { self.lateness() } else { Duration::ZERO }
    }

    /// Ends of connections that somebody still holds: 0 when all clients and drivers have let go.
    pub(crate) fn open_sockets(&self) -> usize {
        self.state.borrow().sockets.iter().flatten().filter(|socket| !socket.closed).count()
    }

    pub(super) fn now(&self) -> Duration {
        self.state.borrow().clock.now()
    }

    /// Nobody has anything to do for so long.
    pub(super) fn pass(&self, time: Duration) {
        self.state.borrow().clock.advance(time);
    }

    pub(super) fn activity(&self) -> u64 {
        self.state.borrow().activity
    }

    /// Makes [`SimNet::next_event`] know a driver's own time.
    pub(super) fn alarm(&self, at: Duration) {
        self.state.borrow_mut().agenda.insert((at, ALARM));
    }

    /// Whether a fault strikes now.
    pub(super) fn happens(&self, fault: impl FnOnce(&SimFaults) -> f64) -> bool {
        let state = &mut *self.state.borrow_mut();
        let probability = fault(&state.faults);
        state.chance.happens(probability)
    }

    /// How late something is, when it is.
    pub(super) fn lateness(&self) -> Duration {
        let state = &mut *self.state.borrow_mut();
        state.chance.between(Duration::from_nanos(1), state.faults.late_by)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&self, bound: usize) -> usize {
        self.state.borrow_mut().chance.below(bound)
    }

    pub(super) fn listen(&self, port: u16, backlog: usize, share: bool) -> io::Result<(ListenerId, u16)> {
        let mut state = self.state.borrow_mut();
        let port = if port == 0 { state.take_port() } else { port };
        if !share && state.listeners.iter().flatten().any(|listener| listener.port == port) {
            return Err(Errno::ADDRINUSE.into());
        }
        state.listeners.push(Some(Listener { port, backlog: backlog.max(1), queue: VecDeque::new() }));
        Ok((state.listeners.len() - 1, port))
    }

    /// Closes a listener; what is in its queue is reset, as the kernel does.
    pub(super) fn unlisten(&self, id: ListenerId) {
        let mut state = self.state.borrow_mut();
        let Some(listener) = state.listeners[id].take() else { return };
        for (_, socket) in listener.queue {
            state.reset(socket);
            state.close(socket);
        }
    }

    /// The next connection that is due.
    pub(super) fn accept(&self, id: ListenerId) -> Option<SocketId> {
        let mut state = self.state.borrow_mut();
        let now = state.clock.now();
        let queue = &mut state.listeners[id].as_mut()?.queue;
        pop_due(queue, now)
    }

    pub(super) fn open(&self, is_client: bool) -> SocketId {
        let mut state = self.state.borrow_mut();
        let local_port = state.take_port();
        let (history, window) = if is_client { (Some(Vec::new()), None) } else { (None, Some(WINDOW_BYTES)) };
        state.add(Socket { local_port, history, window, ..Socket::default() })
    }

    /// Asks for a connection; [`SimNet::connected`] tells what became of it.
    pub(super) fn connect_from(&self, id: SocketId, port: u16) {
        self.state.borrow_mut().connect(id, port);
    }

    /// `None` while the connection is being made.
    pub(super) fn connected(&self, id: SocketId) -> Option<io::Result<()>> {
        let state = self.state.borrow();
        let (at, accepted) = state.socket(id).connecting?;
        (at <= state.clock.now()).then(|| if accepted { Ok(()) } else { Err(Errno::CONNREFUSED.into()) })
    }

    /// Takes arrived bytes. `Ok(0)` is the end, `EAGAIN` says that nothing is there.
    pub(super) fn receive(&self, id: SocketId, into: &mut [u8]) -> Result<usize, Errno> {
        let state = &mut *self.state.borrow_mut();
        let now = state.clock.now();
        let socket = state.socket_mut(id);
        let count = socket.arrived.len().min(into.len());
        for (byte, place) in socket.arrived.drain(..count).zip(into.iter_mut()) {
            *place = byte;
        }
        match (count, socket.end) {
            (0, _) if socket.deaf => Ok(0),
            (0, Some(End::Fin)) => Ok(0),
            (0, Some(End::Rst)) => {
                socket.reset_reported = true;
                Err(Errno::CONNRESET)
            }
            (0, None) => Err(Errno::AGAIN),
            _ => {
                state.tell_window(id, now);
                Ok(count)
            }
        }
    }

    /// Whether a receive would find something.
    pub(super) fn is_readable(&self, id: SocketId) -> bool {
        let state = self.state.borrow();
        let socket = state.socket(id);
        !socket.arrived.is_empty() || socket.end.is_some() || socket.deaf
    }

    /// How many bytes a send would take now; an error if the stream cannot be written to.
    pub(super) fn send_space(&self, id: SocketId) -> Result<usize, Errno> {
        let mut state = self.state.borrow_mut();
        let socket = state.socket_mut(id);
        if socket.end == Some(End::Rst) && !std::mem::replace(&mut socket.reset_reported, true) {
            return Err(Errno::CONNRESET);
        }
        if socket.finished || socket.end == Some(End::Rst) {
            return Err(Errno::PIPE);
        }
        let peer = socket.peer.ok_or(Errno::NOTCONN)?;
        Ok(state.sockets[peer].as_ref().map_or(WINDOW_BYTES, Socket::space))
    }

    /// Sends bytes on their way, cut at random points.
    pub(super) fn send(&self, id: SocketId, bytes: &[u8]) {
        self.state.borrow_mut().send(id, bytes);
    }

    /// Sends the end of the stream on its way.
    pub(super) fn finish(&self, id: SocketId) {
        self.state.borrow_mut().finish(id);
    }

    /// Resets the connection.
    pub(super) fn reset(&self, id: SocketId) {
        self.state.borrow_mut().reset(id);
    }

    /// `shutdown(SHUT_RD)`.
    pub(super) fn deafen(&self, id: SocketId) {
        let mut state = self.state.borrow_mut();
        let socket = state.socket_mut(id);
        socket.deaf = true;
        socket.arrived.clear();
        state.activity += 1;
    }

    /// Lets go of an end: FIN, or RST if data was left unread (RFC 2525 §2.17).
    pub(super) fn close(&self, id: SocketId) {
        self.state.borrow_mut().close(id);
    }

    /// Bytes sent from this end that have not arrived.
    pub(super) fn unacknowledged(&self, id: SocketId) -> usize {
        let state = self.state.borrow();
        let peer = state.socket(id).peer.and_then(|peer| state.sockets[peer].as_ref());
        peer.map_or(0, |peer| peer.in_flight)
    }

    pub(super) fn ports(&self, id: SocketId) -> (u16, u16) {
        let state = self.state.borrow();
        (state.socket(id).local_port, state.socket(id).peer_port)
    }

    pub(super) fn end(&self, id: SocketId) -> Option<End> {
        self.state.borrow().socket(id).end
    }

    pub(super) fn history(&self, id: SocketId) -> Vec<u8> {
        self.state.borrow().socket(id).history.clone().unwrap_or_default()
    }

    pub(super) fn read_all(&self, id: SocketId) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        let bytes = state.socket_mut(id).arrived.drain(..).collect();
        let now = state.clock.now();
        state.tell_window(id, now);
        bytes
    }

    pub(super) fn set_window(&self, id: SocketId, window: Option<usize>) {
        let mut state = self.state.borrow_mut();
        state.socket_mut(id).window = window;
        let now = state.clock.now();
        state.tell_window(id, now);
    }
}

impl State {
    fn socket(&self, id: SocketId) -> &Socket {
        self.sockets[id].as_ref().expect("an end that somebody holds exists")
    }

    fn socket_mut(&mut self, id: SocketId) -> &mut Socket {
        self.sockets[id].as_mut().expect("an end that somebody holds exists")
    }

    fn add(&mut self, socket: Socket) -> SocketId {
        self.sockets.push(Some(socket));
        self.sockets.len() - 1
    }

    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = if port == u16::MAX { FIRST_PORT } else { port + 1 };
        port
    }

    fn arrival(&mut self) -> Duration {
        self.clock.now() + self.chance.between(self.faults.latency_min, self.faults.latency_max)
    }

    fn connect(&mut self, id: SocketId, port: u16) {
        let at = self.arrival();
        let fits = |entry: &Option<Listener>| {
            entry.as_ref().is_some_and(|it| it.port == port && it.queue.len() < it.backlog)
        };
        let open: Vec<ListenerId> = (0..self.listeners.len()).filter(|i| fits(&self.listeners[*i])).collect();
        self.agenda.insert((at, id));
        self.socket_mut(id).peer_port = port;
        self.socket_mut(id).connecting = Some((at, !open.is_empty()));
        if open.is_empty() {
            self.socket_mut(id).incoming.push_back((at, Segment::End(End::Rst)));
            return;
        }
        let chosen = open[self.chance.below(open.len())];
        let local_port = self.socket(id).local_port;
        let accepted = self.add(Socket {
            local_port: port,
            peer_port: local_port,
            peer: Some(id),
            window: Some(WINDOW_BYTES),
            ..Socket::default()
        });
        self.socket_mut(id).peer = Some(accepted);
        let queue = &mut self.listeners[chosen].as_mut().expect("it was just found").queue;
        let at = queue.back().map_or(at, |(last, _)| at.max(*last));
        queue.push_back((at, accepted));
        self.agenda.insert((at, accepted));
    }

    /// Puts a segment on its way to `to`; segments never overtake each other.
    fn put(&mut self, to: SocketId, segment: Segment) {
        let at = self.arrival();
        let Some(socket) = self.sockets[to].as_mut() else { return };
        let at = socket.incoming.back().map_or(at, |(last, _)| at.max(*last));
        if let Segment::Data(bytes) = &segment {
            socket.in_flight += bytes.len();
        }
        socket.incoming.push_back((at, segment));
        self.agenda.insert((at, to));
    }

    fn send(&mut self, from: SocketId, mut bytes: &[u8]) {
        let Some(peer) = self.socket(from).peer else { return };
        while !bytes.is_empty() {
            let most = self.faults.segment_bytes_max.max(1).min(bytes.len());
            let (segment, rest) = bytes.split_at(1 + self.chance.below(most));
            self.put(peer, Segment::Data(segment.to_vec()));
            bytes = rest;
        }
    }

    fn finish(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if !std::mem::replace(&mut socket.finished, true)
            && let Some(peer) = socket.peer
        {
            self.put(peer, Segment::End(End::Fin));
        }
    }

    fn reset(&mut self, id: SocketId) {
        let Some(socket) = self.sockets[id].as_mut() else { return };
        socket.finished = true;
        socket.end = Some(End::Rst);
        socket.arrived.clear();
        let peer = socket.peer;
        self.activity += 1;
        if let Some(peer) = peer
            && self.sockets[peer].as_ref().is_some_and(|peer| peer.end != Some(End::Rst))
        {
            self.put(peer, Segment::End(End::Rst));
        }
    }

    fn close(&mut self, id: SocketId) {
        let socket = self.socket_mut(id);
        if socket.arrived.is_empty() {
            self.finish(id);
        } else {
            self.reset(id);
        }
        let socket = self.socket_mut(id);
        socket.closed = true;
        let peer = socket.peer;
        match peer {
            Some(peer) if self.sockets[peer].as_ref().is_some_and(|peer| !peer.closed) => {}
            Some(peer) => {
                self.sockets[id] = None;
                self.sockets[peer] = None;
            }
            None => self.sockets[id] = None,
        }
    }

    fn deliver(&mut self, id: SocketId, now: Duration) {
        let Some(socket) = self.sockets[id].as_mut() else { return };
        let mut answer_reset = false;
        while let Some(segment) = pop_due(&mut socket.incoming, now) {
            match segment {
                Segment::Data(bytes) => {
                    socket.in_flight -= bytes.len();
                    answer_reset |= socket.closed;
                    socket.take(&bytes);
                }
                Segment::End(End::Fin) if socket.end.is_some() => {}
                Segment::End(end) => socket.end = Some(end),
            }
        }
        if answer_reset {
            self.reset(id);
        }
    }

    /// The reader's window may have opened: whoever sends to it learns that a little later.
    fn tell_window(&mut self, reader: SocketId, now: Duration) {
        if let Some(sender) = self.socket(reader).peer {
            let at = now + self.faults.latency_min;
            self.agenda.insert((at, sender));
        }
    }
}

impl Socket {
    fn space(&self) -> usize {
        match self.window {
            _ if self.closed || self.deaf => WINDOW_BYTES,
            Some(window) => window.saturating_sub(self.in_flight + self.arrived.len()),
            None => WINDOW_BYTES.saturating_sub(self.in_flight),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.closed || self.deaf || self.end.is_some() {
            return;
        }
        self.arrived.extend(bytes);
        if let Some(history) = &mut self.history {
            history.extend_from_slice(bytes);
        }
    }
}

/// The first of the queue, if its time has come.
fn pop_due<T>(queue: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<T> {
    if queue.front()?.0 > now {
        return None;
    }
    queue.pop_front().map(|(_, thing)| thing)
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNet").field("open_sockets", &self.open_sockets()).finish_non_exhaustive()
    }
}
