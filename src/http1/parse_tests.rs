//! Tests of `parse.rs`: RFC 9112 §2 to §5, limits, and that no cut changes the verdict.

use proptest::prelude::*;

use super::*;
use crate::http1::head::Head;

fn verdict(bytes: &[u8]) -> Result<Parsed, Reject> {
    parse(bytes, &mut HeadIndex::default(), &Limits::DEFAULT)
}

/// As the connection does it: the buffer grows by `piece` bytes.
fn verdict_in_pieces(bytes: &[u8], piece: usize, limits: &Limits) -> Result<Parsed, Reject> {
    let (mut scan, mut index) = (HeadScan::new(), HeadIndex::default());
    let mut len = 0;
    while len < bytes.len() {
        len = (len + piece).min(bytes.len());
        let parsed = parse_resumable(&mut scan, &bytes[..len], &mut index, limits)?;
        if parsed != Parsed::Partial {
            return Ok(parsed);
        }
    }
    Ok(Parsed::Partial)
}

fn refusal(head: &str) -> Reject {
    let whole = verdict(head.as_bytes()).expect_err(head);
    verdict_in_pieces(head.as_bytes(), 1, &Limits::DEFAULT).expect_err(head);
    whole
}

const HOST: &str = "Host: x\r\n";

/// RFC 9112 §3: single spaces, nothing before or behind.
#[test]
fn a_request_line_has_three_parts_and_two_spaces() {
    for line in [
        "GET /",
        "GET  HTTP/1.1",
        " / HTTP/1.1",
        "GET",
        "HTTP/1.1",
        "",
        "GET  / HTTP/1.1",
        "\tGET / HTTP/1.1",
    ] {
        let reject = refusal(&format!("{line}\r\n{HOST}\r\n"));
        assert_eq!(reject.status(), 400, "{line:?}: {reject:?}");
    }
    for line in
        ["GET /  HTTP/1.1", "GET / HTTP/1.1 ", "GET /a b HTTP/1.1", "GET /\tHTTP/1.1", "GET /\0 HTTP/1.1"]
    {
        assert_eq!(refusal(&format!("{line}\r\n{HOST}\r\n")).status(), 400, "{line:?}");
    }
    for line in
        ["G@T / HTTP/1.1", "G\0T / HTTP/1.1", "\"GET\" / HTTP/1.1", "GÉT / HTTP/1.1", "GET, / HTTP/1.1"]
    {
        assert_eq!(refusal(&format!("{line}\r\n{HOST}\r\n")), Reject::Method, "{line:?}");
    }
    assert_eq!(refusal(&format!("{} / HTTP/1.1\r\n{HOST}\r\n", "M".repeat(65))), Reject::MethodTooLong);
}

/// RFC 9112 §2.3, RFC 9110 §2.5 and §15.6.6 (H4).
#[test]
fn versions_are_digits_and_major_one() {
    for version in [
        "HTTP/1",
        "HTTP/.1",
        "HTTP/1,1",
        "HTTP/1.10",
        "HTTP/01.1",
        "http/1.1",
        "HTTP/A.B",
        "XHTTP/1.1",
        "RTSP/1.0",
    ] {
        assert_eq!(refusal(&format!("GET / {version}\r\n{HOST}\r\n")).status(), 400, "{version}");
    }
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/9.9"] {
        assert_eq!(refusal(&format!("GET / {version}\r\n{HOST}\r\n")), Reject::VersionUnsupported);
    }
    // The preface of HTTP/2 (RFC 9113 §3.4) is 505 for a server that was not asked to speak it.
    assert_eq!(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Reject::VersionUnsupported);
    let mut index = HeadIndex::default();
    parse(b"GET / HTTP/1.7\r\nHost: x\r\n\r\n", &mut index, &Limits::DEFAULT).unwrap();
    assert_eq!(index.version(), Version::Http11);
}

/// RFC 9112 §2.2: CRLF ends a line and nothing else does (H4).
#[test]
fn bare_line_breaks_are_refused() {
    for head in [
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n\n",
        "GET / HTTP/1.1\r\nA: b\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nA: \nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nA:\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\rHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        assert_eq!(refusal(head).status(), 400, "{head:?}");
    }
}

