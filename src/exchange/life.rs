//! The words of the life cycle: phases, sides, callbacks, events, actions, and the state itself.
//!
//! Values only. What follows from an event is decided in `state.rs`.

use crate::error::EndReason;

/// Where the exchange is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Not begun.
    Vacant,
    /// The coordinator decides, perhaps later; no handler has been chosen.
    Deciding,
    /// A handler runs or is about to run.
    Handling,
    /// Asynchronous: waiting for a task, a timer, the client, or its future.
    Parked,
    /// Something failed: the application is told and may answer.
    Failing,
    /// The handler's part is complete; the coordinator may hold the response open.
    Responding,
    /// The answer is decided; bytes leave, the rest of the input is consumed.
    Finishing,
    /// The terminal transition has happened; `on_complete` is owed or done.
    Ended,
}

/// One direction of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// Bytes may move.
    Open,
    /// Output only: above the high water mark, the low one not yet reached.
    Blocked,
    /// Nothing more will move.
    Over,
}

/// What a handler dispatch is for (L-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DispatchType {
    /// The first dispatch of a request.
    Request,
    /// A later cycle, after `redispatch`.
    Async,
    /// The error handler's dispatch; it happens at most once.
    Error,
}

/// The user code that may run for an exchange, one at a time (L-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Callback {
    /// The coordinator's `do_request`.
    DoRequest,
    /// Filters and handler.
    Handler(DispatchType),
    /// The coordinator's `do_response`.
    DoResponse,
    /// A task from the executor.
    Task,
    /// A poll of the asynchronous handler's future.
    Poll,
    /// The read listener's `on_data_available`.
    DataAvailable,
    /// The read listener's `on_all_data_read`.
    AllDataRead,
    /// The write listener's `on_write_possible`.
    WritePossible,
    /// The timeout listener.
    Timeout,
    /// The failing read or write listener's own `on_error`.
    ListenerError,
    /// The exchange's `on_error`.
    Error,
    /// `on_complete`.
    Complete,
}

/// How a callback ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// It returned.
    Returned,
    /// It returned an error, panicked, or was refused something it cannot go on without.
    Failed(EndReason),
}

/// What a callback asked for; it takes effect when the callback returns (L-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Intents {
    /// `start_async` was called.
    pub(crate) start_async: bool,
    /// The coordinator chose to let the handler run.
    pub(crate) service: bool,
    /// The response is complete.
    pub(crate) complete: bool,
    /// Another cycle was asked for.
    pub(crate) redispatch: bool,
    /// The timeout was set, changed or extended.
    pub(crate) timeout_set: bool,
    /// The timeout was taken away.
    pub(crate) timeout_cleared: bool,
    /// Produced bytes should leave now.
    pub(crate) flush: bool,
    /// `100 Continue` was asked for.
    pub(crate) send_continue: bool,
    /// The application gives the exchange up.
    pub(crate) abort: bool,
    /// With `service`: how much of the body the handler waits for.
    pub(crate) wait: Wait,
}

/// How much of the request body a handler waits for before it starts (L-18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Wait {
    /// It starts at once.
    #[default]
    Nothing,
    /// It starts with the first content, or the end of an empty body.
    FirstContent,
    /// It starts when the whole body is there, and then does no IO.
    WholeBody,
}

impl Intents {
    /// Whether the callback asked for the end of its cycle.
    pub(crate) fn ends_cycle(self) -> bool {
        self.complete || self.redispatch || self.abort
    }
}

