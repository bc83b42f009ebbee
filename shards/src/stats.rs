//! What a shard counts about itself: plain integers on the shard, read through a message or published once a
//! turn for the watchdog. Nothing here is touched by another thread except [`Heartbeat`].

use crate::{
    driver::DriverAccount,
    sync::{AtomicUsize, Ordering},
};
use hdrhistogram::Histogram;
use std::time::Duration;

/// Counters of one shard since its start, as [`crate::Shard::stats`] gives them.
#[derive(Debug, Clone)]
pub struct ShardStats {
    /// Turns of the loop.
    pub turns: u64,
    /// Time a turn's work took (waiting excluded), in microseconds.
    pub turn_us: Histogram<u64>,
    /// The longest turn's work.
    pub longest_turn: Duration,
    /// Turns whose work took longer than the stall limit.
    pub stalls: u64,
    /// Turns that the watchdog saw running for half a second or longer.
    pub watchdog_warnings: u64,
    /// Completions delivered.
    pub completions: u64,
    /// Completions whose owner was gone.
    pub unowned_completions: u64,
    /// Messages run from the inbox.
    pub messages: u64,
    /// Timers fired.
    pub timers_fired: u64,
    /// Task polls.
    pub polls: u64,
    /// Panics caught in callbacks, messages and tasks.
    pub panics: u64,
    /// The longest single callback or message, in steps of the coarse clock (1 to 10 ms); task polls are in
    /// [`ShardStats::longest_turn`] only.
    pub longest_callback: Duration,
    /// Whose it was: what [`crate::Shard::name_callback`] was told, or its kind. Where several of one batch ran
    /// between two readings of the clock it says so.
    pub longest_callback_name: String,
    /// Tasks that are not over.
    pub tasks: usize,
    /// Timers that wait.
    pub timers: usize,
    /// Messages waiting in the inbox.
    pub inbox_queued: usize,
    /// The most messages that were waiting when the shard came to look.
    pub inbox_high_water: usize,
    /// Messages that were not taken (full or stopping).
    pub inbox_rejected: usize,
    /// Times the shard was ready to sleep in the kernel.
    pub sleeps: u64,
    /// Times another thread had to wake it: never more than `sleeps`.
    pub wakes: u64,
    /// Live streams.
    pub streams: usize,
    /// Kernel enters.
    pub enters: u64,
    /// Operations in flight.
    pub operations_in_flight: usize,
    /// Descriptors the shard owns.
    pub descriptors: usize,
    /// Times a receive had to wait for a buffer.
    pub buffer_shortages: u64,
    /// Completions dropped for a stale generation.
    pub stale_completions: u64,
    /// Completion queue overflows.
    pub overflows: u64,
    /// Receive buffers: waiting, with the kernel, held by owners of streams.
    pub buffers: (usize, usize, usize),
}

impl ShardStats {
    pub(crate) fn new() -> Self {
        ShardStats {
            turns: 0,
            turn_us: Histogram::new_with_bounds(1, 60_000_000, 2).expect("constant bounds are valid"),
            longest_turn: Duration::ZERO,
            stalls: 0,
            watchdog_warnings: 0,
            completions: 0,
            unowned_completions: 0,
            messages: 0,
            timers_fired: 0,
            polls: 0,
            panics: 0,
            longest_callback: Duration::ZERO,
            longest_callback_name: String::new(),
            tasks: 0,
            timers: 0,
            inbox_queued: 0,
            inbox_high_water: 0,
            inbox_rejected: 0,
            sleeps: 0,
            wakes: 0,
            streams: 0,
            enters: 0,
            operations_in_flight: 0,
            descriptors: 0,
            buffer_shortages: 0,
            stale_completions: 0,
            overflows: 0,
            buffers: (0, 0, 0),
        }
    }

    /// The counters together with what the driver knows now.
    pub(crate) fn snapshot(&self, driver: &DriverAccount, streams: usize) -> Self {
        let mut stats = self.clone();
        stats.streams = streams;
        stats.enters = driver.enters;
        stats.operations_in_flight = driver.in_flight;
        stats.descriptors = driver.descriptors;
        stats.buffer_shortages = driver.buffer_shortages;
        stats.stale_completions = driver.stale_completions;
        stats.overflows = driver.overflows;
        stats.buffers = (driver.buffers.free, driver.buffers.loaned, driver.buffers.leased);
        stats
    }
}

/// What the watchdog reads: when the running turn began, in milliseconds of the shard's clock plus one; zero
/// while the shard waits for the kernel.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    turn_began: AtomicUsize,
    stuck: AtomicUsize,
    thread: AtomicUsize,
}

impl Heartbeat {
    pub(crate) fn turn_begins(&self, now: Duration) {
        self.turn_began.store(now.as_millis() as usize + 1, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) {
        self.turn_began.store(0, Ordering::Relaxed);
    }

    /// The shard runs on this thread of the process.
    pub(crate) fn runs_on(&self, thread: usize) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// Zero until it is known.
    pub(crate) fn thread(&self) -> usize {
        self.thread.load(Ordering::Relaxed)
    }

    /// The watchdog saw a turn that did not end.
    pub(crate) fn note_stuck(&self) {
        self.stuck.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was, ever.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck.load(Ordering::Relaxed) as u64
    }

    /// Since when the running turn runs, if one does.
    pub(crate) fn running_since(&self) -> Option<Duration> {
        match self.turn_began.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(Duration::from_millis(millis as u64 - 1)),
        }
    }
}
