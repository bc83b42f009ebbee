//! shardlet

pub mod load;
pub mod metrics;
