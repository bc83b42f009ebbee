//! A server on real sockets whose limits are short, in this process: slow peers, floods of one connection, unread
//! bodies, ends of connections. On both drivers; every wait has a deadline.

mod common;

use common::{client::Client, for_each_driver, process, wait_for};
use shardlet::{
    EndReason, Exchange, Limits, Result, Router, Server, ShutdownPlan, any, asynchronous, get, post,
    routing::HalfClose, server::snapshots, stats::ShardSnapshot,
};
use shards::{DriverChoice, net::SocketAddress};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

const SHORT: Limits = Limits {
    head_timeout_ms: 300,
    body_grace_ms: 200,
    body_progress_window_ms: 200,
    write_progress_window_ms: 500,
    idle_timeout_ms: 400,
    linger_timeout_ms: 300,
    ..Limits::DEFAULT
};

struct Running {
    server: Option<Server>,
    address: SocketAddr,
}

impl Running {
    fn start(driver: &str, limits: Limits, connections_max: usize) -> Running {
        let driver = if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll };
        let listen: SocketAddress = "127.0.0.1:0".parse().expect("an address");
        let server = Server::builder()
            .listen(listen)
            .shards(1)
            .driver(driver)
            .limits(limits)
            .connections_max(connections_max)
            .start(|_| router())
            .expect("the server starts");
        let address = server.address().tcp().expect("a TCP address");
        Running { server: Some(server), address }
    }

    fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    fn snapshot(&self) -> ShardSnapshot {
        let (tell, told) = std::sync::mpsc::channel();
        let handle = &self.server.as_ref().expect("it runs").handles()[0];
        let ask = handle.send(tell, |shard, tell| {
            let own = shard.clone();
            shard.spawn(async move {
                let mut all = snapshots(&own).await;
                let _ = tell.send(all.pop());
            });
        });
        assert!(ask.is_ok(), "the shard takes messages");
        told.recv_timeout(common::DEADLINE).expect("an answer").expect("the service runs")
    }

    fn cut(&self, reason: &str) -> u64 {
        self.snapshot().cuts().iter().find(|(name, _)| *name == reason).map_or(0, |(_, count)| *count)
    }

    /// Everything that was is over, and every exchange has ended once.
    fn expect_rest(&self) {
        let rest = || {
            let now = self.snapshot();
            now.connections() == 0 && now.life_cycle.live == 0
        };
        assert!(wait_for(common::DEADLINE, rest), "left over: {:?}", self.snapshot());
        let life = self.snapshot().life_cycle;
        let ends: u64 = EndReason::ALL.iter().map(|reason| life.ended(*reason)).sum();
        assert_eq!(ends, life.started);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(ShutdownPlan::now());
        }
    }
}

fn router() -> Router {
    Router::new()
        .route("/plain", get(|x: &mut Exchange| x.write("plain")))
        .route("/peer", get(|x: &mut Exchange| x.write(format!("{:?}", x.peer()))))
        .route("/deaf", post(|x: &mut Exchange| x.write("not read")))
        .route_with(
            "/whole/{name}",
            any(|x: &mut Exchange| {
                let length = x.take_body().len();
                x.write(format!("{length} bytes"))
            }),
            |route| {
                route.buffer_body(100);
            },
        )
        .route_with("/first/{name}", any(|x: &mut Exchange| x.write("begun")), |route| {
            route.after_first_content();
        })
        .route("/big", get(|x: &mut Exchange| x.write(vec![b'b'; BIG])))
        .route("/endless", get(endless()))
        .route("/echo", post(echo()))
        .route("/park", get(park))
        .route_with("/stay", get(park), |route| {
            route.half_close(HalfClose::Tolerate);
        })
}

const BIG: usize = 16 << 20;

fn park(x: &mut Exchange) -> Result<()> {
    let wait = x.request().query().and_then(|query| query.parse().ok()).unwrap_or(60_000);
    x.start_async();
    x.set_timeout(Duration::from_millis(wait));
    x.on_timeout(|x: &mut Exchange| -> Result<()> {
        x.write("parked")?;
        x.complete()
    });
    Ok(())
}

fn endless() -> impl shardlet::routing::Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        loop {
            x.write(vec![b'e'; 16 << 10])?;
            x.write_ready().await?;
        }
    })
}

fn echo() -> impl shardlet::routing::Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        while let Some(chunk) = x.next_chunk().await? {
            x.write(chunk)?;
            x.write_ready().await?;
        }
        Ok(())
    })
}

fn for_each_server(limits: Limits, test: impl Fn(&Running)) {
    for_each_driver(|driver| test(&Running::start(driver, limits, usize::MAX)));
}

