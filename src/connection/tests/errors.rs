//! Errors that the router finds, answered by the application.

use super::{PORT, World, options, plain};
use crate::{
    connection::ServiceOptions,
    exchange::Exchange,
    limits::Limits,
    routing::{Router, get},
};
use shards::testing::SimFaults;
use std::time::Duration;

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
