//! What any thread may hold of an exchange. A context only sends; whether what it sent may run is decided on the
//! exchange's shard, when it is about to run, by generation, cycle and state (L-5, L-6).

use super::{
    CancelToken, Exchange, Exchanges, Outcome, Request, RequestExecutor,
    core::Core,
    executor::{self, Undelivered},
    post::{Post, Workers},
    registry,
    shared::Shared,
    table::ExchangeId,
};
use crate::error::{Error, Result};
use std::{
    any::Any,
    cell::Cell,
    fmt,
    rc::Rc,
    sync::{Arc, atomic::AtomicU64},
    task::Wake,
    time::{Duration, Instant},
};

/// The way to the exchanges of a table from any thread: one for all of them.
pub(crate) struct Gateway {
    pub(crate) table_id: u64,
    pub(crate) post: Arc<dyn Post>,
    pub(crate) workers: Option<Arc<dyn Workers>>,
    pub(crate) tasks_max: u32,
    /// Tasks refused by a bound, on whatever thread.
    pub(crate) rejected: AtomicU64,
}

/// The part of a context that does not depend on the cycle: one for each exchange that gives contexts out. A parked
/// request keeps it, so what is the same for all is behind `gateway`.
pub(crate) struct ContextCore {
    pub(crate) id: ExchangeId,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) request: Request,
    pub(crate) shared: Shared,
}

impl ContextCore {
    pub(crate) fn new(core: &Core, request: Request) -> Self {
        let shared = Shared::new(core.cycle.get());
        if let Some(deadline) = core.deadline() {
            shared.set_deadline(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX).max(1));
        }
        ContextCore {
            id: ExchangeId { shard: core.hub.shard, key: core.key.get() },
            gateway: core.hub.gateway.clone(),
            request,
            shared,
        }
    }
}

impl fmt::Debug for ContextCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextCore")
            .field("id", &self.id)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

/// Polls the future of the exchange again. Wakes on their way are at most one for each exchange.
impl Wake for ContextCore {
    fn wake(self: Arc<Self>) {
        if self.shared.ended().is_some() || !self.shared.claim_wake() {
            return;
        }
        if self.gateway.post.is_current() {
            open_wake(&self);
        } else {
            let gateway = self.gateway.clone();
            // Refused only by a shard that is stopping: it ends the exchange by itself.
            let _ = gateway.post.post(Parcel(Content::Wake(self)));
        }
    }
}

fn open_wake(core: &ContextCore) {
    core.shared.clear_wake();
    registry::with(core.gateway.table_id, |exchanges| exchanges.accept_wake(core.id.key));
}

/// A task as it travels: it can be run, or handed back to its sender as what it was.
pub(crate) trait Job: Send {
    fn run(self: Box<Self>, x: &mut Exchange) -> Result<()>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

pub(crate) struct Task<F>(pub(crate) F);

impl<F, O> Job for Task<F>
where
    F: FnOnce(&mut Exchange) -> O + Send + 'static,
    O: Outcome,
{
    fn run(self: Box<Self>, x: &mut Exchange) -> Result<()> {
        (self.0)(x).into_result()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.0)
    }
}

/// What waits in an exchange's queue.
pub(crate) struct Queued {
    /// The cycle it belongs to; `None` for the whole exchange.
    pub(crate) cycle: Option<u32>,
    /// When it was sent, if it has travelled through the inbox.
    pub(crate) sent: Option<Instant>,
    pub(crate) work: Work,
}

/// A task that never leaves the shard.
pub(crate) type LocalTask = Box<dyn FnOnce(&mut Exchange) -> Result<()>>;

pub(crate) enum Work {
    /// From another thread or another exchange: holds a place in the bounded queue.
    Sent(Box<dyn Job>, Arc<ContextCore>),
    /// From `with`, on the shard.
    Local(LocalTask),
}

/// Something on its way to a shard. Open it there; dropping it drops what is inside.
pub struct Parcel(pub(crate) Content);

pub(crate) enum Content {
    Task {
        context: Arc<ContextCore>,
        cycle: Option<u32>,
        job: Box<dyn Job>,
        /// When it was sent: a figure for the statistics, nothing is decided by it.
        sent: Instant,
    },
    Wake(Arc<ContextCore>),
    /// The worker pool has refused a job of this exchange (L-24).
    Overload(Arc<ContextCore>),
    /// A topic has something new for this shard: at most one on its way for each topic.
    Notice(Box<dyn super::topic::ShardNotice>),
}

impl Parcel {
    /// Whether it only wakes: such parcels are at most one for each exchange or topic.
    pub(crate) fn is_wake(&self) -> bool {
        !matches!(self.0, Content::Task { .. })
    }

