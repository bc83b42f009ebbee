//! More rows of the table of faults (life cycle): late calls, foreign threads, callbacks that complete, the interim answer.
//! `faults.rs` has the others that paper can show, `tests/lifecycle.rs` those that need sockets.

use super::{
    faults::{Log, note, parked},
    *,
};
use crate::{
    error::Error,
    exchange::{Read, ReadListener, UndeliveredReason, Wait, asynchronous, handoff},
};
use bytes::Bytes;
use std::sync::{
    Barrier,
    atomic::{AtomicU32, Ordering::SeqCst},
};

/// The timer's entry is kept beyond the end of its exchange and fires then.
#[test]
fn fault_6_a_timer_that_fires_on_a_finished_exchange_is_nothing() {
    let world = World::new();
    let log = Log::default();
    let (key, context) = parked(&world, &log);
    context.dispatch(|x: &mut Exchange| x.set_timeout(Duration::from_millis(10))).unwrap();
    assert!(world.exchanges.next_wake(key).is_some());
    context.dispatch(|x: &mut Exchange| x.complete()).unwrap();
    world.advance(10);
    for fired in 1..=2 {
        world.event(key, |e| e.timer_fired(key));
        assert_eq!(world.counters().stale_timers, fired);
    }
    assert_eq!(*log.borrow(), ["complete completed"]);
    world.assert_at_rest("kept timer");
}

/// Tomcat's state-change test: how the cycle ends × an error of the transport × when the end is asked for. The error
/// comes before the callback has run, within it (behind `start_async` and the end), or after its return.
#[test]
fn fault_8_an_io_error_around_start_async_in_18_cells() {
    type Act = fn(&mut Exchange) -> Result<()>;
    let ends: [Option<Act>; 3] = [None, Some(|x| x.complete()), Some(|x| x.redispatch("/again"))];
    for end in ends {
        for error in [None, Some("before"), Some("within"), Some("after")] {
            for timing in ["inline", "foreign before return", "foreign after return"] {
                io_error_cell(end, error, timing);
            }
        }
    }
}

fn io_error_cell(
    end: Option<fn(&mut Exchange) -> Result<()>>,
    error: Option<&'static str>,
    timing: &'static str,
) {
    let world = World::new();
    let (log, kept) = (Log::default(), Rc::new(RefCell::new(None)));
    let (events, keep, exchanges) = (log.clone(), kept.clone(), world.exchanges.clone());
    let key = world.begin(Begin::default(), move |x, callback| {
        if callback != Callback::Handler(DispatchType::Request) {
            return x.write("again");
        }
        let (told, completed) = (events.clone(), events.clone());
        x.on_error(move |_, reason| note(&told, format!("error {reason}")));
        x.on_complete(move |_, reason| note(&completed, format!("complete {reason}")));
        let context = x.start_async();
        x.set_timeout(Duration::from_millis(1));
        match (timing, end) {
            ("inline", Some(act)) => act(x)?,
            ("foreign before return", Some(act)) => {
                thread::scope(|s| s.spawn(|| context.executor().execute(act).unwrap()).join().unwrap());
            }
            _ => *keep.borrow_mut() = Some(context),
        }
        if error == Some("within") {
            exchanges.output_failed(x.id().key, EndReason::ClientReset);
        }
        Ok(())
    });
    if error == Some("before") {
        // Reported before the callback that it then meets has run at all.
        world.exchanges.output_failed(key, EndReason::ClientReset);
    }
    world.drive(key);
    if let (Some(context), Some(act)) = (kept.borrow_mut().take(), end) {
        thread::scope(|s| s.spawn(|| drop(context.executor().execute(act))).join().unwrap());
    }
    // An end that was asked for in the callback has come by now: nothing fails behind it.
    let is_over = timing == "inline" && end.is_some();
    if error == Some("after") {
        world.event(key, |e| e.output_failed(key, EndReason::ClientReset));
    }
    world.turn();
    world.advance(1);
    world.turn();
    let what = format!("{timing}, error {error:?}, end {}", end.is_some());
    let log = log.borrow();
    assert!(log.iter().filter(|text| text.starts_with("error")).count() <= 1, "{what}: {log:?}");
    assert_eq!(log.iter().filter(|text| text.starts_with("complete")).count(), 1, "{what}: {log:?}");
    assert_eq!(world.counters().ended_total(), 1, "{what}");
    let fails = error.is_some() && !(is_over && error == Some("after"));
    assert_eq!(world.ended(EndReason::ClientReset), u64::from(fails), "{what}: {log:?}");
    world.assert_at_rest(&what);
}

