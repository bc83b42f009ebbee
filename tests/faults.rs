//! Rows of the table of faults over real sockets, on both drivers, that need more than a request and its answer: a slow
//! read of a file that outlives its request, an aborted write loop, answers in chunks from foreign threads.

mod common;

use common::{DEADLINE, client::Client, for_each_driver, wait_for};
use crossbeam_channel::Receiver;
use shardlet::{
    AsyncContext, EndReason, Exchange, Result, Router, Server, ShutdownPlan, asynchronous,
    exchange::{UndeliveredReason, WriteListener},
};
use shards::{DriverChoice, File, Shard, fs, net::SocketAddress};
use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

fn serve(driver: &str, routes: impl Fn(&Shard) -> Router + Send + Sync + 'static) -> (Server, SocketAddr) {
    let driver = if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll };
    let listen: SocketAddress = "127.0.0.1:0".parse().expect("an address");
    let builder = Server::builder().listen(listen).shards(1).driver(driver);
    let server = builder.start(routes).expect("the server starts");
    let address = server.address().tcp().expect("a TCP address");
    (server, address)
}

/// Ends the server: every exchange has ended, and the driver has got back what it had lent.
fn end(server: Server) {
    let ends = server.shutdown(ShutdownPlan::fast());
    assert!(ends.iter().all(|end| end.result.is_ok() && end.leaked == 0), "{ends:?}");
}

/// The texts that callbacks have noted, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn has(&self, start: &str) -> bool {
        self.0.lock().unwrap().iter().any(|noted| noted.starts_with(start))
    }
}

/// Bytes of a read that takes a disk's time: the file is a hole of this size, which no page cache has.
const SLOW: usize = 16 << 20;

/// Waits for a slow read that a task ends together with its request.
async fn read_and_be_ended(x: &mut Exchange, path: &Path, log: &Log) -> Result<()> {
    let root = fs::Root::open(path.parent().expect("a folder"))?;
    let name = Path::new(path.file_name().expect("a name"));
    let file = File::new(&Shard::current(), root.open_blocking(name, fs::Follow::No)?.into_fd()?);
    let complete = log.clone();
    x.on_complete(move |_, reason: EndReason| complete.note(format!("complete {reason}")));
    let read = file.read_at(0, Vec::with_capacity(SLOW), SLOW);
    let at_work = log.clone();
    let ending = x.context().executor().execute(move |x: &mut Exchange| -> Result<()> {
        at_work.note(format!("operations {}", Shard::current().stats().operations_in_flight));
        write!(x, "ended")?;
        x.complete()
    });
    assert!(ending.is_ok());
    let (read, _) = read.await;
    log.note(format!("read {read:?}"));
    Ok(())
}

/// The kernel, or a thread, still writes into the read's memory when its request has ended: what is allocated in the
/// meantime is somebody else's, and stays as it is.
#[test]
fn fault_26_a_slow_file_read_outlives_its_request_and_meets_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hole");
    std::fs::File::create(&path).expect("made").set_len(SLOW as u64).expect("a hole");
    for_each_driver(|driver| {
        let log = Log::default();
        let (shared, path) = (log.clone(), path.clone());
        let (server, address) = serve(driver, move |_| {
            let (log, path) = (shared.clone(), path.clone());
            let slow = asynchronous(async move |x: &mut Exchange| -> Result<()> {
                read_and_be_ended(x, &path, &log).await
            });
            Router::new().route("/slow", slow).route("/probe", |x: &mut Exchange| {
                let now = Shard::current().stats();
                write!(x, "{} {}", now.operations_in_flight, now.descriptors)
            })
        });
        let mut client = Client::connect(address);
        let held = |client: &mut Client| client.get("/probe").text().to_owned();
        let before = held(&mut client);
        let operations: Option<usize> = before.split(' ').next().and_then(|text| text.parse().ok());
        for round in 0..20 {
            assert_eq!(client.get("/slow").text(), "ended", "{driver}, round {round}");
            // What would lie where the read writes, had its memory been given back.
            let canary = vec![0xa5_u8; SLOW];
            assert!(wait_for(DEADLINE, || held(&mut client) == before), "{driver}: a read is left over");
            assert!(canary.iter().all(|byte| *byte == 0xa5), "{driver}: somebody wrote into our memory");
            let noted = log.take();
            assert_eq!(noted.last().map(String::as_str), Some("complete completed"), "{driver}: {noted:?}");
            assert!(!noted.iter().any(|text| text.starts_with("read")), "the future was dropped: {noted:?}");
            let at_work = noted[0].strip_prefix("operations ").and_then(|text| text.parse().ok());
            assert!(at_work > operations, "the read was under way: {noted:?}, {before} before");
        }
        end(server);
    });
}

