//! Where callbacks run: every kind of them, on the thread of the shard that owns the exchange.

use crate::common::{DEADLINE, client::Client, for_each_driver, wait_for};
use shardlet::{
    Coordinator, EndReason, Error, Exchange, Filter, Result, Router, Server, ShutdownPlan, Topic,
    asynchronous,
    exchange::{DispatchType, Read, ReadListener, WaterMarks, WriteListener, handoff},
    post,
    routing::Next,
};
use shards::{DriverChoice, Shard};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
    time::Duration,
};

thread_local! {
    /// The thread that made this shard's routes is the shard's.
    static HOME: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Each kind of callback, and the shards it has run on. A callback elsewhere than at home fails the test.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<&'static str, BTreeSet<u32>>>>, Arc<Mutex<Vec<String>>>);

impl Seen {
    fn here(&self, x: &Exchange, kind: &'static str) {
        self.on(x.id().shard, kind);
    }

    fn on(&self, owner: u32, kind: &'static str) {
        let home = HOME.get();
        if home != Some(owner) || Shard::try_current().is_none_or(|shard| shard.id().index() as u32 != owner)
        {
            let thread: ThreadId = thread::current().id();
            self.1
                .lock()
                .unwrap()
                .push(format!("{kind} of shard {owner} ran on {thread:?}, home of {home:?}"));
        }
        self.0.lock().unwrap().entry(kind).or_default().insert(owner);
    }
}

/// Notes where it is dropped.
struct Dropped(Seen, u32);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.on(self.1, "drop of a future");
    }
}

impl Coordinator for Seen {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "do_request");
        x.is_read_ready();
        let context = x.context();
        // Later, from elsewhere: content comes to the coordinator meanwhile.
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            context.dispatch(Exchange::service)
        });
        Ok(())
    }
    fn on_content(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "on_content");
        Ok(())
    }
    fn do_response(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "do_response");
        x.set_timeout(Duration::from_millis(1));
        Ok(())
    }
    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "on_timeout of a coordinator");
        Err(Error::handler("to be told"))
    }
    fn on_error(&mut self, x: &mut Exchange, _: EndReason) -> Result<()> {
        self.here(x, "on_error of a coordinator");
        Ok(())
    }
    fn on_complete(&mut self, x: &mut Exchange, _: EndReason) {
        self.here(x, "on_complete of a coordinator");
    }
}

impl ReadListener for Seen {
    fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "on_data_available");
        while let Read::Data(_) = x.read()? {}
        Ok(())
    }
    fn on_all_data_read(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "on_all_data_read");
        x.complete()
    }
    fn on_error(&mut self, x: &mut Exchange, _: EndReason) {
        self.here(x, "on_error of a read listener");
    }
}

impl WriteListener for Seen {
    fn on_write_possible(&mut self, x: &mut Exchange) -> Result<()> {
        self.here(x, "on_write_possible");
        x.complete()
    }
}

