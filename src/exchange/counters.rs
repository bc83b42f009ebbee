//! The life-cycle counters of one shard (L-27): plain integers, merged when somebody reads them.

use crate::error::EndReason;
use std::{
    cell::RefCell,
    ops::{AddAssign, SubAssign},
};

/// A copy of a shard's counters. Always: sum of `ends` + `live` = `started`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Exchanges begun.
    pub started: u64,
    /// Exchanges that have not made their terminal transition.
    pub live: u64,
    /// Ends by reason, in the order of [`EndReason::ALL`].
    pub ends: [u64; 14],
    /// Attempts to end an exchange whose end was decided (L-11).
    pub double_terminal_suppressed: u64,
    /// Tasks dropped on their shard because their exchange or cycle was over (L-5).
    pub stale_tasks_dropped: u64,
    /// Timers that found their exchange over.
    pub stale_timers: u64,
    /// Callbacks that run now outside a parked exchange: exchanges live and not asynchronous.
    pub sync_active: u64,
    /// Exchanges live and asynchronous.
    pub async_active: u64,
    /// Tasks of executors that run now.
    pub executor_active: u64,
    /// Tasks that wait on this shard.
    pub executor_queued: u64,
    /// The most that ever waited.
    pub executor_high_water: u64,
    /// Tasks refused by a bound, as far as the shard has seen it.
    pub executor_rejected: u64,
    /// Interim answers asked for.
    pub continues_sent: u64,
    /// Requests with `Expect: 100-continue` answered without it.
    pub continues_refused: u64,
    /// `send_continue` calls that had nothing to do (L-17).
    pub continues_ignored: u64,
    /// Callbacks that panicked (L-14).
    pub panics: u64,
    /// Exchanges cut off by the slow-client policy.
    pub slow_client_cuts: u64,
    /// Messages dropped by the slow-client policy.
    pub messages_dropped: u64,
    /// Subscriptions that a topic refused because it had enough of them on this shard.
    pub subscriptions_refused: u64,
    /// Sleeps refused because the exchange had enough of them.
    pub sleeps_refused: u64,
    /// Callbacks run.
    pub callbacks: u64,
}

impl Snapshot {
    /// How many ended with this reason.
    pub fn ended(&self, reason: EndReason) -> u64 {
        self.ends[reason.index()]
    }

    /// All ends.
    pub fn ended_total(&self) -> u64 {
        self.ends.iter().sum()
    }

    /// Adds another shard's figures.
    pub fn merge(&mut self, other: &Snapshot) {
        self.started += other.started;
        self.live += other.live;
        for (mine, theirs) in self.ends.iter_mut().zip(other.ends) {
            *mine += theirs;
        }
        self.double_terminal_suppressed += other.double_terminal_suppressed;
        self.stale_tasks_dropped += other.stale_tasks_dropped;
        self.stale_timers += other.stale_timers;
        self.sync_active += other.sync_active;
        self.async_active += other.async_active;
        self.executor_active += other.executor_active;
        self.executor_queued += other.executor_queued;
        self.executor_high_water = self.executor_high_water.max(other.executor_high_water);
        self.executor_rejected += other.executor_rejected;
        self.continues_sent += other.continues_sent;
        self.continues_refused += other.continues_refused;
        self.continues_ignored += other.continues_ignored;
        self.panics += other.panics;
        self.slow_client_cuts += other.slow_client_cuts;
        self.messages_dropped += other.messages_dropped;
        self.subscriptions_refused += other.subscriptions_refused;
        self.sleeps_refused += other.sleeps_refused;
        self.callbacks += other.callbacks;
    }
}

/// The counters where they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    cell: RefCell<Snapshot>,
}

impl Counters {
    /// Changes the counters.
    #[inline]
    pub(crate) fn update(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.cell.borrow_mut());
    }

    /// A copy.
    pub(crate) fn snapshot(&self) -> Snapshot {
        *self.cell.borrow()
    }
}

/// Adds one.
#[inline]
pub(crate) fn up<N: AddAssign + From<u8>>(number: &mut N) {
    *number += N::from(1);
}

/// Takes one away; a gauge never goes below zero.
#[inline]
pub(crate) fn down<N: SubAssign + From<u8> + PartialOrd>(number: &mut N) {
    debug_assert!(*number >= N::from(1), "a gauge would go below zero");
    if *number >= N::from(1) {
        *number -= N::from(1);
    }
}
