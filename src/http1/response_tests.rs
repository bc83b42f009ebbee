//! Tests of `response.rs`: RFC 9112 §4, §6.3, §9.3 as a client must apply them.

use proptest::prelude::*;

use super::*;

/// Status, content and persistence of one response, or the error; fed in pieces of `piece` bytes.
fn read(
    bytes: &[u8],
    piece: usize,
    asked: Asked,
    closes: bool,
) -> Result<Option<(u16, Vec<u8>, bool)>, ResponseError> {
    let mut parser = ResponseParser::new();
    parser.begin(asked);
    let (mut consumed, mut status, mut content) = (0, 0, Vec::new());
    for end in (0..bytes.len()).step_by(piece).skip(1).chain([bytes.len()]) {
        loop {
            let input = &bytes[consumed..end];
            let (used, event) = parser.feed(input)?;
            consumed += used;
            match event {
                ResponseEvent::NeedMore => break,
                ResponseEvent::Interim(_) => {}
                ResponseEvent::Head(line) => status = line.status,
                ResponseEvent::Data(range) => content.extend_from_slice(&input[range]),
                ResponseEvent::End { keep_alive } => return Ok(Some((status, content, keep_alive))),
            }
        }
    }
    if closes {
        parser.finish()?;
        return Ok(Some((status, content, false)));
    }
    Ok(None)
}

fn response(text: &str, asked: Asked, closes: bool) -> Result<Option<(u16, String, bool)>, ResponseError> {
    let whole = read(text.as_bytes(), usize::MAX, asked, closes);
    for piece in [1, 3] {
        assert_eq!(read(text.as_bytes(), piece, asked, closes), whole, "{text:?}");
    }
    whole.map(|read| read.map(|(status, content, keep)| (status, String::from_utf8(content).unwrap(), keep)))
}

/// RFC 9112 §6.3, each item.
#[test]
fn each_frame_is_read() {
    let usual = Asked::Usual;
    for (text, asked, closes, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", usual, false, (200, "hello", true)),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", usual, false, (200, "", true)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n",
            usual,
            false,
            (200, "hi", true),
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", usual, true, (200, "hello", false)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Asked::Head, false, (200, "", true)),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", usual, false, (304, "", true)),
        ("HTTP/1.1 204 No Content\r\n\r\n", usual, false, (204, "", true)),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nA: b\r\n\r\nHTTP/1.1 404 N\r\nContent-Length: 1\r\n\r\nx",
            usual,
            false,
            (404, "x", true),
        ),
        ("HTTP/1.1 101 S\r\nUpgrade: foo\r\n\r\nraw", usual, true, (101, "raw", false)),
        ("HTTP/1.1 200 OK\r\n\r\nraw", Asked::Connect, true, (200, "raw", false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", usual, false, (200, "x", false)),
        (
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx",
            usual,
            false,
            (200, "x", true),
        ),
        (
            "HTTP/1.1 200 OK\r\nConnection: a, close\r\nContent-Length: 1\r\n\r\nx",
            usual,
            false,
            (200, "x", false),
        ),
    ] {
        let (status, content, keep_alive) = expected;
        assert_eq!(
            response(text, asked, closes),
            Ok(Some((status, content.to_owned(), keep_alive))),
            "{text:?}"
        );
    }
}

/// RFC 9112 §4, §5, §6.1, §6.3, §8.
#[test]
fn what_is_no_response_is_an_error() {
    for (text, error) in [
        ("HTTP/1.1 20 OK\r\n\r\n", ResponseError::StatusLine),
        ("HTTP/1.1 200\r\n\r\n", ResponseError::StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n", ResponseError::StatusLine),
        ("HTTP/2.0 200 OK\r\n\r\n", ResponseError::StatusLine),
        ("HTTP/1.1 099 X\r\n\r\n", ResponseError::StatusLine),
        ("HTTP/1.1 200 O\0K\r\n\r\n", ResponseError::StatusLine),
        ("SSH-2.0-x", ResponseError::StatusLine),
        ("HTTP/1.1 200 OK\nA: b\n\n", ResponseError::Field),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", ResponseError::Field),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", ResponseError::Field),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", ResponseError::ContentLength),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", ResponseError::ContentLength),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            ResponseError::ContentLength,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", ResponseError::TransferEncoding),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ResponseError::TransferEncoding),
        ("HTTP/1.1 204 N\r\nTransfer-Encoding: chunked\r\n\r\n", ResponseError::TransferEncoding),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n", ResponseError::Chunk),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", ResponseError::Truncated),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", ResponseError::Truncated),
        ("HTTP/1.1 200 OK\r\nA: b\r\n", ResponseError::Truncated),
        ("", ResponseError::Truncated),
    ] {
        assert_eq!(response(text, Asked::Usual, true), Err(error), "{text:?}");
    }
    let flood = "HTTP/1.1 103 E\r\n\r\n".repeat(40);
    assert_eq!(response(&flood, Asked::Usual, true), Err(ResponseError::InterimFlood));
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(70_000));
    assert_eq!(read(endless.as_bytes(), 1000, Asked::Usual, false), Err(ResponseError::HeadTooLarge));
}

#[test]
fn fields_and_the_next_response_are_found() {
    let mut parser = ResponseParser::new();
    let bytes = b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 204 N\r\n\r\n";
    let (head, event) = parser.feed(bytes).unwrap();
    assert!(matches!(event, ResponseEvent::Head(line) if line.frame == ResponseFrame::Length(1)));
    assert_eq!(parser.fields(&bytes[..head]).next(), Some(("A", &b"b"[..])));
    let (used, event) = parser.feed(&bytes[head..]).unwrap();
    assert_eq!((used, event), (1, ResponseEvent::Data(0..1)));
    assert_eq!(parser.feed(b""), Ok((0, ResponseEvent::End { keep_alive: true })));
    parser.begin(Asked::Usual);
    assert!(matches!(parser.feed(&bytes[head + 1..]), Ok((18, ResponseEvent::Head(_)))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// No input makes the parser panic, and no cut changes what it says.
    #[test]
    fn any_bytes_get_a_verdict(
        parts in prop::collection::vec(prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n", "HTTP/1.0 304 \r\n", "HTTP/1.1 100 C\r\n\r\n", "Content-Length: 3\r\n", "\r\n", "A: b\r\n",
            "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", "0\r\n\r\n", "\n", "\r", "abc", ":", " ", "\0",
        ]), 0..8),
        piece in 1usize..6,
    ) {
        let bytes = parts.concat().into_bytes();
        let whole = read(&bytes, usize::MAX, Asked::Usual, true);
        let pieces = read(&bytes, piece, Asked::Usual, true);
        // Which error is seen first may depend on the cut; that there is one may not.
        prop_assert_eq!(pieces.ok(), whole.ok());
    }
}
