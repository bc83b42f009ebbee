//! Completions on their way from the driver to their owners' callbacks. `shard.rs` calls it once a turn.

use super::Shard;
use crate::{
    driver::Owner,
    net::{Net, ReceiveEnd},
};
use std::{cell::Cell, io};

/// How far the completions of a turn have been delivered; it outlives a callback that panics.
struct Delivery {
    budget: Cell<usize>,
    /// Whose completion is being delivered.
    owner: Cell<Owner>,
    unowned: Cell<u64>,
}

impl Delivery {
    fn new(budget: usize) -> Self {
        Delivery { budget: Cell::new(budget), owner: Cell::new(Owner::Nobody), unowned: Cell::new(0) }
    }
}

impl Shard {
    /// Delivers what was reaped, up to the budget. A panic ends the callback that it is in and nothing else.
    pub(super) fn deliver_completions(&self) {
        let delivery = Delivery::new(self.inner.budgets.completions);
        while self.caught(|| self.deliver_each(&delivery)).is_none() {
            self.abort(delivery.owner.get());
        }
        let delivered = self.inner.budgets.completions - delivery.budget.get();
        if delivered > 0 {
            let mut stats = self.inner.stats.borrow_mut();
            stats.completions += delivered as u64;
            stats.unowned_completions += delivery.unowned.get();
        }
    }

    #[inline]
    fn deliver_each(&self, delivery: &Delivery) {
        let mut began = self.inner.clock.coarse_now();
        while delivery.budget.get() > 0 {
            let Some(completion) = self.driver().next() else { return };
            delivery.budget.set(delivery.budget.get() - 1);
            delivery.owner.set(completion.owner);
            self.inner.measure.begin_callback("");
            if !Net::deliver(self, completion) {
                delivery.unowned.set(delivery.unowned.get() + 1);
            }
            // One reading ends a callback and begins the next.
            let ended = self.inner.clock.coarse_now();
            self.inner.measure.note(ended.saturating_sub(began), "event of a socket");
            began = ended;
        }
    }

    /// A callback of this owner panicked: see [`net::SocketEvents`].
    #[cold]
    fn abort(&self, owner: Owner) {
        let aborted =
            || io::Error::new(io::ErrorKind::ConnectionAborted, "a callback of this socket panicked");
        self.fenced("end of a socket", || {
            if let Some((events, token)) = Net::abort(self, owner) {
                events.on_receive_end(self, token, ReceiveEnd::Failed(aborted()));
            }
        });
    }
}
