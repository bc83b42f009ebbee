//! Invariant: whatever the bytes and however they are cut, the parser does not panic; a head that is accepted whole is
//! accepted in any pieces with the same length, and a head that is refused whole is refused in pieces; what is accepted
//! holds no CR or LF but as CRLF, no NUL, and exactly one Host if it is HTTP/1.1.

#![no_main]

#[path = "../invariants.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod invariants;

libfuzzer_sys::fuzz_target!(|data: &[u8]| invariants::head(data));
