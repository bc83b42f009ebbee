//! A whole HTTP/1 server as a function from octets to answers, made of the codec alone, and the cases it must pass.
//!
//! The model answers as the echo contract says: `GET /` 200, `POST /echo` with its content, 404, 405, 501. It drives
//! `parse_resumable`, `BodyDecoder`, `Cycle` and `HeadTemplate` as the connection does, and it reads its own output
//! back through `ResponseParser`. Each case runs in one piece and byte by byte; both must give the same answers.

use super::response::{Asked, ResponseEvent, ResponseParser};
use super::*;
use crate::limits::Limits;

/// What a peer sees: statuses with content, and whether the connection was closed.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(super) struct Seen {
    pub(super) answers: Vec<(u16, Vec<u8>)>,
    pub(super) closed: bool,
}

/// One connection.
struct Model {
    limits: Limits,
    cycle: Cycle,
    scan: HeadScan,
    index: HeadIndex,
    body: BodyDecoder,
    template: HeadTemplate,
    input: Vec<u8>,
    output: Vec<u8>,
    asked: Vec<Asked>,
    /// The request whose answer waits for its content: sequence, reply form.
    waiting: Option<(u32, ReplyTo)>,
    content: Vec<u8>,
}

impl Model {
    fn new() -> Model {
        let limits = Limits::DEFAULT;
        Model {
            limits,
            cycle: Cycle::new(&limits),
            scan: HeadScan::new(),
            index: HeadIndex::default(),
            body: BodyDecoder::new((&limits).into()),
            template: HeadTemplate::new("shardlet", 784_111_777),
            input: Vec::new(),
            output: Vec::new(),
            asked: Vec::new(),
            waiting: None,
            content: Vec::new(),
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let before = (self.input.len(), self.cycle.phase());
            match self.cycle.phase() {
                Phase::Idle | Phase::Head => self.read_head(),
                Phase::Body | Phase::LastBody | Phase::Drain => self.read_content(),
                _ => self.input.clear(),
            }
            if (self.input.len(), self.cycle.phase()) == before || self.input.is_empty() {
                break;
            }
        }
        let _ = self.cycle.output_flushed();
    }

    fn read_head(&mut self) {
        if self.input.is_empty() {
            return;
        }
        let _ = self.cycle.head_began();
        match parse_resumable(&mut self.scan, &self.input, &mut self.index, &self.limits) {
            Ok(Parsed::Partial) => {}
            Ok(Parsed::Complete { head_len }) => self.take(head_len),
            Err(reject) => self.refuse_head(reject),
        }
    }

    fn refuse_head(&mut self, reject: Reject) {
        assert!(self.cycle.refused().contains(Actions::ANSWER_REFUSAL));
        let is_head = self.input.starts_with(b"HEAD ");
        self.asked.push(if is_head { Asked::Head } else { Asked::Usual });
        self.template.encode_reject(&mut self.output, reject, &self.input);
        let _ = self.cycle.answer_ended(false);
    }

    fn take(&mut self, head_len: usize) {
        let bytes: Vec<u8> = self.input.drain(..head_len).collect();
        let head = Head::new(&bytes, &self.index);
        let sequence = self.cycle.taken();
        let _ = self.cycle.request_taken(head.framing());
        self.asked.push(if head.method_kind() == Method::Head { Asked::Head } else { Asked::Usual });
        let over = self.body.begin(head.body(), self.limits.body_bytes_max);
        let persists = self.cycle.may_persist(sequence, self.body.unread());
        let to = ReplyTo::new(head, persists);
        let status = over.map_or_else(|reject| reject.status(), |()| route(head));
        self.content.clear();
        if status == 200 && head.body() != BodyKind::None {
            self.waiting = Some((sequence, to));
            if self.cycle.take_continue(sequence) {
                encode::encode_continue(&mut self.output);
            }
            return;
        }
        let to = ReplyTo { persistent: persists && status != 413, ..to };
        let content: &[u8] = if head.path() == "/" { b"hello" } else { b"" };
        self.answer(status, content, to);
    }

    fn answer(&mut self, status: u16, content: &[u8], to: ReplyTo) {
        let fields = FieldLines::new();
        let head = ResponseHead { status, fields: &fields, content: Content::Length(content.len() as u64) };
        let announced = self.template.encode_head(&mut self.output, &head, to);
        if announced.frame != ContentFrame::None {
            self.output.extend_from_slice(content);
        }
        let _ = self.cycle.answer_ended(announced.persistent);
    }

    fn read_content(&mut self) {
        let result = self.body.decode(&self.input);
        match result {
            Ok((used, event)) => {
                if let BodyEvent::Data(range) = &event {
                    self.content.extend_from_slice(&self.input[range.clone()]);
                    self.cycle.content_received();
                }
                self.input.drain(..used);
                let _ = self.cycle.discarded(used as u64);
                if self.body.is_ended() {
                    let _ = self.cycle.content_ended();
                    if let Some((_, to)) = self.waiting.take() {
                        let content = core::mem::take(&mut self.content);
                        self.answer(200, &content, to);
                    }
                }
            }
            Err(reject) => {
                let _ = self.cycle.refused();
                if self.waiting.take().is_some() {
                    self.template.encode_reject(&mut self.output, reject, b"");
                    let _ = self.cycle.answer_ended(false);
                }
            }
        }
    }

