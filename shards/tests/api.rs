//! The public interface, as a program that embeds the runtime uses it.
#![cfg(not(loom))]

mod common;

use common::{drivers, eventually, within};
use shards::{DeliveryError, Error, JoinError, Shard, ShardFailure, ShardHandle, Shards, Undelivered, time};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

/// One shard that lives until it is asked to stop.
fn idle_shard() -> (Shards<()>, ShardHandle) {
    let shards = drivers()[0].builder().inbox(4).start(|shard| async move { shard.stopped().await });
    let shards = shards.expect("the shard starts");
    let handle = shards.handles()[0].clone();
    (shards, handle)
}

fn end(shards: Shards<()>) {
    shards.stop();
    for end in within(Duration::from_secs(10), move || shards.join()) {
        end.result.expect("it ended well");
        assert_eq!(end.leaked, 0);
    }
}

#[test]
fn tasks_of_one_sender_run_in_order_and_on_the_shard() {
    let (shards, handle) = idle_shard();
    let (seen, order) = mpsc::channel();
    for number in 0..1000 {
        let (seen, me) = (seen.clone(), handle.clone());
        let mut task = move |_: &Shard| seen.send((number, me.is_current())).expect("the test listens");
        // The inbox takes four.
        while let Err(Undelivered { task: back, reason }) = handle.execute(task) {
            assert_eq!(reason, DeliveryError::Full);
            task = back;
            thread::yield_now();
        }
    }
    assert!(!handle.is_current());
    for number in 0..1000 {
        let got = order.recv_timeout(Duration::from_secs(10)).expect("it runs");
        assert_eq!(got, (number, true));
    }
    end(shards);
}

#[test]
fn a_full_inbox_and_a_stopped_shard_hand_the_task_back() {
    let (shards, handle) = idle_shard();
    let (hold, held) = mpsc::channel::<()>();
    let (began, has_begun) = mpsc::channel();
    let blocker = handle.execute(move |_| {
        began.send(()).expect("the test listens");
        // Ends when the test lets go.
        let _ = held.recv();
    });
    blocker.expect("there is room");
    has_begun.recv().expect("it runs");
    let precious = Arc::new(());
    let task = |precious: Arc<()>| move |_: &Shard| drop(precious);
    let refused = (0..10).find_map(|_| handle.execute(task(precious.clone())).err());
    let refused = refused.expect("the inbox has a bound");
    assert_eq!(refused.reason, DeliveryError::Full);
    assert_eq!(Arc::strong_count(&precious), 6, "four inside, one in the hand-back, one here");
    let answer = handle.submit_to(|_| 1).wait();
    assert!(matches!(answer, Err(Error::LimitReached { .. })), "{answer:?}");
    drop(hold);
    drop(refused);
    end(shards);
    assert_eq!(Arc::strong_count(&precious), 1, "what was inside has run or was dropped");
    assert!(handle.is_stopped());
    let refused = handle.execute(task(precious.clone())).expect_err("nobody is there");
    assert_eq!(refused.reason, DeliveryError::Stopping);
    assert_eq!(Arc::strong_count(&precious), 2, "handed back");
    assert!(matches!(handle.submit_to(|_| 1).wait(), Err(Error::Stopping)));
}

