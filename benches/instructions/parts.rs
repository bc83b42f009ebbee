//! Each part as a function that runs it `count` times, warm: what it allocates once is allocated before.

use crate::{
    exchange::{
        Callback, Exchange, Exchanges, Parcel, Post, Refusal, TableOptions,
        seam::{Begin, HeadHolder, Loan, Next, Received},
    },
    http1::{
        BodyDecoder, BodyKind, Content, Cycle, FieldLines, Head, HeadIndex, HeadScan, HeadTemplate, Parsed,
        ReplyTo, ResponseHead, body::BodyLimits, parse, parse_resumable,
    },
    inbox::{self, WakeFd},
    limits::Limits,
    wheel::Wheel,
};
use shards::Key;
use std::{cell::Cell, hint::black_box, sync::Arc};

/// Runs a part so often.
type Run = fn(u64);

pub(crate) const PARTS: [(&str, Run); 11] = [
    ("parse_head", parse_head),
    ("parse_browser_head", parse_browser_head),
    ("parse_head_in_pieces", parse_head_in_pieces),
    ("encode_head", encode_head),
    ("decode_chunked_body", decode_chunked_body),
    ("connection_cycle", connection_cycle),
    ("exchange", exchange),
    ("exchange_plain", exchange_plain),
    ("inbox_post_and_drain", inbox_post_and_drain),
    ("wheel_insert_and_expire", wheel_insert_and_expire),
    ("wheel_reset", wheel_reset),
];

/// The request of the benchmark.
const REQUEST: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7\r\n\
    Connection: keep-alive\r\n\r\n";

/// What a browser sends.
const BROWSER: &[u8] = b"GET /files/style.css?v=3 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br\r\n\
    Cookie: sid=0123456789abcdef0123456789abcdef; theme=dark\r\nConnection: keep-alive\r\n\
    Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: none\r\n\r\n";

const LIMITS: Limits = Limits::DEFAULT;

fn parse_all(request: &[u8], count: u64) {
    let mut index = HeadIndex::default();
    for _ in 0..count {
        let parsed = parse(black_box(request), &mut index, &LIMITS);
        assert!(matches!(parsed, Ok(Parsed::Complete { .. })), "the head is whole");
        black_box(&index);
    }
}

fn parse_head(count: u64) {
    parse_all(REQUEST, count);
}

fn parse_browser_head(count: u64) {
    parse_all(BROWSER, count);
}

/// In three pieces, the last of one byte.
fn parse_head_in_pieces(count: u64) {
    let mut index = HeadIndex::default();
    for _ in 0..count {
        let mut scan = HeadScan::default();
        let mut parsed = Ok(Parsed::Partial);
        for end in [20, REQUEST.len() - 1, REQUEST.len()] {
            parsed = parse_resumable(&mut scan, black_box(&REQUEST[..end]), &mut index, &LIMITS);
        }
        assert!(matches!(parsed, Ok(Parsed::Complete { .. })), "the head is whole");
        black_box(&index);
    }
}

fn encode_head(count: u64) {
    let mut index = HeadIndex::default();
    assert!(parse(REQUEST, &mut index, &LIMITS).is_ok(), "the head is right");
    let mut template = HeadTemplate::new("shardlet", 1_800_000_000);
    template.add_common_field("X-Shard", "0");
    let mut fields = FieldLines::default();
    fields.set("Content-Type", "text/plain").expect("a fit value");
    let mut out = Vec::with_capacity(4096);
    for _ in 0..count {
        let reply = ReplyTo::new(Head::new(REQUEST, &index), true);
        let head = ResponseHead { status: 200, fields: black_box(&fields), content: Content::Length(13) };
        out.clear();
        let _ = black_box(template.encode_head(&mut out, &head, reply));
        black_box(&out);
    }
}

fn decode_chunked_body(count: u64) {
    let body = b"64\r\n0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\r\n0\r\n\r\n";
    let mut decoder = BodyDecoder::new(BodyLimits::from(&LIMITS));
    for _ in 0..count {
        decoder.begin(BodyKind::Chunked, LIMITS.body_bytes_max).expect("within the limit");
        let mut rest = black_box(&body[..]);
        while !decoder.is_ended() {
            let (used, event) = decoder.decode(rest).expect("well formed");
            black_box(event);
            rest = &rest[used..];
        }
    }
}

/// What one request without content does to its connection's cycle.
fn connection_cycle(count: u64) {
    let mut index = HeadIndex::default();
    assert!(parse(REQUEST, &mut index, &LIMITS).is_ok(), "the head is right");
    let mut cycle = Cycle::new(&Limits { requests_per_connection_max: u32::MAX, ..LIMITS });
    for _ in 0..count {
        let sequence = cycle.taken();
        black_box(cycle.may_take_request());
        let _ = black_box(cycle.request_taken(black_box(index.framing())));
        let persistent = cycle.may_persist(sequence, Some(0));
        let _ = black_box(cycle.answer_ended(persistent));
        let _ = black_box(cycle.output_flushed());
    }
}

