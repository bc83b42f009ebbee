//! Interim answers, trailers and the switch to another protocol, over a simulated connection.

use super::*;
use shards::testing::{End, SimClient};

fn world() -> World {
    let router = Router::new()
        .route("/plain", get(plain))
        .route("/park", get(park))
        .route("/hints", get(hints))
        .route("/typed", get(typed))
        .route("/rue", get(rue))
        .route("/late", get(asynchronous(async |x: &mut Exchange| late(x).await)))
        .route("/sum", post(asynchronous(async |x: &mut Exchange| sum(x).await)))
        .route("/echo", get(asynchronous(async |x: &mut Exchange| tunnel(x).await)));
    let options =
        ServiceOptions { router: router.finish().expect("sound routes"), ..options(Limits::DEFAULT) };
    World::with(1, options, SimFaults::default())
}

fn hints(x: &mut Exchange) -> Result<()> {
    x.early_hints(&["</a.css>; rel=preload", "</b.js>; rel=preload"])?;
    x.send_interim(http::StatusCode::PROCESSING, &[])?;
    assert!(x.send_interim(http::StatusCode::SWITCHING_PROTOCOLS, &[]).is_err());
    assert!(x.send_interim(http::StatusCode::OK, &[]).is_err());
    assert!(x.early_hints(&["a\r\nX: y"]).is_err());
    assert!(!x.response().set_status(http::StatusCode::EARLY_HINTS), "no final status");
    plain(x)
}

/// Reads to the end, and answers in trailers what it has counted and what the request's trailers said.
async fn sum(x: &mut Exchange) -> Result<()> {
    let mut count = 0;
    while let Some(bytes) = x.next_chunk().await? {
        count += bytes.len();
    }
    let told = x
        .trailers()
        .iter()
        .map(|(name, value)| format!("{name}={}", value.escape_ascii()))
        .collect::<String>();
    assert!(x.set_trailer("Content-Length", "5").is_err() && x.set_trailer("X", "a\nb").is_err());
    x.set_trailer("X-Count", count.to_string())?;
    x.set_trailer("X-Told", told)?;
    write!(x, "counted")
}

async fn tunnel(x: &mut Exchange) -> Result<()> {
    assert!(x.upgrade("other").is_err(), "it was not offered");
    x.upgrade("echo")?;
    assert!(x.upgrade("echo").is_err(), "once");
    while let Some(bytes) = x.next_chunk().await? {
        x.write(bytes)?;
        x.flush()?;
    }
    x.write("bye")
}

fn typed(x: &mut Exchange) -> Result<()> {
    let request = x.http_request()?;
    assert_eq!((request.method(), request.version()), (&http::Method::GET, http::Version::HTTP_11));
    let values: Vec<_> =
        request.headers().get_all("x-a").iter().map(|value| value.as_bytes().to_vec()).collect();
    write!(x, "{} {values:?}", request.uri())
}

/// Changes its mind: the switch has not left, so the failure is answered in HTTP.
fn rue(x: &mut Exchange) -> Result<()> {
    x.upgrade("echo")?;
    Err(crate::Error::Misuse("it cannot be done after all"))
}

/// Tells by a pattern of its own whether its error hook was called.
fn watched(x: &mut Exchange, told: &Rc<RefCell<Vec<&'static str>>>) -> Result<()> {
    x.start_async();
    let (errors, ends) = (told.clone(), told.clone());
    x.on_error(move |_, _| errors.borrow_mut().push("error"));
    x.on_complete(move |_, _| ends.borrow_mut().push("complete"));
    Ok(())
}

/// All bytes leave long before the end, which brings none.
async fn late(x: &mut Exchange) -> Result<()> {
    if x.request().query() == Some("length") {
        x.response().set_content_length(5)?;
    }
    x.write("early")?;
    x.flush()?;
    x.sleep(Duration::from_millis(50)).await
}

fn ask(client: &SimClient, request: &str) {
    client.write(request.as_bytes());
}

const UPGRADE: &str = "GET /echo HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: h2c, Echo\r\n\r\n";

fn text(client: &SimClient) -> String {
    String::from_utf8_lossy(&client.received()).into_owned()
}

