//! Two distributions of the life cycle (L-27): how long tasks travel, and how old asynchronous exchanges become.
//! The counters beside it are plain numbers; these are histograms, and are copied only when somebody reads them.

use hdrhistogram::Histogram;
use std::time::Duration;

/// What has been measured on one shard, ever; shards are added up with [`Latencies::merge`].
#[derive(Debug, Clone)]
pub struct Latencies {
    hand_over_us: Histogram<u64>,
    async_age_ms: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let empty = || Histogram::new_with_bounds(1, HIGHEST, 2).expect("constant bounds are in order");
        Latencies { hand_over_us: empty(), async_age_ms: empty() }
    }
}

impl Latencies {
    /// From `execute` on any thread to the start of the task on the shard, in microseconds.
    pub fn hand_over_us(&self) -> &Histogram<u64> {
        &self.hand_over_us
    }

    /// From the start to the end of exchanges that ended asynchronous, in milliseconds.
    pub fn async_age_ms(&self) -> &Histogram<u64> {
        &self.async_age_ms
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &Latencies) {
        self.hand_over_us += &other.hand_over_us;
        self.async_age_ms += &other.async_age_ms;
    }

    pub(crate) fn handed_over(&mut self, after: Duration) {
        self.hand_over_us.saturating_record(u64::try_from(after.as_micros()).unwrap_or(HIGHEST));
    }

    pub(crate) fn async_ended(&mut self, age: Duration) {
        self.async_age_ms.saturating_record(u64::try_from(age.as_millis()).unwrap_or(HIGHEST));
    }
}

/// An hour in microseconds, and far more in milliseconds; what is longer counts as this.
const HIGHEST: u64 = 3_600_000_000;
