//! The client against servers of every bad habit, in a simulated world: no socket, no waiting, simulated time.

use std::cell::Cell;

use bytes::Bytes;
use crossbeam_channel::bounded;
use http::Method;
use shards::{
    net::{AcceptEvents, Listener, Socket, Stream},
    testing::{SimFaults, Simulation},
};

use super::*;
use crate::load::{record::Measure, requests::Common};

const PORT: &str = "127.0.0.1:80";

/// What a server does with a connection's requests.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Habit {
    /// Answers after this long.
    Serve(Duration),
    /// Answers this many requests of a connection, the last with `Connection: close`.
    CloseAfter(u32),
    /// Closes without a word.
    CloseAtOnce,
    /// Resets in the middle of a body.
    Reset,
    /// Closes in the middle of a body.
    Short,
    /// Sends what is no HTTP.
    Garbage,
    /// Says nothing.
    Silent,
    /// Answers twice for each request.
    Twice,
    /// Answers 503.
    Refuse,
    /// A body that differs each time.
    Changing,
    /// 1 ms; 10 ms for more than one in a hundred, 100 ms for more than one in a thousand.
    Known,
    /// Nothing between these two times.
    Freeze(Duration, Duration),
}

struct Server {
    habit: Habit,
    served: Rc<Cell<u64>>,
}

impl AcceptEvents for Server {
    fn on_accepted(&self, shard: &Shard, socket: Socket) {
        let (habit, served) = (self.habit, self.served.clone());
        shard.spawn(serve(Stream::new(socket), habit, served));
    }
}

async fn serve(stream: Stream, habit: Habit, served: Rc<Cell<u64>>) {
    let (mut unread, mut answered) = (Vec::new(), 0);
    while let Ok(Some(lease)) = stream.read().await {
        unread.extend_from_slice(&lease);
        while let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            unread.drain(..end + 4);
            answered += 1;
            served.set(served.get() + 1);
            if !answer(&stream, habit, answered, served.get()).await {
                return;
            }
        }
    }
}

/// Answers whether the connection goes on.
async fn answer(stream: &Stream, habit: Habit, answered: u32, served: u64) -> bool {
    let now = Shard::current().now();
    let ok = |body: &str, more: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{more}\r\n{body}", body.len()).into_bytes()
    };
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of it".to_vec();
    let (bytes, goes_on) = match habit {
        Habit::Serve(delay) => {
            shards::time::sleep(delay).await;
            (ok("hello", ""), true)
        }
        Habit::Known => {
            shards::time::sleep(known_delay(served)).await;
            // The timer rounds up; what it has kept is what must be told.
            KEPT.with_borrow_mut(|kept| kept.push(Shard::current().now() - now));
            (ok("hello", ""), true)
        }
        Habit::CloseAfter(count) if answered >= count => (ok("bye", "connection: close\r\n"), false),
        Habit::CloseAfter(_) => (ok("hello", ""), true),
        Habit::CloseAtOnce => return false,
        Habit::Reset => {
            let _ = stream.write_all(half).await;
            stream.socket().reset_on_close();
            return false;
        }
        Habit::Short => (half, false),
        Habit::Garbage => (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), true),
        Habit::Silent => return true,
        Habit::Twice => ([ok("a", ""), ok("b", "")].concat(), true),
        Habit::Refuse => (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec(), true),
        Habit::Changing => (ok(&format!("{:05}", served % 2), ""), true),
        Habit::Freeze(from, to) => {
            if now >= from && now < to {
                shards::time::sleep_until(to).await;
            }
            (ok("hello", ""), true)
        }
    };
    stream.write_all(bytes).await.is_ok() && goes_on
}

thread_local! {
    /// The delays that the servers of this test's thread have kept.
    static KEPT: RefCell<Vec<Duration>> = const { RefCell::new(Vec::new()) };
}

fn known_delay(number: u64) -> Duration {
    Duration::from_millis(match number % 1_000 {
        500 | 750 => 100,
        n if n % 70 == 0 => 10,
        _ => 1,
    })
}

struct Run {
    options: ClientOptions,
    faults: SimFaults,
    events: Receiver<Event>,
}

fn requests(keep_alive: bool) -> Arc<[Request]> {
    let common = Common {
        method: Method::GET,
        authority: "sim".to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
        keep_alive,
    };
    Arc::from([common.request(&Method::GET, "/")])
}

/// 100 requests a second for 2 s after 0.5 s of warm-up, on 4 connections.
fn usual() -> Run {
    let (events, received) = bounded(1_000);
    let options = ClientOptions {
        address: PORT.parse().expect("an address"),
        requests: requests(true),
        expect: Expect::default(),
        keep_alive: true,
        timeout: Duration::from_millis(500),
        schedule: ScheduleOptions {
            pace: Pace::Open { rate: 100.0 },
            connections: 4,
            pipeline: 1,
            warm_up: Duration::from_millis(500),
            time: Duration::from_secs(2),
            shard: (0, 1),
        },
        interval: Duration::from_millis(100),
        events,
        spares: bounded(1).1,
    };
    Run { options, faults: SimFaults::default(), events: received }
}

