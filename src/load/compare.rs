//! Is B worse than A, or is that noise? For each figure: the ratio B / A with 95 % bounds from resampling the
//! intervals of the runs, and from the spread of repeated runs where there are some. Deterministic: the same
//! files give the same answer. Neighbours: `interval_log` reads the results, `report` draws them.

use super::{
    intervals::Interval,
    record::Measure,
    report::{charts, html},
    result::RunResult,
    units,
};
use crate::metrics::histogram;

/// Resamplings behind each bound. 400 put the 2.5 % ends at the tenth value from either side.
const RESAMPLES: usize = 400;
const LOW_END: f64 = 0.025;
const HIGH_END: f64 = 0.975;

/// One side of a comparison: a run, or repeated runs of the same thing.
#[derive(Debug)]
pub struct Side {
    /// What it is called in tables.
    pub name: String,
    /// At least one.
    pub runs: Vec<RunResult>,
}

/// What a verdict may rest on.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Percentiles held against each other, as quantiles.
    pub quantiles: Vec<f64>,
    /// How much worse is still accepted, as a share: 0.05 for 5 %.
    pub tolerance: f64,
}

/// One figure of two sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// `p99`, `rate`, `errors`.
    pub figure: String,
    /// The first side's value, with its unit.
    pub base: String,
    /// The other side's value.
    pub other: String,
    /// other / base.
    pub ratio: f64,
    /// The bounds within which the ratio lies.
    pub bounds: (f64, f64),
    /// What that means.
    pub verdict: Verdict,
}

/// What a ratio and its bounds mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Better by more than the tolerance, even at the bound.
    Better,
    /// Worse by more than the tolerance, even at the bound.
    Worse,
    /// Neither can be said.
    Same,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Same => "same",
        }
    }
}

/// Two sides held against each other.
#[derive(Debug)]
pub struct Comparison {
    /// Name of the first side.
    pub base: String,
    /// Name of the other.
    pub other: String,
    /// One row a figure.
    pub rows: Vec<Row>,
    /// Why the comparison itself is in doubt: other load, a generator that did not keep up.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Compares.
    pub fn of(base: &Side, other: &Side, options: &CompareOptions) -> Self {
        let mut rows = latency_rows(base, other, options);
        rows.push(rate_row(base, other, options.tolerance));
        rows.push(error_row(base, other));
        let warnings = warnings(base, other);
        Self { base: base.name.clone(), other: other.name.clone(), rows, warnings }
    }

    /// Whether any figure is worse beyond noise.
    pub fn is_worse(&self) -> bool {
        self.rows.iter().any(|row| row.verdict == Verdict::Worse)
    }

    /// The table as text, at most 80 columns.
    pub fn text(&self) -> String {
        let mut out = format!("A  {}\nB  {}\n\n", self.base, self.other);
        out.push_str(&format!("{:<8}{:>12}{:>12}{:>9}  {:<18}\n", "", "A", "B", "B / A", "95 % bounds"));
        for row in &self.rows {
            let bounds = format!("{:.3} to {:.3}", row.bounds.0, row.bounds.1);
            let Row { figure, base, other, ratio, .. } = row;
            let verdict = row.verdict.name();
            out.push_str(&format!("{figure:<8}{base:>12}{other:>12}{ratio:>9.3}  {bounds:<18}{verdict}\n"));
        }
        for warning in &self.warnings {
            out.push_str(&format!("note: {warning}\n"));
        }
        out
    }

    fn table(&self) -> String {
        let header = ["", "A", "B", "B / A", "95 % bounds", ""].map(str::to_owned);
        let rows: Vec<Vec<String>> = (self.rows.iter())
            .map(|row| {
                let bounds = format!("{:.3} to {:.3}", row.bounds.0, row.bounds.1);
                let ratio = format!("{:.3}", row.ratio);
                let verdict = row.verdict.name().to_owned();
                vec![row.figure.clone(), row.base.clone(), row.other.clone(), ratio, bounds, verdict]
            })
            .collect();
        html::table(&header, &rows)
    }
}

/// The overlay of all sides' percentile spectra.
pub fn overlay(sides: &[Side]) -> charts::Chart {
    let sums: Vec<_> = sides.iter().map(sum_of).collect();
    let series: Vec<_> = sides.iter().zip(&sums).map(|(side, sum)| (side.name.as_str(), sum)).collect();
    charts::spectrum(&series, "response times, counted from when a request was due")
}

