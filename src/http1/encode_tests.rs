//! Tests of `encode.rs`: what each head announces, and that a strict reader agrees.

use super::*;
use crate::http1::fields::FieldError;

const TO: ReplyTo =
    ReplyTo { asked: Asked::Usual, version: Version::Http11, persistent: true, accepts_trailers: false };

fn template() -> HeadTemplate {
    HeadTemplate::new("shardlet", 784_111_777)
}

fn encoded(status: u16, content: Content, to: ReplyTo) -> (String, Announced) {
    let mut out = Vec::new();
    let fields = FieldLines::new();
    let announced = template().encode_head(&mut out, &ResponseHead { status, fields: &fields, content }, to);
    (String::from_utf8(out).unwrap(), announced)
}

const START: &str = "HTTP/1.1 200 OK\r\nServer: shardlet\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

/// RFC 9110 §5.6.7: the example of the RFC, leap days, the ends of the range.
#[test]
fn dates_are_imf_fixdate() {
    for (seconds, text) in [
        (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
        (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
        (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        (u64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        assert_eq!(core::str::from_utf8(&imf_fixdate(seconds)).unwrap(), text);
    }
    // An independent implementation agrees over four centuries.
    for day in (0..146_097u64).step_by(97) {
        let seconds = day * 86_400 + day % 86_400;
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        assert_eq!(imf_fixdate(seconds)[..], *httpdate::fmt_http_date(time).as_bytes());
    }
}

#[test]
fn the_date_is_renewed_with_the_second() {
    let mut template = template();
    template.refresh(784_111_778);
    assert_eq!(template.date(), b"Sun, 06 Nov 1994 08:49:38 GMT");
}

/// RFC 9112 §6: the form of the content by status, method and version.
#[test]
fn the_frame_follows_status_method_and_version() {
    let (text, announced) = encoded(200, Content::Length(12_345), TO);
    assert_eq!(text, format!("{START}Content-Length: 12345\r\n\r\n"));
    assert_eq!(announced, Announced { frame: ContentFrame::Length(12_345), persistent: true });
    let (text, announced) = encoded(200, Content::Stream, TO);
    assert_eq!(text, format!("{START}Transfer-Encoding: chunked\r\n\r\n"));
    assert_eq!(announced.frame, ContentFrame::Chunked);
    // RFC 9112 §6.3 item 8, for a client that knows no chunks.
    let old = ReplyTo { version: Version::Http10, ..TO };
    let (text, announced) = encoded(200, Content::Stream, old);
    assert_eq!(text, format!("{START}Connection: close\r\n\r\n"));
    assert_eq!(announced, Announced { frame: ContentFrame::UntilClose, persistent: false });
    // RFC 9112 §9.3: HTTP/1.0 must be told that the connection persists.
    let (text, _) = encoded(200, Content::Empty, old);
    assert_eq!(text, format!("{START}Content-Length: 0\r\nConnection: keep-alive\r\n\r\n"));
}

/// RFC 9110 §9.3.2, §15.3.5, §15.3.6, §15.4.5.
#[test]
fn answers_without_content_have_none() {
    let head = ReplyTo { asked: Asked::Head, ..TO };
    let (text, announced) = encoded(200, Content::Length(5), head);
    assert_eq!((text, announced.frame), (format!("{START}Content-Length: 5\r\n\r\n"), ContentFrame::None));
    for status in [204, 304] {
        let (text, announced) = encoded(status, Content::Length(5), TO);
        assert!(!text.contains("Content-Length") && !text.contains("Transfer-Encoding"), "{text}");
        assert_eq!(announced.frame, ContentFrame::None);
    }
    let (text, announced) = encoded(205, Content::Stream, TO);
    assert!(text.contains("Content-Length: 0\r\n") && announced.frame == ContentFrame::None);
    let (text, _) = encoded(404, Content::Empty, ReplyTo { persistent: false, ..TO });
    assert!(text.starts_with("HTTP/1.1 404 Not Found\r\nServer: shardlet\r\nDate: "), "{text}");
    assert!(text.ends_with("Content-Length: 0\r\nConnection: close\r\n\r\n"), "{text}");
}

/// RFC 9110 §6.6.1: a proxy passes on the Date and Server of the origin; there is never a second one.
#[test]
fn own_date_and_server_lines_replace_ours() {
    for (date, server) in [(true, false), (false, true), (true, true)] {
        let mut fields = FieldLines::new();
        if date {
            fields.set("Date", "Thu, 01 Jan 1970 00:00:00 GMT").unwrap();
        }
        if server {
            fields.set("server", "origin").unwrap();
        }
        let mut out = Vec::new();
        let head = ResponseHead { status: 200, fields: &fields, content: Content::Empty };
        let _ = template().encode_head(&mut out, &head, TO);
        let text = String::from_utf8(out).unwrap().to_ascii_lowercase();
        assert_eq!(text.matches("date: ").count(), 1, "{text}");
        assert_eq!(text.matches("server: ").count(), 1, "{text}");
    }
}

/// RFC 9112 §7.1: no chunk of size zero before the last one; the trailer section behind it.
#[test]
fn chunks_are_size_data_and_end() {
    let mut out = Vec::new();
    encode_chunk(&mut out, b"");
    encode_chunk(&mut out, b"hello");
    encode_chunk(&mut out, &[b'x'; 16]);
    let mut trailers = FieldLines::new();
    trailers.append("X-T", "v").unwrap();
    encode_last_chunk(&mut out, &trailers);
    assert_eq!(out, b"5\r\nhello\r\n10\r\nxxxxxxxxxxxxxxxx\r\n0\r\nX-T: v\r\n\r\n");
}

/// Fault 70: 100 is a status line and an empty line; RFC 9110 §15.2: nothing interim for HTTP/1.0.
#[test]
fn interim_responses_have_their_form() {
    let mut out = Vec::new();
    encode_continue(&mut out);
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
    out.clear();
    let mut fields = FieldLines::new();
    fields.append("Link", "</a.css>; rel=preload").unwrap();
    assert!(encode_interim(&mut out, 103, &fields, Version::Http11));
    assert_eq!(out, b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
    for (status, version) in [(103, Version::Http10), (101, Version::Http11), (200, Version::Http11)] {
        assert!(!encode_interim(&mut out, status, &fields, version));
    }
}

/// RFC 9112 §9.6: a refusal announces the close; HEAD gets no content even then.
#[test]
fn a_refusal_is_a_whole_answer() {
    for (received, content) in [(&b"GET / HTTP/1.1\r\nX : y"[..], true), (b"HEAD / HTTP/1.1\r\nX : y", false)]
    {
        let mut out = Vec::new();
        template().encode_reject(&mut out, Reject::FieldName, received);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n") && text.contains("Connection: close\r\n"));
        assert_eq!(text.ends_with("a field name is malformed\n"), content, "{text}");
    }
}

/// H6: no field reaches the encoder with a line break.
#[test]
fn fault_h6_response_splitting_is_an_error_before_send() {
    let mut fields = FieldLines::new();
    assert_eq!(fields.set("Set-Cookie", "a=b\r\nX: y"), Err(FieldError::Value));
}
