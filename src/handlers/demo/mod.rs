//! The demo: every idea of the project on a route of its own, and one page that drives them all. Names and answers
//! are a contract: scripts rely on them.

mod business;
mod chat;
mod life;
mod plain;

use crate::{
    exchange::{Exchange, Topic},
    routing::{Router, Throttle, get, post},
};
use shards::Shard;
use std::time::Duration;

/// The demo's routes: what makes them on each shard. All shards talk in one chat.
pub fn router() -> impl Fn(&Shard) -> Router + Send + Sync + 'static {
    let chat = chat::chat();
    move |_| routes(&chat)
}

fn routes(chat: &Topic<String>) -> Router {
    let (polled, sent) = (chat.clone(), chat.clone());
    let throttle = Throttle::new(THROTTLED_AT_WORK).queue(THROTTLED_WAITING).max_wait(Duration::from_secs(2));
    Router::new()
        .route("/", get(plain::page))
        .route("/plaintext", get(plain::plaintext))
        .route("/echo", post(plain::echo()))
        .route("/files/*", get(plain::file))
        .route("/stats", get(plain::stats()))
        .coordinate("/stats", Throttle::new(STATS_AT_WORK).coordinator())
        .route("/panic", get(plain::panic))
        .route("/block", get(plain::block))
        .route("/delay", get(life::delay))
        .route("/race", get(life::race))
        .route("/events", get(life::events()))
        .route("/upload", post(life::upload))
        .coordinate("/upload", life::Upload::default)
        .route("/chat/poll", get(move |x: &mut Exchange| chat::poll(&polled, x)))
        .route_with("/chat/send", post(move |x: &mut Exchange| chat::send(&sent, x)), |route| {
            route.buffer_body(chat::MESSAGE_BYTES_MAX);
        })
        .route("/throttled", get(life::throttled()))
        .coordinate("/throttled", throttle.coordinator())
}

/// A number from the query, `name=N`, cut to a bound; the default where it is missing or no number.
fn number(query: Option<&str>, name: &str, default: u64, max: u64) -> u64 {
    value(query, name).and_then(|text| text.parse().ok()).unwrap_or(default).min(max)
}

/// The value of the first `name=value` of a query, as sent.
fn value<'q>(query: Option<&'q str>, name: &str) -> Option<&'q str> {
    query?
        .split('&')
        .find_map(|pair| pair.split_once('=').filter(|(known, _)| *known == name))
        .map(|(_, value)| value)
}

/// Answers of `/stats` that a shard makes at a time: each holds the histograms of every shard, some 50 KiB, until it
/// has left, and anybody may ask.
const STATS_AT_WORK: usize = 2;

/// Requests of `/throttled` that a shard works on at a time, and those that may wait for it.
const THROTTLED_AT_WORK: usize = 2;
const THROTTLED_WAITING: usize = 8;

/// Longest wait that a query may ask for, in milliseconds.
const WAIT_MS_MAX: u64 = 600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_query_are_bounded() {
        assert_eq!(number(Some("a=1&ms=20"), "ms", 5, 100), 20);
        assert_eq!(number(Some("ms=20000"), "ms", 5, 100), 100);
        assert_eq!(number(Some("ms=-1"), "ms", 5, 100), 5);
        assert_eq!(number(Some("xms=7"), "ms", 5, 100), 5);
        assert_eq!(number(None, "ms", 5, 100), 5);
    }
}
