//! Comet events: one function hears BEGIN, READ, END with a reason, ERROR with a reason. A timeout is an event and not
//! the end.
//!
//! ```sh
//! cargo run --example comet_events
//! ```

mod common;

use shardlet::{
    EndReason, Exchange, Result, Router, ShutdownPlan,
    exchange::{Read, ReadListener},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Shutdown,
    Reload,
    Session,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Timeout,
    ClientGone,
    Io,
}

#[derive(Debug, Clone, PartialEq)]
enum Event {
    Begin,
    Read(String),
    End(End),
    Error(Failure),
}

type Log = Arc<Mutex<Vec<Event>>>;

/// The application: everything that happens to its request comes here, one after the other.
#[derive(Clone)]
struct Processor(Log);

impl Processor {
    fn event(&self, x: &mut Exchange, event: Event) -> Result<()> {
        self.0.lock().expect("nobody panics with it").push(event.clone());
        match event {
            Event::Read(text) if text == "bye" => x.complete(),
            Event::Read(text) => {
                write!(x, "<{text}>")?;
                x.flush()
            }
            Event::Error(Failure::Timeout) => {
                // Not fatal: the client hears a sign of life and the time begins anew.
                x.set_timeout(Duration::from_secs(60));
                write!(x, "...")?;
                x.flush()
            }
            Event::Begin | Event::End(_) | Event::Error(_) => Ok(()),
        }
    }

    /// The adapter from an exchange's listeners to events.
    fn begin(&self, x: &mut Exchange) -> Result<()> {
        let (timeout, error, complete) = (self.clone(), self.clone(), self.clone());
        x.start_async();
        x.set_timeout(Duration::from_millis(20));
        x.on_timeout(move |x: &mut Exchange| timeout.event(x, Event::Error(Failure::Timeout)));
        x.on_error(move |x: &mut Exchange, reason| match reason {
            EndReason::Shutdown => error.event(x, Event::End(End::Shutdown)),
            EndReason::Reload => error.event(x, Event::End(End::Reload)),
            gone if gone.is_client_gone() => error.event(x, Event::Error(Failure::ClientGone)),
            _ => error.event(x, Event::Error(Failure::Io)),
        });
        x.on_complete(move |x: &mut Exchange, reason| match reason {
            EndReason::Completed => complete.event(x, Event::End(End::Session)),
            _ => Ok(()),
        });
        x.set_read_listener(self.clone());
        self.event(x, Event::Begin)
    }
}

impl ReadListener for Processor {
    fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
        while let Read::Data(bytes) = x.read()? {
            self.event(x, Event::Read(String::from_utf8_lossy(&bytes).into_owned()))?;
        }
        Ok(())
    }
}

fn main() {
    let log = Log::default();
    let shared = log.clone();
    let (server, address) = common::serve(1, move |_| {
        let processor = Processor(shared.clone());
        Router::new().route("/comet", move |x: &mut Exchange| processor.begin(x))
    });
    let events = || log.lock().expect("nobody panics with it").clone();
    let seen = |event: Event| common::until(|| events().contains(&event));
    let head = "POST /comet HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut talker = common::send(address, &format!("{head}5\r\nhello\r\n"));
    seen(Event::Error(Failure::Timeout));
    std::io::Write::write_all(&mut talker, b"3\r\nbye\r\n0\r\n\r\n").expect("send");
    seen(Event::End(End::Session));
    drop(common::send(address, head));
    seen(Event::Error(Failure::ClientGone));
    let _listener = common::send(address, head);
    common::until(|| events().iter().filter(|event| **event == Event::Begin).count() == 3);
    server.shutdown(ShutdownPlan::fast());
    for event in events().iter().filter(|event| **event != Event::Error(Failure::Timeout)) {
        println!("{event:?}");
    }
}
