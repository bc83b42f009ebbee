//! One generator shard: sockets between the schedule and the record. It sends what the schedule hands out, feeds what
//! comes back to each connection's `Line`, and reconnects. All state is the shard's own.
//!
//! ```text
//!  alarm, answer ─▶ pump ─▶ Schedule::next ─▶ Link (queue, send) ─▶ socket
//!  socket ─▶ Line::received ─▶ Recorder, Schedule::finished ─▶ pump
//!  tick (5 ms) ─▶ timeouts, reconnects, snapshots, end
//! ```
//!
//! What it will not do: decide when a request is due (`schedule`) or what a figure means (`health`, `report`).

mod line;
mod link;
mod times;

use std::{
    cell::RefCell,
    collections::HashMap,
    future::poll_fn,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender};
use shards::{
    Lease, Shard, TimerEvents,
    net::{ReceiveEnd, Sent, Socket, SocketAddress, SocketEvents},
};

use self::{
    line::{Flight, Use},
    link::{Link, Phase},
    times::thread_times,
};
use super::{
    health::ShardEffort,
    plan::Expect,
    record::{ErrorKind, Recorder},
    requests::Request,
    schedule::{Next, Pace, Schedule, ScheduleOptions},
};

#[cfg(test)]
mod tests;

/// Connections that are being established at one time before the run, so that a server's backlog is not flooded.
const CONNECTING_MAX: usize = 64;
/// How often timeouts, reconnects and snapshots are looked at: the precision of a timeout.
const TICK: Duration = Duration::from_millis(5);
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(1);

const TOKEN_ALARM: u64 = 0;
const TOKEN_TICK: u64 = 1;

/// What one shard is to do.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Where to.
    pub address: SocketAddress,
    /// What, in turn.
    pub requests: Arc<[Request]>,
    /// What must come back.
    pub expect: Expect,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// When to give up on an answer, and on a connection.
    pub timeout: Duration,
    /// When.
    pub schedule: ScheduleOptions,
    /// Length of an interval.
    pub interval: Duration,
    /// Where intervals go.
    pub events: Sender<Event>,
    /// Recorders that were read and cleared, to be used again.
    pub spares: Receiver<Box<Recorder>>,
}

/// What a shard tells while it runs.
#[derive(Debug)]
pub enum Event {
    /// All connections were tried; this many stand.
    Ready {
        /// Connections that stand.
        connected: u32,
        /// The first failure, in words.
        failure: Option<String>,
    },
    /// An interval is over.
    Interval {
        /// Whose it is.
        shard: u32,
        /// Counted from the start of the measured part.
        start: Duration,
        /// How long it was.
        length: Duration,
        /// What was counted in it.
        recorder: Box<Recorder>,
    },
}

/// What a shard leaves at its end.
#[derive(Debug)]
pub struct ClientEnd {
    /// Processor time and its frame.
    pub effort: ShardEffort,
    /// What was counted since the last interval that was told.
    pub rest: Box<Recorder>,
    /// Start of that last part, after the start of the measured part.
    pub rest_start: Duration,
    /// When the last answer came, after the start of the measured part.
    pub last_answer: Duration,
    /// How long the measured part was, if it was cut short.
    pub cut_short: Option<Duration>,
}

/// Where a shard keeps its client for the words to begin and to end.
#[derive(Debug, Default)]
pub struct Place(pub RefCell<Option<Rc<Client>>>);

/// Ends the measured part of this shard's client now.
pub fn cut_short(shard: &Shard) {
    if let Some(client) = shard.local(Place::default).0.borrow().as_ref() {
        client.cut_short();
    }
}

/// A generator shard's client.
pub struct Client {
    shard: Shard,
    options: ClientOptions,
    me: Weak<Client>,
    state: RefCell<State>,
}

