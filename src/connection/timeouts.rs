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
    /// The peer's end, after ours.
    Linger,
    /// The application: its own timeouts apply.
    Application,
}

/// The deadline in force and the timer that watches it.
#[derive(Debug)]
pub(super) struct Deadlines {
    waiting: Waiting,
    at: Duration,
    timer: Key,
    armed_at: Duration,
    /// Bytes moved when the window of a progress deadline began.
    mark: u64,
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Deadlines {
            waiting: Waiting::Application,
            at: Duration::MAX,
            timer: Key::NONE,
            armed_at: Duration::MAX,
            mark: 0,
        }
    }
}

impl Connection {
    /// What is waited for now.
    fn waiting(&self) -> Waiting {
        match self.cycle.phase() {
            Phase::Linger => Waiting::Linger,
            _ if self.output.is_sending() => Waiting::Write,
            Phase::Head => Waiting::Head,
            Phase::Body | Phase::LastBody | Phase::Drain if !self.paused => Waiting::Body,
            Phase::Idle if self.pipeline.is_empty() && self.cycle.taken() == 0 => Waiting::Head,
            Phase::Idle if self.pipeline.is_empty() => Waiting::Idle,
            _ => Waiting::Application,
        }
    }

    /// Bytes that count as progress for what is waited for.
    fn moved(&self, waiting: Waiting) -> u64 {
        match waiting {
            Waiting::Body => self.body_received,
            Waiting::Write => {
                let unacknowledged = self.socket.unacknowledged().unwrap_or(0);
                self.socket.sent_bytes().saturating_sub(unacknowledged)
            }
            _ => 0,
        }
    }
}

impl Service {
    /// Sets the deadline that fits the connection's state. Called at the end of every event.
    #[inline]
    pub(super) fn renew_deadline(&self, connection: &mut Connection) {
        let waiting = connection.waiting();
        let now = self.now();
        let restarts = waiting != connection.deadlines.waiting || waiting == Waiting::Idle;
        if !restarts {
            return;
        }
        connection.deadlines.waiting = waiting;
        connection.deadlines.at = now.saturating_add(first_window(&self.limits, waiting));
        connection.deadlines.mark = match waiting {
            Waiting::Body => connection.body_received,
            // What was sent before has been acknowledged in all likelihood; asking the kernel is not worth it here.
            Waiting::Write => connection.socket.sent_bytes(),
            _ => 0,
        };
        self.arm(connection);
    }

    /// Makes the timer fire no later than the deadline.
    fn arm(&self, connection: &mut Connection) {
        let deadlines = &mut connection.deadlines;
        if deadlines.at >= deadlines.armed_at {
            return;
        }
        deadlines.armed_at = deadlines.at;
        if !self.shard.reset_timer(deadlines.timer, deadlines.at) {
            deadlines.timer = self.set_connection_timer(deadlines.at, connection.key);
        }
    }

    pub(super) fn drop_timer(&self, connection: &Connection) {
        self.shard.cancel_timer(connection.deadlines.timer);
    }

    /// The timer fired: the deadline may have moved away since.
    pub(super) fn on_deadline(&self, connection: &mut Connection) {
        connection.deadlines.armed_at = Duration::MAX;
        if self.now() < connection.deadlines.at {
            return self.arm(connection);
        }
        let waiting = connection.deadlines.waiting;
        if let (Waiting::Body | Waiting::Write, true) = (waiting, self.made_progress(connection, waiting)) {
            connection.deadlines.mark = connection.moved(waiting);
            connection.deadlines.at = self.now() + next_window(&self.limits, waiting);
            return self.arm(connection);
        }
        connection.deadlines.at = Duration::MAX;
        self.expired(connection, waiting);
    }

    fn made_progress(&self, connection: &Connection, waiting: Waiting) -> bool {
        let needed = match waiting {
            Waiting::Body => self.limits.body_progress_bytes_min,
            _ => self.limits.write_progress_bytes_min,
        };
        connection.moved(waiting).saturating_sub(connection.deadlines.mark) >= needed
    }

    fn expired(&self, connection: &mut Connection, waiting: Waiting) {
        match waiting {
            Waiting::Head if connection.held.is_empty() => {
                self.count_cut("head_timeout_silent");
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
            Waiting::Application => {}
        }
    }
}

fn first_window(limits: &Limits, waiting: Waiting) -> Duration {
    match waiting {
        Waiting::Body => Duration::from_millis(limits.body_grace_ms + limits.body_progress_window_ms),
        other => next_window(limits, other),
    }
}

fn next_window(limits: &Limits, waiting: Waiting) -> Duration {
    match waiting {
        Waiting::Head => Duration::from_millis(limits.head_timeout_ms),
        Waiting::Body => Duration::from_millis(limits.body_progress_window_ms),
        Waiting::Write => Duration::from_millis(limits.write_progress_window_ms),
        Waiting::Idle => Duration::from_millis(limits.idle_timeout_ms),
        Waiting::Linger => Duration::from_millis(limits.linger_timeout_ms),
        Waiting::Application => Duration::MAX,
    }
}
