//! The life-cycle counters as they are shown: per shard and added up (L-27). Shapes and names are a contract:
//! scripts read them.

use crate::{
    connection::{ConnectionSnapshot, Service},
    error::EndReason,
    exchange::{Latencies, LifeCycleCounters},
    metrics::files::FilesCounters,
    workers::PoolSnapshot,
};
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use shards::{Shard, ShardStats};
use std::collections::BTreeMap;

/// What one shard had counted at one moment.
#[derive(Debug, Clone)]
pub struct ShardSnapshot {
    /// Which shard.
    pub shard: usize,
    /// Exchanges.
    pub life_cycle: LifeCycleCounters,
    /// How long tasks travelled, how old exchanges became.
    pub latencies: Latencies,
    /// Ages of the live asynchronous exchanges in milliseconds, in no order.
    pub async_ages_ms: Vec<u64>,
    /// Content bytes that applications have produced and the kernel has not taken.
    pub pending_write_bytes: u64,
    /// The runtime below.
    pub runtime: ShardStats,
    /// Exchanges that wait, by the pattern of their route.
    pub parked: Vec<(String, u64)>,
    /// The server's worker pool, the same for all its shards.
    pub workers: Option<PoolSnapshot>,
    /// Static files.
    pub files: FilesCounters,
    connections: ConnectionSnapshot,
}

impl ShardSnapshot {
    pub(crate) fn take(shard: &Shard, service: &Service, workers: Option<PoolSnapshot>) -> Self {
        let (mut async_ages_ms, mut pending_write_bytes) = (Vec::new(), service.unsent_bytes());
        service.exchanges.scan(|live| {
            pending_write_bytes += live.pending_write_bytes;
            if live.is_async {
                async_ages_ms.push(live.age.as_millis() as u64);
            }
        });
        ShardSnapshot {
            shard: shard.id().index(),
            life_cycle: service.exchanges.counters(),
            latencies: service.exchanges.latencies(),
            async_ages_ms,
            pending_write_bytes,
            runtime: shard.stats(),
            parked: service.parked_by_route(),
            workers,
            files: FilesCounters::of_this_shard(),
            connections: service.counters.snapshot(),
        }
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.live
    }

    /// Connections accepted, ever.
    pub fn connections_accepted(&self) -> u64 {
        self.connections.accepted
    }

    /// Connections closed at once, whatever the reason.
    pub fn connections_refused(&self) -> u64 {
        self.connections.refused.iter().map(|(_, count)| count).sum()
    }

