//! The migration mode for callers that cannot be rewritten yet (L-23): a handle on the response for any thread, whose
//! mutating calls go through the exchange's executor. New code uses `executor().execute(task)` itself.

use super::{AsyncContext, Chunk, Exchange, Undelivered, UndeliveredReason};
use crate::{
    error::{Error, Result},
    http1::FieldLines,
};
use http::StatusCode;
use std::{
    collections::HashSet,
    panic::Location,
    sync::{Mutex, PoisonError},
};

/// What happens when another thread than the exchange's shard changes a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForeignCalls {
    /// It is done, through the executor, and logged once for each place in the code: the first step of a migration.
    Warn,
    /// It is refused with `Misuse`: the second step.
    #[default]
    Refuse,
}

/// A response in the hand of code that believes it may change it from any thread: `Send + Sync + Clone`. Calls keep
/// their order; one that comes too late has no effect and says so.
#[derive(Debug, Clone)]
pub struct ForeignResponse {
    context: AsyncContext,
    policy: ForeignCalls,
}

impl AsyncContext {
    /// The response as a handle for callers that cannot be rewritten yet.
    pub fn foreign_response(&self, policy: ForeignCalls) -> ForeignResponse {
        ForeignResponse { context: self.clone(), policy }
    }
}

impl ForeignResponse {
    /// Sets the status. Without effect after commit, as [`super::Response::set_status`].
    ///
    /// # Errors
    /// `Misuse` under [`ForeignCalls::Refuse`] on a foreign thread; `Ended`, `Stale`, `LimitReached` (the executor is
    /// full) or `ShuttingDown` when the call was not taken.
    #[track_caller]
    pub fn set_status(&self, status: StatusCode) -> Result<()> {
        self.route("set_status", move |x| {
            x.response().set_status(status);
            Ok(())
        })
    }

    /// Replaces all fields of this name. Without effect after commit.
    ///
    /// # Errors
    /// `InvalidField`; otherwise as [`ForeignResponse::set_status`].
    #[track_caller]
    pub fn set_header(&self, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        // Looked at here, where the caller can still be told.
        let value = value.as_ref().to_vec();
        FieldLines::new().set(name, &value).map_err(|_| Error::InvalidField)?;
        let name = name.to_owned();
        self.route("set_header", move |x| match x.response().set_header(&name, &value) {
            Err(Error::Committed) => Ok(()),
            result => result,
        })
    }

    /// Appends to the body.
    ///
    /// # Errors
    /// As [`ForeignResponse::set_status`].
    #[track_caller]
    pub fn write(&self, chunk: impl Into<Chunk>) -> Result<()> {
        let chunk: Chunk = chunk.into();
        self.route("write", move |x| x.write(chunk))
    }

    /// Completes the response behind what has been written.
    ///
    /// # Errors
    /// As [`ForeignResponse::set_status`].
    #[track_caller]
    pub fn complete(&self) -> Result<()> {
        self.route("complete", Exchange::complete)
    }

    #[track_caller]
    fn route(
        &self,
        call: &'static str,
        task: impl FnOnce(&mut Exchange) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        if !self.context.core.gateway.post.is_current() {
            match self.policy {
                ForeignCalls::Refuse => {
                    return Err(Error::Misuse(
                        "a response is changed on its own shard: hand a task to executor().execute()",
                    ));
                }
                ForeignCalls::Warn => warn_once(call, Location::caller()),
            }
        }
        self.context.executor().execute(task).map_err(|undelivered| refusal(&undelivered))
    }
}

fn refusal<F>(undelivered: &Undelivered<F>) -> Error {
    match undelivered.reason {
        UndeliveredReason::Ended(reason) => Error::Ended(reason),
        UndeliveredReason::Stale => Error::Stale,
        UndeliveredReason::Full => Error::LimitReached { limit: "tasks_max" },
        UndeliveredReason::ShuttingDown => Error::ShuttingDown,
    }
}

/// The places that were warned of: at most as many as the program has.
static WARNED: Mutex<Option<HashSet<Place>>> = Mutex::new(None);

/// File, line, column.
type Place = (&'static str, u32, u32);

fn warn_once(call: &'static str, place: &'static Location<'static>) {
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = warned.get_or_insert_default().insert((place.file(), place.line(), place.column()));
    drop(warned);
    if is_new {
        tracing::warn!(
            call,
            place = %place,
            "a response was changed from a foreign thread; hand a task to executor().execute() instead"
        );
    }
}
