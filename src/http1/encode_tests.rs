//! Tests of `encode.rs`.
