//! `shardlet bench` against servers that do not keep the rules, over real sockets and on both drivers: each failure is
//! counted under its kind, every request that was due is accounted for once, and the tool ends in its time. The same
//! habits in simulated time, with reuse and without: `src/load/client/tests.rs`.

mod common;

use common::{Launch, for_each_driver};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

const RATE: u64 = 100;
/// `RATE` × 0.4 s.
const DUE: u64 = 40;
/// A run of 0.4 s, a timeout of 0.3 s, and a loaded machine.
const LONGEST: Duration = Duration::from_secs(15);

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// What a server does with one connection, and what the tool must say of it.
struct Case {
    name: &'static str,
    /// Runs on each connection, from its start.
    habit: fn(&mut TcpStream),
    /// The only kind of error; none for answers that are right.
    kind: Option<&'static str>,
    /// Beside `--rate`, `--time` and the like.
    flags: &'static [&'static str],
}

const fn case(name: &'static str, kind: Option<&'static str>, habit: fn(&mut TcpStream)) -> Case {
    Case { name, habit, kind, flags: &[] }
}

/// The next request's head; false at the end of the connection.
fn request(stream: &mut TcpStream) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Sends these bytes for each request.
fn answer_each(stream: &mut TcpStream, answer: &[u8]) {
    while request(stream) && stream.write_all(answer).is_ok() {}
}

/// Sends these bytes for the first request, and closes: all that was sent is read before, so that it is no reset.
fn answer_once(stream: &mut TcpStream, answer: &[u8]) {
    if request(stream) {
        let _ = stream.write_all(answer);
    }
}

/// Sends these bytes for the first request, then this piece again and again, until nobody takes it.
fn answer_without_end(stream: &mut TcpStream, answer: &[u8], piece: &[u8], pause: Duration) {
    let mut sent = request(stream) && stream.write_all(answer).is_ok();
    while sent {
        sent = stream.write_all(piece).is_ok();
        thread::sleep(pause);
    }
}

fn hold(stream: &mut TcpStream) {
    // Until the tool gives up on the connection.
    let _ = stream.read_to_end(&mut Vec::new());
}

const MILLISECOND: Duration = Duration::from_millis(1);

