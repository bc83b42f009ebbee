//! Work against a timeout of the same length: whoever wins, there is one terminal transition and the loser is ignored.
//! Prints one line.
//!
//! ```sh
//! cargo run --example timeout_race
//! ```

mod common;

use shardlet::{EndReason, Exchange, Result, Router, ShutdownPlan};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

/// What happened to the one request.
#[derive(Default)]
struct Seen {
    work: AtomicU32,
    timeout: AtomicU32,
    ends: AtomicU32,
}

enum News {
    Ended(EndReason),
    /// The work is done and its result handed over, or refused.
    WorkDone,
}

const SPAN: Duration = Duration::from_millis(5);

fn race(x: &mut Exchange, seen: &Arc<Seen>, news: &Sender<News>) {
    let executor = x.start_async().executor();
    x.set_timeout(SPAN);
    let timeout = seen.clone();
    x.on_timeout(move |x: &mut Exchange| -> Result<()> {
        timeout.timeout.fetch_add(1, SeqCst);
        write!(x, "timed out")?;
        x.complete()
    });
    let (ends, ended) = (seen.clone(), news.clone());
    x.on_complete(move |_, reason: EndReason| {
        ends.ends.fetch_add(1, SeqCst);
        let _ = ended.send(News::Ended(reason));
    });
    let (work, done) = (seen.clone(), news.clone());
    thread::spawn(move || {
        thread::sleep(SPAN);
        // A lost race is no error.
        let _ = executor.execute(move |x: &mut Exchange| -> Result<()> {
            work.work.fetch_add(1, SeqCst);
            write!(x, "complete")?;
            x.complete()
        });
        let _ = done.send(News::WorkDone);
    });
}

fn main() {
    let (seen, (news, heard)) = (Arc::new(Seen::default()), channel());
    let shared = seen.clone();
    let (server, address) = common::serve(1, move |_| {
        let (seen, news) = (shared.clone(), news.clone());
        Router::new().route("/race", move |x: &mut Exchange| race(x, &seen, &news))
    });
    let (status, body) = common::ask(address, "/race");
    let mut reason = None;
    for _ in 0..2 {
        if let News::Ended(end) = heard.recv_timeout(Duration::from_secs(20)).expect("news") {
            reason = Some(end);
        }
    }
    server.shutdown(ShutdownPlan::fast());
    let (terminal, winner, loser) = match reason {
        Some(EndReason::Completed) => ("COMPLETE", &seen.work, &seen.timeout),
        _ => ("TIMEOUT", &seen.timeout, &seen.work),
    };
    let answered = status == 200 && body == if terminal == "COMPLETE" { "complete" } else { "timed out" };
    let ignored = answered && winner.load(SeqCst) == 1 && loser.load(SeqCst) == 0;
    println!("terminal={terminal} terminalTransitions={} loserIgnored={ignored}", seen.ends.load(SeqCst));
}
