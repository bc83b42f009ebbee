//! The alarm of a shard: one deadline that is not rounded to milliseconds, in simulated and in real time.

use shards::{DriverChoice, Shard, Shards, TimerEvents, testing::Simulation};
use std::{cell::RefCell, rc::Rc, time::Duration};

#[derive(Default)]
struct Seen(RefCell<Vec<(u64, Duration)>>);

impl TimerEvents for Seen {
    fn on_timer(&self, shard: &Shard, token: u64) {
        self.0.borrow_mut().push((token, shard.read_clock()));
    }
}

#[test]
fn goes_off_at_its_time_to_the_microsecond_and_once() {
    let world = Simulation::new(1);
    let seen = Rc::new(Seen::default());
    let at = Duration::from_micros;
    world.on(0, |shard| {
        shard.set_alarm(at(9_999), seen.clone(), 1);
        shard.set_alarm(at(1_250), seen.clone(), 2);
        shard.set_timer(at(1_250), seen.clone(), 3);
    });
    world.run_for(Duration::from_millis(20));
    // The second took the place of the first; the timer beside it is rounded up.
    assert_eq!(*seen.0.borrow(), [(2, at(1_250)), (3, at(2_000))]);
}

#[test]
fn is_taken_back() {
    let world = Simulation::new(1);
    let seen = Rc::new(Seen::default());
    world.on(0, |shard| {
        shard.set_alarm(Duration::from_millis(1), seen.clone(), 1);
        shard.clear_alarm();
    });
    world.run_for(Duration::from_millis(5));
    assert!(seen.0.borrow().is_empty());
}

/// Real time, on each driver that works here: never early, and well before the next millisecond would be if the
/// machine is not overloaded, which a test cannot ask for.
#[test]
fn is_never_early_on_a_real_clock() {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let shards = Shards::builder().shards(1).cores(Vec::new()).driver(choice).start(|shard| async move {
            let seen = Rc::new(Seen::default());
            let at = shard.read_clock() + Duration::from_micros(3_300);
            shard.set_alarm(at, seen.clone(), 7);
            while seen.0.borrow().is_empty() {
                shards::time::sleep(Duration::from_millis(1)).await;
            }
            let fired = seen.0.borrow()[0].1;
            fired >= at
        });
        let ends = shards.expect("shards start").join();
        assert!(matches!(ends[0].result, Ok(true)), "{choice:?}");
    }
}