/// RFC 8297, RFC 9110 §15.2: before the final answer, behind the answers to earlier requests, and not to HTTP/1.0.
#[test]
fn interim_answers_stand_before_their_own() {
    let world = world();
    let client = world.simulation.connect(PORT);
    ask(&client, "GET /park?00&50 HTTP/1.1\r\nHost: t\r\n\r\nGET /hints?11 HTTP/1.1\r\nHost: t\r\n\r\n");
    world.simulation.run_for(Duration::from_millis(100));
    let got = text(&client);
    let first = got.find("00.00").expect("the first answer");
    let hints = got.find(
        "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.js>; rel=preload\r\n\r\n",
    );
    let processing = got.find("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK");
    assert!(first < hints.expect("hints") && hints < processing && processing.is_some(), "{got}");
    let old = world.simulation.connect(PORT);
    ask(&old, "GET /hints?22 HTTP/1.0\r\n\r\n");
    world.simulation.run_for(Duration::from_millis(100));
    assert!(text(&old).starts_with("HTTP/1.1 200 OK"), "{}", text(&old));
}

/// RFC 9110 §6.5, RFC 9112 §7.1.2.
#[test]
fn trailers_go_to_those_who_take_them() {
    let world = world();
    for (te, takes) in [("TE: trailers\r\n", true), ("", false)] {
        let client = world.simulation.connect(PORT);
        ask(
            &client,
            &format!(
                "POST /sum HTTP/1.1\r\nHost: t\r\n{te}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-A: b\r\n\r\n"
            ),
        );
        ask(&client, "GET /plain?33 HTTP/1.1\r\nHost: t\r\n\r\n");
        world.simulation.run_for(Duration::from_millis(100));
        let got = text(&client);
        let trailers = "7\r\ncounted\r\n0\r\nX-Count: 5\r\nX-Told: X-A=b\r\n\r\nHTTP/1.1 200";
        assert_eq!(got.contains(trailers), takes, "{got}");
        assert_eq!(got.contains("Content-Length: 7\r\n\r\ncountedHTTP/1.1 200"), !takes, "{got}");
        assert!(got.ends_with("33.33.33.33.33.33.33"), "{got}");
    }
}

/// RFC 9110 §7.8: what was sent behind the request belongs to the new protocol, whatever it looks like; a client's FIN
/// ends what is read, not what is written.
#[test]
fn an_upgrade_hands_over_the_stream_with_the_bytes_already_read() {
    let world = world();
    let client = world.simulation.connect(PORT);
    ask(&client, &format!("{UPGRADE}GET /plain HTTP/1.1\r\n\r\n"));
    world.simulation.run_for(Duration::from_millis(10));
    let head = "HTTP/1.1 101 Switching Protocols\r\n";
    let got = text(&client);
    assert!(
        got.starts_with(head) && got.contains("Upgrade: echo\r\n") && got.contains("Connection: upgrade\r\n"),
        "{got}"
    );
    assert!(got.ends_with("\r\n\r\nGET /plain HTTP/1.1\r\n\r\n") && !got.contains("Content-Length"), "{got}");
    // Silence is the other protocol's business: no timeout of HTTP's.
    world.simulation.run_for(Duration::from_secs(3600));
    let large = marked("77", 300_000);
    client.write(&large);
    world.simulation.run_for(Duration::from_secs(1));
    assert!(client.received().ends_with(&large));
    client.finish();
    world.simulation.run_for(Duration::from_secs(1));
    assert!(client.received().ends_with(b"bye"), "what is written after the peer's end");
    assert_eq!(client.end(), Some(End::Fin));
    world.simulation.run_for(Duration::from_secs(60));
    world.expect_nothing_left("an upgraded connection");
    assert_eq!(world.service.exchanges.counters().ended(crate::EndReason::Completed), 1);
}

/// A client that resets its tunnel, and a connection that is told to end before the switch: no exchange is left.
#[test]
fn a_tunnel_that_breaks_leaves_nothing() {
    let world = world();
    let gone = world.simulation.connect(PORT);
    ask(&gone, UPGRADE);
    world.simulation.run_for(Duration::from_millis(10));
    gone.reset();
    world.simulation.run_for(Duration::from_secs(1));
    world.expect_nothing_left("a tunnel that was reset");
    assert_eq!(world.service.exchanges.counters().ended(crate::EndReason::ClientReset), 1);
}

