//! Invariant: a form decoded in one piece, byte by byte or in any pieces gives the same parts, content and verdict; content
//! is no more than the input and holds no boundary, and every part of an accepted form has its end.

#![no_main]

#[path = "../forms.rs"]
mod forms;

libfuzzer_sys::fuzz_target!(|data: &[u8]| forms::multipart(data));
