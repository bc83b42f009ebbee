//! Tests of the tasks: a small shard that only drains its inbox and runs its queue.

use super::*;
use crate::{
    inbox::{self, Inbox, WakeFd},
    sync::{Arc, AtomicUsize, Ordering},
};
use std::{
    cell::{Cell, RefCell},
    future::{pending, poll_fn},
    rc::Rc,
    task::{Poll, Waker},
    thread,
    time::Duration,
};

struct MiniShard {
    inbox: Inbox,
    wake: Arc<WakeFd>,
    queue: Rc<TaskQueue>,
}

fn mini_shard() -> MiniShard {
    let wake = Arc::new(WakeFd::new().expect("an eventfd"));
    let (sender, inbox) = inbox::channel(4, Arc::clone(&wake));
    MiniShard { inbox, wake, queue: TaskQueue::new(sender) }
}

impl MiniShard {
    fn turn(&self) {
        self.inbox.drain(64, &mut |panic| std::panic::resume_unwind(panic));
        self.queue.run(64);
    }

    /// Turns until it holds, sleeping on the eventfd in between, for at most 5 seconds a sleep.
    fn run_until(&self, holds: impl Fn() -> bool) {
        while !holds() {
            self.turn();
            if self.queue.is_idle() && !holds() && self.inbox.park() {
                assert!(self.wake.wait(Duration::from_secs(5)), "nobody woke the shard");
                self.inbox.unpark();
            }
        }
    }

    fn run_idle(&self) {
        while !self.queue.is_idle() {
            self.turn();
        }
    }
}

