//! Tells whatever an exchange has started that the exchange is over (L-16).

use super::async_context::ContextCore;
use crate::error::{EndReason, Result};
use std::{sync::Arc, time::Duration};

/// Fires once, when the end of the exchange is decided, whatever the reason.
#[derive(Debug, Clone)]
pub struct CancelToken {
    core: Arc<ContextCore>,
}

impl CancelToken {
    pub(crate) fn new(core: Arc<ContextCore>) -> Self {
        CancelToken { core }
    }

    /// Whether the exchange is over.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the exchange is over, if it is.
    pub fn reason(&self) -> Option<EndReason> {
        self.core.shared.ended()
    }

    /// Runs `hook` on the exchange's shard when it ends; at once, here, if it has ended already.
    ///
    /// # Errors
    /// `LimitReached` when 1,024 hooks wait for this exchange; the hook is dropped.
    pub fn on_cancel(&self, hook: impl FnOnce(EndReason) + Send + 'static) -> Result<()> {
        self.core.shared.on_end(Box::new(hook))
    }

    /// When the exchange's timeout will fire, on the shard's clock.
    pub fn deadline(&self) -> Option<Duration> {
        self.core.shared.deadline()
    }
}
