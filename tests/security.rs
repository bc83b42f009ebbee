//! Rows of the table of attacks that no other test shows, on sockets and on both drivers: framing that two readers could
//! take in two ways (H1–H5), response splitting (H6), expectations (H9), h2c (H10), hop-by-hop fields (H11), open proxies
//! (H12), coded requests (F9), declared sizes (F3), peers that stop reading when their connection is to be closed (S5).
//! `docs/security.md` names the tests of all rows.

mod common;

use common::{DEADLINE, Launch, Server, client::Client, for_each_driver, process, wait_for};
use shardlet::{Exchange, Router, StatusCode, get};
use std::time::{Duration, Instant};

fn for_each_demo(test: impl Fn(&Server)) {
    for_each_driver(|driver| {
        let mut server = Launch::server(&["demo"], driver).start();
        test(&server);
        assert_eq!(server.connect().get("/plaintext").status, 200, "others are served all the same");
        assert_eq!(server.stop().code(), Some(0));
    });
}

/// Sends a request that must be refused, with another behind it that must not be read: one answer, then the end.
fn refused(server: &Server, request: &str) -> String {
    let mut client = server.connect();
    client.send(format!("{request}GET /plaintext?smuggled HTTP/1.1\r\nHost: t\r\n\r\n"));
    let answer = String::from_utf8_lossy(&client.read_until_close()).into_owned();
    assert_eq!(answer.matches("X-Shard: ").count(), 1, "{request:?} got {answer}");
    assert!(
        !answer.contains("Hello, World!") && answer.contains("Connection: close"),
        "{request:?} got {answer}"
    );
    answer[9..12].to_owned()
}

/// H1: two ways to say where a request ends.
#[test]
fn attack_h1_lengths_and_codings() {
    let lengths = ["+5", "-0", "0x5", "5,5", "5, 6", "", "5 5", "99999999999999999999", "5;", "5\t5", "５"];
    let codings = [
        "chunked, identity",
        "xchunked",
        "chunked, chunked",
        "chunked;q=1",
        "\u{b}chunked",
        "chunked\0",
        "\"chunked\"",
        "identity, chunked\t,",
        "cow",
        "chunked identity",
    ];
    for_each_demo(|server| {
        for length in lengths {
            let request = format!("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\nabcde");
            assert_eq!(refused(server, &request), "400", "{length:?}");
        }
        for coding in codings {
            let request =
                format!("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n");
            assert!(["400", "501"].contains(&refused(server, &request).as_str()), "{coding:?}");
        }
        for both in [
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\ncontent-length: 6",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 0",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding : chunked",
            "Content-Length\t: 5",
            "Transfer-Encoding: chunked\r\n , identity",
        ] {
            let request = format!("POST /echo HTTP/1.1\r\nHost: t\r\n{both}\r\n\r\n0\r\n\r\n");
            assert_eq!(refused(server, &request), "400", "{both:?}");
        }
        let old = "POST /echo HTTP/1.0\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(refused(server, old), "400");
    });
}

