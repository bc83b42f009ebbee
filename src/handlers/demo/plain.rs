//! Routes without a life of their own: page, plain answer, echo, files, stats, panic, block.

use super::{WAIT_MS_MAX, number};
use crate::{
    error::Result,
    exchange::{Exchange, asynchronous},
    routing::Handler,
    server, stats,
};
use http::StatusCode;
use shards::Shard;
use std::{thread, time::Duration};

const PAGE: &str = include_str!("page.html");

/// The embedded files: path below `/files/`, type, bytes.
const FILES: &[(&str, &str, &str)] = &[
    ("", "text/html; charset=utf-8", FILES_INDEX),
    ("index.html", "text/html; charset=utf-8", FILES_INDEX),
    ("hello.txt", "text/plain; charset=utf-8", "Hello from a file that is part of the program.\n"),
    ("demo.html", "text/html; charset=utf-8", PAGE),
];

const FILES_INDEX: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>files</title>\n\
     <h1>Embedded files</h1>\n<ul><li><a href=\"hello.txt\">hello.txt</a><li><a href=\"demo.html\">demo.html</a></ul>\n";

pub(super) fn page(x: &mut Exchange) -> Result<()> {
    x.response().set_content_type("text/html; charset=utf-8")?;
    x.write(PAGE)
}

/// The benchmark's target: through router, handler and exchange like any other.
pub(super) fn plaintext(x: &mut Exchange) -> Result<()> {
    x.response().set_content_type("text/plain")?;
    x.write("Hello, World!")
}

/// The same body back, while it is still arriving: nothing is read faster than the client takes it.
pub(super) fn echo() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        let content_type = x.request().header("content-type").map(<[u8]>::to_vec);
        x.response()
            .set_header("Content-Type", content_type.as_deref().unwrap_or(b"application/octet-stream"))?;
        while let Some(chunk) = x.next_chunk().await? {
            x.write(chunk)?;
            if !x.is_write_ready() {
                x.write_ready().await?;
            }
        }
        Ok(())
    })
}

pub(super) fn file(x: &mut Exchange) -> Result<()> {
    let name = x.parameter("rest").unwrap_or_default();
    match FILES.iter().find(|(known, ..)| *known == name) {
        Some((_, content_type, content)) => {
            x.response().set_content_type(content_type)?;
            x.write(*content)
        }
        None => {
            x.response().set_status(StatusCode::NOT_FOUND);
            x.response().set_content_type("text/plain; charset=utf-8")?;
            x.write("404 Not Found\n")
        }
    }
}

pub(super) fn stats() -> impl Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        let snapshots = server::snapshots(&Shard::current()).await;
        x.response().set_content_type("application/json")?;
        x.response().set_header("Cache-Control", "no-store")?;
        x.write(stats::to_json(&snapshots).to_string())
    })
}

/// Shows that a panic costs one request. `#[track_caller]` of the standard message names this line.
pub(super) fn panic(_x: &mut Exchange) -> Result<()> {
    panic!("this handler panics on purpose")
}

/// Blocks its shard, which no handler should do: for seeing isolation and the watchdog.
pub(super) fn block(x: &mut Exchange) -> Result<()> {
    let ms = number(x.request().query(), "ms", 1000, WAIT_MS_MAX.min(60_000));
    thread::sleep(Duration::from_millis(ms));
    let text = format!("blocked this shard for {ms} ms\n");
    x.response().set_content_type("text/plain; charset=utf-8")?;
    x.write(text)
}
