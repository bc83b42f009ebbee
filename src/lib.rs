//! shardlet

mod connection;
pub mod error;
pub mod exchange;
pub mod handlers;
pub mod http1;
pub mod limits;
pub mod load;
pub mod metrics;
pub mod routing;
pub mod server;
pub mod shutdown;
pub mod stats;
pub mod workers;

pub use error::{EndReason, Error, Result};
pub use exchange::{AsyncContext, Exchange, ForeignCalls, Request, Topic, asynchronous};
pub use http::StatusCode;
pub use limits::Limits;
pub use routing::{Coordinator, Filter, Router, Throttle, any, get, post};
pub use server::Server;
pub use shutdown::ShutdownPlan;
pub use workers::{JobContext, PoolOptions, WorkerPool};

/// The snippets of the guides are compiled with the documentation's own.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/lifecycle.md")]
    mod lifecycle {}
}
