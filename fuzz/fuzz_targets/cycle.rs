//! Invariant: whatever a connection reports, in any order, no request is taken after the last one, a 100 goes out at most
//! once and only to a client that waits, our side is not shut before all is answered, it closes exactly once, and from
//! every state shutdown, answers and time end it. Oracle: a model that only counts.

#![no_main]

#[path = "../operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|data: &[u8]| operations::cycle(data));
