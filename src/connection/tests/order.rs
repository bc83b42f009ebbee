//! One rule a test: order, ends and deadlines of a connection.

use super::{PORT, World, reply};
use crate::limits::Limits;
use shards::testing::{End, SimFaults};
use std::time::Duration;

fn world(limits: Limits) -> World {
    World::new(1, limits, SimFaults::default())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")
}

fn bodies(received: &[u8]) -> Vec<String> {
    let replies = reply::parse(received);
    assert_eq!(replies.rest, 0);
    replies.whole.iter().map(|reply| String::from_utf8_lossy(&reply.body[..2]).into_owned()).collect()
}

/// 86: parked requests completed in reverse are answered in order.
#[test]
fn fault_86_pipelined_and_parked_in_reverse() {
    let world = world(Limits::DEFAULT);
    let client = world.simulation.connect(PORT);
    let all: String = (10..30).map(|at| get(&format!("/park?{at}&{}", 40_u32.saturating_sub(at)))).collect();
    client.write(all.as_bytes());
    assert!(
        world
            .simulation
            .run_until(Duration::from_secs(2), || reply::parse(&client.received()).whole.len() == 20)
    );
    let expected: Vec<_> = (10..30).map(|at| at.to_string()).collect();
    assert_eq!(bodies(&client.received()), expected);
}

/// RFC 9112 §9.6: requests that came whole before a half-close are answered, those beyond the bound too.
#[test]
fn a_half_close_behind_more_requests_than_may_be_in_flight() {
    let world = world(Limits { pipelined_requests_max: 4, ..Limits::DEFAULT });
    let client = world.simulation.connect(PORT);
    let all: String = (10..40).map(|at| get(&format!("/stay?{at}&5"))).collect();
    client.write(all.as_bytes());
    client.finish();
    assert!(world.simulation.run_until(Duration::from_secs(5), || client.is_closed()));
    assert_eq!(bodies(&client.received()).len(), 30);
}

