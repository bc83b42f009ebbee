//! The life cycle as a pure machine: `step(state, event) → (state, actions)`.
//!
//! Nothing is called from here and nothing is allocated. `core.rs` feeds events and keeps the state, `table.rs`
//! carries the actions out; the drawing in `mod.rs` is compared with this file by a test.
//! A state has a phase and two sides, input and output: an exchange is over only when all three are over.

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
    /// It returned an error.
    Failed,
    /// It panicked.
    Panicked,
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

/// A fixed list of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the new state is stored already; whoever drops the actions breaks the life cycle"]
pub(crate) struct Actions {
    list: [Action; ACTIONS_MAX],
    len: u8,
}

/// No step asks for more.
pub(crate) const ACTIONS_MAX: usize = 10;

impl Actions {
    fn new() -> Self {
        Actions { list: [Action::Release; ACTIONS_MAX], len: 0 }
    }

    fn push(&mut self, action: Action) {
        self.list[usize::from(self.len)] = action;
        self.len += 1;
    }

    /// The actions in order.
    pub(crate) fn as_slice(&self) -> &[Action] {
        &self.list[..usize::from(self.len)]
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

    fn add(&mut self, other: Due) {
        self.0 |= other.0;
    }

    fn take(&mut self, other: Due) -> bool {
        let had = self.0 & other.0 != 0;
        self.0 &= !other.0;
        had
    }

    /// Whether any of `other` is owed.
    pub(crate) fn has(self, other: Due) -> bool {
        self.0 & other.0 != 0
    }

    fn keep_only(&mut self, other: Due) {
        self.0 &= other.0;
    }
}

/// The whole state of an exchange's life: small, and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Deciding | Phase::Parked | Phase::Responding)
    }
}

/// One step of the life cycle.
pub(crate) fn step(mut state: State, event: Event) -> (State, Actions) {
    let mut actions = Actions::new();
    let s = &mut state;
    match event {
        Event::Started { coordinated, has_body, wait } => {
            start(s, coordinated, has_body);
            s.wait = wait;
        }
        Event::CallbackReturned { outcome, intents } => callback_returned(s, &mut actions, outcome, intents),
        Event::TaskArrived => owe(s, Due::TASK),
        Event::FutureWoken => owe(s, Due::POLL),
        Event::TimerFired => timer_fired(s),
        Event::InputArrived => {
            if s.wait == Wait::FirstContent {
                s.wait = Wait::Nothing;
            }
            owe(s, Due::DATA);
        }
        Event::InputEnded => {
            s.input = Side::Over;
            s.wait = Wait::Nothing;
        }
        Event::InputConsumed => all_read(s),
        Event::InputFailed(reason) => {
            s.input = Side::Over;
            fail(s, reason, Due::LISTENER_ERROR);
        }
        Event::OutputBlocked => {
            if s.output == Side::Open {
                s.output = Side::Blocked;
            }
        }
        Event::OutputDrained => {
            if s.output == Side::Blocked {
                s.output = Side::Open;
                owe(s, Due::WRITABLE);
            }
        }
        Event::HeadCommitted => s.committed = true,
        Event::OutputFinished => {
            if s.phase == Phase::Finishing {
                s.output = Side::Over;
            }
        }
        Event::OutputFailed(reason) => fail(s, reason, Due::LISTENER_ERROR),
        Event::PeerFinished => fail(s, EndReason::ClientClosed, Due::LISTENER_ERROR),
        Event::PeerReset => fail(s, EndReason::ClientReset, Due::LISTENER_ERROR),
        Event::ShutdownForced(reason) => fail(s, reason, Due::default()),
        Event::Overloaded => fail(s, EndReason::Overload, Due::default()),
    }
    schedule(s, &mut actions);
    (state, actions)
}

fn start(s: &mut State, coordinated: bool, has_body: bool) {
    if s.phase != Phase::Vacant {
        return;
    }
    s.phase = if coordinated { Phase::Deciding } else { Phase::Handling };
    s.coordinated = coordinated;
    s.input = if has_body { Side::Open } else { Side::Over };
    s.due = Due::START;
}

