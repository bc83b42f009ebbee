//! Waiting over real sockets: in front of a throttle, for a topic on every shard, for a worker thread.

mod common;

use common::{DEADLINE, client::Client, wait_for};
use shardlet::{
    Exchange, PoolOptions, Router, Server, ShutdownPlan, StatusCode, Throttle, Topic, WorkerPool,
    asynchronous,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn address(server: &Server) -> SocketAddr {
    server.address().tcp().expect("a TCP address")
}

fn ask(server: &Server, path: &str) -> Client {
    let mut client = Client::connect(address(server));
    client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    client
}

fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait_for(DEADLINE, condition), "never: {what}");
}

/// Waits for the next value and answers with it.
fn wait_for_value(x: &mut Exchange, topic: &Topic<String>) -> shardlet::Result<()> {
    x.start_async();
    topic.subscribe(x, topic.newest(), |x: &mut Exchange, delivery| {
        write!(x, "{}", delivery.items[0].value)?;
        x.complete()
    })?;
    Ok(())
}

#[test]
fn l_25_a_throttle_in_front_of_a_handler_that_waits() {
    let topic = Topic::new(4);
    let routes = {
        let topic = topic.clone();
        move |_: &shards::Shard| {
            let throttle = Throttle::new(1).queue(2).max_wait(Duration::from_secs(30));
            let (topic, counters) = (topic.clone(), throttle.clone());
            Router::new()
                .route("/work", move |x: &mut Exchange| wait_for_value(x, &topic))
                .coordinate("/work", throttle.coordinator())
                .route("/counters", move |x: &mut Exchange| {
                    let c = counters.counters();
                    write!(
                        x,
                        "active={} queued={} left={} full={}",
                        c.active, c.queued, c.left, c.rejected_full
                    )
                })
        }
    };
    let server = Server::builder().listen(loopback()).shards(1).start(routes).expect("the server starts");
    let mut watcher = Client::connect(address(&server));
    let mut see = |text: &str| until(text, || watcher.get("/counters").text() == text);
    let mut first = ask(&server, "/work");
    see("active=1 queued=0 left=0 full=0");
    let mut second = ask(&server, "/work");
    see("active=1 queued=1 left=0 full=0");
    let third = ask(&server, "/work");
    see("active=1 queued=2 left=0 full=0");
    let refused = ask(&server, "/work").read_response();
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("30")));
    drop(third);
    see("active=1 queued=1 left=1 full=1");
    topic.publish("one".to_owned()).expect("the shard lives");
    assert_eq!(first.read_response().text(), "one");
    // The second is inside now and waits for a value of its own.
    see("active=1 queued=0 left=1 full=1");
    until("the second has subscribed", || topic.shards() == 1);
    topic.publish("two".to_owned()).expect("the shard lives");
    assert_eq!(second.read_response().text(), "two");
    see("active=0 queued=0 left=1 full=1");
    server.shutdown(ShutdownPlan::fast());
}

#[test]
fn a_topic_reaches_those_who_wait_on_every_shard_and_leaves_nothing() {
    const CLIENTS: usize = 32;
    let (topic, waiting) = (Topic::new(4), Arc::new(AtomicUsize::new(0)));
    let routes = {
        let (topic, waiting) = (topic.clone(), waiting.clone());
        move |_: &shards::Shard| {
            let (topic, waiting) = (topic.clone(), waiting.clone());
            Router::new().route("/poll", move |x: &mut Exchange| {
                wait_for_value(x, &topic)?;
                waiting.fetch_add(1, Ordering::SeqCst);
                Ok::<(), shardlet::Error>(())
            })
        }
    };
    let server = Server::builder().listen(loopback()).shards(2).start(routes).expect("the server starts");
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| ask(&server, "/poll")).collect();
    until("all wait", || waiting.load(Ordering::SeqCst) == CLIENTS);
    let shards = topic.shards();
    let published = topic.publish("news".to_owned()).expect("both shards live");
    assert_eq!((published.id, published.shards), (1, shards));
    for client in &mut clients {
        assert_eq!(client.read_response().text(), "news");
    }
    until("the subscriptions are gone", || topic.shards() == 0);
    // The same clients wait again and leave.
    for client in &mut clients {
        client.send("GET /poll HTTP/1.1\r\nHost: test\r\n\r\n");
    }
    until("all wait again", || waiting.load(Ordering::SeqCst) == 2 * CLIENTS);
    drop(clients);
    until("those who left are forgotten", || topic.shards() == 0);
    server.shutdown(ShutdownPlan::fast());
    assert_eq!(topic.publish("unheard".to_owned()).expect("nobody is told").shards, 0);
}

#[test]
fn l_24_a_full_pool_is_503_and_what_was_taken_is_answered() {
    let pool =
        WorkerPool::new(&PoolOptions { threads: 1, queue_max: 1, name: "job".into() }).expect("threads");
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let routes = move |_: &shards::Shard| {
        let gate = gate.clone();
        let handler = asynchronous(async move |x: &mut Exchange| {
            let gate = gate.clone();
            let waited = x.blocking(move || gate.lock().unwrap().recv().is_ok()).await?;
            write!(x, "waited={waited}")
        });
        Router::new().route("/job", handler).error_handler(|x: &mut Exchange| {
            assert_eq!(x.response().status(), StatusCode::SERVICE_UNAVAILABLE);
            write!(x, "busy")
        })
    };
    let builder = Server::builder().listen(loopback()).shards(1).workers(Arc::new(pool.clone()));
    let server = builder.start(routes).expect("the server starts");
    let mut running = ask(&server, "/job");
    until("the job runs", || pool.snapshot().active == 1);
    let mut queued = ask(&server, "/job");
    until("the second waits", || pool.snapshot().queued == 1);
    let refused = ask(&server, "/job").read_response();
    assert_eq!((refused.status, refused.text()), (503, "busy"));
    release.send(()).expect("somebody waits");
    release.send(()).expect("somebody will");
    assert_eq!(running.read_response().text(), "waited=true");
    assert_eq!(queued.read_response().text(), "waited=true");
    server.shutdown(ShutdownPlan::fast());
    assert_eq!(pool.close(DEADLINE), shardlet::workers::Drained::default());
    let figures = pool.snapshot();
    assert_eq!((figures.active, figures.queued, figures.threads, figures.rejected_full), (0, 0, 0, 1));
    assert_eq!((figures.completed, figures.hand_over.len()), (2, 2));
}