/// A foreign thread reads the request while its exchange times out and its slot is used by others.
#[test]
fn fault_20_fault_23_a_stale_handle_answers_every_question() {
    let world = World::new();
    let (key, context) = parked(&world, &Log::default());
    context.dispatch(|x: &mut Exchange| x.set_timeout(Duration::from_millis(1))).unwrap();
    let stop = Arc::new(AtomicU32::new(0));
    let (reader, stopped) = (context.clone(), stop.clone());
    let reading = thread::spawn(move || {
        let mut rounds = 0;
        while stopped.load(SeqCst) == 0 || rounds == 0 {
            let head = reader.request().head();
            assert_eq!((head.path(), head.method()), ("/answer", "POST"));
            let _ = (reader.deadline(), reader.id(), reader.executor().queued());
            rounds += 1;
        }
    });
    world.advance(1);
    world.turn();
    for _ in 0..200 {
        let other = world.get(|x| write!(x, "other"));
        assert_eq!(other.slot, key.slot);
    }
    stop.store(1, SeqCst);
    reading.join().unwrap();
    assert!(context.cancel_token().is_cancelled());
    assert!(matches!(context.with(|_| ()), Err(Error::Ended(EndReason::TimedOut))));
    assert!(matches!(context.start(|_| ()), Err(Error::Ended(EndReason::TimedOut))));
    let refused = context.whole_exchange().executor().execute(|_: &mut Exchange| ()).unwrap_err();
    assert_eq!(refused.reason, UndeliveredReason::Ended(EndReason::TimedOut));
    assert_eq!(context.request().head().path(), "/answer");
    world.assert_at_rest("late questions");
}

/// A result from the pool that races the return of the callback that parks.
#[test]
fn fault_21_a_resume_beats_the_return_of_the_parking_call() {
    for waits_for_the_task in [true, false] {
        let world = World::new();
        let sent = Arc::new(Mutex::new(None));
        let join = sent.clone();
        let key = world.get(move |x| {
            let executor = x.start_async().executor();
            let sender = thread::spawn(move || {
                executor
                    .execute(|x: &mut Exchange| write!(x, "resumed").and_then(|()| x.complete()))
                    .unwrap();
            });
            if waits_for_the_task {
                sender.join().unwrap();
            } else {
                *join.lock().unwrap() = Some(sender);
            }
        });
        if let Some(sender) = sent.lock().unwrap().take() {
            sender.join().unwrap();
        }
        world.turn();
        assert_eq!(world.body(key), "resumed");
        world.assert_at_rest("resume");
    }
}

/// A result is on its way when the client resets: it is dropped on the shard, and counted.
#[test]
fn fault_27_a_foreign_result_behind_a_reset_is_dropped_and_counted() {
    struct Noted(Arc<Mutex<Option<ThreadId>>>);
    impl Drop for Noted {
        fn drop(&mut self) {
            *self.0.lock().unwrap() = Some(thread::current().id());
        }
    }
    let world = World::new();
    let log = Log::default();
    let (key, context) = parked(&world, &log);
    let dropped_on = Arc::new(Mutex::new(None));
    let noted = Noted(dropped_on.clone());
    let sender = thread::spawn(move || {
        let task = move |_: &mut Exchange| -> () {
            let _noted = noted;
            panic!("it runs behind the end")
        };
        context.executor().execute(task).unwrap();
        context
    });
    let context = sender.join().unwrap();
    world.event(key, |e| e.peer_reset(key));
    world.turn();
    assert_eq!(*dropped_on.lock().unwrap(), Some(thread::current().id()));
    assert_eq!((world.counters().stale_tasks_dropped, world.counters().panics), (1, 0));
    let late = context.executor().execute(|_: &mut Exchange| ()).unwrap_err();
    assert_eq!(late.reason, UndeliveredReason::Ended(EndReason::ClientReset));
    assert_eq!(*log.borrow(), ["error client_reset", "complete client_reset"]);
    world.assert_at_rest("late result");
}

