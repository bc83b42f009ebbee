//! How long a value from a foreign thread takes to the code that waits for it: to a parked exchange of shardlet, to a
//! task on tokio's current-thread runtime, to a task on glommio. The same sender, the same load, one run, in rounds
//! that go from one to the next.
//!
//! ```sh
//! cargo run --release -- [PROBES] [ROUNDS] [own|free|same|apart] [idle|load|both] [NAME]
//! ```
//!
//! With NAME only the receivers whose name contains it. The sender probes every millisecond. Idle, nothing else happens; under load a second thread sends pieces of work of
//! 50 µs at random moments, so that the receiving thread is busy for 70 % of its time.
//!
//! Where the threads run decides more than the program that runs on them: waking a thread on the sender's own core
//! costs no interrupt of another one. So it is said: `own`, each as it starts by itself (shardlet pins its shard, the
//! others do not); `free`, none is pinned; `same` and `apart`, all receivers on core 0 and the sender on 0 or on 1.

use hdrhistogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};
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
/// How long a receiver waits for a result: longer than a run, so that none gives up.
const PATIENCE: Duration = Duration::from_secs(3600);

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

/// Where threads run.
#[derive(Clone, Copy)]
struct Placement {
    /// The core that receivers are pinned to.
    receiver: Option<usize>,
    sender: Option<usize>,
    /// The receivers place themselves.
    is_own: bool,
}

impl Placement {
    fn named(name: &str) -> Placement {
        let (receiver, sender) = match name {
            "own" | "free" => (None, None),
            "same" => (Some(0), Some(0)),
            "apart" => (Some(0), Some(1)),
            _ => panic!("own, free, same or apart"),
        };
        Placement { receiver, sender, is_own: name == "own" }
    }
}

fn pin(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

/// Somebody who waits for messages.
struct Receiver {
    name: String,
    send: Send,
    latencies: Arc<Mutex<Histogram<u64>>>,
    end: Box<dyn FnOnce()>,
    /// p50, p99, p99.9 and the maximum of each round, in microseconds.
    rounds: Vec<[f64; 4]>,
}

impl Receiver {
    /// Sends probes, with or without load.
    fn measure(&mut self, probes: u32, is_loaded: bool, sender: Option<usize>) {
        let stop = Arc::new(AtomicBool::new(false));
        let loader = is_loaded.then(|| {
            let (send, stop) = (self.send.clone(), stop.clone());
            thread::spawn(move || {
                pin(sender);
                load_until(&stop, &send);
            })
        });
        thread::sleep(Duration::from_millis(200));
        self.latencies.lock().unwrap().reset();
        for _ in 0..probes {
            thread::sleep(EVERY);
            (self.send)(Message::Probe(Instant::now()));
        }
        stop.store(true, Relaxed);
        if let Some(loader) = loader {
            loader.join().unwrap();
        }
        thread::sleep(Duration::from_millis(100));
        let seen = self.latencies.lock().unwrap();
        let at = |quantile: f64| seen.value_at_quantile(quantile) as f64 / 1000.0;
        let round = [at(0.5), at(0.99), at(0.999), seen.max() as f64 / 1000.0];
        println!("  {:<24} n={:<6} {}", self.name, seen.len(), text(round));
        self.rounds.push(round);
    }

    /// The middle one of the rounds, figure by figure.
    fn print_medians(&mut self, load: &str) {
        let middle = |index: usize| {
            let mut values: Vec<f64> = self.rounds.iter().map(|round| round[index]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!("{:<26} {load:<10} {}", self.name, text([0, 1, 2, 3].map(middle)));
        self.rounds.clear();
    }
}

fn text([p50, p99, p999, max]: [f64; 4]) -> String {
    format!("p50 {p50:>8.1}  p99 {p99:>8.1}  p99.9 {p999:>8.1}  max {max:>8.1} µs")
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

fn shardlet(place: Placement) -> Receiver {
    let (parked, contexts) = mpsc::channel::<AsyncContext>();
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let builder = Server::builder().listen(any_port).shards(1).runtime(move |runtime| match place.is_own {
        true => runtime,
        false => runtime.cores(place.receiver.into_iter().collect()),
    });
    let server = builder.start(move |_: &shards::Shard| {
        let parked = parked.clone();
        Router::new().route("/", move |x: &mut Exchange| {
            let context = x.start_async();
            x.set_timeout(PATIENCE);
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
    let name = format!("shardlet ({})", server.report().driver.name());
    let end = Box::new(move || {
        drop(stream);
        server.shutdown(ShutdownPlan::now());
    });
    Receiver { name, send, latencies, end, rounds: Vec::new() }
}

type Channel = tokio::sync::mpsc::UnboundedReceiver<Message>;

fn through_channel(
    name: &str,
    run: impl FnOnce(Channel, Arc<Mutex<Histogram<u64>>>) + std::marker::Send + 'static,
) -> Receiver {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let latencies = histogram();
    let seen = latencies.clone();
    let thread = thread::spawn(move || run(receiver, seen));
    let send: Send = Arc::new(move |message| sender.send(message).unwrap_or_default());
    let end = Box::new(move || thread.join().unwrap());
    Receiver { name: name.into(), send, latencies, end, rounds: Vec::new() }
}

/// As in a server: the thread waits for its sockets too, and what waits for a result has a timeout.
fn tokio(place: Placement) -> Receiver {
    through_channel("tokio current_thread", move |mut receiver, latencies| {
        pin(place.receiver);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while let Ok(Some(message)) = tokio::time::timeout(PATIENCE, receiver.recv()).await {
                receive(message, &latencies);
            }
        });
    })
}

/// A thread that only ever waits for this channel: no socket, no timer, a futex to sleep on. Nothing that serves can be
/// so; it shows what the scheduler alone takes.
fn tokio_bare(place: Placement) -> Receiver {
    through_channel("tokio, channel alone", move |mut receiver, latencies| {
        pin(place.receiver);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            while let Some(message) = receiver.recv().await {
                receive(message, &latencies);
            }
        });
    })
}

fn glommio(place: Placement) -> Receiver {
    through_channel("glommio", move |mut receiver, latencies| {
        pin(place.receiver);
        let executor = glommio::LocalExecutorBuilder::default().make().unwrap();
        executor.run(async move {
            let mut wait = async || Ok(receiver.recv().await);
            while let Ok(Some(message)) = glommio::timer::timeout(PATIENCE, wait()).await {
                receive(message, &latencies);
            }
        });
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (probes, rounds) = (number(2_000), number(7));
    let place = arguments.next().unwrap_or_else(|| "apart".into());
    let loads = match arguments.next().as_deref() {
        None | Some("both") => vec![false, true],
        Some("idle") => vec![false],
        Some(_) => vec![true],
    };
    let name = arguments.next().unwrap_or_default();
    println!("{probes} probes a round, {rounds} rounds, threads placed: {place}");
    let place = Placement::named(&place);
    let makers = [shardlet, tokio, tokio_bare, glommio];
    let mut receivers: Vec<Receiver> = makers.into_iter().map(|make| make(place)).collect();
    receivers.retain(|receiver| receiver.name.contains(&name));
    pin(place.sender);
    for is_loaded in loads {
        let load = if is_loaded { "70 % load" } else { "idle" };
        for round in 1..=rounds {
            println!("{load}, round {round}");
            for receiver in &mut receivers {
                receiver.measure(probes, is_loaded, place.sender);
            }
        }
        println!("medians of the rounds:");
        receivers.iter_mut().for_each(|receiver| receiver.print_medians(load));
    }
    for Receiver { send, end, .. } in receivers {
        drop(send);
        end();
    }
}
