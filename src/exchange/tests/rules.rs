//! One test for each rule of the life cycle that a paper container can show, named after it.

use super::*;
use crate::{
    error::Error,
    exchange::{AsyncContext, Read, ReadListener, UndeliveredReason, asynchronous, handoff},
};
use bytes::Bytes;
use http::StatusCode;

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A log that listeners can hold.
type Log = Rc<RefCell<Vec<String>>>;

fn note(log: &Log, text: impl Into<String>) {
    log.borrow_mut().push(text.into());
}

#[test]
fn a_synchronous_request_is_one_callback_and_leaves_nothing() {
    let world = World::new();
    let key = world.get(|x| {
        assert_eq!(x.request().path(), "/answer");
        x.response().set_content_type("text/plain")?;
        let name = "World";
        write!(x, "Hello, {name}")
    });
    assert_eq!(world.body(key), "Hello, World");
    assert_eq!((world.counters().callbacks, world.ended(EndReason::Completed)), (1, 1));
    world.assert_at_rest("hello");
}

#[test]
fn l_3_tasks_run_in_the_order_in_which_they_were_queued() {
    let world = World::new();
    let key = world.get(|x| {
        let cx = x.start_async();
        let executor = cx.executor();
        for number in 0..3 {
            executor.execute(move |x: &mut Exchange| write!(x, "{number}")).unwrap();
        }
        cx.dispatch(|x: &mut Exchange| x.complete()).unwrap();
    });
    assert_eq!(world.body(key), "", "nothing runs inside the handler");
    world.turn();
    assert_eq!(world.body(key), "012");
    world.assert_at_rest("order");
}

#[test]
fn l_3_dispatch_runs_at_once_outside_callbacks() {
    let world = World::new();
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let key = world.get(move |x| *keep.borrow_mut() = Some(x.start_async()));
    let cx = kept.borrow_mut().take().unwrap();
    cx.dispatch(|x: &mut Exchange| write!(x, "now").and_then(|()| x.complete())).unwrap();
    assert_eq!(world.body(key), "now");
    assert!(matches!(cx.with(|_| ()), Err(Error::Ended(EndReason::Completed))));
    world.assert_at_rest("dispatch");
}

#[test]
fn l_4_full_and_stopping_hand_the_task_back() {
    let world = World::new();
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    world.get(move |x| *keep.borrow_mut() = Some(x.start_async().executor()));
    let executor = kept.borrow_mut().take().unwrap();
    for _ in 0..TASKS_MAX {
        executor.execute(|_: &mut Exchange| ()).unwrap();
    }
    let refused = executor.execute(|x: &mut Exchange| x.complete()).unwrap_err();
    assert_eq!(refused.reason, UndeliveredReason::Full);
    world.turn();
    assert_eq!(executor.queued(), 0);
    *world.mailbox.refuse.lock().unwrap() = Some(Refusal::Stopping);
    let refused = executor.execute(refused.task).unwrap_err();
    assert_eq!(refused.reason, UndeliveredReason::ShuttingDown);
    *world.mailbox.refuse.lock().unwrap() = None;
    executor.execute(refused.task).unwrap();
    world.turn();
    let refused = executor.execute(|_: &mut Exchange| ()).unwrap_err();
    assert_eq!(refused.reason, UndeliveredReason::Ended(EndReason::Completed));
    world.assert_at_rest("full");
}

/// Each write is queued before the end of its exchange and comes to the shard when another has its slot.
#[test]
fn l_5_fault_16_a_stale_handle_never_touches_the_next_exchange_in_the_slot() {
    let world = World::new();
    let kept = Rc::new(RefCell::new(None));
    let hold = |kept: &Rc<RefCell<Option<AsyncContext>>>| {
        let keep = kept.clone();
        world.get(move |x| *keep.borrow_mut() = Some(x.start_async()))
    };
    let mut before = hold(&kept);
    let first = kept.borrow().clone().unwrap();
    for _ in 0..1000 {
        let stale = kept.borrow_mut().take().unwrap();
        stale.executor().execute(|x: &mut Exchange| write!(x, "mixed").and_then(|()| x.complete())).unwrap();
        world.event(before, |e| e.peer_reset(before));
        let key = hold(&kept);
        assert_eq!(key.slot, before.slot, "the slot is reused");
        world.turn();
        for old in [&stale, &first] {
            assert!(old.dispatch(|x: &mut Exchange| write!(x, "mixed")).is_err());
            assert!(old.with(|x| x.complete()).is_err());
        }
        assert!(!world.wire(key).released && world.body(key).is_empty(), "untouched");
        before = key;
    }
    let last = kept.borrow_mut().take().unwrap();
    last.dispatch(|x: &mut Exchange| write!(x, "own").and_then(|()| x.complete())).unwrap();
    assert_eq!(world.body(before), "own");
    assert_eq!(world.counters().stale_tasks_dropped, 1000);
    world.assert_at_rest("stale");
}

