//! Clients that leave, reset or close half of their connection, while their request waits or ends.

use crate::{
    common::{
        DEADLINE,
        client::Client,
        library::{Local, Log, each_driver},
        process::server_state,
        wait_for,
    },
    request,
};
use shardlet::{
    AsyncContext, EndReason, Error, Exchange, Result, Router,
    exchange::UndeliveredReason,
    routing::{HalfClose, Handler},
};
use shards::Shard;
use std::{
    sync::{Barrier, mpsc},
    thread,
};

/// Waits, notes its end, and gives its context to the test.
fn park(log: &Log, contexts: &mpsc::Sender<AsyncContext>) -> impl Handler + use<> {
    let (log, contexts) = (log.clone(), contexts.clone());
    move |x: &mut Exchange| {
        log.watch(x);
        contexts.send(x.start_async()).expect("the test listens");
    }
}

/// A server whose `/park` and tolerant `/stay` wait until the test does something with the contexts that come out.
fn parking(driver: shards::DriverChoice) -> (Local, Log, mpsc::Receiver<AsyncContext>) {
    let (log, (tell, contexts)) = (Log::default(), mpsc::channel());
    let noted = log.clone();
    let server = Local::start(driver, move |_| {
        let tolerant = park(&noted, &tell);
        Router::new().route("/park", park(&noted, &tell)).route_with("/stay", tolerant, |route| {
            route.half_close(HalfClose::Tolerate);
        })
    });
    (server, log, contexts)
}

fn next(contexts: &mpsc::Receiver<AsyncContext>) -> AsyncContext {
    contexts.recv_timeout(DEADLINE).expect("the request waits")
}

/// `SHARDLET_RACES` sets how many (default 400 on each driver). In turn: the reset is told before the completion is
/// sent, the answer has left before the reset, the answer is decided and cannot leave, and both come at once.
#[test]
fn fault_4_a_reset_of_the_socket_and_a_completion_give_one_end() {
    let races: usize = std::env::var("SHARDLET_RACES").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    each_driver(|driver| {
        let (server, log, contexts) = parking(driver);
        let mut both = [0, 0];
        for round in 0..races {
            let mut client = server.connect();
            client.send(request("/park"));
            let context = next(&contexts);
            let expected = match round % 4 {
                0 => reset_first(client, &context, &log),
                1 => answer_first(client, &context, &log),
                2 => decided_but_not_sent(client, &context, &log),
                _ => at_once(client, &context, round),
            };
            let over = || log.all().iter().any(|noted| noted.starts_with("complete "));
            assert!(wait_for(DEADLINE, over), "round {round}: no end");
            assert!(context.cancel_token().is_cancelled());
            let told = log.take();
            let won = told == ["complete completed"];
            assert!(
                won || told == ["error client_reset", "complete client_reset"],
                "round {round}: {told:?}"
            );
            match expected {
                Some(reason) => assert_eq!(won, reason == EndReason::Completed, "round {round}: {told:?}"),
                None => both[usize::from(won)] += 1,
            }
        }
        server.expect_rest();
        println!("at once: {} resets won, {} completions", both[0], both[1]);
        assert_eq!(log.take(), [""; 0], "nothing is told behind the end");
        let counters = server.counters();
        let ended = counters.ended(EndReason::Completed) + counters.ended(EndReason::ClientReset);
        assert_eq!((counters.started, ended), (races as u64, races as u64), "{counters:?}");
    });
}

fn answer(x: &mut Exchange) -> Result<()> {
    write!(x, "answer")?;
    x.complete()
}

fn reset_first(client: Client, context: &AsyncContext, log: &Log) -> Option<EndReason> {
    client.reset();
    log.await_count("complete client_reset", 1);
    let late = context.executor().execute(answer).expect_err("it has ended");
    assert_eq!(late.reason, UndeliveredReason::Ended(EndReason::ClientReset));
    Some(EndReason::ClientReset)
}

fn answer_first(mut client: Client, context: &AsyncContext, log: &Log) -> Option<EndReason> {
    context.executor().execute(answer).expect("taken");
    assert_eq!(client.read_response().text(), "answer");
    log.await_count("complete completed", 1);
    client.reset();
    Some(EndReason::Completed)
}

