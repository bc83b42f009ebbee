//! Tests of `body.rs`: RFC 9112 §7.1 octet by octet, limits, and that no cut changes what is decoded.

use proptest::prelude::*;

use super::*;

fn decoder(kind: BodyKind) -> BodyDecoder {
    let mut decoder = BodyDecoder::new((&Limits::DEFAULT).into());
    decoder.begin(kind, Limits::DEFAULT.body_bytes_max).unwrap();
    decoder
}

/// Content, bytes consumed when the end was reached (None if it was not).
type Decoded = Result<(Vec<u8>, Option<usize>), Reject>;

/// Feeds `bytes` as they arrive: each piece is appended to what was not consumed.
fn decode(kind: BodyKind, bytes: &[u8], piece: usize) -> Decoded {
    let mut decoder = decoder(kind);
    let (mut content, mut consumed) = (Vec::new(), 0);
    for end in (0..bytes.len()).step_by(piece).skip(1).chain([bytes.len()]) {
        loop {
            let input = &bytes[consumed..end];
            let (used, event) = decoder.decode(input)?;
            consumed += used;
            match event {
                BodyEvent::Data(range) => {
                    assert!(!range.is_empty() && range.end <= used);
                    content.extend_from_slice(&input[range]);
                }
                BodyEvent::NeedMore => break,
                BodyEvent::End => return Ok((content, Some(consumed))),
            }
        }
    }
    Ok((content, None))
}

fn chunked(body: &str) -> Decoded {
    let whole = decode(BodyKind::Chunked, body.as_bytes(), usize::MAX);
    assert_eq!(decode(BodyKind::Chunked, body.as_bytes(), 1), whole, "{body:?}");
    whole
}

fn refusal(body: &str) -> Reject {
    chunked(body).expect_err(body)
}

/// RFC 9112 §6.2.
#[test]
fn a_length_is_counted_and_the_rest_is_left() {
    for piece in [1, 2, 100] {
        let seen = decode(BodyKind::Length(5), b"helloGET /", piece);
        assert_eq!(seen, Ok((b"hello".to_vec(), Some(5))));
    }
    assert_eq!(decode(BodyKind::Length(5), b"hel", 1), Ok((b"hel".to_vec(), None)));
    assert_eq!(decode(BodyKind::None, b"GET /", 1), Ok((Vec::new(), Some(0))));
}

/// RFC 9112 §7.1.
#[test]
fn chunks_are_decoded() {
    let end = |body: &str| Some(body.len());
    for (body, content) in [
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("A\r\n0123456789\r\n00\r\n\r\n", "0123456789"),
        ("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello"),
        ("1\r\na\r\n1;x\r\nb\r\n0;y=z\r\n\r\n", "ab"),
        ("0\r\n\r\n", ""),
    ] {
        assert_eq!(chunked(body), Ok((content.into(), end(body))), "{body:?}");
    }
}

/// RFC 9112 §7.1: chunk-size = 1*HEXDIG (H2).
#[test]
fn a_chunk_size_is_hexadecimal_and_nothing_else() {
    for size in
        ["+5", "-5", "0x5", "5h", "5_0", "", "5,", " 5", "x5", "5:", "'5'", "5\0", "5\u{b}", "\u{ff15}"]
    {
        assert_eq!(refusal(&format!("{size}\r\nhello\r\n0\r\n\r\n")), Reject::ChunkSize, "{size:?}");
    }
    for size in ["FFFFFFFFFFFFFFFF", "8000000000000005", "00000000000000005", "10000000000000000"] {
        assert_eq!(refusal(&format!("{size}\r\nhello")), Reject::ChunkSizeOverflow, "{size:?}");
    }
    assert_eq!(refusal("7FFFFFFFFFFFFFFF\r\nhello"), Reject::BodyTooLarge);
}

/// RFC 9112 §7.1 and §2.2: CRLF, both octets, everywhere (H2, CVE-2026-134342).
#[test]
fn chunk_lines_end_in_crlf() {
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\rX0\r\n\r\n",
        "5\r\nhello \r\n0\r\n\r\n",
        "5\r\nhello\r\n\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\r\r\n\r\n",
        "5\r\nhello\r\n0\r\nX\r\n\r\n",
    ] {
        assert_eq!(refusal(body).status(), 400, "{body:?}");
    }
}

/// RFC 9112 §7.1.1; RFC 9110 §5.6.3: bad whitespace must be taken, but only where the grammar has it.
#[test]
fn chunk_extensions_follow_the_grammar() {
    for extension in [
        ";a",
        ";a=b",
        ";a=b;c=d",
        ";a=\"x;y\"",
        ";a=\"\"",
        ";a=\"\\\"\"",
        " ;a",
        "\t;a=b",
        "; a",
        ";a =b",
        ";a= b",
        ";a\t=\t\"b\" ; c",
        ";a=\"\u{e9}\t\"",
    ] {
        let body = format!("5{extension}\r\nhello\r\n0\r\n\r\n");
        assert_eq!(chunked(&body), Ok((b"hello".to_vec(), Some(body.len()))), "{extension:?}");
    }
    for extension in [
        ";",
        ";a=",
        ";a=b;",
        ";a;;b",
        ";=b",
        " a",
        " ",
        "  \t",
        ";a=b c",
        ";a b",
        ";a=[x]",
        ";a@b",
        ";a=\"x\"y",
        ";a=\"x",
        ";a\0",
        ";\u{7f}",
        ";\u{b}a",
        ";a\rb",
        ";a=\"\rx\"",
        ";a\r\r\n",
        ";a\nxx",
        ";a=\"\n\"",
        ";\n",
        ";a ",
        ";a=b ",
    ] {
        let reject = refusal(&format!("5{extension}\r\nhello\r\n0\r\n\r\n"));
        assert!(matches!(reject, Reject::ChunkExtension | Reject::ChunkSize), "{extension:?}: {reject:?}");
    }
}

