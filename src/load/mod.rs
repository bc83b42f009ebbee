//! `shardlet bench`: the load tool. It imports `shards`, `http1::response` and `metrics::histogram`, nothing
//! else of the server.
//!
//! A run goes down this list: `args` (what was typed) → `plan` (what it means) → `requests` (bytes to send) →
//! `schedule` (when) → `client` (sockets) → `record`, `intervals`, `health` (what came back) → `result` →
//! `interval_log` and `report` (files and screens). `compare` and `merge` start from saved results.

pub mod schedule;
pub mod units;
