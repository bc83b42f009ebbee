//! The throttle over the paper container (L-25).

use super::*;
use crate::{
    error::Error,
    exchange::{AsyncContext, table::owned_head},
    routing::{Coordinator, CoordinatorSlot, Throttle, ThrottleCounters},
};
use proptest::prelude::*;

/// What a handler under the throttle does.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Answer,
    Park,
    Fail,
    Panic,
    TimeOut,
}

fn coordinated(expects_continue: bool) -> Begin {
    Begin { coordinated: true, expects_continue, has_body: expects_continue, ..Begin::default() }
}

/// A request as the router runs it.
fn arrive(world: &World, throttle: &Throttle, work: Work) -> Key {
    arrive_with(world, throttle, coordinated(false), work)
}

fn arrive_with(world: &World, throttle: &Throttle, begin: Begin, work: Work) -> Key {
    let make = throttle.coordinator();
    world.start(begin, move |x, callback| match callback {
        Callback::DoRequest => CoordinatorSlot::begin(Box::new(make()), x),
        Callback::DoResponse => x.guardian().unwrap().do_response(x),
        Callback::Handler(DispatchType::Error) => write!(x, "error"),
        _ => handle(x, work),
    })
}

fn handle(x: &mut Exchange, work: Work) -> Result<()> {
    match work {
        Work::Answer => write!(x, "answer"),
        Work::Park => {
            x.start_async();
            Ok(())
        }
        Work::Fail => Err(Error::handler("expected by the test")),
        Work::Panic => panic!("expected by the test"),
        Work::TimeOut => {
            x.start_async();
            x.set_timeout(Duration::from_millis(5));
            Ok(())
        }
    }
}

fn gone(world: &World, key: Key) {
    world.event(key, |exchanges| exchanges.peer_finished(key));
}

fn finish(world: &World, key: Key) {
    context(world, key).dispatch(Exchange::complete).unwrap();
    world.drive(key);
}

/// A context of a parked exchange.
fn context(world: &World, key: Key) -> AsyncContext {
    let core = world.exchanges.core(key).unwrap();
    AsyncContext::new(core.context(&owned_head(&core)), None)
}

fn is_inside(world: &World, key: Key) -> bool {
    world.exchanges.state(key).is_some_and(|state| state.started_async)
}

/// The equation and the bounds of the counters.
fn check(counters: ThrottleCounters, limit: usize, queue_max: usize) {
    let c = counters;
    let accounted = c.admitted + c.rejected_full + c.rejected_expired + c.left + c.cut + c.queued as u64;
    assert_eq!(c.arrived, accounted, "{c:?}");
    assert!(c.active <= limit && c.queued <= queue_max && c.high_water <= queue_max, "{c:?}");
    assert!(c.queued == 0 || c.active == limit, "nobody waits while a permit is free: {c:?}");
}

fn assert_empty(world: &World, throttle: &Throttle, what: &str) {
    let c = throttle.counters();
    assert_eq!((c.active, c.queued), (0, 0), "{what}: {c:?}");
    world.assert_at_rest(what);
}

#[test]
fn l_25_at_most_so_many_and_the_next_goes_in_when_one_comes_out() {
    let (world, throttle) = (World::new(), Throttle::new(2).queue(10));
    let keys: Vec<_> = (0..5).map(|_| arrive(&world, &throttle, Work::Park)).collect();
    let inside = |world: &World| keys.iter().map(|key| is_inside(world, *key)).collect::<Vec<_>>();
    assert_eq!(inside(&world), [true, true, false, false, false]);
    assert_eq!((throttle.counters().active, throttle.counters().queued), (2, 3));
    finish(&world, keys[1]);
    assert_eq!(inside(&world), [true, false, true, false, false], "first in, first out");
    for key in [keys[0], keys[2], keys[3], keys[4]] {
        finish(&world, key);
        check(throttle.counters(), 2, 10);
    }
    let c = throttle.counters();
    assert_eq!((c.admitted, c.waited, c.high_water), (5, 3, 3));
    assert_empty(&world, &throttle, "in and out");
}

