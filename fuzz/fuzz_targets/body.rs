//! Invariant: content decoded in one piece, byte by byte, or in any pieces is the same, ends at the same byte or is
//! refused for the same reason; consumed bytes never exceed the input, and content never exceeds its limit.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|data: &[u8]| invariants::body(data));
