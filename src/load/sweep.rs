//! Which rates to try, one after the other: a fixed ramp, or the search for the highest rate that keeps a latency
//! goal. Sans-IO: outcomes in, the next rate out. Neighbours: `client` runs a step, `report` draws the curve.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Steps of one search or ramp at most.
pub const STEPS_MAX: u32 = 40;
/// Factor between steps while the goal is kept.
const GROWTH: f64 = 1.5;
/// The search ends when the lowest rate that broke the goal is within this of the highest that kept it.
const NEAR_ENOUGH: f64 = 1.05;
/// A step that sent or answered less than this part of the offered rate did not carry it.
const CARRIED_SHARE_MIN: f64 = 0.97;
/// A step with more failures than this broke, however fast the rest was.
const ERROR_SHARE_MAX: f64 = 0.01;

/// A latency to stay below, for example `p99<5ms`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// 0 to 1.
    pub quantile: f64,
    /// The response time that it may reach.
    pub limit: Duration,
}

impl Goal {
    /// Reads `p99<5ms` (`=` and `<=` mean the same).
    ///
    /// # Errors
    /// One line saying how a goal is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a latency goal; write for example p99<5ms");
        let at = text.find(['<', '=']).ok_or_else(wrong)?;
        let quantile = units::parse_quantile(text[..at].trim()).ok_or_else(wrong)?;
        let limit = units::parse_duration(text[at..].trim_start_matches(['<', '=']).trim())?;
        Ok(Self { quantile, limit })
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} < {}", units::quantile_name(self.quantile), units::duration(self.limit))
    }
}

/// A ramp: `from:to:steps`, for example `1k:20k:10`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// Rate of the first step.
    pub from: f64,
    /// Rate of the last step.
    pub to: f64,
    /// How many steps, at least 2.
    pub steps: u32,
}

impl Ramp {
    /// Reads `from:to:steps`.
    ///
    /// # Errors
    /// One line saying how a ramp is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a ramp; write for example 1k:20k:10 (from, to, steps)");
        let parts: Vec<&str> = text.split(':').collect();
        let [from, to, steps] = parts[..] else { return Err(wrong()) };
        let steps = steps.parse().map_err(|_| wrong())?;
        if !(2..=STEPS_MAX).contains(&steps) {
            return Err(format!("a ramp has 2 to {STEPS_MAX} steps"));
        }
        Ok(Self { from: units::parse_rate(from)?, to: units::parse_rate(to)?, steps })
    }
}

/// One point of the curve of latency against offered load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Requests per second offered.
    pub rate: f64,
    /// Answers per second that came.
    pub achieved: f64,
    /// Response times in nanoseconds: p50, p90, p99, p99.9, max.
    pub latency_ns: [u64; 5],
    /// The response time at the goal's percentile, in nanoseconds.
    pub goal_ns: u64,
    /// Share of requests that failed.
    pub error_share: f64,
    /// Whether the generator kept up.
    pub valid: bool,
    /// Whether the goal was kept.
    pub kept: bool,
}

impl SweepPoint {
    /// Judges the point by `goal`; without one, it is kept when the load was carried.
    pub fn judged(mut self, goal: Option<Goal>) -> Self {
        let fast = goal.is_none_or(|goal| u128::from(self.goal_ns) <= goal.limit.as_nanos());
        let carried = self.achieved >= CARRIED_SHARE_MIN * self.rate;
        self.kept = fast && carried && self.error_share <= ERROR_SHARE_MAX && self.valid;
        self
    }
}

/// The order of steps.
#[derive(Debug, Clone)]
pub struct Sweep {
    order: Order,
    points: Vec<SweepPoint>,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Ramp(Ramp),
    Search { start: f64, goal: Goal },
}

impl Sweep {
    /// All steps of a ramp, whatever becomes of them.
    pub fn ramp(ramp: Ramp) -> Self {
        Self { order: Order::Ramp(ramp), points: Vec::new() }
    }

    /// Grows from `start` until the goal breaks, then closes in on the highest rate that keeps it.
    pub fn search(start: f64, goal: Goal) -> Self {
        Self { order: Order::Search { start, goal }, points: Vec::new() }
    }

    /// The goal of a search.
    pub fn goal(&self) -> Option<Goal> {
        match self.order {
            Order::Search { goal, .. } => Some(goal),
            Order::Ramp(_) => None,
        }
    }

    /// The rate to try next; none when the curve is complete.
    pub fn next_rate(&self) -> Option<f64> {
        let done = self.points.len() as u32;
        match self.order {
            Order::Ramp(ramp) if done < ramp.steps => {
                Some(ramp.from + (ramp.to - ramp.from) * f64::from(done) / f64::from(ramp.steps - 1))
            }
            Order::Search { start, .. } if done < STEPS_MAX => self.next_of_search(start),
            _ => None,
        }
    }

