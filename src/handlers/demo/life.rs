//! Routes that live longer than their handler's call: delay, race, events, upload, throttled.

use super::{WAIT_MS_MAX, business, number, value};
use crate::{
    error::Result,
    exchange::{AsyncContext, Exchange, asynchronous},
    routing::{Coordinator, Handler},
};
use http::StatusCode;
use shards::{Shard, time};
use std::time::Duration;

/// Parked on the shard's timer, then answered.
pub(super) fn delay(x: &mut Exchange) -> Result<()> {
    let ms = number(x.request().query(), "ms", 100, WAIT_MS_MAX);
    x.start_async();
    x.set_timeout(Duration::from_millis(ms));
    x.on_timeout(move |x: &mut Exchange| -> Result<()> {
        x.response().set_content_type("text/plain; charset=utf-8")?;
        x.write(format!("waited {ms} ms\n"))?;
        x.complete()
    });
    Ok(())
}

/// Business logic on a worker thread against the timeout. The two never meet: both run on this exchange's shard,
/// one after the other, and the first one ends it.
pub(super) fn race(x: &mut Exchange) -> Result<()> {
    let query = x.request().query();
    let work = Duration::from_millis(number(query, "work", 50, WAIT_MS_MAX));
    let timeout_ms = number(query, "timeout", 100, WAIT_MS_MAX);
    let context = x.start_async();
    x.set_timeout(Duration::from_millis(timeout_ms));
    x.on_timeout(move |x: &mut Exchange| -> Result<()> {
        x.response().set_status(StatusCode::BAD_GATEWAY);
        x.response().set_content_type("text/plain; charset=utf-8")?;
        x.write(format!("Request timed out after {timeout_ms}ms\n"))?;
        x.complete()
    });
    business::after(work, move || finish(&context))
}

/// Called on the business thread.
fn finish(context: &AsyncContext) {
    // A race that is lost is no error: the exchange has been answered already.
    let _ = context.executor().execute(|x: &mut Exchange| -> Result<()> {
        x.response().set_content_type("text/plain; charset=utf-8")?;
        x.write("The answer is 42\n")?;
        x.complete()
    });
}

/// Server-sent events: the response stays open and grows until it is complete.
pub(super) fn events() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        let query = x.request().query();
        let every = Duration::from_millis(number(query, "ms", 1000, WAIT_MS_MAX));
        let count = number(query, "count", 10, 1_000_000);
        x.response().set_content_type("text/event-stream")?;
        x.response().set_header("Cache-Control", "no-store")?;
        x.flush()?;
        for id in 1..=count {
            x.sleep(every).await?;
            write!(x, "id: {id}\ndata: event {id} of {count}\n\n")?;
            x.flush()?;
            x.write_ready().await?;
        }
        Ok(())
    })
}

/// Decides about 100-continue before any content is read, after a wait if asked.
#[derive(Default)]
pub(super) struct Upload;

impl Coordinator for Upload {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        let wait = number(x.request().query(), "wait", 0, WAIT_MS_MAX);
        if wait == 0 {
            return decide(x);
        }
        let context = x.context();
        Shard::current().spawn(async move {
            time::sleep(Duration::from_millis(wait)).await;
            // A client that has left meanwhile has nothing to be decided.
            let _ = context.dispatch(decide);
        });
        Ok(())
    }
}

fn decide(x: &mut Exchange) -> Result<()> {
    if value(x.request().query(), "accept") == Some("no") {
        x.response().set_status(StatusCode::EXPECTATION_FAILED);
        x.response().set_content_type("text/plain; charset=utf-8")?;
        x.write("refused before any content was read\n")?;
        return x.complete();
    }
    if x.expects_continue() {
        x.send_continue();
    }
    x.buffer_body(UPLOAD_BYTES_MAX);
    x.service()
}

/// Runs when the content is there.
pub(super) fn upload(x: &mut Exchange) -> Result<()> {
    let content = x.take_body();
    x.response().set_content_type("text/plain; charset=utf-8")?;
    x.write(format!("received {} bytes\n", content.len()))
}

/// Work of a tenth of a second, of which a shard does only so much at a time.
pub(super) fn throttled() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        x.sleep(Duration::from_millis(100)).await?;
        x.response().set_content_type("text/plain; charset=utf-8")?;
        x.write("worked for 100 ms\n")
    })
}

/// Largest content of `/upload`.
const UPLOAD_BYTES_MAX: u64 = 1024 * 1024;