/// Waiting callbacks may be owed from the start of the exchange until its end is decided.
fn owe(s: &mut State, due: Due) {
    match s.phase {
        Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Responding => s.due.add(due),
        // Tasks wait: the application may yet extend its timeout. If it does not they are refused.
        Phase::Failing if due == Due::TASK => s.due.add(due),
        Phase::Vacant | Phase::Failing | Phase::Finishing | Phase::Ended => {}
    }
}

fn all_read(s: &mut State) {
    if !s.all_read_told {
        s.all_read_told = true;
        owe(s, Due::ALL_READ);
    }
}

/// The timer counts only while the exchange may wait; a result in the queue beats it (L-8, by `schedule`).
fn timer_fired(s: &mut State) {
    if s.timer_armed && (s.is_waiting() || s.phase == Phase::Handling) {
        s.timer_armed = false;
        s.due.add(Due::TIMEOUT);
    }
}

/// A failure from outside the application. The first one counts.
fn fail(s: &mut State, reason: EndReason, listener: Due) {
    if reason.is_client_gone() {
        s.client_gone = true;
    }
    match s.phase {
        Phase::Vacant | Phase::Ended => {}
        Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Responding => {
            begin_failing(s, reason, listener);
        }
        // The first failure stays; `schedule` sees that the client is gone.
        Phase::Failing => {}
        Phase::Finishing => {
            if reason.is_client_gone() && s.reason == Some(EndReason::Completed) && s.output != Side::Over {
                s.reason = Some(reason);
                s.due.add(listener);
                s.due.add(Due::ERROR);
            }
        }
    }
}

fn begin_failing(s: &mut State, reason: EndReason, listener: Due) {
    s.phase = Phase::Failing;
    s.reason = Some(reason);
    s.notified = false;
    s.due.keep_only(Due::TASK);
    s.due.add(listener);
    s.due.add(Due::ERROR);
}

fn callback_returned(s: &mut State, actions: &mut Actions, outcome: Outcome, intents: Intents) {
    let Some(callback) = s.running.take() else { return };
    if intents.send_continue && s.phase != Phase::Ended {
        actions.push(Action::SendContinue);
    }
    if intents.flush && !s.client_gone {
        actions.push(Action::Flush);
    }
    match outcome {
        Outcome::Returned => {}
        Outcome::Failed => return callback_failed(s, actions, callback, EndReason::HandlerFailed),
        Outcome::Panicked => return callback_failed(s, actions, callback, EndReason::Panicked),
    }
    if intents.start_async && !s.started_async {
        s.started_async = true;
    }
    if intents.timeout_cleared && s.timer_armed {
        s.timer_armed = false;
        actions.push(Action::CancelTimer);
    }
    let extended = callback == Callback::Timeout && s.phase == Phase::Failing && intents.timeout_set;
    if intents.timeout_set && !matches!(s.phase, Phase::Finishing | Phase::Ended) {
        s.timer_armed = true;
        s.due.take(Due::TIMEOUT);
        actions.push(Action::ArmTimer);
    }
    apply_intents(s, actions, callback, Answer { intents, extended });
}

struct Answer {
    intents: Intents,
    extended: bool,
}

/// A callback that returned well: what it asked for, or what its silence means.
fn apply_intents(s: &mut State, actions: &mut Actions, callback: Callback, answer: Answer) {
    let Answer { intents, extended } = answer;
    match s.phase {
        Phase::Vacant => {}
        Phase::Ended | Phase::Finishing => {}
        _ if intents.abort => {
            if s.reason.is_none() {
                s.reason = Some(EndReason::Aborted);
            }
            abort(s, actions);
        }
        Phase::Deciding => {
            if intents.complete {
                finish(s, actions);
            } else if intents.service || intents.redispatch {
                if s.input == Side::Open && intents.wait != Wait::Nothing {
                    s.wait = intents.wait;
                }
                s.phase = Phase::Handling;
                s.due.add(Due::START);
            }
        }
        Phase::Handling | Phase::Parked => {
            if intents.complete {
                respond(s, actions);
            } else if intents.redispatch {
                next_cycle(s, actions);
            } else if matches!(callback, Callback::Handler(_)) {
                if s.started_async {
                    s.phase = Phase::Parked;
                } else {
                    respond(s, actions);
                }
            }
        }
        Phase::Responding => {
            if intents.complete {
                finish(s, actions);
            }
        }
        Phase::Failing => failure_answered(s, actions, callback, Answer { intents, extended }),
    }
}

