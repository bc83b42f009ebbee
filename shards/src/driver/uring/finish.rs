//! The end of a driver: everything is cancelled and reaped, and what does not come back in time is leaked, never
//! freed: the kernel may write to it long after the ring's descriptor is closed (runtime rule 6).

use super::{
    super::{Owner, Wait, slots::Place},
    UringDriver, entries,
};
use crate::clock::Clock;
use std::time::Duration;

impl UringDriver {
    /// See [`super::super::Driver::stop`].
    pub(crate) fn stop(mut self: Box<Self>, within: Duration) -> usize {
        self.reap_all(within)
    }

    /// Cancels everything, reaps until nothing is in flight or the time is over. Gives how many stay behind.
    fn reap_all(&mut self, within: Duration) -> usize {
        self.stopping = true;
        for key in self.slots.keys() {
            let Some(slot) = self.slots.get_mut(key) else { continue };
            slot.owner = Owner::Nobody;
            let was_cancelling = std::mem::replace(&mut slot.cancelling, true);
            if slot.place == Place::Starved && !was_cancelling {
                self.end(key);
            }
        }
        let clock = Clock::Real(crate::clock::Start::new());
        loop {
            let left = within.saturating_sub(clock.now());
            self.push(entries::cancel_all_entry());
            let turned = self.turn(Wait::AtMost(left.min(CANCEL_AGAIN_AFTER)));
            while self.next().is_some() {}
            if self.in_kernel() == 0 {
                return 0;
            }
            if turned.is_err() || left.is_zero() {
                return self.slots.len();
            }
        }
    }

    /// Operations that the kernel may still work on, the wake included.
    fn in_kernel(&self) -> usize {
        self.slots.len() + usize::from(self.wake_armed)
    }
}

impl Drop for UringDriver {
    fn drop(&mut self) {
        if self.in_kernel() > 0 && !self.stopping {
            // Not stopped: the shard is unwinding. What ends at once is freed, there is no time for the rest.
            self.reap_all(Duration::ZERO);
        }
        let left = self.slots.len();
        if left == 0 {
            self.buffers.give_back(&self.pool);
            return;
        }
        tracing::error!(operations = left, "operations did not end in time; their memory is leaked");
        self.buffers.leak();
        Box::leak(Box::new(std::mem::take(&mut self.loads)));
    }
}

/// How long a turn of the end waits before everything is cancelled once more.
const CANCEL_AGAIN_AFTER: Duration = Duration::from_millis(20);
