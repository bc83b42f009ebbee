//! CONNECT over a simulated connection: when a tunnel is opened, what it carries, and every way in which it ends
//! (RFC 9110 §9.3.6, RFC 9112 §3.2.3).

use super::*;
use crate::EndReason;
use shards::testing::{End, SimClient};

const ASK: &str = "CONNECT y.test:443 HTTP/1.1\r\nHost: y.test:443\r\n\r\n";
const OPENED: &str = "HTTP/1.1 200 OK\r\n";

fn world(limits: Limits, set: impl FnOnce(Router) -> Router) -> World {
    let router = set(Router::new().route("/plain", get(plain)));
    let options = ServiceOptions { router: router.finish().expect("sound routes"), ..options(limits) };
    World::with(1, options, SimFaults::default())
}

fn enabled() -> World {
    world(Limits::DEFAULT, |router| router.connect(asynchronous(async |x: &mut Exchange| serve(x).await)))
}

/// Opens a tunnel to itself, or does what the name in the target asks for.
async fn serve(x: &mut Exchange) -> Result<()> {
    let target = x.request().target().to_owned();
    match target.split('.').next() {
        Some("no") => {
            x.response().set_status(http::StatusCode::FORBIDDEN);
            return x.write("no");
        }
        Some("bare") => return x.write("no tunnel"),
        Some("rue") => {
            x.open_tunnel()?;
            return Err(crate::Error::Misuse("it cannot be done after all"));
        }
        Some("slow") => x.sleep(Duration::from_secs(2)).await?,
        _ => {}
    }
    assert_eq!((x.request().path(), x.request().host()), ("", Some(target.as_str())));
    x.open_tunnel()?;
    assert!(x.open_tunnel().is_err(), "once");
    assert!(!x.response().set_status(http::StatusCode::BAD_GATEWAY), "it is said");
    while let Some(bytes) = x.next_chunk().await? {
        x.write(bytes)?;
        x.flush()?;
    }
    x.write("bye")
}

fn text(client: &SimClient) -> String {
    String::from_utf8_lossy(&client.received()).into_owned()
}

/// Sends and gives the client, after a moment in which all that can happen has happened.
fn asked(world: &World, request: &str) -> SimClient {
    let client = world.simulation.connect(PORT);
    client.write(request.as_bytes());
    world.simulation.run_for(Duration::from_millis(100));
    client
}

/// What came with the head is the tunnel's, whatever it looks like; the answer has no framing of its own. `Connection:
/// close` says nothing about the tunnel, and HTTP/1.0 knows it too.
#[test]
fn a_tunnel_begins_behind_the_head() {
    let world = enabled();
    for head in [
        ASK.to_owned(),
        ASK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"),
        ASK.replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n"),
        // RFC 9112 §3.3: the target is the authority; Host must be valid all the same.
        ASK.replace("Host: y.test:443", "Host: elsewhere.test"),
        "CONNECT [::1]:443 HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let client = asked(&world, &format!("{head}GET /plain HTTP/1.1\r\n\r\n"));
        let got = text(&client);
        assert!(got.starts_with(OPENED) && got.ends_with("\r\n\r\nGET /plain HTTP/1.1\r\n\r\n"), "{got}");
        for field in ["Content-Length", "Transfer-Encoding", "Connection"] {
            assert!(!got.contains(field), "{head:?}: {got}");
        }
        let large = marked("88", 300_000);
        client.write(&large);
        world.simulation.run_for(Duration::from_secs(1));
        assert!(client.received().ends_with(&large));
        client.finish();
        world.simulation.run_for(Duration::from_secs(60));
        assert!(client.received().ends_with(b"bye"), "what is written after the client's end");
        assert_eq!(client.end(), Some(End::Fin));
    }
    world.expect_nothing_left("tunnels");
}

/// The bytes of head and tunnel may come in any two pieces, or one by one.
#[test]
fn however_it_is_cut_a_tunnel_begins_at_the_same_octet() {
    let world = enabled();
    let sent = format!("{ASK}\r\nraw");
    let opened = text(&asked(&world, &sent));
    assert!(opened.ends_with("\r\n\r\n\r\nraw"), "{opened}");
    for cut in 1..sent.len() {
        let client = asked(&world, &sent[..cut]);
        client.write(&sent.as_bytes()[cut..]);
        world.simulation.run_for(Duration::from_millis(10));
        assert_eq!(text(&client), opened, "cut at octet {cut}");
    }
    let client = world.simulation.connect(PORT);
    for octet in sent.as_bytes().chunks(1) {
        client.write(octet);
        world.simulation.run_for(Duration::from_millis(1));
    }
    assert_eq!(text(&client), opened, "octet by octet");
}

