//! What the examples share: a server on any loopback port and a client that asks it over a real socket.

#![allow(dead_code, unreachable_pub, reason = "each example uses its own part")]

use shardlet::{Router, Server};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Starts a server with so many shards.
pub fn serve(
    shards: usize,
    routes: impl Fn(&shards::Shard) -> Router + Send + Sync + 'static,
) -> (Server, SocketAddr) {
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let server = Server::builder().listen(any_port).shards(shards).start(routes).expect("the server starts");
    let address = server.address().tcp().expect("a TCP address");
    (server, address)
}

/// Sends bytes on a connection of their own.
pub fn send(to: SocketAddr, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).expect("connect");
    stream.write_all(bytes.as_bytes()).expect("send");
    stream
}

/// Reads to the end: status code and body.
pub fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut all = String::new();
    stream.read_to_string(&mut all).expect("an answer to its end");
    let status = all.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a status line");
    let body = all.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.trim_end().to_owned())
}

/// Begins to ask and does not wait.
pub fn begin(to: SocketAddr, path: &str) -> TcpStream {
    send(to, &format!("GET {path} HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n"))
}

/// Asks and waits for the answer.
pub fn ask(to: SocketAddr, path: &str) -> (u16, String) {
    answer(begin(to, path))
}

/// Waits for something that another thread does.
pub fn until(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "it never happened");
        std::thread::sleep(Duration::from_millis(1));
    }
}