/// More than both sockets hold: the client reads its head and then no more.
fn decided_but_not_sent(mut client: Client, context: &AsyncContext, _: &Log) -> Option<EndReason> {
    let large = |x: &mut Exchange| -> Result<()> {
        x.write(vec![b'x'; LARGE])?;
        x.complete()
    };
    context.executor().execute(large).expect("taken");
    client.take_until(b"\r\n\r\n");
    client.reset();
    Some(EndReason::ClientReset)
}

const LARGE: usize = 15 << 20;

fn at_once(client: Client, context: &AsyncContext, round: usize) -> Option<EndReason> {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            // A reset that comes later and later, so that it meets every step of the completion.
            (0..(round % 64) * 40).for_each(|_| std::hint::spin_loop());
            client.reset();
        });
        start.wait();
        // Either is right, and so is whatever the end then says.
        let _ = context.executor().execute(answer);
    });
    None
}

#[test]
fn fault_31_the_end_of_a_client_is_told_within_one_turn_of_the_loop() {
    each_driver(|driver| {
        let log = Log::default();
        let noted = log.clone();
        let (tell, turns) = mpsc::channel();
        let server = Local::start(driver, move |_| {
            let (noted, tell) = (noted.clone(), tell.clone());
            Router::new().route("/events", move |x: &mut Exchange| {
                let (error, complete, log, turns) =
                    (noted.clone(), noted.clone(), tell.clone(), tell.clone());
                x.on_error(move |_, reason| {
                    error.note(format!("error {reason}"));
                    log.send(turn()).expect("the test listens");
                });
                x.on_complete(move |_, reason| {
                    complete.note(format!("complete {reason}"));
                    turns.send(turn()).expect("the test listens");
                });
                x.start_async();
                write!(x, "data: first\n\n")?;
                x.flush()
            })
        });
        for reset in [false, true] {
            let mut client = server.connect();
            client.send(request("/events"));
            client.take_until(b"data: first\n\n");
            let held = while_the_shard_is_busy(&server, || {
                let ours = client.stream().local_addr().expect("an address");
                match reset {
                    true => client.reset(),
                    false => drop(client),
                }
                let left = if reset { None } else { Some("CLOSE_WAIT") };
                let heard = wait_for(DEADLINE, || server_state(server.address(), ours) == left);
                assert!(heard, "the server's kernel has heard of it");
            });
            let told = [0; 2].map(|_| turns.recv_timeout(DEADLINE).expect("the end is told"));
            let reason = if reset { "client_reset" } else { "client_closed" };
            assert_eq!(log.take(), [format!("error {reason}"), format!("complete {reason}")]);
            assert!(told.iter().all(|turn| turn - held <= 1), "held in turn {held}, told in {told:?}");
        }
        server.expect_rest();
    });
}

/// The number of turns that are over.
fn turn() -> u64 {
    Shard::current().stats().turns
}

/// Holds the shard in a message while this is done; gives the turn in which it was.
fn while_the_shard_is_busy(server: &Local, act: impl FnOnce()) -> u64 {
    let ((tell, entered), (release, hold)) = (mpsc::channel(), mpsc::channel::<()>());
    let held = server.shard().execute(move |_| {
        tell.send(turn()).expect("the test listens");
        // The other end is dropped when the test goes on.
        let _ = hold.recv_timeout(DEADLINE);
    });
    assert!(held.is_ok(), "the shard takes messages");
    let turn = entered.recv_timeout(DEADLINE).expect("the shard is held");
    act();
    drop(release);
    turn
}

