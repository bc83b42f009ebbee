//! The life cycle over real sockets: rows of the table of faults that show themselves honestly only there, on both drivers. The names
//! have the row's number, or the rule's.

mod common;

use common::{
    DEADLINE,
    client::Client,
    library::{Log, each_driver},
    process::is_in_close_wait,
    wait_for,
};
use shardlet::{
    AsyncContext, Coordinator, Exchange, Filter, Result, Router, Server, ShutdownPlan, StatusCode,
    asynchronous, handlers, post,
    routing::{HalfClose, Next},
    server::StartError,
};
use shards::DriverChoice;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

fn serve<F>(driver: DriverChoice, routes: F) -> (Server, SocketAddr)
where
    F: Fn(&shards::Shard) -> Router + Send + Sync + 'static,
{
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let builder = Server::builder().listen(any_port).shards(1).driver(driver);
    let server = builder.start(routes).expect("the server starts");
    let address = server.address().tcp().expect("a TCP address");
    (server, address)
}

/// A server with `/park`, which waits for ever and notes its end, `/events`, which has sent something before that,
/// `/tolerate`, which answers clients that have only finished sending, and `/hello`.
fn parking(driver: DriverChoice) -> (Server, SocketAddr, Log) {
    let log = Log::default();
    let shared = log.clone();
    let (server, address) = serve(driver, move |_| {
        let (park, events) = (shared.clone(), shared.clone());
        Router::new()
            .route("/hello", |x: &mut Exchange| write!(x, "hello"))
            .route("/park", move |x: &mut Exchange| {
                park.watch(x);
                x.start_async();
                park.note("parked");
            })
            .route("/events", move |x: &mut Exchange| {
                events.watch(x);
                x.start_async();
                events.note("parked");
                write!(x, "data: first\n\n")?;
                x.flush()
            })
            .route_with("/tolerate", slow(), |route| {
                route.half_close(HalfClose::Tolerate);
            })
            .route("/abort", slow())
    });
    (server, address, log)
}