#[test]
fn l_25_priority_goes_first_and_equals_keep_their_order() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let next = Rc::new(Cell::new(0));
    let priorities = [0, 5, 1, 5, -3];
    let asked = next.clone();
    let throttle = Throttle::new(1).queue(10).priority(move |x: &Exchange| {
        assert_eq!(x.request().target(), "/answer?x=1", "the head is there");
        priorities[asked.replace(asked.get() + 1)]
    });
    let world = World::new();
    let first = arrive(&world, &throttle, Work::Park);
    assert_eq!(next.get(), 0, "not asked when there is no need to wait");
    let keys = priorities.map(|_| arrive(&world, &throttle, Work::Park));
    let mut inside = first;
    for _ in priorities {
        finish(&world, inside);
        let at = keys.iter().position(|key| is_inside(&world, *key)).unwrap();
        order.borrow_mut().push(at);
        inside = keys[at];
    }
    finish(&world, inside);
    assert_eq!(*order.borrow(), [1, 3, 2, 0, 4]);
    assert_empty(&world, &throttle, "priority");
}

#[test]
fn fault_74_fault_75_a_full_queue_is_503_with_retry_after_and_counted() {
    let world = World::new();
    let throttle = Throttle::new(1).queue(2).retry_after(Duration::from_millis(1_500));
    let keys: Vec<_> = (0..10_000).map(|_| arrive(&world, &throttle, Work::Park)).collect();
    let c = throttle.counters();
    assert_eq!((c.active, c.queued, c.high_water, c.rejected_full), (1, 2, 2, 9_997));
    let refused = world.wire(keys[3]);
    assert_eq!((refused.status, refused.finished), (503, true));
    assert_eq!(String::from_utf8(refused.body).unwrap(), "503 Service Unavailable\n");
    assert_eq!(retry_after(&throttle), Some("2".to_owned()));
    keys[..3].iter().for_each(|key| gone(&world, *key));
    check(throttle.counters(), 1, 2);
    assert_empty(&world, &throttle, "full");
}

/// The field of a refusal, read where it is set.
fn retry_after(throttle: &Throttle) -> Option<String> {
    let world = World::new();
    let seen = Rc::new(RefCell::new(None));
    let (see, make) = (seen.clone(), throttle.coordinator());
    world.start(coordinated(false), move |x, callback| match callback {
        Callback::DoRequest => {
            make().do_request(x)?;
            *see.borrow_mut() = x.response().header("Retry-After");
            Ok(())
        }
        _ => x.complete(),
    });
    let value = seen.borrow_mut().take();
    value.map(|value| String::from_utf8(value).unwrap())
}

/// The report: resuming an expired request threw, its permit never came back, 160 threads blocked.
#[test]
fn fault_72_a_queue_of_160_expires_and_every_permit_comes_back() {
    let world = World::new();
    let throttle = Throttle::new(4).queue(160).max_wait(Duration::from_millis(100));
    let inside: Vec<_> = (0..4).map(|_| arrive(&world, &throttle, Work::Park)).collect();
    let waiting: Vec<_> = (0..160).map(|_| arrive(&world, &throttle, Work::Park)).collect();
    assert_eq!(throttle.counters().queued, 160);
    world.advance(99);
    world.turn();
    assert_eq!(throttle.counters().queued, 160, "not yet");
    world.advance(1);
    world.turn();
    for key in &waiting {
        assert_eq!((world.wire(*key).status, world.wire(*key).finished), (503, true));
    }
    assert_eq!((throttle.counters().rejected_expired, throttle.counters().active), (160, 4));
    for key in inside {
        finish(&world, key);
    }
    assert_empty(&world, &throttle, "expired");
    // The permits are there for others.
    let later: Vec<_> = (0..4).map(|_| arrive(&world, &throttle, Work::Park)).collect();
    assert!(later.iter().all(|key| is_inside(&world, *key)));
    later.iter().for_each(|key| finish(&world, *key));
    assert_empty(&world, &throttle, "after the expiry");
}

/// In the turn in which 160 expire four permits come back: who expires first is refused, and no permit is lost on
/// somebody who has been refused.
#[test]
fn fault_72_permits_that_come_back_while_the_queue_expires() {
    for after in [0, 1, 80, 159] {
        let world = World::new();
        let throttle = Throttle::new(4).queue(160).max_wait(Duration::from_millis(100));
        let inside: Vec<_> = (0..4).map(|_| arrive(&world, &throttle, Work::Park)).collect();
        let waiting: Vec<_> = (0..160).map(|_| arrive(&world, &throttle, Work::Answer)).collect();
        world.advance(100);
        for key in &waiting[..after] {
            world.exchanges.timer_fired(*key);
        }
        // Timers have fired and nothing has been driven: permits meet requests whose expiry is decided.
        for key in &inside {
            context(&world, *key).dispatch(Exchange::complete).unwrap();
        }
        inside.iter().chain(&waiting).for_each(|key| world.drive(*key));
        world.turn();
        for key in &waiting {
            let wire = world.wire(*key);
            assert!(wire.finished && (wire.status == 200 || wire.status == 503), "{wire:?}");
        }
        check(throttle.counters(), 4, 160);
        assert_empty(&world, &throttle, "expiry against permits");
    }
}

