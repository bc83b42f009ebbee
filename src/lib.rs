//! shardlet

pub mod error;
pub mod exchange;
pub mod handlers;
pub mod http1;
pub mod limits;
pub mod load;
pub mod metrics;
pub mod workers;
