//! The invariant of the fuzz target `cycle`: facts in any order that a connection may report them, against a model
//! that only counts. Each byte is one fact; it knows nothing of the table in `http1/cycle.rs`.

use shardlet::http1::framing::{BodyKind, Framing};
use shardlet::http1::{Actions, Cycle, Phase};
use shardlet::limits::Limits;

const LIMITS: Limits = Limits {
    pipelined_requests_max: 3,
    requests_per_connection_max: 9,
    drain_bytes_max: 40,
    linger_bytes_max: 60,
    ..Limits::DEFAULT
};

/// What an observer of the connection can count.
struct Observed {
    cycle: Cycle,
    taken: u32,
    answered: u32,
    /// Content of the newest request is not complete, and nobody said that it never will be.
    content_open: bool,
    /// The newest request may yet be answered with a tunnel.
    tunnel_asked: bool,
    /// A 100 for the newest request would still be right.
    continue_right: bool,
    /// The server ends, and the connection has one request yet.
    one_more: bool,
    /// Nothing may be taken any more.
    last_seen: bool,
    closes: u32,
}

/// The order of events on one connection.
pub(crate) fn cycle(data: &[u8]) {
    let mut seen = Observed {
        cycle: Cycle::new(&LIMITS),
        taken: 0,
        answered: 0,
        content_open: false,
        tunnel_asked: false,
        continue_right: false,
        one_more: false,
        last_seen: false,
        closes: 0,
    };
    for fact in data.iter().take(4096) {
        seen.report(*fact);
        seen.check();
    }
    seen.wind_up();
}

impl Observed {
    fn report(&mut self, fact: u8) {
        let argument = fact / 12;
        let actions = match fact % 12 {
            // Nobody looks for a head in what may be a tunnel's.
            0 if self.tunnel_asked => return,
            0 => self.cycle.head_began(),
            1 | 2 => return self.take(argument),
            3 => return self.receive_content(argument),
            4 => return self.answer(argument),
            5 => self.refuse(),
            6 => self.cycle.peer_finished(),
            7 => self.shut_down(argument % 2 == 1),
            8 => self.cycle.idle_expired(),
            9 => self.cycle.output_flushed(),
            10 => self.discard(argument),
            _ if argument == 20 => self.cycle.broken(),
            _ => self.cycle.linger_expired(),
        };
        self.perform(actions);
    }

    fn take(&mut self, argument: u8) {
        if !self.cycle.may_take_request() {
            return;
        }
        assert!(!self.last_seen, "a request after the last one");
        let has_content = argument & 1 == 1;
        let framing = Framing {
            body: if has_content { BodyKind::Length(u64::from(argument) + 1) } else { BodyKind::None },
            accepts_trailers: false,
            asks_tunnel: !has_content && argument & 16 == 16,
            keep_alive: argument & 6 != 6,
            expects_continue: has_content && argument & 8 == 8,
        };
        let actions = match framing.asks_tunnel {
            false => self.cycle.request_taken(framing),
            true => self.cycle.connect_taken(framing),
        };
        self.taken += 1;
        self.content_open = has_content;
        self.tunnel_asked = framing.asks_tunnel;
        self.continue_right = framing.expects_continue;
        assert!(actions.contains(Actions::START_REQUEST));
        assert_eq!(actions.contains(Actions::READ_CONTENT), has_content);
        self.last_seen =
            self.one_more || !framing.keep_alive || self.taken >= LIMITS.requests_per_connection_max;
        assert!(!(self.last_seen && actions.contains(Actions::READ_NEXT)));
        self.perform(actions);
    }

    fn receive_content(&mut self, argument: u8) {
        if !self.content_open || matches!(self.cycle.phase(), Phase::Stopped | Phase::Linger | Phase::Closed)
        {
            return;
        }
        self.cycle.content_received();
        self.continue_right = false;
        if argument & 1 == 1 {
            self.content_open = false;
            let actions = self.cycle.content_ended();
            self.perform(actions);
        }
    }

