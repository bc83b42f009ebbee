//! shardlet
