//! Coordinators beside the handler's own listeners, and what a timeout may do before a handler is chosen.

use super::World;
use crate::{
    error::{EndReason, Result},
    exchange::{Callback, Exchange, Outcome, Read, seam::Begin},
    routing::{Coordinator, CoordinatorSlot},
};
use shards::Key;
use std::{cell::RefCell, rc::Rc, time::Duration};

type Log = Rc<RefCell<Vec<String>>>;

/// Notes what it hears; what it does on a timeout is the test's.
struct Watcher {
    log: Log,
    on_timeout: fn(&mut Exchange) -> Result<()>,
}

impl Watcher {
    fn note(&self, what: impl Into<String>) {
        self.log.borrow_mut().push(what.into());
    }
}

impl Coordinator for Watcher {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        x.set_timeout(Duration::from_millis(10));
        Ok(())
    }

    fn do_response(&mut self, x: &mut Exchange) -> Result<()> {
        self.note("do_response");
        x.complete()
    }

    fn on_content(&mut self, x: &mut Exchange) -> Result<()> {
        match x.read()? {
            Read::Data(bytes) => self.note(format!("content {}", bytes.len())),
            Read::NotReady => self.note("nothing"),
            Read::End => self.note("end"),
        }
        Ok(())
    }

    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        self.note("outer timeout");
        (self.on_timeout)(x)
    }

    fn on_error(&mut self, _: &mut Exchange, reason: EndReason) -> Result<()> {
        self.note(format!("outer error {reason}"));
        Ok(())
    }

    fn on_complete(&mut self, _: &mut Exchange, reason: EndReason) {
        self.note(format!("outer complete {reason}"));
    }
}

fn start<O: Outcome>(
    world: &World,
    log: &Log,
    begin: Begin,
    on_timeout: fn(&mut Exchange) -> Result<()>,
    handler: impl Fn(&mut Exchange) -> O + 'static,
) -> Key {
    let log = log.clone();
    world.start(Begin { coordinated: true, ..begin }, move |x, callback| match callback {
        Callback::DoRequest => CoordinatorSlot::begin(Box::new(Watcher { log: log.clone(), on_timeout }), x),
        Callback::DoResponse => x.guardian().unwrap().do_response(x),
        _ => handler(x).into_result(),
    })
}

fn timeout(world: &World) {
    world.advance(10);
    world.turn();
}

#[test]
fn rule_l12_a_coordinator_may_serve_from_its_timeout() {
    let (world, log) = (World::new(), Log::default());
    let key = start(&world, &log, Begin::default(), Exchange::service, |x| write!(x, "served"));
    assert_eq!(world.body(key), "");
    timeout(&world);
    assert_eq!((world.body(key).as_str(), world.wire(key).status), ("served", 200));
    assert_eq!(*log.borrow(), ["outer timeout", "do_response", "outer complete completed"]);
    assert_eq!(world.ended(EndReason::Completed), 1);
    world.assert_at_rest("served from the timeout");
}

#[test]
fn rule_l12_an_extended_timeout_leaves_the_decision_open() {
    let (world, log) = (World::new(), Log::default());
    let extend = |x: &mut Exchange| {
        match x.now() {
            now if now < Duration::from_millis(15) => x.extend(Duration::from_millis(10)),
            _ => x.service()?,
        }
        Ok(())
    };
    let key = start(&world, &log, Begin::default(), extend, |x| write!(x, "late"));
    timeout(&world);
    assert!(!world.wire(key).finished, "it still decides");
    timeout(&world);
    assert_eq!(world.body(key), "late");
    world.assert_at_rest("served after an extension");
}

#[test]
fn rule_l12_a_handler_that_waits_for_its_body_goes_on_after_an_extension() {
    let world = World::new();
    let begin = Begin { coordinated: true, has_body: true, ..Begin::default() };
    let key = world.start(begin, |x, callback| match callback {
        Callback::DoRequest => {
            x.set_timeout(Duration::from_millis(10));
            x.on_timeout(|x: &mut Exchange| x.extend(Duration::from_millis(10)));
            x.buffer_body(100);
            x.service()
        }
        Callback::DoResponse => x.complete(),
        _ => {
            let body = x.take_body();
            x.write(body)
        }
    });
    timeout(&world);
    world.event(key, |e| e.input(key, "hello".into()).unwrap());
    world.event(key, |e| e.input_ended(key));
    assert_eq!(world.body(key), "hello");
    world.assert_at_rest("extended while the body was awaited");
}

#[test]
fn the_handlers_listeners_come_first_and_are_not_replaced() {
    let (world, log) = (World::new(), Log::default());
    let own = log.clone();
    let key = start(&world, &log, Begin::default(), Exchange::service, move |x: &mut Exchange| {
        let (timeout, complete) = (own.clone(), own.clone());
        x.start_async();
        x.set_timeout(Duration::from_millis(10));
        x.on_timeout(move |x: &mut Exchange| {
            timeout.borrow_mut().push("own timeout".into());
            x.complete()
        });
        x.on_complete(move |_, _| complete.borrow_mut().push("own complete".into()));
    });
    timeout(&world);
    timeout(&world);
    assert!(world.wire(key).finished);
    let heard = ["outer timeout", "own timeout", "own complete", "outer complete timed out"];
    assert_eq!(log.borrow().len(), heard.len(), "{:?}", log.borrow());
    assert_eq!(log.borrow()[..3], heard[..3]);
    world.assert_at_rest("both listeners");
}

#[test]
fn rule_l10_a_panic_in_the_handlers_listener_keeps_nothing_from_the_coordinator() {
    let (world, log) = (World::new(), Log::default());
    let key = start(&world, &log, Begin::default(), Exchange::service, |x: &mut Exchange| {
        x.on_error(|_, _| -> () { panic!("expected by the test") });
        x.on_complete(|_, _| -> () { panic!("expected by the test") });
        x.start_async();
    });
    timeout(&world);
    world.event(key, |e| e.peer_reset(key));
    let heard = log.borrow();
    assert!(heard[1].starts_with("outer error") && heard[2].starts_with("outer complete"), "{heard:?}");
    assert_eq!((heard.len(), world.counters().panics), (3, 2));
    world.assert_at_rest("panics in front of a coordinator");
}

#[test]
fn a_coordinator_hears_of_content_while_it_decides() {
    let (world, log) = (World::new(), Log::default());
    let begin = Begin { has_body: true, ..Begin::default() };
    let key = start(&world, &log, begin, Exchange::service, |x| write!(x, "done"));
    world.event(key, |e| e.input(key, "hello".into()).unwrap());
    world.event(key, |e| e.input_ended(key));
    timeout(&world);
    assert_eq!(log.borrow()[..2], ["content 5", "end"]);
    assert_eq!(world.body(key), "done");
    world.assert_at_rest("content for a coordinator");
}
