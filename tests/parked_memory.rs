//! What a parked request takes of the process's memory beyond its idle connection. The whole process is counted: there
//! is one test in this file, and its client keeps nothing for a request either.

mod common;

use common::{DEADLINE, client::Client, wait_for};
use shardlet::{AsyncContext, Exchange, Result, Router, Server, ShutdownPlan, get};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{
    alloc::System,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// So many are parked: more than the tables' growth can hide.
const PARKED: usize = 1000;
/// glibc's malloc(3) puts a word before each piece and rounds up to two.
const ROUNDING: usize = 16;

/// What the process holds now, with the allocator's rounding.
fn held() -> usize {
    let stats = ALLOCATOR.stats();
    let pieces = stats.allocations - stats.deallocations;
    stats.bytes_allocated - stats.bytes_deallocated + pieces * ROUNDING
}

/// A clock of ten minutes and one closure that holds one word: what `/delay` of the demo does.
fn park(x: &mut Exchange) -> AsyncContext {
    let ms = 600_000;
    let context = x.start_async();
    x.set_timeout(Duration::from_millis(ms));
    x.on_timeout(move |x: &mut Exchange| -> Result<()> {
        x.write(format!("waited {ms} ms\n"))?;
        x.complete()
    });
    context
}

struct Parking {
    server: Server,
    parked: Arc<AtomicUsize>,
}

impl Parking {
    fn start() -> Self {
        let parked = Arc::new(AtomicUsize::new(0));
        let contexts = Arc::new(Mutex::new(Vec::with_capacity(PARKED)));
        let seen = parked.clone();
        let routes = move |_: &shards::Shard| {
            let (alone, held, contexts) = (seen.clone(), seen.clone(), contexts.clone());
            Router::new()
                .route("/plaintext", get(|x: &mut Exchange| x.write("Hello, World!")))
                .route("/alone", move |x: &mut Exchange| {
                    drop(park(x));
                    alone.fetch_add(1, Ordering::Relaxed);
                })
                .route("/held", move |x: &mut Exchange| {
                    contexts.lock().expect("no holder panics").push(park(x));
                    held.fetch_add(1, Ordering::Relaxed);
                })
        };
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let server = Server::builder().listen(any_port).shards(1).start(routes).expect("the server starts");
        Parking { server, parked }
    }

    fn address(&self) -> SocketAddr {
        self.server.address().tcp().expect("a TCP address")
    }

    /// Bytes that a request for `path` adds to a connection that has been answered once.
    fn bytes_each(&self, path: &str) -> usize {
        let mut clients: Vec<TcpStream> = (0..PARKED).map(|_| self.idle_connection()).collect();
        self.settle();
        let idle = held();
        let before = self.parked.load(Ordering::Relaxed);
        for client in &mut clients {
            write!(client, "GET {path} HTTP/1.1\r\nHost: parking\r\n\r\n").expect("send");
        }
        let all = before + PARKED;
        assert!(wait_for(DEADLINE, || self.parked.load(Ordering::Relaxed) == all), "all requests are parked");
        self.settle();
        held().saturating_sub(idle) / PARKED
    }

    fn idle_connection(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).expect("connect");
        stream.write_all(b"GET /plaintext HTTP/1.1\r\nHost: parking\r\n\r\n").expect("send");
        let (mut buffer, mut read) = ([0; 1024], 0);
        while !buffer[..read].ends_with(b"Hello, World!") {
            let count = stream.read(&mut buffer[read..]).expect("read");
            assert!(count > 0, "the connection ends");
            read += count;
        }
        stream
    }

    /// An answer of the one shard: what it was told before has been done.
    fn settle(&self) {
        drop(Client::connect(self.address()).get("/plaintext"));
    }
}

#[test]
fn d12_a_parked_request_takes_less_than_a_kibibyte() {
    let [alone, held] = ["/alone", "/held"].map(|path| {
        let parking = Parking::start();
        let bytes = parking.bytes_each(path);
        parking.server.shutdown(ShutdownPlan::now());
        bytes
    });
    println!("a parked request: {alone} bytes, {held} with a context that is held");
    assert!((300..=1024).contains(&alone), "{alone} bytes");
    assert!((300..=1024).contains(&held), "{held} bytes with a context that is held");
    assert!(alone < held, "a context that nobody holds is given up: {alone} and {held} bytes");
}
