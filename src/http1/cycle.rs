//! One connection's order of events as a pure machine: what may be read next, what must be thrown away, when to close.
//!
//! `step` is the table; `Cycle` adds the counters that decide which event a fact is (requests in flight, requests on
//! the connection, bytes thrown away). Neither sees a byte, a timer or a handler: the connection reports facts and
//! performs the returned actions after it has stored its state. Answers are ordered by their sequence numbers:
//! interim and final responses share one queue, so a 100 never overtakes the answer before it.
//!
//! Rows that are not listed change nothing. This table is printed by the code; a test compares the two.
//!
//! ```text
//! idle       head-began          head      start-head-timer
//! idle       taken               idle      start-request read-next
//! idle       taken-content       body      start-request read-content
//! idle       taken-last          stopped   start-request
//! idle       taken-last-content  last-body start-request read-content
//! idle       answered-last       stopped   -
//! idle       last-announced      stopped   -
//! idle       idle-ended          closed    close
//! idle       refused             stopped   answer-refusal
//! idle       peer-finished       stopped   -
//! idle       switched            last-body read-content
//! idle       broken              closed    close
//! head       taken               idle      start-request read-next
//! head       taken-content       body      start-request read-content
//! head       taken-last          stopped   start-request
//! head       taken-last-content  last-body start-request read-content
//! head       answered-last       stopped   -
//! head       last-announced      stopped   -
//! head       idle-ended          closed    close
//! head       refused             stopped   answer-refusal
//! head       peer-finished       stopped   -
//! head       broken              closed    close
//! body       content-ended       idle      read-next
//! body       answered            drain     discard-content
//! body       answered-last       stopped   -
//! body       last-announced      last-body -
//! body       refused             stopped   abort-content
//! body       peer-finished       stopped   abort-content
//! body       broken              closed    abort-content close
//! last-body  content-ended       stopped   -
//! last-body  answered            stopped   -
//! last-body  answered-last       stopped   -
//! last-body  refused             stopped   abort-content
//! last-body  peer-finished       stopped   abort-content
//! last-body  broken              closed    abort-content close
//! drain      content-ended       idle      read-next
//! drain      last-announced      stopped   -
//! drain      drain-exceeded      stopped   -
//! drain      refused             stopped   -
//! drain      peer-finished       stopped   -
//! drain      broken              closed    close
//! stopped    all-sent            linger    shut-write start-linger-timer
//! stopped    all-sent-finished   closed    close
//! stopped    broken              closed    close
//! linger     linger-ended        closed    close
//! linger     peer-finished       closed    close
//! linger     broken              closed    close
//! ```

use core::fmt;

use super::framing::{BodyKind, Framing};
use crate::limits::Limits;

/// What the input side of a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between two requests: no byte of the next head has come.
    Idle,
    /// A part of a head has come.
    Head,
    /// The content of the newest request is being read.
    Body,
    /// The same, and no request follows it.
    LastBody,
    /// The newest request is answered; the rest of its content is thrown away.
    Drain,
    /// No further request is read; answers may be outstanding. Input is thrown away.
    Stopped,
    /// All is answered and our side is shut; input is thrown away until the peer closes (RFC 9112 §9.6).
    Linger,
    /// Over.
    Closed,
}

/// A fact as the table sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The first byte of a head came.
    HeadBegan,
    /// A request was parsed: without content.
    Taken,
    /// With content.
    TakenContent,
    /// Without content, and the connection ends after it.
    TakenLast,
    /// With content, and the connection ends after it.
    TakenLastContent,
    /// The content of the newest request is complete.
    ContentEnded,
    /// The answer to the newest request is complete and announced persistence.
    Answered,
    /// The same, but it announced close.
    AnsweredLast,
    /// The requests taken so far are the last ones (shutdown).
    LastAnnounced,
    /// Nothing is in flight and the connection is not wanted any more (idle timeout, shutdown).
    IdleEnded,
    /// More of an unread content than may be thrown away.
    DrainExceeded,
    /// The input is malformed, too large or too slow.
    Refused,
    /// The peer shut its side.
    PeerFinished,
    /// Every answer was written to the socket.
    AllSent,
    /// The same, and the peer has shut its side already.
    AllSentFinished,
    /// The lingering close took long enough.
    LingerEnded,
    /// The answer to the newest request ended HTTP: what follows is the other protocol.
    Switched,
    /// The transport failed.
    Broken,
}

