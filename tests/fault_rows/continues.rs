//! `Expect: 100-continue` (L-17): what the 100 is, when it is sent, and what comes behind a refusal.

use crate::{
    common::{
        DEADLINE,
        library::{Local, each_driver},
        wait_for,
    },
    request,
};
use shardlet::{Coordinator, Exchange, Limits, Result, Router, StatusCode, post};
use std::time::{Duration, Instant};

/// Refuses with this status, before anything is read.
struct Refuses(u16);

impl Coordinator for Refuses {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        assert!(x.expects_continue());
        x.response().set_status(StatusCode::from_u16(self.0).expect("a status"));
        x.response().set_header("X-Refused", "before the content")?;
        x.complete()
    }
}

/// Says yes three times, and has a field of its own in the answer.
struct Eager;

impl Coordinator for Eager {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        x.response().set_header("X-Eager", "yes")?;
        assert!(x.send_continue());
        assert!(!x.send_continue() && !x.send_continue());
        x.service()
    }
}

fn router() -> Router {
    let never = |x: &mut Exchange| write!(x, "never");
    Router::new()
        .route("/401", post(never))
        .coordinate("/401", || Refuses(401))
        .route("/417", post(never))
        .coordinate("/417", || Refuses(417))
        .route(
            "/eager",
            post(|x: &mut Exchange| {
                x.take_body().len().checked_sub(5).map_or(x.write("short"), |_| x.write("whole"))
            }),
        )
        .coordinate("/eager", || Eager)
        .route_with("/buffered", post(never), |route| {
            route.buffer_body(1000);
        })
        .route("/unread", post(|x: &mut Exchange| write!(x, "not read")))
        .route("/smuggled", |x: &mut Exchange| write!(x, "smuggled"))
}

const LINGER: Duration = Duration::from_millis(300);

fn limits() -> Limits {
    Limits { linger_timeout_ms: LINGER.as_millis() as u64, ..Limits::DEFAULT }
}

fn expecting(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
}

/// What the client does behind a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Silence,
    /// The content, which looks like a request.
    Content,
    /// Content without an end.
    Flood,
}

/// RFC 9110 §10.1.1, RFC 9112 §9.6: the final answer says close, and the close comes, whatever the client does: at the
/// latest when the linger's time or its bytes are used up. Content is never read as a request.
#[test]
fn fault_67_fault_68_a_refusal_closes_within_the_lingers_bound() {
    each_driver(|driver| {
        let server = Local::with_limits(driver, limits(), |_| router());
        let mut refused = 0;
        for status in [401, 417] {
            for behind in [Behind::Silence, Behind::Content, Behind::Flood] {
                let smuggled = request("/smuggled");
                let length = if behind == Behind::Flood { 1 << 20 } else { smuggled.len() };
                let mut client = server.connect();
                client.send(expecting(&format!("/{status}"), length));
                let answer = client.read_response();
                refused += 1;
                let (close, field) = (answer.field("connection"), answer.field("x-refused"));
                assert_eq!(
                    (answer.status, close, field),
                    (status, Some("close"), Some("before the content"))
                );
                let began = Instant::now();
                match behind {
                    Behind::Silence => {}
                    Behind::Content => drop(client.send_if_open(&smuggled)),
                    // The peer that is not read cannot go on for ever: some 8 MiB fit into the sockets.
                    Behind::Flood => assert!((0..1000).any(|_| !client.send_if_open(vec![b'x'; 64 * 1024]))),
                }
                assert_eq!(client.read_until_close(), b"", "{status} {behind:?}: one answer");
                let gone = wait_for(DEADLINE, || server.connections() == 0);
                assert!(
                    gone,
                    "{status} {behind:?}: the connection is still there {:?} later",
                    began.elapsed()
                );
                let counters = server.counters();
                let counted = (counters.started, counters.continues_refused, counters.continues_sent);
                assert_eq!(counted, (refused, refused, 0), "{status} {behind:?}");
            }
        }
        server.expect_rest();
    });
}

/// Silent and open, the connection does not outlive the linger by much, and not before it is over is it cut.
#[test]
fn fault_67_the_close_waits_no_longer_than_the_linger() {
    each_driver(|driver| {
        let server = Local::with_limits(driver, limits(), |_| router());
        let mut client = server.connect();
        client.send(expecting("/401", 5));
        assert_eq!(client.read_response().status, 401);
        let began = Instant::now();
        assert_eq!(client.read_until_close(), b"");
        // Our side stays open: the server must give up by itself.
        assert!(wait_for(DEADLINE, || server.connections() == 0), "it waits for the content");
        assert!(began.elapsed() < 20 * LINGER, "{:?}", began.elapsed());
        drop(client);
        server.expect_rest();
    });
}

/// A final answer without a 100 to a handler that never looked: the client may send its content or not, so the
/// connection ends (RFC 9110 §10.1.1).
#[test]
fn fault_67_an_answer_without_a_100_closes_too() {
    each_driver(|driver| {
        let server = Local::with_limits(driver, limits(), |_| router());
        let mut client = server.connect();
        client.send(expecting("/unread", request("/smuggled").len()));
        let first = client.read_response();
        // A route without a coordinator has the default one, which says yes.
        let answer = if first.status == 100 { client.read_response() } else { first };
        assert_eq!(answer.text(), "not read");
        client.send_if_open(request("/smuggled"));
        if answer.field("connection") == Some("close") {
            assert_eq!(client.read_until_close(), b"");
        }
        assert_eq!(server.counters().started, 1, "the content is no request");
        drop(client);
        server.expect_rest();
    });
}

#[test]
fn fault_68_a_second_continue_does_nothing_and_is_counted() {
    each_driver(|driver| {
        let server = Local::start(driver, |_| router());
        let mut client = server.connect();
        for round in 1..=20 {
            client.send(expecting("/eager", 5));
            assert_eq!(client.take_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n", "round {round}");
            client.send("hello");
            let answer = client.read_response();
            assert_eq!(
                (answer.status, answer.field("x-eager")),
                (200, Some("yes")),
                "round {round}: one 100"
            );
            let counters = server.counters();
            assert_eq!((counters.continues_sent, counters.continues_ignored), (round, 2 * round));
        }
        drop(client);
        server.expect_rest();
    });
}

/// RFC 9110 §15.2.1: the 100 is its status line; the fields are those of the final answer. What no route takes, or not
/// with this method, is refused without one.
#[test]
fn fault_70_the_100_is_bare_and_comes_behind_routing() {
    each_driver(|driver| {
        let server = Local::start(driver, |_| router());
        let mut client = server.connect();
        client.send(expecting("/eager", 5));
        // The server's own fields (Date, Server, X-Shard) and the application's are in the final answer alone.
        assert_eq!(client.take_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello");
        let answer = client.read_response();
        for name in ["date", "server", "x-shard", "x-eager"] {
            assert!(answer.field(name).is_some(), "{name}: {:?}", answer.fields);
        }
        for (path, status) in [("/nowhere", 404), ("/smuggled/below", 404)] {
            let mut client = server.connect();
            client.send(expecting(path, 5));
            assert_eq!(client.read_response().status, status, "{path}: refused without a 100");
        }
        for path in ["/eager", "/buffered"] {
            let mut client = server.connect();
            client.send(expecting(path, 5).replace("POST", "PUT"));
            let refused = client.read_response();
            assert_eq!(
                (refused.status, refused.field("allow").is_some()),
                (405, true),
                "{path}: without a 100"
            );
        }
        drop(client);
        server.expect_rest();
    });
}
