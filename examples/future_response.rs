//! The future response servlet: `do_request` stores a key and returns; `notify(key, value)` from any thread leads to the
//! response; the timeout otherwise. While it waits no handler has been chosen and nothing is held but the head.
//!
//! ```sh
//! cargo run --example future_response
//! ```

mod common;

use shardlet::{AsyncContext, Coordinator, Exchange, Result, Router, ShutdownPlan, StatusCode};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// Requests that wait, by key.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<String, AsyncContext>>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, AsyncContext>> {
        self.0.lock().expect("nobody panics with it")
    }

    /// Gives the request behind a key its value. False when nobody waits for it (any more).
    fn notify(&self, key: &str, value: String) -> bool {
        let Some(context) = self.lock().remove(key) else { return false };
        let serve = move |x: &mut Exchange| {
            x.set_attribute(Value(value));
            x.service()
        };
        context.dispatch(serve).is_ok()
    }
}

/// What a request was notified with.
struct Value(String);

struct FutureResponse {
    waiting: Waiting,
    key: String,
}

impl Coordinator for FutureResponse {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        self.key = x.request().query().unwrap_or_default().to_owned();
        x.set_timeout(Duration::from_millis(200));
        let context = x.context();
        self.waiting.lock().insert(self.key.clone(), context);
        Ok(())
    }

    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        x.response().set_status(StatusCode::GATEWAY_TIMEOUT);
        write!(x, "nothing for {}", self.key)?;
        x.complete()
    }

    fn on_complete(&mut self, _: &mut Exchange, _: shardlet::EndReason) {
        self.waiting.lock().remove(&self.key);
    }
}

fn do_response(x: &mut Exchange) -> Result<()> {
    match x.take_attribute::<Value>() {
        Some(Value(value)) => write!(x, "{value}"),
        None => write!(x, "no value"),
    }
}

fn main() {
    let waiting = Waiting::default();
    let shared = waiting.clone();
    let (server, address) = common::serve(2, move |_| {
        let waiting = shared.clone();
        Router::new()
            .route("/await", do_response)
            .coordinate("/await", move || FutureResponse { waiting: waiting.clone(), key: String::new() })
    });
    let client = common::begin(address, "/await?order-7");
    common::until(|| waiting.lock().contains_key("order-7"));
    println!("notified: {}", waiting.notify("order-7", "shipped".to_owned()));
    println!("response: {:?}", common::answer(client));
    println!("timeout: {:?}", common::ask(address, "/await?order-8"));
    println!("notified too late: {}", waiting.notify("order-8", "shipped".to_owned()));
    server.shutdown(ShutdownPlan::fast());
}
