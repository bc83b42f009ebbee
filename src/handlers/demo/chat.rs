//! A chat by long polls: requests wait parked on every shard, and a message wakes them all with one message a shard.

use super::number;
use crate::{
    error::Result,
    exchange::{Delivery, Exchange, Topic},
};
use http::StatusCode;
use serde_json::json;
use std::time::Duration;

/// The messages of one server.
pub(super) type Chat = Topic<String>;

pub(super) fn chat() -> Chat {
    Topic::new(MESSAGES_KEPT)
}

/// Answers with the messages behind `after`, at once or when there are some; 204 when there are none for a while.
pub(super) fn poll(chat: &Chat, x: &mut Exchange) -> Result<()> {
    let after = number(x.request().query(), "after", 0, u64::MAX);
    x.start_async();
    x.set_timeout(POLL_TIME);
    x.on_timeout(|x: &mut Exchange| -> Result<()> {
        x.response().set_status(StatusCode::NO_CONTENT);
        x.complete()
    });
    chat.subscribe(x, after, |x, delivery| answer(x, &delivery))?;
    Ok(())
}

fn answer(x: &mut Exchange, delivery: &Delivery<String>) -> Result<()> {
    let Some(last) = delivery.items.last().map(|item| item.id) else { return Ok(()) };
    let messages: Vec<_> =
        delivery.items.iter().map(|item| json!({ "id": item.id, "text": *item.value })).collect();
    x.response().set_content_type("application/json")?;
    x.response().set_header("Cache-Control", "no-store")?;
    x.write(json!({ "last": last, "messages": messages }).to_string())?;
    x.complete()
}

/// Publishes the body as a message; the route has it whole before the handler starts.
pub(super) fn send(chat: &Chat, x: &mut Exchange) -> Result<()> {
    let text = String::from_utf8_lossy(&x.take_body()).into_owned();
    // A shard that could not be told is stopping, or tells its waiters with the next message.
    let id = match chat.publish(text) {
        Ok(published) => published.id,
        Err(error) => error.published.id,
    };
    x.response().set_content_type("application/json")?;
    x.write(json!({ "id": id }).to_string())
}

/// Messages that a late reader still finds.
const MESSAGES_KEPT: usize = 100;

/// Longest message.
pub(super) const MESSAGE_BYTES_MAX: u64 = 4096;

/// How long a poll waits: below the half minute after which proxies lose their patience.
const POLL_TIME: Duration = Duration::from_secs(25);