    /// The oldest request is answered; a 100 may come first if it is the newest too.
    fn answer(&mut self, argument: u8) {
        if self.answered == self.taken || self.cycle.phase() == Phase::Closed {
            return;
        }
        let sequence = self.answered;
        if argument & 4 == 4 && self.cycle.take_continue(sequence) {
            assert!(self.continue_right && sequence + 1 == self.taken, "a 100 nobody waits for");
            self.continue_right = false;
        }
        if self.tunnel_asked && sequence + 1 == self.taken && argument & 8 == 8 {
            return self.open_tunnel();
        }
        let unread = self.content_open.then_some(u64::from(argument));
        let persistent = self.cycle.may_persist(sequence, unread) && argument & 2 == 0;
        if persistent && sequence + 1 == self.taken {
            assert!(!self.last_seen, "persistence after the last request");
            assert!(
                !(self.content_open && self.continue_right),
                "the next byte could be content or a request"
            );
        }
        let actions = self.cycle.answer_ended(persistent);
        self.answered = if persistent { self.answered + 1 } else { self.taken };
        self.last_seen |= !persistent;
        self.perform(actions);
        if sequence + 1 == self.taken {
            self.tunnel_asked = false;
            let actions = self.cycle.hold_next(false);
            self.perform(actions);
        }
    }

    /// The head of a 101, or of a 2xx to CONNECT: what follows has no end of its own, and the answer goes on.
    fn open_tunnel(&mut self) {
        let actions = self.cycle.switched();
        self.tunnel_asked = false;
        self.last_seen = true;
        // Otherwise the end had been announced before, and the connection is reset.
        self.content_open = self.cycle.phase() == Phase::LastBody;
        assert_eq!(actions.contains(Actions::READ_CONTENT), self.content_open);
        self.perform(actions);
    }

    fn refuse(&mut self) -> Actions {
        let actions = self.cycle.refused();
        if actions.contains(Actions::ANSWER_REFUSAL) {
            self.taken += 1;
            self.content_open = false;
        }
        self.last_seen |= self.cycle.phase() == Phase::Stopped;
        self.tunnel_asked &= !self.last_seen;
        actions
    }

    fn shut_down(&mut self, unsent: bool) -> Actions {
        // A connection that is new, or in the middle of a head, still has its request.
        let is_new = match self.cycle.phase() {
            Phase::Idle => self.taken == 0,
            Phase::Head => true,
            _ => false,
        };
        self.one_more |= is_new && self.answered == self.taken && !unsent;
        self.last_seen |= !self.one_more;
        self.cycle.begin_shutdown(unsent)
    }

    fn discard(&mut self, argument: u8) -> Actions {
        let before = self.cycle.phase();
        let actions = self.cycle.discarded(u64::from(argument) * 4);
        if before == Phase::Drain && u64::from(argument) * 4 > LIMITS.drain_bytes_max {
            assert_eq!(self.cycle.phase(), Phase::Stopped);
        }
        if before == Phase::Linger && u64::from(argument) * 4 > LIMITS.linger_bytes_max {
            assert_eq!(self.cycle.phase(), Phase::Closed);
        }
        actions
    }

    fn perform(&mut self, actions: Actions) {
        if actions.contains(Actions::CLOSE) {
            self.closes += 1;
        }
        if actions.contains(Actions::SHUT_WRITE) {
            assert_eq!(self.answered, self.taken, "shut with an answer outstanding");
        }
        if actions.contains(Actions::ABORT_CONTENT) {
            assert!(self.content_open, "content that is complete was aborted");
            self.content_open = false;
        }
    }

    fn check(&mut self) {
        let phase = self.cycle.phase();
        assert_eq!((self.cycle.taken(), self.cycle.in_flight()), (self.taken, self.taken - self.answered));
        // One more than the bound: a refusal takes a place of its own.
        assert!(self.taken - self.answered <= u32::from(LIMITS.pipelined_requests_max) + 1);
        assert_eq!(self.closes, u32::from(phase == Phase::Closed), "closed once, and then for good");
        if matches!(phase, Phase::Stopped | Phase::Linger | Phase::Closed) {
            self.last_seen = true;
        }
        if self.last_seen || self.tunnel_asked {
            assert!(!self.cycle.may_take_request(), "{phase:?}");
        }
    }

    /// From wherever it is, shutdown, answers, and time end it.
    fn wind_up(&mut self) {
        let _ = self.cycle.begin_shutdown(false);
        while self.cycle.phase() != Phase::Closed && self.answered < self.taken {
            let persistent = self.cycle.may_persist(self.answered, None);
            let _ = self.cycle.answer_ended(persistent);
            self.answered = if persistent { self.answered + 1 } else { self.taken };
        }
        let _ = self.cycle.output_flushed();
        let _ = self.cycle.linger_expired();
        let _ = self.cycle.idle_expired();
        assert_eq!(self.cycle.phase(), Phase::Closed, "it cannot be ended");
    }
}
