//! The schedule against a simulated server, in simulated time.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::*;
use crate::metrics::histogram::LatencyHistogram;

fn options(rate: f64, connections: u32, seconds: u64) -> ScheduleOptions {
    ScheduleOptions {
        pace: Pace::Open { rate },
        connections,
        pipeline: 1,
        warm_up: Duration::ZERO,
        time: Duration::from_secs(seconds),
        shard: (0, 1),
    }
}

/// Answers each request after `service`, but nothing within the freeze: what falls there starts at its end.
struct Server {
    service: Duration,
    freeze: (Duration, Duration),
}

impl Server {
    fn answers_at(&self, sent: Duration) -> Duration {
        let at = sent + self.service;
        if at >= self.freeze.0 && sent < self.freeze.1 { self.freeze.1 + self.service } else { at }
    }
}

#[derive(Default)]
struct Outcome {
    response: LatencyHistogram,
    service: LatencyHistogram,
    lateness_max: Duration,
    end: Duration,
}

fn run(schedule: &mut Schedule, server: &Server) -> Outcome {
    let connections = schedule.options.connections;
    (0..connections).for_each(|connection| schedule.connection_up(connection, Duration::ZERO));
    let mut outcome = Outcome::default();
    let mut flying: BinaryHeap<Reverse<(Duration, u64)>> = BinaryHeap::new();
    let mut tickets = std::collections::HashMap::new();
    let mut now = Duration::ZERO;
    loop {
        let wake = match schedule.next(now) {
            Next::Send(ticket) => {
                outcome.lateness_max = outcome.lateness_max.max(now - ticket.ready);
                flying.push(Reverse((server.answers_at(now), ticket.number)));
                tickets.insert(ticket.number, (ticket, now));
                continue;
            }
            Next::WaitUntil(due) => Some(due),
            Next::WaitForConnection { .. } => None,
            Next::Finished if flying.is_empty() => break,
            Next::Finished => None,
        };
        let answer = flying.peek().map(|Reverse((at, _))| *at);
        now = [wake, answer].into_iter().flatten().min().expect("something is to come");
        while let Some(Reverse((at, number))) = flying.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            flying.pop();
            let (ticket, sent) = tickets.remove(&number).expect("sent once");
            schedule.finished(&ticket, at);
            if ticket.measured {
                outcome.response.record(at - ticket.intended);
                outcome.service.record(at - sent);
            }
        }
    }
    outcome.end = now;
    outcome
}

const NEVER: (Duration, Duration) = (Duration::MAX, Duration::MAX);

/// The reader's experiment of wg/wrk #99: a server stopped for half of the run.
#[test]
fn freeze_for_half_of_the_run_shows_in_the_percentiles() {
    let service = Duration::from_micros(100);
    let seconds = |s: f64| Duration::from_secs_f64(s);
    let normal = run(&mut Schedule::new(options(1_000.0, 256, 10)), &Server { service, freeze: NEVER });
    let server = Server { service, freeze: (seconds(2.5), seconds(7.49)) };
    let frozen = run(&mut Schedule::new(options(1_000.0, 256, 10)), &server);
    assert_eq!(frozen.response.count(), 10_000);
    let p50 = frozen.response.quantile(0.5);
    assert!(p50 <= normal.response.quantile(0.5) * 2, "p50 {p50:?}");
    let p75 = frozen.response.quantile(0.75).as_secs_f64();
    assert!((p75 - 2.5).abs() < 0.3, "p75 {p75}");
    let max = frozen.response.max().as_secs_f64();
    assert!((max - 5.0).abs() < 0.2, "max {max}");
    // The server's pause is not the generator's lateness, and service time alone hides it.
    assert_eq!(frozen.lateness_max, Duration::ZERO);
    assert!(frozen.service.quantile(0.97) < Duration::from_millis(1));
}

#[test]
fn a_closed_loop_hides_the_freeze() {
    let service = Duration::from_micros(100);
    let freeze = (Duration::from_secs(2), Duration::from_secs(7));
    let mut schedule = Schedule::new(ScheduleOptions { pace: Pace::Closed, ..options(1.0, 4, 10) });
    let outcome = run(&mut schedule, &Server { service, freeze });
    assert!(outcome.response.quantile(0.99) < Duration::from_millis(1));
    assert!(outcome.response.max() >= Duration::from_secs(5));
}

