//! Who is told when a timer of a shard fires.

use crate::{shard::Shard, table::Key};
use std::{rc::Rc, task::Waker};

/// The event face of timers. A timer may fire late, never early.
pub trait TimerEvents {
    /// The timer armed with this token has fired; its key is void from now on.
    fn on_timer(&self, shard: &Shard, token: u64);
}

/// What a wheel entry of a shard holds.
pub(crate) enum TimerTarget {
    /// A future that sleeps.
    Waker(Waker),
    /// Event face.
    Events(Rc<dyn TimerEvents>, u64),
    /// A listener that rests after a shortage.
    Accept(Key),
}