/// RFC 9112 §2.2: one empty line before the request line is ignored; a flood of them is not.
#[test]
fn one_leading_empty_line_is_ignored() {
    let head = b"\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(verdict(head), Ok(Parsed::Complete { head_len: head.len() }));
    assert_eq!(refusal("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"), Reject::LeadingEmptyLines);
    for prefix in [&b"\r"[..], b"\r\n", b"\r\nG"] {
        assert_eq!(verdict(prefix), Ok(Parsed::Partial));
    }
}

/// RFC 9112 §5.1, §5.2, RFC 9110 §5.1, §5.5 (H4).
#[test]
fn field_lines_follow_the_grammar() {
    for line in ["X-A : b", "X-A\t: b", ": b", "Foo", "Foo=bar", "X A: b", "\u{ef}X: b", "X\0A: b"] {
        assert_eq!(
            refusal(&format!("GET / HTTP/1.1\r\n{HOST}{line}\r\n\r\n")),
            Reject::FieldName,
            "{line:?}"
        );
        assert_eq!(
            refusal(&format!("GET / HTTP/1.1\r\n{line}\r\n{HOST}\r\n")),
            Reject::FieldName,
            "{line:?}"
        );
    }
    for delimiter in "\"(),/;<=>?@[\\]{}".chars() {
        refusal(&format!("GET / HTTP/1.1\r\n{HOST}X{delimiter}A: b\r\n\r\n"));
    }
    for line in ["X: a\0b", "X: \u{1}", "X: a\u{b}b", "X: \u{7f}", "X: \u{1b}[31m"] {
        assert_eq!(
            refusal(&format!("GET / HTTP/1.1\r\n{HOST}{line}\r\n\r\n")),
            Reject::FieldValue,
            "{line:?}"
        );
    }
    for fold in ["X: a\r\n b", "X: a\r\n\tb", "X: a\r\n ", "X:\r\n b", " X: a"] {
        assert_eq!(
            refusal(&format!("GET / HTTP/1.1\r\n{HOST}{fold}\r\n\r\n")),
            Reject::FoldedLine,
            "{fold:?}"
        );
    }
    assert_eq!(refusal(&format!("GET / HTTP/1.1\r\n X: a\r\n{HOST}\r\n")), Reject::FoldedLine);
    let all = format!("GET / HTTP/1.1\r\n{HOST}!#$%&'*+-.^_`|~: \u{e9}\u{ff} ;,\t[]\r\n\r\n");
    assert!(matches!(verdict(all.as_bytes()), Ok(Parsed::Complete { .. })));
}

/// RFC 9112 §3.2.
#[test]
fn host_is_required_once() {
    assert_eq!(refusal("GET / HTTP/1.1\r\n\r\n"), Reject::HostMissing);
    assert_eq!(refusal("GET http://x.test/ HTTP/1.1\r\n\r\n"), Reject::HostMissing);
    assert_eq!(refusal("GET / HTTP/1.1\r\nHost: x\r\nhOST: x\r\n\r\n"), Reject::HostRepeated);
    assert_eq!(refusal("GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n"), Reject::HostRepeated);
    assert_eq!(refusal("GET / HTTP/1.1\r\nHost:\r\n\r\n"), Reject::HostInvalid);
    assert!(verdict(b"GET / HTTP/1.0\r\n\r\n").is_ok());
}

/// F4: each limit at its last allowed value, and one beyond it, whole and in pieces.
#[test]
fn limits_are_exact_whole_and_in_pieces() {
    let limits = Limits { request_line_bytes_max: 40, head_bytes_max: 200, fields_max: 3, ..Limits::DEFAULT };
    let line = |len: usize| format!("GET /{} HTTP/1.1\r\n{HOST}\r\n", "a".repeat(len - 14));
    let head = |len: usize| {
        let start = format!("GET / HTTP/1.1\r\n{HOST}X: ");
        format!("{start}{}\r\n\r\n", "a".repeat(len - start.len() - 4))
    };
    let fields = |count: usize| format!("GET / HTTP/1.1\r\n{HOST}{}\r\n", "A: b\r\n".repeat(count - 1));
    let cases = [
        (line(40), None),
        (line(41), Some(Reject::RequestLineTooLong)),
        (head(200), None),
        (head(201), Some(Reject::HeadTooLarge)),
        (fields(3), None),
        (fields(4), Some(Reject::TooManyFields)),
    ];
    for (head, expected) in cases {
        for piece in [1, 3, head.len()] {
            let seen = verdict_in_pieces(head.as_bytes(), piece, &limits);
            assert_eq!(seen.err(), expected, "{piece} of {head:?}");
        }
    }
}

