//! Was it the server that was measured, or the generator? Lateness, processor time and the clock's own errors go
//! in; a verdict comes out, with the number to lower. Pure, except for [`ClockQuality::measure`].

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{
    record::{Measure, Recorder},
    schedule::Pace,
    units,
};

/// A generator that sends this late at p99 no longer offers the load it claims.
pub const LATENESS_P99_MAX: Duration = Duration::from_millis(1);
/// Processor share of one generator core above which its own queueing shows in the figures.
pub const CPU_SHARE_MAX: f64 = 0.95;
/// A run that sent less than this part of what was due offered another load than asked for.
pub const OFFERED_SHARE_MIN: f64 = 0.99;

/// What the clock of this machine can tell apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockQuality {
    /// The smallest step seen between two readings that differ, in nanoseconds.
    pub resolution_ns: u64,
    /// What one reading costs, in nanoseconds.
    pub reading_ns: u64,
}

impl ClockQuality {
    /// Reads the clock a few thousand times: well below a millisecond.
    pub fn measure() -> Self {
        const READINGS: u32 = 4_096;
        let start = Instant::now();
        let (mut last, mut smallest) = (start, Duration::MAX);
        for _ in 0..READINGS {
            let now = Instant::now();
            if now > last {
                smallest = smallest.min(now - last);
            }
            last = now;
        }
        let reading_ns = ((last - start) / READINGS).as_nanos() as u64;
        Self {
            resolution_ns: if smallest == Duration::MAX { 0 } else { smallest.as_nanos() as u64 },
            reading_ns,
        }
    }
}

/// What one generator shard says about itself.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ShardEffort {
    /// Processor time of its thread in the measured part. Spinning for a due time counts: it is time in which
    /// the thread could not have done other work.
    pub busy: Duration,
    /// Time in which it could have run and another thread had the core (proc(5), schedstat). Answers that wait for it
    /// then look like a slow server's.
    pub waited: Duration,
    /// How long that part was.
    pub elapsed: Duration,
}

impl ShardEffort {
    /// Share of its core, 0 to 1.
    pub fn share(&self) -> f64 {
        self.busy.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Share of the time in which it ran or wanted to, 0 to 1: at 1 it has never waited for the server.
    pub fn demand(&self) -> f64 {
        (self.busy + self.waited).as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// The generator's own figures, and what they mean for the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Whether the figures speak of the server.
    pub valid: bool,
    /// Why not, one sentence each; empty when valid.
    pub reasons: Vec<String>,
    /// What to change, for example `lower --rate to about 18,000/s`; empty when valid.
    pub advice: String,
    /// The clock.
    pub clock: ClockQuality,
    /// How late the generator sent, in nanoseconds: p50, p99 and max. This is the error of its timer.
    pub lateness_ns: [u64; 3],
    /// Share of a core that each generator shard used, 0 to 1.
    pub cpu_shares: Vec<f64>,
    /// Processor time of the generator for one request, in nanoseconds.
    pub cpu_per_request_ns: u64,
    /// Requests sent over requests due, 0 to 1 (1 in a closed loop).
    pub offered_share: f64,
}

/// What the verdict is made of.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// Who set the pace.
    pub pace: Pace,
    /// Everything counted in the measured part.
    pub recorder: &'a Recorder,
    /// Each generator shard's effort.
    pub efforts: &'a [ShardEffort],
    /// Requests that were due in the measured part.
    pub due: u64,
    /// Whether the answers to them came to an end only after the measured part: more was due than was carried.
    pub behind: bool,
    /// The clock's quality.
    pub clock: ClockQuality,
}

impl Health {
    /// Judges a run.
    pub fn judge(evidence: &Evidence<'_>) -> Self {
        let lateness = evidence.recorder.measure(Measure::Lateness);
        let cpu_shares: Vec<f64> = evidence.efforts.iter().map(ShardEffort::share).collect();
        let busy: Duration = evidence.efforts.iter().map(|effort| effort.busy).sum();
        let offered_share = match evidence.pace {
            Pace::Open { .. } => lateness.count() as f64 / evidence.due.max(1) as f64,
            Pace::Closed => 1.0,
        };
        let mut health = Self {
            valid: true,
            reasons: Vec::new(),
            advice: String::new(),
            clock: evidence.clock,
            lateness_ns: [0.5, 0.99, 1.0].map(|quantile| lateness.quantile(quantile).as_nanos() as u64),
            cpu_per_request_ns: (busy.as_nanos() / u128::from(lateness.count().max(1))) as u64,
            cpu_shares,
            offered_share,
        };
        if let Pace::Open { rate } = evidence.pace {
            health.judge_open_loop(rate, lateness.quantile(0.99));
            if health.valid && evidence.behind {
                health.judge_demand(rate, evidence.efforts);
            }
        }
        health
    }

    /// In a closed loop a busy generator lowers the rate, which is the result, not its error; only an open loop
    /// makes a claim that a slow generator breaks.
    fn judge_open_loop(&mut self, rate: f64, lateness_p99: Duration) {
        let hottest = self.cpu_shares.iter().copied().fold(0.0, f64::max);
        let late = lateness_p99 > LATENESS_P99_MAX;
        if late {
            let (seen, limit) = (units::duration(lateness_p99), units::duration(LATENESS_P99_MAX));
            self.reasons.push(format!("sent {seen} late at p99 (limit {limit}) with a connection free"));
        }
        // A busy core alone is no harm while requests leave on time: a generator may spin for precision.
        if late && hottest > CPU_SHARE_MAX {
            self.reasons.push(format!("a generator core was {:.0} % busy", hottest * 100.0));
        }
        if late || self.offered_share < OFFERED_SHARE_MIN {
            self.advise(rate, hottest, late);
        }
    }

