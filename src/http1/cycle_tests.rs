//! Tests of `cycle.rs`.
