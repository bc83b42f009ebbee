//! The deadlines of a connection on one wheel timer, re-armed lazily: moving a deadline further away touches
//! nothing, the timer finds out when it fires.

use super::{Closing, Connection, Service};
use crate::{
    error::EndReason,
    http1::{Phase, Reject},
    limits::Limits,
};
use shards::Key;
use std::time::Duration;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The rest of a head, since its first byte or since accept.
    Head,
    /// Progress of a body.
    Body,
    /// The peer to take output.
    Write,
    /// The next request.
    Idle,
    /// Any byte either way, in a tunnel.
    Tunnel,
    /// The peer's end, after ours.
    Linger,
    /// The application, while nothing is received: the peer's end would not be seen.
    Paused,
    /// The application: its own timeouts apply.
    Application,
}

/// A moment as nanoseconds of the shard's clock: half of what a `Duration` takes, for every connection has some.
fn nanoseconds(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(NEVER)
}

const NEVER: u64 = u64::MAX;

/// Bytes moved are not known until they have been asked for.
const UNKNOWN: u64 = u64::MAX;

/// The deadlines in force, one for what the peer must send and one for what it must take (neither may move the
/// other: a client that takes an answer byte by byte has not sent its body in time), and the timer that watches both.
/// Pairs are by [`Side`].
#[derive(Debug)]
pub(super) struct Deadlines {
    at: [u64; 2],
    /// Bytes moved when the window of a progress deadline began.
    mark: [u64; 2],
    armed_at: u64,
    timer: Key,
    /// The request that the input's deadline began in: it is not that of the next.
    request: u32,
    waiting: [Waiting; 2],
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Deadlines {
            at: [NEVER; 2],
            mark: [UNKNOWN; 2],
            armed_at: NEVER,
            timer: Key::NONE,
            request: 0,
            waiting: [Waiting::Application; 2],
        }
    }

    fn set(&mut self, side: Side, waiting: Waiting, at: Duration, mark: u64) {
        let side = side as usize;
        (self.waiting[side], self.at[side], self.mark[side]) = (waiting, nanoseconds(at), mark);
    }
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Input,
    Output,
}

impl Connection {
    /// What the peer must send now.
    fn awaited_input(&self) -> Waiting {
        let quiet = self.pipeline.is_empty() && !self.output.is_sending();
        match self.cycle.phase() {
            Phase::Linger => Waiting::Linger,
            Phase::Head => Waiting::Head,
            // A client that waits for our 100 is not late (RFC 9110 §10.1.1): the application is.
            Phase::Body | Phase::LastBody if self.cycle.awaits_continue() => Waiting::Application,
            // Nobody but us watches over what two strangers say to each other.
            Phase::LastBody | Phase::Stopped if self.carries_connect() => Waiting::Tunnel,
            // Another protocol has its own idea of what is late.
            Phase::LastBody if !self.paused && self.is_tunnel() => Waiting::Application,
            Phase::Body | Phase::LastBody | Phase::Drain if !self.paused => Waiting::Body,
            Phase::Idle if quiet && self.cycle.taken() == 0 => Waiting::Head,
            Phase::Idle if quiet => Waiting::Idle,
            _ if self.paused => Waiting::Paused,
            _ => Waiting::Application,
        }
    }

    /// What the peer must take now.
    fn awaited_output(&self) -> Waiting {
        if self.output.is_sending() { Waiting::Write } else { Waiting::Application }
    }

    /// Bytes that count as progress for what is waited for.
    fn moved(&self, waiting: Waiting) -> u64 {
        match waiting {
            Waiting::Body | Waiting::Tunnel => self.moved,
            Waiting::Write => self.socket.acknowledged().unwrap_or(0),
            _ => 0,
        }
    }
}

impl Service {
    /// Sets the deadlines that fit the connection's state. Called at the end of every event.
    #[inline]
    pub(super) fn renew_deadline(&self, connection: &mut Connection) {
        let input = connection.awaited_input();
        let request = connection.cycle.taken();
        let deadlines = &connection.deadlines;
        // Not at every event: the timer's own event must not move an idle connection's deadline.
        let renewed = input != deadlines.waiting[Side::Input as usize] || request != deadlines.request;
        if renewed {
            let window = match input {
                Waiting::Head if self.draining.get() => {
                    LAST_REQUEST_WITHIN.min(next_window(&self.limits, input))
                }
                _ => first_window(&self.limits, input),
            };
            let at = self.now().saturating_add(window);
            let mark = match input {
                Waiting::Body | Waiting::Tunnel => connection.moved,
                _ => UNKNOWN,
            };
            connection.deadlines.request = request;
            connection.deadlines.set(Side::Input, input, at, mark);
        }
        let output = connection.awaited_output();
        if output != connection.deadlines.waiting[Side::Output as usize] {
            let at = self.now().saturating_add(first_window(&self.limits, output));
            // What the peer has acknowledged is not asked for at every send, only if one lasts.
            connection.deadlines.set(Side::Output, output, at, UNKNOWN);
        } else if !renewed {
            return;
        }
        self.arm(connection);
    }

    /// Makes the timer fire no later than the deadlines.
    fn arm(&self, connection: &mut Connection) {
        let deadlines = &mut connection.deadlines;
        let at = deadlines.at[0].min(deadlines.at[1]);
        if at >= deadlines.armed_at {
            return;
        }
        deadlines.armed_at = at;
        let at = Duration::from_nanos(at);
        if !self.shard.reset_timer(deadlines.timer, at) {
            deadlines.timer = self.set_connection_timer(at, connection.key);
        }
    }

