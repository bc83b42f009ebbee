//! The end of a server over real sockets, on both drivers: that it says so before it closes, and that it comes from
//! every state. Ends of requests are in `server_process.rs` and `lifecycle.rs`.

mod common;

use common::{DEADLINE, Launch, client::Client, for_each_driver, wait_for};
use shardlet::{Exchange, Limits, Result, Router, Server, ShutdownPlan, asynchronous, get, handlers, post};
use shards::{DriverChoice, Shard, ShardEnd, net::SocketAddress};
use std::{
    net::{SocketAddr, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

fn start(driver: &str, routes: impl Fn(&Shard) -> Router + Send + Sync + 'static) -> (Server, SocketAddr) {
    let driver = if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll };
    let listen: SocketAddress = "127.0.0.1:0".parse().expect("an address");
    let builder = Server::builder().listen(listen).shards(2).driver(driver).limits(Limits::DEFAULT);
    let server = builder.start(routes).expect("the server starts");
    let address = server.address().tcp().expect("a TCP address");
    (server, address)
}

/// Waits for the end on a thread of its own: one that does not come is a failure and no test that hangs.
fn join(server: Server, what: &str) {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(server.join()));
    let ends: Vec<ShardEnd<()>> =
        told.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{what}: no end after {DEADLINE:?}"));
    assert!(ends.iter().all(|end| end.result.is_ok() && end.leaked == 0), "{what}: {ends:?}");
}

/// A plan that would go on for longer than any test.
const ENDLESS: Duration = Duration::from_secs(600);

/// 82: a server that is told to end says no to its probe while it still takes connections and serves them.
#[test]
fn fault_82_readiness_says_no_while_the_listener_still_accepts() {
    for_each_driver(|driver| {
        let (server, address) = start(driver, handlers::admin::router);
        let ready = || Client::connect(address).get("/readyz").status;
        assert_eq!(ready(), 200);
        server.begin_shutdown(ShutdownPlan { notice: ENDLESS, grace: ENDLESS, write: ENDLESS });
        assert!(wait_for(DEADLINE, || ready() == 503), "{driver}: still ready");
        for _ in 0..20 {
            let mut client = Client::connect(address);
            let answer = client.get("/readyz");
            assert_eq!((answer.status, answer.text()), (503, "not ready: the server is ending\n"));
            let served = client.get("/healthz");
            assert_eq!(
                (served.status, served.field("connection")),
                (200, None),
                "{driver}: it serves as before"
            );
        }
        server.begin_shutdown(ShutdownPlan::fast());
        join(server, driver);
        assert!(TcpStream::connect(address).is_err(), "{driver}: somebody listens");
    });
}

/// The same for the program: TERM, and `--notice`.
#[test]
fn fault_82_the_program_gives_notice_before_it_closes() {
    for_each_driver(|driver| {
        let flags = ["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--driver", driver];
        let mut server = Launch::new(flags).args(&["--notice", "600"]).start();
        let admin = server.stdout().split_once("metrics http://").and_then(|(_, rest)| {
            let address = rest.split('/').next()?;
            address.parse::<SocketAddr>().ok()
        });
        let admin = admin.expect("the start message names the admin listener");
        let ready = || Client::connect(admin).get("/readyz").status;
        assert_eq!(ready(), 200);
        server.signal("TERM");
        assert!(wait_for(DEADLINE, || ready() == 503), "{driver}: still ready");
        let served = server.connect().get("/plaintext");
        assert_eq!((served.status, served.field("connection")), (200, None), "{driver}: it serves as before");
        server.signal("INT");
        assert_eq!(server.wait_end().code(), Some(0));
    });
}