/// What the connection must do: a set.
#[must_use = "actions must be performed"]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Actions(u16);

impl Actions {
    /// Nothing.
    pub const NONE: Actions = Actions(0);
    /// Start the timer of the request head.
    pub const START_HEAD_TIMER: Actions = Actions(1);
    /// Give the request to its exchange.
    pub const START_REQUEST: Actions = Actions(1 << 1);
    /// Try the buffered bytes as the next head, as far as `may_take_request` allows.
    pub const READ_NEXT: Actions = Actions(1 << 2);
    /// Give the bytes that follow to the content decoder.
    pub const READ_CONTENT: Actions = Actions(1 << 3);
    /// Decode the rest of the content and throw it away; report its size to `content_discarded`.
    pub const DISCARD_CONTENT: Actions = Actions(1 << 4);
    /// Tell the newest exchange that its content will never be complete; answer it if it has no answer yet.
    pub const ABORT_CONTENT: Actions = Actions(1 << 5);
    /// Queue the error answer behind all others; it counts as an answer.
    pub const ANSWER_REFUSAL: Actions = Actions(1 << 6);
    /// Shut the sending side, and go on reading.
    pub const SHUT_WRITE: Actions = Actions(1 << 7);
    /// Start the timer of the lingering close.
    pub const START_LINGER_TIMER: Actions = Actions(1 << 8);
    /// Close the socket and end all exchanges that are left.
    pub const CLOSE: Actions = Actions(1 << 9);

    const NAMES: [&'static str; 10] = [
        "start-head-timer",
        "start-request",
        "read-next",
        "read-content",
        "discard-content",
        "abort-content",
        "answer-refusal",
        "shut-write",
        "start-linger-timer",
        "close",
    ];

    /// Both sets.
    pub const fn and(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }

    /// Whether all of `other` are in this set.
    #[inline]
    pub const fn contains(self, other: Actions) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is nothing to do.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return formatter.write_str("-");
        }
        let mut space = "";
        for (bit, name) in Actions::NAMES.iter().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(formatter, "{space}{name}")?;
                space = " ";
            }
        }
        Ok(())
    }
}

/// The table. Facts that mean nothing in a phase (a late answer, a second close) change nothing.
pub const fn step(phase: Phase, event: Event) -> (Phase, Actions) {
    use Event as E;
    use Phase as P;
    const START_AND_READ: Actions = Actions::START_REQUEST.and(Actions::READ_CONTENT);
    match (phase, event) {
        (P::Closed, _) => (P::Closed, Actions::NONE),
        (P::Body | P::LastBody, E::Broken) => (P::Closed, Actions::ABORT_CONTENT.and(Actions::CLOSE)),
        (_, E::Broken) => (P::Closed, Actions::CLOSE),
        (P::Idle, E::HeadBegan) => (P::Head, Actions::START_HEAD_TIMER),
        (P::Idle | P::Head, E::Taken) => (P::Idle, Actions::START_REQUEST.and(Actions::READ_NEXT)),
        (P::Idle | P::Head, E::TakenContent) => (P::Body, START_AND_READ),
        (P::Idle | P::Head, E::TakenLast) => (P::Stopped, Actions::START_REQUEST),
        (P::Idle | P::Head, E::TakenLastContent) => (P::LastBody, START_AND_READ),
        (P::Idle | P::Head, E::AnsweredLast | E::LastAnnounced | E::PeerFinished) => {
            (P::Stopped, Actions::NONE)
        }
        (P::Idle | P::Head, E::IdleEnded) => (P::Closed, Actions::CLOSE),
        (P::Idle, E::Switched) => (P::LastBody, Actions::READ_CONTENT),
        (P::Idle | P::Head, E::Refused) => (P::Stopped, Actions::ANSWER_REFUSAL),
        (P::Body | P::Drain, E::ContentEnded) => (P::Idle, Actions::READ_NEXT),
        (P::LastBody, E::ContentEnded) => (P::Stopped, Actions::NONE),
        (P::Body, E::Answered) => (P::Drain, Actions::DISCARD_CONTENT),
        (P::Body, E::LastAnnounced) => (P::LastBody, Actions::NONE),
        (P::Body | P::LastBody, E::AnsweredLast) | (P::LastBody, E::Answered) => (P::Stopped, Actions::NONE),
        (P::Body | P::LastBody, E::Refused | E::PeerFinished) => (P::Stopped, Actions::ABORT_CONTENT),
        (P::Drain, E::LastAnnounced | E::DrainExceeded | E::Refused | E::PeerFinished) => {
            (P::Stopped, Actions::NONE)
        }
        (P::Stopped, E::AllSent) => (P::Linger, Actions::SHUT_WRITE.and(Actions::START_LINGER_TIMER)),
        (P::Stopped, E::AllSentFinished) | (P::Linger, E::LingerEnded | E::PeerFinished) => {
            (P::Closed, Actions::CLOSE)
        }
        _ => (phase, Actions::NONE),
    }
}