    /// Takes the outcome of a step.
    pub fn record(&mut self, point: SweepPoint) {
        let goal = self.goal();
        self.points.push(point.judged(goal));
    }

    /// The highest rate that was kept below every rate that was not.
    pub fn best(&self) -> Option<f64> {
        let broken = self.lowest_broken().unwrap_or(f64::INFINITY);
        self.points
            .iter()
            .filter(|point| point.kept && point.rate < broken)
            .map(|point| point.rate)
            .reduce(f64::max)
    }

    /// All points, in ascending order of rate.
    pub fn into_points(self) -> Vec<SweepPoint> {
        let mut points = self.points;
        points.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        points
    }

    fn lowest_broken(&self) -> Option<f64> {
        self.points.iter().filter(|point| !point.kept).map(|point| point.rate).reduce(f64::min)
    }

    fn next_of_search(&self, start: f64) -> Option<f64> {
        match (self.best(), self.lowest_broken()) {
            (None, None) => Some(start),
            (Some(best), None) => Some((best * GROWTH).min(1e9)).filter(|next| *next > best),
            (Some(best), Some(broken)) if broken / best > NEAR_ENOUGH => Some((best * broken).sqrt()),
            (Some(_), Some(_)) => None,
            // The first step broke already: look below it, down to a hundredth.
            (None, Some(broken)) => Some(broken / 2.0).filter(|next| *next >= (start / 100.0).max(1.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue: latency rises without bound as the rate nears the capacity.
    fn point(rate: f64, capacity: f64) -> SweepPoint {
        let load = (rate / capacity).min(0.999);
        let latency = (100_000.0 / (1.0 - load)) as u64;
        SweepPoint {
            rate,
            achieved: rate.min(capacity),
            latency_ns: [latency; 5],
            goal_ns: latency,
            error_share: 0.0,
            valid: true,
            kept: false,
        }
    }

    fn drive(mut sweep: Sweep, capacity: f64) -> Sweep {
        while let Some(rate) = sweep.next_rate() {
            sweep.record(point(rate, capacity));
        }
        sweep
    }

    #[test]
    fn the_search_finds_the_rate_within_its_precision() {
        let goal = Goal::parse("p99<1ms").expect("a goal");
        for start in [1_000.0, 90_000.0] {
            // 0.1 ms / (1 - load) is 1 ms at 90 % of the capacity.
            let best = drive(Sweep::search(start, goal), 50_000.0).best().expect("some rate keeps it");
            assert!((best / 45_000.0 - 1.0).abs() < 0.05, "{best}");
        }
    }

    #[test]
    fn a_goal_out_of_reach_ends_the_search() {
        let goal = Goal::parse("p99<1us").expect("a goal");
        let sweep = drive(Sweep::search(1_000.0, goal), 50_000.0);
        assert_eq!(sweep.best(), None);
        assert!(sweep.points.len() < 10);
    }

    #[test]
    fn a_goal_always_kept_ends_at_the_bound() {
        let mut sweep = Sweep::search(1e6, Goal::parse("p99<1h").expect("a goal"));
        while let Some(rate) = sweep.next_rate() {
            sweep.record(point(rate, f64::INFINITY));
        }
        assert_eq!(sweep.best(), Some(1e9));
        assert!(sweep.into_points().len() <= STEPS_MAX as usize);
    }

    #[test]
    fn an_invalid_generator_and_failures_break_a_step() {
        let base = || point(1_000.0, 50_000.0);
        assert!(base().judged(None).kept);
        assert!(!SweepPoint { valid: false, ..base() }.judged(None).kept);
        assert!(!SweepPoint { error_share: 0.02, ..base() }.judged(None).kept);
        assert!(!SweepPoint { achieved: 900.0, ..base() }.judged(None).kept);
    }

    #[test]
    fn a_ramp_runs_all_its_steps_in_order() {
        let ramp = Ramp::parse("1k:2k:5").expect("a ramp");
        let points = drive(Sweep::ramp(ramp), 1_100.0).into_points();
        let rates: Vec<f64> = points.iter().map(|point| point.rate).collect();
        assert_eq!(rates, [1_000.0, 1_250.0, 1_500.0, 1_750.0, 2_000.0]);
        for wrong in ["1k:2k", "1k:2k:1", "1k:2k:999", "a:b:c"] {
            assert!(Ramp::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn goals_are_read_and_shown() {
        for text in ["p99<5ms", "p99<=5ms", "p99 = 5 ms"] {
            assert_eq!(
                Goal::parse(text).map(|goal| goal.to_string()),
                Ok("p99 < 5.00 ms".to_owned()),
                "{text}"
            );
        }
        assert!(Goal::parse("fast").is_err());
        assert!(Goal::parse("p99<soon").is_err());
    }
}