/// How long it takes until the server closes, and what it said.
fn closed_after(mut client: Client) -> (Duration, Vec<u8>) {
    let start = Instant::now();
    let said = client.read_until_close();
    (start.elapsed(), said)
}

#[test]
fn fault_s1_silent_and_partial_heads() {
    for_each_server(SHORT, |server| {
        let silent = server.connect();
        let mut partial = server.connect();
        partial.send("GET / HTTP/1.1\r\nA");
        let (after, said) = closed_after(partial);
        assert!(said.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&said));
        assert!(after > Duration::from_millis(200) && after < Duration::from_secs(3), "{after:?}");
        let (_, said) = closed_after(silent);
        assert!(said.is_empty());
        assert_eq!(server.cut("head_timeout_silent"), 1);
        server.expect_rest();
    });
}

#[test]
fn fault_s2_slow_bodies_whether_read_or_not() {
    for_each_server(SHORT, |server| {
        for path in ["/echo", "/park"] {
            let mut client = server.connect();
            let method = if path == "/park" { "GET" } else { "POST" };
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 5000\r\n\r\n"));
            let start = Instant::now();
            while client.send_if_open("x") && start.elapsed() < Duration::from_secs(5) {
                thread::sleep(Duration::from_millis(50));
            }
            assert!(start.elapsed() < Duration::from_secs(3), "{path}: {:?}", start.elapsed());
        }
        server.expect_rest();
        assert_eq!(server.snapshot().life_cycle.ended(EndReason::BodyTimeout), 2);
    });
}

fn resident() -> u64 {
    process::resident_kib(std::process::id())
}

#[test]
fn fault_s3_readers_that_do_not_read() {
    for_each_server(SHORT, |server| {
        let before = resident();
        let clients: Vec<_> = (0..50)
            .map(|_| {
                let mut client = server.connect();
                client.send("GET /endless HTTP/1.1\r\nHost: t\r\n\r\n");
                client
            })
            .collect();
        let mut most = 0;
        let cut = wait_for(common::DEADLINE, || {
            let now = server.snapshot();
            let each = now.pending_write_bytes / 50;
            assert!(each <= 256 << 10, "{each} bytes wait for each client");
            most = most.max(resident().saturating_sub(before));
            now.life_cycle.ended(EndReason::WriteTimeout) == 50
        });
        assert!(cut, "{:?}", server.snapshot());
        assert!(most < 50 * 512, "{most} KiB for 50 clients");
        drop(clients);
        server.expect_rest();
    });
}

/// Progress is what the peer acknowledges, not what the kernel takes: a reader that is slow, but reads, stays.
#[test]
fn fault_s3_slow_readers_that_read() {
    for_each_server(Limits { write_progress_window_ms: 1000, ..SHORT }, |server| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
        socket.set_recv_buffer_size(16 << 10).expect("small window");
        // On loopback a segment is larger than this window, and window updates would come seldom.
        socket.set_tcp_mss(1000).expect("small segments");
        socket.connect(&server.address.into()).expect("connect");
        let stream = TcpStream::from(socket);
        (&stream).write_all(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n").expect("send");
        let mut chunk = [0; 2000];
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2500) {
            let count = (&stream).read(&mut chunk).expect("read");
            assert!(count > 0, "closed after {:?}", start.elapsed());
            thread::sleep(Duration::from_millis(60));
        }
        assert_eq!(server.cut("write_timeout"), 0);
    });
}

#[test]
fn fault_f6_ten_thousand_requests_in_one_write() {
    for_each_server(Limits { requests_per_connection_max: 20_000, ..Limits::DEFAULT }, |server| {
        let mut client = server.connect();
        let mut sender = client.stream().try_clone().expect("clone");
        let flood = b"GET /plain HTTP/1.1\r\nHost: t\r\n\r\n".repeat(10_000);
        let sending = thread::spawn(move || {
            sender.write_all(&flood).expect("the flood is taken");
            sender.shutdown(std::net::Shutdown::Write).expect("half close");
        });
        for at in 0..10_000 {
            assert_eq!(client.read_response().text(), "plain", "answer {at}");
        }
        sending.join().expect("sender");
        assert!(client.read_until_close().is_empty());
        server.expect_rest();
    });
}

#[test]
fn fault_f6_sixteen_in_flight() {
    for_each_server(Limits::DEFAULT, |server| {
        let mut client = server.connect();
        client.send("GET /park HTTP/1.1\r\nHost: t\r\n\r\n".repeat(3000));
        assert!(wait_for(common::DEADLINE, || server.snapshot().life_cycle.live == 16));
        client.expect_silence(Duration::from_millis(100));
        assert_eq!(server.snapshot().life_cycle.started, 16);
        drop(client);
        server.expect_rest();
    });
}