#[test]
fn fault_28_a_coordinator_that_fails_behind_service_gets_no_further_hook() {
    for panics in [false, true] {
        let world = World::new();
        let log = Log::default();
        let events = log.clone();
        let key = world.start(Begin { coordinated: true, ..Begin::default() }, move |x, callback| {
            note(&events, format!("{callback:?}"));
            if callback == Callback::DoRequest {
                let complete = events.clone();
                x.on_complete(move |_, reason| note(&complete, format!("complete {reason}")));
                x.service()?;
                assert!(!panics, "expected by the test");
                return Err(Error::handler("broken"));
            }
            Ok(())
        });
        let reason = if panics { "complete panicked" } else { "complete handler_failed" };
        assert_eq!(*log.borrow(), ["DoRequest", "Handler(Error)", reason]);
        assert_eq!(world.wire(key).status, 500);
        world.assert_at_rest("failed behind service");
    }
}

/// `SHARDLET_RACES=1000000` sets how many (default 2,000).
#[test]
fn fault_44_a_foreign_failure_and_the_error_callback_at_a_barrier() {
    let races: u64 = std::env::var("SHARDLET_RACES").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let world = World::new();
    let slot: Arc<Mutex<Option<crate::exchange::AsyncContext>>> = Arc::default();
    let barrier = Arc::new(Barrier::new(2));
    let (place, meet) = (slot.clone(), barrier.clone());
    let foreign = thread::spawn(move || {
        for round in 0..races {
            meet.wait();
            let context = place.lock().unwrap().take().unwrap();
            let fails = |_: &mut Exchange| Err::<(), _>(Error::handler("failed elsewhere"));
            let _ = match round % 2 {
                0 => context.dispatch(fails).is_ok(),
                _ => context.dispatch(|x: &mut Exchange| x.redispatch("/again")).is_ok(),
            };
            meet.wait();
        }
    });
    let told = Log::default();
    for round in 0..races {
        let (key, context) = parked(&world, &told);
        *slot.lock().unwrap() = Some(context);
        barrier.wait();
        if round % 3 == 0 {
            world.turn();
        }
        world.event(key, |e| e.peer_reset(key));
        world.turn();
        barrier.wait();
        world.turn();
        // A second cycle of the handler may have set the listeners anew; each is called once all the same.
        let told = std::mem::take(&mut *told.borrow_mut());
        let [errors, ends] =
            ["error", "complete"].map(|kind| told.iter().filter(|text| text.starts_with(kind)).count());
        assert_eq!((errors, ends), (1, 1), "round {round}: {told:?}");
        assert!(world.exchanges.is_empty(), "round {round} is over");
        world.forget_wires();
    }
    foreign.join().unwrap();
    assert_eq!(world.counters().ended_total(), races);
    world.assert_at_rest("failures at a barrier");
}

/// Every step is asked about from another thread, and no concurrent dispatch is lost.
#[test]
fn fault_59_foreign_threads_ask_and_dispatch_at_each_step() {
    let ask = |context: &crate::exchange::AsyncContext, ended: bool| {
        thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(context.request().head().path(), "/answer");
                assert_eq!(context.cancel_token().is_cancelled(), ended);
                assert!(context.executor().queued() <= TASKS_MAX);
                let _ = context.deadline();
            })
            .join()
            .unwrap();
        });
    };
    let world = World::new();
    let (kept, ran) = (Rc::new(RefCell::new(None)), Arc::new(AtomicU32::new(0)));
    let keep = kept.clone();
    let key = world.get(move |x| {
        let early = x.context();
        ask(&early, false);
        let context = x.start_async();
        ask(&early, false);
        ask(&context, false);
        *keep.borrow_mut() = Some(early);
    });
    let context = kept.borrow_mut().take().unwrap();
    for _ in 0..50 {
        thread::scope(|s| {
            for _ in 0..TASKS_MAX {
                let (context, ran) = (&context, ran.clone());
                s.spawn(move || {
                    context
                        .dispatch(move |_: &mut Exchange| {
                            ran.fetch_add(1, SeqCst);
                        })
                        .unwrap();
                });
            }
        });
        world.turn();
    }
    assert_eq!(ran.load(SeqCst), 50 * TASKS_MAX, "none is lost");
    ask(&context, false);
    context.dispatch(|x: &mut Exchange| x.complete()).unwrap();
    ask(&context, true);
    assert!(world.wire(key).released);
    world.assert_at_rest("asked at each step");
}

