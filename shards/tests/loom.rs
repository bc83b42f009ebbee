//! Every order in which threads can meet in the inbox, explored by loom. Run it with `scripts/loom`, which also
//! makes sure that three ways of getting the inbox wrong are found here.
#![cfg(loom)]
#![allow(dead_code, unused_imports, unreachable_pub, reason = "a part of the library, built alone")]

#[path = "../src/inbox.rs"]
mod inbox;
#[path = "../src/sync.rs"]
mod sync;

use inbox::{Inbox, RejectReason, Sender, WakeFd, channel};
use loom::{cell::UnsafeCell, sync::Arc, thread};
use std::sync::Mutex;

/// What ran, as (sender, number). Not modelled: it must not order anything that the inbox does not.
type Log = std::sync::Arc<Mutex<Vec<(usize, usize)>>>;

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// A message that reads a cell which its sender wrote before posting: loom objects if nothing orders the two. `token` is
/// counted: loom objects if a message is neither run nor dropped.
fn message(log: &Log, token: &Arc<()>, sender: usize, number: usize) -> impl FnOnce() + Send + 'static {
    let (log, token) = (std::sync::Arc::clone(log), Arc::clone(token));
    let written = UnsafeCell::new(());
    written.with_mut(|_| ());
    move || {
        written.with(|_| ());
        log.lock().unwrap().push((sender, number));
        drop(token);
    }
}

/// The shard: drains, and sleeps when it may, until all have run. A lost wake is a deadlock, which loom reports.
fn consume(inbox: &Inbox, wake: &WakeFd, expected: usize) {
    let mut ran = 0;
    loop {
        ran += inbox.drain(3, &mut |panic| std::panic::resume_unwind(panic));
        if ran == expected {
            return;
        }
        if inbox.park() {
            wake.sleep();
            inbox.unpark();
        }
    }
}

fn send_two(inbox: Sender, log: Log, sender: usize) {
    let token = Arc::new(());
    for number in 0..2 {
        assert!(inbox.post(message(&log, &token, sender, number)).is_ok());
    }
}

#[test]
fn no_wake_is_lost_none_is_superfluous_and_each_sender_keeps_its_order() {
    model(2, || {
        let log = Log::default();
        let wake = Arc::new(WakeFd::new());
        let (sender, inbox) = channel(4, Arc::clone(&wake));
        for number in 0..2 {
            let (sender, log) = (sender.clone(), std::sync::Arc::clone(&log));
            thread::spawn(move || send_two(sender, log, number));
        }
        drop(sender);
        consume(&inbox, &wake, 4);
        let of = |sender| move |seen: &&(usize, usize)| seen.0 == sender;
        let log = log.lock().unwrap();
        for sender in 0..2 {
            let numbers: Vec<_> = log.iter().filter(of(sender)).map(|seen| seen.1).collect();
            assert_eq!(numbers, [0, 1], "sender {sender}: out of order");
        }
        assert!(inbox.wakes() <= inbox.sleeps(), "{} writes, {} sleeps", inbox.wakes(), inbox.sleeps());
    });
}

#[test]
fn one_message_is_handed_over_whole_in_every_order() {
    model(5, || {
        let log = Log::default();
        let wake = Arc::new(WakeFd::new());
        let (sender, inbox) = channel(4, Arc::clone(&wake));
        let posted = std::sync::Arc::clone(&log);
        thread::spawn(move || {
            assert!(sender.post(message(&posted, &Arc::new(()), 0, 7)).is_ok());
        });
        consume(&inbox, &wake, 1);
        assert!(inbox.wakes() <= inbox.sleeps());
        assert_eq!(*log.lock().unwrap(), [(0, 7)]);
    });
}

/// Posts two and gives how many were taken.
fn post_or_be_refused(inbox: &Sender, log: &Log, token: &Arc<()>) -> usize {
    (0..2)
        .filter(|number| match inbox.post_reply(message(log, token, 0, *number)) {
            Ok(()) => true,
            Err(rejected) => {
                assert_eq!(rejected.reason, RejectReason::Stopping);
                false
            }
        })
        .count()
}

#[test]
fn a_message_that_meets_the_close_is_taken_or_refused_never_both_or_neither() {
    model(3, || {
        let (log, token) = (Log::default(), Arc::new(()));
        let (sender, inbox) = channel(4, Arc::new(WakeFd::new()));
        let (posted, held) = (std::sync::Arc::clone(&log), Arc::clone(&token));
        let foreign = thread::spawn(move || post_or_be_refused(&sender, &posted, &held));
        inbox.close();
        let ran = inbox.drain(9, &mut |panic| std::panic::resume_unwind(panic));
        let taken = foreign.join().unwrap();
        assert_eq!((ran, log.lock().unwrap().len()), (taken, taken));
        assert!(inbox.is_empty());
        assert_eq!(inbox.queued(), 0);
    });
}

#[test]
fn mail_inside_a_dropped_inbox_is_dropped_once() {
    model(3, || {
        let (log, token) = (Log::default(), Arc::new(()));
        let (sender, inbox) = channel(4, Arc::new(WakeFd::new()));
        let (posted, held) = (std::sync::Arc::clone(&log), Arc::clone(&token));
        let foreign = thread::spawn(move || post_or_be_refused(&sender, &posted, &held));
        drop(inbox);
        foreign.join().unwrap();
        assert!(log.lock().unwrap().is_empty(), "dropped, not run");
        assert_eq!(Arc::strong_count(&token), 1, "every message let go of the token");
    });
}