    /// The server ends: a request that is awaited has a moment to come.
    pub(super) fn hasten_head(connection: &mut Connection) {
        if connection.deadlines.waiting[Side::Input as usize] == Waiting::Head {
            connection.deadlines.waiting[Side::Input as usize] = Waiting::Application;
        }
    }

    pub(super) fn drop_timer(&self, connection: &Connection) {
        self.shard.cancel_timer(connection.deadlines.timer);
    }

    /// The timer fired: the deadlines may have moved away since.
    pub(super) fn on_deadline(&self, connection: &mut Connection) {
        connection.deadlines.armed_at = NEVER;
        for side in [Side::Input, Side::Output] {
            let place = side as usize;
            if nanoseconds(self.now()) < connection.deadlines.at[place] {
                continue;
            }
            let waiting = connection.deadlines.waiting[place];
            if let (Waiting::Body | Waiting::Tunnel | Waiting::Write, Some(left)) =
                (waiting, self.extension(connection, side))
            {
                let moved = connection.moved(waiting);
                connection.deadlines.set(side, waiting, self.now() + left, moved);
                continue;
            }
            connection.deadlines.at[place] = match waiting {
                Waiting::Paused => nanoseconds(self.now() + next_window(&self.limits, waiting)),
                _ => NEVER,
            };
            self.expired(connection, waiting);
            if connection.closing != Closing::No {
                return;
            }
        }
        self.arm(connection);
    }

    /// How much longer a transfer may go on: another window if it made progress, or the rest of its first one if
    /// that has only begun to be measured.
    fn extension(&self, connection: &mut Connection, side: Side) -> Option<Duration> {
        let waiting = connection.deadlines.waiting[side as usize];
        let mark = connection.deadlines.mark[side as usize];
        let window = next_window(&self.limits, waiting);
        if mark == UNKNOWN {
            return Some(window.saturating_sub(probe_after(&self.limits)));
        }
        let needed = match waiting {
            Waiting::Body => self.limits.body_progress_bytes_min,
            // The deadline of what is being sent is another one.
            Waiting::Tunnel if connection.output.is_sending() => 0,
            Waiting::Tunnel => 1,
            _ => self.limits.write_progress_bytes_min,
        };
        (connection.moved(waiting).saturating_sub(mark) >= needed).then_some(window)
    }

    fn expired(&self, connection: &mut Connection, waiting: Waiting) {
        match waiting {
            Waiting::Head if connection.held.is_empty() => {
                if !self.draining.get() {
                    self.count_cut("head_timeout_silent");
                }
                let actions = connection.cycle.broken();
                self.perform(connection, actions);
            }
            Waiting::Head => self.refuse(connection, Reject::HeadTimeout),
            Waiting::Body => {
                self.count_reject(Reject::BodyTimeout);
                self.fail_body(connection, EndReason::BodyTimeout);
            }
            Waiting::Idle => {
                self.count_cut("idle_timeout");
                let actions = connection.cycle.idle_expired();
                self.perform(connection, actions);
            }
            Waiting::Linger => {
                let actions = connection.cycle.linger_expired();
                self.perform(connection, actions);
            }
            Waiting::Write => {
                self.count_cut("write_timeout");
                connection.closing = Closing::Reset;
                self.end_exchanges(connection, EndReason::WriteTimeout);
            }
            Waiting::Tunnel => {
                self.count_cut("tunnel_idle_timeout");
                connection.closing = Closing::Reset;
                self.end_exchanges(connection, EndReason::TimedOut);
            }
            // Buffered requests hide the end of their client (a fault of other containers).
            Waiting::Paused if connection.socket.has_peer_ended() => self.abort_on_finish(connection),
            Waiting::Paused | Waiting::Application => {}
        }
    }
}

/// How long a server that ends waits for the request of a connection that is new: a lost segment is sent again by then
/// (RFC 6298 §2.4).
const LAST_REQUEST_WITHIN: Duration = Duration::from_secs(1);

/// How often a connection that receives nothing is asked whether its peer is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn first_window(limits: &Limits, waiting: Waiting) -> Duration {
    match waiting {
        Waiting::Body => {
            Duration::from_millis(limits.body_grace_ms.saturating_add(limits.body_progress_window_ms))
        }
        Waiting::Write => probe_after(limits),
        other => next_window(limits, other),
    }
}

/// How long a send may last before it is worth asking what the peer has acknowledged.
fn probe_after(limits: &Limits) -> Duration {
    Duration::from_millis(limits.write_progress_window_ms / 10).min(Duration::from_secs(1))
}

fn next_window(limits: &Limits, waiting: Waiting) -> Duration {
    match waiting {
        Waiting::Head => Duration::from_millis(limits.head_timeout_ms),
        Waiting::Body => Duration::from_millis(limits.body_progress_window_ms),
        Waiting::Write => Duration::from_millis(limits.write_progress_window_ms),
        Waiting::Idle => Duration::from_millis(limits.idle_timeout_ms),
        Waiting::Tunnel => Duration::from_millis(limits.tunnel_idle_timeout_ms),
        Waiting::Linger => Duration::from_millis(limits.linger_timeout_ms),
        Waiting::Paused => LOOK_EVERY,
        Waiting::Application => Duration::MAX,
    }
}
