//! Faults that other containers had, each as a test named after its row of faults.md (life cycle table).

use super::*;
use crate::{
    error::Error,
    exchange::{AsyncContext, ReadListener, RequestExecutor, UndeliveredReason, asynchronous},
};
use bytes::Bytes;

pub(super) type Log = Rc<RefCell<Vec<String>>>;
type Kept = Rc<RefCell<Option<AsyncContext>>>;

pub(super) fn note(log: &Log, text: impl Into<String>) {
    log.borrow_mut().push(text.into());
}

/// A parked exchange whose ends are logged; its context.
pub(super) fn parked(world: &World, log: &Log) -> (Key, AsyncContext) {
    let kept = Kept::default();
    let (keep, events) = (kept.clone(), log.clone());
    let key = world.get(move |x| {
        let (error, complete) = (events.clone(), events.clone());
        x.on_error(move |_, reason| note(&error, format!("error {reason}")));
        x.on_complete(move |_, reason| note(&complete, format!("complete {reason}")));
        *keep.borrow_mut() = Some(x.start_async());
    });
    let context = kept.borrow_mut().take().unwrap();
    (key, context)
}

#[test]
fn fault_1_two_cycles_end_once() {
    let world = World::new();
    let log = Log::default();
    let events = log.clone();
    world.get(move |x| {
        let events = events.clone();
        note(&events, format!("cycle {}", x.cycle()));
        x.on_complete(move |_, reason| note(&events, format!("complete {reason}")));
        let again = x.cycle() == 0;
        let next = move |x: &mut Exchange| if again { x.redispatch("/2") } else { x.complete() };
        x.start_async().dispatch(next).unwrap();
    });
    world.turn();
    world.turn();
    assert_eq!(*log.borrow(), ["cycle 0", "cycle 1", "complete completed"], "once a cycle, once a request");
    assert_eq!((world.ended(EndReason::Completed), world.counters().ended_total()), (1, 1));
    world.assert_at_rest("two cycles");
}

#[test]
fn fault_3_while_on_timeout_runs_a_foreign_complete_is_not_taken_for_the_listeners_own() {
    type Act = fn(&mut Exchange) -> Result<()>;
    let complete: Act = |x| write!(x, "foreign").and_then(|()| x.complete());
    let redispatch: Act = |x| x.redispatch("/foreign");
    for act in [complete, redispatch] {
        let world = World::new();
        let key = world.get(move |x| {
            assert_eq!(x.cycle(), 0, "no second cycle");
            let executor = x.start_async().executor();
            x.set_timeout(Duration::from_millis(1));
            x.on_timeout(move |x| {
                let executor = executor.clone();
                thread::spawn(move || executor.execute(act)).join().unwrap().unwrap();
                write!(x, "timeout")?;
                x.complete()
            });
        });
        world.advance(1);
        world.turn();
        world.turn();
        assert_eq!(world.body(key), "timeout");
        assert_eq!((world.ended(EndReason::TimedOut), world.counters().stale_tasks_dropped), (1, 1));
        world.assert_at_rest("foreign call");
    }
}

/// Both orders: the reset before and after the answer was decided.
#[test]
fn fault_4_a_reset_and_a_completion_give_one_end() {
    for reset_first in [true, false] {
        let world = World::new();
        let log = Log::default();
        let (key, context) = parked(&world, &log);
        world.set_blocked(true);
        if reset_first {
            world.event(key, |e| e.peer_reset(key));
        }
        let answered = context.dispatch(|x: &mut Exchange| x.complete());
        if !reset_first {
            world.event(key, |e| e.peer_reset(key));
        }
        assert_eq!(answered.is_ok(), !reset_first);
        assert_eq!(*log.borrow(), ["error client_reset", "complete client_reset"]);
        world.assert_at_rest("reset");
    }
}

/// Both orders: the error first, and the redispatch first. The one that is second has no effect of its own.
#[test]
fn fault_7_a_failure_while_a_redispatch_is_pending() {
    for error_first in [true, false] {
        let world = World::new();
        let log = Log::default();
        let (key, context) = parked(&world, &log);
        context.executor().execute(|x: &mut Exchange| x.redispatch("/again")).unwrap();
        if !error_first {
            // The second cycle begins, with a context of its own, and waits.
            world.turn();
        }
        world.event(key, |e| e.peer_reset(key));
        world.turn();
        let told = log.borrow().iter().filter(|text| text.starts_with("error")).count();
        assert_eq!(told, 1, "{:?}", log.borrow());
        assert_eq!(log.borrow().last().unwrap(), "complete client_reset");
        assert_eq!(world.counters().stale_tasks_dropped, u64::from(error_first));
        world.assert_at_rest("pending redispatch");
    }
}

