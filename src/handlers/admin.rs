//! The operator's listener: metrics for Prometheus, health, readiness, the counters as JSON, and a page that shows
//! them. It listens beside the server and goes on until the server has ended.

use crate::{
    error::{EndReason, Error, Result},
    exchange::{Exchange, asynchronous},
    routing::{Handler, Router, Throttle, get},
    server,
    stats::{self, ShardSnapshot},
};
use hdrhistogram::Histogram;
use http::StatusCode;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use shards::Shard;
use std::fmt;

const PAGE: &str = include_str!("admin.html");

/// The admin routes.
pub fn router(_shard: &Shard) -> Router {
    let throttle = Throttle::new(FIGURES_AT_WORK);
    Router::new()
        .coordinate("/stats", throttle.coordinator())
        .coordinate("/metrics", throttle.coordinator())
        .route("/", get(page))
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/stats", get(stats()))
        .route("/metrics", get(metrics()))
}

/// Answers with figures that a shard makes at a time: each holds the histograms of every shard, some 50 KiB, until it
/// has left. Who scrapes asks for one.
const FIGURES_AT_WORK: usize = 2;

fn page(x: &mut Exchange) -> Result<()> {
    x.response().set_content_type("text/html; charset=utf-8")?;
    x.write(PAGE)
}

/// The process answers: that is all that liveness means.
fn health(x: &mut Exchange) -> Result<()> {
    x.response().set_content_type("text/plain; charset=utf-8")?;
    x.write("ok\n")
}

/// Whether new work should be sent here.
fn readiness(x: &mut Exchange) -> Result<()> {
    let ready = server::is_ready(&Shard::current());
    x.response().set_content_type("text/plain; charset=utf-8")?;
    if ready {
        return x.write("ready\n");
    }
    x.response().set_status(StatusCode::SERVICE_UNAVAILABLE);
    x.write("not ready: the server is ending\n")
}

fn stats() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        let snapshots = server::snapshots(&Shard::current()).await;
        x.response().set_content_type("application/json")?;
        x.response().set_header("Cache-Control", "no-store")?;
        x.write(stats::to_json(&snapshots).to_string())
    })
}

fn metrics() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        let snapshots = server::snapshots(&Shard::current()).await;
        let mut registry = Registry::with_prefix("shardlet");
        registry.register_collector(Box::new(Figures(snapshots)));
        let mut out = String::new();
        text::encode(&mut out, &registry).map_err(Error::from)?;
        x.response().set_content_type("application/openmetrics-text; version=1.0.0; charset=utf-8")?;
        x.write(out)
    })
}

/// How a distribution is shown.
struct Shape {
    name: &'static str,
    help: &'static str,
    /// Units of the recorded values in a second.
    per_second: f64,
    /// Upper bounds in the unit of the recorded values, ascending.
    bounds: &'static [u64],
}

const HAND_OVER: Shape = Shape {
    name: "executor_hand_over_seconds",
    help: "From execute on any thread to the start of the task on its shard",
    per_second: 1e6,
    bounds: &[10, 50, 100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 1_000_000],
};

const WORKER_HAND_OVER: Shape = Shape {
    name: "workers_hand_over_seconds",
    help: "From start to the beginning of the job on its thread",
    per_second: 1e9,
    bounds: &[
        10_000,
        50_000,
        100_000,
        500_000,
        1_000_000,
        5_000_000,
        10_000_000,
        50_000_000,
        100_000_000,
        1_000_000_000,
        10_000_000_000,
    ],
};

const ENDED_AGE: Shape = Shape {
    name: "exchanges_async_ended_age_seconds",
    help: "Age at the end of exchanges that ended asynchronous",
    per_second: 1e3,
    bounds: &[10, 100, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000],
};

impl Shape {
    /// Sum, count, and how many values are in each bucket (not cumulated: the encoder adds them up). A value counts
    /// as the lowest of those that the histogram cannot tell from it.
    fn buckets(&self, values: &Histogram<u64>) -> (f64, u64, Vec<(f64, u64)>) {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 / self.per_second);
        let mut buckets: Vec<(f64, u64)> = bounds.chain([f64::MAX]).map(|bound| (bound, 0)).collect();
        let mut sum = 0.0;
        for step in values.iter_recorded() {
            let value = values.lowest_equivalent(step.value_iterated_to());
            buckets[self.bounds.partition_point(|bound| *bound < value)].1 += step.count_at_value();
            sum += value as f64 / self.per_second * step.count_at_value() as f64;
        }
        (sum, values.len(), buckets)
    }
}

/// One scrape's figures.
#[derive(Debug)]
struct Figures(Vec<ShardSnapshot>);

