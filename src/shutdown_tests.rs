//! The end of a service on a simulated shard: with many connections, and at each moment of a connection's first steps.

use super::{AT_ONCE, Phases, ShutdownPlan};
use crate::{
    EndReason,
    connection::{Service, ServiceOptions},
    exchange::{Exchange, asynchronous},
    limits::Limits,
    routing::Router,
};
use shards::{
    JoinHandle,
    net::Listener,
    testing::{SimFaults, Simulation},
};
use std::{cell::RefCell, rc::Rc, time::Duration};

const HOUR: Duration = Duration::from_secs(3600);

/// A service on the first shard, listening on port 80.
fn serve(simulation: &Simulation, router: Router) -> (Rc<Service>, Listener) {
    serve_at(simulation, "127.0.0.1:80", router)
}

fn serve_at(simulation: &Simulation, at: &str, router: Router) -> (Rc<Service>, Listener) {
    let options = ServiceOptions {
        limits: Limits::DEFAULT,
        router: router.finish().expect("sound routes"),
        server_name: String::new(),
        common_fields: Vec::new(),
        workers: None,
        connections_max: usize::MAX,
        connections_per_address_max: None,
        access_log: None,
    };
    simulation.on(0, |shard| {
        let service = Service::new(shard, options);
        let at = at.parse().expect("an address");
        let listener = Listener::bind(shard, &at, service.clone()).expect("the simulation listens");
        (service, listener)
    })
}

/// The phases of an end by this plan, beside what else the shard does.
fn end(
    simulation: &Simulation,
    service: &Rc<Service>,
    listener: Listener,
    plan: ShutdownPlan,
) -> JoinHandle<()> {
    let service = service.clone();
    simulation.on(0, |shard| {
        let shard = shard.clone();
        shard.clone().spawn(async move {
            let plan = RefCell::new(Some(plan));
            Phases::new(&shard, &plan).end(&service, vec![Rc::new(listener)]).await;
        })
    })
}

/// L-26: the shard of many connections is not blocked by telling all of them at once.
#[test]
fn many_connections_are_told_a_few_at_a_time() {
    let simulation = Simulation::with(1, 1, SimFaults::default());
    let (service, listener) = serve(&simulation, Router::new());
    let many = 3 * AT_ONCE + 1;
    let clients: Vec<_> = (0..many).map(|_| simulation.connect(80)).collect();
    clients.iter().for_each(|client| client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    simulation.run_for(Duration::from_millis(20));
    assert_eq!(service.connection_count(), many);
    let end = end(&simulation, &service, listener, ShutdownPlan::graceful(Duration::from_secs(5)));
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

/// 89: a server ends at each of the first steps of a connection, from before its accept to behind its answer, while
/// there is hardly a buffer, completions are late, and cancels too. An orderly end answers whoever was accepted.
#[test]
fn fault_89_an_end_between_accept_and_first_read_leaves_nothing_and_loses_no_request() {
    const STEPS: u64 = 40;
    let plans = [ShutdownPlan::graceful(Duration::from_secs(9)), ShutdownPlan::fast(), ShutdownPlan::now()];
    let (mut unread, mut answered) = (0, 0);
    for seed in 0..1_500 {
        let plan = plans[(seed / STEPS % 3) as usize];
        let faults = SimFaults {
            out_of_buffers: 0.6,
            late_completion: 0.3,
            late_cancel: 0.5,
            reorder: 0.3,
            late_by: Duration::from_millis(2),
            ..SimFaults::default()
        };
        let simulation = Simulation::with(seed, 1, faults);
        let router = Router::new().route("/", |x: &mut Exchange| x.write("hello"));
        let (service, listener) = serve(&simulation, router);
        let (client, silent) = (simulation.connect(80), simulation.connect(80));
        client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..seed % STEPS {
            simulation.turn();
            simulation.skip(Duration::from_micros(50));
        }
        unread += u32::from(service.connection_count() == 2 && service.counters.snapshot().bytes_in == 0);
        let end = end(&simulation, &service, listener, plan);
        let what = format!("seed {seed}, {plan:?}");
        assert!(simulation.run_until(Duration::from_secs(8), || end.is_finished()), "{what}: no end");
        let accepted = service.counters.snapshot().accepted;
        simulation.run_for(Duration::from_millis(20));
        assert_eq!(service.connection_count(), 0, "{what}");
        assert_eq!(service.counters.snapshot().accepted, accepted, "{what}: the shard is gone by now");
        let received = String::from_utf8(client.received()).expect("text");
        let whole = received.starts_with("HTTP/1.1 200 ") && received.ends_with("\r\n\r\nhello");
        if plan.grace > Duration::ZERO {
            assert!(whole || (received.is_empty() && accepted < 2), "{what}: {accepted}, {received:?}");
            answered += u32::from(whole);
        }
        drop((client, silent));
        simulation.run_for(Duration::from_millis(20));
        expect_nothing_left(&simulation, &service, &what);
    }
    assert!(unread > 100 && answered > 300, "{unread} ended before the first read, {answered} answered");
}

/// 84: the services of a server share notice and grace; each may write what it has told to end.
#[test]
fn fault_84_a_second_service_has_what_the_first_left_of_the_plan() {
    let hanging = || Router::new().route("/", asynchronous(async |x: &mut Exchange| x.sleep(HOUR).await));
    let simulation = Simulation::with(1, 1, SimFaults::default());
    let ((first, listener), (second, beside)) =
        (serve_at(&simulation, "127.0.0.1:80", hanging()), serve_at(&simulation, "127.0.0.1:81", hanging()));
    let clients = [80, 81].map(|port| simulation.connect(port));
    clients.iter().for_each(|client| client.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    simulation.run_for(Duration::from_millis(20));
    let seconds = Duration::from_secs;
    let plan = ShutdownPlan { notice: seconds(20), grace: seconds(10), write: seconds(1) };
    let began = simulation.now();
    let end = simulation.on(0, |shard| {
        let shard = shard.clone();
        shard.clone().spawn(async move {
            let plan = RefCell::new(Some(plan));
            let phases = Phases::new(&shard, &plan);
            phases.end(&first, vec![Rc::new(listener)]).await;
            phases.end(&second, vec![Rc::new(beside)]).await;
        })
    });
    assert!(simulation.run_until(seconds(100), || end.is_finished()));
    let took = simulation.now() - began;
    assert!((seconds(30)..seconds(33)).contains(&took), "{took:?}");
    for client in clients {
        let received = String::from_utf8(client.received()).expect("text");
        assert!(received.starts_with("HTTP/1.1 503 "), "{received:?}");
    }
}

fn expect_nothing_left(simulation: &Simulation, service: &Service, what: &str) {
    let counters = service.exchanges.counters();
    let ends: u64 = EndReason::ALL.iter().map(|reason| counters.ended(*reason)).sum();
    assert_eq!((ends, counters.live), (counters.started, 0), "{what}: every exchange ends once");
    let stats = simulation.on(0, |shard| shard.stats());
    assert_eq!((stats.buffers.1, stats.buffers.2), (0, 0), "{what}: buffers lent out");
    assert_eq!((stats.descriptors, stats.operations_in_flight), (0, 0), "{what}: descriptors, operations");
    assert_eq!((stats.panics, stats.timers), (0, 0), "{what}: panics, timers");
}
