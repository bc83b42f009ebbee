//! Coordinators: mapped by URL pattern like handlers, one instance for each request. The default one, throttling, a
//! response that stays open after its handler, and 100-continue refused before a byte of content was sent.
//!
//! ```sh
//! cargo run --example coordinator
//! ```

mod common;

use shardlet::{Coordinator, Exchange, Result, Router, ShutdownPlan, StatusCode, Throttle, post};
use std::{
    io::{Read, Write},
    time::Duration,
};

/// All hooks as they are: `send_continue(); service()` and `complete()`.
struct Default;

impl Coordinator for Default {}

/// Adds a line after the handler's part, later, and only then closes.
struct DelayedClose;

impl Coordinator for DelayedClose {
    fn do_response(&mut self, x: &mut Exchange) -> Result<()> {
        x.flush()?;
        x.set_timeout(Duration::from_millis(20));
        Ok(())
    }

    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        write!(x, " ... and a late word")?;
        x.complete()
    }
}

/// Takes no more content than it has room for, and says so before it is sent.
struct Bounded;

impl Coordinator for Bounded {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        let length = x
            .request()
            .header("content-length")
            .and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        if length.is_none_or(|length| length > 10) {
            x.response().set_status(StatusCode::EXPECTATION_FAILED);
            write!(x, "too much")?;
            return x.complete();
        }
        x.send_continue();
        x.buffer_body(10);
        x.service()
    }
}

fn echo(x: &mut Exchange) -> Result<()> {
    let body = x.take_body();
    x.write(body)
}

fn work(x: &mut Exchange) {
    x.start_async();
    x.set_timeout(Duration::from_millis(30));
    x.on_timeout(|x: &mut Exchange| -> Result<()> {
        write!(x, "worked")?;
        x.complete()
    });
}

/// Asks with `Expect: 100-continue` and sends the content only if it is wanted.
fn upload(to: std::net::SocketAddr, content: &str) -> String {
    let head = format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        content.len()
    );
    let mut stream = common::send(to, &head);
    let (mut first, mut rest) = ([0; 12], String::new());
    stream.read_exact(&mut first).expect("a status line");
    let first = String::from_utf8_lossy(&first).into_owned();
    if first.ends_with("100") {
        stream.write_all(content.as_bytes()).expect("send the content");
    }
    stream.read_to_string(&mut rest).expect("the rest");
    format!("{first}, then {:?}", rest.rsplit("\r\n").next().unwrap_or_default())
}

fn main() {
    let (server, address) = common::serve(1, |_| {
        let throttle = Throttle::new(1).queue(1).max_wait(Duration::from_secs(5));
        Router::new()
            .route("/default", |x: &mut Exchange| write!(x, "served"))
            .coordinate("/default", || Default)
            .route("/late", |x: &mut Exchange| write!(x, "the handler's part"))
            .coordinate("/late", || DelayedClose)
            .route("/work", work)
            .coordinate("/work", throttle.coordinator())
            .route("/upload", post(echo))
            .coordinate("/upload", || Bounded)
    });
    println!("default: {:?}", common::ask(address, "/default"));
    let (first, second) = (common::begin(address, "/work"), common::begin(address, "/work"));
    println!("throttled: {:?} {:?}", common::answer(first).0, common::answer(second).0);
    println!(
        "delayed close: {:?}",
        common::ask(address, "/late").1.split("\r\n").filter(|line| line.contains(' ')).collect::<Vec<_>>()
    );
    println!("continue: {}", upload(address, "ten bytes!"));
    println!("refused: {}", upload(address, "more than ten bytes"));
    server.shutdown(ShutdownPlan::fast());
}