/// H2: the size of a chunk and the end of its lines. H3: what a trailer may not say.
#[test]
fn attack_h2_chunks_and_h3_trailers() {
    let bodies = [
        "5\nabcde\r\n0\r\n\r\n",
        "5\rabcde\r\n0\r\n\r\n",
        " 5\r\nabcde\r\n0\r\n\r\n",
        "5 \r\nabcde\r\n0\r\n\r\n",
        "0x5\r\nabcde\r\n0\r\n\r\n",
        "+5\r\nabcde\r\n0\r\n\r\n",
        "-5\r\nabcde\r\n0\r\n\r\n",
        "10000000000000005\r\nabcde\r\n0\r\n\r\n",
        "5\r\nabcdeXX0\r\n\r\n",
        "5\r\nabcde0\r\n\r\n",
        "\r\n5\r\nabcde\r\n0\r\n\r\n",
        "5;a=b\nc\r\nabcde\r\n0\r\n\r\n",
        "5;a=\"b\r\nc\"\r\nabcde\r\n0\r\n\r\n",
        "5;\0\r\nabcde\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\n\r\n",
        "g\r\nabcde\r\n0\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX: a\nb\r\n\r\n",
    ];
    for_each_demo(|server| {
        for body in bodies {
            let mut client = server.connect();
            client
                .send(format!("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
            client.send_if_open("GET /plaintext?smuggled HTTP/1.1\r\nHost: t\r\n\r\n");
            let answer = String::from_utf8_lossy(&client.read_until_close()).into_owned();
            // The echo may have begun: then its end must be missing, for the client must see that it is broken.
            let whole = answer.starts_with("HTTP/1.1 400") || !answer.ends_with("0\r\n\r\n");
            assert!(whole && !answer.contains("Hello, World!"), "{body:?} got {answer}");
        }
        // Trailers that would change the message are never fields of it; the connection stays in step.
        let mut client = server.connect();
        client.send(
            "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nX-Sum: 5\r\n\r\n",
        );
        assert_eq!(client.read_response().text(), "abcde");
        assert_eq!(client.get("/plaintext").status, 200);
    });
}

/// H4 and H5: octets that split a head in two ways, and hosts that are none.
#[test]
fn attack_h4_octets_and_h5_hosts() {
    let fields = [
        "X: a\rb",
        "X: a\nb",
        "X: a\0b",
        "X: a\r\n b",
        "X : a",
        ": a",
        "X(: a",
        "X,Y: a",
        "X",
        "X\r: a",
        "X: \u{7f}",
        "Host: u",
        "hOST: t",
        "X:\u{b}a\rHost: b",
    ];
    let hosts = [
        "", "a b", "a,b", "u@t", "t/x", "t#x", "t:x", "t:99999", "[::1", "t:1:2", "a\tb", "%zz", "[v1]",
        "t\\u",
    ];
    for_each_demo(|server| {
        for field in fields {
            assert_eq!(
                refused(server, &format!("GET / HTTP/1.1\r\nHost: t\r\n{field}\r\n\r\n")),
                "400",
                "{field:?}"
            );
        }
        for host in hosts {
            assert_eq!(
                refused(server, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")),
                "400",
                "{host:?}"
            );
        }
        for line in [
            "GET / http/1.1",
            "GET / HTTP/1.10",
            "G T / HTTP/1.1",
            "GET  / HTTP/1.1",
            "junk\r\nGET / HTTP/1.1",
        ] {
            assert_eq!(refused(server, &format!("{line}\r\nHost: t\r\n\r\n")), "400", "{line:?}");
        }
        assert_eq!(refused(server, "GET / HTTP/1.1\r\n\r\n"), "400");
        assert_eq!(refused(server, "GET / HTTP/2.0\r\nHost: t\r\n\r\n"), "505");
    });
}

/// H6: whatever a handler writes into a field, nothing of it ends a line: a typed error, and nothing has been sent. Names,
/// values, redirects, cookies, types, trailers, interim answers; each with octets that end a line for somebody.
fn splits(x: &mut Exchange) -> shardlet::Result<()> {
    let mut refused = 0;
    for octets in
        ["\r\nX-Split: 1", "\nX-Split: 1", "\rX-Split: 1", "\0", "\r\n\r\nHTTP/1.1 200 OK", "\u{7f}", "\u{b}"]
    {
        let (value, name) = (format!("a{octets}b"), format!("X{octets}"));
        let mut response = x.response();
        let tries = [
            response.set_header("Location", format!("/{value}")),
            response.set_header("Set-Cookie", format!("a={value}; Path=/")),
            response.append_header("X-A", &value),
            response.set_header(&name, "a"),
            response.append_header(&name, "a"),
            response.set_content_type(&value),
        ];
        let more = [
            x.set_trailer("X-Sum", &value),
            x.set_trailer(&name, "a"),
            x.send_interim(StatusCode::EARLY_HINTS, &[("Link", &value)]),
            x.send_interim(StatusCode::EARLY_HINTS, &[(&name, "a")]),
            x.early_hints(&[&value]),
        ];
        refused += tries.iter().chain(&more).filter(|tried| tried.is_err()).count();
    }
    x.write(refused.to_string())
}

#[test]
fn attack_h6_response_splitting() {
    common::for_each_router(
        || Router::new().route("/splits", get(splits)),
        |address| {
            let mut client = Client::connect(address);
            for _ in 0..2 {
                client.send("GET /splits HTTP/1.1\r\nHost: t\r\n\r\n");
                let answer = client.read_response();
                assert_eq!((answer.status, answer.text()), (200, "77"), "{answer:?}");
                let known = ["server", "date", "content-length", "content-type", "x-shard"];
                let others = answer.fields.iter().filter(|(name, _)| !known.contains(&&**name));
                assert_eq!(others.count(), 0, "{answer:?}");
            }
        },
    );
}

/// H9: an expectation that is refused, a thousand times on one connection each way: content that is never sent, and
/// content that is sent all the same. What follows is read where it begins.
#[test]
fn attack_h9_refused_expectations_leave_the_connection_in_step() {
    for_each_demo(|server| {
        let refuse =
            "POST /upload?accept=no HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
        let (mut kept, mut closed) = (0, 0);
        let mut client = server.connect();
        for round in 0..1000 {
            client.send(refuse);
            let refused = client.read_response();
            assert!((400..500).contains(&refused.status), "{refused:?}");
            let sends_content = round % 2 == 1;
            if refused.field("connection") == Some("close") {
                closed += 1;
                client = server.connect();
            } else {
                kept += 1;
                if sends_content {
                    client.send("abcde");
                }
            }
            let next = client.get("/plaintext");
            assert_eq!((next.status, next.text()), (200, "Hello, World!"), "round {round}");
        }
        assert_eq!(kept + closed, 1000);
        let mut client = server.connect();
        for _ in 0..100 {
            client.send("POST /upload?accept=yes HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
            assert_eq!(client.read_response().status, 100);
            client.send("abcde");
            assert_eq!(client.read_response().status, 200);
        }
    });
}

/// H10: HTTP/2 is not spoken here: an upgrade to it is a plain request, its preface is refused.
#[test]
fn attack_h10_no_other_protocol_by_accident() {
    for_each_demo(|server| {
        let mut client = server.connect();
        client.send(
            "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \
             AAMAAABkAAQCAAAAAAIAAAAA\r\nContent-Length: 5\r\n\r\nabcde",
        );
        let plain = client.read_response();
        assert_eq!((plain.status, plain.text(), plain.field("upgrade")), (200, "abcde", None));
        assert_eq!(client.get("/plaintext").status, 200);
        assert_eq!(refused(server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "505");
        let mut client = server.connect();
        client.send("GET /plaintext HTTP/1.1\r\nHost: t\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        assert!(client.read_until_close().starts_with(b"HTTP/1.1 400 "));
    });
}

/// H11: an option of Connection that names a field takes nothing from the request: framing stays framing.
#[test]
fn attack_h11_connection_options_change_no_framing() {
    for_each_demo(|server| {
        for options in
            ["close, Content-Length, Host", "CLOSE , transfer-encoding", "X-Real-IP, Authorization, close"]
        {
            let mut client = server.connect();
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: t\r\nConnection: {options}\r\nContent-Length: 5\r\nKeep-Alive: timeout=1\r\n\
                 Proxy-Connection: keep-alive\r\n\r\nabcdeGET /plaintext HTTP/1.1\r\nHost: t\r\n\r\n"
            ));
            let echo = client.read_response();
            assert_eq!(
                (echo.status, echo.text(), echo.field("connection")),
                (200, "abcde", Some("close")),
                "{options}"
            );
            assert!(client.read_until_close().is_empty(), "close is the end ({options})");
        }
        // A name that only resembles one is another field.
        for alias in ["Content_Length: 3", "Content.Length: 3", "Transfer_Encoding: chunked"] {
            let mut client = server.connect();
            client
                .send(format!("POST /echo HTTP/1.1\r\nHost: t\r\n{alias}\r\nContent-Length: 5\r\n\r\nabcde"));
            assert_eq!(client.read_response().text(), "abcde", "{alias}");
            assert_eq!(client.get("/plaintext").status, 200);
        }
    });
}

/// H12: the server asks nobody on a client's behalf.
#[test]
fn attack_h12_no_open_proxy() {
    for_each_demo(|server| {
        let mut client = server.connect();
        for request in [
            "GET http://169.254.169.254/plaintext HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
            "GET http://elsewhere.test:81/plaintext HTTP/1.1\r\nHost: t\r\n\r\n",
        ] {
            client.send(request);
            assert_eq!(client.read_response().text(), "Hello, World!", "answered here, asked nowhere");
        }
        client.send("TRACE /plaintext HTTP/1.1\r\nHost: t\r\nCookie: secret\r\n\r\n");
        let trace = client.read_response();
        assert!(trace.status == 405 && !trace.text().contains("secret"), "{trace:?}");
        client.send("OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\n");
        assert!([200, 204].contains(&client.read_response().status));
        for request in [
            "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n",
            "CONNECT t:443 HTTP/1.1\r\nHost: t:443\r\n\r\n",
        ] {
            assert!(["405", "501"].contains(&refused(server, request).as_str()), "{request:?}");
        }
    });
}

/// F9: content that is coded comes back as it came: nothing here unpacks what a client sends. A thousand times 10 MiB of
/// zeros, coded twice, cost the server no memory.
#[test]
fn attack_f9_coded_requests_are_not_unpacked() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut bomb, &vec![0; 10 << 20]).expect("in memory");
    let mut twice = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut twice, &bomb.finish().expect("in memory")).expect("in memory");
    let bomb = twice.finish().expect("in memory");
    for_each_demo(|server| {
        let mut client = server.connect();
        let before = process::resident_kib(server.pid());
        for _ in 0..1000 {
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Encoding: gzip, gzip\r\nContent-Length: {}\r\n\r\n",
                bomb.len()
            ));
            client.send(&bomb);
            assert_eq!(client.read_response().body, bomb);
        }
        let grown = process::resident_kib(server.pid()).saturating_sub(before);
        assert!(grown < 2048, "{grown} KiB more");
    });
}

