//! The request-serialized executor: business logic on any thread against a timeout, without a lock and without an
//! exception. Whoever comes first ends the request; the other one never runs.
//!
//! ```sh
//! cargo run --example serialized_executor
//! ```

mod common;

use shardlet::{EndReason, Exchange, Result, Router, ShutdownPlan, StatusCode};
use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

/// The business logic is done when the main thread says so: both winners can be forced.
type Gate = std::sync::Arc<std::sync::Mutex<Receiver<u32>>>;

fn answer(x: &mut Exchange, gate: &Gate, news: &Sender<String>) {
    let cx = x.start_async();
    let timeout = if x.request().query() == Some("patient") { 60_000 } else { 20 };
    x.set_timeout(Duration::from_millis(timeout));
    x.on_timeout(|x: &mut Exchange| -> Result<()> {
        x.response().set_status(StatusCode::BAD_GATEWAY);
        writeln!(x, "Request timed out")?;
        x.complete()
    });
    let ended = news.clone();
    x.on_complete(move |_, reason: EndReason| {
        let _ = ended.send(format!("ended: {reason}"));
    });
    let (executor, gate, news) = (cx.executor(), gate.clone(), news.clone());
    thread::spawn(move || {
        let answer = gate.lock().expect("nobody panics with it").recv().expect("the main thread says when");
        let done = executor.execute(move |x: &mut Exchange| -> Result<()> {
            writeln!(x, "The answer is {answer}")?;
            x.complete()
        });
        let _ = news.send(match done {
            Ok(()) => "the result was taken".to_owned(),
            Err(undelivered) => format!("the result was ignored: {:?}", undelivered.reason),
        });
    });
}

fn main() {
    let (open, gate) = channel();
    let (news, heard) = channel();
    let gate = Gate::new(gate.into());
    let (server, address) = common::serve(1, move |_| {
        let (gate, news) = (gate.clone(), news.clone());
        Router::new().route("/answer", move |x: &mut Exchange| answer(x, &gate, &news))
    });
    let hear = || heard.recv_timeout(Duration::from_secs(20)).expect("news");

    open.send(42).expect("the business logic waits");
    println!("the result first: {:?}", common::ask(address, "/answer?patient"));
    let mut both = [hear(), hear()];
    both.sort();
    println!("  {}", both.join("; "));

    println!("the timeout first: {:?}", common::ask(address, "/answer"));
    let first = hear();
    open.send(42).expect("the business logic waits");
    println!("  {first}; {}", hear());
    server.shutdown(ShutdownPlan::fast());
}