#[test]
fn fault_12_each_of_a_thousand_parked_requests_sees_shutdown_once() {
    let world = World::new();
    let log = Log::default();
    let keys: Vec<_> = (0..1000).map(|_| parked(&world, &log).0).collect();
    for key in keys {
        world.event(key, |e| e.shutdown_forced(key, EndReason::Shutdown));
    }
    assert_eq!(log.borrow().iter().filter(|text| *text == "error shutdown").count(), 1000);
    assert_eq!(world.ended(EndReason::Shutdown), 1000);
    world.assert_at_rest("stop");
}

#[test]
fn fault_14_redispatch_in_on_complete_is_refused() {
    let world = World::new();
    let seen = Rc::new(Cell::new(false));
    let set = seen.clone();
    world.get(move |x| {
        let set = set.clone();
        x.on_complete(move |x, _| {
            set.set(matches!(x.redispatch("/"), Err(Error::Ended(EndReason::Completed))));
        });
    });
    assert!(seen.get());
    world.assert_at_rest("redispatch at the end");
}

#[test]
fn fault_19_parked_requests_resumed_in_any_order_get_their_own_answers() {
    let world = World::new();
    let log = Log::default();
    let mut random = 0x5EED_u64;
    println!("order from seed {random}");
    let mut waiting: Vec<_> = (0..100).map(|number| (number, parked(&world, &log))).collect();
    let keys: Vec<_> = waiting.iter().map(|(number, (key, _))| (*number, *key)).collect();
    while !waiting.is_empty() {
        let (number, (_, context)) = waiting.swap_remove((random >> 33) as usize % waiting.len());
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        context
            .executor()
            .execute(move |x: &mut Exchange| write!(x, "{number}").and_then(|()| x.complete()))
            .unwrap();
        world.turn();
    }
    for (number, key) in keys {
        assert_eq!(world.body(key), number.to_string());
    }
    world.assert_at_rest("any order");
}

#[test]
fn fault_22_fault_25_headers_and_bytes_are_in_queue_order() {
    let world = World::new();
    let key = world.get(|x| {
        let executor = x.start_async().executor();
        x.response().set_header("X-Order", "handler").unwrap();
        thread::scope(|s| s.spawn(|| queue_an_answer(&executor)).join().unwrap());
    });
    assert_eq!(world.wire(key).heads, 0, "nothing has run on the other thread");
    world.turn();
    assert_eq!((world.body(key).as_str(), world.wire(key).heads), ("task", 1));
    world.assert_at_rest("queue order");
}

fn queue_an_answer(executor: &RequestExecutor) {
    executor.execute(|x: &mut Exchange| x.response().set_header("x-order", "task")).unwrap();
    executor
        .execute(|x: &mut Exchange| {
            let value = x.response().header("X-Order").unwrap_or_default();
            x.write(value)?;
            x.flush()
        })
        .unwrap();
    executor
        .execute(|x: &mut Exchange| {
            assert!(matches!(x.response().set_header("X-Late", "1"), Err(Error::Committed)));
            x.complete()
        })
        .unwrap();
}

#[test]
fn fault_32_fault_46_a_failed_write_tells_once_and_later_writes_fail() {
    let world = World::new();
    let log = Log::default();
    let (key, context) = parked(&world, &log);
    world.event(key, |e| e.output_failed(key, EndReason::ClientReset));
    world.event(key, |e| e.output_failed(key, EndReason::ClientReset));
    let refused = context.executor().execute(|x: &mut Exchange| write!(x, "late")).unwrap_err();
    assert_eq!(refused.reason, UndeliveredReason::Ended(EndReason::ClientReset));
    assert_eq!(*log.borrow(), ["error client_reset", "complete client_reset"]);
    world.assert_at_rest("failed write");
}

