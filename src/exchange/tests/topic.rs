//! Topics over paper shards: several worlds on one thread are several shards.

use super::*;
use crate::{
    error::Error,
    exchange::{PublishError, Published, Subscription, Topic},
};

type Seen = Rc<RefCell<Vec<(u64, String)>>>;

/// A long poll: answers with the ids that are new.
fn poll(world: &World, topic: &Topic<String>, after: u64) -> Key {
    let topic = topic.clone();
    world.get(move |x| {
        x.start_async();
        topic.subscribe(x, after, |x, delivery| {
            for item in &delivery.items {
                write!(x, "{}={};", item.id, item.value)?;
            }
            write!(x, "missed={}", delivery.missed)?;
            x.complete()
        })?;
        Ok::<(), Error>(())
    })
}

/// A stream: notes what comes and stays.
fn listen(world: &World, topic: &Topic<String>, seen: &Seen) -> Key {
    let (topic, seen) = (topic.clone(), seen.clone());
    world.get(move |x| {
        x.start_async();
        let seen = seen.clone();
        topic.subscribe(x, topic.newest(), move |_, delivery| {
            let items = delivery.items.iter().map(|item| (item.id, item.value.to_string()));
            seen.borrow_mut().extend(items);
        })?;
        Ok::<(), Error>(())
    })
}

fn never() -> bool {
    false
}

fn parcels(world: &World) -> usize {
    world.mailbox.parcels.lock().unwrap().len()
}

fn publish(topic: &Topic<String>, value: &str) -> Published {
    topic.publish(value.to_owned()).unwrap()
}

#[test]
fn a_value_wakes_all_who_wait_with_one_message_a_shard() {
    let (first, second, bystander) = (World::new(), World::new(), World::new());
    let topic = Topic::new(8);
    let keys: Vec<_> = [&first, &first, &first, &second].map(|world| (world, poll(world, &topic, 0))).into();
    assert_eq!(topic.shards(), 2);
    let other = topic.clone();
    let published = thread::spawn(move || publish(&other, "a")).join().unwrap();
    assert_eq!(published, Published { id: 1, shards: 2 });
    assert_eq!((parcels(&first), parcels(&second), parcels(&bystander)), (1, 1, 0));
    first.turn();
    second.turn();
    for (world, key) in keys {
        assert_eq!(world.body(key), "1=a;missed=0");
    }
    assert_eq!(topic.shards(), 0, "nobody waits any more");
    first.assert_at_rest("first");
    second.assert_at_rest("second");
    assert_eq!(publish(&topic, "b"), Published { id: 2, shards: 0 });
}

#[test]
fn values_before_the_message_is_opened_need_no_second_one() {
    let world = World::new();
    let topic = Topic::new(8);
    let seen = Seen::default();
    let key = listen(&world, &topic, &seen);
    for value in ["a", "b", "c"] {
        assert_eq!(publish(&topic, value).shards, 1);
    }
    let late = poll(&world, &topic, 1);
    publish(&topic, "d");
    assert_eq!(parcels(&world), 1);
    world.turn();
    assert_eq!(
        *seen.borrow(),
        ["a", "b", "c", "d"]
            .map(str::to_owned)
            .into_iter()
            .enumerate()
            .map(|(n, v)| (n as u64 + 1, v))
            .collect::<Vec<_>>()
    );
    assert_eq!(world.body(late), "2=b;3=c;missed=0");
    publish(&topic, "e");
    assert_eq!(parcels(&world), 1);
    world.turn();
    assert_eq!(seen.borrow().last(), Some(&(5, "e".to_owned())));
    world.event(key, |exchanges| exchanges.peer_finished(key));
    world.assert_at_rest("stream");
}

#[test]
fn a_long_poll_misses_nothing_that_is_retained_and_is_told_of_what_is_not() {
    let world = World::new();
    let topic = Topic::new(2);
    for value in ["a", "b", "c", "d"] {
        publish(&topic, value);
    }
    assert_eq!(world.body(poll(&world, &topic, 3)), "4=d;missed=0");
    assert_eq!(world.body(poll(&world, &topic, 2)), "3=c;4=d;missed=0");
    assert_eq!(world.body(poll(&world, &topic, 0)), "3=c;4=d;missed=2");
    // An id of a time before this process waits for the next value, not for ever.
    let waits = poll(&world, &topic, 1_000);
    assert!(!world.wire(waits).finished);
    publish(&topic, "e");
    world.turn();
    assert_eq!(world.body(waits), "5=e;missed=0");
    assert_eq!((topic.since(3).items.len(), topic.since(3).missed, topic.newest()), (2, 0, 5));
    world.assert_at_rest("long poll");
}

