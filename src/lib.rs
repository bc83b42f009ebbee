//! shardlet

pub mod load;
pub mod metrics;
pub mod http1;
pub mod limits;