/// Whether the newest request still waits for a 100 (RFC 9110 §10.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Continue {
    /// Nobody waits: not asked for, already sent, or content has come.
    Settled,
    /// The client may be waiting.
    Awaited,
}

/// One connection's cycle: the table's phase and the counters around it.
#[derive(Debug, Clone)]
pub struct Cycle {
    phase: Phase,
    /// Requests taken, refused heads included: the sequence number of the next one.
    taken: u32,
    answered: u32,
    /// The newest request is the last one.
    newest_is_last: bool,
    continues: Continue,
    /// Thrown away bytes, saturating: above every bound.
    discarded: u32,
    peer_finished: bool,
    held: bool,
    requests_max: u32,
    pipelined_max: u16,
    drain_bytes_max: u32,
    linger_bytes_max: u32,
}

/// A bound that a saturated count is above.
const fn bound(bytes: u64) -> u32 {
    if bytes < u32::MAX as u64 { bytes as u32 } else { u32::MAX - 1 }
}

impl Cycle {
    /// A fresh connection.
    pub fn new(limits: &Limits) -> Cycle {
        Cycle {
            phase: Phase::Idle,
            taken: 0,
            answered: 0,
            newest_is_last: false,
            continues: Continue::Settled,
            discarded: 0,
            peer_finished: false,
            held: false,
            requests_max: limits.requests_per_connection_max,
            pipelined_max: limits.pipelined_requests_max,
            drain_bytes_max: bound(limits.drain_bytes_max),
            linger_bytes_max: bound(limits.linger_bytes_max),
        }
    }

    /// What the input side is doing.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Requests taken and not yet answered.
    #[inline]
    pub fn in_flight(&self) -> u32 {
        self.taken - self.answered
    }