/// A page with the tables and the overlay.
pub fn page(sides: &[Side], comparisons: &[Comparison]) -> String {
    let mut body = String::from("<h1>Comparison</h1>");
    for comparison in comparisons {
        let class = if comparison.is_worse() { "bad" } else { "ok" };
        let verdict = if comparison.is_worse() { "worse beyond noise" } else { "not worse beyond noise" };
        let (base, other) = (html::escape(&comparison.base), html::escape(&comparison.other));
        body.push_str(&format!("<p class=\"{class}\">A: {base}<br>B: {other}<br><b>B is {verdict}.</b></p>"));
        body.push_str(&comparison.table());
        for warning in &comparison.warnings {
            body.push_str(&format!("<p class=\"note\">{}</p>", html::escape(warning)));
        }
    }
    body.push_str(&html::figure(overlay(sides)));
    html::around("shardlet bench compare", &body)
}

/// One row a percentile.
fn latency_rows(base: &Side, other: &Side, options: &CompareOptions) -> Vec<Row> {
    let (sum_a, sum_b) = (sum_of(base), sum_of(other));
    let mut random = Random::new();
    let (mut values_a, mut values_b) = (Values::of(base), Values::of(other));
    let mut ratios = vec![Vec::with_capacity(RESAMPLES); options.quantiles.len()];
    for _ in 0..RESAMPLES {
        values_a.resample(base, &mut random);
        values_b.resample(other, &mut random);
        for (quantile, ratios) in options.quantiles.iter().zip(&mut ratios) {
            ratios.push(ratio(values_a.quantile(*quantile), values_b.quantile(*quantile)));
        }
    }
    let row = |(quantile, ratios): (&f64, Vec<f64>)| {
        let (a, b) = (sum_a.quantile(*quantile), sum_b.quantile(*quantile));
        let of_run =
            |run: &RunResult| run.totals.measure(Measure::Response).quantile(*quantile).as_secs_f64();
        let ratio = ratio(a.as_secs_f64(), b.as_secs_f64());
        let bounds = bounds(base, other, ratios, of_run, ratio);
        let verdict = judge(bounds, options.tolerance);
        let figure = units::quantile_name(*quantile);
        Row { figure, base: units::duration(a), other: units::duration(b), ratio, bounds, verdict }
    };
    options.quantiles.iter().zip(ratios).map(row).collect()
}

fn rate_row(base: &Side, other: &Side, tolerance: f64) -> Row {
    let mean = |side: &Side| side.runs.iter().map(RunResult::rate).sum::<f64>() / side.runs.len() as f64;
    let resampled = |side: &Side, random: &mut Random| {
        let (mut answered, mut seconds) = (0, 0.0);
        for (run, row) in resample(side, random) {
            let interval = &side.runs[run].intervals.rows()[row];
            answered += interval.counters.answered;
            seconds += interval.length.as_secs_f64();
        }
        answered as f64 / f64::max(seconds, 1e-9)
    };
    let mut random = Random::new();
    let ratios =
        (0..RESAMPLES).map(|_| ratio(resampled(base, &mut random), resampled(other, &mut random))).collect();
    let (a, b) = (mean(base), mean(other));
    let ratio = ratio(a, b);
    let bounds = bounds(base, other, ratios, RunResult::rate, ratio);
    // More is better here, so the bounds change places.
    let verdict = judge((1.0 / bounds.1.max(1e-9), 1.0 / bounds.0.max(1e-9)), tolerance);
    Row { figure: "rate".to_owned(), base: units::rate(a), other: units::rate(b), ratio, bounds, verdict }
}

/// Failures are counted, not measured: more than chance explains (three standard deviations of a count) is worse.
fn error_row(base: &Side, other: &Side) -> Row {
    let sums = |side: &Side| {
        let counters = side.runs.iter().map(|run| run.totals.counters());
        counters.fold((0, 0), |(errors, all), one| (errors + one.errors_total(), all + one.requests()))
    };
    let ((errors_a, all_a), (errors_b, all_b)) = (sums(base), sums(other));
    let share = |errors: u64, all: u64| errors as f64 / all.max(1) as f64;
    let (a, b) = (share(errors_a, all_a), share(errors_b, all_b));
    let expected = a * all_b as f64;
    let chance = 3.0 * (expected.max(1.0) * (1.0 + all_b as f64 / all_a.max(1) as f64)).sqrt();
    let seen = errors_b as f64;
    let verdict = match () {
        () if seen > expected + chance => Verdict::Worse,
        () if seen < expected - chance => Verdict::Better,
        () => Verdict::Same,
    };
    let ratio = ratio(a, b);
    let per = |count: f64| if expected > 0.0 { (count / expected).max(0.0) } else { ratio };
    let bounds = (per(seen - chance), per(seen + chance));
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    Row { figure: "errors".to_owned(), base: percent(a), other: percent(b), ratio, bounds, verdict }
}