struct State {
    schedule: Schedule,
    links: Vec<Link>,
    recorder: Box<Recorder>,
    /// Start of the run on the shard's clock; none before [`Client::begin`].
    start: Option<Duration>,
    told_ready: bool,
    first_failure: Option<String>,
    /// The next link to connect for the first time.
    next_first_connect: usize,
    /// Requests are due and no connection is free: an answer is the next chance to send.
    starved: bool,
    /// Start of the interval under way, after the start of the measured part.
    interval_start: Duration,
    effort_start: Option<([Duration; 2], Duration)>,
    effort: ShardEffort,
    last_answer: Duration,
    cut_short: Option<Duration>,
    body_hashes: HashMap<u32, u64>,
    /// Links with requests queued in this pump.
    dirty: Vec<u32>,
    ended: bool,
    waiting: Option<Waker>,
}

impl Client {
    /// A client that begins to connect. Call on the shard.
    pub fn start(shard: &Shard, options: ClientOptions) -> Rc<Self> {
        let count = options.schedule.connections;
        let hashes = options.expect.same_body;
        let state = State {
            schedule: Schedule::new(options.schedule),
            links: (0..count).map(|_| Link::new(hashes)).collect(),
            recorder: Box::new(Recorder::new()),
            start: None,
            told_ready: false,
            first_failure: None,
            next_first_connect: 0,
            starved: false,
            interval_start: Duration::ZERO,
            effort_start: None,
            effort: ShardEffort::default(),
            last_answer: Duration::ZERO,
            cut_short: None,
            body_hashes: HashMap::new(),
            dirty: Vec::new(),
            ended: false,
            waiting: None,
        };
        let client = Rc::new_cyclic(|me| Client {
            shard: shard.clone(),
            options,
            me: me.clone(),
            state: RefCell::new(state),
        });
        client.prepare();
        shard.set_timer(shard.now() + TICK, client.clone(), TOKEN_TICK);
        client
    }

    /// Starts the clock of the schedule at `start`, on the shard's clock.
    pub fn begin(&self, start: Duration) {
        self.state.borrow_mut().start = Some(start);
        self.shard.set_alarm(start, self.me(), TOKEN_ALARM);
    }

    /// Resolves when everything was sent and came back, or was given up.
    pub async fn finished(&self) -> ClientEnd {
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            state.waiting = Some(context.waker().clone());
            if state.ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let mut state = self.state.borrow_mut();
        state.links.clear();
        ClientEnd {
            effort: state.effort,
            rest: std::mem::take(&mut state.recorder),
            rest_start: state.interval_start,
            last_answer: state.last_answer,
            cut_short: state.cut_short,
        }
    }

    /// Ends the measured part now; what is under way is still awaited.
    fn cut_short(&self) {
        let mut state = self.state.borrow_mut();
        let now = if state.start.is_some() {
            self.run_time(&state, self.shard.read_clock())
        } else {
            Duration::ZERO
        };
        let measured = state.schedule.cut_short(now);
        state.cut_short.get_or_insert(measured);
    }

    fn me(&self) -> Rc<Client> {
        self.me.upgrade().expect("callbacks come to a living client")
    }

    /// Connects for the first time, a few at once; without keep-alive each request connects by itself.
    fn prepare(&self) {
        let mut state = self.state.borrow_mut();
        if !self.options.keep_alive {
            for link in 0..state.links.len() {
                state.links[link].phase = Phase::Idle;
                state.schedule.connection_up(link as u32, Duration::ZERO);
            }
            state.next_first_connect = state.links.len();
        }
        for _ in 0..CONNECTING_MAX {
            self.connect_next(&mut state);
        }
        self.tell_ready(&mut state);
    }

    fn connect_next(&self, state: &mut State) {
        if state.next_first_connect < state.links.len() {
            state.next_first_connect += 1;
            let link = state.next_first_connect as u32 - 1;
            self.connect(state, link);
        }
    }

