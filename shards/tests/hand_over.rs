//! What a hand-over from another thread may cost, as budgets that no slow machine can break: system calls and turns are
//! counted, and time is only held beside what waking a plain thread takes in the same minute. `benches/handover.rs` measures.
#![cfg(not(loom))]

mod common;

use common::{count, drivers, within};
use shards::{Shard, ShardHandle, Shards};
use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(60);

fn started(setup: common::Setup) -> (Shards<()>, ShardHandle) {
    println!("with {setup:?}");
    let shards = setup.builder().start(|shard| async move { shard.stopped().await }).expect("started");
    let handle = shards.handles()[0].clone();
    (shards, handle)
}

fn stats(handle: &ShardHandle) -> shards::ShardStats {
    handle.submit_to(Shard::stats).wait().expect("answered")
}

/// From the call to the first instruction on the shard.
fn hand_over(handle: &ShardHandle) -> Duration {
    let (tell, told) = mpsc::channel();
    let began = Instant::now();
    let sent = handle.execute(move |_| tell.send(began.elapsed()).expect("the test listens"));
    assert!(sent.is_ok(), "an empty inbox has room");
    told.recv_timeout(LIMIT).expect("run")
}

/// An idle shard: one write to wake it, one enter in which it sleeps, and one more if it has not fallen asleep yet.
#[test]
fn fault_52_a_hand_over_to_an_idle_shard_is_one_wake_and_one_turn() {
    for setup in drivers() {
        within(LIMIT, move || {
            let (shards, handle) = started(setup);
            let messages = count("SHARDS_WAKES", 1000) as u64;
            let before = stats(&handle);
            for _ in 0..messages {
                hand_over(&handle);
            }
            let after = stats(&handle);
            let [wakes, turns, enters] =
                [after.wakes - before.wakes, after.turns - before.turns, after.enters - before.enters];
            println!("{messages} messages: {wakes} wakes, {turns} turns, {enters} enters");
            // The last answer of `stats` is a message too.
            assert!(wakes <= messages + 1, "{wakes} wakes");
            assert!(
                turns <= 2 * (messages + 1) && enters <= 2 * (messages + 1),
                "{turns} turns, {enters} enters"
            );
            shards.stop();
            shards.join();
        });
    }
}

/// A busy shard: whatever arrives while a callback runs is run in this turn or the next, up to the budget of a turn, and
/// nobody wakes a shard that is awake.
#[test]
fn fault_52_a_hand_over_to_a_busy_shard_waits_for_one_turn() {
    for setup in drivers() {
        within(LIMIT, move || {
            let (shards, handle) = started(setup);
            for round in 0..100 {
                let ((tell, entered), (release, hold)) = (mpsc::channel(), mpsc::channel::<()>());
                let held = handle.execute(move |shard: &Shard| {
                    tell.send((shard.stats().turns, shard.stats().wakes)).expect("the test listens");
                    // The other end is dropped when the messages are there.
                    let _ = hold.recv_timeout(LIMIT);
                });
                assert!(held.is_ok());
                let (turn, wakes) = entered.recv_timeout(LIMIT).expect("held");
                let (tell, told) = mpsc::channel();
                for _ in 0..200 {
                    let tell = tell.clone();
                    let note = move |shard: &Shard| {
                        tell.send((shard.stats().turns, shard.stats().wakes)).expect("the test listens");
                    };
                    assert!(handle.execute(note).is_ok(), "an inbox of 1024 has room");
                }
                drop((tell, release));
                for (at, woken) in told {
                    assert!(at - turn <= 1, "round {round}: {} turns later", at - turn);
                    assert_eq!(woken, wakes, "round {round}: an awake shard is woken");
                }
            }
            shards.stop();
            shards.join();
        });
    }
}

/// The fault was a thousand times what a wake-up costs. In turn, so that both meet the same machine; medians.
#[test]
fn fault_52_a_hand_over_takes_about_as_long_as_waking_a_thread() {
    for setup in drivers() {
        within(LIMIT, move || {
            let (shards, handle) = started(setup);
            let (ask, asked) = mpsc::channel::<(Instant, mpsc::Sender<Duration>)>();
            let plain = thread::spawn(move || {
                for (began, tell) in asked {
                    tell.send(began.elapsed()).expect("the test listens");
                }
            });
            let wake_thread = || {
                let (tell, told) = mpsc::channel();
                ask.send((Instant::now(), tell)).expect("the thread lives");
                told.recv_timeout(LIMIT).expect("woken")
            };
            let (mut ours, mut bare): (Vec<_>, Vec<_>) = (0..301)
                .map(|_| {
                    // Both have time to fall asleep.
                    thread::sleep(Duration::from_micros(200));
                    (hand_over(&handle), wake_thread())
                })
                .unzip();
            ours.sort();
            bare.sort();
            let (ours, bare) = (ours[150], bare[150]);
            println!("median hand-over {ours:?}, a plain thread {bare:?}");
            assert!(ours < 50 * bare, "{ours:?} against {bare:?}");
            drop(ask);
            plain.join().expect("it ends");
            shards.stop();
            shards.join();
        });
    }
}