/// An upgrade that is not taken is an ordinary request: the bytes behind it are the next one.
#[test]
fn an_upgrade_that_is_not_taken_changes_nothing() {
    let world = world();
    let client = world.simulation.connect(PORT);
    ask(&client, &UPGRADE.replace("/echo", "/plain?44"));
    ask(&client, "GET /plain?55 HTTP/1.1\r\nHost: t\r\n\r\n");
    world.simulation.run_for(Duration::from_millis(100));
    let got = text(&client);
    assert!(
        got.contains("44.44.44.44.44.44.44HTTP/1.1 200 OK") && got.ends_with("55.55.55.55.55.55.55"),
        "{got}"
    );
}

/// The head in the `http` crate's types: repeated fields, octets beyond ASCII.
#[test]
fn a_head_in_the_types_of_the_http_crate() {
    let world = world();
    let client = world.simulation.connect(PORT);
    client.write(b"GET /typed?x=%41 HTTP/1.1\r\nHost: t\r\nX-A: 1\r\nX-a: \xe9\r\n\r\n");
    world.simulation.run_for(Duration::from_millis(10));
    assert!(text(&client).ends_with("/typed?x=%41 [[49], [233]]"), "{}", text(&client));
}

/// An end without bytes of its own, in each frame that has one: it ends the exchange, and where it must the connection.
#[test]
fn an_end_that_brings_no_byte_is_an_end() {
    let world = world();
    for (request, end) in [
        ("GET /late?length HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", Some(End::Fin)),
        ("GET /late HTTP/1.0\r\n\r\n", Some(End::Fin)),
        ("GET /late?length HTTP/1.1\r\nHost: t\r\n\r\n", None),
        ("HEAD /late HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", Some(End::Fin)),
    ] {
        let client = world.simulation.connect(PORT);
        client.write(request.as_bytes());
        world.simulation.run_for(Duration::from_secs(1));
        assert_eq!((world.service.exchanges.counters().live, client.end()), (0, end), "{request}");
        client.finish();
    }
    let client = world.simulation.connect(PORT);
    client.write(UPGRADE.as_bytes());
    world.simulation.run_for(Duration::from_millis(10));
    client.finish();
    world.simulation.run_for(Duration::from_secs(60));
    world.expect_nothing_left("ends without bytes");
}

/// A handler that fails after `upgrade`, before the 101 has left: the error is answered, and the bytes behind the request
/// are a request.
#[test]
fn an_upgrade_that_is_taken_back_is_answered_in_http() {
    let world = world();
    let client = world.simulation.connect(PORT);
    ask(&client, &UPGRADE.replace("/echo", "/rue"));
    ask(&client, "GET /plain?66 HTTP/1.1\r\nHost: t\r\n\r\n");
    world.simulation.run_for(Duration::from_millis(100));
    let got = text(&client);
    assert!(got.starts_with("HTTP/1.1 500 ") && !got.contains("Upgrade:") && !got.contains(" 101 "), "{got}");
    assert!(got.ends_with("66.66.66.66.66.66.66"), "{got}");
    assert_eq!(world.service.exchanges.counters().live, 0);
}

/// `Route::notify_client_gone`: the route's word reaches its exchanges; the end is told in any case.
#[test]
fn a_route_decides_whether_its_hooks_hear_of_clients_that_leave() {
    for notify in [true, false] {
        let told = Rc::new(RefCell::new(Vec::new()));
        let heard = told.clone();
        let handler = move |x: &mut Exchange| watched(x, &heard);
        let router = Router::new().route_with("/watched", get(handler), |route| {
            route.notify_client_gone(notify);
        });
        let options = ServiceOptions { router: router.finish().expect("sound"), ..options(Limits::DEFAULT) };
        let world = World::with(1, options, SimFaults::default());
        for leave in [SimClient::finish, SimClient::reset] {
            let client = world.simulation.connect(PORT);
            client.write(b"GET /watched HTTP/1.1\r\nHost: t\r\n\r\n");
            world.simulation.run_for(Duration::from_millis(10));
            leave(&client);
            world.simulation.run_for(Duration::from_secs(1));
            let expected: &[&str] = if notify { &["error", "complete"] } else { &["complete"] };
            assert_eq!(std::mem::take(&mut *told.borrow_mut()), expected, "notify {notify}");
        }
    }
}