/// The client has closed its side, so that nothing is received any more, and resets: no receive can tell, only a send.
#[test]
fn fault_32_fault_46_a_send_that_fails_is_told_once_and_later_writes_are_refused() {
    each_driver(|driver| {
        let (server, log, contexts) = parking(driver);
        for round in 0..3 {
            let mut client = server.connect();
            client.send(request("/stay"));
            let context = next(&contexts);
            let first = |x: &mut Exchange| write!(x, "first").and_then(|()| x.flush());
            context.executor().execute(first).expect("taken");
            client.take_until(b"first");
            client.finish();
            let ours = client.stream().local_addr().expect("an address");
            let finished = || server_state(server.address(), ours) == Some("CLOSE_WAIT");
            assert!(wait_for(DEADLINE, finished), "round {round}: the server's kernel has the end");
            server.counters();
            client.reset();
            assert_eq!(log.all(), [""; 0], "round {round}: a half-close is no end here");
            let mut writes = 0;
            let refused = loop {
                let next = |x: &mut Exchange| write!(x, "next").and_then(|()| x.flush());
                match context.executor().execute(next) {
                    Ok(()) => writes += 1,
                    Err(late) => break late.reason,
                }
                server.counters();
                assert!(writes < 5, "round {round}: writes succeed for ever");
            };
            assert_eq!(refused, UndeliveredReason::Ended(EndReason::ClientReset), "round {round}");
            assert!(matches!(context.with(|_| ()), Err(Error::Ended(EndReason::ClientReset))));
            // Refusals begin with the decision; the listeners are told on the shard.
            log.await_count("complete client_reset", 1);
            assert_eq!(log.take(), ["error client_reset", "complete client_reset"], "round {round}");
        }
        server.expect_rest();
        assert_eq!(server.counters().ended(EndReason::ClientReset), 3);
    });
}

/// RFC 9112 §9.6, RFC 9110 §9.3.2: whoever has sent its request has said nothing about its interest in the answer, so
/// the route says what it means, and for a HEAD the same as for a GET.
#[test]
fn fault_42_each_route_says_what_a_half_close_means_for_get_and_for_head() {
    each_driver(|driver| {
        let (server, log, contexts) = parking(driver);
        for method in ["GET", "HEAD", "GET", "HEAD"] {
            let ask = |path: &str| {
                let mut client = server.connect();
                client.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
                let context = next(&contexts);
                client.finish();
                (client, context)
            };
            let (mut stays, tolerant) = ask("/stay");
            // The default, as documented at `HalfClose`.
            let (mut leaves, gone) = ask("/park");
            log.await_count("complete client_closed", 1);
            assert_eq!(
                log.take(),
                ["error client_closed", "complete client_closed"],
                "{method}: one of the two"
            );
            assert!(gone.cancel_token().is_cancelled() && !tolerant.cancel_token().is_cancelled());
            assert_eq!(leaves.read_until_close(), b"", "{method}: no answer");
            tolerant.executor().execute(answer).expect("taken");
            let got = if method == "HEAD" { stays.read_head_response() } else { stays.read_response() };
            assert_eq!((got.status, got.field("content-length")), (200, Some("6")), "{method}");
            assert_eq!(got.text(), if method == "HEAD" { "" } else { "answer" });
            assert_eq!(stays.read_until_close(), b"", "{method}: there is no next request");
            log.await_count("complete completed", 1);
            assert_eq!(log.take(), ["complete completed"], "{method}");
        }
        server.expect_rest();
    });
}

/// Several on one connection: each by its own route's word. What is given up costs nothing that is before it, and ends
/// the connection behind that; with `streams` its answer has begun before the end of the client, and cannot announce it.
#[test]
fn fault_42_a_half_close_behind_requests_to_different_routes() {
    each_driver(|driver| {
        let (server, log, contexts) = parking(driver);
        for streams in [false, true] {
            let mut client = server.connect();
            client.send(request("/stay") + &request("/park"));
            let (stays, leaves) = (next(&contexts), next(&contexts));
            if streams {
                stays.executor().execute(Exchange::flush).expect("taken");
                client.take_until(b"HTTP/1.1 200 OK\r\n");
            }
            client.finish();
            log.await_count("complete client_closed", 1);
            assert!(leaves.cancel_token().is_cancelled() && !stays.cancel_token().is_cancelled());
            stays.executor().execute(answer).expect("taken");
            let rest = String::from_utf8(client.read_until_close()).expect("text");
            assert_eq!(rest.matches("answer").count(), 1, "{rest:?}");
            let closes = rest.contains("Connection: close\r\n");
            let whole = rest.ends_with(if streams { "6\r\nanswer\r\n0\r\n\r\n" } else { "\r\n\r\nanswer" });
            assert!(whole && closes != streams, "{rest:?}");
            log.await_count("complete completed", 1);
            let told = ["error client_closed", "complete client_closed", "complete completed"];
            assert_eq!(log.take(), told);
            server.expect_rest();
        }
    });
}
