//! Suspend and resume, the continuation of 2006: the first pass suspends, and resume or expiry runs the handler again.
//! Nothing is thrown, no earlier line runs twice: the handler asks which pass it is in.
//!
//! ```sh
//! cargo run --example continuation
//! ```

mod common;

use shardlet::{AsyncContext, Exchange, Result, Router, ShutdownPlan};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

/// Which pass of the handler this is.
#[derive(Debug, Clone, PartialEq)]
enum Pass {
    Initial,
    Resumed(String),
    Expired,
}

/// The continuation of a request.
struct Continuation;

impl Continuation {
    fn pass(x: &Exchange) -> Pass {
        x.attribute().unwrap_or(Pass::Initial)
    }

    /// Suspends the request. The handler returns as usual.
    fn suspend(x: &mut Exchange, timeout: Duration) -> Resume {
        let context = x.start_async();
        x.set_timeout(timeout);
        x.on_timeout(|x: &mut Exchange| again(x, Pass::Expired));
        Resume(context)
    }
}

/// Resumes a suspended request, from any thread.
struct Resume(AsyncContext);

impl Resume {
    /// False when it is too late: the request has expired or its client is gone.
    fn resume(self, event: &str) -> bool {
        let event = event.to_owned();
        self.0.dispatch(move |x: &mut Exchange| again(x, Pass::Resumed(event))).is_ok()
    }
}

/// Another pass of the same handler: a new cycle of the exchange.
fn again(x: &mut Exchange, pass: Pass) -> Result<()> {
    x.set_attribute(pass);
    let target = x.request().target().to_owned();
    x.redispatch(&target)
}

type Suspended = Arc<Mutex<Vec<Resume>>>;

fn handler(x: &mut Exchange, suspended: &Suspended) -> Result<()> {
    match Continuation::pass(x) {
        Pass::Initial => {
            let timeout = if x.request().query() == Some("expire") { 20 } else { 60_000 };
            let resume = Continuation::suspend(x, Duration::from_millis(timeout));
            suspended.lock().expect("nobody panics with it").push(resume);
            Ok(())
        }
        Pass::Resumed(event) => write!(x, "pass {}: {event}", x.cycle() + 1),
        Pass::Expired => write!(x, "pass {}: expired", x.cycle() + 1),
    }
}

fn main() {
    let suspended = Suspended::default();
    let shared = suspended.clone();
    let (server, address) = common::serve(1, move |_| {
        let shared = shared.clone();
        Router::new().route("/event", move |x: &mut Exchange| handler(x, &shared))
    });
    let client = common::begin(address, "/event");
    common::until(|| !suspended.lock().expect("nobody panics with it").is_empty());
    let resume = suspended.lock().expect("nobody panics with it").remove(0);
    println!("resumed: {}", resume.resume("the event"));
    println!("resume: {:?}", common::answer(client));
    println!("expiry: {:?}", common::ask(address, "/event?expire"));
    let late = suspended.lock().expect("nobody panics with it").remove(0);
    println!("resumed too late: {}", late.resume("nobody waits"));
    server.shutdown(ShutdownPlan::fast());
}
