//! The end of a server in phases, each with a deadline (L-26):
//!
//! ```text
//!   serving ─▶ notice:   still serving, but not ready
//!           ─▶ draining: no new connections, idle ones closed, busy ones answered with Connection: close; those that
//!              came a moment ago have one request yet
//!           ─▶ forced:   what is left gets on_error(Shutdown) and time to write
//!           ─▶ cut:      what is still left is cut
//! ```

use crate::{connection::Service, error::EndReason};
use shards::{Key, Shard, net::Listener, time};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// How long each phase of the end may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownPlan {
    /// How long the server goes on as before but says that it is not ready: load balancers take it out meanwhile.
    pub notice: Duration,
    /// For requests in flight to end by themselves.
    pub grace: Duration,
    /// For those that were told to end to write their answers.
    pub write: Duration,
}

impl ShutdownPlan {
    /// Within so long, with a second to write for what had to be told.
    pub fn graceful(grace: Duration) -> Self {
        ShutdownPlan { notice: Duration::ZERO, grace, write: Duration::from_secs(1) }
    }

    /// What is in flight is told at once.
    pub fn fast() -> Self {
        ShutdownPlan::graceful(Duration::ZERO)
    }

    /// Everything is cut.
    pub fn now() -> Self {
        ShutdownPlan { notice: Duration::ZERO, grace: Duration::ZERO, write: Duration::ZERO }
    }
}

impl ShutdownPlan {
    /// The shorter of each phase.
    pub(crate) fn sooner(self, other: ShutdownPlan) -> ShutdownPlan {
        ShutdownPlan {
            notice: self.notice.min(other.notice),
            grace: self.grace.min(other.grace),
            write: self.write.min(other.write),
        }
    }
}

/// The phases on one shard. The plan may be replaced while they run.
pub(crate) struct Phases<'a> {
    shard: &'a Shard,
    plan: &'a RefCell<Option<ShutdownPlan>>,
    spent: Spent,
}

/// What the services that have ended took of the plan: it is given to a server once, not to each of its services.
#[derive(Default)]
struct Spent {
    notice: Cell<Duration>,
    grace: Cell<Duration>,
}

/// How often it is looked whether a phase is over: the deadline is not exact to the millisecond anyway.
const LOOK: Duration = Duration::from_millis(5);

/// Connections told at once: some 25 microseconds each.
const AT_ONCE: usize = 128;

/// How long the rest of the shard's work has before the next of them: a turn at least.
const PAUSE: Duration = Duration::from_millis(1);

impl<'a> Phases<'a> {
    pub(crate) fn new(shard: &'a Shard, plan: &'a RefCell<Option<ShutdownPlan>>) -> Self {
        Phases { shard, plan, spent: Spent::default() }
    }

    /// Ends a service; the next one has what it leaves of notice and grace.
    pub(crate) async fn end(&self, service: &Service, listeners: Vec<Rc<Listener>>) {
        let is_empty = || service.connection_count() == 0;
        self.until(|| false, |plan| plan.notice, &self.spent.notice).await;
        service.begin_drain();
        for listener in listeners {
            listener.close().await;
        }
        each(service, Service::drain).await;
        self.until(is_empty, |plan| plan.grace, &self.spent.grace).await;
        each(service, |service, connection| service.force(connection, EndReason::Shutdown)).await;
        // Each service its own: what was told to end may always write.
        self.until(is_empty, |plan| plan.write, &Cell::default()).await;
        each(service, Service::cut).await;
    }

    /// Waits until `is_over`, at most as long as the plan says now, with what was spent before: a hastier one that
    /// arrives meanwhile is obeyed.
    async fn until(
        &self,
        is_over: impl Fn() -> bool,
        bound: impl Fn(ShutdownPlan) -> Duration,
        spent: &Cell<Duration>,
    ) {
        let (began, before) = (self.shard.now(), spent.get());
        loop {
            let plan = self.plan.borrow().unwrap_or_else(ShutdownPlan::now);
            spent.set(before + self.shard.now().saturating_sub(began));
            if is_over() || spent.get() >= bound(plan) {
                return;
            }
            time::sleep(LOOK).await;
        }
    }
}

/// Does something with every connection, a few at a time: those that still work are served in between.
async fn each(service: &Service, act: impl Fn(&Service, Key)) {
    for (index, key) in service.connection_keys().into_iter().enumerate() {
        if index > 0 && index % AT_ONCE == 0 {
            // A sleep and not a yield: a task that only yields runs again in the same turn.
            time::sleep(PAUSE).await;
        }
        act(service, key);
    }
}

#[cfg(test)]
#[path = "shutdown_tests.rs"]
mod tests;
