//! Errors that the router finds, answered by the application.

use super::{PORT, World, options, plain};
use crate::{
    connection::ServiceOptions,
    error::{Error, Result},
    exchange::{DispatchType, Exchange},
    limits::Limits,
    routing::{Filter, Next, Router, get},
};
use shards::testing::SimFaults;
use std::{cell::RefCell, rc::Rc, time::Duration};

fn answer(world: &World, request: &str) -> String {
    let client = world.simulation.connect(PORT);
    client.write(format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
    world.simulation.run_until(Duration::from_secs(3), || client.is_closed());
    String::from_utf8(client.received()).expect("text")
}

#[test]
fn what_the_router_refuses_is_answered_by_the_error_handler() {
    let routes = Router::new().route("/plain", get(plain)).error_handler(|x: &mut Exchange| {
        let status = x.response().status().as_u16();
        x.write(format!("sorry: {status}"))
    });
    let router = routes.finish().expect("sound routes");
    let options = ServiceOptions { router, ..options(Limits::DEFAULT) };
    let world = World::with(1, options, SimFaults::default());
    for (request, status) in [("GET /nowhere", 404), ("DELETE /plain", 405), ("BREW /plain", 501)] {
        let answer = answer(&world, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(answer.ends_with(&format!("sorry: {status}")), "{request}: {answer}");
        assert_eq!(answer.contains("Allow: "), status == 405, "{request}: {answer}");
    }
    assert!(answer(&world, "GET /plain?11").starts_with("HTTP/1.1 200 "));
}

/// A filter that notes its runs.
fn noting(log: &Rc<RefCell<Vec<String>>>, name: &'static str, on: &[DispatchType]) -> Filter {
    let log = log.clone();
    let run = move |x: &mut Exchange, next: Next<'_>| {
        log.borrow_mut().push(name.to_owned());
        next.run(x)
    };
    Filter::new(run).on(on.iter().copied()).async_supported(true)
}

#[test]
fn l_22_a_filter_runs_in_an_error_dispatch_only_if_registered_for_it_and_no_error_dispatch_causes_another() {
    let log = Rc::new(RefCell::new(Vec::new()));
    let handled = log.clone();
    let routes = Router::new()
        .filter("/*", noting(&log, "requests", &[DispatchType::Request]))
        .filter("/*", noting(&log, "errors", &[DispatchType::Error]))
        .filter("/*", noting(&log, "both", &[DispatchType::Request, DispatchType::Error]))
        .route("/broken", |_: &mut Exchange| -> Result<()> { Err(Error::handler("broken")) })
        .error_handler(move |_: &mut Exchange| -> Result<()> {
            handled.borrow_mut().push("error handler".to_owned());
            Err(Error::handler("broken too"))
        });
    let options =
        ServiceOptions { router: routes.finish().expect("sound routes"), ..options(Limits::DEFAULT) };
    let world = World::with(1, options, SimFaults::default());
    let answer = answer(&world, "GET /broken");
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    assert_eq!(log.take(), ["requests", "both", "errors", "both", "error handler"]);
    world.simulation.run_for(Duration::from_secs(60));
    world.expect_nothing_left("an error in an error dispatch");
}