/// RFC 9112 §7.1.1: "a recipient ought to limit the total length of chunk extensions".
#[test]
fn chunk_extensions_are_bounded_by_line_and_by_body() {
    let long = format!("5;a={}\r\nhello\r\n0\r\n\r\n", "b".repeat(1 << 20));
    assert_eq!(refusal(&long), Reject::ChunkExtensionTooLong);
    let many = format!("1;{}\r\nx\r\n", "a".repeat(1000)).repeat(20);
    assert_eq!(refusal(&many), Reject::ChunkExtensionTooLong);
    // In proportion to the data they are no attack: signed uploads have one on each chunk.
    let chunk = format!("400;chunk-signature={}\r\n{}\r\n", "a".repeat(64), "x".repeat(1024));
    let signed = chunk.repeat(1000) + "0\r\n\r\n";
    assert_eq!(decode(BodyKind::Chunked, signed.as_bytes(), usize::MAX).unwrap().0.len(), 1024 * 1000);
}

/// RFC 9112 §7.1.2, RFC 9110 §6.5.1 (H3).
#[test]
fn trailers_are_strict_and_kept_apart() {
    let mut decoder = decoder(BodyKind::Chunked);
    let body = b"0\r\nX-T:  v \r\nx-empty:\r\n\r\nGET";
    assert_eq!(decoder.decode(body), Ok((body.len() - 3, BodyEvent::End)));
    let trailers: Vec<_> = decoder.trailers().collect();
    assert_eq!(trailers, [(&b"X-T"[..], &b"v"[..]), (b"x-empty", b"")]);
    for line in [
        "X T: v",
        ": v",
        "X\0: v",
        "X: a\0b",
        " X: v",
        "\u{80}: v",
        "X: a\r\n b",
        "X: a\n",
        "X",
        "GET / HTTP/1.1",
    ] {
        assert_eq!(refusal(&format!("0\r\n{line}\r\n\r\n")), Reject::Trailer, "{line:?}");
    }
    for name in
        ["Content-Length", "transfer-encoding", "HOST", "Connection", "Authorization", "Content-Encoding"]
    {
        assert_eq!(refusal(&format!("0\r\n{name}: x\r\n\r\n")), Reject::TrailerForbidden, "{name}");
    }
    assert_eq!(refusal(&format!("0\r\nX: {}", "b".repeat(1 << 16))), Reject::TrailerTooLarge);
    assert_eq!(refusal(&format!("0\r\n{}", "X: b\r\n".repeat(33))), Reject::TrailerTooLarge);
}

/// RFC 9110 §15.5.14: 413 before a byte of it is read if it is announced, at the chunk that passes it if not.
#[test]
fn content_is_bounded() {
    let mut decoder = decoder(BodyKind::None);
    assert_eq!(decoder.begin(BodyKind::Length(11), 10), Err(Reject::BodyTooLarge));
    assert_eq!(decoder.begin(BodyKind::Length(10), 10), Ok(()));
    assert_eq!(decoder.unread(), Some(10));
    decoder.begin(BodyKind::Chunked, 10).unwrap();
    assert_eq!(decoder.unread(), None);
    let body = b"5\r\nhello\r\n6\r\n";
    assert_eq!(decoder.decode(body), Ok((8, BodyEvent::Data(3..8))));
    assert_eq!(decoder.decode(&body[8..]), Err(Reject::BodyTooLarge));
}

fn chunked_like() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![
        8 => prop::sample::select(vec![
            "0\r\n", "\r\n", "1\r\nx\r\n", "5\r\nhello\r\n", "2;a=b\r\nhi\r\n", "3 ; a = \"q\\\"\"\r\nabc\r\n", "X: y\r\n",
            "0;z\r\n", "a", ";", "\"", "\r", "\n", " ",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..3),
    ];
    prop::collection::vec(fragment, 0..10).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whole input and any pieces give the same content, the same end and the same refusal.
    #[test]
    fn no_cut_changes_what_is_decoded(bytes in chunked_like(), piece in 1usize..8) {
        let whole = decode(BodyKind::Chunked, &bytes, usize::MAX);
        prop_assert_eq!(decode(BodyKind::Chunked, &bytes, piece), whole);
    }

    /// What `encode_chunk` writes is read back, whatever the chunks are.
    #[test]
    fn encoded_chunks_are_read_back(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
        let mut encoded = Vec::new();
        for chunk in &chunks {
            crate::http1::encode::encode_chunk(&mut encoded, chunk);
        }
        crate::http1::encode::encode_last_chunk(&mut encoded, &crate::http1::fields::FieldLines::new());
        prop_assert_eq!(decode(BodyKind::Chunked, &encoded, 3), Ok((chunks.concat(), Some(encoded.len()))));
    }
}
