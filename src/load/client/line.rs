//! The answers of one connection, sans-IO: requests that are on their way in order, bytes in, finished requests out.
//! Whatever a server sends, it ends in answers or in an error; nothing here waits, and what is kept of an answer
//! is bounded by the parser. Its neighbour `client` owns the socket.

use std::{collections::VecDeque, time::Duration};

use crate::{
    http1::response::{Asked, ResponseEvent, ResponseFrame, ResponseParser},
    load::{
        plan::Expect,
        record::{Answer, ErrorKind},
        schedule::Ticket,
    },
};

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    /// Its place in the schedule.
    pub(super) ticket: Ticket,
    /// Which of the run's requests it is.
    pub(super) request: u32,
    /// When it was handed to the socket.
    pub(super) sent: Duration,
    asked: Asked,
    first_byte: Option<Duration>,
    status: u16,
    bytes: u64,
    body_bytes: u64,
    body_hash: u64,
}

impl Flight {
    /// A request that is sent at `sent`.
    pub(super) fn new(ticket: Ticket, request: u32, asked: Asked, sent: Duration) -> Self {
        Self {
            ticket,
            request,
            sent,
            asked,
            first_byte: None,
            status: 0,
            bytes: 0,
            body_bytes: 0,
            body_hash: FNV_OFFSET,
        }
    }

    /// The times and sizes of the answer that was complete at `done`.
    pub(super) fn answer(&self, done: Duration) -> Answer {
        Answer {
            sent: self.sent,
            first_byte: self.first_byte.unwrap_or(done),
            done,
            status: self.status,
            bytes: self.bytes,
        }
    }

    /// What is wrong with a whole answer, if anything. `known_hash` is that of the first body for the same request.
    pub(super) fn unexpected(&self, expect: &Expect, known_hash: Option<u64>) -> Option<ErrorKind> {
        let right_status = expect.status.map_or(self.status < 400, |status| status == self.status);
        if !right_status {
            return Some(ErrorKind::Status);
        }
        let right_length = expect.length.is_none_or(|length| length == self.body_bytes);
        let right_hash = !expect.same_body || known_hash.is_none_or(|hash| hash == self.body_hash);
        (!(right_length && right_hash)).then_some(ErrorKind::Body)
    }

    /// A hash of the body (FNV-1a, 64 bits): tells bodies apart, no proof against forgery.
    pub(super) fn body_hash(&self) -> u64 {
        self.body_hash
    }
}

/// Whether the connection may be used on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Yes.
    Again,
    /// The server announced its end with the last answer.
    NoMore,
}

/// Requests on their way on one connection, and the parser of their answers.
#[derive(Debug)]
pub(super) struct Line {
    parser: ResponseParser,
    flights: VecDeque<Flight>,
    /// Bytes that are not yet a whole head or chunk line.
    kept: Vec<u8>,
    hashes: bool,
}

impl Line {
    /// A line without requests. `hashes`: whether bodies are hashed.
    pub(super) fn new(hashes: bool) -> Self {
        Self { parser: ResponseParser::new(), flights: VecDeque::new(), kept: Vec::new(), hashes }
    }

    /// A request follows the ones before it.
    pub(super) fn push(&mut self, flight: Flight) {
        if self.flights.is_empty() {
            self.parser.begin(flight.asked);
        }
        self.flights.push_back(flight);
    }

    /// The request that is to be answered next.
    pub(super) fn front(&self) -> Option<&Flight> {
        self.flights.front()
    }

    /// Bytes of the server. Requests that they complete are given to `done`, in order.
    ///
    /// # Errors
    /// `BadFraming` for what is no answer (what is on its way is then lost), `Extra` for an answer to nothing.
    pub(super) fn received(
        &mut self,
        input: &[u8],
        now: Duration,
        mut done: impl FnMut(Flight),
    ) -> Result<Use, ErrorKind> {
        if self.kept.is_empty() {
            let (used, outcome) = self.parse(input, now, &mut done);
            self.kept.extend_from_slice(&input[used..]);
            return outcome;
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(input);
        let (used, outcome) = self.parse(&kept, now, &mut done);
        kept.drain(..used);
        self.kept = kept;
        outcome
    }

    /// The server closed its side. Completes an answer that ends with the connection.
    pub(super) fn ended(&mut self) -> Option<Flight> {
        let has_begun = self.flights.front().is_some_and(|flight| flight.status != 0);
        if has_begun && self.parser.finish().is_ok() { self.flights.pop_front() } else { None }
    }

    /// Takes all requests that got no answer, with what became of each, and is as new.
    pub(super) fn drain(&mut self, cut: ErrorKind) -> impl Iterator<Item = (Flight, ErrorKind)> + '_ {
        self.kept.clear();
        self.parser = ResponseParser::new();
        self.flights.drain(..).enumerate().map(move |(at, flight)| {
            let has_begun = at == 0 && flight.first_byte.is_some();
            let kind = if cut == ErrorKind::Closed && has_begun { ErrorKind::ShortBody } else { cut };
            (flight, kind)
        })
    }

