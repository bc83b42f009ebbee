//! The atomics of the crate: std's, or loom's when the inbox is model-checked. No other file names atomics.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicUsize, Ordering},
};