/// F4: a head that never ends is refused at its limit, not kept.
#[test]
fn fault_f4_header_bombs_stop_at_the_limit() {
    let bombs = [
        ("GET /".to_owned() + &"a".repeat(1 << 20), Reject::RequestLineTooLong),
        (format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(1 << 20)), Reject::HeadTooLarge),
        (format!("GET / HTTP/1.1\r\n{}", "X".repeat(1 << 20)), Reject::HeadTooLarge),
        (format!("GET / HTTP/1.1\r\n{}", "A: b\r\n".repeat(100_000)), Reject::TooManyFields),
    ];
    for (bomb, expected) in bombs {
        for piece in [1000, bomb.len()] {
            let seen = verdict_in_pieces(bomb.as_bytes(), piece, &Limits::DEFAULT);
            assert!(
                matches!(seen, Err(reject) if reject.status() == expected.status()),
                "{seen:?} {expected:?}"
            );
        }
    }
}

#[test]
fn many_fields_are_all_kept() {
    for count in [16, 17, 99] {
        let head = format!("GET / HTTP/1.1\r\n{HOST}{}\r\n", "A: b\r\n".repeat(count));
        let mut index = HeadIndex::default();
        assert!(matches!(parse(head.as_bytes(), &mut index, &Limits::DEFAULT), Ok(Parsed::Complete { .. })));
        assert_eq!(Head::new(head.as_bytes(), &index).fields().len(), count + 1);
    }
}

/// Fragments of heads, good and bad, so that random sequences come close to real ones.
fn head_like() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST /echo HTTP/1.1\r\n", "GET http://x/ HTTP/1.0\r\n", "Host: x\r\n", "\r\n",
            "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Connection: close\r\n", "X: y\r\n", "A:\r\n",
            "Expect: 100-continue\r\n", ": ", " ", "\t", "\r", "\n", "%41", "HTTP/1.1", "X-Long-Name: value \t\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(fragment, 0..10).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// However a head is cut, the verdict is the same; only a refusal may come earlier, and never for a valid head.
    #[test]
    fn no_cut_changes_the_verdict(bytes in head_like(), piece in 1usize..8) {
        let whole = verdict(&bytes);
        let pieces = verdict_in_pieces(&bytes, piece, &Limits::DEFAULT);
        match whole {
            Ok(Parsed::Complete { .. }) => prop_assert_eq!(pieces, whole),
            Err(_) => prop_assert!(pieces.is_err(), "{:?} {:?}", whole, pieces),
            // The search may already refuse a beginning that cannot become valid.
            Ok(Parsed::Partial) => {
                let complete = matches!(pieces, Ok(Parsed::Complete { .. }));
                prop_assert!(!complete, "{:?}", pieces);
            }
        }
    }

    /// The oracle: whatever we accept, httparse accepts with the same parts.
    #[test]
    fn what_is_accepted_httparse_reads_alike(bytes in head_like()) {
        let mut index = HeadIndex::default();
        if let Ok(Parsed::Complete { head_len }) = parse(&bytes, &mut index, &Limits::DEFAULT) {
            let mut slots = [httparse::EMPTY_HEADER; 100];
            let mut oracle = httparse::Request::new(&mut slots);
            prop_assert_eq!(oracle.parse(&bytes), Ok(httparse::Status::Complete(head_len)));
            let head = Head::new(&bytes[..head_len], &index);
            prop_assert_eq!(Some(head.method()), oracle.method);
            prop_assert_eq!(Some(head.target()), oracle.path);
            let theirs: Vec<_> = oracle.headers.iter().map(|h| (h.name, h.value)).collect();
            prop_assert_eq!(head.fields().collect::<Vec<_>>(), theirs);
        }
    }

    /// No input makes the parser panic.
    #[test]
    fn any_bytes_get_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = verdict(&bytes);
        let _ = verdict_in_pieces(&bytes, 1, &Limits::DEFAULT);
    }
}
