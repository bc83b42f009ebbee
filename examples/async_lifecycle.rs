//! The request thread is free while a worker works: it starts the asynchronous cycle, answers somebody else, and the
//! worker completes. Prints one line.
//!
//! ```sh
//! cargo run --example async_lifecycle
//! ```

mod common;

use shardlet::{Exchange, Result, Router, ShutdownPlan};
use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

/// What happened, on which thread, in order; and a gate for the worker.
#[derive(Default)]
struct Stage {
    events: Mutex<Vec<String>>,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Stage {
    fn note(&self, what: &str) {
        let is_worker = thread::current().name().is_some_and(|name| name.starts_with("worker"));
        let place = if is_worker { "worker" } else { "request-thread" };
        self.events.lock().expect("nobody panics with it").push(format!("{place}:{what}"));
    }

    fn open(&self) {
        *self.open.lock().expect("nobody panics with it") = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let open = self.open.lock().expect("nobody panics with it");
        let wait = self.opened.wait_timeout_while(open, Duration::from_secs(20), |open| !*open);
        drop(wait.expect("nobody panics with it"));
    }
}

fn slow(x: &mut Exchange, stage: &Arc<Stage>) -> Result<()> {
    let context = x.start_async();
    stage.note("startAsync");
    let stage = stage.clone();
    context.start(move |context| {
        stage.wait();
        stage.note("complete");
        // A client that has left has no use for it.
        let _ = context.executor().execute(|x: &mut Exchange| -> Result<()> {
            write!(x, "done")?;
            x.complete()
        });
    })
}

fn main() {
    let stage = Arc::new(Stage::default());
    let shared = stage.clone();
    // One shard: one request thread for all.
    let (server, address) = common::serve(1, move |_| {
        let stage = shared.clone();
        Router::new()
            .route("/slow", move |x: &mut Exchange| slow(x, &stage))
            .route("/quick", |x: &mut Exchange| write!(x, "quick"))
    });
    let client = common::begin(address, "/slow");
    common::until(|| !stage.events.lock().expect("nobody panics with it").is_empty());
    let is_released = common::ask(address, "/quick") == (200, "quick".to_owned());
    stage.open();
    let is_completed = common::answer(client) == (200, "done".to_owned());
    server.shutdown(ShutdownPlan::fast());
    let events = stage.events.lock().expect("nobody panics with it").join(", ");
    println!("requestThreadReleased={is_released} events=[{events}] completed={is_completed}");
}
