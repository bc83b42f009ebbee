//! The end of a server while requests are in every state: who is waited for, and in which order things end.

use crate::{
    common::{
        DEADLINE,
        client::Client,
        library::{Local, Log, each_driver},
        wait_for,
    },
    request,
};
use shardlet::{AsyncContext, Exchange, Result, Router, ShutdownPlan};
use std::{sync::mpsc, thread, time::Duration};

/// Long enough for every slow machine: what waits is let go by the test.
const PLAN: ShutdownPlan =
    ShutdownPlan { notice: Duration::ZERO, grace: DEADLINE, write: Duration::from_secs(1) };

const LARGE: usize = 8 << 20;

/// `/park` waits. `/again` is redispatched to `/second`, which waits. `/large` writes more than the sockets hold, and is
/// complete. Who waits gives its context to the test.
fn waiting(driver: shards::DriverChoice) -> (Local, Log, mpsc::Receiver<AsyncContext>) {
    let (log, (tell, contexts)) = (Log::default(), mpsc::channel());
    let noted = log.clone();
    let server = Local::start(driver, move |_| {
        let (first, tell, noted) = (tell.clone(), tell.clone(), noted.clone());
        let park = move |x: &mut Exchange| {
            noted.watch(x);
            tell.send(x.start_async()).expect("the test listens");
        };
        let again = move |x: &mut Exchange| {
            first.send(x.start_async()).expect("the test listens");
        };
        Router::new()
            .route("/park", park.clone())
            .route("/second", park)
            .route("/again", again)
            .route("/hello", |x: &mut Exchange| write!(x, "hello"))
            .route("/large", |x: &mut Exchange| x.write(vec![b'x'; LARGE]))
    });
    (server, log, contexts)
}

fn ask(server: &Local, path: &str) -> Client {
    let mut client = server.connect();
    client.send(request(path));
    client
}

fn next(contexts: &mpsc::Receiver<AsyncContext>) -> AsyncContext {
    contexts.recv_timeout(DEADLINE).expect("the request waits")
}

/// Begins the end, and waits until the connections hear of it: one that is idle closes.
fn begin(server: &Local) {
    let mut idle = server.connect();
    assert_eq!(idle.get("/hello").text(), "hello");
    server.server().begin_shutdown(PLAN);
    assert_eq!(idle.read_until_close(), b"", "the drain has begun");
}

fn answer(x: &mut Exchange) -> Result<()> {
    write!(x, "answer")?;
    x.complete()
}

/// Each of them began before the stop, and had gone on since it first waited: by a task that left it waiting, by a task
/// that sent a part, by a redispatch, by an answer that its client takes slowly. All end by themselves, whole.
#[test]
fn fault_78_a_stop_waits_for_the_resumed_the_redispatched_and_the_half_sent() {
    each_driver(|driver| {
        let (server, log, contexts) = waiting(driver);
        let mut resumed = ask(&server, "/park");
        let resumed_context = next(&contexts);
        resumed_context
            .executor()
            .execute(|x: &mut Exchange| x.set_attribute(1_u8).map_or((), drop))
            .expect("taken");
        let mut streams = ask(&server, "/park");
        let streams_context = next(&contexts);
        let part = |x: &mut Exchange| write!(x, "part ").and_then(|()| x.flush());
        streams_context.executor().execute(part).expect("taken");
        streams.take_until(b"part ");
        let mut again = ask(&server, "/again");
        next(&contexts).executor().execute(|x: &mut Exchange| x.redispatch("/second")).expect("taken");
        let again_context = next(&contexts);
        let mut large = ask(&server, "/large");
        large.take_until(b"\r\n\r\n");
        begin(&server);
        let counters = server.counters();
        assert!(counters.live >= 3 && counters.async_active == 3, "{counters:?}");
        assert_eq!(log.all(), [""; 0], "nobody is told anything");
        for context in [&resumed_context, &streams_context, &again_context] {
            assert!(!context.cancel_token().is_cancelled());
            context.executor().execute(answer).expect("an exchange that is waited for takes tasks");
        }
        for client in [&mut resumed, &mut again] {
            let got = client.read_response();
            assert_eq!((got.text(), got.field("connection")), ("answer", Some("close")));
            assert_eq!(client.read_until_close(), b"");
        }
        assert!(
            streams.read_until_close().ends_with(b"6\r\nanswer\r\n0\r\n\r\n"),
            "the rest of what had begun"
        );
        assert_eq!(large.read_exact(LARGE), vec![b'x'; LARGE]);
        assert_eq!(large.read_until_close(), b"");
        drop((resumed, streams, again, large));
        server.end(PLAN);
        assert_eq!(log.all(), ["complete completed"; 3]);
    });
}

/// Work that was queued when the end began, and work that this queues: all of it is done before its answer is complete,
/// and the connection closes behind the answer, in this order. Jobs of the pool go on meanwhile and come before the end
/// of the server.
#[test]
fn fault_79_connections_close_behind_the_work_that_was_queued() {
    each_driver(|driver| {
        let (server, log, contexts) = waiting(driver);
        let client = ask(&server, "/park");
        let context = next(&contexts);
        let seen = log.clone();
        let reader = thread::spawn(move || {
            let mut client = client;
            let got = client.read_response();
            seen.note(format!("client: {} {:?}", got.text(), got.field("connection")));
            assert_eq!(client.read_until_close(), b"");
            seen.note("client: closed");
        });
        let (release, hold) = mpsc::channel::<()>();
        let job = log.clone();
        context
            .start(move |context| {
                // The other end is dropped when the drain has begun.
                let _ = hold.recv_timeout(DEADLINE);
                job.note("job");
                queue(&context, &job, 1);
            })
            .expect("the pool has room");
        assert!(wait_for(DEADLINE, || server.server().workers().is_some_and(|pool| pool.active == 1)));
        begin(&server);
        log.note("drain");
        drop(release);
        reader.join().expect("the client got its answer");
        server.end(PLAN);
        log.note("server: ended");
        let told = log.all();
        let closes = r#"client: 1234 Some("close")"#;
        let expected = ["drain", "job", "task 1", "task 2", "task 3", "task 4"];
        assert_eq!(told[..6], expected, "{told:?}");
        // The server's last word and the client's first are told by two threads.
        let mut behind = told[6..8].to_vec();
        behind.sort();
        assert_eq!(behind, [closes, "complete completed"], "{told:?}");
        assert_eq!(told[8..], ["client: closed", "server: ended"], "{told:?}");
    });
}

/// A task that queues the next one before it is over; the last completes.
fn queue(context: &AsyncContext, log: &Log, number: u32) {
    let (again, noted) = (context.clone(), log.clone());
    let task = move |x: &mut Exchange| -> Result<()> {
        noted.note(format!("task {number}"));
        write!(x, "{number}")?;
        if number == 4 {
            return x.complete();
        }
        queue(&again, &noted, number + 1);
        Ok(())
    };
    assert!(context.executor().execute(task).is_ok(), "task {number} is taken");
}