#[test]
fn l_16_a_subscription_ends_with_its_exchange_however_it_ends() {
    let world = World::new();
    let topic = Topic::new(4);
    let gone = poll(&world, &topic, 0);
    world.event(gone, |exchanges| exchanges.peer_reset(gone));
    assert_eq!(topic.shards(), 0, "the client has left");
    let topic_in = topic.clone();
    world.get(move |x| {
        x.start_async();
        x.set_timeout(Duration::from_millis(10));
        topic_in.subscribe(x, 0, |_, _| ()).unwrap();
    });
    assert_eq!(topic.shards(), 1);
    world.advance(10);
    world.turn();
    assert_eq!(topic.shards(), 0, "timed out");
    // Told, and gone before the message is opened: nothing runs, nothing stays.
    let told = poll(&world, &topic, 0);
    assert_eq!(publish(&topic, "a").shards, 1);
    world.event(told, |exchanges| exchanges.peer_finished(told));
    assert_eq!(topic.shards(), 1, "the place of the message that is on its way");
    world.turn();
    assert_eq!(topic.shards(), 0);
    assert!(world.body(told).is_empty());
    // A panic in the delivery.
    let topic_in = topic.clone();
    world.get(move |x| {
        x.start_async();
        topic_in.subscribe(x, 0, |_, _| assert!(never(), "expected by the test")).unwrap();
    });
    assert_eq!((world.ended(EndReason::Panicked), topic.shards()), (1, 0));
    world.assert_at_rest("every end");
}

#[test]
fn a_subscription_can_be_cancelled_also_by_its_own_delivery() {
    let world = World::new();
    let topic = Topic::new(4);
    let count = Rc::new(Cell::new(0));
    let (topic_in, counted) = (topic.clone(), count.clone());
    let name: Rc<Cell<Option<Subscription>>> = Rc::default();
    let key = world.get(move |x| {
        x.start_async();
        let (counted, own) = (counted.clone(), name.clone());
        let subscription = topic_in
            .subscribe(x, 0, move |x, _| {
                counted.set(counted.get() + 1);
                assert!(own.get().unwrap().cancel(x));
                assert!(!own.get().unwrap().cancel(x), "once");
            })
            .unwrap();
        name.set(Some(subscription));
        let second = topic_in.subscribe(x, 0, |_, _| assert!(never(), "cancelled at once")).unwrap();
        assert!(second.cancel(x));
    });
    publish(&topic, "a");
    world.turn();
    assert_eq!(topic.shards(), 0);
    publish(&topic, "b");
    world.turn();
    assert_eq!(count.get(), 1);
    world.event(key, |exchanges| exchanges.peer_reset(key));
    world.assert_at_rest("cancelled");
}

#[test]
fn l_4_a_full_and_a_stopping_shard_are_typed_errors() {
    let (full, stopping, open) = (World::new(), World::new(), World::new());
    let topic = Topic::new(4);
    let keys = [&full, &stopping, &open].map(|world| poll(world, &topic, 0));
    *full.mailbox.refuse.lock().unwrap() = Some(Refusal::Full);
    *stopping.mailbox.refuse.lock().unwrap() = Some(Refusal::Stopping);
    let error = topic.publish("a".to_owned()).unwrap_err();
    assert_eq!(error, PublishError { published: Published { id: 1, shards: 1 }, full: 1, stopping: 1 });
    assert!(error.to_string().contains("value 1"));
    assert_eq!(topic.shards(), 2, "a stopping shard is not asked again");
    *full.mailbox.refuse.lock().unwrap() = None;
    assert_eq!(publish(&topic, "b"), Published { id: 2, shards: 2 });
    assert_eq!((parcels(&full), parcels(&open)), (1, 1));
    full.turn();
    open.turn();
    assert_eq!(full.body(keys[0]), "1=a;2=b;missed=0", "the refused value was not lost");
    assert_eq!(open.body(keys[2]), "1=a;2=b;missed=0");
    stopping.event(keys[1], |exchanges| exchanges.shutdown_forced(keys[1], EndReason::Shutdown));
    for world in [full, stopping, open] {
        world.assert_at_rest("refusals");
    }
}