/// A callback ended while a failure is under way: it may be the one that was told, or one that was running
/// when the failure came.
fn failure_answered(s: &mut State, actions: &mut Actions, callback: Callback, answer: Answer) {
    let Answer { intents, extended } = answer;
    if intents.complete {
        // A failed transport under a completed answer: `on_error` is still owed (L-10), no answer is possible.
        if s.client_gone && !s.notified {
            return;
        }
        if s.committed && s.reason.is_some_and(is_fault) {
            return abort(s, actions);
        }
        let ran_before = !s.notified && callback != Callback::ListenerError;
        if ran_before {
            s.reason = Some(EndReason::Completed);
        }
        return finish(s, actions);
    }
    match callback {
        Callback::Timeout | Callback::Error if intents.redispatch && !s.client_gone => next_cycle(s, actions),
        Callback::Timeout if extended => {
            s.phase = Phase::Parked;
            s.reason = None;
            s.notified = false;
        }
        Callback::Timeout | Callback::Error => s.due.add(Due::ERROR_DISPATCH),
        Callback::Handler(DispatchType::Error) => finish(s, actions),
        _ => {}
    }
}

/// Failures after which a committed answer must not look whole (L-13).
fn is_fault(reason: EndReason) -> bool {
    match reason {
        EndReason::HandlerFailed
        | EndReason::Panicked
        | EndReason::ProtocolError
        | EndReason::BodyTimeout => true,
        EndReason::Completed | EndReason::TimedOut | EndReason::ClientClosed | EndReason::ClientReset => {
            false
        }
        EndReason::WriteTimeout | EndReason::SlowClient | EndReason::Overload => false,
        EndReason::Shutdown | EndReason::Reload | EndReason::Aborted => false,
    }
}

/// A callback returned an error or panicked (L-14).
fn callback_failed(s: &mut State, actions: &mut Actions, callback: Callback, reason: EndReason) {
    match s.phase {
        Phase::Vacant | Phase::Ended | Phase::Finishing => {}
        Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Responding => {
            begin_failing(s, reason, listener_error_of(callback));
        }
        Phase::Failing if callback == Callback::Handler(DispatchType::Error) => built_in(s, actions),
        Phase::Failing => {
            if s.notified {
                s.due.add(Due::ERROR_DISPATCH);
            }
        }
    }
}

fn listener_error_of(callback: Callback) -> Due {
    match callback {
        Callback::DataAvailable | Callback::AllDataRead | Callback::WritePossible => Due::LISTENER_ERROR,
        _ => Due::default(),
    }
}

/// The handler's part is complete: the application's coordinator has a say, the default one has none.
fn respond(s: &mut State, actions: &mut Actions) {
    if s.coordinated {
        s.phase = Phase::Responding;
        s.due.keep_only(Due::TASK);
        s.due.add(Due::START);
    } else {
        finish(s, actions);
    }
}

fn next_cycle(s: &mut State, actions: &mut Actions) {
    s.phase = Phase::Handling;
    s.reason = None;
    s.notified = false;
    s.started_async = false;
    s.redispatched = true;
    s.due.keep_only(Due::TASK);
    s.due.add(Due::START);
    if s.timer_armed {
        s.timer_armed = false;
        actions.push(Action::CancelTimer);
    }
    actions.push(Action::DropFuture);
    actions.push(Action::NextCycle);
    s.all_read_told = false;
}

/// The end is decided: an answer goes out, unless nobody is there to take it.
fn finish(s: &mut State, actions: &mut Actions) {
    if s.reason.is_none() {
        s.reason = Some(EndReason::Completed);
    }
    if s.client_gone {
        return abort(s, actions);
    }
    decide(s, actions);
    actions.push(Action::FinishResponse);
    if s.input == Side::Open {
        actions.push(Action::DiscardInput);
    }
}

fn built_in(s: &mut State, actions: &mut Actions) {
    let status = s.reason.unwrap_or(EndReason::Aborted).status();
    if s.committed || s.client_gone {
        return abort(s, actions);
    }
    actions.push(Action::BuiltInAnswer(status));
    finish(s, actions);
}

fn abort(s: &mut State, actions: &mut Actions) {
    decide(s, actions);
    actions.push(Action::AbortConnection);
    s.input = Side::Over;
    s.output = Side::Over;
}

