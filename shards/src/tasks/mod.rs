//! Futures of a shard.
