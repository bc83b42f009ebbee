//! A shard that falls asleep while it is told something, under a clock that only ticks when the test says so: nothing but
//! the wake can end the sleep, so a lost one hangs and is found.

use super::*;
use crate::{
    driver::{DriverKind, DriverOptions},
    inbox::{self, WakeFd},
    sync::{AtomicUsize, Ordering},
};
use std::{sync::mpsc, thread, time::Duration};

/// A shard over this driver's real sleep, with a timer an hour away on a clock that stands still.
fn asleep(kind: DriverKind) -> Shard {
    let options = DriverOptions {
        submission_entries: 64,
        completion_entries: 256,
        buffers: 4,
        buffer_bytes: 4096,
        multishot_receive: true,
    };
    let wake = Arc::new(WakeFd::new().expect("an eventfd"));
    let (sender, inbox) = inbox::channel(64, wake.clone());
    Shard::new(Parts {
        handle: ShardHandle::new(ShardId(0), sender),
        inbox,
        driver: Driver::new(kind, &options, wake).expect("a driver"),
        clock: Clock::simulated(),
        budgets: Budgets::default(),
        offload: None,
        siblings: Arc::default(),
    })
}

/// The message comes before, at or behind the moment at which the shard parks, as the spin grows: it is run in the turn
/// that its wake ends or soon behind it, and a shard that sleeps is woken once.
fn race(kind: DriverKind, rounds: u64) {
    let shard = asleep(kind);
    let handle = shard.handle();
    let (asked, ready) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, tell) = (asked.clone(), ready.clone());
    let sender = thread::spawn(move || {
        for round in 1..=rounds {
            await_round(&seen, round);
            tell.store(round as usize, Ordering::Release);
            (0..(round % 97) * 40).for_each(|_| std::hint::spin_loop());
            let told = handle.execute(move |shard| shard.local(Cell::<u64>::default).set(round));
            assert!(told.is_ok(), "round {round}: the inbox has room");
        }
    });
    shard.entered(|| {
        let heard = shard.local(Cell::<u64>::default);
        for round in 1..=rounds {
            asked.store(round as usize, Ordering::Release);
            if round % 2 == 0 {
                // Otherwise it falls asleep while the sender has yet to hear of the round.
                await_round(&ready, round);
            }
            let mut turns = 0;
            while heard.get() < round {
                shard.turn(true).expect("the driver works");
                turns += 1;
                assert!(turns <= 3, "{kind:?}, round {round}: {turns} turns for one message");
            }
        }
        let stats = shard.stats();
        assert_eq!(stats.messages, rounds, "{kind:?}");
        assert!(stats.wakes <= stats.sleeps && stats.sleeps <= stats.turns, "{kind:?}: {stats:?}");
        assert!(stats.sleeps > 0, "{kind:?}: it never slept");
        println!("{kind:?}: {} sleeps and {} wakes for {rounds} messages", stats.sleeps, stats.wakes);
    });
    sender.join().expect("the sender ends");
    assert_eq!(shard.clone().entered(|| shard.tear_down(Duration::from_secs(1))), 0);
}

/// No sleep that would come between: the two meet within microseconds.
fn await_round(place: &AtomicUsize, round: u64) {
    for look in 0_u64.. {
        if place.load(Ordering::Acquire) >= round as usize {
            return;
        }
        if look % 1024 == 0 { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// `SHARDS_WAKES` sets how many (default 3,000 on each driver).
#[test]
fn fault_51_a_message_that_meets_the_shard_falling_asleep_wakes_it() {
    let rounds = std::env::var("SHARDS_WAKES").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    for kind in [DriverKind::Uring, DriverKind::Epoll] {
        if kind == DriverKind::Uring && crate::probe().driver != kind {
            println!("io_uring left out: {}", crate::probe());
            continue;
        }
        let (done, result) = mpsc::channel();
        let racing = thread::spawn(move || {
            race(kind, rounds);
            // A caller that has given up does not listen.
            let _ = done.send(());
        });
        match result.recv_timeout(Duration::from_secs(60)) {
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{kind:?}: the shard sleeps over a message"),
            _ => racing.join().expect("no assertion failed"),
        }
    }
}