    fn tell_ready(&self, state: &mut State) {
        let settled = state.links.iter().all(|link| !matches!(link.phase, Phase::New | Phase::Connecting));
        let tried = !self.options.keep_alive || (state.next_first_connect == state.links.len() && settled);
        if tried && !state.told_ready {
            state.told_ready = true;
            let connected = match self.options.keep_alive {
                true => state.links.iter().filter(|link| link.phase == Phase::Open).count() as u32,
                false => state.links.len() as u32,
            };
            // The channel is empty before the run, so it has room for one event of each shard.
            let _ =
                self.options.events.try_send(Event::Ready { connected, failure: state.first_failure.take() });
        }
    }

    fn connect(&self, state: &mut State, link: u32) {
        let now = self.shard.read_clock();
        let socket = Socket::start_connecting(&self.shard, &self.options.address, self.me(), u64::from(link));
        if let Err(error) = state.links[link as usize].connecting(socket, now) {
            self.connect_failed(state, link, &error.to_string());
        }
    }

    fn connect_failed(&self, state: &mut State, link: u32, why: &str) {
        state.first_failure.get_or_insert_with(|| why.to_owned());
        if state.start.is_some() {
            state.recorder.failed_without_ticket(ErrorKind::Connect, 1);
        }
        let now = self.shard.read_clock();
        state.links[link as usize].rest_until_retry(now, RETRY_FIRST, RETRY_MAX);
        // Requests that wait for this connection alone (no keep-alive) were never sent.
        self.lose(state, link, ErrorKind::NotSent);
    }

    /// The time of the run; zero before its start.
    fn run_time(&self, state: &State, at: Duration) -> Duration {
        state.start.map_or(Duration::ZERO, |start| at.saturating_sub(start))
    }

    /// Sends everything that is due and has a connection.
    fn pump(&self, state: &mut State) {
        let Some(start) = state.start.filter(|start| *start <= self.shard.read_clock()) else { return };
        loop {
            let now = self.shard.read_clock() - start;
            match state.schedule.next(now) {
                Next::Send(ticket) => {
                    let request = (ticket.number % self.options.requests.len() as u64) as u32;
                    let asked = self.options.requests[request as usize].asked;
                    let link = &mut state.links[ticket.connection as usize];
                    state.recorder.sent(&ticket, now);
                    link.push(Flight::new(ticket, request, asked, now));
                    if !std::mem::replace(&mut link.dirty, true) {
                        state.dirty.push(ticket.connection);
                    }
                }
                Next::WaitUntil(due) => {
                    state.starved = false;
                    self.shard.set_alarm(start + due, self.me(), TOKEN_ALARM);
                    break;
                }
                Next::WaitForConnection { .. } => {
                    state.starved = true;
                    break;
                }
                Next::Finished => {
                    state.starved = false;
                    break;
                }
            }
        }
        self.flush(state);
    }

    fn flush(&self, state: &mut State) {
        while let Some(index) = state.dirty.pop() {
            let link = &mut state.links[index as usize];
            link.dirty = false;
            match link.phase {
                Phase::Open => link.send(&self.options.requests),
                Phase::Idle => self.connect(state, index),
                _ => {}
            }
        }
    }

    /// Takes requests that were answered.
    fn settle(&self, state: &mut State, done: &[Flight], now: Duration) {
        for flight in done {
            state.links[flight.ticket.connection as usize].note_served();
            state.schedule.finished(&flight.ticket, now);
            state.recorder.answered(&flight.ticket, &flight.answer(now));
            let known = match self.options.expect.same_body {
                true => Some(*state.body_hashes.entry(flight.request).or_insert_with(|| flight.body_hash())),
                false => None,
            };
            if let Some(kind) = flight.unexpected(&self.options.expect, known) {
                state.recorder.failed(&flight.ticket, kind, now);
            }
            state.last_answer = state.last_answer.max(now);
        }
    }

    /// Gives up all requests on a connection and closes it; a new one follows where connections are kept.
    fn lose(&self, state: &mut State, index: u32, kind: ErrorKind) {
        let now = self.run_time(state, self.shard.read_clock());
        state.schedule.connection_down(index);
        let link = &mut state.links[index as usize];
        link.close();
        for (flight, kind) in link.line.drain(kind) {
            state.recorder.failed(&flight.ticket, kind, now);
            state.schedule.finished(&flight.ticket, now);
        }
        if !self.options.keep_alive {
            link.phase = Phase::Idle;
            state.schedule.connection_up(index, now);
        }
    }

