//! CONNECT on real sockets, on both drivers: a tunnel to an upstream, its ends, and what is no tunnel.

mod common;

use common::{DEADLINE, Launch, client::Client, for_each_router};
use shardlet::{Exchange, Result, Router, StatusCode, asynchronous, relay};
use shards::net::{SocketAddress, Stream};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread::{self, JoinHandle},
};

/// A proxy to wherever the client wants to go.
fn router() -> Router {
    Router::new().connect(asynchronous(async |x: &mut Exchange| -> Result<()> {
        let target: SocketAddress = x.request().target().parse().expect("the tests name addresses");
        let Ok(upstream) = Stream::connect(&target).await else {
            x.response().set_status(StatusCode::BAD_GATEWAY);
            return x.write("nobody there");
        };
        x.open_tunnel()?;
        relay(x, &upstream).await.map(drop)
    }))
}

/// A server that does this with its one connection.
fn upstream<R: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> (SocketAddr, JoinHandle<R>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("an address");
    let serving = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(DEADLINE)).expect("a deadline");
        stream.set_write_timeout(Some(DEADLINE)).expect("a deadline");
        serve(stream)
    });
    (address, serving)
}

fn ask(target: SocketAddr) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n")
}

fn numbered(count: u32) -> Vec<u8> {
    (0..count).map(|number| (number % 251) as u8).collect()
}

/// Five megabytes each way at once, the first of them in one segment with the request; the client's FIN reaches the
/// upstream, whose last words still come back.
#[test]
fn a_connect_tunnel_carries_both_ways() {
    for_each_router(router, |proxy| {
        let sent = numbered(5_000_000);
        let (address, serving) = upstream(|mut stream| {
            let mut all = Vec::new();
            let mut back = stream.try_clone().expect("a second handle");
            let talking = thread::spawn(move || back.write_all(&numbered(5_000_000)).expect("send"));
            stream.read_to_end(&mut all).expect("to the half close");
            talking.join().expect("sent");
            stream.write_all(b"goodbye").expect("send");
            all
        });
        let mut client = Client::connect(proxy);
        let mut writer = client.stream().try_clone().expect("a second handle");
        let all = [ask(address).as_bytes(), &sent].concat();
        let sender = thread::spawn(move || {
            writer.write_all(&all).expect("send");
            writer.shutdown(Shutdown::Write).expect("half close");
        });
        let head = client.take_until(b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", head.escape_ascii());
        assert!(client.read_exact(sent.len()) == sent, "the upstream's bytes as they were");
        assert_eq!(client.read_until_close(), b"goodbye");
        sender.join().expect("sent");
        assert!(serving.join().expect("served") == sent, "the client's bytes as they were");
    });
}

/// RFC 9110 §9.3.6: whichever side ends, the other is told, and what was under way arrives.
#[test]
fn the_upstreams_end_is_the_tunnels() {
    for_each_router(router, |proxy| {
        let (address, serving) = upstream(|mut stream| stream.write_all(b"all I have").expect("send"));
        let mut client = Client::connect(proxy);
        client.send(ask(address));
        client.take_until(b"\r\n\r\n");
        assert_eq!(client.read_until_close(), b"all I have");
        serving.join().expect("served");
    });
}

/// A client that is gone is the upstream's end.
#[test]
fn a_client_that_leaves_takes_its_upstream_along() {
    for_each_router(router, |proxy| {
        let (address, serving) = upstream(|mut stream| stream.read_to_end(&mut Vec::new()).is_ok());
        let mut client = Client::connect(proxy);
        client.send(ask(address));
        client.take_until(b"\r\n\r\n");
        client.send("some");
        drop(client);
        let _ = serving.join().expect("the upstream hears of it");
    });
}

/// What follows a refused CONNECT is never read as a request (RFC 9931).
#[test]
fn a_refusal_ends_the_connection() {
    for_each_router(router, |proxy| {
        let free = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("an address");
        for more in ["", "GET / HTTP/1.1\r\nHost: t\r\n\r\n"] {
            let mut client = Client::connect(proxy);
            client.send(format!("{}{more}", ask(free)));
            let response = client.read_response();
            assert_eq!((response.status, response.text()), (502, "nobody there"));
            assert_eq!(response.field("connection"), Some("close"));
            assert!(client.read_until_close().is_empty());
        }
    });
}

/// Request, bytes and FIN in one go: all of it arrives, although the tunnel opens only behind the FIN.
#[test]
fn the_example_carries_what_came_with_the_request_and_a_fin() {
    let (address, serving) = upstream(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("to the half close");
        stream.write_all(b"goodbye").expect("send");
        bytes
    });
    let proxy = Launch::example("connect_proxy", &["127.0.0.1:0", &address.to_string()]).start();
    let mut client = proxy.connect();
    client.send(format!("{}hello", ask(address)));
    client.stream().shutdown(Shutdown::Write).expect("half close");
    let head = client.take_until(b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", head.escape_ascii());
    assert_eq!(client.read_until_close(), b"goodbye");
    assert_eq!(serving.join().expect("served"), b"hello");
}

/// The example: where it may go it goes, by name and by address; anywhere else not.
#[test]
fn the_example_lets_through_what_is_on_its_list() {
    let (address, serving) = upstream(|mut stream| {
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).expect("five bytes");
        stream.write_all(&bytes).expect("send");
    });
    let named = format!("localhost:{}", address.port());
    let proxy = Launch::example("connect_proxy", &["127.0.0.1:0", &named]).start();
    let mut client = proxy.connect();
    client.send(ask(address));
    assert_eq!(client.read_response().status, 403, "the address is not what the list names");
    let mut client = proxy.connect();
    client.send(format!("CONNECT {named} HTTP/1.1\r\nHost: {named}\r\n\r\nhello"));
    let head = client.take_until(b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", head.escape_ascii());
    assert_eq!(client.read_until_close(), b"hello");
    serving.join().expect("served");
    assert!(common::wait_for(DEADLINE, || proxy.stdout().contains("5 bytes forth, 5 bytes back")));
}
