//! What came back, counted: latency histograms side by side, answers by status class, errors by kind. One
//! [`Recorder`] a generator shard and one for the whole run; they add up. Constant size however long the run.
//! It asks no clock and judges nothing (`health`, `compare` do).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schedule::Ticket;
use crate::metrics::histogram::LatencyHistogram;

/// Why a request brought no good answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// No connection.
    Connect,
    /// No whole answer in time. The time waited is in the response times.
    Timeout,
    /// The peer reset the connection.
    Reset,
    /// The peer closed the connection before an answer began.
    Closed,
    /// The body ended before its length.
    ShortBody,
    /// Bytes that are no HTTP answer.
    BadFraming,
    /// A whole answer with a status that was not expected.
    Status,
    /// A whole answer with a body that was not expected.
    Body,
    /// Due, and no connection came free before the run gave up.
    NotSent,
    /// Bytes that answer nothing, behind an answer or before a request. They end the connection, and no request is lost.
    Extra,
}

impl ErrorKind {
    /// All kinds, in the order of `errors`.
    pub const ALL: [Self; 10] = [
        Self::Connect,
        Self::Timeout,
        Self::Reset,
        Self::Closed,
        Self::ShortBody,
        Self::BadFraming,
        Self::Status,
        Self::Body,
        Self::NotSent,
        Self::Extra,
    ];

    /// The name in reports and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::ShortBody => "short_body",
            Self::BadFraming => "bad_framing",
            Self::Status => "status",
            Self::Body => "body",
            Self::NotSent => "not_sent",
            Self::Extra => "extra",
        }
    }
}

/// When things happened to one request, counted from the start of the run, and what was answered.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// When its bytes were handed to the socket.
    pub sent: Duration,
    /// When the first byte of the answer was there.
    pub first_byte: Duration,
    /// When its last byte was there.
    pub done: Duration,
    /// The status code.
    pub status: u16,
    /// Bytes of the answer, head and body.
    pub bytes: u64,
}

/// The histograms of a run, by the name they have in every file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// From the intended send time to the last byte: what a user waits.
    Response,
    /// From the real send to the last byte: what the server took for the requests it was sent.
    Service,
    /// From the real send to the first byte of the answer.
    FirstByte,
    /// From the start of a connection to its establishment.
    Connect,
    /// How late the generator itself sent: from the moment a request was due and a connection free.
    Lateness,
}

impl Measure {
    /// All of them; the first is the one that reports show.
    pub const ALL: [Self; 5] =
        [Self::Response, Self::Service, Self::FirstByte, Self::Connect, Self::Lateness];

    /// The name in files, and the tag in an interval log (the response has none there).
    pub fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Service => "service",
            Self::FirstByte => "first_byte",
            Self::Connect => "connect",
            Self::Lateness => "lateness",
        }
    }
}

/// Plain sums of a run or an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Whole answers, whatever their status.
    pub answered: u64,
    /// Bytes of all answers.
    pub bytes: u64,
    /// Requests of the warm-up that came back; they are in nothing else.
    pub warm_up: u64,
    /// Failures in the order of [`ErrorKind::ALL`].
    pub errors: [u64; ErrorKind::ALL.len()],
    /// Answers by class: 1xx to 5xx, then anything else.
    pub classes: [u64; CLASSES],
}

/// Status classes told apart.
pub const CLASSES: usize = 6;
/// Their names.
pub const CLASS_NAMES: [&str; CLASSES] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

impl Counters {
    /// Failures of all kinds.
    pub fn errors_total(&self) -> u64 {
        self.errors.iter().sum()
    }

    /// Requests accounted for, each once: answered (also with what was not expected), or failed. Failed attempts to
    /// connect and bytes that answer nothing are no requests: one that got no connection at all is counted as not sent.
    pub fn requests(&self) -> u64 {
        let answered_unwanted = self.errors_of(ErrorKind::Status) + self.errors_of(ErrorKind::Body);
        self.answered + self.failed() - answered_unwanted
    }

    /// Requests that brought no answer, or not the expected one.
    pub fn failed(&self) -> u64 {
        self.errors_total() - self.errors_of(ErrorKind::Connect) - self.errors_of(ErrorKind::Extra)
    }