    /// After a connection ended for whatever reason but a failed connect.
    fn go_on(&self, state: &mut State, index: u32) {
        let link = &mut state.links[index as usize];
        if self.options.keep_alive && link.phase == Phase::Closed {
            match link.served {
                true => self.connect(state, index),
                // A server that takes connections and closes them is not asked again at once.
                false => link.rest_until_retry(self.shard.read_clock(), RETRY_FIRST, RETRY_FIRST),
            }
        }
        self.pump(state);
    }

    fn on_tick(&self) {
        let mut state = self.state.borrow_mut();
        let clock = self.shard.read_clock();
        self.find_timeouts(&mut state, clock);
        self.tell_ready(&mut state);
        if state.start.is_some() {
            let now = self.run_time(&state, clock);
            self.measure_effort(&mut state, now);
            self.tell_interval(&mut state, now);
            self.end_if_over(&mut state, now);
        }
        if !state.ended {
            self.pump(&mut state);
            self.shard.set_timer(self.shard.now() + TICK, self.me(), TOKEN_TICK);
        }
    }

    fn find_timeouts(&self, state: &mut State, clock: Duration) {
        let now = self.run_time(state, clock);
        for index in 0..state.links.len() as u32 {
            let link = &state.links[index as usize];
            match link.phase {
                Phase::Connecting if clock >= link.since + self.options.timeout => {
                    self.connect_failed(state, index, "the connection was not answered in time");
                }
                Phase::Resting if clock >= link.since => self.connect(state, index),
                Phase::Draining if clock >= link.since + RETRY_FIRST * 10 => {
                    self.lose(state, index, ErrorKind::Closed);
                    self.go_on(state, index);
                }
                Phase::Open
                    if link.line.front().is_some_and(|front| now >= front.sent + self.options.timeout) =>
                {
                    self.lose(state, index, ErrorKind::Timeout);
                    self.go_on(state, index);
                }
                _ => {}
            }
        }
    }

    fn measure_effort(&self, state: &mut State, now: Duration) {
        let measured = state.schedule.measured();
        match state.effort_start {
            None if now >= measured.start => state.effort_start = Some((thread_times(), now)),
            Some((at_start, since)) if now < measured.end || state.effort.elapsed.is_zero() => {
                let times = thread_times();
                let [busy, waited] = [0, 1].map(|at| times[at].saturating_sub(at_start[at]));
                state.effort = ShardEffort { busy, waited, elapsed: now - since };
            }
            _ => {}
        }
    }

    fn tell_interval(&self, state: &mut State, now: Duration) {
        let measured = now.saturating_sub(self.options.schedule.warm_up);
        if measured < state.interval_start + self.options.interval {
            return;
        }
        // More than one when the thread was kept from its core, or the collector was behind.
        let intervals = (measured - state.interval_start).as_nanos() / self.options.interval.as_nanos();
        let length = self.options.interval * intervals as u32;
        let spare = self.options.spares.try_recv().unwrap_or_default();
        let recorder = std::mem::replace(&mut state.recorder, spare);
        let shard = self.options.schedule.shard.0;
        let event = Event::Interval { shard, start: state.interval_start, length, recorder };
        match self.options.events.try_send(event) {
            Ok(()) => state.interval_start += length,
            // The collector is behind: this interval becomes part of the next one.
            Err(error) => {
                if let Event::Interval { recorder, .. } = error.into_inner() {
                    state.recorder = recorder;
                }
            }
        }
    }

