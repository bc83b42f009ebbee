//! The pool with real threads; every wait is for a condition, with a deadline.

use super::{Drained, JobContext, PoolOptions, WorkerPool};
use crate::{error::Error, exchange::Workers};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(10);

fn pool(threads: usize, queue_max: usize) -> WorkerPool {
    WorkerPool::new(&PoolOptions { threads, queue_max, name: "test".into() }).unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::yield_now();
    }
}

/// Starts a job; whether it was taken.
fn start(pool: &WorkerPool, job: impl FnOnce() + Send + 'static) -> bool {
    pool.start(Box::new(job)).is_ok()
}

/// A job that says when it runs and ends when told.
fn block(pool: &WorkerPool) -> Sender<()> {
    let (release, wait) = bounded::<()>(0);
    let (running, ran) = bounded(1);
    assert!(start(pool, move || {
        running.send(()).unwrap();
        let _ = wait.recv();
    }));
    ran.recv_timeout(LONG).unwrap();
    release
}

fn answer<T: Send + 'static>(pool: &WorkerPool, job: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver): (Sender<T>, Receiver<T>) = bounded(1);
    assert!(start(pool, move || sender.send(job()).unwrap()));
    receiver.recv_timeout(LONG).unwrap()
}

#[test]
fn l_24_fault_61_a_full_queue_hands_the_job_back_and_counts_it() {
    let pool = pool(1, 2);
    let release = block(&pool);
    assert!(start(&pool, || ()) && start(&pool, || ()));
    let ran = Arc::new(AtomicUsize::new(0));
    let seen = ran.clone();
    let back = pool.start(Box::new(move || {
        seen.fetch_add(1, Ordering::SeqCst);
    }));
    back.expect_err("the queue is full")();
    assert_eq!(ran.load(Ordering::SeqCst), 1, "what came back is the job itself");
    let figures = pool.snapshot();
    assert_eq!((figures.active, figures.queued, figures.high_water, figures.rejected_full), (1, 2, 2, 1));
    drop(release);
    until("the queue is empty again", || pool.snapshot().completed == 3);
    assert_eq!(pool.close(LONG), Drained::default());
    let figures = pool.snapshot();
    assert_eq!((figures.active, figures.queued, figures.threads), (0, 0, 0));
    assert_eq!(figures.hand_over.len(), 3);
}

#[test]
fn l_24_threads_are_named_and_bounded() {
    let pool = pool(3, 8);
    let name = answer(&pool, || thread::current().name().map(str::to_owned));
    assert!(name.unwrap().starts_with("test-"));
    let blocked: Vec<_> = (0..3).map(|_| block(&pool)).collect();
    assert_eq!((pool.snapshot().threads, pool.snapshot().active), (3, 3));
    drop(blocked);
    assert_eq!(pool.close(LONG), Drained::default());
}

#[test]
fn l_24_a_probe_after_a_job_reads_an_empty_context() {
    let pool = pool(1, 8);
    let context = JobContext::new().with_trace_id("t-1").with_tenant("acme").with_value(7_u64).unwrap();
    let read = || {
        let context = JobContext::current();
        (context.trace_id().map(str::to_owned), context.tenant().map(str::to_owned), context.value::<u64>())
    };
    let seen = answer(&pool, context.carry(read));
    assert_eq!(seen, (Some("t-1".into()), Some("acme".into()), Some(Arc::new(7))));
    assert!(answer(&pool, || JobContext::current().is_empty()), "the probe");
    // The same behind a job that panics, and behind one that leaves a context of its own.
    assert!(start(&pool, context.carry(|| panic!("expected by the test"))));
    assert!(answer(&pool, || JobContext::current().is_empty()), "the probe behind a panic");
    let nested =
        answer(&pool, context.carry(|| JobContext::new().with_tenant("inner").scope(JobContext::current)));
    assert_eq!((nested.tenant(), nested.trace_id()), (Some("inner"), None), "nothing is inherited");
    assert!(answer(&pool, || JobContext::current().is_empty()));
    assert!(JobContext::current().is_empty(), "the sender's thread has none either");
}

#[test]
fn a_context_keeps_one_value_of_each_type() {
    let context = JobContext::new().with_value(1_u8).unwrap().with_value("a").unwrap();
    let context = context.with_value(2_u8).unwrap();
    assert_eq!((context.value::<u8>(), context.value::<&str>()), (Some(Arc::new(2)), Some(Arc::new("a"))));
    assert_eq!(context.value::<u16>(), None);
    assert_eq!(context.carry_with(|n: u8| n + *JobContext::current().value::<u8>().unwrap())(3), 5);
}

/// Types as many as there are bits.
struct Numbered<const N: usize>;

