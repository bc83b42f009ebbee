//! Each kind of callback ends its exchange, and nothing is called from within it (L-1, L-7); what it is called where
//! callbacks are measured (L-27); how often an exchange may sleep.

use super::{
    faults::{Log, note},
    *,
};
use crate::{
    error::Error,
    exchange::{ReadListener, WaterMarks, asynchronous},
    routing::{Coordinator, CoordinatorSlot},
};
use bytes::Bytes;

/// Each callback kind completes its exchange and then notes that it is over: nothing runs before that.
#[test]
fn fault_13_complete_in_each_callback_never_calls_back_before_it_returns() {
    for place in [
        "do_request",
        "handler",
        "do_response",
        "data",
        "all read",
        "writable",
        "timeout",
        "error handler",
        "redispatched",
        "listener error",
        "error",
        "task",
        "poll",
    ] {
        let world = World::new();
        let log = Log::default();
        complete_inside(&world, place, &log);
        assert_eq!(*log.borrow(), ["in", "out", "complete"], "{place}");
        assert_eq!(world.counters().ended_total(), 1, "{place}");
        world.assert_at_rest(place);
    }
}

fn complete_inside(world: &World, place: &'static str, log: &Log) {
    let end = {
        let log = log.clone();
        move |x: &mut Exchange| {
            note(&log, "in");
            x.complete().unwrap();
            note(&log, "out");
        }
    };
    world.set_blocked(place == "writable");
    let (events, kept) = (log.clone(), Rc::new(RefCell::new(None)));
    let keep = kept.clone();
    let begin = Begin {
        coordinated: matches!(place, "do_request" | "do_response"),
        has_body: matches!(place, "data" | "all read" | "listener error"),
        ..Begin::default()
    };
    let told = std::cell::Cell::new(false);
    let key = world.start(begin, move |x, callback| {
        if !told.replace(true) {
            let events = events.clone();
            x.on_complete(move |_, _| note(&events, "complete"));
        }
        match (place, callback) {
            ("do_request", Callback::DoRequest) | ("do_response", Callback::DoResponse) => end(x),
            (_, Callback::DoRequest) => x.service()?,
            (_, Callback::DoResponse) => x.complete()?,
            ("handler", Callback::Handler(DispatchType::Request)) => end(x),
            ("error handler", Callback::Handler(DispatchType::Error)) => end(x),
            ("redispatched", Callback::Handler(DispatchType::Async)) => end(x),
            ("error handler", _) => return Err(Error::handler("expected by the test")),
            ("redispatched", _) => x.redispatch("/again")?,
            (_, Callback::Handler(DispatchType::Request)) if place != "do_response" => {
                *keep.borrow_mut() = Some(x.start_async());
                listen(x, place, end.clone());
            }
            _ => {}
        }
        Ok::<(), Error>(())
    });
    let context = kept.borrow_mut().take();
    match place {
        "data" => world.event(key, |e| e.input(key, Bytes::from("data")).unwrap()),
        "all read" => world.event(key, |e| e.input_ended(key)),
        "writable" => world.set_blocked(false),
        "timeout" => {
            world.advance(1);
            world.turn();
        }
        "listener error" => world.event(key, |e| e.input_failed(key, EndReason::BodyTimeout)),
        "error" => world.event(key, |e| e.overloaded(key)),
        "task" => {
            // The closures of the test are of this shard, so the task only asks for what the timeout would do.
            let context = context.unwrap();
            context.with(end_of(log)).unwrap();
        }
        _ => {}
    }
}

fn end_of(log: &Log) -> impl FnOnce(&mut Exchange) + use<> {
    let log = log.clone();
    move |x| {
        note(&log, "in");
        x.complete().unwrap();
        note(&log, "out");
    }
}

struct Ends<F>(F, &'static str);

impl<F: Fn(&mut Exchange)> ReadListener for Ends<F> {
    fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
        if self.1 == "data" {
            (self.0)(x);
        }
        Ok(())
    }
    fn on_all_data_read(&mut self, x: &mut Exchange) -> Result<()> {
        if self.1 == "all read" {
            (self.0)(x);
        }
        Ok(())
    }
    fn on_error(&mut self, x: &mut Exchange, _: EndReason) {
        if self.1 == "listener error" {
            (self.0)(x);
        }
    }
}

fn listen(x: &mut Exchange, place: &'static str, end: impl Fn(&mut Exchange) + Clone + 'static) {
    match place {
        "data" | "all read" | "listener error" => x.set_read_listener(Ends(end, place)),
        "writable" => {
            x.set_water_marks(WaterMarks { high: 4, low: 1, limit: 100 });
            x.set_write_listener(move |x: &mut Exchange| end(x));
            write!(x, "more than four").unwrap();
        }
        "timeout" => {
            x.set_timeout(Duration::from_millis(1));
            x.on_timeout(move |x| end(x));
        }
        "error" => x.on_error(move |x, _| end(x)),
        "poll" => {
            let end = end.clone();
            asynchronous(async move |x: &mut Exchange| end(x)).handle(x).unwrap();
        }
        _ => {}
    }
}

/// A coordinator that completes the exchange in one of its hooks and notes all that it is told.
struct Hooks {
    place: &'static str,
    log: Log,
}

impl Hooks {
    fn end(&self, place: &str, x: &mut Exchange) {
        if place == self.place {
            note(&self.log, "in");
            x.complete().unwrap();
            note(&self.log, "out");
        }
    }
}

