//! The asynchronous servlet: start, listeners, dispatch to a path, error dispatch.
//!
//! ```sh
//! cargo run --example async_servlet
//! ```

mod common;

use shardlet::{
    EndReason, Error, Exchange, Filter, Result, Router, ShutdownPlan,
    exchange::DispatchType::{Async, Error as ErrorDispatch, Request},
    routing::Next,
};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<String>>>;

fn note(log: &Log, what: impl Into<String>) {
    log.lock().expect("nobody panics with it").push(what.into());
}

/// Does its work on a worker thread and lets another path show the result.
fn report(x: &mut Exchange, log: &Log) -> Result<()> {
    let context = x.start_async();
    let (started, completed) = (log.clone(), log.clone());
    note(&started, "startAsync");
    x.on_complete(move |_, reason: EndReason| note(&completed, format!("onComplete {reason}")));
    context.start(|context| {
        let rows = 42;
        // If the exchange has ended meanwhile there is nobody to show it to.
        let _ = context.dispatch(move |x: &mut Exchange| {
            x.set_attribute(Rows(rows));
            x.redispatch("/view")
        });
    })
}

struct Rows(u32);

fn view(x: &mut Exchange) -> Result<()> {
    match x.take_attribute() {
        Some(Rows(rows)) => write!(x, "{rows} rows, cycle {}", x.cycle()),
        None => Err(Error::handler("the view has nothing to show")),
    }
}

/// Answers what failed; its own filters run only if they are registered for error dispatches.
fn failed(x: &mut Exchange) -> Result<()> {
    let fault = x.take_fault();
    match fault {
        Some(fault) => write!(x, "sorry: {fault}"),
        None => write!(x, "sorry"),
    }
}

fn main() {
    let log = Log::default();
    let shared = log.clone();
    let (server, address) = common::serve(1, move |_| {
        let (handler, first, error) = (shared.clone(), shared.clone(), shared.clone());
        let every = Filter::new(move |x: &mut Exchange, next: Next<'_>| {
            note(&first, format!("filter {}", x.request().path()));
            next.run(x)
        });
        let only_errors = Filter::new(move |x: &mut Exchange, next: Next<'_>| {
            note(&error, "error filter");
            next.run(x)
        });
        Router::new()
            .route("/report", move |x: &mut Exchange| report(x, &handler))
            .route("/view", view)
            .filter("/*", every.on([Request, Async]).async_supported(true))
            .filter("/*", only_errors.on([ErrorDispatch]))
            .error_handler(failed)
    });
    println!("dispatched: {:?}", common::ask(address, "/report"));
    println!("failed: {:?}", common::ask(address, "/view"));
    server.shutdown(ShutdownPlan::fast());
    println!("{}", log.lock().expect("nobody panics with it").join(", "));
}
