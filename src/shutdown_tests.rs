//! The end of a service with many connections, on a simulated shard.

use super::{AT_ONCE, Phases, ShutdownPlan};
use crate::{
    connection::{Service, ServiceOptions},
    limits::Limits,
    routing::Router,
};
use shards::{
    net::Listener,
    testing::{SimFaults, Simulation},
};
use std::{cell::RefCell, time::Duration};

/// L-26: the shard of many connections is not blocked by telling all of them at once.
#[test]
fn many_connections_are_told_a_few_at_a_time() {
    let simulation = Simulation::with(1, 1, SimFaults::default());
    let options = ServiceOptions {
        limits: Limits::DEFAULT,
        router: Router::new().finish().expect("sound routes"),
        server_name: String::new(),
        common_fields: Vec::new(),
        workers: None,
        connections_max: usize::MAX,
        access_log: None,
    };
    let (service, listener) = simulation.on(0, |shard| {
        let service = Service::new(shard, options);
        let at = "127.0.0.1:80".parse().expect("an address");
        let listener = Listener::bind(shard, &at, service.clone()).expect("the simulation listens");
        (service, listener)
    });
    let many = 3 * AT_ONCE + 1;
    let clients: Vec<_> = (0..many).map(|_| simulation.connect(80)).collect();
    clients.iter().for_each(|client| client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    simulation.run_for(Duration::from_millis(20));
    assert_eq!(service.connection_count(), many);
    let at_work = service.clone();
    let end = simulation.on(0, |shard| {
        let shard = shard.clone();
        shard.clone().spawn(async move {
            let plan = RefCell::new(Some(ShutdownPlan::graceful(Duration::from_secs(5))));
            Phases::new(&shard, &at_work, &plan).run(vec![listener]).await;
        })
    });
    let mut before = many;
    while before > 0 {
        simulation.turn();
        let left = service.connection_count();
        assert!(before - left <= AT_ONCE, "{} in one turn", before - left);
        if left == before {
            simulation.skip(Duration::from_millis(1));
        }
        assert!(simulation.now() < Duration::from_secs(4), "{left} connections are left");
        before = left;
    }
    assert!(simulation.run_until(Duration::from_secs(1), || end.is_finished()));
}