    /// Requests that wait for a connection are the server's fault only if the generator was ready to read its answers.
    fn judge_demand(&mut self, rate: f64, efforts: &[ShardEffort]) {
        let highest = efforts.iter().map(ShardEffort::demand).fold(0.0, f64::max);
        if highest <= CPU_SHARE_MAX {
            return;
        }
        let hottest = self.cpu_shares.iter().copied().fold(0.0, f64::max);
        let percent = [highest, hottest].map(|share| (share * 100.0).min(100.0));
        self.reasons.push(format!(
            "fell behind while its thread ran or waited for a core {:.0} % of the time",
            percent[0]
        ));
        self.advice = match hottest > CPU_SHARE_MAX {
            true => format!("lower --rate below {}, or give it more cores (--shards)", round_rate(rate)),
            false => format!("keep other work off its cores: it had one for {:.0} % of the time", percent[1]),
        };
        self.valid = false;
    }

    fn advise(&mut self, rate: f64, hottest: f64, late: bool) {
        if !late {
            // Due, not sent, and never late with a free connection: all connections were busy or down.
            let percent = self.offered_share * 100.0;
            self.reasons
                .push(format!("only {percent:.1} % of the requests due were sent: no connection free"));
            self.advice = format!(
                "lower --rate to about {}, or raise --connections",
                round_rate(rate * self.offered_share)
            );
            self.valid = false;
            return;
        }
        let headroom = if hottest > CPU_SHARE_MAX { 0.8 * CPU_SHARE_MAX / hottest } else { 0.8 };
        let wanted = round_rate(rate * self.offered_share.min(1.0) * headroom);
        self.advice = match hottest > CPU_SHARE_MAX {
            true => format!("lower --rate to about {wanted}, or give it more cores (--shards)"),
            false => format!("keep other work off its cores, or lower --rate to about {wanted}"),
        };
        self.valid = false;
    }
}

/// Two leading digits are all the precision such advice has.
fn round_rate(rate: f64) -> String {
    let step = 10f64.powf(rate.max(1.0).log10().floor() - 1.0);
    units::rate((rate / step).floor() * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::schedule::Ticket;

    fn judge(pace: Pace, late: Duration, sent: u64, due: u64, share: f64) -> Health {
        judge_behind(pace, late, (sent, due), (share, 0.0), false)
    }

    fn judge_behind(
        pace: Pace,
        late: Duration,
        (sent, due): (u64, u64),
        (share, waited): (f64, f64),
        behind: bool,
    ) -> Health {
        let mut recorder = Recorder::new();
        let zero = Duration::ZERO;
        let ticket = Ticket { number: 0, connection: 0, intended: zero, ready: zero, measured: true };
        (0..sent).for_each(|_| recorder.sent(&ticket, late));
        let elapsed = Duration::from_secs(10);
        let efforts =
            [ShardEffort { busy: elapsed.mul_f64(share), waited: elapsed.mul_f64(waited), elapsed }];
        let clock = ClockQuality::default();
        Health::judge(&Evidence { pace, recorder: &recorder, efforts: &efforts, due, behind, clock })
    }

    const OPEN: Pace = Pace::Open { rate: 25_000.0 };

    #[test]
    fn on_time_is_valid_even_with_a_spinning_core() {
        let health = judge(OPEN, Duration::from_micros(20), 1_000, 1_000, 1.0);
        assert!(health.valid, "{:?}", health.reasons);
        assert_eq!(health.advice, "");
        assert_eq!(health.cpu_per_request_ns, 10_000_000);
    }

    #[test]
    fn late_with_a_busy_core_names_a_rate_and_more_cores() {
        let health = judge(OPEN, Duration::from_millis(5), 1_000, 1_000, 1.0);
        assert!(!health.valid);
        assert_eq!(health.advice, "lower --rate to about 19,000/s, or give it more cores (--shards)");
        assert_eq!(health.reasons.len(), 2);
    }

    #[test]
    fn late_with_an_idle_core_blames_its_neighbours() {
        let health = judge(OPEN, Duration::from_millis(5), 1_000, 1_000, 0.2);
        assert!(health.advice.contains("other work"), "{}", health.advice);
    }

    #[test]
    fn requests_never_sent_blame_the_connections() {
        let health = judge(OPEN, Duration::ZERO, 500, 1_000, 0.2);
        assert!(!health.valid);
        assert_eq!(health.advice, "lower --rate to about 12,000/s, or raise --connections");
    }

    /// The lateness counts from a free connection: a generator that is kept from its core frees none, and is on time.
    #[test]
    fn behind_without_a_core_is_not_the_server() {
        let judge = |share, waited, behind| {
            judge_behind(OPEN, Duration::from_micros(20), (1_000, 1_000), (share, waited), behind)
        };
        let kept_away = judge(0.25, 0.74, true);
        assert!(!kept_away.valid && kept_away.advice.contains("other work"), "{kept_away:?}");
        let saturated = judge(0.99, 0.0, true);
        assert!(!saturated.valid && saturated.advice.contains("--shards"), "{saturated:?}");
        assert!(judge(0.3, 0.1, true).valid, "a slow server");
        assert!(judge(0.99, 0.0, false).valid, "busy, and it kept up");
    }

    #[test]
    fn a_closed_loop_makes_no_claim_to_break() {
        assert!(judge(Pace::Closed, Duration::from_millis(5), 10, 0, 1.0).valid);
    }

    #[test]
    fn the_clock_is_measured() {
        let clock = ClockQuality::measure();
        assert!(clock.reading_ns < 100_000, "{clock:?}");
    }
}
