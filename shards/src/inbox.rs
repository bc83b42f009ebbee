//! The inbox of a shard.

/// The descriptor that ends a shard's sleep: an eventfd, closed when its last holder is gone.
#[derive(Debug)]
pub(crate) struct WakeFd;
