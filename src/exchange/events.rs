//! What a connection reports to an exchange, and what it takes from it. None of these calls runs user code: they
//! feed the state machine, and `next_action` tells what follows.

use super::{
    Exchanges,
    counters::up,
    life::{Event, Phase, Wait},
    output::OutputQueue,
    request::HeadHolder,
    response::ResponseParts,
    table::needs_snapshot,
};
use crate::error::{EndReason, Result};
use bytes::Bytes;
use shards::Key;
use std::time::Duration;

impl Exchanges {
    fn feed(&self, key: Key, event: Event) {
        if let Some(core) = self.core(key) {
            core.feed(event);
        }
    }

    /// Body bytes. Push no more than `input_room` says.
    pub(crate) fn input(&self, key: Key, bytes: Bytes) -> Result<()> {
        let Some(core) = self.core(key) else { return Ok(()) };
        if core.state().end_decided().is_some() {
            return Ok(());
        }
        let pushed = core.input.borrow_mut().push(bytes);
        if pushed? {
            core.feed(Event::InputArrived);
        }
        Ok(())
    }

    /// How long the body may become, and whether all of it is buffered.
    pub(crate) fn set_body_limit(&self, key: Key, limit: u64, wait: Wait) {
        if let Some(core) = self.core(key) {
            let mut input = core.input.borrow_mut();
            input.set_limit(limit);
            if wait == Wait::WholeBody {
                input.widen();
            }
        }
    }

    /// The status that answers the failure about to be reported, where the reason's own is not exact.
    pub(crate) fn set_failure_status(&self, key: Key, status: u16) {
        if let Some(core) = self.core(key) {
            core.failure_status.set(status);
        }
    }

    /// Makes sure that a callback which has to wait will find the head.
    #[inline]
    pub(crate) fn keep_head(&self, key: Key, head: &HeadHolder) {
        if let (Some(core), HeadHolder::Loan(_)) = (self.core(key), head)
            && needs_snapshot(&core)
        {
            core.snapshot(head);
        }
    }

    /// Whose exchange it is.
    pub(crate) fn owner(&self, key: Key) -> Option<u64> {
        Some(self.core(key)?.owner.get())
    }

    /// Whether the exchange waits for something other than its client.
    pub(crate) fn is_waiting(&self, key: Key) -> bool {
        self.core(key).is_some_and(|core| {
            let state = core.state();
            matches!(state.phase, Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Responding)
        })
    }

    /// Whether the exchange is parked: no callback of it runs and it waits.
    pub(crate) fn is_parked(&self, key: Key) -> bool {
        self.core(key).is_some_and(|core| core.state().is_parked())
    }

    /// How many body bytes may be pushed now.
    pub(crate) fn input_room(&self, key: Key) -> usize {
        self.core(key).map_or(0, |core| core.input.borrow().room())
    }

    /// The body is whole, or its rest has been discarded.
    pub(crate) fn input_ended(&self, key: Key) {
        let Some(core) = self.core(key) else { return };
        let told = {
            let mut input = core.input.borrow_mut();
            input.end();
            input.is_consumed()
        };
        core.feed(Event::InputEnded);
        if told {
            core.feed(Event::InputArrived);
            core.feed(Event::InputConsumed);
        }
    }

    /// The body is broken (`ProtocolError`) or late (`BodyTimeout`).
    pub(crate) fn input_failed(&self, key: Key, reason: EndReason) {
        if let Some(core) = self.core(key) {
            core.input.borrow_mut().fail(reason);
            core.feed(Event::InputFailed(reason));
        }
    }

    /// Head and output queue, for writing them to the wire.
    pub(crate) fn with_output<R>(
        &self,
        key: Key,
        take: impl FnOnce(&ResponseParts, &mut OutputQueue) -> R,
    ) -> Option<R> {
        let core = self.core(key)?;
        let taken = take(&core.response.borrow(), &mut core.output.borrow_mut());
        Some(taken)
    }

    /// The head has been written: nothing about it can change.
    pub(crate) fn head_committed(&self, key: Key) {
        self.feed(key, Event::HeadCommitted);
    }

    /// Whether the head has been written.
    #[cfg(test)]
    pub(crate) fn is_committed(&self, key: Key) -> bool {
        self.core(key).is_some_and(|core| core.state().committed)
    }

    /// The transport took body bytes.
    pub(crate) fn accepted(&self, key: Key, count: u64) {
        if let Some(core) = self.core(key) {
            let drained = core.output.borrow_mut().note_accepted(count);
            if drained {
                core.feed(Event::OutputDrained);
            }
        }
    }

    /// The whole answer is in the connection's output. A plain exchange, one that nobody listens to, is over with
    /// that: nothing of it can be told apart from an answer that the kernel has taken. True if it was one.
    pub(crate) fn end_plain(&self, key: Key, count: u64) -> bool {
        let Some(core) = self.core(key) else { return false };
        let plain = core.rare.borrow().is_none();
        if plain {
            core.output.borrow_mut().note_accepted(count);
            core.feed(Event::OutputFinished);
        }
        plain
    }

    /// Every byte of the response has been accepted.
    pub(crate) fn output_finished(&self, key: Key) {
        self.feed(key, Event::OutputFinished);
    }

    /// A write failed, or took too long.
    pub(crate) fn output_failed(&self, key: Key, reason: EndReason) {
        self.feed(key, Event::OutputFailed(reason));
    }

    /// FIN, under the policy `Abort`.
    pub(crate) fn peer_finished(&self, key: Key) {
        self.feed(key, Event::PeerFinished);
    }

    /// RST.
    pub(crate) fn peer_reset(&self, key: Key) {
        self.feed(key, Event::PeerReset);
    }

    /// The orderly time is over; reason `Shutdown` or `Reload`.
    pub(crate) fn shutdown_forced(&self, key: Key, reason: EndReason) {
        self.feed(key, Event::ShutdownForced(reason));
    }

    /// A bound was reached on behalf of this exchange.
    #[cfg(test)]
    pub(crate) fn overloaded(&self, key: Key) {
        self.feed(key, Event::Overloaded);
    }

    /// When the exchange wants `timer_fired`, on the clock of `set_now`.
    pub(crate) fn next_wake(&self, key: Key) -> Option<Duration> {
        self.core(key)?.next_wake()
    }

    /// The timer that was armed for `next_wake`. A stale key is counted and nothing else (L-5).
    pub(crate) fn timer_fired(&self, key: Key) {
        let Some(core) = self.core(key) else {
            self.hub.counters.update(|c| up(&mut c.stale_timers));
            return;
        };
        let now = self.hub.now.get();
        let woken = core.if_rare(|rare| Some(rare.end_sleeps(now)));
        if woken == Some(true) {
            core.feed(Event::FutureWoken);
        }
        if core.deadline().is_some_and(|deadline| deadline <= now) {
            core.feed(Event::TimerFired);
        }
        core.timer_dirty.set(true);
    }

    /// Keys and owners of all exchanges, for shutdown and metrics.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<(Key, u64)> {
        let table = self.table.borrow();
        let live = table.iter().filter(|(_, core)| core.state().phase != Phase::Vacant);
        live.map(|(key, core)| (key, core.owner.get())).collect()
    }

    /// What is known of one exchange: phase and whether it waits.
    #[cfg(test)]
    pub(crate) fn state(&self, key: Key) -> Option<super::life::State> {
        Some(self.core(key)?.state())
    }
}
