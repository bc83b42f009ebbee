//! What the epoll and sim drivers keep per operation: its owner, and the completions on their way to it.
//! A slot is free again when its terminal completion has been handed out, so an orphan is noticed to the last
//! moment and a number is never reused under a completion.

use super::{Completion, Outcome, Owner};
use crate::table::{Key, Table};
use std::collections::VecDeque;

/// The operations of a driver; `T` is what it needs to carry one out.
#[derive(Debug)]
pub(super) struct Completions<T> {
    slots: Table<Slot<T>>,
    ready: VecDeque<Ready>,
    /// How many of `ready` may be handed out: those that were there at the end of the last turn.
    shown: usize,
    stale: u64,
}

#[derive(Debug)]
struct Slot<T> {
    owner: Owner,
    /// The terminal completion is queued: there is nothing left to cancel.
    over: bool,
    op: T,
}

/// Bytes that an operation takes in the table.
pub(super) const fn bytes_in_table<T>() -> usize {
    crate::table::bytes_in_table::<Slot<T>>()
}

#[derive(Debug)]
pub(super) struct Ready {
    pub(super) key: Key,
    pub(super) outcome: Outcome,
    pub(super) more: bool,
}

impl<T> Completions<T> {
    pub(super) fn new() -> Self {
        Completions { slots: Table::new(), ready: VecDeque::new(), shown: 0, stale: 0 }
    }

    #[inline]
    pub(super) fn insert(&mut self, op: T, owner: Owner) -> Key {
        self.slots.insert(Slot { owner, over: false, op })
    }

    /// The operation, unless it is over.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key).filter(|slot| !slot.over).map(|slot| &mut slot.op)
    }

    /// Takes the owner away; from now on its completions come out with [`Owner::Nobody`].
    pub(super) fn disown(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.owner = Owner::Nobody;
        }
    }

    /// Nothing will complete after what is being queued now.
    pub(super) fn set_over(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.over = true;
        }
    }

    /// Queues a completion.
    #[inline]
    pub(super) fn push(&mut self, ready: Ready) {
        self.ready.push_back(ready);
    }

    /// Queues a completion ahead of up to `places` completions of other operations.
    pub(super) fn push_ahead(&mut self, ready: Ready, places: usize) {
        let mut at = self.ready.len();
        for _ in 0..places {
            if at == 0 || self.ready[at - 1].key == ready.key {
                break;
            }
            at -= 1;
        }
        self.ready.insert(at, ready);
    }

    /// Lets everything be handed out that is queued so far; a turn does it at its end.
    pub(super) fn show(&mut self) {
        self.shown = self.ready.len();
    }

    /// The next completion; one whose operation's time is over comes out as `Err`, to be released.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Result<Completion, Outcome>> {
        self.shown = self.shown.checked_sub(1)?;
        let Ready { key, outcome, more } = self.ready.pop_front()?;
        let owner = if more {
            self.slots.get(key).map(|slot| slot.owner)
        } else {
            self.slots.remove(key).map(|slot| slot.owner)
        };
        let Some(owner) = owner else {
            self.stale += 1;
            return Some(Err(outcome));
        };
        if owner == Owner::Nobody {
            return Some(Err(outcome));
        }
        Some(Ok(Completion { key, owner, outcome, more }))
    }

    /// Completions that wait to be handed out.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Operations whose terminal completion has not been handed out.
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len()
    }

    /// Completions of operations whose time was over, ever.
    pub(super) fn stale(&self) -> u64 {
        self.stale
    }

    /// The keys of all operations.
    pub(super) fn keys(&self) -> Vec<Key> {
        self.slots.keys()
    }
}
