//! The examples do what they say, from outside, as a reader would try them.

mod common;

use common::{Launch, client::Client, confine::IO_URING_DENIALS};
use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

#[test]
fn shards_counter_comes_out_exact() {
    let ended = Launch::example("shards_counter", &[]).run_to_end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert_eq!(
        ended.stdout.lines().filter(|line| line.ends_with("counted 10000")).count(),
        2,
        "{}",
        ended.stdout
    );
}

#[test]
fn tcp_echo_gives_back_and_finishes() {
    let server = Launch::example("tcp_echo", &["127.0.0.1:0"]).start();
    let payload: Vec<u8> = (0..200_000_u32).map(|number| (number * 31) as u8).collect();
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"hello");
        assert_eq!(client.read_exact(5), b"hello");
    }
    for mut client in clients {
        client.send(&payload);
        client.finish();
        assert!(client.read_until_close() == payload, "the echo is not what was sent");
    }
}

/// Wherever io_uring is forbidden, by one call or all, the runtime falls back to epoll and works.
#[test]
fn tcp_echo_works_under_every_filter() {
    for denied in IO_URING_DENIALS {
        let server = Launch::example("tcp_echo", &["127.0.0.1:0"]).deny(denied).start();
        let mut client = server.connect();
        client.send(b"hello");
        assert_eq!(client.read_exact(5), b"hello", "without {denied:?}");
        let open = common::process::descriptor_targets(server.pid());
        assert!(!open.iter().any(|target| target.contains("io_uring")), "a ring is open: {open:?}");
    }
}

#[test]
fn tcp_proxy_relays_both_ways_with_half_close() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = upstream.local_addr().expect("address").to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = upstream.accept().expect("accept");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read to the half close");
        all.reverse();
        stream.write_all(&all).expect("answer");
    });
    let proxy = Launch::example("tcp_proxy", &["127.0.0.1:0", &address]).start();
    let mut client = proxy.connect();
    client.send(b"abc");
    client.finish();
    assert_eq!(client.read_until_close(), b"cba");
    answering.join().expect("upstream");
    assert!(common::wait_for(common::DEADLINE, || proxy.stdout().contains("3 bytes forth, 3 bytes back")));
}

#[test]
fn tcp_proxy_without_upstream_resets() {
    let free = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address").to_string();
    let proxy = Launch::example("tcp_proxy", &["127.0.0.1:0", &free]).start();
    assert_eq!(proxy.connect().read_until_close(), b"");
    assert!(common::wait_for(common::DEADLINE, || proxy.stderr().contains(&free)), "{}", proxy.stderr());
}
