//! The worker pool behind `start(job)` and `blocking(f)`: where code may block, away from the shards (L-24).
//!
//! `pool.rs` has the threads, `job.rs` what waits in the queue and what is counted, `context.rs` what a job knows of
//! the request it works for. A pool knows no exchange: jobs answer through their own handles. It outlives all
//! exchanges and is closed last (L-26).

mod context;
mod job;
mod pool;
#[cfg(test)]
mod tests;

pub use context::{JobContext, VALUES_MAX};
pub use job::PoolSnapshot;
pub use pool::{Drained, PoolOptions, WorkerPool};
