//! What foreign threads may see of an exchange: three numbers and a list of cancel hooks.
//!
//! Made when an exchange first gives out a context; a synchronous request has none of it. The shard writes,
//! others read; nobody decides anything by it that is not checked again on the shard (L-5).

use super::core::push_first;
use crate::error::{EndReason, Error, Result};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering},
};

/// Called once, on the owning shard, when the exchange ends.
pub(crate) type CancelHook = Box<dyn FnOnce(EndReason) + Send>;

/// Hooks that may wait for one exchange: work started for a request is bounded like its tasks.
const HOOKS_MAX: usize = 1024;

/// The part of an exchange that is not confined to its shard.
pub(crate) struct Shared {
    /// 0 while the exchange lives, then its `EndReason`.
    ended: AtomicU8,
    /// Cycle number; a context of an earlier cycle is stale (L-6).
    cycle: AtomicU32,
    /// Tasks on their way or in the queue.
    queued: AtomicU32,
    /// Deadline in nanoseconds of the shard's clock; 0 for none.
    deadline: AtomicU64,
    /// A wake-up is on its way to the shard: one is enough.
    waking: AtomicBool,
    /// Mostly there are none.
    #[allow(clippy::box_collection, reason = "a parked request keeps this, and a vector is three words")]
    hooks: Mutex<Option<Box<Vec<CancelHook>>>>,
}

impl Shared {
    pub(crate) fn new(cycle: u32) -> Self {
        Shared {
            ended: AtomicU8::new(0),
            cycle: AtomicU32::new(cycle),
            queued: AtomicU32::new(0),
            deadline: AtomicU64::new(0),
            waking: AtomicBool::new(false),
            hooks: Mutex::default(),
        }
    }

    /// Whether it says nothing that a new one would not say: for its only holder.
    pub(crate) fn is_unused(&mut self) -> bool {
        let hooks = self.hooks.get_mut().unwrap_or_else(PoisonError::into_inner);
        hooks.is_none() && self.ended().is_none() && self.queued() == 0
    }

    /// True for the caller who is to send the wake-up.
    pub(crate) fn claim_wake(&self) -> bool {
        !self.waking.swap(true, Ordering::AcqRel)
    }

    /// On the shard, before the future is polled: wake-ups from now on need another message.
    pub(crate) fn clear_wake(&self) {
        self.waking.store(false, Ordering::Release);
    }

    /// How the exchange ended, if it has.
    pub(crate) fn ended(&self) -> Option<EndReason> {
        let number = self.ended.load(Ordering::Acquire);
        EndReason::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// On the shard: no more tasks; runs the cancel hooks.
    pub(crate) fn end(&self, reason: EndReason) {
        self.ended.store(reason as u8, Ordering::Release);
        let hooks = std::mem::take(&mut *self.hooks.lock().unwrap_or_else(PoisonError::into_inner));
        for hook in hooks.into_iter().flat_map(|hooks| *hooks) {
            hook(reason);
        }
    }

    /// Adds a hook; runs it here if the exchange has ended already.
    pub(crate) fn on_end(&self, hook: CancelHook) -> Result<()> {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        match self.ended() {
            None if hooks.as_ref().is_some_and(|hooks| hooks.len() >= HOOKS_MAX) => {
                // The hook's own destructor runs where nothing is locked.
                drop(hooks);
                return Err(Error::LimitReached { limit: "cancel hooks" });
            }
            None => push_first(hooks.get_or_insert_default(), hook),
            Some(reason) => {
                drop(hooks);
                hook(reason);
            }
        }
        Ok(())
    }

    pub(crate) fn cycle(&self) -> u32 {
        self.cycle.load(Ordering::Acquire)
    }

    pub(crate) fn set_cycle(&self, cycle: u32) {
        self.cycle.store(cycle, Ordering::Release);
    }

    /// Takes one place in the queue, if there is one.
    pub(crate) fn reserve(&self, limit: u32) -> bool {
        let taken = self.queued.fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| {
            (queued < limit).then_some(queued + 1)
        });
        taken.is_ok()
    }

    /// Gives a place back: the task has run, was dropped, or was not delivered.
    pub(crate) fn release(&self) {
        let before = self.queued.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a place was given back twice");
    }

    pub(crate) fn queued(&self) -> u32 {
        self.queued.load(Ordering::Acquire)
    }

    pub(crate) fn set_deadline(&self, nanoseconds: u64) {
        self.deadline.store(nanoseconds, Ordering::Release);
    }

    pub(crate) fn deadline(&self) -> Option<std::time::Duration> {
        match self.deadline.load(Ordering::Acquire) {
            0 => None,
            nanoseconds => Some(std::time::Duration::from_nanos(nanoseconds)),
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("ended", &self.ended()).field("queued", &self.queued()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn hooks_are_bounded_until_the_end_and_run_once() {
        let (shared, ran) = (Shared::new(0), Arc::new(AtomicU32::new(0)));
        let add = || {
            let ran = ran.clone();
            shared.on_end(Box::new(move |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            }))
        };
        for _ in 0..HOOKS_MAX {
            add().unwrap();
        }
        assert!(matches!(add(), Err(Error::LimitReached { limit: "cancel hooks" })));
        shared.end(EndReason::Completed);
        assert_eq!(ran.load(Ordering::Relaxed) as usize, HOOKS_MAX);
        add().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed) as usize, HOOKS_MAX + 1);
    }
}
