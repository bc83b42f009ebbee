//! The invariants of the fuzz targets as plain functions: `fuzz_targets` runs them on random bytes, `tests/corpus.rs` on
//! the stored corpus with every `cargo test`. Each is stated at the top of its target.

use shardlet::http1::body::{BodyDecoder, BodyEvent};
use shardlet::http1::framing::BodyKind;
use shardlet::http1::response::{Asked, ResponseEvent, ResponseParser};
use shardlet::http1::{Head, HeadIndex, HeadScan, Parsed, Reject, Version, parse, parse_resumable};
use shardlet::limits::Limits;

const LIMITS: Limits = Limits::DEFAULT;

/// Sizes of pieces that each input is cut into; the first byte of the input adds another.
fn pieces(data: &[u8]) -> [usize; 3] {
    [1, 7, 2 + usize::from(data.first().copied().unwrap_or(0)) % 61]
}

/// The parser of request heads.
pub(crate) fn head(data: &[u8]) {
    let mut index = HeadIndex::default();
    let whole = parse(data, &mut index, &LIMITS);
    if let Ok(Parsed::Complete { head_len }) = whole {
        accepted_head(&data[..head_len], &index);
    }
    for piece in pieces(data) {
        let seen = head_in_pieces(data, piece);
        match whole {
            Ok(Parsed::Complete { .. }) => assert_eq!(seen, whole),
            Ok(Parsed::Partial) => assert!(!matches!(seen, Ok(Parsed::Complete { .. }))),
            Err(_) => assert!(seen.is_err(), "{whole:?}"),
        }
    }
}

fn head_in_pieces(data: &[u8], piece: usize) -> Result<Parsed, Reject> {
    let (mut scan, mut index, mut len) = (HeadScan::new(), HeadIndex::default(), 0);
    while len < data.len() {
        len = (len + piece).min(data.len());
        let parsed = parse_resumable(&mut scan, &data[..len], &mut index, &LIMITS)?;
        if parsed != Parsed::Partial {
            return Ok(parsed);
        }
    }
    Ok(Parsed::Partial)
}

fn accepted_head(bytes: &[u8], index: &HeadIndex) {
    assert!(!bytes.contains(&0) && bytes.ends_with(b"\r\n\r\n"));
    for (at, octet) in bytes.iter().enumerate() {
        match octet {
            b'\r' => assert_eq!(bytes.get(at + 1), Some(&b'\n')),
            b'\n' => assert_eq!(bytes[at - 1], b'\r'),
            _ => {}
        }
    }
    let head = Head::new(bytes, index);
    let hosts = head.headers("host").count();
    assert!(hosts == 1 || hosts == 0 && head.version() == Version::Http10);
    assert!(!head.method().is_empty() && !head.target().is_empty());
    let owned = head.to_owned_head();
    assert!(owned.head().fields().eq(head.fields()) && owned.head().path() == head.path());
}

/// The framing of accepted heads.
pub(crate) fn framing(data: &[u8]) {
    // Two seeds of one: the bytes as a whole head, and as the fields of a head that is fine without them.
    let wrapped = [b"POST /echo HTTP/1.1\r\nHost: x\r\n", data, b"\r\n\r\n"].concat();
    for bytes in [data, &wrapped] {
        let mut index = HeadIndex::default();
        let Ok(Parsed::Complete { head_len }) = parse(bytes, &mut index, &LIMITS) else {
            continue;
        };
        let head = Head::new(&bytes[..head_len], &index);
        let lengths: Vec<_> = head.headers("content-length").collect();
        let encodings: Vec<_> = head.headers("transfer-encoding").collect();
        assert!(lengths.len() + encodings.len() <= 1);
        // RFC 9110 §9.3.6: where a tunnel begins is said by the empty line alone.
        let asks_tunnel = head.framing().asks_tunnel;
        assert_eq!(asks_tunnel, head.method() == "CONNECT");
        assert!(!asks_tunnel || head.body() == BodyKind::None);
        match head.body() {
            BodyKind::Chunked => {
                assert!(encodings[0].eq_ignore_ascii_case(b"chunked") && head.version() == Version::Http11);
            }
            kind => {
                assert!(encodings.is_empty());
                let text = lengths.first().map(|text| std::str::from_utf8(text).expect("digits"));
                assert!(text.is_none_or(|text| text.bytes().all(|octet| octet.is_ascii_digit())));
                let length: u64 = text.map_or(0, |text| text.parse().expect("a length that fits"));
                assert_eq!(kind, if length == 0 { BodyKind::None } else { BodyKind::Length(length) });
            }
        }
    }
}

/// The decoder of request content.
pub(crate) fn body(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let kind = if first < 32 { BodyKind::Length(u64::from(first)) } else { BodyKind::Chunked };
    let whole = decoded(kind, data, usize::MAX);
    for piece in pieces(data) {
        assert_eq!(decoded(kind, data, piece), whole);
    }
    // What follows a switch comes out as it is, whatever bound contents have, and has no end of its own.
    for piece in pieces(data).into_iter().chain([usize::MAX]) {
        assert_eq!(decoded(BodyKind::Tunnel, data, piece), Ok((data.to_vec(), None)));
    }
}

type Decoded = Result<(Vec<u8>, Option<usize>), Reject>;

fn decoded(kind: BodyKind, data: &[u8], piece: usize) -> Decoded {
    const BODY_BYTES_MAX: u64 = 64;
    let mut decoder = BodyDecoder::new((&LIMITS).into());
    decoder.begin(kind, BODY_BYTES_MAX)?;
    let (mut content, mut consumed) = (Vec::new(), 0);
    for end in (0..data.len()).step_by(piece).skip(1).chain([data.len()]) {
        loop {
            let input = &data[consumed..end];
            let (used, event) = decoder.decode(input)?;
            assert!(used <= input.len());
            consumed += used;
            match event {
                BodyEvent::Data(range) => content.extend_from_slice(&input[range]),
                BodyEvent::NeedMore => break,
                BodyEvent::End => return Ok((content, Some(consumed))),
            }
            assert!(kind == BodyKind::Tunnel || content.len() as u64 <= BODY_BYTES_MAX);
        }
    }
    Ok((content, None))
}

/// The client's parser of responses.
pub(crate) fn response(data: &[u8]) {
    let whole = responded(data, usize::MAX);
    for piece in pieces(data) {
        assert_eq!(responded(data, piece), whole);
    }
}

/// Status, content and verdict; None for an error, of which the first one seen may depend on the cut.
fn responded(data: &[u8], piece: usize) -> Option<(u16, Vec<u8>, bool)> {
    let mut parser = ResponseParser::new();
    parser.begin(Asked::Usual);
    let (mut status, mut content, mut consumed) = (0, Vec::new(), 0);
    for end in (0..data.len()).step_by(piece).skip(1).chain([data.len()]) {
        loop {
            let input = &data[consumed..end];
            let (used, event) = parser.feed(input).ok()?;
            assert!(used <= input.len());
            consumed += used;
            match event {
                ResponseEvent::NeedMore => break,
                ResponseEvent::Interim(_) => assert!(used > 0),
                ResponseEvent::Head(line) => status = line.status,
                ResponseEvent::Data(range) => {
                    assert!(!range.is_empty());
                    content.extend_from_slice(&input[range]);
                }
                ResponseEvent::End { keep_alive } => return Some((status, content, keep_alive)),
            }
        }
    }
    parser.finish().ok()?;
    Some((status, content, false))
}