type Encoded = std::result::Result<(), fmt::Error>;

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Encoded {
        let out = &mut encoder;
        self.counter(out, "exchanges_started", "Exchanges begun", |s| s.life_cycle.started)?;
        self.gauge(out, "exchanges_live", "Exchanges that have not ended", |s| s.life_cycle.live)?;
        self.gauge(out, "exchanges_sync", "Live exchanges in a handler", |s| s.life_cycle.sync_active)?;
        self.gauge(out, "exchanges_async", "Live asynchronous exchanges", |s| s.life_cycle.async_active)?;
        self.ends(out)?;
        self.counter(out, "double_terminal_suppressed", "Second attempts to end an exchange", |s| {
            s.life_cycle.double_terminal_suppressed
        })?;
        self.counter(out, "stale_tasks_dropped", "Tasks for an exchange or cycle that was over", |s| {
            s.life_cycle.stale_tasks_dropped
        })?;
        self.ages(out)?;
        self.parked(out)?;
        self.gauge(out, "executor_active", "Tasks of executors that run", |s| s.life_cycle.executor_active)?;
        self.gauge(out, "executor_high_water", "The most tasks that ever waited", |s| {
            s.life_cycle.executor_high_water
        })?;
        self.histogram(out, &HAND_OVER, |s| s.latencies.hand_over_us())?;
        self.gauge(out, "executor_queued", "Tasks that wait for their exchange", |s| {
            s.life_cycle.executor_queued
        })?;
        self.counter(out, "executor_rejected", "Tasks refused by a bound", |s| {
            s.life_cycle.executor_rejected
        })?;
        self.counter(out, "panics", "Callbacks that panicked", |s| s.life_cycle.panics)?;
        self.counter(out, "slow_client_cuts", "Exchanges cut by the slow-client policy", |s| {
            s.life_cycle.slow_client_cuts
        })?;
        self.counter(out, "continues_sent", "100 Continue sent", |s| s.life_cycle.continues_sent)?;
        self.counter(out, "continues_refused", "Final answers in place of 100 Continue", |s| {
            s.life_cycle.continues_refused
        })?;
        self.gauge(out, "pending_write_bytes", "Content that the kernel has not taken", |s| {
            s.pending_write_bytes
        })?;
        self.connections(out)?;
        self.counter(out, "subscriptions_refused", "Subscriptions that a topic had no room for", |s| {
            s.life_cycle.subscriptions_refused
        })?;
        self.counter(out, "sleeps_refused", "Sleeps that an exchange had no room for", |s| {
            s.life_cycle.sleeps_refused
        })?;
        self.files(out)?;
        self.workers(out)?;
        self.named(out, "requests_rejected", "Refused requests by reason", |s| s.rejects())?;
        self.named(out, "connections_cut", "Connections cut by a limit", |s| s.cuts())?;
        self.runtime(out)
    }
}

impl Figures {
    fn connections(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        self.gauge(out, "connections", "Open connections", ShardSnapshot::connections)?;
        self.counter(out, "connections_accepted", "Connections begun", ShardSnapshot::connections_accepted)?;
        self.named(out, "connections_refused", "Connections closed at once, by reason", |s| s.refusals())?;
        self.counter(
            out,
            "accept_pauses",
            "Rests for want of a descriptor or memory",
            ShardSnapshot::accept_pauses,
        )?;
        self.counter(out, "received_bytes", "Bytes received", ShardSnapshot::bytes_in)?;
        self.counter(out, "sent_bytes", "Bytes that the kernel has taken", ShardSnapshot::bytes_out)
    }

    fn runtime(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        self.counter(out, "shard_turns", "Turns of the loop", |s| s.runtime.turns)?;
        self.counter(out, "shard_enters", "Kernel enters", |s| s.runtime.enters)?;
        self.counter(out, "shard_stalls", "Turns longer than the stall limit", |s| s.runtime.stalls)?;
        self.counter(out, "shard_watchdog_warnings", "Turns that the watchdog saw stuck", |s| {
            s.runtime.watchdog_warnings
        })?;
        self.gauge(out, "shard_turn_p99_microseconds", "99th percentile of a turn's work", |s| {
            s.runtime.turn_us.value_at_quantile(0.99)
        })?;
        self.gauge(out, "shard_longest_turn_microseconds", "The longest turn's work", |s| {
            u64::try_from(s.runtime.longest_turn.as_micros()).unwrap_or(u64::MAX)
        })?;
        self.gauge(out, "shard_longest_callback_microseconds", "The longest callback or message", |s| {
            u64::try_from(s.runtime.longest_callback.as_micros()).unwrap_or(u64::MAX)
        })?;
        self.longest_callbacks(out)?;
        self.counter(out, "shard_buffer_shortages", "Receives that waited for a buffer", |s| {
            s.runtime.buffer_shortages
        })
    }

