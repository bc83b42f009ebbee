//! What a turn's work costs and which callback cost most of it. Callbacks are measured with the coarse clock; a
//! name is a word that the callback's owner leaves before it, looked at only when something took long.

use super::Shard;
use crate::{
    clock::Clock,
    stats::ShardStats,
    thread_times::{OwnTimes, ThreadTimes},
};
use std::{cell::Cell, time::Duration};

/// How old the reading of the thread's times may be when a turn begins: what a slow turn is told to have cost is
/// wrong by this at most.
const READING_AGE_MAX: Duration = Duration::from_millis(10);

/// The measurements of a shard.
#[derive(Debug, Default)]
pub(super) struct Measure {
    /// Whose callback runs.
    running: Cell<&'static str>,
    /// Others have run since the clock was read.
    several: Cell<bool>,
    /// The longest callback of this turn.
    in_turn: Cell<Longest>,
    longest: Cell<Longest>,
    times: OwnTimes,
    /// When the thread's times were read, and what they were.
    reading: Cell<Option<(Duration, ThreadTimes)>>,
}

/// A callback that took long.
#[derive(Debug, Clone, Copy, Default)]
struct Longest {
    took: Duration,
    name: &'static str,
    is_one_of_several: bool,
}

impl Longest {
    fn told(self) -> String {
        match (self.name, self.is_one_of_several) {
            ("", _) => String::new(),
            (name, false) => name.to_owned(),
            (name, true) => format!("{name}, or one before it in the same batch"),
        }
    }
}

impl Measure {
    /// For the calling thread, if it lives in real time.
    pub(super) fn new(clock: &Clock) -> Measure {
        let times = match clock {
            Clock::Real(_) => OwnTimes::open(),
            Clock::Simulated { .. } => OwnTimes::default(),
        };
        Measure { times, ..Measure::default() }
    }

    #[inline]
    fn name(&self, name: &'static str) {
        let former = self.running.replace(name);
        if !former.is_empty() && !std::ptr::eq(former, name) {
            self.several.set(true);
        }
    }

    /// What follows is another callback.
    #[inline]
    pub(super) fn begin_callback(&self, name: &'static str) {
        self.running.set(name);
        self.several.set(false);
    }

    #[inline]
    pub(super) fn note(&self, took: Duration, kind: &'static str) {
        if took > self.in_turn.get().took {
            let name = match self.running.get() {
                "" => kind,
                name => name,
            };
            self.in_turn.set(Longest { took, name, is_one_of_several: self.several.get() });
        }
    }

    /// A turn begins: the thread's times are read if they are old.
    #[inline]
    pub(super) fn begin_turn(&self, now: Duration) {
        let is_old = |at: Duration| now.saturating_sub(at) >= READING_AGE_MAX;
        if self.times_are_known() && self.reading.get().is_none_or(|(at, _)| is_old(at)) {
            self.reading.set(self.times.read().map(|times| (now, times)));
        }
    }

    #[inline]
    fn times_are_known(&self) -> bool {
        self.times.is_open()
    }

    /// The longest callback of the turn that ends.
    fn end_turn(&self) -> Longest {
        let in_turn = self.in_turn.get();
        if !in_turn.took.is_zero() {
            self.in_turn.set(Longest::default());
            if in_turn.took > self.longest.get().took {
                self.longest.set(in_turn);
            }
        }
        in_turn
    }

    pub(super) fn tell(&self, stats: &mut ShardStats) {
        let (longest, in_turn) = (self.longest.get(), self.in_turn.get());
        let longest = if in_turn.took > longest.took { in_turn } else { longest };
        stats.longest_callback = longest.took;
        stats.longest_callback_name = longest.told();
    }

    /// Where a slow turn's time went.
    fn where_it_went(&self, took: Duration) -> Option<ThreadTimes> {
        let (_, before) = self.reading.get()?;
        Some(self.times.read()?.since(before, took))
    }
}

impl Shard {
    /// Says whose callback runs from here on: what [`ShardStats::longest_callback_name`] and the line about a slow
    /// turn show. Costs two stores; names that differ only in their place in memory count as different.
    #[inline]
    pub fn name_callback(&self, name: &'static str) {
        self.inner.measure.name(name);
    }