macro_rules! with_numbered {
    ($context:expr, $($number:literal)*) => {{
        let context = $context;
        $(let context = context.with_value(Numbered::<$number>).unwrap();)*
        context
    }};
}

#[test]
fn a_context_has_so_many_values_and_refuses_the_next() {
    let context = with_numbered!(JobContext::new(), 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21);
    let context = with_numbered!(context, 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42);
    let context = with_numbered!(context, 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    let before = pool(1, 8).snapshot().context_values_refused;
    let refused = context.clone().with_value("one more");
    assert!(matches!(refused, Err(Error::LimitReached { limit: "context_values_max" })));
    assert_eq!(pool(1, 8).snapshot().context_values_refused, before + 1);
    assert!(context.with_value(Numbered::<63>).is_ok(), "in place of the one of its type");
}

#[test]
fn a_panic_keeps_the_thread() {
    let pool = pool(1, 8);
    let before = answer(&pool, || thread::current().id());
    for _ in 0..5 {
        assert!(start(&pool, || panic!("expected by the test")));
    }
    assert_eq!(answer(&pool, || thread::current().id()), before);
    let figures = pool.snapshot();
    assert_eq!((figures.panics, figures.threads), (5, 1));
    assert_eq!(pool.close(LONG), Drained::default());
}

#[test]
fn l_26_closing_runs_what_waits_and_takes_nothing_new() {
    let pool = pool(2, 100);
    let release = block(&pool);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let ran = ran.clone();
        until("there is room", || pool.snapshot().queued < 100);
        assert!(start(&pool, move || {
            ran.fetch_add(1, Ordering::SeqCst);
        }));
    }
    drop(release);
    assert_eq!(pool.close(LONG), Drained::default());
    assert_eq!(ran.load(Ordering::SeqCst), 100);
    assert!(!start(&pool, || ()));
    assert_eq!(pool.snapshot().rejected_closed, 1);
    assert_eq!(pool.close(LONG), Drained::default(), "a second time is a no-op");
}

#[test]
fn l_26_a_job_that_does_not_end_is_reported_and_not_waited_for() {
    let pool = pool(1, 8);
    let release = block(&pool);
    let (held, gone) = bounded::<()>(0);
    for _ in 0..3 {
        let held = held.clone();
        assert!(start(&pool, move || drop(held)));
    }
    drop(held);
    assert_eq!(pool.close(Duration::from_millis(1)), Drained { not_ended: 1, dropped: 3 });
    assert!(gone.recv().is_err(), "what the jobs held has been dropped");
    assert_eq!((pool.snapshot().dropped, pool.snapshot().queued), (3, 0));
    drop(release);
    until("the thread ends behind its job", || pool.snapshot().threads == 0);
    assert_eq!(pool.snapshot().active, 0);
}

#[test]
fn the_last_handle_ends_the_threads_also_from_inside_a_job() {
    let pool = pool(2, 8);
    let (sender, receiver) = unbounded();
    for _ in 0..4 {
        let (handle, sender) = (pool.clone(), sender.clone());
        assert!(start(&pool, move || {
            drop(handle);
            sender.send(()).unwrap();
        }));
    }
    let alive = pool.inner_ended();
    drop((pool, sender));
    assert_eq!(receiver.iter().count(), 4);
    assert!(alive.recv_timeout(LONG) == Err(crossbeam_channel::RecvTimeoutError::Disconnected));
}

/// Fault 77 for the pool: under senders, closing and panics at once no gauge is ever out of its bounds, and all
/// return to zero.
#[test]
fn fault_77_gauges_of_the_pool_never_negative_and_return_to_zero() {
    for round in 0..20_usize {
        let pool = pool(1 + round % 3, 1 + round % 5);
        let (threads, bound) = (1 + round % 3, 1 + round % 5);
        let taken: Vec<_> = (0..3_usize)
            .map(|sender| {
                let pool = pool.clone();
                thread::spawn(move || {
                    let job = move |n: usize| move || assert!(n % 7 != sender, "expected by the test");
                    (0..100_usize).filter(|n| start(&pool, job(*n))).count() as u64
                })
            })
            .collect();
        for _ in 0..50 {
            let figures = pool.snapshot();
            assert!(figures.active <= threads && figures.queued <= bound, "{figures:?}");
        }
        let drained = pool.close(LONG);
        let taken: u64 = taken.into_iter().map(|thread| thread.join().unwrap()).sum();
        let figures = pool.snapshot();
        assert_eq!(drained, Drained::default());
        assert_eq!((figures.active, figures.queued, figures.threads), (0, 0, 0));
        assert_eq!(figures.completed, taken, "every job that was taken has run");
        assert_eq!(taken + figures.rejected(), 300);
        assert!(figures.high_water <= bound);
    }
}