/// What happens to an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The head is complete and routed.
    Started {
        /// A coordinator of the application's decides; otherwise the default one, which is no callback.
        coordinated: bool,
        /// A request body follows.
        has_body: bool,
        /// How much of it the handler waits for.
        wait: Wait,
    },
    /// The running callback is over.
    CallbackReturned {
        /// How.
        outcome: Outcome,
        /// What it asked for.
        intents: Intents,
    },
    /// A task is in the queue.
    TaskArrived,
    /// The future asked to be polled.
    FutureWoken,
    /// The exchange's timer reached its deadline.
    TimerFired,
    /// Body bytes are in the input queue and the read listener waits for them.
    InputArrived,
    /// The last body byte is in the queue.
    InputEnded,
    /// The body is broken or late.
    InputFailed(EndReason),
    /// All body bytes have been taken by the application.
    InputConsumed,
    /// The response switches protocols: what the client sends from now on is input, without an end (RFC 9110 §7.8).
    Switched,
    /// The output queue rose above the high water mark.
    OutputBlocked,
    /// The output queue fell to the low water mark.
    OutputDrained,
    /// The head of the response has been given to the transport.
    HeadCommitted,
    /// Every byte of the response has been accepted by the transport.
    OutputFinished,
    /// The transport or the slow-client policy failed.
    OutputFailed(EndReason),
    /// FIN from the client, and the route's policy is to abort.
    PeerFinished,
    /// The connection or stream was reset.
    PeerReset,
    /// The time for the orderly end is over; the reason is `Shutdown` or `Reload`.
    ShutdownForced(EndReason),
    /// A bound was reached on behalf of this exchange: pool, permit, executor.
    Overloaded,
}

/// What is to be done, in this order, after the new state has been stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Run user code inside the fence.
    Run(Callback),
    /// Run the error dispatch for this status; it is a callback too.
    ErrorDispatch(u16),
    /// Replace what has been produced by the plain built-in answer with this status.
    BuiltInAnswer(u16),
    /// Put `100 Continue` into the output, before any final byte.
    SendContinue,
    /// Let produced bytes leave.
    Flush,
    /// The response ends after what is in the output queue.
    FinishResponse,
    /// Consume what is left of the request body within the bounds, or close after a bounded linger (L-17).
    DiscardInput,
    /// Cut the connection or the stream, so that the client sees truncation (L-13).
    AbortConnection,
    /// The deadline of the exchange has changed.
    ArmTimer,
    /// No deadline any more.
    CancelTimer,
    /// Another cycle begins: contexts of the one before are stale.
    NextCycle,
    /// Tasks in the queue and tasks to come are refused.
    RefuseTasks,
    /// Tell what the exchange has started that it is over.
    FireCancelToken,
    /// Drop the asynchronous handler's future, here, on its shard.
    DropFuture,
    /// Count the end: the terminal transition.
    CountEnd(EndReason),
    /// Give the slot back.
    Release,
}

/// Actions in order, first in first out. The list is kept and reused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "the new state is stored already; whoever drops the actions breaks the life cycle"]
pub(crate) struct Actions {
    list: Vec<Action>,
    next: usize,
}

impl Actions {
    #[inline]
    pub(super) fn push(&mut self, action: Action) {
        self.list.push(action);
    }