#[test]
fn a_message_lost_with_its_inbox_is_sent_again() {
    let world = World::new();
    let topic = Topic::new(4);
    let key = poll(&world, &topic, 0);
    publish(&topic, "a");
    world.mailbox.parcels.lock().unwrap().clear();
    publish(&topic, "b");
    world.turn();
    assert_eq!(world.body(key), "1=a;2=b;missed=0");
    world.assert_at_rest("lost");
}

/// Subscribing and leaving leaves nothing behind: neither with the topic, nor with the shard, nor in the inbox.
#[test]
fn subscribe_and_leave_is_flat() {
    subscribe_and_leave(50_000);
}

#[test]
#[ignore = "takes seconds: run it by hand with --ignored"]
fn subscribe_and_leave_is_flat_a_million_times() {
    subscribe_and_leave(1_000_000);
}

fn subscribe_and_leave(times: u32) {
    let (world, topic) = (World::new(), Topic::new(4));
    let topic_in = topic.clone();
    // One exchange that comes and goes, a value in every thousandth of the times.
    let key = world.get(move |x| {
        x.start_async();
        let topic: &Topic<String> = &topic_in;
        for round in 0..times {
            let subscription = topic.subscribe(x, topic.newest(), |_, _| ()).unwrap();
            if round % 1_000 == 0 {
                topic.publish(String::new()).unwrap();
            }
            assert!(subscription.cancel(x));
        }
    });
    assert_eq!((parcels(&world), topic.shards()), (1, 1), "one message for all values");
    world.turn();
    assert_eq!(topic.shards(), 0);
    world.event(key, |exchanges| exchanges.peer_reset(key));
    // And exchanges that do.
    for _ in 0..1_000 {
        let key = poll(&world, &topic, topic.newest());
        world.event(key, |exchanges| exchanges.peer_reset(key));
    }
    assert_eq!(topic.shards(), 0);
    world.assert_at_rest("flat");
}

/// Publishers on other threads against subscribers that come and go: every stream sees every value once, in order.
#[test]
fn streams_see_every_value_once_in_order_under_publishing_threads() {
    const VALUES: u64 = 2_000;
    let world = World::new();
    let topic = Topic::new(4 * VALUES as usize);
    let seen = Seen::default();
    let key = listen(&world, &topic, &seen);
    let publishers: Vec<_> = (0..4)
        .map(|n| {
            let topic = topic.clone();
            thread::spawn(move || {
                for _ in 0..VALUES {
                    assert!(publish(&topic, &n.to_string()).shards <= 1);
                }
            })
        })
        .collect();
    while seen.borrow().len() < 4 * VALUES as usize {
        assert!(parcels(&world) <= 1, "one message on its way");
        world.turn();
        let visitor = poll(&world, &topic, topic.newest());
        world.event(visitor, |exchanges| exchanges.peer_reset(visitor));
        thread::yield_now();
    }
    publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    assert!(seen.borrow().iter().map(|(id, _)| *id).eq(1..=4 * VALUES));
    world.event(key, |exchanges| exchanges.peer_reset(key));
    world.turn();
    assert_eq!(topic.shards(), 0);
    world.assert_at_rest("publishers");
}

#[test]
fn a_topic_has_so_many_subscribers_on_a_shard_and_refuses_the_next_with_503() {
    let (world, other) = (World::new(), World::new());
    let topic = Topic::with_subscribers_max(4, 2);
    let first = poll(&world, &topic, 0);
    poll(&world, &topic, 0);
    let refused = poll(&world, &topic, 0);
    assert_eq!((world.wire(refused).status, world.ended(EndReason::Overload)), (503, 1));
    assert_eq!(world.counters().subscriptions_refused, 1);
    poll(&other, &topic, 0);
    assert_eq!((topic.shards(), other.counters().subscriptions_refused), (2, 0), "each shard has its own");
    world.event(first, |e| e.peer_reset(first));
    let next = poll(&world, &topic, 0);
    publish(&topic, "a");
    world.turn();
    other.turn();
    assert_eq!(world.body(next), "1=a;missed=0", "who left made room");
    world.assert_at_rest("bounded topic");
    other.assert_at_rest("bounded topic");
}