#[test]
fn l_25_clients_that_leave_while_queued_are_removed_at_once() {
    let (world, throttle) = (World::new(), Throttle::new(1).queue(3));
    let keys: Vec<_> = (0..4).map(|_| arrive(&world, &throttle, Work::Park)).collect();
    gone(&world, keys[2]);
    let c = throttle.counters();
    assert_eq!((c.queued, c.left), (2, 1), "at once, not when its turn comes");
    let newcomer = arrive(&world, &throttle, Work::Park);
    assert_eq!(throttle.counters().queued, 3, "its place is free for another");
    world.event(keys[1], |exchanges| exchanges.shutdown_forced(keys[1], EndReason::Shutdown));
    assert_eq!((throttle.counters().queued, throttle.counters().cut), (2, 1));
    gone(&world, keys[0]);
    assert!(is_inside(&world, keys[3]), "the one inside has left too: the next goes in");
    for key in [keys[3], newcomer] {
        finish(&world, key);
    }
    assert_empty(&world, &throttle, "left");
}

#[test]
fn l_25_permits_come_back_on_every_path() {
    for work in [Work::Answer, Work::Fail, Work::Panic, Work::TimeOut, Work::Park] {
        let (world, throttle) = (World::new(), Throttle::new(1).queue(5));
        let blocker = arrive(&world, &throttle, Work::Park);
        let waited = arrive(&world, &throttle, work);
        gone(&world, blocker);
        let direct = if work == Work::Park || work == Work::TimeOut { None } else { Some(work) };
        let direct = direct.map(|work| arrive(&world, &throttle, work));
        world.advance(5);
        world.turn();
        if work == Work::Park {
            gone(&world, waited);
        }
        let expected = match work {
            Work::Answer => 200,
            Work::Park => 0,
            Work::Fail | Work::Panic => 500,
            Work::TimeOut => 503,
        };
        for key in [Some(waited), direct].into_iter().flatten() {
            assert_eq!(world.wire(key).status, expected, "{work:?}");
        }
        check(throttle.counters(), 1, 5);
        assert_empty(&world, &throttle, &format!("{work:?}"));
    }
}

#[test]
fn l_25_the_longest_wait_is_over_when_the_permit_is_there() {
    let world = World::new();
    let throttle = Throttle::new(1).queue(5).max_wait(Duration::from_millis(10));
    let blocker = arrive(&world, &throttle, Work::Park);
    let waited = arrive(&world, &throttle, Work::Park);
    world.advance(9);
    finish(&world, blocker);
    world.advance(1_000);
    world.turn();
    assert!(is_inside(&world, waited) && !world.wire(waited).finished, "the handler has no timeout");
    finish(&world, waited);
    assert_eq!(world.wire(waited).status, 200);
    assert_empty(&world, &throttle, "no timeout");
}

/// A shard that ends with exchanges in its slots calls no callbacks: the guards do it.
#[test]
fn l_25_permits_and_places_come_back_when_the_exchanges_are_dropped() {
    let (world, throttle) = (World::new(), Throttle::new(2).queue(100));
    for _ in 0..50 {
        arrive(&world, &throttle, Work::Park);
    }
    assert_eq!((throttle.counters().active, throttle.counters().queued), (2, 48));
    drop(world);
    let c = throttle.counters();
    assert_eq!((c.active, c.queued, c.cut), (0, 0, 48));
    check(c, 2, 100);
    // A place in the queue does not wait for a permit to be found empty.
    let (stays, goes) = (World::new(), World::new());
    let inside = [arrive(&stays, &throttle, Work::Park), arrive(&stays, &throttle, Work::Park)];
    arrive(&goes, &throttle, Work::Park);
    drop(goes);
    assert_eq!((throttle.counters().active, throttle.counters().queued), (2, 0));
    inside.iter().for_each(|key| finish(&stays, *key));
    assert_empty(&stays, &throttle, "the other stayed");
}

/// A handler's own hooks take nothing from the throttle.
#[test]
fn l_25_a_handler_with_hooks_of_its_own_gives_its_permit_back() {
    let (world, throttle) = (World::new(), Throttle::new(1).queue(5));
    let make = throttle.coordinator();
    let key = world.start(coordinated(false), move |x, callback| match callback {
        Callback::DoRequest => CoordinatorSlot::begin(Box::new(make()), x),
        _ => {
            x.start_async();
            x.on_timeout(|_: &mut Exchange| ());
            x.on_error(|_: &mut Exchange, _| ());
            x.on_complete(|_: &mut Exchange, _| ());
            Ok(())
        }
    });
    assert_eq!(throttle.counters().active, 1);
    gone(&world, key);
    assert_empty(&world, &throttle, "own hooks");
}