impl Run {
    fn against(self, habit: Option<Habit>) -> (Recorder, ClientEnd) {
        let world = Simulation::with(7, 1, self.faults);
        let served = Rc::new(Cell::new(0));
        let listener = habit.map(|habit| {
            let server = Rc::new(Server { habit, served: served.clone() });
            world.on(0, |shard| {
                Listener::bind(shard, &PORT.parse().expect("an address"), server).expect("binds")
            })
        });
        let client = world.on(0, |shard| Client::start(shard, self.options.clone()));
        assert!(
            world.run_until(Duration::from_secs(5), || !self.events.is_empty()),
            "tells that it is ready"
        );
        let start = world.now() + Duration::from_millis(1);
        world.on(0, |_| client.begin(start));
        let end: Rc<RefCell<Option<ClientEnd>>> = Rc::default();
        let place = end.clone();
        world.on(0, |shard| shard.spawn(async move { *place.borrow_mut() = Some(client.finished().await) }));
        let limit = self.options.schedule.time + Duration::from_secs(20);
        assert!(world.run_until(limit, || end.borrow().is_some()), "ends, whatever the server does");
        drop(listener);
        let end = end.borrow_mut().take().expect("just seen");
        let mut sum = Recorder::new();
        for event in self.events.try_iter() {
            if let Event::Interval { recorder, .. } = event {
                sum.add(&recorder);
            }
        }
        sum.add(&end.rest);
        // Whatever happened: every request that was due is accounted for, once.
        if let Pace::Open { rate } = self.options.schedule.pace {
            let due = (rate * self.options.schedule.time.as_secs_f64()).round() as u64;
            assert_eq!(sum.counters().requests(), due, "{:?}", sum.counters());
        }
        (sum, end)
    }
}

fn only(sum: &Recorder, kind: ErrorKind) {
    for other in ErrorKind::ALL.into_iter().filter(|other| *other != kind && *other != ErrorKind::NotSent) {
        assert_eq!(sum.counters().errors_of(other), 0, "{} beside {}", other.name(), kind.name());
    }
    assert!(sum.counters().errors_of(kind) > 0, "no {}: {:?}", kind.name(), sum.counters());
}

#[test]
fn a_good_server_is_measured_without_an_error() {
    let (sum, end) = usual().against(Some(Habit::Serve(Duration::from_millis(3))));
    assert_eq!((sum.counters().answered, sum.counters().failed()), (200, 0));
    assert_eq!(sum.counters().warm_up, 50);
    assert_eq!(sum.measure(Measure::Connect).count(), 4);
    let p50 = sum.measure(Measure::Response).quantile(0.5);
    assert!(p50 >= Duration::from_millis(3) && p50 < Duration::from_millis(6), "{p50:?}");
    assert_eq!(sum.measure(Measure::Lateness).max(), Duration::ZERO, "simulated time has no lateness");
    assert!(end.last_answer > Duration::from_millis(1_980) && end.last_answer < Duration::from_millis(2_100));
}

