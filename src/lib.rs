//! A thread-per-core HTTP server for Linux whose requests are serialized on the core that owns them.
//!
//! A [`Server`] starts one shard for each core: a pinned thread with its own ring, timers, connections and
//! application state. The function given to [`server::Builder::start`] runs once on each shard and gives its [`Router`];
//! handlers may be `!Send`. A handler sees an [`Exchange`], one request and its response. It answers in its callback, or parks
//! the exchange with [`Exchange::start_async`] and ends it later, from a timer, a worker, a [`Topic`] or any thread:
//! one of them wins, the others are ignored and counted.
//!
//! `docs/lifecycle.md` tells the life of a request, `examples/` holds a program for each programming model, and the crate
//! `shards` is the runtime below.
//!
//! ```no_run
//! use shardlet::{Exchange, Result, Router, Server, get};
//! use std::net::SocketAddr;
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let address: SocketAddr = "127.0.0.1:8080".parse()?;
//! let routes = |_: &shards::Shard| {
//!     Router::new().route("/hello", get(|x: &mut Exchange| -> Result<()> { writeln!(x, "Hello") }))
//! };
//! Server::builder().listen(address).start(routes)?.join();
//! # Ok(())
//! # }
//! ```

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

pub use connection::{Relayed, relay};
pub use error::{EndReason, Error, Result};
pub use exchange::{AsyncContext, Exchange, ForeignCalls, Request, Topic, asynchronous, handoff};
pub use http::StatusCode;
pub use limits::Limits;
pub use routing::{Coordinator, Filter, Router, Throttle, any, delete, get, patch, post, put};
pub use server::Server;
/// The runtime below, so that an application needs no dependency of its own on it.
pub use shards;
pub use shutdown::ShutdownPlan;
pub use workers::{JobContext, PoolOptions, WorkerPool};

/// The snippets of the guides are compiled with the documentation's own.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/lifecycle.md")]
    mod lifecycle {}
    #[doc = include_str!("../README.md")]
    mod readme {}
}