/// Notes the kind, and goes on.
fn noting(seen: &Seen, kind: &'static str) -> impl Fn(&mut Exchange) + Clone + Send + 'static {
    let seen = seen.clone();
    move |x: &mut Exchange| seen.here(x, kind)
}

fn watched(seen: &Seen, x: &mut Exchange) {
    let (error, complete) = (noting(seen, "on_error"), noting(seen, "on_complete"));
    x.on_error(move |x, _| error(x));
    x.on_complete(move |x, _| complete(x));
}

/// Tasks of every way in, from a thread of the test's.
fn tasks(seen: &Seen, x: &mut Exchange) {
    watched(seen, x);
    let context = x.start_async();
    let (task, dispatched, last, job) =
        (noting(seen, "task"), noting(seen, "dispatch"), noting(seen, "task from a job"), context.clone());
    thread::spawn(move || {
        assert!(context.executor().execute(task).is_ok() && context.dispatch(dispatched).is_ok());
        let ends = move |context: shardlet::AsyncContext| {
            let last = move |x: &mut Exchange| {
                last(x);
                x.complete()
            };
            assert!(context.executor().execute(last).is_ok());
        };
        job.start(ends).expect("the pool has room");
    });
}

async fn polled(seen: &Seen, x: &mut Exchange) -> Result<()> {
    let _dropped = Dropped(seen.clone(), x.id().shard);
    seen.here(x, "poll");
    x.sleep(Duration::from_millis(1)).await?;
    seen.here(x, "poll behind a sleep");
    x.blocking(|| ()).await?;
    seen.here(x, "poll behind a worker");
    let (sender, receiver) = handoff::<u8>();
    thread::spawn(move || sender.send(1));
    receiver.await.expect("sent");
    seen.here(x, "poll behind a hand-off");
    while x.next_chunk().await?.is_some() {
        seen.here(x, "poll behind content");
    }
    write!(x, "polled")
}

fn subscribed(seen: &Seen, topic: &Topic<u8>, x: &mut Exchange) {
    let heard = noting(seen, "delivery of a topic");
    x.start_async();
    let subscribed = topic.subscribe(x, 0, move |x: &mut Exchange, _| {
        heard(x);
        x.complete()
    });
    assert!(subscribed.is_ok(), "the topic has room");
    let topic = topic.clone();
    thread::spawn(move || topic.publish(1));
}

fn timed(seen: &Seen, x: &mut Exchange) {
    let timeout = noting(seen, "on_timeout");
    x.start_async();
    x.set_timeout(Duration::from_millis(1));
    x.on_timeout(move |x: &mut Exchange| -> Result<()> {
        timeout(x);
        x.redispatch("/handler")
    });
}

fn router(seen: &Seen) -> Router {
    let (poll, filtered) = (seen.clone(), noting(seen, "filter"));
    let topic = Topic::new(1);
    let [a, b, c, d, e, f, g] = std::array::from_fn(|_| seen.clone());
    let error = noting(seen, "error handler");
    Router::new()
        .route("/handler", noting(seen, "handler"))
        .route("/tasks", move |x: &mut Exchange| tasks(&a, x))
        .route("/timed", move |x: &mut Exchange| timed(&b, x))
        .route("/topic", move |x: &mut Exchange| subscribed(&c, &topic, x))
        .route("/poll", post(asynchronous(async move |x: &mut Exchange| polled(&poll, x).await)))
        .route(
            "/read",
            post(move |x: &mut Exchange| {
                watched(&d, x);
                x.start_async();
                x.set_read_listener(d.clone());
            }),
        )
        .route("/write", move |x: &mut Exchange| {
            x.start_async();
            x.set_water_marks(WaterMarks { high: 4, low: 1, limit: 100 });
            x.set_write_listener(e.clone());
            write!(x, "more than four")?;
            x.flush()
        })
        .route("/coordinated", post(move |x: &mut Exchange| f.here(x, "handler")))
        .coordinate("/coordinated", move || g.clone())
        .error_handler(move |x: &mut Exchange| {
            error(x);
            write!(x, "error")
        })
        .filter(
            "/*",
            Filter::new(move |x: &mut Exchange, next: Next<'_>| {
                filtered(x);
                next.run(x)
            })
            .on([DispatchType::Request, DispatchType::Async, DispatchType::Error])
            .async_supported(true),
        )
}

const KINDS: [&str; 27] = [
    "delivery of a topic",
    "dispatch",
    "do_request",
    "do_response",
    "drop of a future",
    "error handler",
    "filter",
    "handler",
    "on_all_data_read",
    "on_complete",
    "on_complete of a coordinator",
    "on_content",
    "on_data_available",
    "on_error",
    "on_error of a coordinator",
    "on_error of a read listener",
    "on_timeout",
    "on_timeout of a coordinator",
    "on_write_possible",
    "poll",
    "poll behind a hand-off",
    "poll behind a sleep",
    "poll behind a worker",
    "poll behind content",
    "task",
    "task from a job",
    "access log",
];

/// One client's walk through all of them. The last requests are left in their middle.
fn walk(address: SocketAddr) {
    let mut client = Client::connect(address);
    for path in ["/handler", "/tasks", "/timed", "/topic", "/write"] {
        assert_eq!(client.get(path).status, 200, "{path}");
    }
    assert_eq!(client.post("/poll", b"content").text(), "polled");
    assert_eq!(client.post("/read", b"content").status, 200);
    client.post("/coordinated", b"content");
    for path in ["/read", "/coordinated"] {
        let mut client = Client::connect(address);
        client.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\npart"));
        client.finish();
        client.read_until_close();
    }
}

#[test]
fn fault_56_every_callback_runs_on_the_thread_of_its_shard() {
    for_each_driver(|driver| {
        let driver = if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll };
        let seen = Seen::default();
        let (shared, logged) = (seen.clone(), seen.clone());
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        let server = Server::builder()
            .listen(any_port)
            .shards(2)
            .driver(driver)
            .access_log(move |record| logged.on(record.shard as u32, "access log"))
            .start(move |shard| {
                HOME.set(Some(shard.id().index() as u32));
                router(&shared)
            })
            .expect("the server starts");
        let address = server.address().tcp().expect("a TCP address");
        let all = || {
            walk(address);
            let seen = seen.0.lock().unwrap();
            KINDS.iter().all(|kind| seen.get(kind).is_some_and(|shards| shards.len() == 2))
        };
        let reached = wait_for(DEADLINE, all);
        assert_eq!(*seen.1.lock().unwrap(), [""; 0], "callbacks away from home");
        let kinds = seen.0.lock().unwrap().clone();
        let missing: Vec<_> =
            KINDS.iter().filter(|kind| kinds.get(*kind).is_none_or(|on| on.len() < 2)).collect();
        assert!(reached, "not seen on both shards: {missing:?}; {kinds:?}");
        server.shutdown(ShutdownPlan::now());
    });
}