    /// The next action.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Action> {
        let action = self.list.get(self.next).copied();
        self.next += 1;
        if self.next >= self.list.len() {
            self.clear();
        }
        action
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.next = 0;
    }

    /// Gives up an empty list's memory.
    pub(super) fn trim(&mut self) {
        if self.list.is_empty() {
            self.list = Vec::new();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The actions that have not been taken.
    #[cfg(test)]
    pub(crate) fn as_slice(&self) -> &[Action] {
        &self.list[self.next..]
    }
}

/// Callbacks that are owed, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Due(u16);

impl Due {
    pub(crate) const START: Due = Due(1);
    pub(crate) const TASK: Due = Due(1 << 1);
    pub(crate) const TIMEOUT: Due = Due(1 << 2);
    pub(crate) const POLL: Due = Due(1 << 3);
    pub(crate) const DATA: Due = Due(1 << 4);
    pub(crate) const ALL_READ: Due = Due(1 << 5);
    pub(crate) const WRITABLE: Due = Due(1 << 6);
    pub(crate) const LISTENER_ERROR: Due = Due(1 << 7);
    pub(crate) const ERROR: Due = Due(1 << 8);
    pub(crate) const ERROR_DISPATCH: Due = Due(1 << 9);
    pub(crate) const COMPLETE: Due = Due(1 << 10);
    /// What may wait for another day while a failure is being answered.
    pub(crate) const WAITING: Due = Due(1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6);

    pub(super) fn add(&mut self, other: Due) {
        self.0 |= other.0;
    }

    pub(super) fn take(&mut self, other: Due) -> bool {
        let had = self.0 & other.0 != 0;
        self.0 &= !other.0;
        had
    }

    pub(super) fn keep_only(&mut self, other: Due) {
        self.0 &= other.0;
    }
}

/// The whole state of an exchange's life: small, and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) input: Side,
    pub(crate) output: Side,
    /// The callback that runs now. While it is set nothing else starts (L-1).
    pub(crate) running: Option<Callback>,
    pub(crate) due: Due,
    /// The end that has been decided, or the failure under way. The first stays, except that a transport which
    /// fails under a completed answer replaces `Completed`.
    pub(crate) reason: Option<EndReason>,
    /// An application's coordinator has a say in the end of the response.
    pub(crate) coordinated: bool,
    /// The head is on its way: no other status is possible.
    pub(crate) committed: bool,
    /// Nothing can reach the client.
    pub(crate) client_gone: bool,
    /// `on_error` or `on_timeout` has been called for the failure under way (L-10).
    pub(crate) notified: bool,
    /// The phase in which the timeout found the exchange: there it goes on if the timeout is extended, and a
    /// coordinator that had chosen no handler may do so from its timeout (L-12). `Vacant` while no timeout is told.
    pub(crate) timed_out_in: Phase,
    /// The error handler has been called (L-13).
    pub(crate) error_dispatched: bool,
    /// `start_async` was called in this cycle.
    pub(crate) started_async: bool,
    /// A deadline is set.
    pub(crate) timer_armed: bool,
    /// The end of the input has been told to the read listener.
    pub(crate) all_read_told: bool,
    /// This is not the first cycle.
    pub(crate) redispatched: bool,
    /// What of the body the handler still waits for.
    pub(crate) wait: Wait,
}

impl State {
    /// An empty slot.
    pub(crate) const VACANT: State = State {
        phase: Phase::Vacant,
        input: Side::Over,
        output: Side::Open,
        running: None,
        due: Due(0),
        reason: None,
        coordinated: false,
        committed: false,
        client_gone: false,
        notified: false,
        timed_out_in: Phase::Vacant,
        error_dispatched: false,
        started_async: false,
        timer_armed: false,
        all_read_told: false,
        redispatched: false,
        wait: Wait::Nothing,
    };

    /// The reason with which a call is refused now, if the end is decided.
    pub(crate) fn end_decided(&self) -> Option<EndReason> {
        match self.phase {
            Phase::Finishing | Phase::Ended => Some(self.reason.unwrap_or(EndReason::Aborted)),
            Phase::Vacant => Some(EndReason::Aborted),
            Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Failing | Phase::Responding => None,
        }
    }

    /// Whether a coordinator may choose the handler now: it has not done so, also when its timeout came first.
    pub(crate) fn may_serve(&self) -> bool {
        self.phase == Phase::Deciding
            || (self.running == Some(Callback::Timeout) && self.timed_out_in == Phase::Deciding)
    }

    /// Whether tasks of the executor are still taken.
    pub(crate) fn takes_tasks(&self) -> bool {
        match self.phase {
            Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Failing | Phase::Responding => true,
            Phase::Vacant | Phase::Finishing | Phase::Ended => false,
        }
    }

    /// Whether the exchange waits: in a waiting phase with no callback running.
    pub(crate) fn is_parked(&self) -> bool {
        self.running.is_none() && self.is_waiting()
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Deciding | Phase::Parked | Phase::Responding)
    }
}