    /// Runs a callback and measures it with the coarse clock.
    #[inline]
    pub(crate) fn timed(&self, kind: &'static str, callback: impl FnOnce()) {
        let began = self.inner.clock.coarse_now();
        self.inner.measure.begin_callback("");
        callback();
        self.inner.measure.note(self.inner.clock.coarse_now().saturating_sub(began), kind);
    }

    pub(super) fn account_turn(&self, began: Duration) {
        let took = self.inner.clock.now().saturating_sub(began);
        let longest = self.inner.measure.end_turn();
        let mut stats = self.inner.stats.borrow_mut();
        stats.turns += 1;
        stats.turn_us.saturating_record((took.as_nanos() / 1000) as u64);
        stats.longest_turn = stats.longest_turn.max(took);
        if took > self.inner.budgets.stall {
            stats.stalls += 1;
            drop(stats);
            self.warn_of_slow_turn(took, longest);
        }
    }

    #[cold]
    fn warn_of_slow_turn(&self, took: Duration, longest: Longest) {
        let went = self.inner.measure.where_it_went(took);
        tracing::warn!(shard = %self.id(), "{}", slow_turn(took, longest, went));
    }
}

/// The line about a slow turn.
fn slow_turn(took: Duration, longest: Longest, went: Option<ThreadTimes>) -> String {
    let mut line = format!("a turn took {} ms", took.as_millis());
    if let Some(went) = went {
        line += &format!(
            " ({} ms on the core, {} ms waiting for it)",
            went.on_core.as_millis(),
            went.waited.as_millis()
        );
    }
    if went.is_some_and(|went| went.is_starved(took)) {
        return line + ": other work has this shard's core";
    }
    // What took less than half of it is not the one to blame: many did.
    let culprit = match longest.told() {
        name if name.is_empty() || longest.took * 2 < took => "callbacks and tasks together".to_owned(),
        name => format!("{name} ({} ms)", longest.took.as_millis()),
    };
    line + &format!(": {culprit} blocked the shard and every connection on it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn milliseconds(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_longest_callback_keeps_its_name() {
        let measure = Measure::default();
        let mut stats = ShardStats::new();
        measure.begin_callback("");
        measure.note(milliseconds(3), "timer");
        measure.begin_callback("");
        measure.name("handler /slow");
        measure.name("handler /slow");
        measure.note(milliseconds(9), "socket");
        measure.begin_callback("");
        measure.note(milliseconds(5), "message");
        measure.tell(&mut stats);
        assert_eq!(stats.longest_callback_name, "handler /slow", "asked within the turn");
        assert_eq!(measure.end_turn().took, milliseconds(9));
        assert!(measure.end_turn().took.is_zero(), "each turn begins anew");
        measure.begin_callback("");
        measure.name("handler /slow");
        measure.name("handler /fast");
        measure.note(milliseconds(10), "socket");
        measure.tell(&mut stats);
        assert_eq!(stats.longest_callback_name, "handler /fast, or one before it in the same batch");
        assert_eq!(stats.longest_callback, milliseconds(10));
    }

    #[test]
    fn a_slow_turn_is_blamed_on_who_was_slow() {
        let longest = |took| Longest { took: milliseconds(took), name: "timer", is_one_of_several: false };
        let went = |on_core, waited| {
            Some(ThreadTimes { on_core: milliseconds(on_core), waited: milliseconds(waited) })
        };
        let told = |longest, went| slow_turn(milliseconds(200), longest, went);
        assert_eq!(
            told(longest(190), went(198, 1)),
            "a turn took 200 ms (198 ms on the core, 1 ms waiting for it): timer (190 ms) blocked the shard and every connection on it"
        );
        assert!(told(longest(190), went(2, 195)).ends_with(": other work has this shard's core"));
        assert!(told(longest(190), went(0, 0)).contains(": timer (190 ms) blocked"), "it slept");
        assert!(told(longest(20), None).contains("a turn took 200 ms: callbacks and tasks together blocked"));
    }
}
