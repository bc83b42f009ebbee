//! The runtime's handle as the way in: parcels for exchanges travel in the shard's inbox.

use super::{
    async_context::{Content, Parcel},
    table::{Post, Refusal},
};
use shards::{DeliveryError, ShardHandle};
use std::sync::{Arc, Mutex, PoisonError};

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
type Envelope = Arc<Mutex<Option<Parcel>>>;

fn take(envelope: &Envelope) -> Option<Parcel> {
    envelope.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Post for ShardPost {
    fn post(&self, parcel: Parcel) -> Result<(), (Parcel, Refusal)> {
        let is_task = matches!(parcel.0, Content::Task { .. });
        let envelope: Envelope = Arc::new(Mutex::new(Some(parcel)));
        let sent = envelope.clone();
        let open = move |_: &shards::Shard| {
            if let Some(parcel) = take(&sent) {
                parcel.open();
            }
        };
        // Wake-ups are bounded by the exchanges themselves and must not be lost to a full inbox.
        let posted = if is_task { self.handle.execute(open) } else { self.handle.reply(open) };
        let Err(undelivered) = posted else { return Ok(()) };
        let refusal = match undelivered.reason {
            DeliveryError::Full => Refusal::Full,
            DeliveryError::Stopping => Refusal::Stopping,
        };
        match take(&envelope) {
            Some(parcel) => Err((parcel, refusal)),
            None => Ok(()),
        }
    }

    fn is_current(&self) -> bool {
        self.handle.is_current()
    }
}