/// Whatever a handler reads its body with tells the client to send it, once.
#[test]
fn fault_65_every_body_accessor_asks_for_the_body() {
    struct Reads;
    impl ReadListener for Reads {
        fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
            while let Read::Data(_) = x.read()? {}
            Ok(())
        }
        fn on_all_data_read(&mut self, x: &mut Exchange) -> Result<()> {
            x.complete()
        }
    }
    type Access = fn(&mut Exchange) -> Result<()>;
    let accessors: [(&str, Access); 5] = [
        ("read", |x| x.read().map(drop)),
        ("is_read_ready", |x| {
            x.is_read_ready();
            Ok(())
        }),
        ("take_body", |x| {
            x.take_body();
            Ok(())
        }),
        ("set_read_listener", |x| {
            x.start_async();
            x.set_read_listener(Reads);
            Ok(())
        }),
        ("next_chunk", |x| {
            asynchronous(async |x: &mut Exchange| {
                while x.next_chunk().await?.is_some() {}
                Ok::<(), Error>(())
            })
            .handle(x)
        }),
    ];
    let begin = Begin { has_body: true, expects_continue: true, ..Begin::default() };
    for (name, access) in accessors {
        let world = World::new();
        let key = world.start(begin, move |x, _| access(x));
        assert_eq!(world.wire(key).continues, 1, "{name}");
        deliver(&world, key, name);
    }
    for wait in [Wait::WholeBody, Wait::FirstContent] {
        let world = World::new();
        let key = world.start(Begin { wait, ..begin }, |x, _| x.complete());
        assert_eq!((world.wire(key).continues, world.wire(key).heads), (1, 0), "a route with {wait:?}");
        deliver(&world, key, "route");
        let key = world.start(Begin { coordinated: true, ..begin }, move |x, callback| {
            if callback == Callback::DoRequest {
                x.wait_for_body(wait);
                return x.service();
            }
            x.complete()
        });
        assert_eq!((world.wire(key).continues, world.wire(key).heads), (1, 0), "service with {wait:?}");
        deliver(&world, key, "service");
    }
}

fn deliver(world: &World, key: Key, what: &str) {
    world.event(key, |e| drop(e.input(key, Bytes::from("12345"))));
    world.event(key, |e| e.input_ended(key));
    assert_eq!(world.wire(key).continues, 1, "{what}");
    world.assert_at_rest(what);
}

/// A sender that keeps its end of a hand-off beyond the end of the exchange.
#[test]
fn fault_23_a_hand_off_to_an_ended_exchange_gives_the_value_back() {
    let world = World::new();
    let kept = Rc::new(RefCell::new(None));
    let keep = kept.clone();
    let key = world.get_with(asynchronous(async move |x: &mut Exchange| {
        let (sender, receiver) = handoff::<u32>();
        *keep.borrow_mut() = Some(sender);
        let number = receiver.await.unwrap_or_default();
        write!(x, "{number}")
    }));
    world.event(key, |e| e.peer_finished(key));
    let sender = kept.borrow_mut().take().unwrap();
    assert!(sender.is_closed());
    assert_eq!(sender.send(42), Err(42));
    world.assert_at_rest("late hand-off");
}

#[test]
fn fault_36_notify_client_gone_off_calls_no_error_hook_and_ends_all_the_same() {
    for hush in [false, true] {
        for ending in [EndReason::ClientClosed, EndReason::ClientReset, EndReason::Overload] {
            let world = World::new();
            let log = Log::default();
            let events = log.clone();
            let begin = Begin { hush_client_gone: hush, ..Begin::default() };
            let key = world.start(begin, move |x, callback| {
                let (error, complete) = (events.clone(), events.clone());
                x.on_error(move |_, reason| note(&error, format!("error {reason}")));
                x.on_complete(move |_, reason| note(&complete, format!("complete {reason}")));
                if callback == Callback::Handler(DispatchType::Request) {
                    x.start_async();
                }
            });
            match ending {
                EndReason::ClientClosed => world.event(key, |e| e.peer_finished(key)),
                EndReason::ClientReset => world.event(key, |e| e.peer_reset(key)),
                _ => world.event(key, |e| e.overloaded(key)),
            }
            let quiet = hush && ending != EndReason::Overload;
            let errors = log.borrow().iter().filter(|text| text.starts_with("error")).count();
            assert_eq!(errors, usize::from(!quiet), "{hush} {ending}: {:?}", log.borrow());
            assert_eq!(log.borrow().last().unwrap(), &format!("complete {ending}"));
            world.assert_at_rest("notify");
        }
    }
}