    /// Failures of one kind.
    pub fn errors_of(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize]
    }

    /// The share of requests that failed, 0 to 1.
    pub fn error_share(&self) -> f64 {
        self.failed() as f64 / self.requests().max(1) as f64
    }

    /// Adds another's sums.
    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.bytes += other.bytes;
        self.warm_up += other.warm_up;
        self.errors.iter_mut().zip(other.errors).for_each(|(own, more)| *own += more);
        self.classes.iter_mut().zip(other.classes).for_each(|(own, more)| *own += more);
    }
}

/// Histograms and counters.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    measures: [LatencyHistogram; Measure::ALL.len()],
    /// Response times by status class, made when the class is first seen.
    classes: [Option<Box<LatencyHistogram>>; CLASSES],
    counters: Counters,
}

impl Recorder {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a whole answer.
    pub fn answered(&mut self, ticket: &Ticket, answer: &Answer) {
        if !ticket.measured {
            self.counters.warm_up += 1;
            return;
        }
        let response = answer.done.saturating_sub(ticket.intended);
        self.measure_mut(Measure::Response).record(response);
        self.measure_mut(Measure::Service).record(answer.done.saturating_sub(answer.sent));
        self.measure_mut(Measure::FirstByte).record(answer.first_byte.saturating_sub(answer.sent));
        let class = class_of(answer.status);
        self.class_mut(class).record(response);
        self.counters.classes[class] += 1;
        self.counters.answered += 1;
        self.counters.bytes += answer.bytes;
    }

    /// Counts how late the generator handed a request to the socket at `sent`.
    pub fn sent(&mut self, ticket: &Ticket, sent: Duration) {
        if ticket.measured {
            self.measure_mut(Measure::Lateness).record(sent.saturating_sub(ticket.ready));
        }
    }

    /// Counts a request that failed at `now`. The wait of one that timed out is a response time like any other:
    /// leaving it out would make a server that drops its slowest requests look fast.
    pub fn failed(&mut self, ticket: &Ticket, kind: ErrorKind, now: Duration) {
        if !ticket.measured {
            self.counters.warm_up += 1;
            return;
        }
        self.counters.errors[kind as usize] += 1;
        if kind == ErrorKind::Timeout {
            self.measure_mut(Measure::Response).record(now.saturating_sub(ticket.intended));
        }
    }

    /// Counts failures that belong to no request handed out: connects refused, requests never sent, bytes too many.
    pub fn failed_without_ticket(&mut self, kind: ErrorKind, times: u64) {
        self.counters.errors[kind as usize] += times;
    }

    /// Counts an established connection.
    pub fn connected(&mut self, took: Duration) {
        self.measure_mut(Measure::Connect).record(took);
    }

    /// Adds all counts of another.
    pub fn add(&mut self, other: &Self) {
        self.measures.iter_mut().zip(&other.measures).for_each(|(own, more)| own.add(more));
        for (class, more) in other.classes.iter().enumerate() {
            if let Some(more) = more.as_ref().filter(|more| !more.is_empty()) {
                self.class_mut(class).add(more);
            }
        }
        self.counters.add(&other.counters);
    }

    /// Adds sums that were saved beside the histograms.
    pub fn add_counters(&mut self, counters: &Counters) {
        self.counters.add(counters);
    }

    /// Forgets all counts and keeps the memory.
    pub fn clear(&mut self) {
        self.measures.iter_mut().for_each(LatencyHistogram::clear);
        self.classes.iter_mut().flatten().for_each(|class| class.clear());
        self.counters = Counters::default();
    }

    /// One histogram.
    pub fn measure(&self, measure: Measure) -> &LatencyHistogram {
        &self.measures[measure as usize]
    }

    /// One histogram, for adding what was read from a file.
    pub fn measure_mut(&mut self, measure: Measure) -> &mut LatencyHistogram {
        &mut self.measures[measure as usize]
    }

    /// Response times of one status class (0 is 1xx), where answers of that class came.
    pub fn class(&self, class: usize) -> Option<&LatencyHistogram> {
        self.classes[class].as_deref().filter(|histogram| !histogram.is_empty())
    }

