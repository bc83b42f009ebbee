//! Tests of `parse.rs`.
