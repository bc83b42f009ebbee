//! Made-up results for the tests of this folder: a run with a latency for each request, without any socket.

use std::time::Duration;

use super::{
    health::{ClockQuality, Evidence, Health, ShardEffort},
    intervals::Intervals,
    record::{Answer, Recorder},
    result::{RunMeta, RunResult},
    schedule::{Pace, Ticket},
};

/// Intervals of a made-up run, one a second.
pub(crate) struct Seconds {
    pub(crate) recorders: Vec<Recorder>,
}

/// `rate` requests a second for `seconds`, where request `n` takes `latency(n)`.
pub(crate) fn seconds(rate: f64, seconds: u64, latency: impl Fn(u64) -> Duration) -> Seconds {
    let mut recorders = vec![Recorder::new(); seconds as usize];
    for number in 0..(rate * seconds as f64) as u64 {
        let due = Duration::from_secs_f64(number as f64 / rate);
        let ticket = Ticket { number, connection: 0, intended: due, ready: due, measured: true };
        let done = due + latency(number);
        let answer = Answer { sent: due, first_byte: done, done, status: 200, bytes: 128 };
        let recorder = &mut recorders[(due.as_secs() as usize).min(seconds as usize - 1)];
        recorder.sent(&ticket, due + Duration::from_micros(20));
        recorder.answered(&ticket, &answer);
    }
    Seconds { recorders }
}

/// The same as a whole result.
pub(crate) fn result(rate: f64, time: u64, latency: impl Fn(u64) -> Duration) -> RunResult {
    let second = Duration::from_secs(1);
    let (mut totals, mut intervals) = (Recorder::new(), Intervals::new());
    for (at, recorder) in seconds(rate, time, latency).recorders.iter().enumerate() {
        totals.add(recorder);
        intervals.push(second * at as u32, second, recorder);
    }
    totals.connected(Duration::from_micros(150));
    let elapsed = second * time as u32;
    let efforts = [ShardEffort { busy: elapsed / 4, waited: Duration::ZERO, elapsed }];
    let evidence = Evidence {
        pace: Pace::Open { rate },
        recorder: &totals,
        efforts: &efforts,
        due: (rate * time as f64) as u64,
        behind: false,
        clock: ClockQuality { resolution_ns: 30, reading_ns: 25 },
    };
    let health = Some(Health::judge(&evidence));
    RunResult { meta: meta(rate, time), elapsed, totals, intervals, health, sweep: Vec::new() }
}

pub(crate) fn meta(rate: f64, time: u64) -> RunMeta {
    RunMeta {
        version: "0.1.0".to_owned(),
        target: "http://127.0.0.1:8080/plaintext".to_owned(),
        method: "GET".to_owned(),
        open_loop: true,
        rate: Some(rate),
        connections: 64,
        pipeline: 1,
        keep_alive: true,
        shards: 1,
        driver: "uring".to_owned(),
        warm_up_s: 1.0,
        time_s: time as f64,
        cut_short_s: None,
        started_unix_s: 1_700_000_000.25,
        host: "Linux 6.18, 2 cores".to_owned(),
        label: String::new(),
    }
}
