//! The tasks of a shard: futures that may be `!Send`, polled and dropped on their shard's thread only.
//!
//! Neighbours: `shard.rs` runs the queue once a turn; `inbox` carries wakes from other threads. Correctness of
//! a request never depends on a task being polled: this is the comfortable face, not the foundation.
//!
//! # Who may touch what, when
//!
//! A task is in two halves, and the halves know each other by name only, so that no `unsafe` is needed:
//!
//! | half | where | who |
//! |---|---|---|
//! | the future, its place in the queue, the result | [`queue`] and [`join`], plain cells | the shard's thread |
//! | the [`waker`]: (queue, key), a way into the inbox, one "a wake is under way" flag | an `Arc` | any thread |
//!
//! A waker that is used finds out whether this thread has its queue, in a thread-local list that has one entry
//! (under simulation, where several shards share a thread, a few). If so, the wake is an index, a compare and
//! a push in plain memory: no atomic operation. If not, it posts one reply message to the inbox, unless one is
//! already under way, and the message does the same on the shard's thread. Either way the key carries
//! a generation: a wake that comes after the task's end finds nothing, and one that comes after the shard's end is
//! refused by its inbox.
//!
//! # Order
//!
//! Ready tasks run first in, first out. A task that wakes itself while it is polled runs again in the next
//! [`TaskQueue::run`], after the shard has looked at its completions.

mod join;
mod queue;
mod waker;

pub(crate) use join::panic_message;
pub use join::{JoinError, JoinHandle};
pub(crate) use queue::TaskQueue;

#[cfg(test)]
mod tests;