/// 78, 79: draining ends no answer that is on its way, and every request that was taken is answered.
#[test]
fn fault_78_draining_awaits_parked_and_unsent_answers() {
    let world = world(Limits::DEFAULT);
    let (parked, slow, idle) =
        (world.simulation.connect(PORT), world.simulation.connect(PORT), world.simulation.connect(PORT));
    parked.write((get("/park?00&50") + &get("/park?11&50") + &get("/park?22&50")).as_bytes());
    slow.set_receive_window(1000);
    slow.write(get("/plain?33").repeat(20).as_bytes());
    idle.write(get("/plain?44").as_bytes());
    world.simulation.run_for(Duration::from_millis(10));
    world.drain();
    world.simulation.run_for(Duration::from_millis(10));
    assert!(idle.is_closed());
    assert!(!parked.is_closed() && !slow.is_closed());
    slow.set_receive_window(1 << 20);
    let done = || {
        drop(slow.read());
        parked.is_closed() && slow.is_closed()
    };
    assert!(world.simulation.run_until(Duration::from_secs(5), done));
    let replies = reply::parse(&parked.received());
    assert_eq!(replies.whole.iter().map(|reply| reply.closes).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(bodies(&slow.received()).len(), 20);
}

/// An answer to HTTP/1.0 without a length is the last one of its connection (RFC 9112 §6.3): the requests that are under
/// way behind it, parked or answered already, are over with it.
#[test]
fn requests_behind_the_last_answer_end_with_it() {
    let world = world(Limits::DEFAULT);
    for behind in ["/park?11&60000", "/stay?11&60000", "/plain?11", "/big?11", "/stream?11&60000"] {
        let client = world.simulation.connect(PORT);
        let first = "GET /stream?00&5 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        client.write((first.to_owned() + &get(behind)).as_bytes());
        assert!(world.simulation.run_until(Duration::from_secs(5), || client.is_closed()), "{behind}");
        let text = String::from_utf8_lossy(&client.received()).into_owned();
        assert!(text.contains("00.00") && !text.contains("11.11"), "{behind}: {text}");
        drop(client);
        world.simulation.run_for(Duration::from_secs(5));
        world.expect_nothing_left(behind);
    }
}

/// A send that the kernel gives up without a reset (ECANCELED, ENOBUFS) leaves a gap: the next answer, which is ready,
/// must not stand in the place of the one that was lost.
#[test]
fn fault_32_nothing_is_sent_behind_a_send_that_failed() {
    let mut failed = 0;
    for seed in 0..60 {
        let world = World::new(seed, Limits::DEFAULT, SimFaults::default());
        let client = world.simulation.connect(PORT);
        client.set_receive_window(0);
        for path in ["/big?00", "/plain?11"] {
            client.write(get(path).as_bytes());
            world.simulation.run_for(Duration::from_millis(10));
        }
        assert_eq!(world.service.exchanges.counters().started, 2);
        world.simulation.set_faults(|faults| (faults.spurious_cancel, faults.late_cancel) = (0.5, 1.0));
        client.set_receive_window(1 << 20);
        world.simulation.run_for(Duration::from_secs(1));
        let text = String::from_utf8_lossy(&client.received()).into_owned();
        let whole = text.matches("00.00.00").count() > 10_000;
        failed += usize::from(!whole);
        assert!(whole || !text.contains("11.11"), "seed {seed}: {text}");
    }
    assert!(failed > 0, "no send has failed");
}

/// S2: a body that comes byte by byte is cut even if every byte is answered at once.
#[test]
fn fault_s2_a_slow_body_that_is_echoed() {
    let world = world(Limits::DEFAULT);
    let client = world.simulation.connect(PORT);
    client.write(b"POST /echo?00 HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\n");
    for _ in 0..4 {
        assert!(!client.is_closed());
        client.write(b"x");
        world.simulation.run_for(Duration::from_secs(5));
    }
    assert!(
        world.simulation.run_until(Duration::from_secs(1), || client.is_closed()),
        "still open after 21 s"
    );
}

/// The head's deadline is that of one head: a client that is never idle between two has not been slow.
#[test]
fn heads_cut_in_the_middle_are_not_one_slow_head() {
    let world = world(Limits::DEFAULT);
    let client = world.simulation.connect(PORT);
    let text = get("/plain?00");
    client.write(&text.as_bytes()[..10]);
    for _ in 0..30 {
        world.simulation.run_for(Duration::from_secs(1));
        client.write(&text.as_bytes()[10..]);
        client.write(&text.as_bytes()[..10]);
    }
    world.simulation.run_for(Duration::from_millis(10));
    assert!(!client.is_closed());
    assert_eq!(bodies(&client.received()).len(), 30);
}

/// An idle connection ends at its time, though the timer was armed for something else before and woke up early.
#[test]
fn idle_connections_end_at_their_time() {
    let world = world(Limits::DEFAULT);
    let client = world.simulation.connect(PORT);
    world.simulation.run_for(Duration::from_secs(1));
    for _ in 0..3 {
        client.write(get("/plain?00").as_bytes());
        world.simulation.run_for(Duration::from_secs(7));
    }
    world.simulation.run_for(Duration::from_secs(52));
    assert!(!client.is_closed());
    world.simulation.run_for(Duration::from_secs(2));
    assert_eq!(client.end(), Some(End::Fin));
}

/// S1: silent, partial, and trickling heads end at ten seconds.
#[test]
fn fault_s1_slow_heads() {
    let world = world(Limits::DEFAULT);
    let silent = world.simulation.connect(PORT);
    let partial = world.simulation.connect(PORT);
    let trickle = world.simulation.connect(PORT);
    partial.write(b"GET / HT");
    for byte in b"GET / HTTP/1.1\r\nA: " {
        trickle.write(&[*byte]);
        world.simulation.run_for(Duration::from_millis(500));
    }
    assert!(!silent.is_closed() && !partial.is_closed() && !trickle.is_closed());
    world.simulation.run_for(Duration::from_secs(1));
    assert!(silent.is_closed() && partial.is_closed() && trickle.is_closed());
    assert!(silent.received().is_empty());
    assert_eq!(reply::parse(&partial.received()).whole[0].status, 408);
    assert_eq!(reply::parse(&trickle.received()).whole[0].status, 408);
}

/// A handler ends a thousand exchanges of other connections: each is driven by itself, behind the other.
#[test]
fn a_thousand_told_at_once() {
    let world = world(Limits::DEFAULT);
    let clients: Vec<_> = (0..1000).map(|_| world.simulation.connect(PORT)).collect();
    for client in &clients {
        client.write(get("/join?00").as_bytes());
    }
    let parked = || world.service.exchanges.counters().async_active == 1000;
    assert!(world.simulation.run_until(Duration::from_secs(1), parked));
    let teller = world.simulation.connect(PORT);
    teller.write(get("/tell?00").as_bytes());
    let answered = || clients.iter().all(|client| !client.received().is_empty());
    let all = world.simulation.run_until(Duration::from_secs(1), answered);
    let open = clients.iter().filter(|client| client.received().is_empty()).count();
    assert!(all, "{open} not answered; {}", String::from_utf8_lossy(&teller.received()));
}

/// H8: what comes behind an Upgrade waits for its answer, and is a request after a refusal.
#[test]
fn fault_h8_bytes_behind_an_upgrade_wait() {
    let world = world(Limits::DEFAULT);
    let client = world.simulation.connect(PORT);
    let upgrade = "GET /park?00&100 HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write((upgrade.to_owned() + &get("/plain?11")).as_bytes());
    world.simulation.run_for(Duration::from_millis(50));
    assert_eq!(world.service.exchanges.counters().started, 1);
    world.simulation.run_for(Duration::from_millis(100));
    assert_eq!(bodies(&client.received()), ["00", "11"]);
}

/// A slow reader that takes something in each window is not cut; one that takes nothing is.
#[test]
fn fault_s3_slow_readers() {
    let world = world(Limits::DEFAULT);
    let (slow, stuck) = (world.simulation.connect(PORT), world.simulation.connect(PORT));
    for client in [&slow, &stuck] {
        client.set_receive_window(20_000);
        client.write(get("/big?00").as_bytes());
    }
    let mut taken = 0;
    for _ in 0..10 {
        world.simulation.run_for(Duration::from_secs(10));
        taken += slow.read().len();
    }
    assert!(taken > 150_000 && !slow.is_closed(), "{taken} bytes");
    assert_eq!(stuck.end(), Some(End::Rst));
}