    fn finish(&mut self) {
        let _ = self.cycle.peer_finished();
        if self.waiting.take().is_some() {
            self.template.encode_reject(&mut self.output, Reject::Truncated, b"");
            let _ = self.cycle.answer_ended(false);
        }
        let _ = self.cycle.output_flushed();
    }

    /// Reads the output as a client does.
    fn seen(&self) -> Seen {
        let mut answers = Vec::new();
        let mut rest = &self.output[..];
        for &asked in &self.asked {
            if rest.is_empty() {
                break;
            }
            let mut parser = ResponseParser::new();
            parser.begin(asked);
            answers.push((0, Vec::new()));
            loop {
                let (used, event) = parser.feed(rest).expect("our own answers are well-formed");
                let (status, content) = answers.last_mut().unwrap();
                match event {
                    ResponseEvent::Head(line) => *status = line.status,
                    ResponseEvent::Data(ref range) => content.extend_from_slice(&rest[range.clone()]),
                    // Only a 100 may be without its final response, as long as the content has not come.
                    ResponseEvent::NeedMore if *status == 0 => {
                        answers.pop();
                        break;
                    }
                    ResponseEvent::NeedMore => panic!("cut short: {}", self.output.escape_ascii()),
                    ResponseEvent::Interim(line) => assert_eq!(line.status, 100),
                    ResponseEvent::End { .. } => {}
                }
                rest = &rest[used..];
                if matches!(event, ResponseEvent::End { .. }) {
                    break;
                }
            }
        }
        assert!(rest.is_empty(), "surplus output: {}", rest.escape_ascii());
        Seen { answers, closed: matches!(self.cycle.phase(), Phase::Linger | Phase::Closed) }
    }
}

fn route(head: Head<'_>) -> u16 {
    match (head.method_kind(), head.path()) {
        (Method::Other, _) => 501,
        (Method::Connect | Method::Trace, _) => 405,
        (Method::Options, _) | (Method::Get | Method::Head, "/") | (Method::Post, "/echo") => 200,
        (_, "/" | "/echo") => 405,
        _ => 404,
    }
}

/// The answers to `bytes` given in pieces of `piece` bytes.
pub(super) fn serve(bytes: &[u8], piece: usize, peer_finishes: bool) -> Seen {
    let mut model = Model::new();
    for piece in bytes.chunks(piece) {
        model.receive(piece);
    }
    if peer_finishes {
        model.finish();
    }
    model.seen()
}

#[test]
fn every_case_is_answered_as_strictly_as_it_can_be() {
    let mut failures = Vec::new();
    let mut count = 0;
    for line in include_str!("testdata/cases.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('\t');
        let (id, request, wanted) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let (request, peer_finishes) = match request.strip_suffix("\\F") {
            Some(request) => (request, true),
            None => (request, false),
        };
        let bytes = unescape(request);
        for piece in [bytes.len().max(1), 7, 1] {
            let seen = serve(&bytes, piece, peer_finishes);
            if !wanted.split(" || ").any(|outcome| matches_outcome(outcome, &seen)) {
                let answers: Vec<_> =
                    seen.answers.iter().map(|(s, b)| format!("{s}={}", b.escape_ascii())).collect();
                failures
                    .push(format!("{id} ({piece}): wanted {wanted}, saw {answers:?} closed {}", seen.closed));
            }
        }
        count += 1;
    }
    assert!(count > 450, "only {count} cases");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// `200=content,400|501 close`: statuses in order, and the end.
fn matches_outcome(outcome: &str, seen: &Seen) -> bool {
    let (answers, end) = outcome.split_once(' ').unwrap();
    let answers: Vec<&str> = if answers == "-" { Vec::new() } else { answers.split(',').collect() };
    let end_fits = match end {
        "close" => seen.closed,
        "keep" | "wait" => !seen.closed,
        _ => true,
    };
    end_fits
        && answers.len() == seen.answers.len()
        && answers.iter().zip(&seen.answers).all(|(wanted, (status, content))| {
            let (statuses, wanted_content) =
                wanted.split_once('=').map_or((*wanted, None), |(s, c)| (s, Some(c)));
            let status = status.to_string();
            statuses
                .split('|')
                .any(|s| s == status || s.strip_suffix("xx").is_some_and(|c| status.starts_with(c)))
                && wanted_content.is_none_or(|c| unescape(c) == *content)
        })
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next().expect("an escape") {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'x' => {
                    let hex = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(core::str::from_utf8(&hex).unwrap(), 16).unwrap()
                }
                other => other,
            },
            other => other,
        });
    }
    out
}