    /// Delivers the content. To be called on the shard the parcel was posted to, outside of callbacks.
    pub fn open(self) {
        match self.0 {
            Content::Wake(context) => open_wake(&context),
            Content::Notice(notice) => notice.open(),
            Content::Overload(context) => {
                let table_id = context.gateway.table_id;
                registry::with(table_id, |exchanges| exchanges.accept_overload(context.id.key));
            }
            Content::Task { context, cycle, job, sent } => {
                let table_id = context.gateway.table_id;
                let work = Queued { cycle, sent: Some(sent), work: Work::Sent(job, context) };
                registry::with(table_id, |exchanges| exchanges.accept_task(work));
            }
        }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Content::Task { context, .. } => write!(f, "Parcel(task for {:?})", context.id),
            Content::Notice(_) => f.write_str("Parcel(notice of a topic)"),
            Content::Wake(context) => write!(f, "Parcel(wake for {:?})", context.id),
            Content::Overload(context) => write!(f, "Parcel(overload for {:?})", context.id),
        }
    }
}

/// A handle on an asynchronous exchange for any thread: `Send + Sync + Clone`.
#[derive(Debug, Clone)]
pub struct AsyncContext {
    pub(crate) core: Arc<ContextCore>,
    /// The cycle in which this context was made; `None` for the whole exchange.
    pub(crate) cycle: Option<u32>,
}

impl AsyncContext {
    pub(crate) fn new(core: Arc<ContextCore>, cycle: Option<u32>) -> Self {
        AsyncContext { core, cycle }
    }

    /// The exchange's name.
    pub fn id(&self) -> ExchangeId {
        self.core.id
    }

    /// The request as it was when the context was made.
    pub fn request(&self) -> &Request {
        &self.core.request
    }

    /// A context whose tasks outlive a redispatch (L-6).
    #[must_use]
    pub fn whole_exchange(&self) -> AsyncContext {
        AsyncContext { core: self.core.clone(), cycle: None }
    }

    /// The executor of the exchange: serialized, first in first out.
    pub fn executor(&self) -> RequestExecutor {
        RequestExecutor::new(self.clone())
    }

    /// Runs the task at once if this is the owning shard, outside any callback, with nothing queued before it;
    /// otherwise queues it as `execute` does. Never blocks (L-3).
    ///
    /// # Errors
    /// The task, and why it cannot run.
    pub fn dispatch<F, O>(&self, task: F) -> Result<(), Undelivered<F>>
    where
        F: FnOnce(&mut Exchange) -> O + Send + 'static,
        O: Outcome,
    {
        executor::dispatch(self, task)
    }

    /// Runs `call` now, as a callback of the parked exchange, and gives what it gave: for code of the owning shard
    /// that stands outside any callback (a timer, a spawned future), with nothing queued for the exchange. What `call`
    /// asks for (`complete`, a timeout) takes effect when it returns (L-7). It never waits and never queues; where it
    /// may not run, `dispatch` queues.
    ///
    /// # Errors
    /// `Ended` or `Stale` when the exchange or the cycle is over, and `Stale` if `call` panicked; `Misuse` on another
    /// thread, inside a callback, or with something queued. `call` is dropped without having run, except by its panic.
    pub fn with<R: 'static>(&self, call: impl FnOnce(&mut Exchange) -> R + 'static) -> Result<R> {
        if let Some(reason) = self.core.shared.ended() {
            return Err(Error::Ended(reason));
        }
        if !self.core.gateway.post.is_current() {
            return Err(Error::Misuse("with() runs on the exchange's own shard; elsewhere use execute()"));
        }
        if self.core.shared.queued() > 0 {
            return Err(Error::Misuse("with() runs with nothing queued before it; use dispatch()"));
        }
        let slot = Rc::new(Cell::new(None));
        let result = slot.clone();
        let work = Work::Local(Box::new(move |x| {
            result.set(Some(call(x)));
            Ok(())
        }));
        let run = |exchanges: &Rc<Exchanges>| {
            exchanges.run_now(self.core.id.key, Queued { cycle: self.cycle, sent: None, work })
        };
        registry::with(self.core.gateway.table_id, run).unwrap_or(Err(Error::Stale))?;
        slot.take().ok_or(Error::Stale)
    }

    /// Runs a job on the worker pool with a copy of this context (L-24). It may look at the token and the
    /// deadline, and answers through the executor.
    ///
    /// # Errors
    /// `LimitReached` when the pool refuses it: the exchange then also sees `Overload`. `Ended` when it is over.
    pub fn start(&self, job: impl FnOnce(AsyncContext) + Send + 'static) -> Result<()> {
        if let Some(reason) = self.core.shared.ended() {
            return Err(Error::Ended(reason));
        }
        let context = self.clone();
        let started = executor::start_job(&self.core, Box::new(move || job(context)));
        if matches!(started, Err(Error::LimitReached { .. })) {
            // Refused only by a shard that is stopping: it ends the exchange by itself.
            let _ = self.core.gateway.post.post(Parcel(Content::Overload(self.core.clone())));
        }
        started
    }

    /// Fires when the exchange ends.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken::new(self.core.clone())
    }

    /// When the timeout will fire, on the shard's clock.
    pub fn deadline(&self) -> Option<Duration> {
        self.core.shared.deadline()
    }
}
