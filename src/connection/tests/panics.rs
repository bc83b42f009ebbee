//! Panics where no callback's fence is: they cost their own connection, and nothing of the shard's tables.

use super::{PORT, World, options, plain};
use crate::{connection::AccessSink, error::Result, exchange::Exchange, limits::Limits};
use shards::testing::SimFaults;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the application's destructor");
    }
}

/// Answers, and leaves a hook that panics when it is thrown away.
pub(super) fn bomb(x: &mut Exchange) -> Result<()> {
    let bomb = Bomb;
    x.on_timeout(move |_: &mut Exchange| {
        let _held = &bomb;
    });
    plain(x)
}

/// Asks twice on one connection.
fn expect_two_answers(world: &World, path: &str) {
    let client = world.simulation.connect(PORT);
    for asked in 1..=2 {
        client.write(get(path).as_bytes());
        let answers = || String::from_utf8_lossy(&client.received()).matches("HTTP/1.1 200").count();
        assert!(world.simulation.run_until(Duration::from_secs(1), || answers() == asked), "answer {asked}");
    }
    client.finish();
    world.simulation.run_for(Duration::from_secs(5));
}

#[test]
fn a_panic_in_an_event_ends_its_connection_and_leaves_no_place_taken() {
    let world = World::new(1, Limits::DEFAULT, SimFaults::default());
    let client = world.simulation.connect(PORT);
    client.write(get("/park?00&60000").as_bytes());
    world.simulation.run_for(Duration::from_millis(10));
    world.simulation.on(0, |_| {
        let key = world.service.connection_keys()[0];
        let event = || world.service.with(key, |_, _| panic!("in the middle of an event"));
        catch_unwind(AssertUnwindSafe(event)).expect_err("the panic goes on");
    });
    assert!(world.simulation.run_until(Duration::from_secs(1), || client.is_closed()));
    expect_two_answers(&world, "/plain?11");
    world.expect_nothing_left("after a panic in an event");
}

/// L-14, for what the application leaves behind.
#[test]
fn a_panic_in_a_destructor_of_the_application_is_counted_and_nothing_else() {
    let world = World::new(1, Limits::DEFAULT, SimFaults::default());
    expect_two_answers(&world, "/bomb?11");
    assert_eq!(world.service.exchanges.counters().panics, 2);
    world.expect_nothing_left("after panics in destructors");
}

#[test]
fn a_panic_in_the_access_log_costs_no_answer() {
    let sink: AccessSink = Arc::new(|_| panic!("the application's log"));
    let options = super::ServiceOptions { access_log: Some(sink), ..options(Limits::DEFAULT) };
    let world = World::with(1, options, SimFaults::default());
    expect_two_answers(&world, "/plain?11");
    world.expect_nothing_left("after panics in the log");
}
