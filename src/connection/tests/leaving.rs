//! Clients that leave while their request waits: noticed within a turn, whatever is buffered behind it (L-15).

use super::{PORT, World, marked};
use crate::{error::EndReason, limits::Limits};
use shards::testing::{SimClient, SimFaults};
use std::time::Duration;

/// Longer than a segment is under way in the simulation, and far shorter than anything waits.
const ON_ITS_WAY: Duration = Duration::from_millis(1);

/// A request that waits for a minute, and what has been sent behind it.
fn parked(world: &World, path: &str, behind: &str) -> SimClient {
    let client = world.simulation.connect(PORT);
    client.write(format!("GET {path}?11&60000 HTTP/1.1\r\nHost: a\r\n\r\n{behind}").as_bytes());
    let waits = || world.service.exchanges.counters().async_active == 1;
    assert!(world.simulation.run_until(Duration::from_secs(1), waits), "it waits");
    // What comes behind is there as well.
    world.simulation.run_for(ON_ITS_WAY);
    client
}

fn ended(world: &World, reason: EndReason) -> u64 {
    world.service.exchanges.counters().ended(reason)
}

#[test]
fn l_15_a_client_that_leaves_is_noticed_within_a_turn() {
    let whole = "GET /plain?22 HTTP/1.1\r\nHost: a\r\n\r\n";
    for behind in ["", "GET /pl", whole, &whole.repeat(10)] {
        for (reason, leave) in [
            (EndReason::ClientClosed, SimClient::finish as fn(&SimClient)),
            (EndReason::ClientReset, SimClient::reset),
        ] {
            let world = World::new(1, Limits::DEFAULT, SimFaults::default());
            let client = parked(&world, "/park", behind);
            leave(&client);
            let noticed = || ended(&world, reason) > 0 && world.service.exchanges.counters().live == 0;
            assert!(
                world.simulation.run_until(ON_ITS_WAY, noticed),
                "{reason} with {behind:?} behind: {:?}",
                world.service.exchanges.counters()
            );
            world.simulation.run_for(ON_ITS_WAY);
            world.expect_nothing_left(&format!("{reason} with {behind:?} behind"));
        }
    }
}

#[test]
fn l_15_a_half_close_is_borne_where_the_route_says_so() {
    let world = World::new(1, Limits::DEFAULT, SimFaults::default());
    let client = parked(&world, "/stay", "");
    client.finish();
    world.simulation.run_for(ON_ITS_WAY);
    assert_eq!(world.service.exchanges.counters().async_active, 1, "it still waits");
    assert!(world.simulation.run_until(Duration::from_secs(61), || client.is_closed()));
    let answer = client.received();
    assert!(answer.ends_with(&marked("11", 20)), "{}", answer.escape_ascii());
    assert_eq!(ended(&world, EndReason::ClientClosed), 0);
}