/// Behind the answers to earlier requests, and the last thing on its connection.
#[test]
fn a_tunnel_waits_for_the_answers_before_it() {
    let world = enabled();
    let client = asked(&world, &format!("GET /plain?11 HTTP/1.1\r\nHost: t\r\n\r\n{ASK}raw"));
    let got = text(&client);
    assert!(got.contains("11.11.11.11.11.11.11HTTP/1.1 200 OK") && got.ends_with("\r\n\r\nraw"), "{got}");
}

/// RFC 9931: bytes behind a refused CONNECT may be those of whoever the client acts for.
#[test]
fn a_refused_connect_ends_the_connection_unless_the_application_says_otherwise() {
    let next = "GET /plain?22 HTTP/1.1\r\nHost: t\r\n\r\n";
    let ask = ASK.replace("y.test", "no.test");
    let handler = || asynchronous(async |x: &mut Exchange| serve(x).await);
    let kept = |keep| {
        world(Limits::DEFAULT, |router| {
            router.connect_with(handler(), |route| {
                route.keep_refused(keep);
            })
        })
    };
    for (keep, together, answered) in
        [(false, false, false), (false, true, false), (true, false, true), (true, true, false)]
    {
        let world = kept(keep);
        let client = match together {
            true => asked(&world, &format!("{ask}{next}")),
            false => {
                let client = asked(&world, &ask);
                client.write(next.as_bytes());
                client
            }
        };
        world.simulation.run_for(Duration::from_millis(100));
        let got = text(&client);
        assert!(got.starts_with("HTTP/1.1 403 ") && got.contains("Content-Length: 2\r\n"), "{got}");
        assert_eq!(got.contains("22.22"), answered, "kept {keep}, together {together}: {got}");
        assert_eq!(got.contains("Connection: close"), !answered, "{got}");
    }
}

/// Bytes that come while the handler still decides end the connection too.
#[test]
fn strays_end_a_connection_that_would_have_been_kept() {
    let refuse = asynchronous(async |x: &mut Exchange| -> Result<()> {
        x.sleep(Duration::from_secs(1)).await?;
        x.response().set_status(http::StatusCode::BAD_GATEWAY);
        Ok(())
    });
    let world = world(Limits::DEFAULT, |router| {
        router.connect_with(refuse, |route| {
            route.keep_refused(true);
        })
    });
    let client = asked(&world, ASK);
    client.write(b"GET /plain?33 HTTP/1.1\r\nHost: t\r\n\r\n");
    world.simulation.run_for(Duration::from_secs(10));
    let got = text(&client);
    assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("Connection: close"), "{got}");
    assert!(!got.contains("33.33") && client.end().is_some(), "{got}");
}

#[test]
fn without_a_handler_it_is_405() {
    let world = world(Limits::DEFAULT, |router| router);
    let client = asked(&world, &format!("{ASK}GET /plain?44 HTTP/1.1\r\nHost: t\r\n\r\n"));
    let got = text(&client);
    assert!(got.starts_with("HTTP/1.1 405 ") && got.contains("Allow: ") && !got.contains("44.44"), "{got}");
    assert_eq!(client.end(), Some(End::Fin));
}

/// RFC 9110 §9.3.6: an empty or invalid port is 400, and there is no content; RFC 9112 §3.2.3: no userinfo, no path.
#[test]
fn what_is_no_authority_is_400() {
    let world = enabled();
    for target in [
        "y.test",
        "y.test:",
        "y.test:0",
        "y.test:65536",
        "y.test:+1",
        "y.test:44a",
        ":443",
        "u@y.test:443",
        "u:p@y.test:443",
        "y.test:443/",
        "y.test:443?q",
        "http://y.test:443",
        "/",
        "*",
        "::1:443",
        "[::1]",
        "y.test:443#f",
        "y.test:443:443",
        "y%zz:443",
        "[::1%25lo]:443",
    ] {
        let client = asked(&world, &ASK.replacen("y.test:443", target, 1));
        assert!(text(&client).starts_with("HTTP/1.1 400 "), "{target}: {}", text(&client));
        assert_eq!(client.end(), Some(End::Fin), "{target}");
    }
    for field in ["Content-Length: 1", "Transfer-Encoding: chunked", "Host: t"] {
        let client =
            asked(&world, &format!("{}{field}\r\n\r\n", ASK.trim_end_matches("\r\n").to_owned() + "\r\n"));
        assert!(text(&client).starts_with("HTTP/1.1 400 "), "{field}: {}", text(&client));
    }
}

