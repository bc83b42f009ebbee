//! The one latency histogram of the house: HdrHistogram with fixed bounds, in nanoseconds, three significant
//! digits, one hour at most. The server's metrics and the load tool both record into it, so their figures
//! compare. It allocates once, when made; it asks no clock and knows no route.

use std::{io, time::Duration};

use hdrhistogram::Histogram;

/// Significant decimal digits kept: a value read back is within 0.1 % of the value recorded.
pub const SIGNIFICANT_DIGITS: u8 = 3;
/// The longest latency told apart; longer ones are recorded as this.
pub const HIGHEST: Duration = Duration::from_secs(3_600);

/// Latencies, counted. About 270 KiB, whatever is recorded.
#[derive(Debug, Clone)]
pub struct LatencyHistogram {
    counts: Histogram<u64>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self { counts: empty(SIGNIFICANT_DIGITS) }
    }

    /// Counts one latency. Values above [`HIGHEST`] count as [`HIGHEST`].
    pub fn record(&mut self, latency: Duration) {
        self.counts.saturating_record(nanoseconds(latency));
    }

    /// Counts `times` equal latencies.
    pub fn record_n(&mut self, latency: Duration, times: u64) {
        self.counts.saturating_record_n(nanoseconds(latency), times);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        // Both sides have the bounds of `empty`, so nothing can fall outside of them.
        self.counts.add(&other.counts).expect("histograms of equal bounds");
    }

    /// Forgets all counts, keeps the memory.
    pub fn clear(&mut self) {
        if !self.counts.is_empty() {
            self.counts.reset();
        }
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The latency that the part `quantile` (0 to 1) of all recorded ones did not exceed; zero when empty.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.counts.value_at_quantile(quantile))
    }

    /// The shortest recorded latency; zero when empty.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(if self.is_empty() { 0 } else { self.counts.min() })
    }

    /// The longest recorded latency; zero when empty.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.counts.max())
    }

    /// The mean; zero when empty.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.counts.mean() as u64)
    }

    /// The standard deviation; zero when empty.
    pub fn standard_deviation(&self) -> Duration {
        Duration::from_nanos(if self.is_empty() { 0 } else { self.counts.stdev() as u64 })
    }

    /// How many latencies were at most `bounds[i]`, for ascending bounds: the buckets of a Prometheus histogram.
    pub fn cumulative(&self, bounds: &[Duration]) -> Vec<u64> {
        bounds.iter().map(|bound| self.counts.count_between(0, nanoseconds(*bound))).collect()
    }

    /// Each recorded value in nanoseconds with its count, ascending.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The histogram underneath, for the serializers of `hdrhistogram`. Its unit is the nanosecond.
    pub fn as_hdr(&self) -> &Histogram<u64> {
        &self.counts
    }

    /// Takes over a histogram read from elsewhere. Its unit must be the nanosecond; its bounds may differ.
    pub fn from_hdr(source: &Histogram<u64>) -> Self {
        let mut own = Self::new();
        for step in source.iter_recorded() {
            own.counts.saturating_record_n(step.value_iterated_to(), step.count_at_value());
        }
        own
    }

    /// Writes the percentile spectrum in the text form of the Java HdrHistogram (`.hgrm`), values in
    /// milliseconds, which the public HdrHistogram plotter reads.
    ///
    /// # Errors
    /// What `out` answers.
    pub fn write_spectrum(&self, out: &mut impl io::Write) -> io::Result<()> {
        const STEPS_PER_HALF_DISTANCE: u32 = 5;
        let counts = &self.counts;
        writeln!(
            out,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut below = 0;
        for step in counts.iter_quantiles(STEPS_PER_HALF_DISTANCE) {
            below += step.count_since_last_iteration();
            let (value, quantile) = (milliseconds(step.value_iterated_to()), step.quantile_iterated_to());
            if quantile < 1.0 {
                let inverse = 1.0 / (1.0 - quantile);
                writeln!(out, "{value:>12.3} {quantile:>14.12} {below:>10} {inverse:>14.2}")?;
            } else {
                writeln!(out, "{value:>12.3} {quantile:>14.12} {below:>10}")?;
            }
        }
        let (mean, deviation) = match self.is_empty() {
            true => (0.0, 0.0),
            false => (counts.mean() / 1e6, counts.stdev() / 1e6),
        };
        writeln!(out, "#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]")?;
        let max = milliseconds(counts.max());
        writeln!(out, "#[Max     = {max:>12.3}, Total count    = {:>12}]", counts.len())?;
        // SubBuckets is 2^(1 + ceil(log2(10^digits))), the size HdrHistogram derives from the digits.
        writeln!(out, "#[Buckets = {:>12}, SubBuckets     = {:>12}]", counts.buckets(), 2_048)
    }
}

/// An empty histogram of the house's range with `digits` significant digits and counters of any width.
pub fn empty<Count: hdrhistogram::Counter>(digits: u8) -> Histogram<Count> {
    // Fails only for bounds the wrong way round or more than five digits.
    Histogram::new_with_bounds(1, nanoseconds(HIGHEST), digits).expect("constant bounds are in order")
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut histogram = LatencyHistogram::new();
        (1..=10_000).for_each(|n| histogram.record(Duration::from_micros(n)));
        for (quantile, micros) in [(0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let seen = histogram.quantile(quantile).as_secs_f64() * 1e6;
            assert!((seen / micros - 1.0).abs() < 0.001, "{quantile}: {seen} for {micros}");
        }
        assert_eq!(histogram.count(), 10_000);
    }

    #[test]
    fn a_value_above_the_highest_saturates() {
        let mut histogram = LatencyHistogram::new();
        histogram.record(HIGHEST * 4);
        assert_eq!(histogram.count(), 1);
        assert!(histogram.max() >= HIGHEST && histogram.max() < HIGHEST * 2);
    }

    #[test]
    fn an_empty_one_answers_zero_everywhere() {
        let histogram = LatencyHistogram::new();
        let zero = Duration::ZERO;
        assert_eq!([histogram.min(), histogram.max(), histogram.mean(), histogram.quantile(0.99)], [zero; 4]);
        let mut text = Vec::new();
        histogram.write_spectrum(&mut text).expect("a Vec takes all");
        assert!(!String::from_utf8(text).expect("text").contains("NaN"));
    }

    #[test]
    fn cumulative_counts_rise_to_the_total() {
        let mut histogram = LatencyHistogram::new();
        (1..=100).for_each(|n| histogram.record(Duration::from_millis(n)));
        let bounds = [10, 50, 200].map(Duration::from_millis);
        assert_eq!(histogram.cumulative(&bounds), [10, 50, 100]);
    }

    #[test]
    fn another_layout_is_taken_over_with_its_counts() {
        let mut foreign = Histogram::<u64>::new_with_bounds(1_000, 60_000_000_000, 2).expect("bounds");
        foreign.record_n(5_000_000, 7).expect("in range");
        let own = LatencyHistogram::from_hdr(&foreign);
        assert_eq!(own.count(), 7);
        let seen = own.max().as_secs_f64();
        assert!((seen / 0.005 - 1.0).abs() < 0.01, "{seen}");
    }
}
