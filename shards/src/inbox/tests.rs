//! Tests of the inbox on real threads and a real eventfd; `tests/loom.rs` explores the orders these may not meet.

use super::*;
use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

fn fixture(capacity: usize) -> (Sender, Inbox) {
    channel(capacity, Arc::new(WakeFd::new().expect("an eventfd")))
}

fn drain_all(inbox: &Inbox, budget: usize) -> usize {
    inbox.drain(budget, &mut |panic| std::panic::resume_unwind(panic))
}

/// A message that notes its number in a shared log.
fn note(log: &mpsc::Sender<u32>, number: u32) -> impl FnOnce() + Send + 'static {
    let log = log.clone();
    move || log.send(number).expect("the test listens")
}

#[test]
fn messages_run_in_order_within_the_budget_and_the_rest_comes_next() {
    let (sender, inbox) = fixture(100);
    let (log, seen) = mpsc::channel();
    for number in 0..5 {
        sender.post(note(&log, number)).expect("there is room");
    }
    assert_eq!(drain_all(&inbox, 2), 2);
    assert_eq!(inbox.queued(), 3);
    assert!(!inbox.is_empty());
    assert!(!inbox.park(), "mail that is left forbids sleep");
    for number in 5..8 {
        sender.post(note(&log, number)).expect("there is room");
    }
    assert_eq!(drain_all(&inbox, 100), 6);
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert!(inbox.is_empty());
    assert_eq!((inbox.queued(), inbox.high_water()), (0, 6));
}

#[test]
fn a_full_inbox_gives_the_task_back_and_still_takes_replies() {
    let (sender, inbox) = fixture(2);
    sender.post(|| {}).expect("there is room");
    sender.post(|| {}).expect("there is room");
    let (log, seen) = mpsc::channel();
    let rejected = sender.post(note(&log, 7)).expect_err("it is full");
    assert_eq!(rejected.reason, RejectReason::Full);
    (rejected.task)();
    assert_eq!(seen.try_recv(), Ok(7), "the task came back whole");
    sender.post_reply(note(&log, 8)).expect("replies are not bounded here");
    assert_eq!((inbox.queued(), inbox.rejected()), (3, 1));
    assert_eq!(drain_all(&inbox, 1), 1);
    sender.post(|| {}).expect("a place is free as soon as its message starts");
    assert_eq!(drain_all(&inbox, 9), 3);
    assert_eq!(seen.try_recv(), Ok(8));
}

#[test]
fn a_closed_inbox_rejects_and_its_mail_can_still_be_drained() {
    let (sender, inbox) = fixture(9);
    let (log, seen) = mpsc::channel();
    for number in 0..3 {
        sender.post(note(&log, number)).expect("there is room");
    }
    assert_eq!(drain_all(&inbox, 1), 1);
    sender.post(note(&log, 3)).expect("there is room");
    inbox.close();
    inbox.close();
    assert!(sender.is_closed());
    assert_eq!(sender.post(note(&log, 9)).expect_err("closed").reason, RejectReason::Stopping);
    assert_eq!(sender.post_reply(note(&log, 9)).expect_err("closed").reason, RejectReason::Stopping);
    assert!(!inbox.park(), "there is mail");
    assert_eq!(drain_all(&inbox, 9), 3);
    assert!(inbox.park());
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    inbox.unpark();
    assert!(sender.is_closed(), "waking up does not open it again");
    assert_eq!(inbox.queued(), 0);
}

#[test]
fn dropping_the_inbox_drops_its_mail_unrun() {
    let (sender, inbox) = fixture(9);
    let held = std::sync::Arc::new(());
    for _ in 0..3 {
        let held = std::sync::Arc::clone(&held);
        sender.post(move || unreachable!("dropped, not run: {held:?}")).expect("there is room");
    }
    drop(inbox);
    assert_eq!(std::sync::Arc::strong_count(&held), 1);
    assert!(sender.post(|| {}).is_err());
}

#[test]
fn a_panic_ends_its_own_message_only() {
    let (sender, inbox) = fixture(9);
    let (log, seen) = mpsc::channel();
    sender.post(|| panic!("on purpose")).expect("there is room");
    sender.post(note(&log, 1)).expect("there is room");
    let mut panics = 0;
    assert_eq!(inbox.drain(9, &mut |_| panics += 1), 2);
    assert_eq!((panics, seen.try_recv()), (1, Ok(1)));
}

#[test]
fn a_message_may_post_and_look_while_it_runs() {
    let (sender, inbox) = fixture(1);
    let again = sender.clone();
    let (log, seen) = mpsc::channel();
    sender.post(move || again.post(note(&log, 1)).expect("its own place is free")).expect("room");
    assert_eq!(drain_all(&inbox, 9), 1, "what a message posts runs in the next drain");
    assert_eq!(drain_all(&inbox, 9), 1);
    assert_eq!(seen.try_recv(), Ok(1));
}