    /// Requests taken so far; the sequence number of the newest is one less.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Whether the next head may be parsed now. If not because of the bound, reading pauses (F6): the peer's bytes
    /// wait in its own socket.
    #[inline]
    pub fn may_take_request(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Head)
            && !self.held
            && self.in_flight() < u32::from(self.pipelined_max)
    }

    /// Holds the bytes behind the newest request unparsed while its handler decides about an Upgrade (H8): they belong
    /// to the new protocol after a 101 (RFC 9110 §7.8), and are requests again once `hold_next(false)` says so. A CONNECT
    /// holds them from `connect_taken` on.
    pub fn hold_next(&mut self, held: bool) -> Actions {
        let released = self.held && !held;
        self.held = held;
        if released && self.newest_is_last {
            // The server has begun to stop behind an answer that had promised more.
            return self.apply(Event::LastAnnounced);
        }
        if released && self.may_take_request() { Actions::READ_NEXT } else { Actions::NONE }
    }

    /// Whether the newest request may yet turn its connection into another protocol's.
    #[inline]
    pub fn is_holding(&self) -> bool {
        self.held
    }

    /// A 101, or a 2xx to CONNECT, answers the newest request: the bytes behind it are the new protocol's, as content
    /// without an end. Without effect, and nothing more is read, if the connection was about to end (`phase` tells).
    pub fn switched(&mut self) -> Actions {
        self.held = false;
        self.newest_is_last = true;
        self.apply(Event::Switched)
    }

    /// The first byte of a head came.
    pub fn head_began(&mut self) -> Actions {
        self.apply(Event::HeadBegan)
    }

    /// A head was parsed. Its sequence number is `taken()` before this call.
    #[inline]
    pub fn request_taken(&mut self, framing: Framing) -> Actions {
        debug_assert!(self.may_take_request());
        self.taken += 1;
        self.discarded = 0;
        self.continues = if framing.expects_continue { Continue::Awaited } else { Continue::Settled };
        self.newest_is_last = !framing.keep_alive || self.taken >= self.requests_max;
        self.apply(match (framing.body != BodyKind::None, self.newest_is_last) {
            (false, false) => Event::Taken,
            (true, false) => Event::TakenContent,
            (false, true) => Event::TakenLast,
            (true, true) => Event::TakenLastContent,
        })
    }

    /// A CONNECT was parsed (`Framing::asks_tunnel`): as `request_taken`. Not even one that is the last request lets the bytes
    /// behind it go, for they may be the tunnel's.
    #[cold]
    pub fn connect_taken(&mut self, framing: Framing) -> Actions {
        let is_last = !framing.keep_alive;
        let _ = self.request_taken(Framing { keep_alive: true, ..framing });
        self.newest_is_last |= is_last;
        (self.phase, self.held) = (Phase::Idle, true);
        Actions::START_REQUEST
    }

    /// Some content of the newest request came: a client that has begun to send waits for no 100.
    #[inline]
    pub fn content_received(&mut self) {
        self.continues = Continue::Settled;
    }

    /// The content of the newest request is complete.
    #[inline]
    pub fn content_ended(&mut self) -> Actions {
        self.continues = Continue::Settled;
        self.apply(Event::ContentEnded)
    }

    /// So many bytes were thrown away: content while draining, anything while stopped or lingering.
    pub fn discarded(&mut self, bytes: u64) -> Actions {
        self.discarded = self.discarded.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        match self.phase {
            Phase::Drain if self.discarded > self.drain_bytes_max => self.apply(Event::DrainExceeded),
            Phase::Linger if self.discarded > self.linger_bytes_max => self.apply(Event::LingerEnded),
            _ => Actions::NONE,
        }
    }

    /// Whether a 100 (Continue) for request `sequence` is to be queued now; true at most once per request, and never
    /// for one whose content has begun (RFC 9110 §10.1.1).
    #[must_use]
    pub fn take_continue(&mut self, sequence: u32) -> bool {
        let wanted = self.is_newest(sequence)
            && self.continues == Continue::Awaited
            && matches!(self.phase, Phase::Body | Phase::LastBody);
        if wanted {
            self.continues = Continue::Settled;
        }
        wanted
    }

    /// Whether the newest request's client may be waiting for a 100 with its content.
    #[inline]
    pub fn awaits_continue(&self) -> bool {
        self.continues == Continue::Awaited
    }

    /// Whether the final answer to request `sequence` may leave the connection open; `ReplyTo::persistent` takes it.
    /// `unread` is what `BodyDecoder::unread` says for the newest request.
    #[must_use]
    pub fn may_persist(&self, sequence: u32, unread: Option<u64>) -> bool {
        if !self.is_newest(sequence) {
            // A later request was taken, so this one did not ask to be the last.
            return sequence < self.taken;
        }
        match self.phase {
            Phase::Idle | Phase::Head => !self.newest_is_last,
            // The content is thrown away if that is cheap. A client that still waits for 100 may send its content or
            // may not (RFC 9110 §10.1.1): the next byte could be either, so the connection ends.
            Phase::Body | Phase::Drain => {
                self.continues == Continue::Settled
                    && unread.is_none_or(|bytes| {
                        bytes.saturating_add(self.discarded.into()) <= self.drain_bytes_max.into()
                    })
            }
            // Stopped by a half-close, not by a request that was the last: the answer needs no close of its own, but
            // nothing follows it.
            Phase::LastBody | Phase::Stopped | Phase::Linger | Phase::Closed => false,
        }
    }

    /// The answer to the oldest request is complete in the output queue; `persistent` is what its head announced.
    /// After false nothing more is answered: later requests, if any were taken, must be dropped.
    #[inline]
    pub fn answer_ended(&mut self, persistent: bool) -> Actions {
        assert!(self.answered < self.taken, "an answer without a request");
        self.answered += 1;
        if !persistent {
            self.newest_is_last = true;
            let dropped_content = matches!(self.phase, Phase::Body | Phase::LastBody) && self.in_flight() > 0;
            self.answered = self.taken;
            let actions = self.apply(Event::AnsweredLast);
            return if dropped_content { actions.and(Actions::ABORT_CONTENT) } else { actions };
        }
        if self.in_flight() == 0 { self.apply(Event::Answered) } else { Actions::NONE }
    }

    /// The input was refused. In a head, the refusal takes the next place in the order of answers; in a content, the
    /// exchange of that request answers.
    pub fn refused(&mut self) -> Actions {
        let actions = self.apply(Event::Refused);
        if actions.contains(Actions::ANSWER_REFUSAL) {
            self.taken += 1;
            self.newest_is_last = true;
        }
        actions
    }

    /// The peer shut its side. Requests that are complete are still answered (RFC 9112 §9.6).
    pub fn peer_finished(&mut self) -> Actions {
        self.peer_finished = true;
        self.apply(Event::PeerFinished)
    }

    /// The server stops: what was taken is answered, nothing more is taken. An idle connection closes, unless
    /// answers are `unsent`. One that is new, or whose next head has begun to come, has its one request yet: whoever
    /// connected a moment ago has sent it, and would find a reset instead of an answer.
    pub fn begin_shutdown(&mut self, unsent: bool) -> Actions {
        let is_quiet = self.in_flight() == 0 && !unsent;
        match self.phase {
            Phase::Idle | Phase::Head if is_quiet && (self.taken == 0 || self.phase == Phase::Head) => {
                self.requests_max = self.taken + 1;
                return Actions::NONE;
            }
            Phase::Idle if is_quiet => return self.apply(Event::IdleEnded),
            _ => {}
        }
        self.newest_is_last = true;
        if self.is_holding() && self.phase == Phase::Idle {
            // `hold_next(false)` applies it, unless the next bytes are another protocol's.
            return Actions::NONE;
        }
        self.apply(Event::LastAnnounced)
    }

    /// The idle timer fired.
    pub fn idle_expired(&mut self) -> Actions {
        if self.in_flight() == 0 { self.apply(Event::IdleEnded) } else { Actions::NONE }
    }

    /// The output queue is empty: all that was queued is written to the socket.
    #[inline]
    pub fn output_flushed(&mut self) -> Actions {
        if self.phase != Phase::Stopped || self.in_flight() > 0 {
            return Actions::NONE;
        }
        self.discarded = 0;
        self.apply(if self.peer_finished { Event::AllSentFinished } else { Event::AllSent })
    }

    /// The timer of the lingering close fired.
    pub fn linger_expired(&mut self) -> Actions {
        self.apply(Event::LingerEnded)
    }

    /// The transport failed, or the peer stopped taking output.
    pub fn broken(&mut self) -> Actions {
        self.apply(Event::Broken)
    }

    fn is_newest(&self, sequence: u32) -> bool {
        sequence.checked_add(1) == Some(self.taken)
    }

    #[inline]
    fn apply(&mut self, event: Event) -> Actions {
        let (phase, actions) = step(self.phase, event);
        self.phase = phase;
        actions
    }
}

#[cfg(test)]
#[path = "cycle_tests.rs"]
mod tests;