/// A handler that answers 2xx without opening the tunnel has made one that holds its content and ends with it.
#[test]
fn any_2xx_is_a_tunnel() {
    let world = enabled();
    let client = asked(&world, &ASK.replace("y.test", "bare.test"));
    let got = text(&client);
    assert!(got.starts_with(OPENED) && got.ends_with("Connection: close\r\n\r\nno tunnel"), "{got}");
    assert!(!got.contains("Content-Length") && client.end() == Some(End::Fin), "{got}");
}

#[test]
fn a_tunnel_that_is_taken_back_is_answered_in_http() {
    let world = enabled();
    let client = asked(&world, &ASK.replace("y.test", "rue.test"));
    let got = text(&client);
    assert!(got.starts_with("HTTP/1.1 500 ") && got.contains("Content-Length: "), "{got}");
    assert_eq!(world.service.exchanges.counters().live, 0);
}

/// Silence both ways ends it; one byte in either direction is none.
#[test]
fn an_idle_tunnel_is_cut() {
    let limits = Limits { tunnel_idle_timeout_ms: 30_000, ..Limits::DEFAULT };
    let world = world(limits, |router| {
        router.connect(asynchronous(async |x: &mut Exchange| -> Result<()> {
            x.open_tunnel()?;
            x.write("hello")?;
            x.flush()?;
            x.sleep(Duration::from_secs(80)).await?;
            x.write("one more")?;
            x.flush()?;
            x.sleep(Duration::from_secs(1_000_000)).await?;
            Ok(())
        }))
    });
    let client = asked(&world, ASK);
    let silent = asked(&world, ASK);
    for _ in 0..3 {
        world.simulation.run_for(Duration::from_secs(20));
        client.write(b".");
    }
    world.simulation.run_for(Duration::from_secs(5));
    assert_eq!((client.end(), silent.end()), (None, Some(End::Rst)));
    world.simulation.run_for(Duration::from_secs(40));
    assert!(client.end().is_none() && text(&client).ends_with("one more"), "what was sent counts too");
    world.simulation.run_for(Duration::from_secs(60));
    assert_eq!(client.end(), Some(End::Rst));
    world.expect_nothing_left("idle tunnels");
    assert_eq!(world.service.exchanges.counters().ended(EndReason::TimedOut), 2);
}

/// The client's FIN before the answer: it has given up, unless the route says otherwise; then the tunnel opens and ends.
#[test]
fn a_client_that_finishes_before_the_tunnel_is_open() {
    for (policy, opened) in [(HalfClose::Abort, false), (HalfClose::Tolerate, true)] {
        let world = world(Limits::DEFAULT, |router| {
            router.connect_with(asynchronous(async |x: &mut Exchange| serve(x).await), |route| {
                route.half_close(policy);
            })
        });
        let client = world.simulation.connect(PORT);
        client.write(ASK.replace("y.test", "slow.test").as_bytes());
        client.write(b"early");
        client.finish();
        world.simulation.run_for(Duration::from_secs(10));
        let got = text(&client);
        assert_eq!(got.starts_with(OPENED), opened, "{policy:?}: {got}");
        assert_eq!(got.ends_with("\r\n\r\nearlybye"), opened, "{policy:?}: {got}");
        world.simulation.run_for(Duration::from_secs(60));
        world.expect_nothing_left("a client that finished");
    }
}

/// An orderly end lets a tunnel that was asked for open, and open ones go on; a forced one ends them.
#[test]
fn draining_waits_for_tunnels_and_force_ends_them() {
    let world = enabled();
    let client = asked(&world, &ASK.replace("y.test", "slow.test"));
    world.drain();
    world.simulation.run_for(Duration::from_secs(5));
    assert!(text(&client).starts_with(OPENED), "{}", text(&client));
    client.write(b"still");
    world.simulation.run_for(Duration::from_secs(60));
    assert!(text(&client).ends_with("still") && client.end().is_none(), "{}", text(&client));
    world.simulation.on(0, |_| {
        world
            .service
            .connection_keys()
            .into_iter()
            .for_each(|key| world.service.force(key, EndReason::Shutdown));
    });
    world.simulation.run_for(Duration::from_secs(10));
    assert!(client.end().is_some(), "forced");
    world.expect_nothing_left("a forced end");
    assert_eq!(world.service.exchanges.counters().ended(EndReason::Shutdown), 1);
}

/// A client that resets its tunnel.
#[test]
fn a_reset_tunnel_leaves_nothing() {
    let world = enabled();
    let client = asked(&world, ASK);
    client.reset();
    world.simulation.run_for(Duration::from_secs(1));
    world.expect_nothing_left("a tunnel that was reset");
    assert_eq!(world.service.exchanges.counters().ended(EndReason::ClientReset), 1);
}