/// Nothing is posted from elsewhere here.
struct NoPost;

impl Post for NoPost {
    fn post(&self, parcel: Parcel) -> Result<(), (Parcel, Refusal)> {
        Err((parcel, Refusal::Stopping))
    }

    fn is_current(&self) -> bool {
        true
    }
}

fn table() -> std::rc::Rc<Exchanges> {
    Exchanges::new(TableOptions {
        shard: 0,
        post: Arc::new(NoPost),
        workers: None,
        tasks_max: 4,
        sleeps_max: 1024,
        marks: Default::default(),
        input_window: 64 * 1024,
        unacknowledged: Box::new(|_| None),
        peer: Box::new(|_| None),
        on_ready: Box::new(|_| {}),
        name_callback: Box::new(|_| {}),
    })
}

fn loan() -> HeadHolder {
    let mut index = HeadIndex::default();
    let Ok(Parsed::Complete { head_len }) = parse(REQUEST, &mut index, &LIMITS) else {
        panic!("the head is right")
    };
    HeadHolder::Loan(Box::new(Loan { bytes: Received::gathered(REQUEST.to_vec()), head_len, index }))
}

fn hello(x: &mut Exchange) -> crate::error::Result<()> {
    x.response().set_content_type("text/plain")?;
    x.write("Hello, World!")
}

/// From its beginning through the handler to its release, as a connection drives it.
fn exchange(count: u64) {
    let exchanges = table();
    let mut head = loan();
    let sent = Cell::new(0);
    for _ in 0..count {
        let key = exchanges.begin(Begin::default());
        while let Some(next) = exchanges.next_action(key) {
            match next {
                Next::Run(Callback::Handler(_)) => head = exchanges.enter(key, head, hello),
                Next::FinishResponse => finish(&exchanges, key, &sent),
                Next::Released => break,
                other => panic!("{other:?} is no part of a plain answer"),
            }
        }
    }
    assert_eq!(sent.get(), 13 * count, "every answer was taken");
    assert!(exchanges.is_empty(), "every exchange is over");
}

fn finish(exchanges: &Exchanges, key: Key, sent: &Cell<u64>) {
    let taken = exchanges.with_output(key, |head, output| {
        black_box(head);
        output.take_chunk(4096).map_or(0, |chunk| black_box(chunk).as_slice().len() as u64)
    });
    sent.set(sent.get() + taken.unwrap_or(0));
    exchanges.head_committed(key);
    if !exchanges.end_plain(key, taken.unwrap_or(0)) {
        exchanges.accepted(key, taken.unwrap_or(0));
        exchanges.output_finished(key);
    }
}

/// The short way of the same: answered within its callback, and over.
fn exchange_plain(count: u64) {
    let exchanges = table();
    let mut head = loan();
    let mut out = Vec::with_capacity(64);
    for _ in 0..count {
        let (core, back, answered) = exchanges.serve_plain(Begin::default(), head, hello);
        head = back;
        assert!(answered);
        out.clear();
        let taken = core.output.borrow_mut().take_into(&mut out, 4096);
        assert_eq!(black_box(taken), 13);
        exchanges.end_answered(&core);
    }
    assert!(exchanges.is_empty(), "every exchange is over");
}

/// A message posted to an awake owner and run.
fn inbox_post_and_drain(count: u64) {
    let (sender, inbox) = inbox::channel(64, Arc::new(WakeFd::new().expect("an eventfd")));
    let ran = Arc::new(std::sync::atomic::AtomicU64::new(0));
    for _ in 0..count {
        let ran = ran.clone();
        let message = move || {
            ran.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        assert!(sender.post(message).is_ok(), "there is room");
        inbox.drain(64, &mut |_| {});
    }
    assert_eq!(ran.load(std::sync::atomic::Ordering::Relaxed), count);
}

/// 30 s ahead, among a thousand others; comes out.
fn wheel_insert_and_expire(count: u64) {
    let mut wheel = Wheel::new(0);
    for other in 0..1000 {
        wheel.insert(1 << 40, other);
    }
    let mut now_ms = 0;
    for _ in 0..count {
        wheel.insert(now_ms + 30_000, 7);
        now_ms += 30_000;
        assert_eq!(wheel.expire(now_ms), Some(7));
        assert_eq!(wheel.expire(now_ms), None);
    }
}

/// Moved on, as an idle timeout is.
fn wheel_reset(count: u64) {
    let mut wheel = Wheel::new(0);
    let key = wheel.insert(30_000, ());
    for at in 0..count {
        assert!(wheel.reset(key, 30_000 + at % 1000));
    }
}
