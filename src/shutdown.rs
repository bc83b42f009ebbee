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
use std::{cell::RefCell, rc::Rc, time::Duration};

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
    service: &'a Service,
    plan: &'a RefCell<Option<ShutdownPlan>>,
}

/// How often it is looked whether a phase is over: the deadline is not exact to the millisecond anyway.
const LOOK: Duration = Duration::from_millis(5);

/// Connections told at once: some 25 microseconds each.
const AT_ONCE: usize = 128;

/// How long the rest of the shard's work has before the next of them: a turn at least.
const PAUSE: Duration = Duration::from_millis(1);

impl<'a> Phases<'a> {
    pub(crate) fn new(
        shard: &'a Shard,
        service: &'a Service,
        plan: &'a RefCell<Option<ShutdownPlan>>,
    ) -> Self {
        Phases { shard, service, plan }
    }

    pub(crate) async fn run(&self, listeners: Vec<Rc<Listener>>) {
        self.until(|_| false, |plan| plan.notice).await;
        self.service.begin_drain();
        for listener in listeners {
            listener.close().await;
        }
        self.each(Service::drain).await;
        self.until(|service| service.connection_count() == 0, |plan| plan.grace).await;
        self.each(|service, connection| service.force(connection, EndReason::Shutdown)).await;
        self.until(|service| service.connection_count() == 0, |plan| plan.write).await;
        self.each(Service::cut).await;
    }

    /// Does something with every connection, a few at a time: those that still work are served in between.
    async fn each(&self, act: impl Fn(&Service, Key)) {
        for (index, key) in self.service.connection_keys().into_iter().enumerate() {
            if index > 0 && index % AT_ONCE == 0 {
                // A sleep and not a yield: a task that only yields runs again in the same turn.
                time::sleep(PAUSE).await;
            }
            act(self.service, key);
        }
    }

    /// Waits until `is_over`, at most as long as the plan says now: a hastier one that arrives meanwhile is obeyed.
    async fn until(&self, is_over: impl Fn(&Service) -> bool, bound: impl Fn(ShutdownPlan) -> Duration) {
        let began = self.shard.now();
        loop {
            let plan = self.plan.borrow().unwrap_or_else(ShutdownPlan::now);
            let is_late = self.shard.now().saturating_sub(began) >= bound(plan);
            if is_over(self.service) || is_late {
                return;
            }
            time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
#[path = "shutdown_tests.rs"]
mod tests;
