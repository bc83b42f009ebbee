//! What a run was and what it brought: the one value that files, reports, comparisons and sums speak about.
//! Plain data; who fills it is `client` or `interval_log`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{health::Health, intervals::Intervals, record::Recorder, sweep::SweepPoint};

/// What was asked of the tool, and where.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunMeta {
    /// Version of the tool.
    pub version: String,
    /// What was measured: the URL, or the first of several and how many more.
    pub target: String,
    /// Request method, or `mixed`.
    pub method: String,
    /// True: requests left on a clock. False: a closed loop, which hides the server's pauses.
    pub open_loop: bool,
    /// Requests per second asked for (open loop).
    pub rate: Option<f64>,
    /// Connections over all shards.
    pub connections: u32,
    /// Requests in flight on one connection at most.
    pub pipeline: u32,
    /// Whether connections were used again.
    pub keep_alive: bool,
    /// Generator shards.
    pub shards: u32,
    /// How the generator spoke to the kernel: `uring`, `epoll`.
    pub driver: String,
    /// Warm-up left out of the result, in seconds.
    pub warm_up_s: f64,
    /// Time asked for, in seconds.
    pub time_s: f64,
    /// How long the measured part was, in seconds, if the run was interrupted before its time.
    pub cut_short_s: Option<f64>,
    /// Wall clock at the start of the measured part, in seconds since 1970.
    pub started_unix_s: f64,
    /// Kernel and cores of the generator's machine.
    pub host: String,
    /// A name given with `--label`, or how many results were merged.
    pub label: String,
}

impl RunMeta {
    /// How long the measured part was, in seconds.
    pub fn measured_s(&self) -> f64 {
        self.cut_short_s.unwrap_or(self.time_s)
    }
}

/// A finished run.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// What was asked.
    pub meta: RunMeta,
    /// From the start of the measured part to the last answer.
    pub elapsed: Duration,
    /// Everything counted.
    pub totals: Recorder,
    /// The same over time.
    pub intervals: Intervals,
    /// The generator's verdict on itself; none where a file did not bring one.
    pub health: Option<Health>,
    /// Points of a sweep or ramp, ascending; empty for a single rate.
    pub sweep: Vec<SweepPoint>,
}

impl RunResult {
    /// Answers a second, from the start of the measured part to the last answer.
    pub fn rate(&self) -> f64 {
        let seconds = self.meta.measured_s().max(self.elapsed.as_secs_f64());
        self.totals.counters().answered as f64 / seconds.max(1e-9)
    }

    /// The short name of the result in tables: its label, or its target.
    pub fn name(&self) -> &str {
        match self.meta.label.is_empty() {
            true => &self.meta.target,
            false => &self.meta.label,
        }
    }
}

/// The percentiles that every report and table shows.
pub const SHOWN_QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];
