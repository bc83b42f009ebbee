//! Tests of `response.rs`.