/// Notice and grace are the whole program's: what the first listener has used of them is not given to the operator's
/// one again.
#[test]
fn fault_84_the_plan_is_given_once_to_all_listeners() {
    for_each_driver(|driver| {
        let flags = ["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--driver", driver];
        let mut server = Launch::new(flags).args(&["--notice", "2"]).start();
        server.connect().get("/plaintext");
        let began = Instant::now();
        server.signal("TERM");
        assert_eq!(server.wait_end().code(), Some(0));
        let took = began.elapsed();
        assert!((Duration::from_secs(2)..Duration::from_secs(4)).contains(&took), "{driver}: {took:?}");
    });
}

/// What a server is doing when it is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    BeforeListening,
    JustStarted,
    Silent,
    PartOfAHead,
    PartOfABody,
    Parked,
    AnswerNotRead,
    Idle,
    Noticing,
    Draining,
    ToldByMany,
}

const STATES: [State; 11] = [
    State::BeforeListening,
    State::JustStarted,
    State::Silent,
    State::PartOfAHead,
    State::PartOfABody,
    State::Parked,
    State::AnswerNotRead,
    State::Idle,
    State::Noticing,
    State::Draining,
    State::ToldByMany,
];

fn routes(shard: &Shard, state: State) -> Router {
    if state == State::BeforeListening {
        shard.handle().stop();
    }
    let read = asynchronous(async |x: &mut Exchange| -> Result<()> {
        while x.next_chunk().await?.is_some() {}
        x.write("read")
    });
    Router::new()
        .route("/", get(|x: &mut Exchange| x.write("hello")))
        .route("/read", post(read))
        .route("/park", get(|x: &mut Exchange| drop(x.start_async())))
        .route("/big", get(|x: &mut Exchange| x.write(vec![b'b'; 32 << 20])))
}

/// Brings a server into the state; the client belongs to it.
fn enter(state: State, server: &Server, address: SocketAddr) -> Option<Client> {
    let head = |line: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n");
    let mut client = match state {
        State::BeforeListening | State::JustStarted => return None,
        _ => Client::connect(address),
    };
    match state {
        State::BeforeListening | State::JustStarted | State::Silent => {}
        State::PartOfAHead => client.send(head("GET /")),
        State::PartOfABody => client.send(head("POST /read") + "Content-Length: 10\r\n\r\n12345"),
        State::Parked | State::Noticing | State::Draining | State::ToldByMany => {
            client.send(head("GET /park") + "\r\n");
        }
        State::AnswerNotRead => client.send(head("GET /big") + "\r\n"),
        State::Idle => assert_eq!(client.get("/").status, 200),
    }
    if state != State::Silent {
        // The bytes have come where they can be acted upon: another connection has been served since.
        assert_eq!(Client::connect(address).get("/").text(), "hello");
    }
    match state {
        State::Noticing => {
            server.begin_shutdown(ShutdownPlan { notice: ENDLESS, grace: ENDLESS, write: ENDLESS });
        }
        State::Draining => {
            server.begin_shutdown(ShutdownPlan { notice: Duration::ZERO, grace: ENDLESS, write: ENDLESS });
            assert!(wait_for(DEADLINE, || TcpStream::connect(address).is_err()), "it still listens");
        }
        State::ToldByMany => thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| server.begin_shutdown(ShutdownPlan::graceful(ENDLESS))));
            }
        }),
        _ => {}
    }
    Some(client)
}

/// 83: whatever it is doing, a server that is told to end ends, and gives everything back.
#[test]
fn fault_83_a_stop_in_every_state_comes_to_its_end() {
    let moment = Duration::from_millis(20);
    let plans = [
        ShutdownPlan::now(),
        ShutdownPlan { write: moment, ..ShutdownPlan::fast() },
        ShutdownPlan { notice: moment, grace: moment, write: moment },
    ];
    for_each_driver(|driver| {
        for state in STATES {
            for plan in plans {
                let what = format!("{driver}, {state:?}, {plan:?}");
                let (server, address) = start(driver, move |shard| routes(shard, state));
                let client = enter(state, &server, address);
                server.begin_shutdown(plan);
                join(server, &what);
                assert!(TcpStream::connect(address).is_err(), "{what}: somebody listens");
                drop(client);
            }
        }
    });
}