struct Writing(Log);

impl WriteListener for Writing {
    fn on_write_possible(&mut self, x: &mut Exchange) -> Result<()> {
        write_on(x, &self.0)
    }

    fn on_error(&mut self, x: &mut Exchange, reason: EndReason) {
        self.0.note(format!("listener {reason}"));
        if reason.is_client_gone() {
            assert!(x.write("too late").is_err(), "nobody is there to read it");
        }
    }
}

/// As much as the client takes; with `?fail` the fourth call of the loop fails.
fn write_on(x: &mut Exchange, log: &Log) -> Result<()> {
    let fails = x.request().query() == Some("fail");
    while x.is_write_ready() {
        x.write(vec![b'w'; 64 << 10])?;
    }
    log.note("waits");
    if fails && x.byte_counts().accepted > 0 {
        return Err(shardlet::Error::handler("expected by the test"));
    }
    Ok(())
}

/// How an abort is brought about.
#[derive(Debug, Clone, Copy)]
enum Abort {
    Reset,
    Close,
    Timeout,
    Failure,
    Shutdown,
}

fn write_loop(log: &Log) -> impl Fn(&Shard) -> Router + Send + Sync + 'static {
    let log = log.clone();
    move |_| {
        let log = log.clone();
        Router::new().route("/", move |x: &mut Exchange| -> Result<()> {
            let (error, complete) = (log.clone(), log.clone());
            x.on_error(move |_, reason: EndReason| error.note(format!("error {reason}")));
            x.on_complete(move |_, reason: EndReason| complete.note(format!("complete {reason}")));
            x.set_write_listener(Writing(log.clone()));
            x.start_async();
            if x.request().query() == Some("timeout") {
                x.set_timeout(Duration::from_millis(20));
                let timeout = log.clone();
                x.on_timeout(move |_: &mut Exchange| timeout.note("timeout"));
            }
            write_on(x, &log)
        })
    }
}

