//! Invariant: an accepted path is decoded exactly once (oracle: the percent-encoding crate), lies beneath the root, shows
//! nothing hidden, holds no separator or control, and every other spelling of it is the same name.

#![no_main]

#[path = "../files.rs"]
#[allow(dead_code, reason = "each target uses one invariant")]
mod files;

libfuzzer_sys::fuzz_target!(|data: &[u8]| files::path(data));
