//! Tests of the pool, with a small shard that drains its inbox and runs its tasks.

use super::*;
use crate::{
    inbox::{self, Inbox, WakeFd},
    sync::Arc,
    tasks::TaskQueue,
};
use std::{cell::Cell, sync::mpsc, time::Duration};

struct MiniShard {
    inbox: Inbox,
    home: Sender,
    wake: Arc<WakeFd>,
    queue: Rc<TaskQueue>,
    pool: Rc<OffloadPool>,
}

fn mini_shard(threads: usize, queue: usize) -> MiniShard {
    let wake = Arc::new(WakeFd::new().expect("an eventfd"));
    let (home, inbox) = inbox::channel(4, Arc::clone(&wake));
    let pool = Rc::new(OffloadPool::new(threads, queue).expect("threads"));
    MiniShard { inbox, queue: TaskQueue::new(home.clone()), home, wake, pool }
}

impl MiniShard {
    fn turn(&self) {
        self.inbox.drain(64, &mut |panic| std::panic::resume_unwind(panic));
        self.queue.run(64);
    }

    fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let (result, slot) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(false)));
        let (give, done) = (Rc::clone(&result), Rc::clone(&slot));
        drop(self.queue.spawn(async move {
            give.set(Some(future.await));
            done.set(true);
        }));
        while !slot.get() {
            self.turn();
            if self.queue.is_idle() && !slot.get() && self.inbox.park() {
                assert!(self.wake.wait(Duration::from_secs(10)), "nobody woke the shard");
                self.inbox.unpark();
            }
        }
        result.take().expect("done")
    }
}

fn places() -> usize {
    PLACES.with_borrow(Table::len)
}

/// A job that holds a thread until the sender is dropped.
fn occupy(pool: &OffloadPool) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel();
    let (started, wait) = mpsc::channel();
    let job = move || {
        started.send(()).expect("the test waits");
        let _ = held.recv();
    };
    assert!(pool.submit(job).is_ok());
    wait.recv_timeout(Duration::from_secs(10)).expect("the job starts");
    release
}

#[test]
fn work_runs_on_a_named_thread_and_its_result_comes_home() {
    let shard = mini_shard(2, 8);
    let work = offload(&shard.pool, &shard.home, || thread::current().name().map(str::to_owned));
    let name = shard.block_on(work).expect("it ran").expect("a name");
    assert!(name.starts_with("offload-"), "{name}");
    assert_eq!(places(), 0);
}

#[test]
fn many_results_reach_their_own_places() {
    let shard = mini_shard(2, 64);
    let all: Vec<_> = (0..64).map(|number| offload(&shard.pool, &shard.home, move || number * 3)).collect();
    for (number, work) in all.into_iter().enumerate() {
        assert_eq!(shard.block_on(work).expect("it ran"), number * 3);
    }
    assert_eq!((places(), shard.inbox.rejected()), (0, 0));
}

#[test]
fn a_panic_becomes_an_error_and_the_thread_goes_on() {
    let shard = mini_shard(1, 8);
    let work = offload(&shard.pool, &shard.home, || -> u8 { panic!("on purpose") });
    assert!(matches!(shard.block_on(work), Err(Error::Panicked { message }) if message == "on purpose"));
    assert!(shard.pool.submit(|| panic!("of a bare job")).is_ok());
    let next = offload(&shard.pool, &shard.home, || 4);
    assert_eq!(shard.block_on(next).expect("it ran"), 4);
}

#[test]
fn a_full_pool_says_so_at_once() {
    let shard = mini_shard(1, 1);
    let release = occupy(&shard.pool);
    assert!(shard.pool.submit(|| {}).is_ok());
    assert_eq!(shard.pool.submit(|| {}).expect_err("full").reason, RejectReason::Full);
    let work = offload(&shard.pool, &shard.home, || ());
    assert!(matches!(shard.block_on(work), Err(Error::LimitReached { limit: "offload queue" })));
    drop(release);
    assert_eq!(places(), 0);
}