    fn end_if_over(&self, state: &mut State, now: Duration) {
        let measured = state.schedule.measured();
        let over = now >= measured.end;
        if over && now >= measured.end + self.options.timeout {
            let unsent = state.schedule.abandon();
            state.recorder.failed_without_ticket(ErrorKind::NotSent, unsent);
            (0..state.links.len() as u32).for_each(|index| self.lose(state, index, ErrorKind::Timeout));
        }
        if over && state.schedule.is_drained(now) {
            state.ended = true;
            state.last_answer = state.last_answer.saturating_sub(measured.start);
            state.waiting.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl SocketEvents for Client {
    fn on_connected(&self, shard: &Shard, token: u64, result: std::io::Result<()>) {
        let mut state = self.state.borrow_mut();
        let index = token as u32;
        if let Err(error) = result {
            self.connect_failed(&mut state, index, &error.to_string());
        } else {
            let now = shard.now();
            let took = now.saturating_sub(state.links[index as usize].since);
            state.recorder.connected(took);
            state.links[index as usize].opened(&self.options.requests);
            if self.options.keep_alive {
                let now = self.run_time(&state, now);
                state.schedule.connection_up(index, now);
            }
        }
        self.connect_next(&mut state);
        self.tell_ready(&mut state);
        self.pump(&mut state);
    }

    fn on_received(&self, shard: &Shard, token: u64, bytes: Lease) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let index = token as u32;
        let now = self.run_time(state, shard.now());
        let link = &mut state.links[index as usize];
        // RFC 9112 §9.6: what follows an answer with `close` is not looked at.
        if link.phase == Phase::Draining {
            return;
        }
        let mut done = std::mem::take(&mut link.done);
        let outcome = link.line.received(&bytes, now, |flight| done.push(flight));
        drop(bytes);
        if outcome == Ok(Use::NoMore) {
            // Before the slots come back: this connection gets no more requests.
            state.schedule.connection_down(index);
        }
        self.settle(state, &done, now);
        done.clear();
        state.links[index as usize].done = done;
        match outcome {
            Ok(Use::Again)
                if self.options.keep_alive || state.links[index as usize].line.front().is_some() => {}
            // The server did not take the hint to close.
            Ok(Use::Again) => self.lose(state, index, ErrorKind::Closed),
            Ok(Use::NoMore) => state.links[index as usize].drain_until_closed(shard.now()),
            Err(kind) => {
                if kind == ErrorKind::Extra && state.start.is_some() {
                    state.recorder.failed_without_ticket(kind, 1);
                }
                self.lose(state, index, kind);
                self.go_on(state, index);
                return;
            }
        }
        if state.starved || self.options.schedule.pace == Pace::Closed {
            self.pump(state);
        }
    }

    fn on_receive_end(&self, shard: &Shard, token: u64, end: ReceiveEnd) {
        let mut state = self.state.borrow_mut();
        let index = token as u32;
        let now = self.run_time(&state, shard.now());
        let kind = match end {
            ReceiveEnd::Finished => ErrorKind::Closed,
            ReceiveEnd::Failed(_) => ErrorKind::Reset,
        };
        if kind == ErrorKind::Closed
            && let Some(flight) = state.links[index as usize].line.ended()
        {
            state.schedule.connection_down(index);
            self.settle(&mut state, &[flight], now);
        }
        self.lose(&mut state, index, kind);
        self.go_on(&mut state, index);
    }

    fn on_sent(&self, _shard: &Shard, token: u64, sent: Sent) {
        let mut state = self.state.borrow_mut();
        let link = &mut state.links[token as usize];
        // A failed send is not the end: a server may answer early and close, and its answer is still to be read. The
        // receiving side tells the end, or the timeout does.
        let went = sent.result.is_ok();
        link.take_back(sent.buffer);
        if went && link.phase == Phase::Open {
            link.send(&self.options.requests);
        }
    }
}

impl TimerEvents for Client {
    fn on_timer(&self, _shard: &Shard, token: u64) {
        match token {
            TOKEN_ALARM => self.pump(&mut self.state.borrow_mut()),
            _ => self.on_tick(),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client on {:?}", self.shard)
    }
}
