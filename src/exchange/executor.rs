//! Handing tasks to an exchange from anywhere: bounded, first in first out, answered with a value (L-3, L-4).

use super::{
    AsyncContext, Exchange, Outcome,
    async_context::{Content, ContextCore, Parcel, Task, Work},
    post::{Refusal, WorkerJob},
    registry,
};
use crate::error::{EndReason, Error, Result};
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// Why a task was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndeliveredReason {
    /// The exchange is over, or its end is decided.
    Ended(EndReason),
    /// The context's cycle is over.
    Stale,
    /// The queue of the exchange or of its shard is full.
    Full,
    /// The shard is stopping.
    ShuttingDown,
}

/// A task that was not taken, handed back.
pub struct Undelivered<F> {
    /// The task.
    pub task: F,
    /// Why.
    pub reason: UndeliveredReason,
}

impl<F> fmt::Debug for Undelivered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Undelivered({:?})", self.reason)
    }
}

impl<F> fmt::Display for Undelivered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task was not taken: {:?}", self.reason)
    }
}

impl<F> std::error::Error for Undelivered<F> {}

/// The executor of one exchange: what is handed to it runs on the exchange's shard, one at a time.
#[derive(Debug, Clone)]
pub struct RequestExecutor {
    context: AsyncContext,
}

impl RequestExecutor {
    pub(crate) fn new(context: AsyncContext) -> Self {
        RequestExecutor { context }
    }

    /// Queues a task. It never runs if the exchange ends, or a new cycle begins, before its turn.
    ///
    /// # Errors
    /// The task, and why it was not taken.
    pub fn execute<F, O>(&self, task: F) -> Result<(), Undelivered<F>>
    where
        F: FnOnce(&mut Exchange) -> O + Send + 'static,
        O: Outcome,
    {
        execute(&self.context, task)
    }

    /// Tasks that wait or are on their way.
    pub fn queued(&self) -> u32 {
        self.context.core.shared.queued()
    }
}

fn count_rejected(context: &AsyncContext) {
    context.core.gateway.rejected.fetch_add(1, Ordering::Relaxed);
}

fn check(context: &AsyncContext) -> Result<(), UndeliveredReason> {
    let shared = &context.core.shared;
    if let Some(reason) = shared.ended() {
        return Err(UndeliveredReason::Ended(reason));
    }
    if context.cycle.is_some_and(|cycle| cycle != shared.cycle()) {
        return Err(UndeliveredReason::Stale);
    }
    if !shared.reserve(context.core.gateway.tasks_max) {
        count_rejected(context);
        return Err(UndeliveredReason::Full);
    }
    Ok(())
}

fn execute<F, O>(context: &AsyncContext, task: F) -> Result<(), Undelivered<F>>
where
    F: FnOnce(&mut Exchange) -> O + Send + 'static,
    O: Outcome,
{
    if let Err(reason) = check(context) {
        return Err(Undelivered { task, reason });
    }
    let job = Box::new(Task(task));
    let (context_core, sent) = (context.core.clone(), Instant::now());
    let parcel = Parcel(Content::Task { context: context_core, cycle: context.cycle, job, sent });
    match context.core.gateway.post.post(parcel) {
        Ok(()) => Ok(()),
        Err((parcel, refusal)) => Err(hand_back(context, parcel, refusal)),
    }
}

fn hand_back<F: 'static>(context: &AsyncContext, parcel: Parcel, refusal: Refusal) -> Undelivered<F> {
    context.core.shared.release();
    let reason = match refusal {
        Refusal::Full => {
            count_rejected(context);
            UndeliveredReason::Full
        }
        Refusal::Stopping => UndeliveredReason::ShuttingDown,
    };
    let Content::Task { job, .. } = parcel.0 else { unreachable!("a task was posted") };
    match job.into_any().downcast::<F>() {
        Ok(task) => Undelivered { task: *task, reason },
        Err(_) => unreachable!("the job was made of this task"),
    }
}

pub(crate) fn dispatch<F, O>(context: &AsyncContext, task: F) -> Result<(), Undelivered<F>>
where
    F: FnOnce(&mut Exchange) -> O + Send + 'static,
    O: Outcome,
{
    // Nothing may be queued before it, here or on its way (L-3).
    let here = context.core.gateway.post.is_current()
        && context.core.shared.queued() == 0
        && registry::with(context.core.gateway.table_id, |exchanges| {
            exchanges.may_run_now(context.core.id.key)
        }) == Some(true);
    if !here {
        return execute(context, task);
    }
    if let Err(reason) = check(context) {
        return Err(Undelivered { task, reason });
    }
    let work = super::async_context::Queued {
        cycle: context.cycle,
        sent: None,
        work: Work::Sent(Box::new(Task(task)), context.core.clone()),
    };
    registry::with(context.core.gateway.table_id, |exchanges| exchanges.accept_task(work));
    Ok(())
}

/// Starts a job on the worker pool. A refusal is never silent: the exchange sees `Overload` (L-24).
pub(crate) fn start_job(core: &Arc<ContextCore>, job: WorkerJob) -> Result<()> {
    let Some(workers) = &core.gateway.workers else {
        return Err(Error::Misuse("this server was built without a worker pool"));
    };
    match workers.start(job) {
        Ok(()) => Ok(()),
        Err(job) => {
            drop(job);
            Err(Error::LimitReached { limit: WORKER_QUEUE_LIMIT })
        }
    }
}

/// The bound of the worker pool's queue, by name; a callback that fails with it ends its exchange with `Overload`.
pub(crate) const WORKER_QUEUE_LIMIT: &str = "worker_queue_max";
