//! Suspend and resume with topics: a value published from any thread wakes the parked requests of every shard, with one
//! message a shard. A timeout may be vetoed while it fires, and changed while the request is suspended.
//!
//! ```sh
//! cargo run --example suspend_resume_topics
//! ```

mod common;

use shardlet::{AsyncContext, Exchange, Result, Router, ShutdownPlan, Topic};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

type Contexts = Arc<Mutex<Vec<AsyncContext>>>;

/// Suspends until the topic has a value.
fn subscribe(x: &mut Exchange, topic: &Topic<String>, suspended: &Contexts) -> Result<()> {
    let context = x.start_async();
    topic.subscribe(x, topic.newest(), |x: &mut Exchange, delivery| -> Result<()> {
        for item in &delivery.items {
            write!(x, "{}", item.value)?;
        }
        x.complete()
    })?;
    suspended.lock().expect("nobody panics with it").push(context);
    Ok(())
}

/// Vetoes its first two timeouts, then gives in.
fn patient(x: &mut Exchange) {
    x.start_async();
    x.set_timeout(Duration::from_millis(10));
    let mut vetoes = 0;
    x.on_timeout(move |x: &mut Exchange| -> Result<()> {
        if vetoes < 2 {
            vetoes += 1;
            x.extend(Duration::from_millis(10));
            return Ok(());
        }
        write!(x, "timed out after {vetoes} vetoes")?;
        x.complete()
    });
}

/// Waits for a minute unless somebody changes that.
fn hurried(x: &mut Exchange, suspended: &Contexts) {
    let context = x.start_async();
    x.set_timeout(Duration::from_secs(60));
    x.on_timeout(|x: &mut Exchange| -> Result<()> {
        write!(x, "the timeout was changed")?;
        x.complete()
    });
    suspended.lock().expect("nobody panics with it").push(context);
}

fn main() {
    let (topic, suspended) = (Topic::new(16), Contexts::default());
    let (shared, contexts) = (topic.clone(), suspended.clone());
    let (server, address) = common::serve(2, move |_| {
        let (topic, subscribers, hurried_ones) = (shared.clone(), contexts.clone(), contexts.clone());
        Router::new()
            .route("/topic", move |x: &mut Exchange| subscribe(x, &topic, &subscribers))
            .route("/patient", patient)
            .route("/hurried", move |x: &mut Exchange| hurried(x, &hurried_ones))
    });
    // Connections are spread over the shards by the kernel; sixteen of them reach both nearly always.
    let clients: Vec<_> = (0..16).map(|_| common::begin(address, "/topic")).collect();
    common::until(|| suspended.lock().expect("nobody panics with it").len() == clients.len());
    let published = topic.publish("news".to_owned()).expect("the shards live");
    println!("one message for each shard with waiters: {}", (1..=2).contains(&published.shards));
    let answers = clients.into_iter().map(common::answer);
    println!("woken: {}", answers.filter(|answer| *answer == (200, "news".to_owned())).count());
    println!("veto: {:?}", common::ask(address, "/patient"));
    suspended.lock().expect("nobody panics with it").clear();
    let client = common::begin(address, "/hurried");
    common::until(|| !suspended.lock().expect("nobody panics with it").is_empty());
    let context = suspended.lock().expect("nobody panics with it").remove(0);
    let change = |x: &mut Exchange| x.set_timeout(Duration::from_millis(5));
    println!("changed while suspended: {}", context.executor().execute(change).is_ok());
    println!("timeout: {:?}", common::answer(client));
    server.shutdown(ShutdownPlan::fast());
}