impl Coordinator for Hooks {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        x.set_timeout(Duration::from_millis(1));
        // Content is the coordinator's to hear of until it has chosen the handler.
        if self.place == "on_content" { Ok(()) } else { x.service() }
    }
    fn do_response(&mut self, x: &mut Exchange) -> Result<()> {
        x.set_water_marks(WaterMarks { high: 4, low: 1, limit: 100 });
        write!(x, "more than four")
    }
    fn on_content(&mut self, x: &mut Exchange) -> Result<()> {
        self.end("on_content", x);
        Ok(())
    }
    fn on_writable(&mut self, x: &mut Exchange) -> Result<()> {
        self.end("on_writable", x);
        Ok(())
    }
    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        self.end("on_timeout", x);
        Ok(())
    }
    fn on_error(&mut self, x: &mut Exchange, _: EndReason) -> Result<()> {
        self.end("on_error", x);
        Ok(())
    }
    fn on_complete(&mut self, _: &mut Exchange, _: EndReason) {
        note(&self.log, "complete");
    }
}

#[test]
fn fault_13_complete_in_each_hook_of_a_coordinator_calls_no_other_before_it_returns() {
    for place in ["on_content", "on_writable", "on_timeout", "on_error"] {
        let world = World::new();
        let log = Log::default();
        world.set_blocked(place == "on_writable");
        let make = {
            let log = log.clone();
            move || Box::new(Hooks { place, log: log.clone() })
        };
        let begin = Begin { coordinated: true, has_body: place == "on_content", ..Begin::default() };
        let key = world.start(begin, move |x, callback| match callback {
            Callback::DoRequest => CoordinatorSlot::begin(make(), x),
            Callback::DoResponse => x.guardian().unwrap().do_response(x),
            _ if place == "on_writable" => Ok(()),
            _ => {
                x.start_async();
                Ok(())
            }
        });
        match place {
            "on_content" => world.event(key, |e| e.input(key, Bytes::from("data")).unwrap()),
            "on_writable" => world.set_blocked(false),
            "on_timeout" => {
                world.advance(1);
                world.turn();
            }
            _ => world.event(key, |e| e.overloaded(key)),
        }
        assert_eq!(*log.borrow(), ["in", "out", "complete"], "{place}");
        world.event(key, |e| e.input_ended(key));
        assert_eq!(world.counters().ended_total(), 1, "{place}");
        world.assert_at_rest(place);
    }
}

/// In `on_complete` it is too late: the call is answered, and calls nobody.
#[test]
fn fault_13_complete_in_on_complete_is_refused_and_calls_nobody() {
    let world = World::new();
    let log = Log::default();
    let events = log.clone();
    world.get(move |x| {
        let events = events.clone();
        x.on_complete(move |x, _| {
            note(&events, "in");
            assert!(matches!(x.complete(), Err(Error::Ended(EndReason::Completed))));
            note(&events, "out");
        });
    });
    assert_eq!((log.borrow().join(" "), world.counters().double_terminal_suppressed), ("in out".into(), 1));
    world.assert_at_rest("too late");
}

/// L-27: what measures callbacks is told whose they are.
#[test]
fn l_27_callbacks_say_their_kind_before_they_run() {
    let world = World::new();
    let key = world.get_with(asynchronous(async |x: &mut Exchange| {
        x.context().executor().execute(|_: &mut Exchange| ()).unwrap();
        x.set_timeout(Duration::from_millis(1));
        x.on_timeout(|x| x.complete());
        x.on_complete(|_, _| ());
        std::future::pending::<()>().await;
    }));
    world.turn();
    world.advance(1);
    world.turn();
    assert!(world.wire(key).released);
    assert_eq!(*world.inner.callbacks.borrow(), ["task", "on_timeout", "on_complete"]);
    world.assert_at_rest("names");
}

/// One that nobody listens to is not named: it would hide the name of the one before it.
#[test]
fn l_27_what_nobody_listens_to_has_no_name() {
    let world = World::new();
    world.get(|x| write!(x, "answered"));
    assert!(world.inner.callbacks.borrow().is_empty());
}

#[test]
fn an_exchange_sleeps_so_often_and_what_is_dropped_makes_room() {
    let world = World::new();
    let handler = asynchronous(async |x: &mut Exchange| -> Result<()> {
        for _ in 0..100 {
            // Polled once, as by the loser of a race, and dropped.
            let mut lost = std::pin::pin!(x.sleep(Duration::from_secs(1)));
            std::future::poll_fn(|context| {
                assert!(lost.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
        }
        let mut sleeps: Vec<_> = (0..9).map(|_| Box::pin(x.sleep(Duration::from_millis(1)))).collect();
        let refused = std::future::poll_fn(|context| {
            let polls: Vec<_> = sleeps.iter_mut().map(|sleep| sleep.as_mut().poll(context)).collect();
            let refused = polls.into_iter().filter(|poll| poll.is_ready()).count();
            std::task::Poll::Ready(refused)
        });
        let refused = refused.await;
        sleeps.truncate(8);
        for sleep in sleeps {
            sleep.await?;
        }
        write!(x, "{refused} refused")
    });
    let key = world.get_with(handler);
    world.advance(1);
    world.turn();
    assert_eq!((world.body(key).as_str(), world.counters().sleeps_refused), ("1 refused", 1));
    world.assert_at_rest("sleeps");
}

#[test]
fn a_sleep_that_outlives_its_exchange_is_stale() {
    type Left = Option<std::pin::Pin<Box<dyn Future<Output = Result<()>>>>>;
    let (world, left) = (World::new(), Rc::new(RefCell::new(Left::None)));
    let keep = left.clone();
    world.get(move |x| {
        *keep.borrow_mut() = Some(Box::pin(x.sleep(Duration::from_secs(1))));
        write!(x, "answered")
    });
    world.assert_at_rest("answered");
    let mut sleep = left.take().expect("the handler has left it");
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let polled = sleep.as_mut().poll(&mut context);
    assert!(matches!(polled, std::task::Poll::Ready(Err(Error::Stale))), "{polled:?}");
}
