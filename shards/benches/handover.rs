//! How long a task takes from another thread to a shard: asleep, and about seventy percent busy.
//!
//! `cargo bench -p shards --bench handover`; `HANDOVERS` in the environment says how many are measured. Each one waits
//! for the answer of the one before, so the shard has gone to sleep again unless it is kept busy.

use hdrhistogram::Histogram;
use shards::{DriverChoice, Shard, ShardHandle, Shards, time};
use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

fn main() {
    let count = std::env::var("HANDOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    println!(
        "{:10} {:8} {:>9} {:>9} {:>9} {:>9}",
        "driver", "shard", "p50 us", "p99 us", "p99.9 us", "max us"
    );
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        for busy in [false, true] {
            measure(driver, busy, count);
        }
    }
}

fn measure(driver: DriverChoice, busy: bool, count: usize) {
    let shards = Shards::builder().shards(1).driver(driver).start(move |shard| async move {
        if busy {
            // The handle is dropped: the task runs on.
            drop(shard.spawn(seventy_percent()));
        }
        shard.stopped().await;
    });
    let shards = match shards {
        Ok(shards) => shards,
        Err(error) => return println!("{driver:?}: left out: {error}"),
    };
    let handle = shards.handles()[0].clone();
    let histogram = hand_over(&handle, count);
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    let name = handle.submit_to(Shard::driver_name).wait().unwrap_or("gone");
    let load = if busy { "70 %" } else { "asleep" };
    let max = histogram.max() as f64 / 1000.0;
    println!("{name:10} {load:8} {:9.1} {:9.1} {:9.1} {max:9.1}", at(0.5), at(0.99), at(0.999));
    shards.stop();
    shards.join();
}

/// Seven bursts of 100 us with a turn of the loop after each, then a rest until the next tick of the wheel: about
/// 700 us of work in a millisecond.
async fn seventy_percent() {
    loop {
        for _ in 0..7 {
            let until = Instant::now() + Duration::from_micros(100);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            yield_once().await;
        }
        time::sleep(Duration::from_micros(300)).await;
    }
}

async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| match std::mem::replace(&mut yielded, true) {
        true => std::task::Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        }
    })
    .await;
}

/// From the call on this thread to the first instruction of the task on the shard, in nanoseconds.
fn hand_over(handle: &ShardHandle, count: usize) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 10_000_000_000, 3).expect("constant bounds are valid");
    let (arrived, arrivals) = mpsc::channel();
    for _ in 0..count {
        // The shard has time to fall asleep.
        thread::sleep(Duration::from_micros(50));
        let (arrived, began) = (arrived.clone(), Instant::now());
        let handed = handle.execute(move |_| {
            // The measuring thread listens until the last one has come.
            let _ = arrived.send(began.elapsed());
        });
        handed.expect("an inbox with one task has room");
        let took = arrivals.recv().expect("the shard lives");
        histogram.saturating_record(took.as_nanos() as u64);
    }
    histogram
}
