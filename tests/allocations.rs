//! A synchronous request on a kept connection allocates nothing once everything is warm (D12). The whole process is
//! counted: there is one test in this file, and its client allocates nothing either.

use shardlet::{Exchange, Result, Router, Server, ShutdownPlan, get};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::{
    alloc::System,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REQUEST: &[u8] =
    b"GET /plaintext?x=1 HTTP/1.1\r\nHost: test\r\nUser-Agent: counting\r\nAccept: */*\r\n\r\n";

fn hello(x: &mut Exchange) -> Result<()> {
    x.response().set_content_type("text/plain")?;
    x.write("Hello, World!")
}

/// Asks and reads to the end of the answer.
fn ask(stream: &mut TcpStream, buffer: &mut [u8]) {
    stream.write_all(REQUEST).expect("send");
    let mut read = 0;
    while !buffer[..read].ends_with(b"Hello, World!") {
        let count = stream.read(&mut buffer[read..]).expect("read");
        assert!(count > 0, "the connection ends");
        read += count;
    }
    assert!(buffer.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[test]
fn d12_a_warm_request_allocates_nothing() {
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let routes = |_: &shards::Shard| Router::new().route("/plaintext", get(hello));
    let server = Server::builder().listen(any_port).shards(1).start(routes).expect("the server starts");
    let mut stream = TcpStream::connect(server.address().tcp().expect("a TCP address")).expect("connect");
    let mut buffer = [0; 4096];
    for _ in 0..500 {
        ask(&mut stream, &mut buffer);
    }
    let before = ALLOCATOR.stats();
    assert!(before.allocations > 0, "nothing is counted");
    const REQUESTS: usize = 1000;
    for _ in 0..REQUESTS {
        ask(&mut stream, &mut buffer);
    }
    let after = ALLOCATOR.stats() - before;
    assert_eq!((after.allocations, after.reallocations), (0, 0), "in {REQUESTS} requests: {after:?}");
    server.shutdown(ShutdownPlan::fast());
}