/// The figures are costly to make: those who ask for many at a time wait or get 503, and take no memory meanwhile.
#[test]
fn attack_f3_many_ask_for_the_figures_at_once() {
    for_each_demo(|server| {
        server.connect().get("/stats");
        let before = process::resident_kib(server.pid());
        let requests = "GET /stats HTTP/1.1\r\nHost: t\r\n\r\n".repeat(15);
        let last = "GET /stats HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
        let clients: Vec<Client> = (0..64)
            .map(|_| {
                let mut client = server.connect();
                client.send(format!("{requests}{last}"));
                client
            })
            .collect();
        let mut answers = [0, 0];
        for mut client in clients {
            let got = String::from_utf8_lossy(&client.read_until_close()).into_owned();
            answers[0] += got.matches("HTTP/1.1 200").count();
            answers[1] += got.matches("HTTP/1.1 503").count();
        }
        let grown = process::resident_kib(server.pid()).saturating_sub(before);
        println!("{answers:?} answered and refused, {grown} KiB more");
        assert_eq!(answers[0] + answers[1], 64 * 16, "{answers:?}");
        assert!(grown < 20 << 10, "{grown} KiB for {answers:?}");
    });
}

/// F3: a size that is only declared costs nothing: 400 requests that announce what never comes.
#[test]
fn attack_f3_declared_sizes_cost_nothing() {
    for_each_demo(|server| {
        let before = process::resident_kib(server.pid());
        let clients: Vec<Client> = (0..400)
            .map(|number| {
                let mut client = server.connect();
                let size = if number % 2 == 0 {
                    "Content-Length: 1048576\r\n\r\n"
                } else {
                    "Transfer-Encoding: chunked\r\n\r\nfffff\r\n"
                };
                client.send(format!("POST /echo HTTP/1.1\r\nHost: t\r\n{size}"));
                client
            })
            .collect();
        let mut probe = server.connect();
        let started = || probe.get("/stats").text().contains("\"live\":401");
        assert!(wait_for(DEADLINE, started), "{}", server.connect().get("/stats").text());
        let grown = process::resident_kib(server.pid()).saturating_sub(before);
        assert!(grown < 400 * 8, "{grown} KiB for 400 requests that announced 1 MiB each");
        drop(clients);
    });
}

/// S5: the peer stops reading while an answer is under way, and the server is told to stop: neither its silence nor its
/// full socket keeps the server from ending, and TERM's deadline is not what ends it.
#[test]
fn attack_s5_a_full_socket_does_not_hold_the_close() {
    for_each_driver(|driver| {
        let mut server = Launch::server(&["demo"], driver).start();
        let clients: Vec<Client> = (0..20)
            .map(|_| {
                let mut client = server.connect();
                // Requests without end, answers that nobody reads: the socket fills.
                while client.stream().set_write_timeout(Some(Duration::from_millis(50))).is_ok()
                    && client.send_if_open("GET /plaintext HTTP/1.1\r\nHost: t\r\n\r\n".repeat(200))
                {
                }
                client
            })
            .collect();
        let start = Instant::now();
        server.signal("INT");
        assert_eq!(server.wait_end().code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(10), "took {:?}", start.elapsed());
        drop(clients);
    });
}