#[test]
fn the_result_for_a_future_that_is_gone_is_dropped() {
    let shard = mini_shard(1, 8);
    let held = std::sync::Arc::new(());
    let release = occupy(&shard.pool);
    let result = std::sync::Arc::clone(&held);
    drop(offload(&shard.pool, &shard.home, move || result));
    drop(release);
    // A second round trip through the only thread: the first result is home by then.
    let second = offload(&shard.pool, &shard.home, || ());
    shard.block_on(second).expect("it ran");
    assert_eq!((std::sync::Arc::strong_count(&held), places()), (1, 0));
}

/// Its end uses the table of places, as offloading does.
struct UsesThePlaces(mpsc::Sender<usize>);

impl Drop for UsesThePlaces {
    fn drop(&mut self) {
        let key = PLACES.with_borrow_mut(|places| places.insert(Place::Waiting(None)));
        let _ = self.0.send(places());
        PLACES.with_borrow_mut(|places| places.remove(key));
    }
}

impl std::task::Wake for UsesThePlaces {
    fn wake(self: std::sync::Arc<Self>) {}
}

#[test]
fn a_waker_that_is_replaced_may_offload_as_it_is_dropped() {
    let shard = mini_shard(1, 8);
    let release = occupy(&shard.pool);
    let mut work = offload(&shard.pool, &shard.home, || 4);
    let (dropped, seen) = mpsc::channel();
    let waker = Waker::from(std::sync::Arc::new(UsesThePlaces(dropped)));
    assert!(Pin::new(&mut work).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(seen.try_recv().is_err(), "the place holds it");
    assert!(Pin::new(&mut work).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(seen.try_recv(), Ok(2));
    drop(release);
    assert_eq!(shard.block_on(work).expect("it ran"), 4);
}

#[test]
fn a_result_that_nobody_waits_for_may_offload_as_it_is_dropped() {
    let (dropped, seen) = mpsc::channel();
    let gone = PLACES.with_borrow_mut(|places| {
        let key = places.insert(Place::Waiting(None));
        drop(places.remove(key));
        key
    });
    deliver(gone, Ok(UsesThePlaces(dropped)));
    assert_eq!((seen.try_recv(), places()), (Ok(1), 0));
}

#[test]
fn the_result_for_a_shard_that_is_gone_is_dropped_on_the_pool() {
    let shard = mini_shard(1, 8);
    let held = std::sync::Arc::new(());
    let result = std::sync::Arc::clone(&held);
    let work = offload(&shard.pool, &shard.home, move || result);
    let MiniShard { inbox, home, queue, pool, .. } = shard;
    drop((work, inbox, home, queue));
    drop(pool);
    assert_eq!(std::sync::Arc::strong_count(&held), 1, "dropping the pool waited for its threads");
}

#[test]
fn dropping_the_pool_runs_what_is_queued() {
    let pool = OffloadPool::new(1, 8).expect("a thread");
    let (ran, count) = mpsc::channel();
    for _ in 0..5 {
        let ran = ran.clone();
        assert!(pool.submit(move || ran.send(()).expect("heard")).is_ok());
    }
    drop((pool, ran));
    assert_eq!(count.iter().count(), 5);
}

#[test]
fn a_thread_of_the_pool_may_hold_it_last() {
    let pool = std::sync::Arc::new(OffloadPool::new(1, 8).expect("a thread"));
    let (release, held) = mpsc::channel::<()>();
    let (done, wait) = mpsc::channel();
    let last = std::sync::Arc::clone(&pool);
    let job = move || {
        let _ = held.recv();
        drop(last);
        done.send(()).expect("heard");
    };
    assert!(pool.submit(job).is_ok());
    drop(pool);
    drop(release);
    wait.recv_timeout(Duration::from_secs(10)).expect("the thread did not wait for itself");
}

#[test]
fn hosts_are_resolved_and_a_wrong_one_is_an_error() {
    let shard = mini_shard(1, 8);
    let (pool, home) = (Rc::clone(&shard.pool), shard.home.clone());
    let addresses = shard.block_on(async move { resolve(&pool, &home, "127.0.0.1", 80).await });
    assert_eq!(addresses.expect("digits"), ["127.0.0.1:80".parse().expect("an address")]);
    let (pool, home) = (Rc::clone(&shard.pool), shard.home.clone());
    let refused = shard.block_on(async move { resolve(&pool, &home, "no\0host", 80).await });
    let error = refused.expect_err("no such host").to_string();
    assert!(error.starts_with("resolve no\0host: "), "{error}");
}
