//! Where the time of a shard's turns goes, stage by stage: counted with the feature `stages`, logged when the shard ends.
//! Called by the loop in shard.rs alone; without the feature it does nothing. It reads the clock six times a turn, so the
//! figures of a shard with one request a turn are high; those of a loaded one hold.

use crate::clock::Clock;
use std::{cell::Cell, fmt, time::Duration};

/// What a turn consists of, in the order of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    /// Between turns: accounts, and how long the shard may sleep.
    Between,
    /// The driver's turn: submission, the kernel's work in the shard's name, and waiting.
    Enter,
    /// Completions delivered to connections: receive, parse, handler, encode, send.
    Completions,
    /// Task polls.
    Tasks,
    /// Messages of other threads.
    Inbox,
    /// Timers and the alarm.
    Timers,
}

/// Names of the stages, by their number.
const NAMES: [&str; 6] = ["between", "enter", "completions", "tasks", "inbox", "timers"];

/// The time of each stage since the shard's start.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    last: Cell<Duration>,
    spent: [Cell<Duration>; NAMES.len()],
}

impl Stages {
    /// Whether this build counts.
    pub(crate) const COUNTED: bool = cfg!(feature = "stages");

    /// `stage` has just ended: what passed since the last call is its time.
    #[inline]
    pub(crate) fn ended(&self, stage: Stage, clock: &Clock) {
        if Self::COUNTED {
            let now = clock.now();
            let spent = &self.spent[stage as usize];
            spent.set(spent.get() + now.saturating_sub(self.last.replace(now)));
        }
    }
}

impl fmt::Display for Stages {
    /// `enter 1234.5 ms (61.0 %), …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole: Duration = self.spent.iter().map(Cell::get).sum();
        for (i, (name, spent)) in NAMES.iter().zip(&self.spent).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let spent = spent.get().as_secs_f64();
            let share = spent / whole.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0;
            write!(f, "{comma}{name} {:.1} ms ({share:.1} %)", spent * 1e3)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_the_stage_that_ended() {
        let (clock, stages) = (Clock::simulated(), Stages::default());
        for (stage, ms) in [(Stage::Enter, 30), (Stage::Timers, 10), (Stage::Enter, 30)] {
            clock.advance(Duration::from_millis(ms));
            stages.ended(stage, &clock);
        }
        let text = stages.to_string();
        let enter = if Stages::COUNTED { "enter 60.0 ms (85.7 %)" } else { "enter 0.0 ms (0.0 %)" };
        assert!(text.contains(enter), "{text}");
    }
}
