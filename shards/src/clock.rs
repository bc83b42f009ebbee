//! Time, in the one file that may ask for it. A shard asks once a turn and everybody on it uses that answer;
//! under the simulator time moves only when the test says so.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

/// The shard's clock. Time is counted from the clock's own start and never goes back (CLOCK_MONOTONIC).
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    /// The machine's monotonic clock.
    Real(Start),
    /// Simulated: moved by hand, shared by everybody who holds a clone.
    Simulated { now: Rc<Cell<Duration>> },
}

/// The moment from which real time is counted; the same for all shards of a process, so that their times compare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start(Instant);

impl Start {
    pub(crate) fn new() -> Self {
        Start(Instant::now())
    }

    /// Time since then.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

impl Clock {
    pub(crate) fn simulated() -> Self {
        Clock::Simulated { now: Rc::default() }
    }

    /// Time since the clock's start.
    pub(crate) fn now(&self) -> Duration {
        match self {
            Clock::Real(start) => start.elapsed(),
            Clock::Simulated { now } => now.get(),
        }
    }

    /// A cheap reading for differences: a few nanoseconds to take, as fine as the kernel's tick (1 to 10 ms).
    pub(crate) fn coarse_now(&self) -> Duration {
        match self {
            Clock::Real(_) => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
                // The monotonic clock is never negative.
                Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
            }
            Clock::Simulated { now } => now.get(),
        }
    }

    /// Moves simulated time. Real time moves by itself.
    pub(crate) fn advance(&self, by: Duration) {
        match self {
            Clock::Real(_) => {}
            Clock::Simulated { now } => now.set(now.get() + by),
        }
    }
}