#[test]
fn l_5_a_task_that_arrives_after_the_end_is_dropped_on_the_shard_and_counted() {
    let world = World::new();
    let key = world.get(|x| {
        let executor = x.start_async().executor();
        executor.execute(|x: &mut Exchange| write!(x, "first").and_then(|()| x.complete())).unwrap();
        executor.execute(|x: &mut Exchange| write!(x, "second")).unwrap();
    });
    world.turn();
    assert_eq!(world.body(key), "first");
    assert_eq!(world.counters().stale_tasks_dropped, 1);
    world.assert_at_rest("late task");
}

#[test]
fn l_6_a_task_of_an_earlier_cycle_is_stale_unless_it_is_for_the_whole_exchange() {
    let world = World::new();
    let key = world.get(|x| {
        let cx = x.start_async();
        if x.cycle() == 0 {
            x.redispatch("/second")?;
            cx.executor().execute(|x: &mut Exchange| write!(x, "stale")).unwrap();
            cx.whole_exchange().executor().execute(|x: &mut Exchange| write!(x, "whole")).unwrap();
        } else {
            assert_eq!(x.redispatch_target().as_deref(), Some("/second"));
            cx.executor().execute(|x: &mut Exchange| x.complete()).unwrap();
        }
        Ok::<(), Error>(())
    });
    world.turn();
    assert_eq!(world.body(key), "whole");
    assert_eq!(world.counters().stale_tasks_dropped, 1);
    world.assert_at_rest("cycles");
}

/// The race of the design, both winners forced: L-8, L-9, fault 2. The loser is always queued before it loses.
#[test]
fn l_8_fault_2_a_result_beats_a_timeout_of_the_same_turn() {
    for (work_arrives, body, reason) in
        [(true, "The answer is 42", EndReason::Completed), (false, "Request timed out", EndReason::TimedOut)]
    {
        let world = World::new();
        let kept = Rc::new(RefCell::new(None));
        let keep = kept.clone();
        let key = world.get(move |x| {
            *keep.borrow_mut() = Some(x.start_async().executor());
            x.set_timeout(milliseconds(100));
            x.on_timeout(|x| {
                x.response().set_status(StatusCode::BAD_GATEWAY);
                write!(x, "Request timed out")?;
                x.complete()
            });
        });
        world.advance(100);
        let executor = kept.borrow_mut().take().unwrap();
        let answer = |x: &mut Exchange| write!(x, "The answer is 42").and_then(|()| x.complete());
        thread::scope(|s| s.spawn(|| executor.execute(answer).unwrap()).join().unwrap());
        if !work_arrives {
            // The timer is looked at before the inbox: the result is on its way and comes a hair too late.
            world.event(key, |e| e.timer_fired(key));
        }
        world.turn();
        assert!(executor.execute(answer).is_err(), "who comes later is told");
        world.turn();
        assert_eq!(world.body(key), body);
        let counters = world.counters();
        assert_eq!((world.ended(reason), counters.panics), (1, 0));
        assert_eq!(counters.stale_tasks_dropped, u64::from(!work_arrives), "the loser never ran");
        assert_eq!(executor.queued(), 0);
        world.assert_at_rest("race");
    }
}

