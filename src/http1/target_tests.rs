//! Tests of `target.rs`.
