//! `shards`: a thread-per-core runtime for Linux. There is no HTTP word in it.
//!
//! One **shard** is one thread, pinned to one core, with its own ring (or epoll set), timers, tasks,
//! streams and inbox. Nothing of a shard is shared and nothing is locked: values that live on a shard may be
//! `!Send`, and every callback of a shard runs on its thread, one at a time.
//!
//! Other threads hold a [`ShardHandle`] and hand work over with it; that is the only way in.

// Under loom the library is empty: `tests/loom.rs` builds the one file that is model-checked, with loom's atomics.
#![cfg(not(loom))]

mod affinity;
mod buffers;
mod builder;
mod clock;
mod driver;
mod error;
mod file_io;
pub mod fs;
mod handle;
mod inbox;
pub mod net;
mod offload;
mod shard;
mod stages;
mod stats;
mod sync;
mod table;
mod tasks;
pub mod testing;
mod thread_times;
pub mod time;
mod timers;
mod watchdog;

pub use buffers::Lease;
pub use builder::{Builder, ShardEnd, ShardFailure, Shards};
pub use driver::{DriverChoice, DriverKind, ProbeReport, probe};
pub use error::{Error, Result};
pub use file_io::{File, ReadAt};
pub use handle::{DeliveryError, ShardHandle, ShardId, Submitted, Undelivered};
pub use shard::{Shard, Stopped};
pub use stats::ShardStats;
pub use table::{Key, Table};
pub use tasks::{JoinError, JoinHandle};
pub use timers::TimerEvents;
