//! The race storm: work and timeout a millisecond apart, clients that leave at any byte. Each request gets exactly one
//! answer, never a mixture of two, the sums are right, and nothing is left behind.
//!
//! `SHARDLET_RACES=1000000` sets how many on each driver (default 10,000), `SHARDLET_SEED=N` replays the clients' choices.

mod common;

use common::{DEADLINE, client::Client, library::each_driver, wait_for};
use shardlet::{Server, ShutdownPlan, handlers::demo};
use shards::DriverChoice;
use std::{
    env, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

/// Requests on their way at once on a connection.
const BATCH: u64 = 8;
const CLIENTS: u64 = 8;

/// How the races ended, as the clients saw it.
#[derive(Default)]
struct Seen {
    results: AtomicU64,
    timeouts: AtomicU64,
    left: AtomicU64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A batch of races, with the timeout of each.
fn batch(random: &mut Random) -> (String, Vec<u64>) {
    let (mut requests, mut timeouts) = (String::new(), Vec::new());
    for _ in 0..BATCH {
        let work = 1 + random.below(3);
        let timeout = (work + 1).saturating_sub(random.below(3)).max(1);
        requests.push_str(&format!("GET /race?work={work}&timeout={timeout} HTTP/1.1\r\nHost: a\r\n\r\n"));
        timeouts.push(timeout);
    }
    (requests, timeouts)
}

/// Sends a part of a batch, reads a part of the answers, and is gone.
fn leave(to: SocketAddr, random: &mut Random, requests: &str) {
    let mut stream = TcpStream::connect(to).expect("connect");
    let sent = random.below(requests.len() as u64 + 1) as usize;
    stream.write_all(&requests.as_bytes()[..sent]).expect("send");
    let mut answer = vec![0; random.below(300) as usize];
    if sent == requests.len() && random.below(2) == 0 {
        // Whatever has come by then: the server may cut it off as well.
        let _ = stream.read(&mut answer);
    }
}

fn storm(to: SocketAddr, rounds: u64, mut random: Random, seen: &Seen) {
    let mut client = Client::connect(to);
    for round in 0..rounds {
        // A connection ends after so many requests (`requests_per_connection_max`).
        if round % 1000 == 999 {
            client = Client::connect(to);
        }
        let (requests, timeouts) = batch(&mut random);
        if random.below(8) == 0 {
            leave(to, &mut random, &requests);
            seen.left.fetch_add(1, Relaxed);
            continue;
        }
        client.send(&requests);
        for timeout in timeouts {
            let answer = client.read_response();
            match (answer.status, answer.text()) {
                (200, "The answer is 42\n") => seen.results.fetch_add(1, Relaxed),
                (502, text) if text == format!("Request timed out after {timeout}ms\n") => {
                    seen.timeouts.fetch_add(1, Relaxed)
                }
                (status, text) => panic!("a mixed answer: {status} {text:?}"),
            };
        }
    }
    client.finish();
    assert_eq!(client.read_until_close(), b"", "an answer too many");
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("the descriptors").count()
}

fn stats(to: SocketAddr) -> serde_json::Value {
    serde_json::from_str(Client::connect(to).get("/stats").text()).expect("JSON")
}

#[test]
fn each_race_has_one_answer_and_one_end() {
    let (races, seed) = (number("SHARDLET_RACES", 10_000), number("SHARDLET_SEED", 0x5EED));
    println!("replay with SHARDLET_RACES={races} SHARDLET_SEED={seed}");
    each_driver(|driver| race(driver, races, seed));
}

fn race(driver: DriverChoice, races: u64, seed: u64) {
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let builder = Server::builder().listen(any_port).shards(2).driver(driver);
    let server = builder.start(demo::router()).expect("the server starts");
    let address = server.address().tcp().expect("a TCP address");
    // Everything that is made once has been made.
    assert!(matches!(Client::connect(address).get("/race?work=1&timeout=100").status, 200 | 502));
    let (before, seen) = (descriptors(), Seen::default());
    let rounds = races.div_ceil(BATCH * CLIENTS);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (seen, random) = (&seen, Random((seed + number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            scope.spawn(move || storm(address, rounds, random, seen));
        }
    });
    let calm = wait_for(DEADLINE, || stats(address)["live"] == 1);
    let stats = stats(address);
    assert!(calm, "exchanges are left: {stats}");
    let ends: u64 = stats["ends"].as_object().expect("ends").values().filter_map(|n| n.as_u64()).sum();
    assert_eq!(ends + 1, stats["started"].as_u64().expect("a number"), "{stats}");
    assert_eq!(
        (&stats["executor"]["queued"], &stats["executor"]["active"]),
        (&0.into(), &0.into()),
        "{stats}"
    );
    assert_eq!((&stats["panics"], &stats["async_active"]), (&0.into(), &1.into()), "{stats}");
    let flat = wait_for(DEADLINE, || descriptors() <= before);
    assert!(flat, "{} descriptors, {before} before", descriptors());
    let (results, timeouts) = (seen.results.load(Relaxed), seen.timeouts.load(Relaxed));
    println!(
        "{results} results, {timeouts} timeouts, {} clients left; ends: {}",
        seen.left.load(Relaxed),
        stats["ends"]
    );
    assert!(races < 1000 || (results > 0 && timeouts > 0), "only one side ever wins: no race");
    server.shutdown(ShutdownPlan::fast());
}