/// In simulated time nothing disturbs: what is off is the tool's own error. Over real sockets: `tests/bench_accuracy.rs`.
#[test]
fn known_delays_are_told_within_one_percent() {
    let mut run = usual();
    run.options.schedule = ScheduleOptions {
        pace: Pace::Open { rate: 1_000.0 },
        connections: 128,
        time: Duration::from_secs(4),
        warm_up: Duration::ZERO,
        ..run.options.schedule
    };
    let way = Duration::from_micros(10);
    run.faults =
        SimFaults { latency_min: way, latency_max: way, segment_bytes_max: 4_096, ..SimFaults::default() };
    let (sum, _) = run.against(Some(Habit::Known));
    let mut delays = KEPT.take();
    assert_eq!(delays.len(), 4_000);
    delays.sort_unstable();
    for quantile in [0.5, 0.9, 0.98, 0.99, 0.998, 0.999, 1.0] {
        let was = delays[((delays.len() as f64 * quantile).ceil() as usize).max(1) - 1];
        for measure in [Measure::Response, Measure::Service] {
            let said = sum.measure(measure).quantile(quantile);
            let error = said.abs_diff(was + way * 2);
            let allowed = was / 100 + Duration::from_micros(50);
            assert!(error <= allowed, "{quantile}: {said:?} for {was:?} in {}", measure.name());
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut run = usual();
    run.options.schedule = ScheduleOptions { pipeline: 4, connections: 1, ..run.options.schedule };
    let (sum, _) = run.against(Some(Habit::Serve(Duration::from_millis(5))));
    assert_eq!((sum.counters().answered, sum.counters().failed()), (200, 0));
}

#[test]
fn a_connection_closed_after_its_answer_is_replaced_without_an_error() {
    let (sum, _) = usual().against(Some(Habit::CloseAfter(3)));
    assert_eq!((sum.counters().answered, sum.counters().failed()), (200, 0));
    assert!(sum.measure(Measure::Connect).count() > 50);
}

#[test]
fn without_keep_alive_every_request_has_its_connection() {
    for habit in [Habit::CloseAfter(1), Habit::Serve(Duration::ZERO)] {
        let mut run = usual();
        run.options = ClientOptions { keep_alive: false, requests: requests(false), ..run.options };
        let (sum, _) = run.against(Some(habit));
        assert_eq!((sum.counters().answered, sum.counters().failed()), (200, 0), "{habit:?}");
        assert_eq!(sum.measure(Measure::Connect).count(), 250, "{habit:?}");
    }
}

#[test]
fn every_bad_habit_has_its_name_and_none_stalls_the_tool() {
    for (habit, kind) in [
        (Habit::CloseAtOnce, ErrorKind::Closed),
        (Habit::Reset, ErrorKind::Reset),
        (Habit::Short, ErrorKind::ShortBody),
        (Habit::Garbage, ErrorKind::BadFraming),
        (Habit::Silent, ErrorKind::Timeout),
        (Habit::Refuse, ErrorKind::Status),
    ] {
        for keep_alive in [true, false] {
            let mut run = usual();
            run.options = ClientOptions { keep_alive, requests: requests(keep_alive), ..run.options };
            run.options.schedule.warm_up = Duration::ZERO;
            let (sum, _) = run.against(Some(habit));
            only(&sum, kind);
        }
    }
}

#[test]
fn an_answer_too_many_ends_the_connection_and_loses_nothing() {
    let (sum, _) = usual().against(Some(Habit::Twice));
    assert!(sum.counters().errors_of(ErrorKind::Extra) >= 200, "{:?}", sum.counters());
    assert_eq!((sum.counters().answered, sum.counters().failed()), (200, 0));
}

#[test]
fn bodies_that_should_be_the_same_are_compared() {
    let mut run = usual();
    run.options.expect.same_body = true;
    let (sum, _) = run.against(Some(Habit::Changing));
    only(&sum, ErrorKind::Body);
    assert_eq!(sum.counters().answered, 200);
}

#[test]
fn nobody_listens() {
    let (sum, _) = usual().against(None);
    assert_eq!(sum.counters().errors_of(ErrorKind::NotSent), 200);
    let attempts = sum.counters().errors_of(ErrorKind::Connect);
    assert!((1..200).contains(&attempts), "tries again, and not without end: {attempts}");
}

#[test]
fn a_frozen_server_is_charged_with_what_would_have_come() {
    let mut run = usual();
    run.options.timeout = Duration::from_secs(10);
    run.options.schedule = ScheduleOptions {
        pace: Pace::Open { rate: 500.0 },
        connections: 64,
        time: Duration::from_secs(10),
        ..run.options.schedule
    };
    let from = Duration::from_secs(3);
    let (sum, _) = run.against(Some(Habit::Freeze(from, from + Duration::from_millis(4_900))));
    let response = sum.measure(Measure::Response);
    let seconds = |quantile| response.quantile(quantile).as_secs_f64();
    assert_eq!(response.count(), 5_000);
    assert!((seconds(0.75) - 2.5).abs() < 0.3, "{}", seconds(0.75));
    assert!((seconds(1.0) - 5.0).abs() < 0.2, "{}", seconds(1.0));
    assert!(seconds(0.5) < 0.002, "{}", seconds(0.5));
    let service = sum.measure(Measure::Service);
    // Only the 64 that were on their way waited long.
    assert!(service.quantile(0.98) < Duration::from_millis(2), "service time alone hides it");
}

#[test]
fn a_network_that_cuts_everything_in_pieces_changes_nothing() {
    let mut run = usual();
    run.faults = SimFaults { short_send: 0.5, ..SimFaults::default() };
    let (sum, _) = run.against(Some(Habit::Serve(Duration::from_millis(1))));
    assert_eq!((sum.counters().answered, sum.counters().failed()), (200, 0));
}

#[test]
fn a_closed_loop_sends_when_a_connection_is_free() {
    let mut run = usual();
    run.options.schedule.pace = Pace::Closed;
    let (sum, _) = run.against(Some(Habit::Serve(Duration::from_millis(10))));
    // Four connections, 10 ms and a little each, for 2 s.
    let answered = sum.counters().answered;
    assert!((600..=800).contains(&answered), "{answered}");
}