fn decide(s: &mut State, actions: &mut Actions) {
    s.phase = Phase::Finishing;
    s.due.keep_only(Due::default());
    if s.timer_armed {
        s.timer_armed = false;
        actions.push(Action::CancelTimer);
    }
    actions.push(Action::RefuseTasks);
    actions.push(Action::FireCancelToken);
    actions.push(Action::DropFuture);
}

/// Chooses the next callback, if none runs, and makes the terminal transition when all three parts are over.
fn schedule(s: &mut State, actions: &mut Actions) {
    if s.running.is_some() {
        return;
    }
    match s.phase {
        Phase::Vacant => {}
        Phase::Deciding => start_or_wait(s, actions, Callback::DoRequest),
        Phase::Handling => {
            let kind = if s.redispatched { DispatchType::Async } else { DispatchType::Request };
            start_or_wait(s, actions, Callback::Handler(kind));
        }
        Phase::Responding => start_or_wait(s, actions, Callback::DoResponse),
        Phase::Parked => run_waiting(s, actions),
        Phase::Failing => run_failing(s, actions),
        Phase::Finishing => run_finishing(s, actions),
        Phase::Ended => run_ended(s, actions),
    }
}

fn run(s: &mut State, actions: &mut Actions, callback: Callback) {
    s.running = Some(callback);
    actions.push(Action::Run(callback));
}

fn start_or_wait(s: &mut State, actions: &mut Actions, first: Callback) {
    let may_start = s.phase != Phase::Handling || s.wait == Wait::Nothing;
    if may_start && s.due.take(Due::START) {
        run(s, actions, first);
    } else {
        run_waiting(s, actions);
    }
}

/// The order in which waiting callbacks run: results before the timeout (L-8), bytes before readiness.
fn run_waiting(s: &mut State, actions: &mut Actions) {
    const ORDER: [(Due, Callback); 6] = [
        (Due::TASK, Callback::Task),
        (Due::TIMEOUT, Callback::Timeout),
        (Due::POLL, Callback::Poll),
        (Due::DATA, Callback::DataAvailable),
        (Due::ALL_READ, Callback::AllDataRead),
        (Due::WRITABLE, Callback::WritePossible),
    ];
    for (due, callback) in ORDER {
        if s.due.take(due) {
            if callback == Callback::Timeout {
                begin_failing(s, EndReason::TimedOut, Due::default());
                s.due.take(Due::ERROR);
                s.notified = true;
            }
            return run(s, actions, callback);
        }
    }
}

/// L-10: the failing listener's own `on_error`, then the exchange's, each at most once; then the answer.
fn run_failing(s: &mut State, actions: &mut Actions) {
    if s.due.take(Due::LISTENER_ERROR) {
        return run(s, actions, Callback::ListenerError);
    }
    if s.due.take(Due::ERROR) {
        s.notified = true;
        return run(s, actions, Callback::Error);
    }
    if s.client_gone || s.committed {
        abort(s, actions);
        return run_finishing(s, actions);
    }
    if s.due.take(Due::ERROR_DISPATCH) {
        if s.error_dispatched {
            built_in(s, actions);
            return run_finishing(s, actions);
        }
        s.error_dispatched = true;
        s.running = Some(Callback::Handler(DispatchType::Error));
        actions.push(Action::ErrorDispatch(s.reason.unwrap_or(EndReason::Aborted).status()));
    }
}

fn run_finishing(s: &mut State, actions: &mut Actions) {
    if s.due.take(Due::LISTENER_ERROR) {
        return run(s, actions, Callback::ListenerError);
    }
    if s.due.take(Due::ERROR) {
        s.notified = true;
        return run(s, actions, Callback::Error);
    }
    if s.client_gone && s.output != Side::Over {
        s.output = Side::Over;
        s.input = Side::Over;
        actions.push(Action::AbortConnection);
    }
    if s.output == Side::Over && s.input == Side::Over {
        s.phase = Phase::Ended;
        s.due.add(Due::COMPLETE);
        actions.push(Action::CountEnd(s.reason.unwrap_or(EndReason::Aborted)));
        run_ended(s, actions);
    }
}

fn run_ended(s: &mut State, actions: &mut Actions) {
    if s.due.take(Due::COMPLETE) {
        run(s, actions, Callback::Complete);
    } else {
        s.phase = Phase::Vacant;
        actions.push(Action::Release);
    }
}
