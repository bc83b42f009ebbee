//! The request life cycle: serialized on one shard, one ending, cheap waiting.
//!
//! An **exchange** is one request and its response. Whatever runs for it, handler, listener, task from another
//! thread, timeout, runs on the shard that owns it, one at a time (`state.rs` decides, `table.rs` and `run.rs` act).
//! Nothing here knows a socket, a clock or a router: the connection drives an exchange through `table.rs`.
//!
//! The phases, and what leads from one to the next. A test compares this drawing with the machine of `state.rs`;
//! "returned" is a callback that asked for nothing, "complete" one that called `complete()`, and so on. Where a
//! phase seems to be left out (`Failing → Ended`), its part was over at once: the client had gone.
//!
//! ```text
//! Vacant     → Deciding   started
//! Vacant     → Handling   started
//! Deciding   → Handling   redispatch, service
//! Deciding   → Failing    client gone, failed, failure, returned, timer
//! Deciding   → Finishing  complete
//! Deciding   → Ended      abort
//! Handling   → Parked     extend, returned, start_async
//! Handling   → Failing    client gone, failed, failure, returned, timer
//! Handling   → Responding complete, returned
//! Handling   → Finishing  complete, returned
//! Handling   → Ended      abort
//! Parked     → Handling   redispatch
//! Parked     → Failing    client gone, failed, failure, returned, timer
//! Parked     → Responding complete
//! Parked     → Finishing  complete
//! Parked     → Ended      abort
//! Failing    → Deciding   extend
//! Failing    → Handling   extend, redispatch, service
//! Failing    → Parked     extend
//! Failing    → Responding extend
//! Failing    → Finishing  complete, returned
//! Failing    → Ended      abort, complete, failed, returned
//! Responding → Failing    client gone, failed, failure, returned, timer
//! Responding → Finishing  complete
//! Responding → Ended      abort
//! Finishing  → Ended      client gone, data ended, failure, output finished, returned
//! Ended      → Vacant     returned
//! ```
//!
//! | file | job |
//! |---|---|
//! | `life`, `state` | the words of the life cycle, and the machine |
//! | `core`, `exchange`, `request`, `response` | one exchange, and what a callback holds of it |
//! | `input`, `output`, `text` | bodies: bounded queues, readiness, slow clients, text across chunks |
//! | `extras` | interim answers, trailers, the switch to another protocol |
//! | `listeners`, `run` | what an application is told, and how |
//! | `async_context`, `executor`, `cancel`, `shared`, `registry` | what other threads hold, and how it finds the shard |
//! | `asynchronous`, `handoff` | handlers that await |
//! | `table`, `events`, `counters` | all exchanges of a shard, the seam to the connection, the figures |

mod async_context;
mod asynchronous;
mod cancel;
mod core;
mod counters;
mod events;
#[allow(clippy::module_inception, reason = "the file of the type that the part is named after")]
mod exchange;
mod executor;
mod extras;
mod foreign;
mod handoff;
mod input;
mod latencies;
mod life;
mod listeners;
mod live;
mod local;
mod multipart;
mod output;
mod plain;
mod post;
mod registry;
mod request;
mod response;
mod run;
mod shared;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod topic;

pub use async_context::{AsyncContext, Parcel};
pub use asynchronous::{Asynchronous, asynchronous};
pub use cancel::CancelToken;
pub use counters::Snapshot as LifeCycleCounters;
pub use exchange::Exchange;
pub(crate) use exchange::PathParameters;
pub use executor::{RequestExecutor, Undelivered, UndeliveredReason};
pub use extras::Trailer;
pub use foreign::{ForeignCalls, ForeignResponse};
pub use handoff::{Handoff, HandoffSender, handoff};
pub use input::Read;
pub use latencies::Latencies;
pub use life::{Callback, DispatchType, Wait};
pub use listeners::{ReadListener, WriteListener};
pub use live::LiveExchange;
pub use multipart::{Form, MultipartDecoder, MultipartEvent, Part, PartHead};
pub use output::{ByteCounts, Chunk, SlowClient, WaterMarks};
pub use post::{Post, Refusal, ShardPost, WorkerJob, Workers};
pub use request::Request;
pub use response::Response;
pub use table::{ExchangeId, Exchanges, TableOptions};
pub use text::Utf8Decoder;
pub use topic::{Delivery, Item, PublishError, Published, SUBSCRIBERS_MAX, Subscription, Topic};

use crate::error::{Error, Result};

/// What the connection and the router use of an exchange.
#[allow(unused_imports, reason = "a list for those who drive exchanges")]
pub(crate) mod seam {
    pub(crate) use super::{
        core::Core,
        life::{Callback, Phase, State, Wait},
        listeners::Guardian,
        output::OutputQueue,
        request::{HeadHolder, Loan, Received},
        response::ResponseParts,
        table::{Begin, Next, Raised},
    };
}

/// What a callback may return: nothing, or a result whose error fails the exchange with `HandlerFailed`.
pub trait Outcome {
    /// The same as a result.
    ///
    /// # Errors
    /// The callback's own.
    fn into_result(self) -> Result<()>;
}

impl Outcome for () {
    fn into_result(self) -> Result<()> {
        Ok(())
    }
}

impl<E: Into<Error>> Outcome for Result<(), E> {
    fn into_result(self) -> Result<()> {
        self.map_err(Into::into)
    }
}