#[test]
fn fault_35_an_early_end_of_the_body_leaks_nothing() {
    struct Waits;
    impl ReadListener for Waits {
        fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
            while x.is_read_ready() {
                x.read()?;
            }
            Ok(())
        }
    }
    for listens in [true, false] {
        let world = World::new();
        let key = world.start(Begin { has_body: true, ..Begin::default() }, move |x, callback| {
            if callback == Callback::Handler(DispatchType::Request) {
                x.start_async();
                if listens {
                    x.set_read_listener(Waits);
                }
            }
        });
        world.event(key, |e| e.input(key, Bytes::from("20 bytes of the body")).unwrap());
        world.event(key, |e| e.input_failed(key, EndReason::ClientClosed));
        assert_eq!(world.ended(EndReason::ClientClosed), 1);
        world.assert_at_rest("early end");
    }
}

#[test]
fn fault_37_fault_40_a_waiting_future_is_dropped_when_the_client_leaves() {
    for sends in [false, true] {
        let world = World::new();
        let alive = Rc::new(());
        let held = alive.clone();
        let key = world.get_with(asynchronous(async move |x: &mut Exchange| {
            let _held = held.clone();
            if sends {
                x.write("data: first\n\n").and_then(|()| x.flush()).unwrap();
            }
            std::future::pending::<()>().await;
        }));
        let before = Rc::strong_count(&alive);
        world.event(key, |e| e.peer_finished(key));
        assert!(Rc::strong_count(&alive) < before);
        assert_eq!(world.wire(key).heads, u32::from(sends));
        world.assert_at_rest("left");
    }
}

#[test]
fn fault_48_a_good_end_calls_no_error_hook() {
    let world = World::new();
    let log = Log::default();
    let (key, context) = parked(&world, &log);
    context.dispatch(|x: &mut Exchange| x.complete()).unwrap();
    world.event(key, |e| e.peer_finished(key));
    assert_eq!(*log.borrow(), ["complete completed"]);
    world.assert_at_rest("good end");
}

#[test]
fn fault_57_a_foreign_complete_returns_at_once_and_works_on_the_shard() {
    let world = World::new();
    let (key, context) = parked(&world, &Log::default());
    let home = thread::current().id();
    let sender = thread::spawn(move || {
        context.dispatch(move |x: &mut Exchange| {
            assert_eq!(thread::current().id(), home);
            x.complete()
        })
    });
    sender.join().unwrap().unwrap();
    assert!(!world.wire(key).released, "nothing happens on the foreign thread");
    world.turn();
    assert_eq!(world.ended(EndReason::Completed), 1);
    world.assert_at_rest("foreign complete");
}

#[test]
fn fault_61_a_pool_that_rejects_is_never_silent() {
    let world = World::new();
    *world.jobs.full.lock().unwrap() = true;
    let log = Log::default();
    let (_, context) = parked(&world, &log);
    assert!(matches!(context.start(|_| ()), Err(Error::LimitReached { .. })));
    world.turn();
    assert_eq!(*log.borrow(), ["error overload", "complete overload"]);
    world.assert_at_rest("rejected");
}

#[test]
fn fault_62_complete_comes_behind_all_earlier_tasks() {
    let world = World::new();
    let (key, context) = parked(&world, &Log::default());
    for number in 0..3 {
        context.executor().execute(move |x: &mut Exchange| write!(x, "{number}")).unwrap();
    }
    context.dispatch(|x: &mut Exchange| write!(x, "end").and_then(|()| x.complete())).unwrap();
    world.turn();
    assert_eq!(world.body(key), "012end");
    world.assert_at_rest("complete last");
}

#[test]
fn fault_64_no_continue_behind_or_without_a_body() {
    let world = World::new();
    let begin = Begin { has_body: true, expects_continue: true, ..Begin::default() };
    let key = world.start(begin, |x, _| {
        assert!(x.send_continue());
        x.complete()
    });
    assert_eq!((world.wire(key).continues, world.wire(key).heads), (1, 1));
    let plain = world.get(|x| assert!(!x.send_continue()));
    assert_eq!(world.wire(plain).continues, 0);
    world.assert_at_rest("continue");
}

/// D12: what a parked exchange occupies besides its own closures, heap parts of a small head included.
#[test]
fn a_parked_exchange_is_small() {
    use crate::exchange::{
        async_context::ContextCore,
        core::{Core, Rare},
    };
    let snapshot = head().snapshot().unwrap();
    let bytes = size_of::<Core>()
        + size_of::<Rare>()
        + size_of::<ContextCore>()
        + size_of_val(&*snapshot)
        + snapshot.heap_bytes();
    assert!(bytes <= 720, "{bytes} bytes for a parked exchange");
}
