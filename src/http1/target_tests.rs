//! Tests of `target.rs`: RFC 9112 §3.2 by form, RFC 3986 by octet.

use super::*;
use crate::http1::head::{Head, HeadIndex};
use crate::http1::parse::{Parsed, parse};

fn target(method: &str, target: &str) -> Result<(TargetForm, String, Option<String>, String), Reject> {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: x.test\r\n\r\n");
    let mut index = HeadIndex::default();
    let parsed = parse(head.as_bytes(), &mut index, &Limits::DEFAULT)?;
    assert!(matches!(parsed, Parsed::Complete { .. }));
    let head = Head::new(head.as_bytes(), &index);
    Ok((
        head.target_form(),
        head.path().to_owned(),
        head.query().map(str::to_owned),
        head.host().unwrap().to_owned(),
    ))
}

/// RFC 9112 §3.2.1 to §3.2.4.
#[test]
fn each_form_is_taken_where_it_belongs() {
    let forms = [
        ("GET", "/", TargetForm::Origin, "/", None, "x.test"),
        ("GET", "/a%20b;c?x=1?&y=/", TargetForm::Origin, "/a%20b;c", Some("x=1?&y=/"), "x.test"),
        ("GET", "//evil.test/", TargetForm::Origin, "//evil.test/", None, "x.test"),
        ("GET", "http://y.test:80/p", TargetForm::Absolute, "/p", None, "y.test:80"),
        ("GET", "HTTPS://[::1]?q", TargetForm::Absolute, "/", Some("q"), "[::1]"),
        ("OPTIONS", "http://y.test", TargetForm::Absolute, "*", None, "y.test"),
        ("OPTIONS", "*", TargetForm::Asterisk, "*", None, "x.test"),
        ("CONNECT", "y.test:443", TargetForm::Authority, "", None, "y.test:443"),
    ];
    for (method, text, form, path, query, host) in forms {
        let expected = (form, path.to_owned(), query.map(str::to_owned), host.to_owned());
        assert_eq!(target(method, text), Ok(expected), "{method} {text}");
    }
}

/// RFC 9112 §3.2: "an invalid request-line SHOULD" get 400; RFC 9110 §4.2: no userinfo, no empty host.
#[test]
fn what_matches_no_form_is_refused() {
    let targets = [
        "foo",
        "?x",
        "*",
        "*x",
        ".",
        "a/b",
        "/#f",
        "/x#",
        "/%",
        "/%zz",
        "/a%2",
        "/%%41",
        "/{a}",
        "/^",
        "/<a>",
        "/a\\b",
        "/\"",
        "/`",
        "/|",
        "/é",
        "/?q=é",
        "http:///",
        "http://?x",
        "http://",
        "http:/x",
        "http://u@x.test/",
        "http://x.test:port/",
        "http://[::1/",
        "http://x.test:99999/",
        "http://x.test#f",
        "ftp://x.test/",
        "javascript:alert(1)",
        "x.test:443",
    ];
    for text in targets {
        assert_eq!(target("GET", text), Err(Reject::Target), "{text}");
    }
    for text in ["/", "*", "y.test", "http://y.test/", "y.test:", "u@y.test:1"] {
        assert_eq!(target("CONNECT", text), Err(Reject::Target), "{text}");
    }
}

/// RFC 9110 §7.2, RFC 3986 §3.2.2 (H5).
#[test]
fn a_host_is_a_uri_host_with_an_optional_port() {
    let mut known = KnownHost::default();
    let mut check_host = |host: &[u8]| {
        let first = known.check(host, Span::new(0, host.len()), &Limits::DEFAULT);
        assert_eq!(known.check(host, Span::new(0, host.len()), &Limits::DEFAULT), first, "{host:?}");
        first
    };
    for host in [
        "x.test",
        "x.test:8080",
        "x.test:",
        "127.0.0.1",
        "[::1]",
        "[::1]:80",
        "[v1.a:b]",
        "x%41.test",
        "-",
        "a_b",
        "x.test:65535",
    ] {
        assert_eq!(check_host(host.as_bytes()), Ok(()), "{host}");
    }
    for host in [
        "",
        ":80",
        "x y",
        "x\\y",
        "u@x",
        "u:p@x",
        "x:port",
        "x:-1",
        "x:65536",
        "[zz::1]",
        "::1",
        "[::1",
        "[]",
        "[v.a]",
        "[v1.]",
        "[::1]x",
        "[::1%25e]",
        "x/y",
        "x?y",
        "x#y",
        "<x>",
        "x\"y",
        "x|y",
        "{x}",
        "x,y",
        "x%4",
        "xé",
        "x\0",
    ] {
        assert_eq!(check_host(host.as_bytes()), Err(Reject::HostInvalid), "{host}");
    }
    assert_eq!(check_host(&[b'h'; 256]), Err(Reject::HostInvalid));
}

/// What is known is known of the same octets under the same limit, and of no copy.
#[test]
fn a_known_host_is_no_other_and_no_longer_one_than_allowed() {
    let check = |known: &mut KnownHost, host: &[u8], host_bytes_max| {
        known.check(host, Span::new(0, host.len()), &Limits { host_bytes_max, ..Limits::DEFAULT })
    };
    let mut known = KnownHost::default();
    let refused = Err(Reject::HostInvalid);
    assert_eq!(check(&mut known, b"", 0), refused, "nothing is known yet");
    assert_eq!(check(&mut known, b"x.test:80", 255), Ok(()));
    let mut copy = known.clone();
    assert!(copy.0.is_none() && known.0.is_some());
    assert_eq!(check(&mut copy, b"x.test:8o", 255), refused);
    assert_eq!(check(&mut known, b"x.test:80", 5), refused);
    assert_eq!(check(&mut known, b"x.test:80", 255), Ok(()));
    for other in [&b"x.test:8"[..], b"x.test", b"X.test:80", b"x.test:801"] {
        assert_eq!(check(&mut known, other, 255), Ok(()));
        assert_eq!(check(&mut known, b"x.test:8o", 255), refused);
        assert_eq!(check(&mut known, b"x.test:80,", 255), refused);
    }
    let long = [b'h'; KNOWN_BYTES_MAX + 1];
    assert_eq!((check(&mut known, &long, 255), check(&mut known, &long, 64)), (Ok(()), refused));
}