/// Ready the second time, after one wake by itself.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Gives its waker away and ends at the next poll after `done` was set.
async fn wait_for(done: Rc<Cell<bool>>, waker: Rc<RefCell<Option<Waker>>>) {
    poll_fn(|context| {
        *waker.borrow_mut() = Some(context.waker().clone());
        if done.get() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn result<T>(shard: &MiniShard, handle: JoinHandle<T>) -> Result<T, JoinError>
where
    T: 'static,
{
    let (slot, into) = (Rc::new(RefCell::new(None)), Rc::new(()));
    let write = Rc::clone(&slot);
    drop(shard.queue.spawn(async move {
        let _alive = into;
        *write.borrow_mut() = Some(handle.await);
    }));
    shard.run_until(|| slot.borrow().is_some());
    slot.take().expect("the waiter ran")
}

struct Dropped(Rc<RefCell<Vec<&'static str>>>, &'static str);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[test]
fn a_task_gives_its_result_to_who_waits() {
    let shard = mini_shard();
    let handle = shard.queue.spawn(async {
        yield_now().await;
        Rc::new(7)
    });
    assert!(!handle.is_finished());
    assert_eq!(result(&shard, handle), Ok(Rc::new(7)));
    assert_eq!(shard.queue.live(), 0);
}

#[test]
fn dropping_the_handle_lets_the_task_run_on() {
    let shard = mini_shard();
    let ran = Rc::new(Cell::new(false));
    let set = Rc::clone(&ran);
    drop(shard.queue.spawn(async move {
        yield_now().await;
        set.set(true);
    }));
    shard.run_idle();
    assert!(ran.get());
}

#[test]
fn a_task_that_wakes_itself_starves_nobody() {
    let shard = mini_shard();
    let greedy = shard.queue.spawn(async {
        loop {
            yield_now().await;
        }
    });
    let turns = Rc::new(Cell::new(0));
    for _ in 0..10 {
        let count = Rc::clone(&turns);
        drop(shard.queue.spawn(async move {
            yield_now().await;
            count.set(count.get() + 1);
        }));
    }
    assert_eq!(shard.queue.run(64), 11, "each task once a run, whatever the budget");
    assert_eq!(shard.queue.run(6), 6, "no more than the budget");
    assert_eq!(shard.queue.run(6), 6, "the others had their turn before the greedy one has its next");
    assert_eq!(turns.get(), 10);
    assert!(!shard.queue.is_idle());
    greedy.cancel();
    shard.run_idle();
    assert_eq!(shard.queue.live(), 0);
}

#[test]
fn ready_tasks_run_in_order() {
    let shard = mini_shard();
    let order = Rc::new(RefCell::new(Vec::new()));
    for number in 0..5 {
        let order = Rc::clone(&order);
        drop(shard.queue.spawn(async move {
            order.borrow_mut().push(number);
            yield_now().await;
            order.borrow_mut().push(number);
        }));
    }
    shard.run_idle();
    assert_eq!(*order.borrow(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn foreign_threads_wake_through_the_inbox_and_no_wake_is_lost() {
    let shard = mini_shard();
    let seen = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&seen);
    let (give, wakers) = std::sync::mpsc::channel::<Waker>();
    let rounds = if cfg!(miri) { 20 } else { 2000 };
    let foreign = thread::spawn(move || {
        for waker in wakers {
            told.fetch_add(1, Ordering::Relaxed);
            waker.wake_by_ref();
            waker.wake();
        }
    });
    let handle = shard.queue.spawn(async move {
        for round in 0..rounds {
            let mut sent = false;
            poll_fn(|context| {
                if !std::mem::replace(&mut sent, true) {
                    give.send(context.waker().clone()).expect("the thread lives");
                }
                let reached = seen.load(Ordering::Relaxed) > round;
                if reached { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    });
    assert_eq!(result(&shard, handle), Ok(()));
    foreign.join().expect("the thread ends");
    assert_eq!(shard.inbox.rejected(), 0, "wakes are replies, and not bounded by the inbox");
    assert!(shard.inbox.wakes() <= shard.inbox.sleeps());
}

#[test]
fn wakes_of_one_task_under_way_are_one_message() {
    let shard = mini_shard();
    let (done, waker) = (Rc::new(Cell::new(false)), Rc::default());
    let handle = shard.queue.spawn(wait_for(Rc::clone(&done), Rc::clone(&waker)));
    shard.turn();
    let foreign = waker.borrow().clone().expect("it was polled");
    done.set(true);
    thread::spawn(move || (0..100).for_each(|_| foreign.wake_by_ref())).join().expect("the thread ends");
    assert_eq!(shard.inbox.queued(), 1);
    shard.turn();
    assert!(handle.is_finished());
}

#[test]
fn a_wake_on_the_shards_thread_needs_no_inbox() {
    let shard = mini_shard();
    let (done, waker) = (Rc::new(Cell::new(false)), Rc::default());
    let handle = shard.queue.spawn(wait_for(Rc::clone(&done), Rc::clone(&waker)));
    shard.turn();
    done.set(true);
    waker.borrow().as_ref().expect("it was polled").wake_by_ref();
    assert_eq!(shard.inbox.queued(), 0);
    shard.queue.run(1);
    assert!(handle.is_finished());
}

#[test]
fn a_waker_outlives_the_task_and_the_shard() {
    let shard = mini_shard();
    let (done, waker) = (Rc::new(Cell::new(true)), Rc::new(RefCell::new(None)));
    drop(shard.queue.spawn(wait_for(done, Rc::clone(&waker))));
    shard.turn();
    assert_eq!(shard.queue.live(), 0);
    let late = waker.take().expect("it was polled");
    let next = shard.queue.spawn(pending::<()>());
    shard.turn();
    late.wake_by_ref();
    assert!(shard.queue.is_idle(), "the wake of a task that is over must not reach the next one");
    let foreign = late.clone();
    thread::spawn(move || foreign.wake()).join().expect("the thread ends");
    shard.turn();
    drop((next, shard));
    late.wake_by_ref();
    thread::spawn(move || late.wake()).join().expect("the thread ends");
}

#[test]
fn cancelling_drops_the_future_at_once() {
    let shard = mini_shard();
    let log = Rc::new(RefCell::new(Vec::new()));
    let held = Dropped(Rc::clone(&log), "future");
    let handle = shard.queue.spawn(async move {
        let _held = held;
        pending::<()>().await;
    });
    shard.turn();
    handle.cancel();
    assert_eq!(*log.borrow(), ["future"]);
    assert!(handle.is_finished());
    handle.cancel();
    assert_eq!(result(&shard, handle), Err(JoinError::Cancelled));
}

#[test]
fn a_task_that_cancels_itself_is_dropped_after_its_poll() {
    let shard = mini_shard();
    let log = Rc::new(RefCell::new(Vec::new()));
    let held = Dropped(Rc::clone(&log), "future");
    let own = Rc::new(RefCell::new(None::<JoinHandle<()>>));
    let (mine, write) = (Rc::clone(&own), Rc::clone(&log));
    *own.borrow_mut() = Some(shard.queue.spawn(async move {
        let _held = held;
        mine.borrow().as_ref().expect("it was stored").cancel();
        write.borrow_mut().push("still in the poll");
        yield_now().await;
        write.borrow_mut().push("never");
    }));
    shard.run_idle();
    assert_eq!(*log.borrow(), ["still in the poll", "future"]);
    assert_eq!(result(&shard, own.take().expect("stored")), Err(JoinError::Cancelled));
}

#[test]
fn the_future_is_dropped_before_the_result_is_given() {
    let shard = mini_shard();
    let log = Rc::new(RefCell::new(Vec::new()));
    let (held, write) = (Dropped(Rc::clone(&log), "future"), Rc::clone(&log));
    let handle = shard.queue.spawn(poll_fn(move |_| {
        let _ = &held;
        Poll::Ready(())
    }));
    drop(shard.queue.spawn(async move {
        handle.await.expect("it returned");
        write.borrow_mut().push("result");
    }));
    shard.run_idle();
    assert_eq!(*log.borrow(), ["future", "result"]);
}

#[test]
fn a_panic_ends_its_own_task_only() {
    let shard = mini_shard();
    let panicking = shard.queue.spawn(async { panic!("on purpose: {}", 1) });
    let other = shard.queue.spawn(async {
        yield_now().await;
        5
    });
    let outcome: Result<(), JoinError> = result(&shard, panicking);
    assert_eq!(outcome, Err(JoinError::Panicked("on purpose: 1".to_owned())));
    assert_eq!(result(&shard, other), Ok(5));
    assert_eq!((shard.queue.panics(), shard.queue.live()), (1, 0));
}

#[test]
fn a_destructor_that_panics_ends_its_own_task_only() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a destructor");
        }
    }
    let shard = mini_shard();
    let bomb = Bomb;
    let handle = shard.queue.spawn(async move {
        let _bomb = bomb;
        pending::<()>().await;
    });
    shard.turn();
    handle.cancel();
    assert_eq!(result(&shard, handle), Err(JoinError::Panicked("in a destructor".to_owned())));
    drop(shard.queue.spawn(async { Bomb }));
    shard.run_idle();
    assert_eq!(shard.queue.live(), 0);
    assert_eq!(shard.queue.panics(), 1, "a result nobody wanted");
}

#[test]
fn clearing_drops_everything_even_what_destructors_spawn() {
    struct SpawnsAtEnd(Rc<TaskQueue>, Rc<Cell<u32>>);
    impl Drop for SpawnsAtEnd {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            let handle = self.0.spawn(pending::<()>());
            assert!(handle.is_finished(), "spawned after the end");
        }
    }
    let shard = mini_shard();
    let count = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let held = SpawnsAtEnd(Rc::clone(&shard.queue), Rc::clone(&count));
        drop(shard.queue.spawn(async move {
            let _held = held;
            pending::<()>().await;
        }));
    }
    shard.queue.run(2);
    shard.queue.clear();
    assert_eq!((count.get(), shard.queue.live()), (3, 0));
    assert!(shard.queue.is_idle());
}

#[test]
fn two_shards_on_one_thread_do_not_mix_their_tasks() {
    let (one, two) = (mini_shard(), mini_shard());
    let (done, waker) = (Rc::new(Cell::new(false)), Rc::default());
    let first = one.queue.spawn(wait_for(Rc::clone(&done), Rc::clone(&waker)));
    let second = two.queue.spawn(pending::<()>());
    one.turn();
    two.turn();
    done.set(true);
    waker.borrow().as_ref().expect("it was polled").wake_by_ref();
    assert!(two.queue.is_idle());
    one.turn();
    assert!(first.is_finished());
    assert!(!second.is_finished());
}
