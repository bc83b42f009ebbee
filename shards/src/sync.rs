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

/// For words that the kernel reads: std's in every build, no model knows the kernel.
pub(crate) mod kernel {
    pub(crate) use std::sync::atomic::{AtomicU16, Ordering};
}
