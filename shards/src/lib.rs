//! `shards`: a thread-per-core runtime for Linux. There is no HTTP word in it.
//!
//! One **shard** is one thread, pinned to one core, with its own ring (or epoll set), timers, tasks,
//! streams and inbox. Nothing of a shard is shared and nothing is locked: values that live on a shard may be
//! `!Send`, and every callback of a shard runs on its thread, one at a time.
//!
//! Other threads hold a [`ShardHandle`] and hand work over with it; that is the only way in.

mod affinity;
mod buffers;
mod clock;
mod driver;
mod error;
pub mod fs;
mod inbox;
mod offload;
mod sync;
mod table;
mod tasks;
mod timers;

pub use buffers::Lease;
pub use error::{Error, Result};
pub use table::{Key, Table};
pub use tasks::{JoinError, JoinHandle};
