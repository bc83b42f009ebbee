//! The ways between exchanges and other threads: parcels come in through the shard's inbox, jobs go out to a pool. The
//! runtime's handle is the way in.

use super::async_context::Parcel;
use shards::{DeliveryError, ShardHandle};

/// Why a parcel was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The shard's inbox is full.
    Full,
    /// The shard is stopping or gone.
    Stopping,
}

/// The way to a shard from any thread. The runtime's handle implements it; tests have their own.
pub trait Post: Send + Sync {
    /// Sends a parcel to be opened on the shard. Wake-ups are at most one for each exchange and must be taken
    /// whenever the shard is not stopping.
    ///
    /// # Errors
    /// The parcel, and why it was not taken.
    fn post(&self, parcel: Parcel) -> Result<(), (Parcel, Refusal)>;

    /// Whether the calling thread is the shard.
    fn is_current(&self) -> bool;
}

/// A job for a worker thread.
pub type WorkerJob = Box<dyn FnOnce() + Send>;

/// The pool behind `start` and `blocking` (L-24).
pub trait Workers: Send + Sync {
    /// Queues a job.
    ///
    /// # Errors
    /// The job, when the queue is full or the pool is closed.
    fn start(&self, job: WorkerJob) -> Result<(), WorkerJob>;
}

/// Posts to a shard of the runtime.
#[derive(Debug, Clone)]
pub struct ShardPost {
    handle: ShardHandle,
}

impl ShardPost {
    /// The way into this shard.
    pub fn new(handle: ShardHandle) -> Self {
        ShardPost { handle }
    }
}

/// A parcel that its sender can take back when the inbox refuses it.
impl Post for ShardPost {
    fn post(&self, parcel: Parcel) -> Result<(), (Parcel, Refusal)> {
        let sent = match parcel.is_wake() {
            // At most one on its way for each exchange: bounded by the exchanges, and must not be lost to a full inbox.
            true => self.handle.send_reply(parcel, |_, parcel| parcel.open()),
            false => self.handle.send(parcel, |_, parcel| parcel.open()),
        };
        sent.map_err(|undelivered| {
            let refusal = match undelivered.reason {
                DeliveryError::Full => Refusal::Full,
                DeliveryError::Stopping => Refusal::Stopping,
            };
            (undelivered.task, refusal)
        })
    }

    fn is_current(&self) -> bool {
        self.handle.is_current()
    }
}