const CLOSES: &[Case] = &[
    case("closes before an answer", Some("closed"), |stream| answer_once(stream, b"")),
    case("closes within the status line", Some("short_body"), |stream| answer_once(stream, b"HTTP/1.1 2")),
    case("closes within a field", Some("short_body"), |stream| {
        answer_once(stream, b"HTTP/1.1 200 OK\r\ncont");
    }),
    case("closes behind the head", Some("short_body"), |stream| {
        answer_once(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
    }),
    case("closes within a body", Some("short_body"), |stream| {
        answer_once(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    }),
    case("closes within a chunk", Some("short_body"), |stream| {
        answer_once(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal");
    }),
    case("closes before the last chunk", Some("short_body"), |stream| {
        answer_once(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n");
    }),
    case("resets before an answer", Some("reset"), |stream| {
        request(stream);
        reset(stream);
    }),
    case("resets within a body", Some("reset"), |stream| {
        answer_once(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
        reset(stream);
    }),
];

/// Closing with this set sends RST (socket(7), SO_LINGER).
fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).expect("a socket takes it");
}

const GARBAGE: &[Case] = &[
    case("greets in another protocol", Some("bad_framing"), |stream| {
        answer_each(stream, b"SSH-2.0-OpenSSH_9.9\r\n");
    }),
    // TLS alert "unexpected message": what a TLS server says to plain HTTP.
    case("speaks TLS", Some("bad_framing"), |stream| answer_each(stream, b"\x15\x03\x01\x00\x02\x02\x0a")),
    case("sends zeros", Some("bad_framing"), |stream| answer_each(stream, &[0; 4_096])),
    case("counts a length in letters", Some("bad_framing"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ncontent-length: two\r\n\r\nok");
    }),
    case("has two lengths", Some("bad_framing"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok");
    }),
    case("has a length beyond any", Some("bad_framing"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok");
    }),
    case("has a chunk beyond any", Some("bad_framing"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\nok");
    }),
    case("has a chunk size in letters", Some("bad_framing"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\ntwo\r\nok\r\n0\r\n\r\n");
    }),
    case("switches protocols unasked", Some("bad_framing"), |stream| {
        answer_each(stream, b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n");
    }),
    case("interim answers without end", Some("bad_framing"), |stream| {
        answer_without_end(stream, b"", b"HTTP/1.1 100 Continue\r\n\r\n", Duration::ZERO);
    }),
    case("a head without end", Some("bad_framing"), |stream| {
        answer_without_end(stream, b"HTTP/1.1 200 OK\r\n", b"x-more: 0123456789abcdef\r\n", Duration::ZERO);
    }),
    case("a field without end", Some("bad_framing"), |stream| {
        answer_without_end(stream, b"HTTP/1.1 200 OK\r\nx: ", &[b'x'; 1_024], Duration::ZERO);
    }),
];

const SLOW: &[Case] = &[
    case("says nothing", Some("timeout"), hold),
    case("drips a head", Some("timeout"), |stream| {
        answer_without_end(stream, b"HTTP/1.1 200 OK\r\nx: ", b"x", 5 * MILLISECOND);
    }),
    case("drips a body", Some("timeout"), |stream| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
        answer_without_end(stream, head, b"x", 5 * MILLISECOND);
    }),
    case("a body without end", Some("timeout"), |stream| {
        answer_without_end(stream, b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 1_024], MILLISECOND);
    }),
    case("a huge chunk that does not come", Some("timeout"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7fffffff\r\nbegin");
    }),
    case("a body shorter than its length", Some("timeout"), |stream| {
        if request(stream) && stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok").is_ok() {
            hold(stream);
        }
    }),
];

const TOO_MUCH: &[Case] = &[
    case("two answers for one request", Some("extra"), |stream| answer_each(stream, &[OK, OK].concat())),
    case("bytes behind the answer", Some("extra"), |stream| {
        answer_each(stream, &[OK, b"\r\n\0more"].concat());
    }),
    case("a body longer than its length", Some("extra"), |stream| {
        answer_each(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nok");
    }),
    Case {
        flags: &["-X", "HEAD"],
        ..case("a body to HEAD", Some("extra"), |stream| answer_each(stream, OK))
    },
];

const RIGHT: &[Case] = &[
    case("an answer byte by byte", None, |stream| {
        while request(stream) {
            for byte in OK {
                if stream.write_all(std::slice::from_ref(byte)).is_err() {
                    return;
                }
                thread::sleep(MILLISECOND / 4);
            }
        }
    }),
    case("ends the body by closing", None, |stream| answer_once(stream, b"HTTP/1.0 200 OK\r\n\r\nall of it")),
    Case {
        // With reuse, a request may cross the end of its connection, which is a failure that HTTP/1.1 cannot avoid.
        flags: &["--no-keepalive"],
        ..case("closes behind a whole answer without a word", None, |stream| answer_once(stream, OK))
    },
    case("closes with a word, and more behind it", None, |stream| {
        let closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nokjunk";
        answer_once(stream, closing);
    }),
    case("a few interim answers", None, |stream| {
        let interims = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        answer_each(stream, &[interims, OK].concat());
    }),
    Case {
        flags: &["-X", "HEAD"],
        ..case("a length to HEAD that nothing follows", None, |stream| {
            answer_each(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
        })
    },
    Case {
        flags: &["--body-size", "4MiB"],
        ..case("answers before it has read the body, and closes", None, |stream| {
            answer_once(stream, b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            hold(stream);
        })
    },
    Case {
        flags: &["--expect-status", "413"],
        ..case("an answer that was expected", None, |stream| {
            answer_each(stream, b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n");
        })
    },
];

/// Serves connections until the process ends.
fn serve(habit: fn(&mut TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || habit(&mut stream));
        }
    });
    address
}

fn run(address: SocketAddr, driver: &str, timeout: &str, flags: &[&str]) -> Value {
    let (url, rate) = (format!("http://{address}/"), RATE.to_string());
    let usual = ["bench", &url, "--rate", &rate, "--time", "400ms", "--warm-up", "0s"];
    let rest = ["-c", "4", "--shards", "1", "--driver", driver, "-q", "--json", "-", "--timeout", timeout];
    let begin = Instant::now();
    let ended = Launch::new([&usual[..], &rest, flags].concat()).run_to_end();
    assert!(begin.elapsed() < LONGEST, "took {:?}", begin.elapsed());
    let result: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    let nothing = result["requests"]["answered"] == 0;
    assert_eq!(
        ended.code,
        Some(i32::from(nothing)),
        "only a run without one answer failed: {}",
        ended.stderr
    );
    result
}

/// Failures by kind, the empty ones left out. A request that found no connection in time is the consequence of others.
fn errors(result: &Value) -> Vec<&str> {
    let all = result["errors"].as_object().expect("an object").iter();
    all.filter(|(kind, count)| **count != 0 && *kind != "not_sent").map(|(kind, _)| kind.as_str()).collect()
}

fn holds(case: &Case, driver: &str) {
    // Only what does not end is to be given up soon: the machine may be busy.
    let timeout = if case.kind == Some("timeout") { "300ms" } else { "10s" };
    let result = run(serve(case.habit), driver, timeout, case.flags);
    let (requests, what) = (&result["requests"], format!("{} on {driver}: {result:#}", case.name));
    assert_eq!(requests["total"], DUE, "every request is accounted for: {what}");
    assert_eq!(errors(&result), case.kind.into_iter().collect::<Vec<_>>(), "{what}");
    if case.kind.is_none_or(|kind| kind == "extra") {
        assert_eq!(requests["answered"], DUE, "{what}");
    } else {
        assert_eq!((&requests["answered"], &requests["failed_share"]), (&0.into(), &1.0.into()), "{what}");
    }
}

/// One test at a time: each runs a dozen generators at once, which mostly wait.
static TURN: Mutex<()> = Mutex::new(());

fn all_hold(cases: &[Case]) {
    let _turn = TURN.lock().unwrap_or_else(|failed| failed.into_inner());
    for_each_driver(|driver| {
        thread::scope(|scope| cases.iter().for_each(|case| drop(scope.spawn(|| holds(case, driver)))));
    });
}

#[test]
fn a_server_that_closes_at_any_point_is_counted() {
    all_hold(CLOSES);
}

#[test]
fn a_server_that_sends_garbage_is_counted() {
    all_hold(GARBAGE);
}

#[test]
fn a_server_that_does_not_end_is_given_up() {
    all_hold(SLOW);
}

#[test]
fn a_server_that_sends_too_much_is_found_out() {
    all_hold(TOO_MUCH);
}

#[test]
fn an_unusual_server_within_the_rules_is_no_error() {
    all_hold(RIGHT);
}

/// The port is closed while the run is under way: what was due is not sent, and each attempt is an error of its own.
#[test]
fn a_server_that_goes_away_is_refused_connections() {
    let _turn = TURN.lock().unwrap_or_else(|failed| failed.into_inner());
    for_each_driver(|driver| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("bound");
        // The first connection is the tool's own look whether anybody is there; then one of its four is taken.
        let server = thread::spawn(move || {
            drop(listener.accept());
            let (mut stream, _) = listener.accept().expect("the tool connects");
            drop(listener);
            answer_once(&mut stream, OK);
        });
        let result = run(address, driver, "500ms", &[]);
        server.join().expect("does not panic");
        assert_eq!(result["requests"]["total"], DUE, "{result:#}");
        let count = |kind: &str| result["errors"][kind].as_u64().expect("a number");
        assert!(count("connect") > 0 && count("not_sent") > 0, "{result:#}");
    });
}
