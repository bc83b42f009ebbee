//! What a job knows of the request it works for: trace id, tenant, values of the application.
//!
//! Nothing is inherited: whoever starts a job wraps it with [`JobContext::carry`], and the copy is there for the time
//! of the job and for no longer: a context can be made current for the time of a call and in no other way, so a
//! worker thread between two jobs has an empty one.

use crate::error::{Error, Result};
use std::{
    any::{Any, TypeId},
    cell::RefCell,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

thread_local! {
    static CURRENT: RefCell<JobContext> = const { RefCell::new(JobContext::EMPTY) };
}

/// Values that one context may have: each is copied with it, and looked for one after the other.
pub const VALUES_MAX: usize = 64;

/// The name of that bound.
const VALUES_LIMIT: &str = "context_values_max";

/// Values refused in this process: contexts belong to no shard and no pool.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// How many values were refused.
pub(super) fn refused() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// A copy of what a job should know, cheap to clone, for any thread.
#[derive(Clone, Default)]
pub struct JobContext {
    trace_id: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
    /// One value of each type.
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
}

impl JobContext {
    const EMPTY: JobContext = JobContext { trace_id: None, tenant: None, values: Vec::new() };

    /// An empty context.
    pub fn new() -> Self {
        Self::EMPTY
    }

    /// The context of the job that runs on this thread; empty elsewhere.
    pub fn current() -> Self {
        // At the end of the thread there is no job any more.
        CURRENT.try_with(|current| current.borrow().clone()).unwrap_or_default()
    }

    /// Sets the trace id.
    #[must_use]
    pub fn with_trace_id(mut self, trace_id: impl Into<Arc<str>>) -> Self {
        self.trace_id = Some(trace_id.into());
        self
    }

    /// Sets the tenant.
    #[must_use]
    pub fn with_tenant(mut self, tenant: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Sets the value of this type, in place of one that was there.
    ///
    /// # Errors
    /// `LimitReached` beyond [`VALUES_MAX`] values: each job copies them.
    pub fn with_value<T: Any + Send + Sync>(mut self, value: T) -> Result<Self> {
        self.values.retain(|(id, _)| *id != TypeId::of::<T>());
        if self.values.len() >= VALUES_MAX {
            REFUSED.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(reason = VALUES_LIMIT, "value of a job's context refused");
            return Err(Error::LimitReached { limit: VALUES_LIMIT });
        }
        self.values.push((TypeId::of::<T>(), Arc::new(value)));
        Ok(self)
    }

    /// The trace id.
    pub fn trace_id(&self) -> Option<&str> {
        self.trace_id.as_deref()
    }

    /// The tenant.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The value of this type.
    pub fn value<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let (_, value) = self.values.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        value.clone().downcast().ok()
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.trace_id.is_none() && self.tenant.is_none() && self.values.is_empty()
    }

    /// Makes this the current context for the time of the call, also if it panics.
    pub fn scope<R>(&self, call: impl FnOnce() -> R) -> R {
        let _restore = Restore(set_current(self.clone()));
        call()
    }

    /// The job with a copy of this context around it: `x.blocking(context.carry(work))`.
    pub fn carry<R, F: FnOnce() -> R>(&self, job: F) -> impl FnOnce() -> R + use<R, F> {
        let context = self.clone();
        move || context.scope(job)
    }

    /// As [`JobContext::carry`] for a job with an argument: `cx.start(context.carry_with(|cx| …))`.
    pub fn carry_with<A, R, F: FnOnce(A) -> R>(&self, job: F) -> impl FnOnce(A) -> R + use<A, R, F> {
        let context = self.clone();
        move |argument| context.scope(|| job(argument))
    }
}

fn set_current(context: JobContext) -> JobContext {
    CURRENT.try_with(|current| current.replace(context)).unwrap_or_default()
}

/// Puts the context before back.
struct Restore(JobContext);

impl Drop for Restore {
    fn drop(&mut self) {
        // What is replaced is dropped here, with nothing borrowed: a value may look at the current context.
        drop(set_current(std::mem::take(&mut self.0)));
    }
}

impl fmt::Debug for JobContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobContext")
            .field("trace_id", &self.trace_id)
            .field("tenant", &self.tenant)
            .field("values", &self.values.len())
            .finish()
    }
}