    fn parse(
        &mut self,
        input: &[u8],
        now: Duration,
        done: &mut impl FnMut(Flight),
    ) -> (usize, Result<Use, ErrorKind>) {
        let mut at = 0;
        // A step that consumed nothing and finished nothing is the last: more bytes are needed.
        while at < input.len() || self.flights.front().is_some_and(|flight| flight.status != 0) {
            let Some(flight) = self.flights.front_mut() else { return (at, Err(ErrorKind::Extra)) };
            flight.first_byte.get_or_insert(now);
            let rest = &input[at..];
            let Ok((used, event)) = self.parser.feed(rest) else { return (at, Err(ErrorKind::BadFraming)) };
            at += used;
            flight.bytes += used as u64;
            match event {
                ResponseEvent::NeedMore => return (at, Ok(Use::Again)),
                ResponseEvent::Interim(_) => {}
                ResponseEvent::Head(line) if line.frame == ResponseFrame::Switched => {
                    return (at, Err(ErrorKind::BadFraming));
                }
                ResponseEvent::Head(line) => flight.status = line.status,
                ResponseEvent::Data(range) => {
                    flight.body_bytes += range.len() as u64;
                    if self.hashes {
                        flight.body_hash = hash_on(flight.body_hash, &rest[range]);
                    }
                }
                ResponseEvent::End { keep_alive } => {
                    done(self.flights.pop_front().expect("it was there a moment ago"));
                    if let Some(next) = self.flights.front() {
                        self.parser.begin(next.asked);
                    }
                    if !keep_alive {
                        return (at, Ok(Use::NoMore));
                    }
                }
            }
        }
        (at, Ok(Use::Again))
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn hash_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(number: u64, asked: Asked) -> Flight {
        let zero = Duration::ZERO;
        let ticket = Ticket { number, connection: 0, intended: zero, ready: zero, measured: true };
        Flight::new(ticket, 0, asked, zero)
    }

    fn line(requests: u64) -> Line {
        let mut line = Line::new(true);
        (0..requests).for_each(|number| line.push(flight(number, Asked::Usual)));
        line
    }

    type Outcome = (Vec<(u64, u16, u64)>, Result<Use, ErrorKind>);

    /// Feeds in pieces of `step` bytes, as a network may.
    fn feed(line: &mut Line, bytes: &[u8], step: usize) -> Outcome {
        let (mut done, mut outcome) = (Vec::new(), Ok(Use::Again));
        for piece in bytes.chunks(step) {
            outcome = line.received(piece, Duration::from_millis(1), |flight| {
                done.push((flight.ticket.number, flight.status, flight.body_bytes));
            });
            if outcome != Ok(Use::Again) {
                break;
            }
        }
        (done, outcome)
    }

    #[test]
    fn answers_come_in_order_however_they_are_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello\
            HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\
            HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
            HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let wanted = vec![(0, 200, 5), (1, 204, 0), (2, 200, 3), (3, 404, 0)];
        for step in [1, 2, 7, 64, bytes.len()] {
            let mut line = line(4);
            assert_eq!(feed(&mut line, bytes, step), (wanted.clone(), Ok(Use::Again)), "step {step}");
            assert!(line.flights.is_empty() && line.kept.is_empty());
        }
    }

    #[test]
    fn head_answers_have_no_body() {
        let mut line = Line::new(false);
        line.push(flight(0, Asked::Head));
        line.push(flight(1, Asked::Usual));
        let bytes =
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
        assert_eq!(feed(&mut line, bytes, 5).0, [(0, 200, 0), (1, 200, 1)]);
    }

    #[test]
    fn garbage_and_answers_to_nothing_end_the_connection() {
        for bytes in [
            &b"SSH-2.0-OpenSSH_9\r\n"[..],
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        ] {
            let (done, outcome) = feed(&mut line(1), bytes, bytes.len());
            assert_eq!((done.len(), outcome), (0, Err(ErrorKind::BadFraming)), "{bytes:?}");
        }
        let twice = b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(feed(&mut line(1), twice, twice.len()).1, Err(ErrorKind::Extra));
    }

    #[test]
    fn the_end_of_the_connection_ends_or_cuts_the_answer() {
        let mut whole = line(2);
        assert_eq!(feed(&mut whole, b"HTTP/1.0 200 OK\r\n\r\nall of it", 4).1, Ok(Use::Again));
        assert_eq!(whole.ended().map(|flight| flight.body_bytes), Some(9));
        let kinds: Vec<ErrorKind> = whole.drain(ErrorKind::Closed).map(|(_, kind)| kind).collect();
        assert_eq!(kinds, [ErrorKind::Closed]);
        let mut cut = line(2);
        let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf";
        assert_eq!(feed(&mut cut, half, 4).1, Ok(Use::Again));
        assert!(cut.ended().is_none());
        let kinds: Vec<ErrorKind> = cut.drain(ErrorKind::Closed).map(|(_, kind)| kind).collect();
        assert_eq!(kinds, [ErrorKind::ShortBody, ErrorKind::Closed]);
    }

    #[test]
    fn a_server_that_says_close_is_not_used_on() {
        let bytes = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let mut line = line(2);
        assert_eq!(feed(&mut line, bytes, 10), (vec![(0, 200, 0)], Ok(Use::NoMore)));
        assert_eq!(line.drain(ErrorKind::Closed).count(), 1);
    }

    #[test]
    fn expectations_are_held() {
        let mut line = line(1);
        let mut got = None;
        let bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        line.received(bytes, Duration::ZERO, |flight| got = Some(flight)).expect("an answer");
        let flight = got.expect("complete");
        let none = Expect::default();
        assert_eq!(flight.unexpected(&none, Some(1)), None);
        assert_eq!(flight.unexpected(&Expect { status: Some(404), ..none }, None), Some(ErrorKind::Status));
        assert_eq!(flight.unexpected(&Expect { length: Some(4), ..none }, None), Some(ErrorKind::Body));
        let same = Expect { same_body: true, ..none };
        assert_eq!(flight.unexpected(&same, Some(1)), Some(ErrorKind::Body));
        assert_eq!(flight.unexpected(&same, Some(flight.body_hash())), None);
    }
}
