//! Tests of the wheel: edges by hand, everything else against an ordered map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn expire_all<T>(wheel: &mut Wheel<T>, now_ms: u64) -> Vec<T> {
    std::iter::from_fn(|| wheel.expire(now_ms)).collect()
}

#[test]
fn a_timer_is_small() {
    assert!(size_of::<Node<u64>>() <= 48, "a timer takes {} bytes", size_of::<Node<u64>>());
    assert!(size_of::<List>() * LISTS <= 2080);
}

#[test]
fn no_timer_fires_early_or_late_at_any_edge_of_a_slot() {
    let spans =
        [1, 62, 63, 64, 65, 127, 128, 4095, 4096, 4097, 262_143, 262_144, 16_777_215, 16_777_216, 40_000_000];
    for start in [0, 1, 62, 63, 64, 4095, 262_143, 16_777_215, 16_777_216] {
        for span in spans {
            let mut wheel = Wheel::new(start);
            wheel.insert(start + span, span);
            assert_eq!(wheel.expire(start + span - 1), None, "{span} ms from {start} fired early");
            assert_eq!(wheel.expire(start + span), Some(span), "{span} ms from {start} did not fire");
            assert!(wheel.is_empty());
        }
    }
}

#[test]
fn sleeping_as_told_reaches_every_deadline_in_few_steps() {
    for span in [1, 63, 64, 5000, 300_000, 16_777_300, 100_000_000] {
        let mut wheel = Wheel::new(37);
        wheel.insert(37 + span, ());
        let mut sleeps = 0;
        let mut now = 37;
        while wheel.expire(now).is_none() {
            let next = wheel.next_deadline_ms().expect("a timer waits");
            assert!(next > now, "a sleep makes no progress at {now}");
            now = next;
            sleeps += 1;
        }
        assert_eq!(now, 37 + span);
        assert!(sleeps <= 5 + span / 16_777_216, "{sleeps} sleeps for {span} ms");
    }
}

#[test]
fn a_long_jump_brings_out_everything_in_order() {
    let mut wheel = Wheel::new(0);
    for deadline in (0..20_000u64).rev() {
        wheel.insert(deadline * 7, deadline);
    }
    assert_eq!(expire_all(&mut wheel, u64::MAX / 2), (0..20_000).collect::<Vec<_>>());
    assert_eq!(wheel.next_deadline_ms(), None);
}

#[test]
fn equal_deadlines_fire_in_the_order_of_insertion_from_whatever_distance() {
    let mut wheel = Wheel::new(0);
    let deadline = 16_777_216 + 262_144 + 4096 + 70;
    let mut expected = Vec::new();
    for (order, distance) in [17_000_000, 300_000, 5000, 70, 64, 63, 6, 1, 0].into_iter().enumerate() {
        assert_eq!(wheel.expire(deadline - distance.max(1)), None);
        wheel.insert(deadline, order);
        expected.push(order);
    }
    assert_eq!(expire_all(&mut wheel, deadline), expected);
}

#[test]
fn a_deadline_in_the_past_fires_next_and_time_never_goes_back() {
    let mut wheel = Wheel::new(1000);
    wheel.insert(3, "past");
    assert_eq!(wheel.next_deadline_ms(), Some(1000));
    assert_eq!(wheel.expire(0), Some("past"));
    assert_eq!(wheel.expire(2000), None);
    assert_eq!(wheel.expire(1500), None);
    wheel.insert(1999, "also past");
    assert_eq!(wheel.expire(1500), Some("also past"));
}

#[test]
fn a_stale_key_reaches_nobody() {
    let mut wheel = Wheel::new(0);
    let fired = wheel.insert(1, 'a');
    assert_eq!(wheel.expire(1), Some('a'));
    let next = wheel.insert(2, 'b');
    assert_eq!(next.slot, fired.slot, "the node is reused");
    assert_eq!(wheel.remove(fired), None);
    assert!(!wheel.reset(fired, 9));
    assert_eq!(wheel.remove(Key::NONE), None);
    assert_eq!(wheel.remove(next), Some('b'));
    assert_eq!(wheel.next_deadline_ms(), None);
}

#[test]
fn a_timer_removed_during_expiry_does_not_fire() {
    let mut wheel = Wheel::new(0);
    wheel.insert(5, 'a');
    let removed = wheel.insert(5, 'b');
    let moved = wheel.insert(5, 'c');
    wheel.insert(6, 'd');
    assert_eq!(wheel.expire(100), Some('a'));
    assert_eq!(wheel.remove(removed), Some('b'));
    assert!(wheel.reset(moved, 101));
    assert_eq!(expire_all(&mut wheel, 100), ['d']);
    assert_eq!(expire_all(&mut wheel, 101), ['c']);
}