#[test]
fn count_is_rate_times_time_for_every_shard_count() {
    for (rate, shards, seconds) in [(1_000.0, 3, 2), (7.0, 2, 3), (333.3, 4, 3), (1.0, 4, 2)] {
        let counts = (0..shards).map(|shard| {
            let mut schedule =
                Schedule::new(ScheduleOptions { shard: (shard, shards), ..options(rate, 8, seconds) });
            run(&mut schedule, &Server { service: Duration::from_micros(10), freeze: NEVER }).response.count()
        });
        assert_eq!(counts.sum::<u64>(), (rate * seconds as f64).ceil() as u64, "{rate}/s over {shards}");
    }
}

#[test]
fn warm_up_is_sent_and_not_measured() {
    let warm_up = Duration::from_millis(500);
    let mut schedule = Schedule::new(ScheduleOptions { warm_up, ..options(1_000.0, 8, 1) });
    let outcome = run(&mut schedule, &Server { service: Duration::from_micros(10), freeze: NEVER });
    assert_eq!(outcome.response.count(), 1_000);
    assert_eq!(schedule.issued, 1_500);
    assert!(outcome.end >= Duration::from_millis(1_499));
}

#[test]
fn a_long_run_gathers_no_rounding() {
    let schedule = Schedule::new(options(30_000.0, 1, 1));
    let hour = 30_000 * 3_600;
    assert_eq!(schedule.due_at(hour), Duration::from_secs(3_600));
    let step = schedule.due_at(hour + 1) - schedule.due_at(hour);
    assert!((step.as_nanos() as i64 - 33_333).abs() <= 1, "{step:?}");
}

#[test]
fn load_spreads_over_all_connections_and_fills_each_to_its_pipeline() {
    let mut schedule = Schedule::new(ScheduleOptions { pipeline: 4, ..options(1_000.0, 3, 1) });
    (0..3).for_each(|connection| schedule.connection_up(connection, Duration::ZERO));
    let late = Duration::from_millis(500);
    let mut sent = [0; 3];
    let backlog = loop {
        match schedule.next(late) {
            Next::Send(ticket) => sent[ticket.connection as usize] += 1,
            Next::WaitForConnection { backlog } => break backlog,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sent, [4, 4, 4]);
    assert_eq!(backlog, 500 - 12);
}

#[test]
fn a_lost_connection_takes_its_slots_and_brings_them_back() {
    let mut schedule = Schedule::new(ScheduleOptions { pipeline: 2, ..options(1_000.0, 2, 1) });
    let at = Duration::from_millis;
    schedule.connection_up(0, at(0));
    let Next::Send(first) = schedule.next(at(10)) else { panic!("a request is due") };
    schedule.connection_down(0);
    schedule.finished(&first, at(11));
    assert_eq!(schedule.next(at(11)), Next::WaitForConnection { backlog: 10 });
    for _ in 0..100 {
        schedule.connection_up(0, at(12));
        schedule.connection_down(0);
    }
    schedule.connection_up(0, at(20));
    assert!(schedule.free.len() <= 4, "flapping gathers no slots: {}", schedule.free.len());
    let Next::Send(second) = schedule.next(at(20)) else { panic!("a request is due") };
    // Due at 1 ms, but without a connection until 20 ms: response counts from 1 ms, lateness from 20 ms.
    assert_eq!((second.intended, second.ready), (at(1), at(20)));
}

#[test]
fn giving_up_counts_what_was_measured_and_never_sent() {
    let warm_up = Duration::from_secs(1);
    let mut schedule = Schedule::new(ScheduleOptions { warm_up, ..options(100.0, 1, 2) });
    assert_eq!(schedule.abandon(), 200);
    assert_eq!(schedule.next(Duration::ZERO), Next::Finished);
    assert!(schedule.is_drained(Duration::ZERO));
    assert_eq!(schedule.abandon(), 0, "once");
}
