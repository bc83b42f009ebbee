//! Tests of `scan.rs`: each byte once, and a refusal at the first byte that no head may hold.

use super::*;

#[test]
fn the_end_is_found_whatever_the_pieces_are() {
    let head = b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nGET /next";
    for piece in 1..head.len() {
        let mut scan = HeadScan::new();
        let mut found = None;
        for len in (0..head.len()).step_by(piece).chain([head.len()]) {
            found = scan.find_end(&head[..len], &Limits::DEFAULT).unwrap();
            if found.is_some() {
                break;
            }
        }
        assert_eq!(found, Some(head.len() - 9), "{piece}");
    }
}

/// A peer that sends no HTTP is refused at once: RFC 9112 §2.2 asks for 400, not for patience.
#[test]
fn a_violation_is_seen_at_its_first_byte() {
    for (good, bad, reject) in [
        ("", "\x16\x03\x01", Reject::Method),
        ("", "\n", Reject::BareLineBreak),
        ("\r\n", "\r\n", Reject::LeadingEmptyLines),
        ("GE", "{", Reject::Method),
        ("GET", "\r\n", Reject::RequestLine),
        ("GET /a", "\x01", Reject::ControlOctet),
        ("GET /a", "\u{e9}", Reject::Target),
        ("GET / HTTP/1.1", "\n", Reject::BareLineBreak),
        ("GET / HTTP/1.1\r", "X", Reject::BareLineBreak),
        ("GET / HTTP/1.1\r\n", " ", Reject::FoldedLine),
        ("GET / HTTP/1.1\r\nX", " ", Reject::FieldName),
        ("GET / HTTP/1.1\r\n", ":", Reject::FieldName),
        ("GET / HTTP/1.1\r\nX: a", "\0", Reject::ControlOctet),
        ("GET / HTTP/1.1\r\nX: a", "\n", Reject::BareLineBreak),
        ("GET / HTTP/1.1\r\nX: a\r\n", "\t", Reject::FoldedLine),
    ] {
        let mut scan = HeadScan::new();
        assert_eq!(scan.find_end(good.as_bytes(), &Limits::DEFAULT), Ok(None), "{good:?}");
        let bytes = [good.as_bytes(), bad.as_bytes()].concat();
        assert_eq!(scan.find_end(&bytes, &Limits::DEFAULT), Err(reject), "{good:?} {bad:?}");
    }
}

/// F4: the work for a head fed byte by byte is linear, because no byte is looked at twice.
#[test]
fn fault_f4_the_search_never_goes_back() {
    let head = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 30_000]].concat();
    let mut scan = HeadScan::new();
    for len in 0..head.len() {
        assert_eq!(scan.find_end(&head[..len], &Limits::DEFAULT), Ok(None));
        assert_eq!(scan.position as usize, len);
    }
}
