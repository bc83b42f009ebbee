//! What waits in the queue, and the pool's gauges and counters. Workers write them, anybody reads them.

use crate::exchange::WorkerJob;
use hdrhistogram::Histogram;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// A job and the moment at which it was handed over.
pub(super) struct Job {
    pub(super) run: WorkerJob,
    pub(super) queued_at: Instant,
}

/// What is on the way to a worker.
pub(super) enum Message {
    Job(Job),
    /// The worker ends when no job is left.
    End,
}

/// The pool's figures at one moment.
#[derive(Debug, Clone)]
pub struct PoolSnapshot {
    /// Threads that live.
    pub threads: usize,
    /// Jobs that run now.
    pub active: usize,
    /// Jobs that wait now.
    pub queued: usize,
    /// Jobs that may wait at once.
    pub queue_max: usize,
    /// The most that ever waited.
    pub high_water: usize,
    /// Jobs that ended, panics included.
    pub completed: u64,
    /// Jobs refused because the queue was full.
    pub rejected_full: u64,
    /// Jobs refused because the pool was closed.
    pub rejected_closed: u64,
    /// Jobs that were queued and dropped unrun when the closing time was over.
    pub dropped: u64,
    /// Jobs that panicked; their threads went on.
    pub panics: u64,
    /// Values that contexts of jobs had no room for, in the whole process.
    pub context_values_refused: u64,
    /// Nanoseconds from `start` to the beginning of the job on its thread.
    pub hand_over: Histogram<u64>,
}

impl PoolSnapshot {
    /// Jobs refused, for whatever reason.
    pub fn rejected(&self) -> u64 {
        self.rejected_full + self.rejected_closed
    }
}

/// The figures as they are kept. The bound of the queue is kept here too: a place is taken before a job is sent.
pub(super) struct Figures {
    pub(super) queue_max: usize,
    pub(super) threads: AtomicUsize,
    /// Jobs that wait, and in the top bit whether the pool is closed.
    gate: AtomicUsize,
    active: AtomicUsize,
    high_water: AtomicUsize,
    completed: AtomicU64,
    rejected_full: AtomicU64,
    rejected_closed: AtomicU64,
    pub(super) dropped: AtomicU64,
    panics: AtomicU64,
    hand_over: Mutex<Histogram<u64>>,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

impl Figures {
    pub(super) fn new(queue_max: usize) -> Self {
        Figures {
            queue_max,
            threads: AtomicUsize::new(0),
            gate: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            high_water: AtomicUsize::new(0),
            completed: AtomicU64::new(0),
            rejected_full: AtomicU64::new(0),
            rejected_closed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            hand_over: Mutex::new(empty_histogram()),
        }
    }

    /// Takes a place in the queue, or counts the refusal.
    pub(super) fn reserve(&self) -> bool {
        let took = self.gate.fetch_update(Ordering::AcqRel, Ordering::Acquire, |gate| {
            let is_open = gate & CLOSED == 0;
            (is_open && gate < self.queue_max).then_some(gate + 1)
        });
        match took {
            Ok(before) => self.high_water.fetch_max(before + 1, Ordering::Relaxed),
            Err(gate) if gate & CLOSED != 0 => {
                self.rejected_closed.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Err(_) => {
                self.rejected_full.fetch_add(1, Ordering::Relaxed);
                return false;
            }
        };
        true
    }

    /// The job has left the queue. Every place that was taken is given back exactly once, by whoever receives it.
    pub(super) fn release(&self) {
        let before = self.gate.fetch_sub(1, Ordering::AcqRel);
        assert!(before & !CLOSED > 0, "a place in the queue was given back twice");
    }

    /// No more places. True for the first who says so.
    pub(super) fn close(&self) -> bool {
        self.gate.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    pub(super) fn queued(&self) -> usize {
        self.gate.load(Ordering::Acquire) & !CLOSED
    }

    /// A job begins on its thread; the guard counts its end, however it comes.
    pub(super) fn begin(&self, waited: Duration) -> Active<'_> {
        self.active.fetch_add(1, Ordering::AcqRel);
        let nanoseconds = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        lock(&self.hand_over).saturating_record(nanoseconds.max(1));
        Active(self)
    }

    pub(super) fn count_panic(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    pub(super) fn snapshot(&self) -> PoolSnapshot {
        PoolSnapshot {
            threads: self.threads.load(Ordering::Acquire),
            active: self.active(),
            queued: self.queued(),
            queue_max: self.queue_max,
            high_water: self.high_water.load(Ordering::Relaxed),
            completed: self.completed.load(Ordering::Acquire),
            rejected_full: self.rejected_full.load(Ordering::Relaxed),
            rejected_closed: self.rejected_closed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            panics: self.panics.load(Ordering::Relaxed),
            context_values_refused: super::context::refused(),
            hand_over: lock(&self.hand_over).clone(),
        }
    }
}

/// One running job.
pub(super) struct Active<'a>(&'a Figures);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
        self.0.completed.fetch_add(1, Ordering::AcqRel);
    }
}

fn lock(histogram: &Mutex<Histogram<u64>>) -> std::sync::MutexGuard<'_, Histogram<u64>> {
    histogram.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One nanosecond to one hour, three significant digits: the bounds of all latency figures of the house.
fn empty_histogram() -> Histogram<u64> {
    const HIGHEST_NANOSECONDS: u64 = 3_600_000_000_000;
    Histogram::new_with_bounds(1, HIGHEST_NANOSECONDS, 3).expect("constant bounds are in order")
}