    /// Whose the longest callback was, beside its length: names are routes and kinds of this program.
    fn longest_callbacks(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        let (name, help) = ("shard_longest_callback_info", "Whose the longest callback was");
        let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for snapshot in &self.0 {
            let callback = snapshot.runtime.longest_callback_name.clone();
            let labels = [("shard", snapshot.shard.to_string()), ("callback", callback)];
            ConstGauge::new(1_i64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn files(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        self.counter(out, "files_cache_hits", "Files answered from what was kept", |s| s.files.cache_hits)?;
        self.counter(out, "files_cache_misses", "Files of which nothing young enough was kept", |s| {
            s.files.cache_misses
        })?;
        self.counter(out, "files_compressions", "Files coded on the fly", |s| s.files.compressions)?;
        self.counter(out, "files_compressions_refused", "Files sent plain for want of room to code", |s| {
            s.files.compressions_refused
        })
    }

    /// The pool is the server's, not a shard's: no label says one.
    fn workers(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        let Some(pool) = self.0.iter().find_map(|snapshot| snapshot.workers.as_ref()) else { return Ok(()) };
        let gauges = [
            ("workers_threads", "Worker threads", pool.threads),
            ("workers_active", "Jobs that run", pool.active),
            ("workers_queued", "Jobs that wait", pool.queued),
            ("workers_queue_max", "Jobs that may wait", pool.queue_max),
            ("workers_high_water", "The most jobs that ever waited", pool.high_water),
        ];
        for (name, help, value) in gauges {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(out.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let counters = [
            ("workers_completed", "Jobs that ended", pool.completed),
            ("workers_rejected_full", "Jobs refused by a full queue", pool.rejected_full),
            ("workers_rejected_closed", "Jobs refused by a closed pool", pool.rejected_closed),
            ("workers_dropped", "Jobs dropped unrun at the end", pool.dropped),
            ("workers_panics", "Jobs that panicked", pool.panics),
            (
                "workers_context_values_refused",
                "Values that a job's context had no room for",
                pool.context_values_refused,
            ),
        ];
        for (name, help, value) in counters {
            ConstCounter::new(value).encode(out.encode_descriptor(
                name,
                help,
                None,
                MetricType::Counter,
            )?)?;
        }
        let shape = &WORKER_HAND_OVER;
        let (sum, count, buckets) = shape.buckets(&pool.hand_over);
        let mut encoder = out.encode_descriptor(shape.name, shape.help, None, MetricType::Histogram)?;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn counter(
        &self,
        out: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&ShardSnapshot) -> u64,
    ) -> Encoded {
        let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        self.0.iter().try_for_each(|snapshot| {
            ConstCounter::new(value(snapshot)).encode(family.encode_family(&[("shard", snapshot.shard)])?)
        })
    }

    fn gauge(
        &self,
        out: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&ShardSnapshot) -> u64,
    ) -> Encoded {
        let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        self.0.iter().try_for_each(|snapshot| {
            let value = i64::try_from(value(snapshot)).unwrap_or(i64::MAX);
            ConstGauge::new(value).encode(family.encode_family(&[("shard", snapshot.shard)])?)
        })
    }

    /// A distribution as a histogram in seconds: the field's base unit.
    fn histogram(
        &self,
        out: &mut DescriptorEncoder<'_>,
        shape: &Shape,
        values: impl Fn(&ShardSnapshot) -> &Histogram<u64>,
    ) -> Encoded {
        let mut family = out.encode_descriptor(shape.name, shape.help, None, MetricType::Histogram)?;
        self.0.iter().try_for_each(|snapshot| {
            let (sum, count, buckets) = shape.buckets(values(snapshot));
            family
                .encode_family(&[("shard", snapshot.shard)])?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    /// Ages of asynchronous exchanges: those that live as gauges, for they are looked up, and those that ended as a
    /// histogram.
    fn ages(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        let (name, help) =
            ("exchanges_async_age_seconds", "Age of live asynchronous exchanges by percentile");
        let mut family = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for snapshot in &self.0 {
            for (percentile, age) in snapshot.async_age_ms() {
                let labels = [("shard", snapshot.shard.to_string()), ("percentile", percentile.to_string())];
                ConstGauge::new(age as f64 / 1e3).encode(family.encode_family(&labels)?)?;
            }
        }
        self.histogram(out, &ENDED_AGE, |s| s.latencies.async_age_ms())
    }

    /// Routes are the application's own patterns: as many as it has.
    fn parked(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Exchanges that wait, by route";
        let mut family = out.encode_descriptor("exchanges_parked", help, None, MetricType::Gauge)?;
        for snapshot in &self.0 {
            for (route, count) in &snapshot.parked {
                let labels = [("shard", snapshot.shard.to_string()), ("route", route.clone())];
                let count = i64::try_from(*count).unwrap_or(i64::MAX);
                ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn ends(&self, out: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Ended exchanges by reason";
        let mut family = out.encode_descriptor("exchanges_ended", help, None, MetricType::Counter)?;
        for snapshot in &self.0 {
            for reason in EndReason::ALL {
                let labels = [("shard", snapshot.shard.to_string()), ("reason", reason.name().to_owned())];
                ConstCounter::new(snapshot.life_cycle.ended(reason))
                    .encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    /// Counters with a bounded set of names: reasons of this program, never words of a client.
    fn named(
        &self,
        out: &mut DescriptorEncoder<'_>,
        name: &str,
        help: &str,
        values: impl Fn(&ShardSnapshot) -> &[(&'static str, u64)],
    ) -> Encoded {
        let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
        for snapshot in &self.0 {
            for (reason, count) in values(snapshot) {
                let labels = [("shard", snapshot.shard.to_string()), ("reason", (*reason).to_owned())];
                ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
