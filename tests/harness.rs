//! The harness tests itself: a client that cannot see an error proves nothing about a server.

mod common;

use common::{
    DEADLINE, Launch,
    client::Client,
    confine::{Confinement, IO_URING_SETUP},
    process, wait_for,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    panic::catch_unwind,
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

/// A server that answers the first bytes of one connection with these and closes.
fn answer_once(bytes: &'static [u8]) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let _ = stream.read(&mut [0; 1024]).expect("read");
        stream.write_all(bytes).expect("write");
    });
    (address, thread)
}

#[test]
fn client_reads_length_chunks_and_close() {
    let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n\
        HTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.1 404 Not Found\r\nX-A: b\r\n\r\nto the end";
    let (address, thread) = answer_once(wire);
    let mut client = Client::connect(address);
    assert_eq!(client.get("/").text(), "hi");
    assert_eq!(client.read_response().text(), "abcd");
    assert_eq!(client.read_response().status, 204);
    let last = client.read_response();
    assert_eq!((last.status, last.field("x-a"), last.text()), (404, Some("b"), "to the end"));
    thread.join().expect("server");
}

#[test]
fn client_refuses_what_is_not_http() {
    for wire in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad name: x\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"junk\r\n\r\n",
    ] {
        let (address, thread) = answer_once(wire);
        let outcome = catch_unwind(|| Client::connect(address).get("/"));
        assert!(outcome.is_err(), "taken: {}", String::from_utf8_lossy(wire));
        thread.join().expect("server");
    }
}

#[test]
fn silence_is_told_from_an_answer() {
    let (address, thread) = answer_once(b"x");
    let mut client = Client::connect(address);
    client.expect_silence(Duration::from_millis(20));
    client.send("go");
    let talk = catch_unwind(std::panic::AssertUnwindSafe(|| client.expect_silence(DEADLINE)));
    assert!(talk.is_err(), "a byte came and was called silence");
    thread.join().expect("server");
}

#[test]
fn process_is_seen_from_outside() {
    let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("sleep");
    let pid = child.id();
    assert!(wait_for(DEADLINE, || process::descriptors(pid) >= 3));
    assert!(process::threads(pid) == 1 && process::resident_kib(pid) > 0);
    assert!(process::cpu_time(pid) < Duration::from_secs(5));
    assert!(!process::descriptor_targets(pid).is_empty());
    child.kill().expect("kill");
    child.wait().expect("reap");

    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    assert_eq!(process::tcp_states(address).get("LISTEN"), Some(&1));
}

#[test]
fn confinement_confines() {
    let limited = Confinement { descriptors: Some(64), locked_kib: Some(8), ..Confinement::default() };
    let mut command = limited.command("sh");
    command.args(["-c", "ulimit -n; ulimit -l"]).stdout(Stdio::piped());
    let output = limited.spawn(command).wait_with_output().expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "64\n8\n");

    let denied = Confinement { denied: vec![IO_URING_SETUP], ..Confinement::default() };
    let mut command = denied.command("cat");
    command.arg("/proc/self/status").stdout(Stdio::piped());
    let output = denied.spawn(command).wait_with_output().expect("output");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Seccomp:\t2"), "no filter in the child");
    let mine = std::fs::read_to_string("/proc/thread-self/status").expect("status");
    assert!(!mine.contains("Seccomp:\t2"), "the filter stayed in the test's own thread");
}

#[test]
fn wrong_usage_ends_with_two_and_one_line() {
    for line in [&["demo", "--driver", "kqueue"][..], &["proxy"], &["serve"], &["respond", "--status", "99"]]
    {
        let ended = Launch::new(line.iter().copied()).run_to_end();
        assert_eq!(ended.code, Some(2), "{line:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{line:?}: {ended:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.starts_with("shardlet: "), "{line:?}: {ended:?}");
    }
}
