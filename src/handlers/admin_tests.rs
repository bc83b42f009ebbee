//! Tests of the operator's figures: what the JSON shows of the life cycle, the metrics show as well.

use super::*;
use crate::{Server, ShutdownPlan};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Figures of the life cycle and their metrics. Objects of percentiles are one distribution.
const METRICS: [(&str, &str); 22] = [
    ("started", "exchanges_started_total"),
    ("live", "exchanges_live"),
    ("ends", "exchanges_ended_total"),
    ("double_terminal_suppressed", "double_terminal_suppressed_total"),
    ("stale_tasks_dropped", "stale_tasks_dropped_total"),
    ("sync_active", "exchanges_sync"),
    ("async_active", "exchanges_async"),
    ("async_age_ms", "exchanges_async_age_seconds"),
    ("async_ended_age_ms", "exchanges_async_ended_age_seconds_count"),
    ("executor.active", "executor_active"),
    ("executor.queued", "executor_queued"),
    ("executor.high_water", "executor_high_water"),
    ("executor.rejected", "executor_rejected_total"),
    ("executor.hand_over_us", "executor_hand_over_seconds_count"),
    ("pending_write_bytes", "pending_write_bytes"),
    ("slow_client_cuts", "slow_client_cuts_total"),
    ("continues_sent", "continues_sent_total"),
    ("continues_refused", "continues_refused_total"),
    ("subscriptions_refused", "subscriptions_refused_total"),
    ("sleeps_refused", "sleeps_refused_total"),
    ("panics", "panics_total"),
    ("connections", "connections"),
];

/// Parts of the JSON that are not the life cycle, or (routes that wait) have members only while something waits.
const OTHERS: [&str; 4] = ["workers", "files", "parked", "shards"];

fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

#[test]
fn l_27_every_figure_of_the_life_cycle_has_a_metric() {
    let server = Server::builder()
        .listen("127.0.0.1:0".parse::<SocketAddr>().expect("an address"))
        .shards(1)
        .start(router)
        .expect("starts");
    let address: SocketAddr = server.address().to_string().parse().expect("of the internet");
    let (shown, metrics) = (fetch(address, "/stats"), fetch(address, "/metrics"));
    server.shutdown(ShutdownPlan::fast());
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let mut names: Vec<String> = Vec::new();
    for (name, value) in shown.as_object().expect("an object") {
        match value.as_object() {
            _ if OTHERS.contains(&name.as_str()) => {}
            Some(members) if name == "executor" => {
                names.extend(members.keys().map(|member| format!("{name}.{member}")));
            }
            _ => names.push(name.clone()),
        }
    }
    let mut known: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
    names.sort();
    known.sort_unstable();
    assert_eq!(names, known, "a figure without a metric, or a metric of nothing");
    for (name, metric) in METRICS {
        assert!(
            metrics.contains(&format!("\nshardlet_{metric}{{shard=\"0\"")),
            "{name}: {metric} in\n{metrics}"
        );
    }
    assert!(metrics.contains("\nshardlet_shard_longest_callback_microseconds{shard=\"0\"} "), "{metrics}");
    assert!(metrics.contains("# TYPE shardlet_exchanges_parked gauge"), "{metrics}");
    assert!(metrics.contains("\nshardlet_shard_longest_callback_info{shard=\"0\",callback="), "{metrics}");
    assert!(shown["shards"][0]["runtime"]["longest_callback_us"].is_u64(), "{shown}");
    assert!(shown["shards"][0]["runtime"]["longest_callback"].is_string(), "{shown}");
    for name in shown["files"].as_object().expect("an object").keys() {
        assert!(
            metrics.contains(&format!("\nshardlet_files_{name}_total{{shard=\"0\"}} 0\n")),
            "{name}: {metrics}"
        );
    }
    for name in shown["workers"].as_object().expect("an object").keys() {
        let is_there = match name.as_str() {
            "hand_over_us" => metrics.contains("\nshardlet_workers_hand_over_seconds_count "),
            name => {
                ["", "_total"].iter().any(|end| metrics.contains(&format!("\nshardlet_workers_{name}{end} ")))
            }
        };
        assert!(is_there, "{name}: {metrics}");
    }
}

#[test]
fn values_fall_into_the_bucket_of_their_bound_and_no_two() {
    let mut values = Histogram::new_with_bounds(1, 3_600_000_000, 2).expect("bounds");
    for value in [10, 11, 10_000, 10_001, 2_000_000] {
        values.record(value).expect("within the bounds");
    }
    let (sum, count, buckets) = HAND_OVER.buckets(&values);
    assert!((2.0..2.1).contains(&sum), "{sum}");
    assert_eq!((count, buckets.iter().map(|(_, count)| count).sum()), (5, 5));
    let filled: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).copied().collect();
    assert_eq!(filled, [(10e-6, 1), (50e-6, 1), (0.01, 2), (f64::MAX, 1)]);
}