#[test]
fn fault_f7_unread_bodies() {
    for_each_server(Limits { body_bytes_max: 16 << 20, ..SHORT }, |server| {
        let mut client = server.connect();
        assert_eq!(client.post("/deaf", &[b'x'; 10_000]).text(), "not read");
        assert_eq!(client.get("/plain").text(), "plain");

        let mut client = server.connect();
        client.send("POST /deaf HTTP/1.1\r\nHost: t\r\nContent-Length: 10485760\r\n\r\n");
        let smuggled = b"GET /plain HTTP/1.1\r\nHost: t\r\n\r\n";
        let mut sender = client.stream().try_clone().expect("clone");
        let sending = thread::spawn(move || {
            let body = smuggled.repeat(2000);
            (0..160).all(|_| sender.write_all(&body).is_ok())
        });
        let response = client.read_response();
        assert_eq!((response.text(), response.field("connection")), ("not read", Some("close")));
        assert!(client.read_until_close().is_empty(), "body bytes became a request");
        let _ = sending.join().expect("sender");
        server.expect_rest();
        assert_eq!(server.snapshot().life_cycle.started, 3);
    });
}

/// RFC 9112 §9.6: a client that goes on sending gets the whole answer before a reset can destroy it.
#[test]
fn refusals_reach_clients_that_go_on_sending() {
    for_each_server(Limits::DEFAULT, |server| {
        for (head, status) in [
            ("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999\r\n\r\n", 413),
            ("POST /none HTTP/1.1\r\nHost: t\r\nContent-Length: 1048576\r\n\r\n", 404),
            ("nonsense\r\n\r\n", 400),
        ] {
            for _ in 0..10 {
                let mut client = server.connect();
                client.send(head);
                for _ in 0..62 {
                    client.send_if_open([b'x'; 16 << 10]);
                }
                assert_eq!(client.read_response().status, status);
                assert!(client.read_until_close().is_empty());
            }
        }
    });
}

#[test]
fn fault_f4_header_bombs() {
    for_each_server(Limits::DEFAULT, |server| {
        let field = format!("GET / HTTP/1.1\r\nHost: t\r\nA: {}", "a".repeat(1 << 20));
        let many = format!("GET / HTTP/1.1\r\nHost: t\r\n{}", "a: b\r\n".repeat(100_000));
        let cookies = format!("GET / HTTP/1.1\r\nHost: t\r\n{}", "Cookie: a=b\r\n".repeat(10_000));
        let line = format!("GET /{}", "a".repeat(1 << 20));
        for (bomb, status) in [(field, 431), (many, 431), (cookies, 431), (line, 414)] {
            let mut client = server.connect();
            client.send_if_open(bomb);
            assert_eq!(client.read_response().status, status);
            drop(client);
        }
        server.expect_rest();
        assert_eq!(server.snapshot().life_cycle.started, 0);
    });
}

#[test]
fn fault_34_the_client_leaves_while_parked() {
    for_each_server(Limits::DEFAULT, |server| {
        for (ending, extra) in [("fin", ""), ("rst", ""), ("fin", "G"), ("rst", "GET /"), ("fin", "\r\n")] {
            let mut client = server.connect();
            client.send(format!("GET /park HTTP/1.1\r\nHost: t\r\n\r\n{extra}"));
            assert!(wait_for(common::DEADLINE, || server.snapshot().life_cycle.live == 1));
            if ending == "rst" {
                socket2::SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).expect("linger");
            }
            let start = Instant::now();
            drop(client);
            assert!(
                wait_for(common::DEADLINE, || server.snapshot().life_cycle.live == 0),
                "{ending} {extra:?}"
            );
            assert!(start.elapsed() < Duration::from_secs(1), "{ending} {extra:?}: {:?}", start.elapsed());
            server.expect_rest();
            assert_eq!(process::tcp_states(server.address).get("CLOSE_WAIT"), None);
        }
    });
}

#[test]
fn fault_41_half_close_by_policy() {
    for_each_server(Limits::DEFAULT, |server| {
        let mut tolerated = server.connect();
        tolerated.send("GET /stay?300 HTTP/1.1\r\nHost: t\r\n\r\n");
        tolerated.finish();
        assert_eq!(tolerated.read_response().text(), "parked");
        assert!(tolerated.read_until_close().is_empty());

        let mut aborted = server.connect();
        aborted.send("GET /park?300 HTTP/1.1\r\nHost: t\r\n\r\n");
        aborted.finish();
        let start = Instant::now();
        assert!(aborted.read_until_close().is_empty());
        assert!(start.elapsed() < Duration::from_millis(250));

        let mut finished = server.connect();
        finished.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        finished.finish();
        assert_eq!(finished.read_response().body.len(), BIG, "a finished answer is not thrown away");
        server.expect_rest();
    });
}

