//! A run over time in bounded memory: one row an interval, and when the rows reach their bound every two
//! neighbours become one, so a run of a minute and one of a week take the same space. Neighbours: `record`
//! fills it, `report` draws it, `compare` resamples it. What goes to an `.hlog` file is never folded.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::record::{Counters, Measure, Recorder};
use crate::metrics::histogram::{self, LatencyHistogram};

/// Rows kept. At 64 rows of two-digit histograms a run's course takes about 1 MiB.
pub const ROWS_MAX: usize = 64;
/// Digits of the response times of a row: within 1 % is more than a picture shows.
const ROW_DIGITS: u8 = 2;

/// Part of a run.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Counted from the start of the run.
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What was counted in it.
    pub counters: Counters,
    response: Histogram<u32>,
}

impl Interval {
    /// The response time that the part `quantile` of the interval's answers did not exceed; zero without answers.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.response.value_at_quantile(quantile))
    }

    /// The longest response time.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.response.max())
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.counters.answered as f64 / self.length.as_secs_f64().max(1e-9)
    }

    /// The response times, two digits.
    pub fn response(&self) -> &Histogram<u32> {
        &self.response
    }

    fn reset(&mut self, start: Duration) {
        self.start = start;
        self.length = Duration::ZERO;
        self.counters = Counters::default();
        self.response.reset();
    }

    fn absorb(&mut self, other: &Self) {
        self.length += other.length;
        self.counters.add(&other.counters);
        self.response.add(&other.response).expect("histograms of equal bounds");
    }

    fn take(&mut self, length: Duration, response: &LatencyHistogram, counters: &Counters) {
        self.length += length;
        self.counters.add(counters);
        for (value, count) in response.recorded() {
            self.response.saturating_record_n(value, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
}

/// The course of a run.
#[derive(Debug, Clone)]
pub struct Intervals {
    /// Rows in use come first; the rest keeps its memory for later.
    rows: Vec<Interval>,
    used: usize,
    /// How many pushes make one row; doubled by each folding.
    pushes_per_row: u32,
    pushes_in_last: u32,
}

impl Default for Intervals {
    fn default() -> Self {
        Self::new()
    }
}

impl Intervals {
    /// No rows yet. All memory is taken and touched here, so that a run does not grow later.
    pub fn new() -> Self {
        let row = || {
            let mut row = Interval {
                start: Duration::ZERO,
                length: Duration::ZERO,
                counters: Counters::default(),
                response: histogram::empty(ROW_DIGITS),
            };
            row.response.reset();
            row
        };
        Self { rows: (0..ROWS_MAX).map(|_| row()).collect(), used: 0, pushes_per_row: 1, pushes_in_last: 0 }
    }

    /// Adds what was counted from `start` on for `length`.
    pub fn push(&mut self, start: Duration, length: Duration, recorder: &Recorder) {
        if self.used == 0 || self.pushes_in_last >= self.pushes_per_row {
            if self.used == ROWS_MAX {
                self.fold();
            }
            // After a folding the last row may be half full, and takes this push.
            if self.used == 0 || self.pushes_in_last >= self.pushes_per_row {
                self.rows[self.used].reset(start);
                self.used += 1;
                self.pushes_in_last = 0;
            }
        }
        self.pushes_in_last += 1;
        self.rows[self.used - 1].take(length, recorder.measure(Measure::Response), recorder.counters());
    }

    /// The rows in order of time.
    pub fn rows(&self) -> &[Interval] {
        &self.rows[..self.used]
    }

    /// Two neighbours become one.
    fn fold(&mut self) {
        for pair in 0..self.used / 2 {
            let (left, right) = self.rows.split_at_mut(2 * pair + 1);
            left[2 * pair].absorb(&right[0]);
            self.rows.swap(pair, 2 * pair);
        }
        self.used /= 2;
        self.pushes_in_last = self.pushes_per_row * 2;
        self.pushes_per_row *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{record::Answer, schedule::Ticket};

    fn one_second(latency_ms: u64, answers: u64) -> Recorder {
        let mut recorder = Recorder::new();
        let ticket = Ticket {
            number: 0,
            connection: 0,
            intended: Duration::ZERO,
            ready: Duration::ZERO,
            measured: true,
        };
        let done = Duration::from_millis(latency_ms);
        let answer = Answer { sent: Duration::ZERO, first_byte: done, done, status: 200, bytes: 10 };
        (0..answers).for_each(|_| recorder.answered(&ticket, &answer));
        recorder
    }

    #[test]
    fn a_run_of_any_length_keeps_its_rows_bounded_and_its_sums_whole() {
        let mut intervals = Intervals::new();
        let second = Duration::from_secs(1);
        for n in 0..1_000u32 {
            intervals.push(second * n, second, &one_second(u64::from(n % 10) + 1, 3));
            assert!(intervals.rows().len() <= ROWS_MAX);
        }
        let rows = intervals.rows();
        assert!(rows.len() > ROWS_MAX / 2 - 2, "{} rows", rows.len());
        assert_eq!(rows.iter().map(|row| row.counters.answered).sum::<u64>(), 3_000);
        assert_eq!(rows.iter().map(|row| row.response.len()).sum::<u64>(), 3_000);
        assert_eq!(rows.iter().map(|row| row.length).sum::<Duration>(), second * 1_000);
        for pair in rows.windows(2) {
            assert_eq!(pair[0].start + pair[0].length, pair[1].start);
        }
    }

    #[test]
    fn a_row_knows_its_rate_and_percentiles() {
        let mut intervals = Intervals::new();
        intervals.push(Duration::ZERO, Duration::from_millis(500), &one_second(8, 100));
        let row = &intervals.rows()[0];
        assert_eq!(row.rate(), 200.0);
        let p99 = row.quantile(0.99).as_secs_f64();
        assert!((p99 / 0.008 - 1.0).abs() < 0.01, "{p99}");
    }
}
