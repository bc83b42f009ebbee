//! The runtime's handle as the way in: parcels for exchanges travel in the shard's inbox.

use super::{
    async_context::Parcel,
    table::{Post, Refusal},
};
use shards::{DeliveryError, ShardHandle};

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