#[test]
fn l_10_the_order_of_callbacks_at_the_end() {
    struct Listener(Log);
    impl ReadListener for Listener {
        fn on_data_available(&mut self, _: &mut Exchange) -> Result<()> {
            Ok(())
        }
        fn on_error(&mut self, _: &mut Exchange, reason: EndReason) {
            note(&self.0, format!("listener {reason}"));
        }
    }
    let world = World::new();
    let log = Log::default();
    let events = log.clone();
    let begin = Begin { has_body: true, ..Begin::default() };
    let key = world.start(begin, move |x, _| {
        x.start_async();
        x.set_read_listener(Listener(events.clone()));
        let (error, complete) = (events.clone(), events.clone());
        x.on_error(move |_, reason| note(&error, format!("error {reason}")));
        x.on_complete(move |_, reason| note(&complete, format!("complete {reason}")));
    });
    world.event(key, |e| e.peer_reset(key));
    world.event(key, |e| e.peer_finished(key));
    assert_eq!(*log.borrow(), ["listener client_reset", "error client_reset", "complete client_reset"]);
    assert!(world.wire(key).aborted);
    world.assert_at_rest("order at the end");
}

#[test]
fn l_11_a_second_end_is_suppressed_counted_and_answered() {
    let world = World::new();
    world.get(|x| {
        x.complete().unwrap();
        assert!(matches!(x.complete(), Err(Error::Ended(EndReason::Completed))));
        assert!(matches!(x.redispatch("/"), Err(Error::Ended(EndReason::Completed))));
        assert!(write!(x, "late").is_err());
    });
    assert_eq!(world.counters().double_terminal_suppressed, 2);
    world.assert_at_rest("double");
}

#[test]
fn l_12_on_timeout_may_extend_and_is_asked_again() {
    let world = World::new();
    let key = world.get(|x| {
        x.start_async();
        x.set_timeout(milliseconds(10));
        let mut asked = 0;
        x.on_timeout(move |x| {
            asked += 1;
            write!(x, "{asked}")?;
            if asked < 3 {
                x.extend(milliseconds(10));
                return Ok(());
            }
            x.complete()
        });
    });
    for _ in 0..3 {
        world.advance(9);
        world.turn();
        world.advance(1);
        world.turn();
    }
    assert_eq!(world.body(key), "123");
    assert_eq!(world.ended(EndReason::TimedOut), 1);
    world.assert_at_rest("extend");
}

/// Fault 15: never a replay.
#[test]
fn l_12_fault_15_an_unhandled_timeout_is_503_through_the_error_handler() {
    let world = World::new();
    let runs = Rc::new(Cell::new(0));
    let counted = runs.clone();
    let key = world.get(move |x| {
        counted.set(counted.get() + 1);
        x.start_async();
        x.set_timeout(milliseconds(10));
    });
    world.advance(10);
    world.turn();
    assert_eq!((world.wire(key).status, world.body(key).as_str(), runs.get()), (503, "error", 1));
    world.assert_at_rest("timeout");
}

#[test]
fn l_13_an_error_in_the_error_handler_is_a_built_in_answer() {
    let world = World::new();
    let key = world.start(Begin::default(), |_, _| Err::<(), _>(Error::handler("broken")));
    assert_eq!((world.wire(key).status, world.body(key).as_str()), (500, "500\n"));
    assert_eq!(world.ended(EndReason::HandlerFailed), 1);
    world.assert_at_rest("error in error");
}

#[test]
fn l_13_after_commit_the_client_sees_truncation() {
    let world = World::new();
    let key = world.get(|x| {
        let executor = x.start_async().executor();
        write!(x, "half")?;
        x.flush()?;
        executor.execute(|_: &mut Exchange| Err::<(), _>(Error::handler("broken"))).unwrap();
        Ok::<(), Error>(())
    });
    world.turn();
    let wire = world.wire(key);
    assert!(wire.aborted && !wire.finished && wire.heads == 1);
    world.assert_at_rest("truncation");
}

/// Fault 10: a panic in `on_complete` as well.
#[test]
fn l_14_fault_10_a_panic_ends_one_exchange_only() {
    let world = World::new();
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    let key = world.get(move |x| {
        let count = count.clone();
        x.on_complete(move |_, reason| {
            assert_eq!(reason, EndReason::Panicked);
            count.set(count.get() + 1);
            assert!(count.get() > 1, "in on_complete");
        });
        assert!(x.cycle() > 0, "in the handler");
    });
    assert_eq!((world.wire(key).status, told.get(), world.counters().panics), (500, 1, 2));
    let next = world.get(|x| write!(x, "alive"));
    assert_eq!(world.body(next), "alive");
    world.assert_at_rest("panic");
}

