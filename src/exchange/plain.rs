//! The whole life of an exchange that is answered within its only callback and that nobody listens to: nearly all
//! are. The machine would take four steps for it; here its states are known beforehand. They are the machine's own:
//! a test walks it beside them and finds the same states and nothing to do that is not done here.

use super::{
    Exchange, Exchanges, Outcome,
    core::Core,
    counters::down,
    life::{self, Callback, DispatchType, Intents, Phase, Side, State},
    request::HeadHolder,
    table::{Begin, CORE_HOLDERS_AT_RELEASE},
};
use crate::error::EndReason;
use std::rc::Rc;

/// After `Started` with neither a coordinator nor a body: the handler runs.
const RUNNING: State = State {
    phase: Phase::Handling,
    input: Side::Over,
    output: Side::Open,
    running: Some(Callback::Handler(DispatchType::Request)),
    ..State::VACANT
};

/// After the end: the slot is free.
const OVER: State =
    State { output: Side::Over, reason: Some(EndReason::Completed), committed: true, ..State::VACANT };

impl Exchanges {
    /// Begins an exchange without coordinator and body, and runs its handler. True: it has answered, nothing else
    /// has happened, and the answer is in the output queue. Then the caller ends it with `end_answered`, or, if it
    /// cannot take the answer whole, tells the machine with `go_on`. False: the machine has been told already.
    #[inline]
    pub(crate) fn serve_plain<O: Outcome>(
        &self,
        begin: Begin,
        head: HeadHolder,
        handler: impl FnOnce(&mut Exchange) -> O,
    ) -> (Rc<Core>, HeadHolder, bool) {
        debug_assert!(!begin.coordinated && !begin.has_body, "not a plain request");
        let core = self.take_core(begin);
        core.set_state(RUNNING);
        let (head, outcome) = self.call_fenced(&core, head, handler);
        let answered = outcome == life::Outcome::Returned
            && core.intents.get() == Intents::default()
            && core.state() == RUNNING
            && core.rare.borrow().is_none();
        if !answered {
            self.finish_callback(&core, outcome, &head);
        }
        (core, head, answered)
    }

    /// The answer has been taken whole: the exchange is over.
    #[inline]
    pub(crate) fn end_answered(&self, core: &Rc<Core>) {
        debug_assert!(!core.counted_async.get(), "it was answered within its callback");
        let dropped = core.output.borrow().dropped();
        self.hub.counters.update(|c| {
            c.ends[EndReason::Completed.index()] += 1;
            c.messages_dropped += dropped;
            down(&mut c.live);
            down(&mut c.sync_active);
        });
        core.set_state(OVER);
        self.rest(core);
    }

    /// Gives the exchange's name up and keeps its slot for the next one: a batch of requests is served by one core
    /// that never leaves the table. Nobody has given it anything that would have to be dropped.
    #[inline]
    fn rest(&self, core: &Rc<Core>) {
        debug_assert!(core.rare.borrow().is_none() && core.actions.borrow().is_empty());
        if Rc::strong_count(core) > CORE_HOLDERS_AT_RELEASE {
            return self.release(core);
        }
        core.request.take();
        core.in_ready.set(false);
        let renamed = self.table.borrow_mut().rename(core.key.get());
        core.key.set(renamed.expect("a live exchange is in the table"));
        if let Some(other) = self.warm.replace(Some(core.clone())) {
            self.release(&other);
        }
    }

    /// The answer could not be taken whole: the machine goes on from the handler's return.
    pub(crate) fn go_on(&self, core: &Core, head: &HeadHolder) {
        self.finish_callback(core, life::Outcome::Returned, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{
        life::{Action, Event, Wait},
        state::step,
    };

    #[test]
    fn the_short_way_is_the_machines_own() {
        let started = Event::Started { coordinated: false, has_body: false, wait: Wait::Nothing };
        let (running, actions) = step(State::VACANT, started);
        assert_eq!(running, RUNNING);
        assert_eq!(actions.as_slice(), [Action::Run(Callback::Handler(DispatchType::Request))]);

        let outcome = life::Outcome::Returned;
        let (finishing, actions) =
            step(running, Event::CallbackReturned { outcome, intents: Intents::default() });
        let mut done = actions.as_slice().to_vec();
        let (committed, actions) = step(finishing, Event::HeadCommitted);
        done.extend_from_slice(actions.as_slice());
        let (ended, actions) = step(committed, Event::OutputFinished);
        done.extend_from_slice(actions.as_slice());
        let (mut over, mut actions) = (ended, actions);
        // `on_complete`, which nobody has set.
        while over.running.is_some() {
            (over, actions) = step(over, Event::CallbackReturned { outcome, intents: Intents::default() });
            done.extend_from_slice(actions.as_slice());
        }
        assert_eq!(over, OVER, "{actions:?}");
        // Of these the counting, the answer and the release are done above; of the others there is nothing to do
        // for an exchange without listeners, tasks, future or context.
        let nothing = [
            Action::RefuseTasks,
            Action::FireCancelToken,
            Action::DropFuture,
            Action::Run(Callback::Complete),
        ];
        done.retain(|action| !nothing.contains(action));
        let expected = [Action::FinishResponse, Action::CountEnd(EndReason::Completed), Action::Release];
        assert_eq!(done, expected);
    }
}