#[test]
fn l_25_a_slow_client_keeps_no_permit() {
    let (world, throttle) = (World::new(), Throttle::new(1).queue(5));
    world.set_blocked(true);
    let slow = arrive(&world, &throttle, Work::Answer);
    assert!(!world.wire(slow).finished);
    assert_eq!(throttle.counters().active, 0, "the handler has done its part");
    world.set_blocked(false);
    assert_empty(&world, &throttle, "slow");
}

#[test]
fn l_17_nothing_is_on_the_wire_while_a_request_with_expectation_waits() {
    let (world, throttle) = (World::new(), Throttle::new(1).queue(5).max_wait(Duration::from_secs(2)));
    let blocker = arrive(&world, &throttle, Work::Park);
    let admitted = arrive_with(&world, &throttle, coordinated(true), Work::Answer);
    let refused = arrive_with(&world, &throttle, coordinated(true), Work::Answer);
    assert_eq!((world.wire(admitted).continues, world.wire(admitted).heads), (0, 0));
    gone(&world, refused);
    finish(&world, blocker);
    assert_eq!((world.wire(admitted).continues, world.wire(admitted).status), (1, 200));
    assert_eq!((world.wire(refused).continues, world.wire(refused).heads), (0, 0));
    assert_empty(&world, &throttle, "continue");
}

#[test]
fn a_panicking_priority_takes_nothing() {
    let throttle = Throttle::new(1).queue(5).priority(|_: &Exchange| panic!("expected by the test"));
    let world = World::new();
    let blocker = arrive(&world, &throttle, Work::Park);
    let panicked = arrive(&world, &throttle, Work::Park);
    assert_eq!(world.wire(panicked).status, 500);
    assert_eq!(throttle.counters().queued, 0);
    gone(&world, blocker);
    assert_eq!((throttle.counters().active, throttle.counters().queued), (0, 0));
    world.assert_at_rest("panic");
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive(Work),
    Finish(usize),
    Gone(usize),
    Cut(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let work = prop_oneof![
        Just(Work::Answer),
        Just(Work::Park),
        Just(Work::Park),
        Just(Work::Park),
        Just(Work::Fail),
        Just(Work::Panic),
        Just(Work::TimeOut)
    ];
    prop_oneof![
        4 => work.prop_map(Step::Arrive),
        2 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Gone),
        1 => any::<usize>().prop_map(Step::Cut),
        1 => (1_u64..15).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Gauges are never negative (they are unsigned, and a decrement below zero panics), keep their bounds and their
    /// equation after every step, and return to zero. Failures print their input and are replayed from
    /// `proptest-regressions`.
    #[test]
    fn fault_77_gauges_never_negative_and_return_to_zero(
        limit in 1_usize..4,
        queue_max in 0_usize..6,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let throttle = Throttle::new(limit).queue(queue_max).max_wait(Duration::from_millis(10));
        let (world, mut keys) = (World::new(), Vec::new());
        for step in steps {
            let live = |at: usize| world.exchanges.keys().get(at % world.exchanges.len().max(1)).map(|(key, _)| *key);
            match step {
                Step::Arrive(work) => keys.push(arrive(&world, &throttle, work)),
                Step::Finish(at) => {
                    if let Some(key) = live(at).filter(|key| is_inside(&world, *key)) {
                        finish(&world, key);
                    }
                }
                Step::Gone(at) => live(at).into_iter().for_each(|key| gone(&world, key)),
                Step::Cut(at) => {
                    if let Some(key) = live(at) {
                        world.event(key, |exchanges| exchanges.shutdown_forced(key, EndReason::Shutdown));
                    }
                }
                Step::Pass(time) => {
                    world.advance(time);
                    world.turn();
                }
            }
            check(throttle.counters(), limit, queue_max);
            let inside = world.exchanges.keys().iter().filter(|(key, _)| is_inside(&world, *key)).count();
            prop_assert_eq!(throttle.counters().active, inside);
        }
        while let Some((key, _)) = world.exchanges.keys().first().copied() {
            gone(&world, key);
        }
        check(throttle.counters(), limit, queue_max);
        assert_empty(&world, &throttle, "the end");
    }
}
