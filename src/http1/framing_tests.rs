//! Tests of `framing.rs`: RFC 9112 §6 and §9.3, each refusal with its reason.

use super::*;
use crate::http1::head::HeadIndex;
use crate::http1::parse::{Parsed, parse};
use crate::limits::Limits;

fn framing_of(version: &str, fields: &str) -> Result<Framing, Reject> {
    let head = format!("POST / HTTP/{version}\r\nHost: x\r\n{fields}\r\n");
    let mut index = HeadIndex::default();
    match parse(head.as_bytes(), &mut index, &Limits::DEFAULT)? {
        Parsed::Complete { head_len } => assert_eq!(head_len, head.len()),
        Parsed::Partial => panic!("partial: {head:?}"),
    }
    Ok(index.framing())
}

fn refusal(fields: &str) -> Reject {
    framing_of("1.1", fields).expect_err(fields)
}

/// RFC 9110 §8.6: Content-Length = 1*DIGIT (H1).
#[test]
fn a_content_length_is_one_decimal_number() {
    for (value, length) in [("5", 5), ("005", 5), ("18446744073709551615", u64::MAX)] {
        let framing = framing_of("1.1", &format!("Content-Length: {value}\r\n")).unwrap();
        assert_eq!(framing.body, BodyKind::Length(length));
    }
    assert_eq!(framing_of("1.1", "Content-Length: 00\r\n").unwrap().body, BodyKind::None);
    for value in ["", "+5", "-0", "0x5", "5 5", "5.0", "5e0", "5;", "\u{a0}5", "'5'", "18446744073709551616"]
    {
        assert_eq!(refusal(&format!("Content-Length: {value}\r\n")), Reject::ContentLength, "{value:?}");
    }
}

/// RFC 9112 §6.3: different values are an unrecoverable error; equal ones are never needed (H1).
#[test]
fn a_second_content_length_is_refused() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5,\r\n",
    ] {
        assert_eq!(refusal(fields), Reject::ContentLengthRepeated, "{fields:?}");
    }
}

/// RFC 9112 §6.1, §11.2: both fields are an attempt at smuggling (H1).
#[test]
fn content_length_and_transfer_encoding_exclude_each_other() {
    assert_eq!(refusal("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Reject::LengthAndEncoding);
    assert_eq!(refusal("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n"), Reject::LengthAndEncoding);
}

/// RFC 9112 §6.1, §6.3, §7 (H1).
#[test]
fn a_transfer_encoding_is_exactly_chunked() {
    for value in ["chunked", "Chunked", "\tCHUNKED \t"] {
        let framing = framing_of("1.1", &format!("Transfer-Encoding: {value}\r\n")).unwrap();
        assert_eq!(framing.body, BodyKind::Chunked);
    }
    for value in [
        "",
        "xchunked",
        "chunked, identity",
        "chunked, chunked",
        "chunked;a=b",
        ", chunked",
        "chunked,",
        "'chunked'",
        "chunked chunked",
        "identity",
        "ch\u{16}unked",
        "chunked\u{b}",
    ] {
        let reject = refusal(&format!("Transfer-Encoding: {value}\r\n"));
        assert!(matches!(reject, Reject::TransferEncoding | Reject::FieldValue), "{value:?}: {reject:?}");
    }
    assert_eq!(refusal("Transfer-Encoding: gzip, chunked\r\n"), Reject::TransferCodingUnknown);
    assert_eq!(
        refusal("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        Reject::TransferEncoding
    );
    assert_eq!(
        framing_of("1.0", "Transfer-Encoding: chunked\r\n").unwrap_err(),
        Reject::TransferEncodingInHttp10
    );
}

/// RFC 9112 §9.3: the order of its rules.
#[test]
fn persistence_follows_version_and_options() {
    let cases = [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x ,CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ];
    for (version, fields, keep_alive) in cases {
        assert_eq!(framing_of(version, fields).unwrap().keep_alive, keep_alive, "{version} {fields:?}");
    }
}

/// RFC 9110 §10.1.1: no 100 without content, none in HTTP/1.0, 417 for anything else.
#[test]
fn the_only_expectation_is_100_continue() {
    let expects = |version, fields: &str| framing_of(version, fields).map(|framing| framing.expects_continue);
    assert_eq!(expects("1.1", "Expect: 100-Continue\r\nContent-Length: 1\r\n"), Ok(true));
    assert_eq!(expects("1.1", "Expect: 100-continue\r\n"), Ok(false));
    assert_eq!(expects("1.0", "Expect: 200-ok\r\nContent-Length: 1\r\n"), Ok(false));
    for value in
        ["100", "200-ok", "100-continue, foo", "y 100-continue", "100-continue\r\nExpect: 100-continue"]
    {
        assert_eq!(refusal(&format!("Expect: {value}\r\nContent-Length: 1\r\n")), Reject::Expectation);
    }
}

/// RFC 9110 §7.6.1: an option that names a framing field takes nothing away from framing (H11).
#[test]
fn connection_options_cannot_remove_framing() {
    for option in ["Content-Length", "content-length, Host", "Transfer-Encoding"] {
        let framing = framing_of("1.1", &format!("Connection: {option}\r\nContent-Length: 40\r\n")).unwrap();
        assert_eq!((framing.body, framing.keep_alive), (BodyKind::Length(40), true));
    }
}

/// Names and options are compared without case (RFC 9110 §5.1, §7.6.1), and by nothing less.
#[test]
fn what_is_compared_at_once_is_compared_whole() {
    assert!(is(b"hOsT", b"host") && is(b"KEEP-Alive", b"keep-alive"));
    for place in 0..10 {
        for octet in (b' '..0x7f).chain(0x80..=0xff) {
            let mut value = *b"keep-alive";
            let same = value[place].eq_ignore_ascii_case(&octet);
            value[place] = octet;
            assert_eq!(is(&value, b"keep-alive"), same, "{octet:#x} at {place}");
        }
    }
    assert!(!is(b"hos", b"host") && !is(b"hosts", b"host"));
}
