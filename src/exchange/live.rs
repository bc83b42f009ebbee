//! What is seen of live exchanges by scanning the slots: ages, parked routes, pending bytes (L-27).

use super::{Exchanges, life::Phase};
use shards::Key;
use std::time::Duration;

/// One live exchange, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveExchange {
    /// Its slot and generation.
    pub key: Key,
    /// Since it began.
    pub age: Duration,
    /// `start_async` was called in this cycle.
    pub is_async: bool,
    /// It waits: no callback runs.
    pub is_parked: bool,
    /// Body bytes that the transport has not taken.
    pub pending_write_bytes: u64,
    /// Body bytes that the application has not taken.
    pub pending_read_bytes: u64,
}

impl Exchanges {
    /// Shows every live exchange to `see`. Costs time for each slot: for metrics, not for requests.
    pub fn scan(&self, mut see: impl FnMut(LiveExchange)) {
        for (key, core) in self.table.borrow().iter() {
            let state = core.state();
            if state.phase == Phase::Vacant {
                continue;
            }
            see(LiveExchange {
                key,
                age: core.age(),
                is_async: state.started_async,
                is_parked: state.is_parked(),
                pending_write_bytes: core.output.borrow().len() as u64,
                pending_read_bytes: core.input.borrow().buffered() as u64,
            });
        }
    }
}