#[test]
fn l_16_the_end_fires_the_token_and_drops_the_future_on_its_shard() {
    struct Guard(Log);
    impl Drop for Guard {
        fn drop(&mut self) {
            note(&self.0, "future dropped");
        }
    }
    let world = World::new();
    let log = Log::default();
    let events = log.clone();
    let cancelled = Arc::new(Mutex::new(None));
    let seen = cancelled.clone();
    let handler = asynchronous(async move |x: &mut Exchange| {
        let _guard = Guard(events.clone());
        let seen = seen.clone();
        x.cancel_token().on_cancel(move |reason| *seen.lock().unwrap() = Some(reason)).unwrap();
        std::future::pending::<()>().await;
    });
    let key = world.get_with(handler);
    assert!(log.borrow().is_empty());
    world.event(key, |e| e.peer_finished(key));
    assert_eq!(*log.borrow(), ["future dropped"]);
    assert_eq!(*cancelled.lock().unwrap(), Some(EndReason::ClientClosed));
    world.assert_at_rest("cancel");
}

#[test]
fn l_17_continue_is_sent_once_and_refused_by_a_final_answer() {
    let world = World::new();
    let begin = Begin { has_body: true, expects_continue: true, coordinated: true, ..Begin::default() };
    let accepted = world.start(begin, |x, callback| match callback {
        Callback::DoRequest => {
            assert!(x.send_continue() && !x.send_continue());
            x.service()
        }
        _ => x.complete(),
    });
    assert_eq!(world.wire(accepted).continues, 1);
    let refused = world.start(begin, |x, _| {
        x.response().set_status(StatusCode::UNAUTHORIZED);
        x.complete()
    });
    assert_eq!((world.wire(refused).continues, world.wire(refused).status), (0, 401));
    let by_reading = world.start(Begin { coordinated: false, ..begin }, |x, _| {
        assert!(matches!(x.read(), Ok(Read::NotReady)));
    });
    assert_eq!(world.wire(by_reading).continues, 1);
    let c = world.counters();
    assert_eq!((c.continues_sent, c.continues_refused, c.continues_ignored), (2, 1, 1));
    world.assert_at_rest("continue");
}

#[test]
fn l_21_start_async_on_a_chain_that_cannot_is_a_typed_error() {
    let world = World::new();
    let begin = Begin { sync_only: Some("auth filter"), ..Begin::default() };
    let key = world.start(begin, |x, callback| {
        if callback == Callback::Handler(DispatchType::Error) {
            let fault = x.take_fault().map(|fault| fault.to_string()).unwrap_or_default();
            return x.write(fault);
        }
        assert!(matches!(x.try_start_async(), Err(Error::AsyncNotSupported { .. })));
        x.start_async();
        Ok(())
    });
    assert_eq!(world.body(key), "auth filter does not support asynchronous requests");
    world.assert_at_rest("sync only");
}

#[test]
fn l_24_blocking_waits_for_a_worker_and_a_full_pool_is_never_silent() {
    let world = World::new();
    let handler = || {
        asynchronous(async |x: &mut Exchange| {
            let answer = x.blocking(|| 42).await?;
            write!(x, "The answer is {answer}")
        })
    };
    let key = world.get_with(handler());
    world.jobs.run();
    world.turn();
    assert_eq!(world.body(key), "The answer is 42");
    *world.jobs.full.lock().unwrap() = true;
    let refused = world.get_with(handler());
    assert_eq!(world.wire(refused).status, 503);
    assert_eq!(world.ended(EndReason::Overload), 1);
    world.assert_at_rest("blocking");
}

#[test]
fn an_asynchronous_handler_sleeps_reads_and_hands_off() {
    let world = World::new();
    let place = Rc::new(RefCell::new(None));
    let keep = place.clone();
    let handler = asynchronous(async move |x: &mut Exchange| {
        x.sleep(milliseconds(5)).await?;
        let (sender, receiver) = handoff::<String>();
        *keep.borrow_mut() = Some(sender);
        let text = receiver.await.unwrap_or_default();
        while let Some(bytes) = x.next_chunk().await? {
            x.write(bytes)?;
        }
        x.write(text)
    });
    let begin = Begin { has_body: true, ..Begin::default() };
    let key = world.start(begin, move |x, _| handler.run(x));
    world.advance(5);
    world.turn();
    let sender = place.borrow_mut().take().expect("the sleep is over");
    thread::spawn(move || sender.send("tail".to_owned()).unwrap()).join().unwrap();
    world.turn();
    world.event(key, |e| e.input(key, Bytes::from("body ")).unwrap());
    world.event(key, |e| e.input_ended(key));
    assert_eq!(world.body(key), "body tail");
    world.assert_at_rest("await");
}