/// What an ordered map knows: (effective deadline, order of insertion) → key of the wheel.
#[derive(Default)]
struct Model {
    now_ms: u64,
    order: u64,
    timers: BTreeMap<(u64, u64), Key>,
}

impl Model {
    fn insert(&mut self, deadline_ms: u64, key: Key) -> u64 {
        self.order += 1;
        self.timers.insert((deadline_ms.max(self.now_ms), self.order), key);
        self.order
    }

    fn take(&mut self, key: Key) -> Option<u64> {
        let found = self.timers.iter().find(|(_, its)| **its == key).map(|(place, _)| *place)?;
        self.timers.remove(&found);
        Some(found.1)
    }

    fn expire(&mut self, now_ms: u64) -> Option<u64> {
        let now_ms = now_ms.max(self.now_ms);
        match self.timers.first_entry() {
            Some(first) if first.key().0 <= now_ms => {
                let (deadline_ms, order) = *first.key();
                first.remove();
                self.now_ms = deadline_ms;
                Some(order)
            }
            _ => {
                self.now_ms = now_ms;
                None
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert { ahead_ms: i64 },
    Remove { which: prop::sample::Index },
    Reset { which: prop::sample::Index, ahead_ms: i64 },
    Expire { ahead_ms: i64, at_most: usize },
    Sleep,
}

fn ahead() -> impl Strategy<Value = i64> {
    prop_oneof![-100..200i64, Just(63), Just(64), 0..10_000i64, 0..1_000_000i64, 0..70_000_000i64,]
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        4 => ahead().prop_map(|ahead_ms| Step::Insert { ahead_ms }),
        1 => which().prop_map(|which| Step::Remove { which }),
        1 => (which(), ahead()).prop_map(|(which, ahead_ms)| Step::Reset { which, ahead_ms }),
        2 => (ahead(), 0..6usize).prop_map(|(ahead_ms, at_most)| Step::Expire { ahead_ms, at_most }),
        2 => Just(Step::Sleep),
    ]
}

/// The wheel and the model, driven together.
struct Pair {
    wheel: Wheel<u64>,
    model: Model,
    keys: Vec<Key>,
}

impl Pair {
    fn new(start_ms: u64) -> Self {
        let model = Model { now_ms: start_ms, ..Model::default() };
        Pair { wheel: Wheel::new(start_ms), model, keys: Vec::new() }
    }

    fn at(&self, ahead_ms: i64) -> u64 {
        self.model.now_ms.saturating_add_signed(ahead_ms)
    }

    fn expire(&mut self, now_ms: u64, at_most: usize) {
        for _ in 0..at_most {
            let expected = self.model.expire(now_ms);
            assert_eq!(self.wheel.expire(now_ms), expected);
            if expected.is_none() {
                break;
            }
        }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Insert { ahead_ms } => {
                let deadline = self.at(*ahead_ms);
                let key = self.wheel.insert(deadline, self.model.order + 1);
                self.model.insert(deadline, key);
                self.keys.push(key);
            }
            Step::Remove { which } if !self.keys.is_empty() => {
                let key = *which.get(&self.keys);
                assert_eq!(self.wheel.remove(key), self.model.take(key));
            }
            Step::Reset { which, ahead_ms } if !self.keys.is_empty() => {
                let (key, deadline) = (*which.get(&self.keys), self.at(*ahead_ms));
                // A reset timer keeps its value, so it goes out and comes in again to be told apart from then on.
                let expected = self.model.take(key).is_some();
                assert_eq!(self.wheel.reset(key, deadline), expected);
                if expected {
                    let order = self.model.insert(deadline, key);
                    self.wheel.nodes[key.slot as usize].value = Some(order);
                }
            }
            Step::Expire { ahead_ms, at_most } => self.expire(self.at(*ahead_ms), *at_most),
            Step::Sleep => {
                let first = self.model.timers.first_key_value().map(|((deadline, _), _)| *deadline);
                let wake = self.wheel.next_deadline_ms();
                assert_eq!(wake.is_some(), first.is_some());
                if let (Some(wake), Some(first)) = (wake, first) {
                    assert!(wake <= first, "told to sleep until {wake}, past the deadline {first}");
                    self.expire(wake, 3);
                }
            }
            _ => {}
        }
        assert_eq!(self.wheel.len(), self.model.timers.len());
    }
}

proptest! {
    #[test]
    fn the_wheel_does_what_an_ordered_map_does(
        start_ms in prop_oneof![Just(0u64), Just(63), Just(16_777_215), 0..1u64 << 40],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(start_ms);
        for step in &steps {
            pair.apply(step);
        }
        pair.expire(u64::MAX / 2, usize::MAX);
        prop_assert!(pair.wheel.is_empty());
    }
}