fn warnings(base: &Side, other: &Side) -> Vec<String> {
    let mut warnings = Vec::new();
    for side in [base, other] {
        if side.runs.iter().any(|run| run.health.as_ref().is_some_and(|health| !health.valid)) {
            warnings.push(format!(
                "{}: the generator was the bottleneck, its figures are not the server's",
                side.name
            ));
        }
    }
    let (a, b) = (&base.runs[0].meta, &other.runs[0].meta);
    if a.open_loop != b.open_loop {
        warnings.push("one is an open loop, the other a closed one: not the same question".to_owned());
    }
    if a.rate != b.rate || a.connections != b.connections || a.pipeline != b.pipeline {
        warnings.push("the two were not under the same load (rate, connections, pipeline)".to_owned());
    }
    if [base, other].iter().any(|side| side.runs.iter().all(|run| run.intervals.rows().len() < 5)) {
        warnings
            .push("fewer than 5 intervals on a side: the bounds are weak; run longer or repeat".to_owned());
    }
    warnings
}

/// Bounds of a ratio: 95 % of the resampled ones, widened to every pair of repeated runs and to the ratio itself.
fn bounds(
    base: &Side,
    other: &Side,
    mut resampled: Vec<f64>,
    of_run: impl Fn(&RunResult) -> f64,
    seen: f64,
) -> (f64, f64) {
    resampled.sort_by(f64::total_cmp);
    let at = |share: f64| resampled[(share * (resampled.len() - 1) as f64).round() as usize];
    let (mut low, mut high) = (at(LOW_END).min(seen), at(HIGH_END).max(seen));
    if base.runs.len() > 1 || other.runs.len() > 1 {
        for a in &base.runs {
            for b in &other.runs {
                let pair = ratio(of_run(a), of_run(b));
                (low, high) = (low.min(pair), high.max(pair));
            }
        }
    }
    (low, high)
}

/// As many intervals as the side has, drawn with replacement, as (run, row): first a run, then an interval of it,
/// so that differences between repeated runs count as noise.
fn resample(side: &Side, random: &mut Random) -> Vec<(usize, usize)> {
    let all = side.runs.iter().map(|run| run.intervals.rows().len()).sum::<usize>();
    (0..all)
        .filter_map(|_| {
            let run = random.below(side.runs.len());
            let rows = side.runs[run].intervals.rows().len();
            (rows > 0).then(|| (run, random.below(rows)))
        })
        .collect()
}

/// The response times of a side, laid out so that adding up intervals is adding numbers.
struct Values {
    /// All different values of the side, ascending, in nanoseconds.
    values: Vec<u64>,
    /// For each run and row: which value, how often.
    rows: Vec<Vec<Vec<(usize, u64)>>>,
    /// Counts of the last resampling, by value.
    counts: Vec<u64>,
}

impl Values {
    fn of(side: &Side) -> Self {
        let recorded = |interval: &Interval| -> Vec<(u64, u64)> {
            let steps = interval.response().iter_recorded();
            steps.map(|step| (step.value_iterated_to(), u64::from(step.count_at_value()))).collect()
        };
        let rows: Vec<Vec<Vec<(u64, u64)>>> =
            side.runs.iter().map(|run| run.intervals.rows().iter().map(recorded).collect()).collect();
        let mut values: Vec<u64> = rows.iter().flatten().flatten().map(|(value, _)| *value).collect();
        values.sort_unstable();
        values.dedup();
        // Every value is in the list that was made from them.
        let at = |value: u64| values.partition_point(|other| *other < value);
        let indexed =
            |row: Vec<(u64, u64)>| row.into_iter().map(|(value, count)| (at(value), count)).collect();
        let rows = rows.into_iter().map(|run| run.into_iter().map(indexed).collect()).collect();
        Self { counts: vec![0; values.len()], rows, values }
    }

    fn resample(&mut self, side: &Side, random: &mut Random) {
        self.counts.fill(0);
        for (run, row) in resample(side, random) {
            self.rows[run][row].iter().for_each(|(at, count)| self.counts[*at] += count);
        }
    }

    fn quantile(&self, quantile: f64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let rank = ((quantile * all as f64).ceil() as u64).max(1);
        let mut below = 0;
        let reached = self.counts.iter().position(|count| {
            below += count;
            below >= rank
        });
        reached.map_or(0.0, |at| self.values[at] as f64)
    }
}

