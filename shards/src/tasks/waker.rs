//! Wakers.
