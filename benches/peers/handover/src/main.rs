//! How long a value from a foreign thread takes to the code that waits for it: to a parked exchange of shardlet, to a
//! task on tokio's current-thread runtime, to a task on glommio. The same sender, the same load, one run.
//!
//! ```sh
//! cargo run --release [PROBES]
//! ```
//!
//! The sender probes every millisecond. Idle, nothing else happens; under load a second thread sends pieces of work of
//! 50 µs at random moments, so that the receiving thread is busy for 70 % of its time.

use hdrhistogram::Histogram;
use shardlet::{AsyncContext, Exchange, Router, Server, ShutdownPlan};
use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

const WORK: Duration = Duration::from_micros(50);
const LOAD: f64 = 0.7;
const EVERY: Duration = Duration::from_millis(1);

/// What is sent to the receiving thread.
enum Message {
    Probe(Instant),
    Work,
}

/// The receiving side's part of a message: nothing is different between the three from here on.
fn receive(message: Message, latencies: &Mutex<Histogram<u64>>) {
    match message {
        Message::Probe(sent) => {
            let nanoseconds = sent.elapsed().as_nanos() as u64;
            latencies.lock().unwrap().saturating_record(nanoseconds);
        }
        Message::Work => {
            let until = Instant::now() + WORK;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
    }
}

type Send = Arc<dyn Fn(Message) + std::marker::Send + Sync>;

/// Sends probes, with or without load, and prints the percentiles in microseconds.
fn measure(name: &str, probes: u32, latencies: &Mutex<Histogram<u64>>, send: &Send) {
    for (load, is_loaded) in [("idle", false), ("70 % load", true)] {
        let stop = Arc::new(AtomicBool::new(false));
        let loader = is_loaded.then(|| {
            let (send, stop) = (send.clone(), stop.clone());
            thread::spawn(move || load_until(&stop, &send))
        });
        thread::sleep(Duration::from_millis(200));
        latencies.lock().unwrap().reset();
        for _ in 0..probes {
            thread::sleep(EVERY);
            send(Message::Probe(Instant::now()));
        }
        stop.store(true, Relaxed);
        if let Some(loader) = loader {
            loader.join().unwrap();
        }
        thread::sleep(Duration::from_millis(100));
        let seen = latencies.lock().unwrap();
        let at = |quantile: f64| seen.value_at_quantile(quantile) as f64 / 1000.0;
        println!(
            "{name:<28} {load:<10} n={:<6} p50 {:>8.1}  p99 {:>8.1}  p99.9 {:>8.1}  max {:>8.1} µs",
            seen.len(), at(0.5), at(0.99), at(0.999), seen.max() as f64 / 1000.0
        );
    }
}

/// Sends work at exponentially distributed moments.
fn load_until(stop: &AtomicBool, send: &Send) {
    let mean = WORK.as_secs_f64() / LOAD;
    let (mut state, mut due) = (0x9E37_79B9_7F4A_7C15_u64, Instant::now());
    while !stop.load(Relaxed) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
        due += Duration::from_secs_f64(-mean * (1.0 - uniform).ln());
        // Asleep, not spinning: the sender must not take the core that the receiver needs. What is overdue is sent at once.
        thread::sleep(due.saturating_duration_since(Instant::now()));
        send(Message::Work);
    }
}

fn histogram() -> Arc<Mutex<Histogram<u64>>> {
    Arc::new(Mutex::new(Histogram::new_with_bounds(1, 10_000_000_000, 3).unwrap()))
}

fn shardlet(probes: u32) {
    let (parked, contexts) = mpsc::channel::<AsyncContext>();
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let server = Server::builder().listen(any_port).shards(1).start(move |_: &shards::Shard| {
        let parked = parked.clone();
        Router::new().route("/", move |x: &mut Exchange| {
            let context = x.start_async();
            parked.send(context).unwrap();
        })
    });
    let server = server.unwrap();
    let mut stream = TcpStream::connect(server.address().tcp().unwrap()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let executor = contexts.recv().unwrap().executor();
    let latencies = histogram();
    let seen = latencies.clone();
    let send: Send = Arc::new(move |message| {
        let seen = seen.clone();
        // A full queue is part of what is measured: what is refused is missing from n.
        let _ = executor.execute(move |_: &mut Exchange| receive(message, &seen));
    });
    measure(&format!("shardlet ({})", server.report().driver.name()), probes, &latencies, &send);
    server.shutdown(ShutdownPlan::now());
}

fn through_channel(run: impl FnOnce(tokio::sync::mpsc::UnboundedReceiver<Message>, Arc<Mutex<Histogram<u64>>>) + std::marker::Send + 'static, name: &str, probes: u32) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let latencies = histogram();
    let seen = latencies.clone();
    let thread = thread::spawn(move || run(receiver, seen));
    let send: Send = Arc::new(move |message| sender.send(message).unwrap_or_default());
    measure(name, probes, &latencies, &send);
    drop(send);
    thread.join().unwrap();
}

fn main() {
    let probes = std::env::args().nth(1).map_or(5_000, |text| text.parse().expect("a number of probes"));
    shardlet(probes);
    through_channel(
        |mut receiver, latencies| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                while let Some(message) = receiver.recv().await {
                    receive(message, &latencies);
                }
            });
        },
        "tokio current_thread",
        probes,
    );
    through_channel(
        |mut receiver, latencies| {
            let executor = glommio::LocalExecutorBuilder::default().make().unwrap();
            executor.run(async move {
                while let Some(message) = receiver.recv().await {
                    receive(message, &latencies);
                }
            });
        },
        "glommio",
        probes,
    );
}