#[test]
fn l_12_a_wake_up_during_on_timeout_is_not_lost_when_the_timeout_is_extended() {
    let world = World::new();
    let keep = Rc::new(RefCell::new(None));
    let handler = asynchronous(async move |x: &mut Exchange| {
        let (sender, receiver) = handoff::<u32>();
        *keep.borrow_mut() = Some(sender);
        let keep = keep.clone();
        x.set_timeout(milliseconds(1));
        x.on_timeout(move |x| {
            keep.borrow_mut().take().unwrap().send(42).unwrap();
            x.extend(milliseconds(1000));
        });
        let number = receiver.await.unwrap();
        write!(x, "{number}")
    });
    let key = world.get_with(handler);
    world.advance(1);
    world.turn();
    world.turn();
    assert_eq!(world.body(key), "42");
    world.assert_at_rest("extended");
}

#[test]
fn a_flush_right_before_the_end_is_part_of_the_end() {
    let world = World::new();
    let key = world.begin(Begin::default(), |x, _| write!(x, "whole").and_then(|()| x.flush()));
    let exchanges = &world.exchanges;
    assert_eq!(exchanges.next_action(key), Some(Next::Run(Callback::Handler(DispatchType::Request))));
    exchanges.enter(key, head(), |x| write!(x, "whole").and_then(|()| x.flush()));
    assert_eq!(exchanges.next_action(key), Some(Next::FinishResponse), "the length is known");
    exchanges.with_output(key, |_, output| output.take_into(&mut Vec::new(), 100));
    exchanges.head_committed(key);
    assert!(exchanges.end_plain(key, 5), "nobody listens to it");
    assert_eq!(exchanges.next_action(key), Some(Next::Released));
    assert_eq!(exchanges.next_action(key), None);
}

/// The same through the inbox of a shard of the runtime.
#[test]
fn l_1_tasks_and_wake_ups_come_through_the_inbox_of_a_shard() {
    let sim = shards::testing::Simulation::new(1);
    let post = Arc::new(crate::exchange::ShardPost::new(sim.shard(0).handle()));
    let world = World::with_post(Some(post));
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let key = world.get_with(asynchronous(async move |x: &mut Exchange| {
        let (sender, receiver) = handoff::<u32>();
        *keep.borrow_mut() = Some((sender, x.context().executor()));
        let number = receiver.await.unwrap_or_default();
        write!(x, "{number}")
    }));
    let (sender, executor) = kept.borrow_mut().take().unwrap();
    let foreign = thread::spawn(move || {
        executor.execute(|x: &mut Exchange| write!(x, "task ")).unwrap();
        sender.send(42).unwrap();
    });
    foreign.join().unwrap();
    assert!(sim.run_until(milliseconds(1000), || world.wire(key).released));
    assert_eq!(world.body(key), "task 42");
    let latencies = world.exchanges.latencies();
    assert_eq!((latencies.hand_over_us().len(), latencies.async_age_ms().len()), (1, 1), "L-27");
    world.assert_at_rest("inbox");
}

/// Fault 17.
#[test]
fn fault_17_a_timer_of_an_earlier_generation_is_ignored_and_counted() {
    let world = World::new();
    let old = world.get(|_| ());
    let new = world.get(|x| {
        x.start_async();
        x.set_timeout(milliseconds(1000));
    });
    assert_eq!(old.slot, new.slot);
    world.event(old, |e| e.timer_fired(old));
    assert_eq!(world.counters().stale_timers, 1);
    assert!(!world.wire(new).released);
    world.event(new, |e| e.shutdown_forced(new, EndReason::Shutdown));
    assert_eq!((world.wire(new).status, world.ended(EndReason::Shutdown)), (503, 1));
    world.assert_at_rest("generations");
}