#[test]
fn one_sleep_is_ended_by_one_write() {
    let (sender, inbox) = fixture(9);
    sender.post(|| {}).expect("room");
    assert_eq!(inbox.wakes(), 0, "nobody sleeps");
    drain_all(&inbox, 9);
    assert!(inbox.park());
    sender.post(|| {}).expect("room");
    sender.post(|| {}).expect("room");
    assert_eq!((inbox.wakes(), inbox.sleeps()), (1, 1));
    inbox.unpark();
    assert_eq!(drain_all(&inbox, 9), 2);
    assert!(inbox.park());
    inbox.unpark();
    sender.post(|| {}).expect("room");
    assert_eq!((inbox.wakes(), inbox.sleeps()), (1, 2), "awake again: no write");
}

#[test]
fn the_eventfd_is_drained_without_blocking() {
    let wake = WakeFd::new().expect("an eventfd");
    wake.drain();
    wake.wake();
    wake.wake();
    assert!(wake.wait(Duration::from_secs(5)));
    assert!(!wake.wait(Duration::ZERO));
    assert_eq!(wake.wakes(), 2);
}

#[test]
fn large_and_zero_sized_tasks_are_carried_whole() {
    let (sender, inbox) = fixture(9);
    let (log, seen) = mpsc::channel();
    #[repr(align(64))]
    struct Wide([u8; 4096]);
    let wide = Wide([7; 4096]);
    sender
        .post(move || {
            let wide = &wide;
            assert_eq!((&raw const *wide).addr() % 64, 0);
            log.send(wide.0.iter().map(|byte| u32::from(*byte)).sum::<u32>()).expect("heard");
        })
        .expect("room");
    sender.post(|| {}).expect("room");
    assert_eq!(drain_all(&inbox, 9), 2);
    assert_eq!(seen.try_recv(), Ok(7 * 4096));
}

/// What a consumer of the stress test saw.
#[derive(Default)]
struct Seen {
    next: [usize; SENDERS],
    count: usize,
    oldest: Duration,
}

const SENDERS: usize = 8;
const CONSUMERS: usize = 2;

thread_local! {
    static SEEN: std::cell::RefCell<Seen> = std::cell::RefCell::default();
}

/// Runs on a consumer: checks order within the sender and the time under way.
fn receive(sender: usize, number: usize, posted: Instant) {
    SEEN.with_borrow_mut(|seen| {
        assert_eq!(seen.next[sender], number, "sender {sender}: out of order");
        seen.next[sender] += 1;
        seen.count += 1;
        seen.oldest = seen.oldest.max(posted.elapsed());
    });
}

/// Drains until `expected` messages ran, sleeping whenever there is none; gives sleeps and the longest way.
fn consume(inbox: &Inbox, wake: &WakeFd, expected: usize) -> (u64, Duration) {
    while SEEN.with_borrow(|seen| seen.count) < expected {
        drain_all(inbox, 64);
        if SEEN.with_borrow(|seen| seen.count) < expected && inbox.park() {
            assert!(wake.wait(Duration::from_secs(10)), "a wake was lost");
            inbox.unpark();
        }
    }
    (inbox.sleeps(), SEEN.with_borrow(|seen| seen.oldest))
}

fn send_all(senders: &[Sender], sender: usize, each: usize) {
    for number in 0..each {
        for inbox in senders {
            loop {
                let posted = Instant::now();
                match inbox.post(move || receive(sender, number, posted)) {
                    Ok(()) => break,
                    Err(rejected) => assert_eq!(rejected.reason, RejectReason::Full),
                }
                thread::yield_now();
            }
        }
        if number % 97 == sender {
            thread::yield_now();
        }
    }
}

/// `INBOX_STRESS=10000000 cargo test --release -p shards inbox::tests::stress` runs it at length.
#[test]
fn stress_eight_senders_two_sleepy_consumers() {
    let total: usize = match std::env::var("INBOX_STRESS") {
        Ok(count) => count.parse().expect("INBOX_STRESS is a number of messages"),
        Err(_) => 200_000,
    };
    let each = total / SENDERS / CONSUMERS;
    let mut senders = Vec::new();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|_| {
            let wake = Arc::new(WakeFd::new().expect("an eventfd"));
            let (sender, inbox) = channel(1024, Arc::clone(&wake));
            senders.push(sender);
            thread::spawn(move || {
                let (sleeps, oldest) = consume(&inbox, &wake, each * SENDERS);
                assert!(wake.wakes() <= sleeps, "{} writes for {sleeps} sleeps", wake.wakes());
                assert!(oldest < Duration::from_secs(1), "a message was under way for {oldest:?}");
                assert_eq!((inbox.queued(), inbox.is_empty()), (0, true));
                assert!(inbox.high_water() <= 1024 + SENDERS);
            })
        })
        .collect();

    let foreign: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let senders = senders.clone();
            thread::spawn(move || send_all(&senders, sender, each))
        })
        .collect();
    for thread in foreign.into_iter().chain(consumers) {
        thread.join().expect("no assertion failed");
    }
}
