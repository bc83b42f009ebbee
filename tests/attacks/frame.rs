//! The measuring frame: a server in this process, honest clients beside the attack, and what must be as before after it.

use super::common::{DEADLINE, client::Client, for_each_driver, process, wait_for};
use shardlet::{EndReason, Limits, Router, Server, ShutdownPlan, server::snapshots, stats::ShardSnapshot};
use shards::{DriverChoice, Shard, net::SocketAddress};
use std::{
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Whether the numbers and times of the table are wanted.
pub(crate) fn is_full() -> bool {
    std::env::var("SHARDLET_ATTACKS").is_ok_and(|value| value == "full")
}

/// The table's number, or the small one.
pub(crate) fn scale<T>(full: T, small: T) -> T {
    if is_full() { full } else { small }
}

/// The table's limits, or the same with times that a test can wait for.
pub(crate) fn limits() -> Limits {
    let short = Limits {
        head_timeout_ms: 1_000,
        body_grace_ms: 600,
        body_progress_window_ms: 600,
        write_progress_window_ms: 1_000,
        linger_timeout_ms: 300,
        ..Limits::DEFAULT
    };
    scale(Limits::DEFAULT, short)
}

/// What an attack is, with the milliseconds within which 99 of 100 honest clients are answered meanwhile, at the table's
/// numbers on two CPUs.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Peers that do nearly nothing.
    Slow = 50,
    /// Clients that take as much of the same CPUs as the server: some turns of the scheduler more than the table has.
    Flood = 250,
}

/// A server of two shards under attack.
pub(crate) struct Attacked {
    server: Option<Server>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// `uring` or `epoll`.
    pub(crate) driver: String,
}

/// What must be as it was.
struct Baseline {
    descriptors: usize,
    resident_kib: u64,
    timers: usize,
}

impl Attacked {
    fn start(
        driver: &str,
        limits: Limits,
        router: impl Fn(&Shard) -> Router + Send + Sync + 'static,
    ) -> Attacked {
        let choice = if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll };
        let listen: SocketAddress = "127.0.0.1:0".parse().expect("an address");
        let builder =
            Server::builder().listen(listen).shard_field("X-Shard").shards(2).driver(choice).limits(limits);
        let server = builder.start(router).expect("the server starts");
        let address = server.address().tcp().expect("a TCP address");
        Attacked { server: Some(server), address, driver: driver.to_owned() }
    }

    /// Every shard's counters.
    pub(crate) fn snapshots(&self) -> Vec<ShardSnapshot> {
        let (tell, told) = std::sync::mpsc::channel();
        let handle = &self.server.as_ref().expect("it runs").handles()[0];
        let asked = handle.send(tell, |shard, tell| {
            let own = shard.clone();
            shard.spawn(async move {
                let all = snapshots(&own).await;
                let _ = tell.send(all);
            });
        });
        assert!(asked.is_ok(), "the shard takes messages");
        told.recv_timeout(DEADLINE).expect("an answer")
    }

    /// How many exchanges have ended so.
    pub(crate) fn ended(&self, reason: EndReason) -> u64 {
        self.snapshots().iter().map(|shard| shard.life_cycle.ended(reason)).sum()
    }

    /// How many connections were cut for this reason.
    pub(crate) fn cut(&self, reason: &str) -> u64 {
        let all = self.snapshots();
        let cuts = all.iter().flat_map(|shard| shard.cuts().iter().filter(|(name, _)| *name == reason));
        cuts.map(|(_, count)| *count).sum()
    }

    fn baseline(&self) -> Baseline {
        let timers = self.snapshots().iter().map(|shard| shard.runtime.timers).sum();
        let own = std::process::id();
        Baseline { descriptors: process::descriptors(own), resident_kib: resident_kib(), timers }
    }

    /// Descriptors, timers, requests and memory are back; P2: every request has ended once.
    fn expect_rest(&self, before: &Baseline, slack_kib: u64) {
        let rest = || {
            let now = self.baseline();
            let all = self.snapshots();
            let quiet = all.iter().all(|shard| shard.connections() == 0 && shard.life_cycle.live == 0);
            quiet && now.descriptors <= before.descriptors && now.timers <= before.timers
        };
        assert!(wait_for(DEADLINE, rest), "left over: {:?}", self.snapshots());
        for shard in self.snapshots() {
            let ends: u64 = EndReason::ALL.iter().map(|reason| shard.life_cycle.ended(*reason)).sum();
            assert_eq!(ends, shard.life_cycle.started);
            assert_eq!(shard.runtime.panics, 0);
        }
        let grown = resident_kib().saturating_sub(before.resident_kib);
        println!("  {}: {grown} KiB more than before the attack", self.driver);
        assert!(grown <= slack_kib + before.resident_kib / 10, "{grown} KiB stay");
    }
}

impl Drop for Attacked {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(ShutdownPlan::now());
        }
    }
}

