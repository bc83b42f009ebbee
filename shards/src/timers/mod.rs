//! Timers of a shard.
