//! Invariant: the client's parser does not panic, consumes no more than it was given, always makes progress or asks for
//! more, and reads the same status, content and verdict however the bytes are cut.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|data: &[u8]| invariants::response(data));
