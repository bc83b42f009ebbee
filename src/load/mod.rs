//! `shardlet bench`: the load tool. It imports `shards`, `http1::response` and `metrics::histogram`, nothing
//! else of the server.
//!
//! A run goes down this list: `args` (what was typed) → `plan` (what it means) → `requests` (bytes to send) →
//! `schedule` (when) → `client` (sockets, cut short by `interrupt`) → `record`, `intervals`, `health` (what came back) → `result` →
//! `interval_log` and `report` (files and screens), `scrape` (while it runs). `compare` and `merge` start from saved results.

pub mod args;
pub mod client;
pub mod command;
pub mod compare;
pub mod error;
pub mod health;
pub mod interrupt;
pub mod interval_log;
pub mod intervals;
pub mod merge;
pub mod output;
pub mod plan;
pub mod record;
pub mod report;
pub mod requests;
pub mod result;
pub mod run;
pub mod schedule;
pub mod scrape;
pub mod sweep;
#[cfg(test)]
mod testing;
pub mod threshold;
pub mod units;
