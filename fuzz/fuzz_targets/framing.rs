//! Invariant: an accepted head has one way to be delimited. No Content-Length beside Transfer-Encoding, at most one line
//! of each, chunked only in HTTP/1.1, and a length that equals the decimal text of its only Content-Length.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|data: &[u8]| invariants::framing(data));
