//! Threads for work that blocks, shared by all shards of a process.

use crate::{
    error::Result,
    inbox::{Rejected, Sender},
};
use std::{io, net::SocketAddr};

/// A bounded queue of jobs and the threads that run them. Share it in an `Arc`; the last holder joins the threads.
#[derive(Debug)]
pub(crate) struct OffloadPool;

impl OffloadPool {
    /// Starts `threads` threads with a queue of at most `queue` jobs.
    pub(crate) fn new(_threads: usize, _queue: usize) -> io::Result<Self> {
        Ok(OffloadPool)
    }
    /// Queues a job; a panic of it is counted and otherwise ignored.
    pub(crate) fn submit<F: FnOnce() + Send + 'static>(
        &self,
        _job: F,
    ) -> std::result::Result<(), Rejected<F>> {
        unimplemented!()
    }
}

/// Runs `work` on the pool and gives its result back to the calling shard, whose inbox `home` is.
pub(crate) async fn offload<T: Send + 'static>(
    _pool: &OffloadPool,
    _home: &Sender,
    _work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    unimplemented!()
}

/// Looks a host up (getaddrinfo(3)) on the pool.
pub(crate) async fn resolve(
    _pool: &OffloadPool,
    _home: &Sender,
    _host: &str,
    _port: u16,
) -> Result<Vec<SocketAddr>> {
    unimplemented!()
}