/// Answers after a moment.
fn slow() -> impl Fn(&mut Exchange) {
    |x: &mut Exchange| {
        x.start_async();
        x.set_timeout(Duration::from_millis(50));
        x.on_timeout(|x: &mut Exchange| -> Result<()> {
            write!(x, "whole answer")?;
            x.complete()
        });
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}

#[test]
fn fault_31_an_event_stream_hears_of_its_client_leaving() {
    each_driver(|driver| {
        let (server, address, log) = parking(driver);
        let mut client = Client::connect(address);
        client.send(request("/events"));
        client.take_until(b"data: first\n\n");
        drop(client);
        log.await_count("complete client_closed", 1);
        assert_eq!(log.all(), ["parked", "error client_closed", "complete client_closed"]);
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_34_a_parked_request_does_not_stay_in_close_wait() {
    each_driver(|driver| {
        let (server, address, log) = parking(driver);
        let mut client = Client::connect(address);
        client.send(request("/park"));
        log.await_count("parked", 1);
        let local = client.stream().local_addr().expect("an address");
        drop(client);
        log.await_count("complete client_closed", 1);
        let gone = wait_for(DEADLINE, || !is_in_close_wait(address, local));
        assert!(gone, "the socket is still in CLOSE_WAIT");
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_35_an_early_end_of_the_body_ends_the_request() {
    each_driver(|driver| {
        let log = Log::default();
        let shared = log.clone();
        let (server, address) = serve(driver, move |_| {
            let (read, park) = (shared.clone(), shared.clone());
            let reading = asynchronous(async move |x: &mut Exchange| -> Result<()> {
                read.watch(x);
                while x.next_chunk().await?.is_some() {
                    read.note("chunk");
                }
                Ok(())
            });
            Router::new().route("/read", reading).route("/park", move |x: &mut Exchange| {
                park.watch(x);
                x.start_async();
                park.note("chunk");
            })
        });
        for (number, path) in ["/read", "/park"].into_iter().enumerate() {
            let mut client = Client::connect(address);
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 170\r\n\r\n12345678901234567890"
            ));
            log.await_count("chunk", number + 1);
            drop(client);
            log.await_count("complete client_closed", number + 1);
        }
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_38_a_byte_of_the_next_request_does_not_hide_the_end() {
    each_driver(|driver| {
        let (server, address, log) = parking(driver);
        let mut client = Client::connect(address);
        client.send(request("/park") + "G");
        log.await_count("parked", 1);
        client.finish();
        log.await_count("complete client_closed", 1);
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_41_a_half_close_is_tolerated_or_aborts_as_the_route_says() {
    each_driver(|driver| {
        let (server, address, _) = parking(driver);
        let mut client = Client::connect(address);
        client.send(request("/tolerate"));
        client.finish();
        assert_eq!(client.read_response().text(), "whole answer");
        let mut client = Client::connect(address);
        client.send(request("/abort"));
        client.finish();
        assert_eq!(client.read_until_close(), b"", "the client is taken for gone");
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_30_clients_that_leave_before_their_answer_leave_nothing() {
    each_driver(|driver| {
        let (server, address, log) = parking(driver);
        let before = descriptors();
        for number in 1..=500 {
            let mut client = Client::connect(address);
            client.send(request("/park"));
            log.await_count("parked", number);
        }
        log.await_count("complete client_closed", 500);
        assert_eq!(log.count("parked"), 500);
        let flat = wait_for(DEADLINE, || descriptors() <= before + 50);
        assert!(flat, "{} descriptors, {before} before", descriptors());
        assert_eq!(Client::connect(address).get("/hello").text(), "hello");
        server.shutdown(ShutdownPlan::fast());
    });
}

/// Descriptors of this process. Other tests of this file run beside it, so only a large number says something.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors").count()
}

#[test]
fn fault_16_a_stale_handle_never_writes_into_another_response() {
    each_driver(|driver| {
        let contexts: Arc<Mutex<Vec<AsyncContext>>> = Arc::default();
        let (shared, ran) = (contexts.clone(), Arc::new(AtomicUsize::new(0)));
        let (server, address) = serve(driver, move |_| {
            let contexts = shared.clone();
            Router::new()
                .route("/keep", move |x: &mut Exchange| {
                    contexts.lock().unwrap().push(x.context());
                    write!(x, "kept")
                })
                .route("/probe", |x: &mut Exchange| write!(x, "identical"))
        });
        let mut client = Client::connect(address);
        assert_eq!(client.get("/keep").text(), "kept");
        let stale = contexts.lock().unwrap().remove(0);
        let expected = client.get("/probe");
        for round in 0..1000 {
            let ran = ran.clone();
            let late = stale.executor().execute(move |x: &mut Exchange| {
                ran.fetch_add(1, SeqCst);
                write!(x, "poison")
            });
            assert!(late.is_err(), "round {round}");
            let answer = client.get("/probe");
            assert_eq!((answer.status, answer.text()), (expected.status, expected.text()), "round {round}");
            assert!(stale.with(|_| ()).is_err() && stale.start(|_| ()).is_err());
        }
        assert_eq!(ran.load(SeqCst), 0);
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_12_each_parked_request_hears_of_the_shutdown_once() {
    each_driver(|driver| {
        let (server, address, log) = parking(driver);
        let clients: Vec<_> = (0..200)
            .map(|_| {
                let mut client = Client::connect(address);
                client.send(request("/park"));
                client
            })
            .collect();
        log.await_count("parked", 200);
        server.shutdown(ShutdownPlan::fast());
        assert_eq!((log.count("error shutdown"), log.count("complete shutdown")), (200, 200));
        for mut client in clients {
            let answer = client.read_response();
            assert_eq!((answer.status, answer.field("connection")), (503, Some("close")));
        }
    });
}

#[test]
fn fault_15_a_timeout_that_nobody_answers_is_503_and_runs_nothing_again() {
    each_driver(|driver| {
        let runs = Arc::new(AtomicUsize::new(0));
        let shared = runs.clone();
        let (server, address) = serve(driver, move |_| {
            let runs = shared.clone();
            Router::new().route("/", move |x: &mut Exchange| {
                runs.fetch_add(1, SeqCst);
                x.start_async();
                x.set_timeout(Duration::from_millis(5));
            })
        });
        let mut client = Client::connect(address);
        assert_eq!(client.post("/", b"body").status, 503);
        assert_eq!(runs.load(SeqCst), 1);
        assert_eq!(client.get("/").status, 503, "the connection is as good as before");
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_10_a_panic_in_the_last_listener_costs_nobody_anything() {
    each_driver(|driver| {
        let (server, address) = serve(driver, |_| {
            Router::new().route("/", |x: &mut Exchange| {
                x.on_complete(|_, _| -> () { panic!("expected by the test") });
                write!(x, "answered")
            })
        });
        let mut client = Client::connect(address);
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "answered");
        }
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_48_a_close_behind_a_good_answer_is_no_error() {
    each_driver(|driver| {
        let log = Log::default();
        let shared = log.clone();
        let (server, address) = serve(driver, move |_| {
            let log = shared.clone();
            Router::new().route("/", move |x: &mut Exchange| {
                log.watch(x);
                write!(x, "fine")
            })
        });
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").text(), "fine");
        drop(client);
        log.await_count("complete completed", 1);
        server.shutdown(ShutdownPlan::fast());
        assert_eq!(log.all(), ["complete completed"]);
    });
}

#[test]
fn fault_14_a_redispatch_in_the_last_listener_says_that_it_is_over() {
    each_driver(|driver| {
        let log = Log::default();
        let shared = log.clone();
        let (server, address) = serve(driver, move |_| {
            let log = shared.clone();
            Router::new().route("/", move |x: &mut Exchange| {
                let log = log.clone();
                x.on_complete(move |x: &mut Exchange, _| {
                    log.note(format!("{:?}", x.redispatch("/").is_err()));
                });
                write!(x, "once")
            })
        });
        assert_eq!(Client::connect(address).get("/").text(), "once");
        log.await_count("true", 1);
        server.shutdown(ShutdownPlan::fast());
    });
}

struct Refusing;

impl Coordinator for Refusing {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        x.response().set_status(StatusCode::EXPECTATION_FAILED);
        x.complete()
    }
}

struct Twice;

impl Coordinator for Twice {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        let (first, second) = (x.send_continue(), x.send_continue());
        write!(x, "{first} {second}")?;
        x.complete()
    }
}

#[test]
fn rule_l17_content_behind_a_refusal_is_never_a_request() {
    each_driver(|driver| {
        let hits = Arc::new(AtomicUsize::new(0));
        let shared = hits.clone();
        let (server, address) = serve(driver, move |_| {
            let hits = shared.clone();
            Router::new()
                .route("/upload", post(|x: &mut Exchange| write!(x, "never")))
                .coordinate("/upload", || Refusing)
                .route("/smuggled", move |x: &mut Exchange| {
                    hits.fetch_add(1, SeqCst);
                    write!(x, "smuggled")
                })
        });
        let mut client = Client::connect(address);
        let smuggled = request("/smuggled");
        let length = smuggled.len();
        client.send(format!(
            "POST /upload HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        ));
        assert_eq!(client.read_response().status, 417);
        client.send_if_open(&smuggled);
        assert_eq!(client.read_until_close(), b"");
        assert_eq!(hits.load(SeqCst), 0);
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn fault_64_the_interim_answer_comes_first_and_once_and_only_for_content() {
    each_driver(|driver| {
        let (server, address) = serve(driver, |_| {
            Router::new().route("/", post(|x: &mut Exchange| write!(x, "never"))).coordinate("/", || Twice)
        });
        let head = |length: u32| {
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            )
        };
        let mut client = Client::connect(address);
        client.send(head(5));
        let first = client.take_until(b"\r\n\r\n");
        assert_eq!(first, b"HTTP/1.1 100 Continue\r\n\r\n");
        client.send_if_open("12345");
        assert_eq!(client.read_response().text(), "true false");
        let mut client = Client::connect(address);
        client.send(head(0));
        let answer = client.read_response();
        assert_eq!((answer.status, answer.text()), (200, "false false"), "no 100 without content");
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn rule_l20_what_is_acknowledged_is_never_more_than_is_known() {
    each_driver(|driver| {
        const SIZE: u64 = 100_000;
        let counts = Arc::new(Mutex::new(None));
        let shared = counts.clone();
        let (server, address) = serve(driver, move |_| {
            let counts = shared.clone();
            Router::new().route("/", move |x: &mut Exchange| {
                let counts = counts.clone();
                x.start_async();
                x.set_timeout(Duration::from_millis(5));
                x.on_timeout(move |x: &mut Exchange| -> Result<()> {
                    let seen = x.byte_counts();
                    assert!(seen.acknowledged <= seen.accepted && seen.accepted <= seen.generated);
                    if seen.acknowledged == SIZE {
                        *counts.lock().unwrap() = Some(seen);
                        return x.complete();
                    }
                    x.extend(Duration::from_millis(5));
                    Ok(())
                });
                x.write(vec![b'x'; SIZE as usize])?;
                x.flush()
            })
        });
        let mut client = Client::connect(address);
        assert_eq!(client.get("/").body.len() as u64, SIZE);
        let seen = counts.lock().unwrap().expect("counted before the end");
        assert_eq!((seen.generated, seen.accepted), (SIZE, SIZE));
        server.shutdown(ShutdownPlan::fast());
    });
}

#[test]
fn rule_l21_a_route_that_cannot_wait_is_refused_at_the_start() {
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let refused = Server::builder().listen(any_port).shards(1).start(|_: &shards::Shard| {
        let pass = |x: &mut Exchange, next: Next<'_>| next.run(x);
        Router::new()
            .route("/slow", asynchronous(async |x: &mut Exchange| write!(x, "late")))
            .filter("/*", Filter::new(pass).named("gzip"))
    });
    let Err(StartError::Routes(problem)) = refused else { panic!("it started") };
    let message = problem.to_string();
    assert!(message.contains("/slow") && message.contains("gzip"), "{message}");
}

#[test]
fn routes_that_panic_on_one_shard_are_an_error_of_the_start() {
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let refused = Server::builder().listen(any_port).shards(2).start(|shard: &shards::Shard| {
        assert_eq!(shard.id().index(), 0, "no routes for this one");
        Router::new()
    });
    let Err(StartError::Panicked(text)) = refused else { panic!("it started") };
    assert!(text.contains("no routes for this one"), "{text}");
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
    let limits = shardlet::Limits { pipelined_requests_max: 0, ..shardlet::Limits::DEFAULT };
    let refused =
        Server::builder().listen(any_port).shards(1).limits(limits).start(|_: &shards::Shard| Router::new());
    let Err(StartError::Runtime(problem)) = refused else { panic!("it started") };
    assert!(problem.to_string().contains("zero"), "{problem}");
}

#[test]
fn a_server_without_an_address_is_refused() {
    let refused = Server::builder().shards(1).start(|_: &shards::Shard| Router::new());
    let Err(StartError::Runtime(problem)) = refused else { panic!("it started") };
    assert!(problem.to_string().contains("listen"), "{problem}");
}

#[test]
fn rule_l26_workers_outlive_exchanges() {
    each_driver(|driver| {
        let done = Arc::new(AtomicUsize::new(0));
        let shared = done.clone();
        let (server, address) = serve(driver, move |_| {
            let done = shared.clone();
            Router::new().route("/", move |x: &mut Exchange| {
                let done = done.clone();
                x.start_async().start(move |context| {
                    let token = context.cancel_token();
                    let cancelled = wait_for(DEADLINE, || token.is_cancelled());
                    done.fetch_add(usize::from(cancelled), SeqCst);
                })
            })
        });
        let mut client = Client::connect(address);
        client.send(request("/"));
        let started = wait_for(DEADLINE, || server.workers().is_some_and(|workers| workers.active == 1));
        assert!(started, "the job has begun");
        server.shutdown(ShutdownPlan::fast());
        assert_eq!(done.load(SeqCst), 1, "the job saw the end, and the end waited for the job");
    });
}

/// The figures add up, and the longest callback has its name.
#[test]
fn rule_l27_the_longest_callback_is_named_and_the_sum_of_ends_is_right() {
    each_driver(|driver| {
        let (server, address) = serve(driver, |shard| {
            handlers::admin::router(shard).route("/quick", |x: &mut Exchange| write!(x, "quick")).route(
                "/blocks/{name}",
                |x: &mut Exchange| {
                    // Far longer than anything else here is held up, and below the watchdog's half second.
                    std::thread::sleep(Duration::from_millis(300));
                    write!(x, "slow")
                },
            )
        });
        let mut client = Client::connect(address);
        for path in ["/quick", "/blocks/1", "/quick", "/nowhere"] {
            client.get(path);
        }
        let stats: serde_json::Value = serde_json::from_str(client.get("/stats").text()).expect("JSON");
        let runtime = &stats["shards"][0]["runtime"];
        assert_eq!(runtime["longest_callback"], "handler /blocks/{name}", "{runtime}");
        assert!(runtime["longest_callback_us"].as_u64() >= Some(290_000), "{runtime}");
        let ends: u64 = stats["ends"].as_object().expect("ends").values().filter_map(|n| n.as_u64()).sum();
        assert_eq!(
            (ends, stats["live"].as_u64(), stats["started"].as_u64()),
            (4, Some(1), Some(5)),
            "{stats}"
        );
        server.shutdown(ShutdownPlan::fast());
    });
}