/// Memory of this process, which is the server's and hardly anything else.
pub(crate) fn resident_kib() -> u64 {
    process::resident_kib(std::process::id())
}

/// One at a time: memory and descriptors are those of the whole process. Held from a test's first line to its last.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the attack in the frame, on both drivers. `/plain` must be a route; `slack_kib` is what an allocator may keep of
/// what the attack needed, beside a tenth.
pub(crate) fn under_attack(
    (name, kind): (&str, Kind),
    router: impl Fn(&Shard) -> Router + Clone + Send + Sync + 'static,
    slack_kib: u64,
    attack: impl Fn(&Attacked),
) {
    for_each_driver(|driver| {
        // A flood is no test of time limits, whatever the machine does.
        let limits = if matches!(kind, Kind::Flood) { Limits::DEFAULT } else { limits() };
        let server = Attacked::start(driver, limits, router.clone());
        drop(one_on_each(server.address));
        let quiet = || server.snapshots().iter().all(|shard| shard.connections() == 0);
        assert!(wait_for(DEADLINE, quiet), "the first clients stay");
        let before = server.baseline();
        let over = AtomicBool::new(false);
        println!("{name}, {driver}:");
        thread::scope(|scope| {
            let _end = End(&over);
            let honest = scope.spawn(|| honest(server.address, &over));
            attack(&server);
            over.store(true, Ordering::Relaxed);
            let longest = server.snapshots().iter().map(|shard| shard.runtime.longest_turn).max();
            println!("  longest turn of a loop {:.1?}", longest.unwrap_or_default());
            report(kind, &honest.join().expect("the honest clients are answered"));
        });
        server.expect_rest(&before, slack_kib);
    });
}

/// Ends the honest clients, also if the attack fails its test.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A connection on each of the two shards.
fn one_on_each(address: SocketAddr) -> [Client; 2] {
    let mut found = [None, None];
    let all = wait_for(DEADLINE, || {
        let mut client = Client::connect(address);
        let answer = client.get("/plain");
        let shard = answer.field("x-shard").and_then(|text| text.parse::<usize>().ok());
        found[shard.expect("a shard's number")] = Some(client);
        found.iter().all(Option::is_some)
    });
    assert!(all, "one shard gets every connection");
    found.map(|client| client.expect("found"))
}

/// 50 requests a second on each shard, open loop: how long each answer took from when it was due. Five connections share
/// them, so that one slow answer does not make the next ones late.
fn honest(address: SocketAddr, over: &AtomicBool) -> [Vec<Duration>; 2] {
    let mut took = [Vec::new(), Vec::new()];
    thread::scope(|scope| {
        let mut asking = Vec::new();
        for offset in 0..5 {
            for (shard, client) in one_on_each(address).into_iter().enumerate() {
                let offset = Duration::from_millis(20) * offset;
                asking.push((shard, scope.spawn(move || ask_steadily(client, offset, over))));
            }
        }
        for (shard, asking) in asking {
            took[shard].extend(asking.join().expect("answered"));
        }
    });
    took
}

/// Ten requests a second on one connection.
fn ask_steadily(mut client: Client, offset: Duration, over: &AtomicBool) -> Vec<Duration> {
    let (mut took, start) = (Vec::new(), Instant::now());
    for number in 0.. {
        let due = offset + Duration::from_millis(100) * number;
        thread::sleep(due.saturating_sub(start.elapsed()));
        if over.load(Ordering::Relaxed) && number > 0 {
            break;
        }
        assert_eq!(client.get("/plain").status, 200);
        took.push(start.elapsed().saturating_sub(due));
    }
    took
}

fn report(kind: Kind, shards: &[Vec<Duration>; 2]) {
    for (shard, took) in shards.iter().enumerate() {
        let mut sorted = took.clone();
        sorted.sort_unstable();
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
        println!(
            "  honest client on shard {shard}: {} answers, p50 {p50:.1?}, p99 {p99:.1?}, most {most:.1?}",
            took.len()
        );
        let bound = scale(Duration::from_millis(kind as u64), Duration::from_secs(5));
        assert!(p99 <= bound, "p99 {p99:?} on shard {shard}");
    }
}

/// Connects from an address of its own, so that no number of clients uses up the ports.
pub(crate) fn connect_from(last: u8, to: SocketAddr) -> std::io::Result<std::net::TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// The routes that attacks ask for.
pub(crate) fn router(_: &Shard) -> Router {
    use shardlet::{Exchange, Result, asynchronous, get, post};
    let echo = asynchronous(async |x: &mut Exchange| -> Result<()> {
        while let Some(chunk) = x.next_chunk().await? {
            x.write(chunk)?;
            x.write_ready().await?;
        }
        Ok(())
    });
    Router::new().route("/plain", get(|x: &mut Exchange| x.write("plain"))).route("/echo", post(echo))
}

/// Waits at most so long, beside what the machine takes.
pub(crate) fn patience(limit_ms: u64) -> Duration {
    Duration::from_millis(limit_ms) + DEADLINE
}