#[test]
fn fault_35_early_end_of_a_body() {
    for_each_server(Limits::DEFAULT, |server| {
        for head in ["POST /echo", "GET /park"] {
            let mut client = server.connect();
            client.send(format!(
                "{head} HTTP/1.1\r\nHost: t\r\nContent-Length: 170\r\n\r\n01234567890123456789"
            ));
            client.finish();
            let _ = client.read_until_close();
        }
        server.expect_rest();
    });
}

#[test]
fn idle_requests_and_connections_are_bounded() {
    for_each_server(Limits { requests_per_connection_max: 3, ..SHORT }, |server| {
        let mut client = server.connect();
        for last in [None, None, Some("close")] {
            assert_eq!(client.get("/plain").field("connection"), last);
        }
        assert!(client.read_until_close().is_empty());
        let mut idle = server.connect();
        idle.get("/plain");
        let start = Instant::now();
        assert!(idle.read_until_close().is_empty());
        assert!(start.elapsed() > Duration::from_millis(300) && start.elapsed() < Duration::from_secs(3));
        assert_eq!(server.cut("idle_timeout"), 1);
        server.expect_rest();
    });
    for_each_driver(|driver| {
        let server = Running::start(driver, Limits::DEFAULT, 5);
        let mut held: Vec<_> = (0..5).map(|_| server.connect()).collect();
        held.iter_mut().for_each(|client| assert_eq!(client.get("/plain").status, 200));
        assert!(server.connect().read_until_close().is_empty());
        held.pop();
        assert!(wait_for(common::DEADLINE, || server.snapshot().connections() == 4));
        assert_eq!(server.connect().get("/plain").status, 200);
    });
}

#[test]
fn bytes_after_the_last_request_are_nothing() {
    for_each_server(Limits::DEFAULT, |server| {
        let mut client = server.connect();
        client.send("GET /plain HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\nGET /plain HTTP/1.1\r\nHost: t\r\n\r\n");
        client.send_if_open(vec![b'x'; 100_000]);
        assert_eq!(client.read_response().field("connection"), Some("close"));
        assert!(client.read_until_close().is_empty());
        server.expect_rest();
        assert_eq!(server.snapshot().life_cycle.started, 1);
    });
}

/// One client address cannot take all places; another one is not touched, and places come back.
#[test]
fn connections_of_one_address_are_bounded() {
    for_each_driver(|driver| {
        let driver = if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll };
        let listen: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let most = std::num::NonZeroU32::new(5).expect("five");
        let builder = Server::builder().listen(listen).shards(1).driver(driver);
        let server =
            builder.connections_per_address_max(most).start(|_| router()).expect("the server starts");
        let address = server.address().tcp().expect("a TCP address");
        let running = Running { server: Some(server), address };
        let mut held: Vec<_> = (0..5).map(|_| running.connect()).collect();
        held.iter_mut().for_each(|client| assert_eq!(client.get("/plain").status, 200));
        for _ in 0..3 {
            assert!(running.connect().read_until_close().is_empty());
        }
        assert_eq!(running.snapshot().refusals(), [("connections_per_address_max", 3)]);
        let mut other = connect_from([127, 0, 0, 2], address);
        other.write_all(b"GET /plain HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        other.read_to_string(&mut answer).expect("an answer to another address");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        held.pop();
        assert!(wait_for(common::DEADLINE, || running.snapshot().connections() == 4));
        assert_eq!(running.connect().get("/plain").status, 200);
    });
}

fn connect_from(own: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((own, 0)).into()).expect("an address of this machine");
    socket.connect(&to.into()).expect("connected");
    socket.into()
}

#[test]
fn a_handler_knows_its_peer() {
    for_each_driver(|driver| {
        let server = Running::start(driver, Limits::DEFAULT, 100);
        let mut other = connect_from([127, 0, 0, 3], server.address);
        let own = other.local_addr().expect("an address");
        other.write_all(b"GET /peer HTTP/1.0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        other.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with(&format!("\r\n\r\nSome({own})")), "{answer} to {own}");
    });
}

/// A route that waits for content does not wait for one that its request does not have.
#[test]
fn a_request_without_content_has_all_of_it() {
    for_each_server(Limits::DEFAULT, |server| {
        let mut client = server.connect();
        assert_eq!(client.get("/whole/a").text(), "0 bytes");
        assert_eq!(client.get("/first/a").text(), "begun");
        assert_eq!(client.post("/whole/a", b"").text(), "0 bytes");
        assert_eq!(client.post("/whole/a", b"abc").text(), "3 bytes");
    });
}