/// 43, as docs/lifecycle.md has it: the write listener if it is the answer's way that failed, the exchange's `on_error`,
/// its `on_complete`; each once, with one reason, and nothing behind them.
#[test]
fn fault_43_an_aborted_write_loop_is_told_in_one_order() {
    for_each_driver(|driver| {
        for (abort, reason) in [
            (Abort::Reset, "client_reset"),
            (Abort::Close, "client_reset"),
            (Abort::Timeout, "timed_out"),
            (Abort::Failure, "handler_failed"),
            (Abort::Shutdown, "shutdown"),
        ] {
            let log = Log::default();
            let (server, address) = serve(driver, write_loop(&log));
            let mut client = Client::connect(address);
            let query = match abort {
                Abort::Timeout => "?timeout",
                Abort::Failure => "?fail",
                _ => "",
            };
            client.send(format!("GET /{query} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(wait_for(DEADLINE, || log.has("waits")), "{driver}, {abort:?}");
            let mut server = Some(server);
            match abort {
                Abort::Reset => {
                    socket2::SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).expect("linger");
                    drop(client);
                }
                Abort::Close => drop(client),
                // Reads until its connection is cut.
                Abort::Timeout | Abort::Failure => drop(client.read_until_close()),
                Abort::Shutdown => end(server.take().expect("it runs")),
            }
            assert!(wait_for(DEADLINE, || log.has("complete")), "{driver}, {abort:?}: {:?}", log.take());
            server.into_iter().for_each(end);
            let mut noted = log.take();
            noted.retain(|text| text != "waits");
            let complete = format!("complete {reason}");
            let expected = match abort {
                // A timeout is no error: its own listener is called in place of the others (L-10).
                Abort::Timeout => vec!["timeout".into(), complete],
                // Nothing has failed on the way to the client.
                Abort::Shutdown => vec![format!("error {reason}"), complete],
                _ => vec![format!("listener {reason}"), format!("error {reason}"), complete],
            };
            assert_eq!(noted, expected, "{driver}, {abort:?}");
        }
    });
}

/// How many answers are asked for at once.
const BATCH: u64 = 16;

/// What answer `number` holds, in one to four parts.
fn parts(number: u64) -> Vec<String> {
    (0..1 + number % 4).map(|part| format!("<{number}.{part}>")).collect()
}

/// One step of an answer, run on its shard.
fn hand(context: &AsyncContext, step: impl Fn(&mut Exchange) -> Result<()> + Send + 'static) {
    let mut next = step;
    while let Err(undelivered) = context.executor().execute(next) {
        assert_eq!(undelivered.reason, UndeliveredReason::Full, "nobody else ends these answers");
        next = undelivered.task;
        thread::yield_now();
    }
}

/// Feeds answers on a thread that is no shard's: each part by a task, flushed or not, the end with the last part or by
/// a task of its own.
fn feed(waiting: &Receiver<(AsyncContext, u64)>) {
    for (context, number) in waiting {
        let (parts, shape) = (parts(number), number / 4);
        let (flushes, ends_alone) = (shape % 2 == 0, shape / 2 % 2 == 0);
        let count = parts.len();
        for (at, part) in parts.into_iter().enumerate() {
            let (flush, complete) = (at == 0 || flushes, at + 1 == count && !ends_alone);
            hand(&context, move |x: &mut Exchange| {
                x.write_copy(part.as_bytes())?;
                if flush {
                    x.flush()?;
                }
                if complete { x.complete() } else { Ok(()) }
            });
        }
        if ends_alone {
            hand(&context, |x: &mut Exchange| x.complete());
        }
    }
}

/// Asks for answers in batches of [`BATCH`] and reads each to its end; gives how many were in chunks.
fn ask(address: SocketAddr, numbers: std::ops::Range<u64>) -> u64 {
    let mut client = Client::connect(address);
    let (mut chunked, mut on_this) = (0, 0);
    for first in numbers.clone().step_by(BATCH as usize) {
        if on_this + BATCH > 10_000 {
            (client, on_this) = (Client::connect(address), 0);
        }
        on_this += BATCH;
        let batch = first..numbers.end.min(first + BATCH);
        let requests = batch.clone().map(|number| format!("GET /?{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.send(requests.collect::<String>());
        for number in batch {
            let answer = client.read_response();
            assert_eq!(answer.text(), parts(number).concat(), "answer {number}");
            chunked += u64::from(answer.field("transfer-encoding").is_some());
        }
    }
    chunked
}

/// 53: fed by foreign threads while the shard sends, each answer in chunks has its end. `SHARDLET_CHUNKED` says how
/// many on each driver.
#[test]
fn fault_53_answers_in_chunks_from_foreign_threads_always_have_their_end() {
    let count: u64 = std::env::var("SHARDLET_CHUNKED").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    for_each_driver(|driver| {
        let (tell, waiting) = crossbeam_channel::unbounded();
        let feeders: Vec<_> =
            (0..2).map(|_| waiting.clone()).map(|w| thread::spawn(move || feed(&w))).collect();
        let (server, address) = serve(driver, move |_| {
            let tell = tell.clone();
            Router::new().route("/", move |x: &mut Exchange| {
                let number = x.request().query().and_then(|text| text.parse().ok()).expect("a number");
                tell.send((x.start_async(), number)).expect("a feeder");
            })
        });
        let began = Instant::now();
        let clients: Vec<_> = (0..4)
            .map(|part| thread::spawn(move || ask(address, count * part / 4..count * (part + 1) / 4)))
            .collect();
        let chunked: u64 =
            clients.into_iter().map(|client| client.join().expect("every answer is whole")).sum();
        println!("{driver}: {count} answers, {chunked} in chunks, in {:?}", began.elapsed());
        assert!(chunked > count / 2, "{chunked} of {count} in chunks");
        end(server);
        feeders.into_iter().for_each(|feeder| feeder.join().expect("fed"));
    });
}