    /// Response times of one status class, for adding what was read from a file.
    pub fn class_mut(&mut self, class: usize) -> &mut LatencyHistogram {
        self.classes[class].get_or_insert_default()
    }

    /// The plain sums.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

fn class_of(status: u16) -> usize {
    match status {
        100..=599 => usize::from(status / 100) - 1,
        _ => CLASSES - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(intended_ms: u64, measured: bool) -> Ticket {
        let at = Duration::from_millis(intended_ms);
        Ticket { number: 0, connection: 0, intended: at, ready: at, measured }
    }

    fn answer(sent_ms: u64, done_ms: u64, status: u16) -> Answer {
        let at = Duration::from_millis;
        Answer { sent: at(sent_ms), first_byte: at(done_ms - 1), done: at(done_ms), status, bytes: 100 }
    }

    #[test]
    fn response_counts_from_the_intended_time_and_service_from_the_real_one() {
        let mut recorder = Recorder::new();
        recorder.sent(&ticket(10, true), Duration::from_millis(30));
        recorder.answered(&ticket(10, true), &answer(30, 35, 204));
        let near = |measure, ms: f64| {
            let seen = recorder.measure(measure).max().as_secs_f64() * 1e3;
            assert!((seen / ms - 1.0).abs() < 0.001, "{measure:?}: {seen} ms for {ms}");
        };
        near(Measure::Response, 25.0);
        near(Measure::Service, 5.0);
        near(Measure::FirstByte, 4.0);
        near(Measure::Lateness, 20.0);
        assert_eq!(recorder.counters().classes, [0, 1, 0, 0, 0, 0]);
        assert!(recorder.class(1).is_some() && recorder.class(4).is_none());
    }

    #[test]
    fn warm_up_is_in_no_histogram() {
        let mut recorder = Recorder::new();
        recorder.sent(&ticket(0, false), Duration::from_millis(1));
        recorder.answered(&ticket(0, false), &answer(1, 2, 200));
        recorder.failed(&ticket(0, false), ErrorKind::Timeout, Duration::from_secs(1));
        assert_eq!(recorder.counters().warm_up, 2);
        assert_eq!(recorder.counters().requests(), 0);
        assert!(Measure::ALL.iter().all(|measure| recorder.measure(*measure).is_empty()));
    }

    #[test]
    fn a_timeout_is_an_error_and_its_wait_is_a_response_time() {
        let mut recorder = Recorder::new();
        recorder.failed(&ticket(0, true), ErrorKind::Timeout, Duration::from_secs(2));
        recorder.failed(&ticket(0, true), ErrorKind::Reset, Duration::from_secs(2));
        assert_eq!(recorder.measure(Measure::Response).count(), 1);
        assert_eq!(recorder.counters().errors_total(), 2);
        assert_eq!(recorder.counters().error_share(), 1.0);
    }

    #[test]
    fn an_unexpected_answer_is_one_request_and_one_error() {
        let mut recorder = Recorder::new();
        recorder.answered(&ticket(0, true), &answer(0, 1, 500));
        recorder.failed(&ticket(0, true), ErrorKind::Status, Duration::from_millis(1));
        assert_eq!(recorder.counters().requests(), 1);
        assert_eq!(recorder.counters().error_share(), 1.0);
    }

    #[test]
    fn recorders_add_up_and_clear() {
        let mut sum = Recorder::new();
        let mut one = Recorder::new();
        one.answered(&ticket(0, true), &answer(0, 5, 503));
        one.failed_without_ticket(ErrorKind::NotSent, 3);
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.counters().answered, sum.counters().requests()), (2, 8));
        assert_eq!(sum.class(4).map(LatencyHistogram::count), Some(2));
        one.clear();
        assert_eq!(*one.counters(), Counters::default());
        assert!(one.class(4).is_none());
    }

    #[test]
    fn error_kinds_index_their_own_counter() {
        for (at, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{}", kind.name());
        }
        for (at, measure) in Measure::ALL.into_iter().enumerate() {
            assert_eq!(measure as usize, at, "{}", measure.name());
        }
    }
}