#[test]
fn who_waits_for_an_answer_of_a_shard_that_ends_is_told() {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    // The shard ends while messages wait; its root keeps itself alive in a circle, as servers do.
    struct Circle(RefCell<Option<Rc<Circle>>>, #[allow(dead_code, reason = "held, not read")] Shard);
    for setup in drivers() {
        let shards = setup
            .builder()
            .start(|shard| async move {
                let circle = Rc::new(Circle(RefCell::default(), shard.clone()));
                circle.0.replace(Some(circle.clone()));
                // Known to the leak check: this one is on purpose.
                KEPT.lock().expect("no panic").push(Rc::as_ptr(&circle).addr());
                shard.stopped().await;
            })
            .expect("the shard starts");
        let handle = shards.handles()[0].clone();
        let asked: Vec<_> = (0..4)
            .map(|_| {
                let handle = handle.clone();
                thread::spawn(move || {
                    loop {
                        if let Err(error) = handle.submit_to(|shard| shard.id()).wait() {
                            return error;
                        }
                    }
                })
            })
            .collect();
        end(shards);
        for thread in asked {
            let error = within(Duration::from_secs(5), move || thread.join().expect("no panic"));
            assert!(matches!(error, Error::Stopping), "{error}");
        }
    }
}

#[test]
fn dispatch_runs_inline_outside_callbacks_and_queues_inside_and_behind_others() {
    for setup in drivers() {
        setup.run(|shard| async move {
            let handle = shard.handle();
            let order = Arc::new(Mutex::new(Vec::new()));
            let note = |number: u32| {
                let order = order.clone();
                move |_: &Shard| order.lock().expect("one thread").push(number)
            };
            handle.dispatch(note(1)).expect("taken");
            assert_eq!(*order.lock().expect("one thread"), [1], "at once: nothing is on the stack");
            handle.execute(note(2)).expect("taken");
            handle.dispatch(note(3)).expect("taken");
            assert_eq!(*order.lock().expect("one thread"), [1], "not before what was queued earlier");
            let (inner, mark) = (handle.clone(), note(5));
            let last = note(4);
            let nested = handle.execute(move |shard| {
                inner.dispatch(mark).expect("taken");
                last(shard);
            });
            nested.expect("taken");
            eventually(&shard, || order.lock().expect("one thread").len() == 5, || "5 marks".into()).await;
            assert_eq!(*order.lock().expect("one thread"), [1, 2, 3, 4, 5], "never inside a callback");
        });
    }
}

#[test]
fn submit_to_answers_from_threads_and_between_shards_and_reports_a_panic() {
    let shards = drivers()[0].builder().shards(2).start(|shard| async move { shard.stopped().await });
    let shards = shards.expect("two shards");
    let handles = shards.handles().to_vec();
    assert_eq!(handles[1].submit_to(|shard| shard.id().index()).wait().expect("answered"), 1);
    let failed = handles[1].submit_to(|_| -> u32 { panic!("on purpose") }).wait();
    assert!(matches!(&failed, Err(Error::Panicked { message }) if message == "on purpose"), "{failed:?}");
    let (one, two) = (handles[0].clone(), handles[1].clone());
    let (told, answer) = mpsc::channel();
    let hop = one.execute(move |shard| {
        drop(shard.spawn(async move {
            let there = two.submit_to(|shard| shard.id().index()).await.expect("answered");
            told.send((there, Shard::current().id().index())).expect("the test listens");
        }));
    });
    hop.expect("taken");
    assert_eq!(answer.recv_timeout(Duration::from_secs(10)).expect("answered"), (1, 0));
    let panics = handles[1].submit_to(|shard| shard.stats().panics).wait().expect("it lives on");
    assert_eq!(panics, 1, "counted");
    end(shards);
}

#[test]
fn spawned_tasks_join_cancel_and_panic_alone() {
    struct Flag(Rc<Cell<bool>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    for setup in drivers() {
        setup.run(|shard| async move {
            assert_eq!(shard.spawn(async { 7 }).await, Ok(7));
            let dropped = Rc::new(Cell::new(false));
            let flag = Flag(dropped.clone());
            let endless = shard.spawn(async move {
                let _flag = flag;
                std::future::pending::<()>().await;
            });
            time::sleep(Duration::from_millis(1)).await;
            endless.cancel();
            assert!(dropped.get(), "its future is dropped at once");
            assert_eq!(endless.await, Err(JoinError::Cancelled));
            let failed = shard.spawn(async { panic!("on purpose") }).await;
            assert_eq!(failed, Err::<(), _>(JoinError::Panicked("on purpose".into())));
        });
    }
}

#[test]
fn time_passes_as_told_never_early() {
    for setup in drivers() {
        setup.run(|_| async move {
            for sleep in [0, 1, 2, 16, 30] {
                let sleep = Duration::from_millis(sleep);
                let began = Instant::now();
                // What a callback spends before it sleeps is not taken off the sleep.
                while began.elapsed() < Duration::from_millis(5) {}
                let asked = Instant::now();
                time::sleep(sleep).await;
                assert!(asked.elapsed() >= sleep, "{:?} instead of {sleep:?}", asked.elapsed());
            }
            let never = time::timeout(Duration::from_millis(10), std::future::pending::<()>()).await;
            assert!(matches!(never, Err(Error::TimedOut)));
            let ready = time::timeout(Duration::MAX, async { 5 }).await;
            assert_eq!(ready.expect("in time"), 5);
            common::poll_and_drop(time::sleep(Duration::MAX)).await;
            let began = Instant::now();
            let mut beat = time::interval(Duration::from_millis(5));
            beat.tick().await;
            while began.elapsed() < Duration::from_millis(23) {}
            beat.tick().await;
            beat.tick().await;
            assert!(began.elapsed() >= Duration::from_millis(25), "missed ticks are not made up for");
            time::interval(Duration::from_nanos(1)).tick().await;
        });
    }
}

#[test]
fn blocking_work_and_names_leave_the_shard_free() {
    for setup in drivers() {
        setup.run(|shard| async move {
            let work = shard.offload(|| {
                thread::sleep(Duration::from_millis(50));
                thread::current().name().map(str::to_owned)
            });
            let ticks = Rc::new(Cell::new(0));
            let counter = ticks.clone();
            let ticker = shard.spawn(async move {
                loop {
                    time::sleep(Duration::from_millis(1)).await;
                    counter.set(counter.get() + 1);
                }
            });
            let name = work.await.expect("it ran");
            assert!(name.is_some_and(|name| name.starts_with("offload")), "on the pool");
            assert!(ticks.get() >= 5, "the shard went on meanwhile: {}", ticks.get());
            ticker.cancel();
            let failed = shard.offload(|| -> u32 { panic!("on purpose") }).await;
            assert!(matches!(failed, Err(Error::Panicked { .. })), "{failed:?}");
            let found = shard.resolve("localhost", 80).await.expect("localhost has an address");
            assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
            shard.resolve("127.0.0.1", 1).await.expect("digits");
        });
    }
}

#[test]
fn a_panic_of_the_root_or_of_its_factory_is_reported_and_the_others_live() {
    for in_factory in [true, false] {
        let shards = drivers()[0].builder().shards(2).start(move |shard| {
            let unlucky = shard.id().index() == 0;
            assert!(!(unlucky && in_factory), "on purpose");
            async move {
                assert!(!unlucky, "on purpose");
                shard.stopped().await;
            }
        });
        let shards = shards.expect("two shards");
        let other = shards.handles()[1].clone();
        assert_eq!(other.submit_to(|shard| shard.id().index()).wait().expect("it lives"), 1);
        shards.stop();
        let ends = within(Duration::from_secs(10), move || shards.join());
        assert!(
            matches!(&ends[0].result, Err(ShardFailure::Panicked(text)) if text == "on purpose"),
            "{ends:?}"
        );
        assert!(ends[1].result.is_ok(), "{ends:?}");
    }
}

#[test]
fn a_shard_has_one_value_of_a_type_and_drops_it_at_its_end() {
    struct Told(mpsc::Sender<bool>);
    impl Drop for Told {
        fn drop(&mut self) {
            // A destructor may use the shard still.
            let shard = Shard::current();
            shard.local(|| 5_u8);
            self.0.send(shard.stats().operations_in_flight < 10).expect("the test listens");
        }
    }
    let (told, dropped) = mpsc::channel();
    let told = Mutex::new(Some(told));
    let shards = drivers()[0].builder().start(move |shard| {
        let told = told.lock().expect("one thread").take();
        async move {
            let first = shard.local(|| Told(told.expect("one shard")));
            let again = Shard::current().local(|| -> Told { unreachable!("it is there") });
            assert!(Rc::ptr_eq(&first, &again));
        }
    });
    let ends = shards.expect("the shard starts").join();
    ends[0].result.as_ref().expect("it ended well");
    assert!(dropped.recv().expect("dropped"));
}

#[test]
fn a_blocked_turn_is_counted_by_the_shard_and_by_the_watchdog() {
    let shards = drivers()[0]
        .builder()
        .stall_after(Duration::from_millis(20))
        .start(|shard| async move { shard.stopped().await })
        .expect("the shard starts");
    let handle = shards.handles()[0].clone();
    handle.execute(|_| thread::sleep(Duration::from_millis(1100))).expect("taken");
    let stats = handle.submit_to(Shard::stats).wait().expect("it lives");
    assert!(stats.watchdog_warnings >= 1, "the watchdog saw it while it lasted");
    let stats = handle.submit_to(Shard::stats).wait().expect("it lives");
    assert!(stats.stalls >= 1 && stats.longest_turn >= Duration::from_millis(1000), "{stats:?}");
    assert!(stats.longest_callback >= Duration::from_millis(1000), "{:?}", stats.longest_callback);
    assert!(stats.wakes <= stats.sleeps && stats.inbox_high_water >= 1);
    end(shards);
}

#[test]
fn who_asks_for_the_stop_a_thousand_times_leaves_nothing_behind() {
    drivers()[0].run(|shard| async move {
        for _ in 0..1000 {
            common::poll_and_drop(shard.stopped()).await;
        }
        let waiting = shard.spawn({
            let shard = shard.clone();
            async move { shard.stopped().await }
        });
        shard.handle().stop();
        waiting.await.expect("told");
        shard.stopped().await;
    });
}

#[test]
fn sizes_that_cannot_be_are_refused_at_the_start() {
    let builder = || drivers()[0].builder().shards(3);
    let impossible = [builder().ring_entries(3, 8), builder().ring_entries(8, 8), builder().buffers(3, 4096)];
    for builder in impossible {
        let refused = builder.start(|_| async { unreachable!("nothing begins") });
        assert!(matches!(refused, Err(Error::Misuse { .. })), "{refused:?}");
    }
}
