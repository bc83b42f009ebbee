//! Receive buffers: a small, hot set per shard. Idle streams hold none of them.

mod pool;

pub use pool::Lease;
pub(crate) use pool::{Pool, PoolAccount};
