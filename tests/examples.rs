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

/// Runs an example that talks to itself and gives what it printed.
fn printed(name: &str) -> String {
    let ended = Launch::example(name, &[]).run_to_end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{name}: {}", ended.stdout);
    ended.stdout
}

fn assert_prints(name: &str, lines: &[&str]) {
    assert_eq!(printed(name).lines().collect::<Vec<_>>(), lines, "{name}");
}

#[test]
fn continuation_runs_the_handler_again() {
    assert_prints(
        "continuation",
        &[
            "resumed: true",
            "resume: (200, \"pass 2: the event\")",
            "expiry: (200, \"pass 2: expired\")",
            "resumed too late: false",
        ],
    );
}

#[test]
fn future_response_is_notified_or_times_out() {
    assert_prints(
        "future_response",
        &[
            "notified: true",
            "response: (200, \"shipped\")",
            "timeout: (504, \"nothing for order-8\")",
            "notified too late: false",
        ],
    );
}

#[test]
fn topics_wake_all_and_timeouts_are_vetoed_and_changed() {
    assert_prints(
        "suspend_resume_topics",
        &[
            "one message for each shard with waiters: true",
            "woken: 16",
            "veto: (200, \"timed out after 2 vetoes\")",
            "changed while suspended: true",
            "timeout: (200, \"the timeout was changed\")",
        ],
    );
}

#[test]
fn comet_events_come_with_their_reasons() {
    assert_prints(
        "comet_events",
        &[
            "Begin",
            "Read(\"hello\")",
            "Read(\"bye\")",
            "End(Session)",
            "Begin",
            "Error(ClientGone)",
            "Begin",
            "End(Shutdown)",
        ],
    );
}

#[test]
fn async_servlet_dispatches_and_fails_once() {
    assert_prints(
        "async_servlet",
        &[
            "dispatched: (200, \"42 rows, cycle 1\")",
            "failed: (500, \"sorry: the handler failed: the view has nothing to show\")",
            "filter /report, startAsync, filter /report, onComplete completed, filter /view, error filter",
        ],
    );
}

#[test]
fn serialized_executor_lets_either_win() {
    assert_prints(
        "serialized_executor",
        &[
            "the result first: (200, \"The answer is 42\")",
            "  ended: completed; the result was taken",
            "the timeout first: (502, \"Request timed out\")",
            "  ended: timed_out; the result was ignored: Ended(TimedOut)",
        ],
    );
}

#[test]
fn coordinators_of_every_kind() {
    assert_prints(
        "coordinator",
        &[
            "default: (200, \"served\")",
            "throttled: 200 200",
            "delayed close: [\"the handler's part\", \" ... and a late word\"]",
            "continue: HTTP/1.1 100, then \"ten bytes!\"",
            "refused: HTTP/1.1 417, then \"too much\"",
        ],
    );
}

#[test]
fn upload_form_reads_part_by_part() {
    assert_prints(
        "upload_form",
        &[
            "form: (200, \"[title = Summer][sea.png: 300000 bytes]\")",
            "cut off: 400",
            "no form: 415",
            "a long title: 413",
        ],
    );
}

#[test]
fn timeout_race_has_one_end_whoever_wins() {
    for _ in 0..5 {
        let line = printed("timeout_race");
        let expected = ["TIMEOUT", "COMPLETE"]
            .map(|winner| format!("terminal={winner} terminalTransitions=1 loserIgnored=true\n"));
        assert!(expected.contains(&line), "{line}");
    }
}

#[test]
fn async_lifecycle_releases_the_request_thread() {
    assert_prints(
        "async_lifecycle",
        &["requestThreadReleased=true events=[request-thread:startAsync, worker:complete] completed=true"],
    );
}

#[test]
fn hello_counts_on_its_shard() {
    let server = Launch::example("hello", &["127.0.0.1:0"]).start();
    let mut client = server.connect();
    for count in 1..=3 {
        let text = client.get("/hello/world").text().to_owned();
        assert!(text.starts_with(&format!("Hello world, {count} on ")), "{text}");
    }
    assert_eq!(client.get("/later").text(), "Hello, a little later\n");
}

#[test]
fn examples_are_short() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for entry in std::fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = std::fs::read_to_string(&path).expect("an example").lines().count();
            let most = if path.ends_with("hello.rs") { 80 } else { 120 };
            assert!(lines <= most, "{}: {lines} lines", path.display());
        }
    }
}
