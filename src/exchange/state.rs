//! The life cycle as a pure machine: `step(state, event) → (state, actions)`.
//!
//! Nothing is called from here and nothing is allocated. `core.rs` feeds events and keeps the state, `table.rs`
//! carries the actions out; the drawing in `mod.rs` is compared with this file by a test.
//! A state has a phase and two sides, input and output: an exchange is over only when all three are over.

use super::life::{
    Action, Actions, Callback, DispatchType, Due, Event, Intents, Outcome, Phase, Side, State, Wait,
};
use crate::error::EndReason;

/// One step of the life cycle.
#[cfg(test)]
pub(crate) fn step(mut state: State, event: Event) -> (State, Actions) {
    let mut actions = Actions::default();
    advance(&mut state, event, &mut actions);
    (state, actions)
}

/// One step of the life cycle, in place: the new state is stored before anybody sees the actions.
#[inline]
pub(crate) fn advance(s: &mut State, event: Event, actions: &mut Actions) {
    match event {
        Event::Started { coordinated, has_body, wait } => {
            start(s, coordinated, has_body);
            // A request without content has all of it: nothing will come that could end the wait.
            s.wait = if has_body { wait } else { Wait::Nothing };
        }
        Event::CallbackReturned { outcome, intents } => callback_returned(s, actions, outcome, intents),
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
        Event::Switched => {
            if s.end_decided().is_none() {
                s.input = Side::Open;
                s.all_read_told = false;
            }
        }
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
        Event::OutputFailed(reason) => {
            // Whatever the reason: nothing more of this answer can leave.
            s.client_gone = true;
            fail(s, reason, Due::LISTENER_ERROR);
        }
        Event::PeerFinished => fail(s, EndReason::ClientClosed, Due::LISTENER_ERROR),
        Event::PeerReset => fail(s, EndReason::ClientReset, Due::LISTENER_ERROR),
        Event::ShutdownForced(reason) => fail(s, reason, Due::default()),
        Event::Overloaded => fail(s, EndReason::Overload, Due::default()),
    }
    schedule(s, actions);
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
        // They wait: the application may yet extend its timeout. If it does not they are dropped.
        Phase::Failing => s.due.add(due),
        Phase::Vacant | Phase::Finishing | Phase::Ended => {}
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
            if s.client_gone && s.reason == Some(EndReason::Completed) && s.output != Side::Over {
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
    s.due.keep_only(Due::WAITING);
    s.due.add(listener);
    s.due.add(Due::ERROR);
}

fn callback_returned(s: &mut State, actions: &mut Actions, outcome: Outcome, intents: Intents) {
    let Some(callback) = s.running.take() else { return };
    if intents.send_continue && s.phase != Phase::Ended {
        actions.push(Action::SendContinue);
    }
    match outcome {
        Outcome::Returned => {}
        Outcome::Failed(reason) => return callback_failed(s, actions, callback, reason),
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
    apply_intents(s, actions, callback, &Answer { intents, extended });
    // The end of the response takes everything with it, and knows its length.
    if intents.flush && !s.client_gone && !matches!(s.phase, Phase::Finishing | Phase::Ended) {
        actions.push(Action::Flush);
    }
}

struct Answer {
    intents: Intents,
    extended: bool,
}

/// A callback that returned well: what it asked for, or what its silence means.
fn apply_intents(s: &mut State, actions: &mut Actions, callback: Callback, answer: &Answer) {
    let intents = answer.intents;
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
                serve(s, intents.wait);
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
        Phase::Failing => failure_answered(s, actions, callback, answer),
    }
}

/// The coordinator has chosen: the handler runs when what it waits for is there.
fn serve(s: &mut State, wait: Wait) {
    if s.input == Side::Open && wait != Wait::Nothing {
        s.wait = wait;
    }
    s.phase = Phase::Handling;
    s.due.add(Due::START);
}

/// The timeout has been answered by going on: as if it had not been.
fn forgive(s: &mut State) {
    s.phase = match s.timed_out_in {
        // The handler has not begun: it waits for its body.
        Phase::Handling => {
            s.due.add(Due::START);
            Phase::Handling
        }
        before => before,
    };
    s.timed_out_in = Phase::Vacant;
    s.reason = None;
    s.notified = false;
}

/// A callback ended while a failure is under way: it may be the one that was told, or one that was running
/// when the failure came.
fn failure_answered(s: &mut State, actions: &mut Actions, callback: Callback, answer: &Answer) {
    let &Answer { intents, extended } = answer;
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
        Callback::Timeout if intents.service && s.timed_out_in == Phase::Deciding && !s.client_gone => {
            forgive(s);
            serve(s, intents.wait);
        }
        Callback::Timeout if extended && !s.client_gone => forgive(s),
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
        s.due.keep_only(Due::WAITING);
        s.due.add(Due::START);
    } else {
        finish(s, actions);
    }
}

fn next_cycle(s: &mut State, actions: &mut Actions) {
    s.phase = Phase::Handling;
    s.timed_out_in = Phase::Vacant;
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
    s.timed_out_in = Phase::Vacant;
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
                s.timed_out_in = s.phase;
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
