//! The demo: every idea of the project on a route of its own, and one page that drives them all. Names and answers
//! are a contract: scripts rely on them.

mod business;
mod life;
mod plain;

use crate::routing::{Router, get, post};
use shards::Shard;

/// The demo's routes for one shard.
pub fn router(_shard: &Shard) -> Router {
    Router::new()
        .route("/", get(plain::page))
        .route("/plaintext", get(plain::plaintext))
        .route("/echo", post(plain::echo()))
        .route("/files/*", get(plain::file))
        .route("/stats", get(plain::stats()))
        .route("/panic", get(plain::panic))
        .route("/block", get(plain::block))
        .route("/delay", get(life::delay))
        .route("/race", get(life::race))
        .route("/events", get(life::events()))
        .route("/upload", post(life::upload))
        .coordinate("/upload", life::Upload::default)
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
