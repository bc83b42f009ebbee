//! Invariant: the answer's length is that of its pieces, each piece lies inside the file, 206 sends exactly the octets
//! that a plain reading of Range names (oracle), and 304 and 412 are those of RFC 9110 §13.2.2 (oracle); HEAD sends none.

#![no_main]

#[path = "../files.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod files;

libfuzzer_sys::fuzz_target!(|data: &[u8]| files::range(data));