    /// Connections closed at once, by reason.
    pub fn refusals(&self) -> &[(&'static str, u64)] {
        &self.connections.refused
    }

    /// Times accepting had to rest because a descriptor or memory was missing.
    pub fn accept_pauses(&self) -> u64 {
        self.connections.accept_pauses
    }

    /// Bytes received.
    pub fn bytes_in(&self) -> u64 {
        self.connections.bytes_in
    }

    /// Bytes that the kernel has taken.
    pub fn bytes_out(&self) -> u64 {
        self.connections.bytes_out
    }

    /// Ages of the live asynchronous exchanges in milliseconds at the 50th, 95th, 99th and 100th percentile.
    pub(crate) fn async_age_ms(&self) -> [(usize, u64); 4] {
        nearest_ranks(&mut self.async_ages_ms.clone())
    }

    /// Refused requests by reason.
    pub fn rejects(&self) -> &[(&'static str, u64)] {
        &self.connections.rejects
    }

    /// Connections cut by a limit, by reason.
    pub fn cuts(&self) -> &[(&'static str, u64)] {
        &self.connections.cuts
    }
}

/// The counters of all shards as JSON: the sums, and an array with the same per shard.
pub fn to_json(snapshots: &[ShardSnapshot]) -> Value {
    let mut sum = LifeCycleCounters::default();
    let mut latencies = Latencies::default();
    let mut ages = Vec::new();
    let (mut pending, mut connections) = (0, 0);
    for snapshot in snapshots {
        sum.merge(&snapshot.life_cycle);
        latencies.merge(&snapshot.latencies);
        ages.extend_from_slice(&snapshot.async_ages_ms);
        pending += snapshot.pending_write_bytes;
        connections += snapshot.connections();
    }
    let mut all = figures(&sum, &mut ages, pending, connections);
    add_latencies(&mut all, &latencies);
    if let Some(workers) = snapshots.iter().find_map(|snapshot| snapshot.workers.as_ref()) {
        all.insert("workers".into(), workers_json(workers));
    }
    all.insert("parked".into(), parked_json(snapshots));
    all.insert("files".into(), files_json(snapshots));
    all.insert("shards".into(), snapshots.iter().map(shard_json).collect());
    Value::Object(all)
}

/// Waiting exchanges of some shards by route.
fn parked_json(snapshots: &[ShardSnapshot]) -> Value {
    let mut parked: BTreeMap<&str, u64> = BTreeMap::new();
    for (route, count) in snapshots.iter().flat_map(|snapshot| &snapshot.parked) {
        *parked.entry(route).or_default() += count;
    }
    json!(parked)
}

/// Static files of some shards.
fn files_json(snapshots: &[ShardSnapshot]) -> Value {
    let sum = |figure: fn(&FilesCounters) -> u64| -> u64 {
        snapshots.iter().map(|snapshot| figure(&snapshot.files)).sum()
    };
    json!({
        "cache_hits": sum(|files| files.cache_hits),
        "cache_misses": sum(|files| files.cache_misses),
        "compressions": sum(|files| files.compressions),
        "compressions_refused": sum(|files| files.compressions_refused),
    })
}

fn workers_json(pool: &PoolSnapshot) -> Value {
    json!({
        "threads": pool.threads,
        "active": pool.active,
        "queued": pool.queued,
        "queue_max": pool.queue_max,
        "high_water": pool.high_water,
        "completed": pool.completed,
        "rejected_full": pool.rejected_full,
        "rejected_closed": pool.rejected_closed,
        "dropped": pool.dropped,
        "panics": pool.panics,
        "context_values_refused": pool.context_values_refused,
        "hand_over_us": {
            "p50": pool.hand_over.value_at_quantile(0.50) / 1000,
            "p99": pool.hand_over.value_at_quantile(0.99) / 1000,
            "max": pool.hand_over.max() / 1000,
        },
    })
}

fn shard_json(snapshot: &ShardSnapshot) -> Value {
    let mut ages = snapshot.async_ages_ms.clone();
    let mut figures =
        figures(&snapshot.life_cycle, &mut ages, snapshot.pending_write_bytes, snapshot.connections());
    add_latencies(&mut figures, &snapshot.latencies);
    let connections = &snapshot.connections;
    let named = |list: &[(&'static str, u64)]| -> Map<String, Value> {
        list.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect()
    };
    figures.insert("shard".into(), json!(snapshot.shard));
    figures.insert("parked".into(), parked_json(std::slice::from_ref(snapshot)));
    figures.insert("files".into(), files_json(std::slice::from_ref(snapshot)));
    figures.insert("accepted".into(), json!(connections.accepted));
    figures.insert("connections_refused".into(), json!(snapshot.connections_refused()));
    figures.insert("refused".into(), Value::Object(named(&connections.refused)));
    figures.insert("accept_pauses".into(), json!(connections.accept_pauses));
    figures.insert("bytes_in".into(), json!(connections.bytes_in));
    figures.insert("bytes_out".into(), json!(connections.bytes_out));
    figures.insert("rejected".into(), Value::Object(named(&connections.rejects)));
    figures.insert("cut".into(), Value::Object(named(&connections.cuts)));
    figures.insert("runtime".into(), runtime_json(&snapshot.runtime));
    Value::Object(figures)
}

fn figures(
    counters: &LifeCycleCounters,
    ages: &mut [u64],
    pending: u64,
    connections: u64,
) -> Map<String, Value> {
    let ends: Map<String, Value> = EndReason::ALL
        .iter()
        .map(|reason| (reason.name().to_owned(), json!(counters.ended(*reason))))
        .collect();
    let value = json!({
        "started": counters.started,
        "live": counters.live,
        "ends": ends,
        "double_terminal_suppressed": counters.double_terminal_suppressed,
        "stale_tasks_dropped": counters.stale_tasks_dropped,
        "sync_active": counters.sync_active,
        "async_active": counters.async_active,
        "async_age_ms": percentiles(ages),
        "executor": {
            "active": counters.executor_active,
            "queued": counters.executor_queued,
            "high_water": counters.executor_high_water,
            "rejected": counters.executor_rejected,
        },
        "pending_write_bytes": pending,
        "slow_client_cuts": counters.slow_client_cuts,
        "continues_sent": counters.continues_sent,
        "continues_refused": counters.continues_refused,
        "subscriptions_refused": counters.subscriptions_refused,
        "sleeps_refused": counters.sleeps_refused,
        "panics": counters.panics,
        "connections": connections,
    });
    match value {
        Value::Object(figures) => figures,
        _ => unreachable!("json!({{…}}) makes an object"),
    }
}

/// Nearest-rank percentiles; zeros where nothing is live.
fn add_latencies(figures: &mut Map<String, Value>, latencies: &Latencies) {
    let shown = |measured: &Histogram<u64>| {
        json!({
            "count": measured.len(),
            "p50": measured.value_at_quantile(0.50),
            "p95": measured.value_at_quantile(0.95),
            "p99": measured.value_at_quantile(0.99),
            "max": measured.max(),
        })
    };
    figures.insert("async_ended_age_ms".into(), shown(latencies.async_age_ms()));
    figures["executor"]["hand_over_us"] = shown(latencies.hand_over_us());
}

fn percentiles(ages: &mut [u64]) -> Value {
    let [(_, p50), (_, p95), (_, p99), (_, max)] = nearest_ranks(ages);
    json!({ "p50": p50, "p95": p95, "p99": p99, "max": max })
}

/// Percentiles with their values; zeros where there are none.
fn nearest_ranks(ages: &mut [u64]) -> [(usize, u64); 4] {
    ages.sort_unstable();
    [50, 95, 99, 100].map(|percent| match ages.len() {
        0 => (percent, 0),
        len => (percent, ages[(len * percent).div_ceil(100).clamp(1, len) - 1]),
    })
}

fn runtime_json(stats: &ShardStats) -> Value {
    json!({
        "turns": stats.turns,
        "enters": stats.enters,
        "completions": stats.completions,
        "messages": stats.messages,
        "timers_fired": stats.timers_fired,
        "stalls": stats.stalls,
        "watchdog_warnings": stats.watchdog_warnings,
        "longest_turn_us": stats.longest_turn.as_micros() as u64,
        "longest_callback_us": stats.longest_callback.as_micros() as u64,
        "longest_callback": stats.longest_callback_name,
        "turn_us": {
            "p50": stats.turn_us.value_at_quantile(0.50),
            "p99": stats.turn_us.value_at_quantile(0.99),
            "max": stats.turn_us.max(),
        },
        "operations_in_flight": stats.operations_in_flight,
        "descriptors": stats.descriptors,
        "buffers": { "free": stats.buffers.0, "loaned": stats.buffers.1, "leased": stats.buffers.2 },
        "buffer_shortages": stats.buffer_shortages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_stand_beside_the_gauges_of_the_same_thing() {
        let mut shown = figures(&LifeCycleCounters::default(), &mut [], 0, 0);
        add_latencies(&mut shown, &Latencies::default());
        let none = json!({ "count": 0, "p50": 0, "p95": 0, "p99": 0, "max": 0 });
        assert_eq!(shown["async_ended_age_ms"], none);
        assert_eq!(shown["executor"]["hand_over_us"], none);
        assert_eq!(shown["executor"]["queued"], json!(0));
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut ages: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentiles(&mut ages), json!({ "p50": 50, "p95": 95, "p99": 99, "max": 100 }));
        assert_eq!(percentiles(&mut []), json!({ "p50": 0, "p95": 0, "p99": 0, "max": 0 }));
        assert_eq!(percentiles(&mut [7]), json!({ "p50": 7, "p95": 7, "p99": 7, "max": 7 }));
    }
}