fn judge((low, high): (f64, f64), tolerance: f64) -> Verdict {
    match () {
        () if low > 1.0 + tolerance => Verdict::Worse,
        () if high < 1.0 / (1.0 + tolerance) => Verdict::Better,
        () => Verdict::Same,
    }
}

fn ratio(base: f64, other: f64) -> f64 {
    match (base > 0.0, other > 0.0) {
        (true, _) => other / base,
        (false, false) => 1.0,
        (false, true) => f64::INFINITY,
    }
}

fn sum_of(side: &Side) -> histogram::LatencyHistogram {
    let mut sum = histogram::LatencyHistogram::new();
    side.runs.iter().for_each(|run| sum.add(run.totals.measure(Measure::Response)));
    sum
}

/// A fixed sequence (xorshift64*), so that the same files give the same bounds.
struct Random {
    state: u64,
}

impl Random {
    fn new() -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let value = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        (value as usize * bound) >> 32
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::{record::ErrorKind, testing};

    fn options() -> CompareOptions {
        CompareOptions { quantiles: vec![0.5, 0.99], tolerance: 0.05 }
    }

    /// Latencies around `base` µs that waver by `noise` % from second to second, another way for each seed.
    fn side(name: &str, base: u64, noise: u64, seeds: &[u64]) -> Side {
        let run = |seed: &u64| {
            testing::result(300.0, 12, |n| {
                let second = n / 300;
                let waver = (second * 7 + seed * 3) % (noise + 1);
                Duration::from_nanos((base * 1_000 + (n * 31 % 300) * base) * (100 + waver) / 100)
            })
        };
        Side { name: name.to_owned(), runs: seeds.iter().map(run).collect() }
    }

    #[test]
    fn the_same_within_noise_is_not_worse() {
        let comparison = Comparison::of(&side("a", 100, 20, &[1]), &side("b", 100, 20, &[2]), &options());
        assert!(!comparison.is_worse(), "{}", comparison.text());
        assert!(comparison.rows.iter().all(|row| row.bounds.0 <= row.ratio && row.ratio <= row.bounds.1));
    }

    #[test]
    fn a_third_slower_is_worse_and_the_other_way_round_better() {
        let (a, b) = (side("a", 100, 5, &[1]), side("b", 133, 5, &[1]));
        let worse = Comparison::of(&a, &b, &options());
        assert!(worse.is_worse(), "{}", worse.text());
        let p99 = &worse.rows[1];
        assert!((p99.ratio - 1.33).abs() < 0.03, "{p99:?}");
        let better = Comparison::of(&b, &a, &options());
        assert!(!better.is_worse());
        assert_eq!(better.rows[0].verdict, Verdict::Better);
    }

    #[test]
    fn a_difference_within_the_tolerance_is_accepted() {
        let comparison = Comparison::of(
            &side("a", 100, 0, &[1]),
            &side("b", 104, 0, &[1]),
            &CompareOptions { tolerance: 0.10, ..options() },
        );
        assert!(!comparison.is_worse());
    }

    #[test]
    fn repeated_runs_that_differ_widen_the_bounds() {
        let steady = side("b", 110, 0, &[1, 2]);
        let mut base = side("a", 100, 0, &[1]);
        assert!(Comparison::of(&base, &steady, &options()).is_worse());
        base.runs.extend(side("a", 125, 0, &[1]).runs);
        let comparison = Comparison::of(&base, &steady, &options());
        assert!(!comparison.is_worse(), "{}", comparison.text());
    }

    #[test]
    fn failures_beyond_chance_are_worse() {
        let (a, mut b) = (side("a", 100, 5, &[1]), side("b", 100, 5, &[1]));
        b.runs[0].totals.failed_without_ticket(ErrorKind::Reset, 2);
        assert!(!Comparison::of(&a, &b, &options()).is_worse());
        b.runs[0].totals.failed_without_ticket(ErrorKind::Reset, 60);
        assert!(Comparison::of(&a, &b, &options()).is_worse());
    }

    #[test]
    fn another_load_is_said() {
        let (a, mut b) = (side("a", 100, 5, &[1]), side("b", 100, 5, &[1]));
        b.runs[0].meta.connections = 7;
        let comparison = Comparison::of(&a, &b, &options());
        assert!(comparison.text().contains("not under the same load"));
        assert!(comparison.text().lines().all(|line| line.chars().count() <= 80), "{}", comparison.text());
        let page = page(&[a, b], &[comparison]);
        assert!(page.contains("<svg") && !page.contains("NaN"));
    }
}
