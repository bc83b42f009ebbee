//! The tasks of a shard: futures that may be `!Send`, polled on their shard's thread only.

mod join;
mod queue;
mod waker;

pub use join::{JoinError, JoinHandle};
pub(crate) use queue::TaskQueue;
