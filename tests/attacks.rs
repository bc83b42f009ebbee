//! The slow peers and floods of the table of attacks at a number, in one measuring frame: while the attack runs, an honest
//! client on each shard asks 50 times a second and must be answered; afterwards descriptors, memory, timers and requests
//! are what they were. On both drivers, limits and numbers small.
//!
//! `SHARDLET_ATTACKS=full cargo test --release --test attacks -- --nocapture` runs the numbers and the default limits of
//! the table, and holds the server to the table's latencies, which need a quiet machine.

mod common;

#[path = "attacks/floods.rs"]
mod floods;
#[path = "attacks/frame.rs"]
mod frame;
#[path = "attacks/slow.rs"]
mod slow;
