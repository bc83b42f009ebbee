//! Tests of `framing.rs`.
