//! Answers by facts: the conformance cases of the static profile, and rules that hold for all of them.

use super::*;
use proptest::prelude::*;

const NOW_S: i64 = 1_800_000_000;
const MODIFIED_S: i64 = 1_577_934_245;
const LAST_MODIFIED: &str = "Thu, 02 Jan 2020 03:04:05 GMT";

fn request() -> RequestFacts<'static> {
    RequestFacts { now_s: NOW_S, random: 7, ..RequestFacts::get("/file.txt") }
}

fn facts(len: u64) -> FileFacts {
    FileFacts { len, modified_s: MODIFIED_S, modified_ns: 0, inode: 1, device: 1 }
}

fn found(name: &str, len: u64) -> FoundFile<'_> {
    FoundFile { name, facts: facts(len), coding: None, status: 200, is_fallback: false }
}

fn answer(request: &RequestFacts<'_>) -> Plan {
    plan(request, Found::File(found("file.txt", 2000)), &FilesOptions::default())
}

fn line(value: &str) -> Lines<'_> {
    Lines::One(value.as_bytes())
}

#[test]
fn a_file_as_a_whole() {
    let plan = answer(&request());
    assert_eq!((plan.status, plan.content_length), (200, Some(2000)));
    assert_eq!(plan.body, Body::File { offset: 0, len: 2000 });
    assert_eq!(plan.field("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(plan.field("last-modified"), Some(LAST_MODIFIED));
    assert_eq!(plan.field("accept-ranges"), Some("bytes"));
    assert_eq!(plan.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(plan.field("vary"), Some("Accept-Encoding"));
    assert!(plan.field("etag").unwrap().starts_with('"'));
    let head = answer(&RequestFacts { method: Method::Head, ..request() });
    assert_eq!(head, Plan { body: Body::None, ..plan });
    let empty = super::plan(&request(), Found::File(found("e.txt", 0)), &FilesOptions::default());
    assert_eq!((empty.status, empty.content_length, empty.body), (200, Some(0), Body::None));
}

/// RFC 9110 §8.8.2.1: a time in the future is not sent, and proves nothing.
#[test]
fn a_file_from_the_future() {
    let file = FoundFile { facts: FileFacts { modified_s: NOW_S + 86_400, ..facts(5) }, ..found("f.txt", 5) };
    let plan_of = |request: &RequestFacts<'_>| plan(request, Found::File(file), &FilesOptions::default());
    let plan = plan_of(&request());
    assert_eq!(plan.field("last-modified"), Some(format_date(NOW_S).as_str()));
    assert!(plan.field("etag").unwrap().starts_with("W/"));
    let date = format_date(NOW_S);
    let ranged = RequestFacts { range: line("bytes=0-1"), if_range: line(&date), ..request() };
    assert_eq!(plan_of(&ranged).status, 200);
    let timeless = FoundFile { facts: FileFacts { modified_s: 1, ..facts(5) }, ..file };
    assert_eq!(
        super::plan(&request(), Found::File(timeless), &FilesOptions::default()).field("last-modified"),
        None
    );
}

#[test]
fn parts() {
    let of = |value: &'static str| answer(&RequestFacts { range: line(value), ..request() });
    let one = of("bytes=100-199");
    assert_eq!(
        (one.status, one.content_length, one.field("content-range")),
        (206, Some(100), Some("bytes 100-199/2000"))
    );
    assert_eq!(one.body, Body::File { offset: 100, len: 100 });
    assert_eq!(one.field("content-type"), Some("text/plain; charset=utf-8"));
    let two = of("bytes=0-9,1000-1009");
    assert_eq!((two.status, two.field("content-range")), (206, None));
    assert!(two.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    assert!(matches!(&two.body, Body::Pieces(pieces) if pieces.len() == 5));
    assert_eq!(of("bytes=0-9,9000-").field("content-range"), Some("bytes 0-9/2000"));
    let none = of("bytes=2000-");
    assert_eq!((none.status, none.field("content-range")), (416, Some("bytes */2000")));
    assert_eq!((of("items=0-5").status, of("bytes=5-2").status), (200, 200));
    let head = answer(&RequestFacts { method: Method::Head, range: line("bytes=0-9"), ..request() });
    assert_eq!((head.status, head.content_length), (200, Some(2000)));
}

#[test]
fn if_range_and_the_range_that_then_is_not_read() {
    let etag = answer(&request()).field("etag").unwrap().to_owned();
    let weak = format!("W/{etag}");
    let of = |if_range: &str, range: &'static str| {
        answer(&RequestFacts { range: line(range), if_range: line(if_range), ..request() }).status
    };
    assert_eq!((of(&etag, "bytes=0-9"), of(LAST_MODIFIED, "bytes=0-9")), (206, 206));
    assert_eq!((of(&weak, "bytes=0-9"), of("\"other\"", "bytes=9000-")), (200, 200));
    assert_eq!(of(&etag, "bytes=9000-"), 416);
}

/// RFC 9110 §15.4.5
#[test]
fn not_modified_keeps_what_a_cache_needs_and_describes_no_content() {
    let mut options = FilesOptions { cache_control: Some("max-age=60".into()), ..FilesOptions::default() };
    options.rules.add("*", &[("Access-Control-Allow-Origin", "*"), ("Content-Language", "en")]).unwrap();
    let file = found("file.txt", 2000);
    let whole = plan(&request(), Found::File(file), &options);
    let etag = whole.field("etag").unwrap().to_owned();
    let preconditions = Preconditions { if_none_match: line(&etag), ..Preconditions::default() };
    let plan = plan(&RequestFacts { preconditions, ..request() }, Found::File(file), &options);
    assert_eq!((plan.status, plan.content_length, &plan.body), (304, None, &Body::None));
    for kept in ["etag", "cache-control", "vary", "access-control-allow-origin"] {
        assert_eq!(plan.field(kept), whole.field(kept), "{kept}");
    }
    for gone in ["content-type", "content-language", "last-modified"] {
        assert_eq!(plan.field(gone), None, "{gone}");
    }
}

#[test]
fn a_failed_precondition() {
    let preconditions = Preconditions { if_match: line("\"other\""), ..Preconditions::default() };
    let plan = answer(&RequestFacts { preconditions, range: line("bytes=0-1"), ..request() });
    assert_eq!((plan.status, plan.field("etag")), (412, None));
}

#[test]
fn methods_and_paths_before_any_file() {
    let options = FilesOptions::default();
    let refused = |token: &'static str, path: &'static str| {
        let request = RequestFacts { method: Method::from_token(token.as_bytes()), path, ..request() };
        preflight(&request, &options).unwrap_err()
    };
    for token in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT"] {
        let plan = refused(token, "/file.txt");
        assert_eq!((plan.status, plan.field("allow")), (405, Some(ALLOW)), "{token}");
    }
    for token in ["FOO", "G", "GETT", "get", "gET", ""] {
        assert_eq!(refused(token, "/file.txt").status, 501, "{token}");
    }
    let plan = refused("OPTIONS", "/file.txt");
    assert_eq!((plan.status, plan.field("allow"), plan.content_length), (204, Some(ALLOW), None));
    for (path, status) in [("/../x", 400), ("/%00", 400), ("/.git/config", 404), ("//evil.test/", 400)] {
        assert_eq!(refused("GET", path).status, status, "{path}");
    }
    assert!(preflight(&request(), &options).is_ok());
}

#[test]
fn redirects_stay_on_this_host_and_carry_nothing_else() {
    let to = |path: &'static str, query: Option<&'static str>| {
        let plan =
            plan(&RequestFacts { path, query, ..request() }, Found::Redirect, &FilesOptions::default());
        assert_eq!(plan.status, 301);
        plan.field("location").unwrap().to_owned()
    };
    assert_eq!(to("/sub", None), "/sub/");
    assert_eq!(to("/a%20b", Some("x=1&y")), "/a%20b/?x=1&y");
    assert_eq!(to("/sub", Some("x\r\nX-Injected: y")), "/sub/");
}

#[test]
fn sidecars_and_compression_are_representations_of_their_own() {
    let options = FilesOptions { compress: true, ..FilesOptions::default() };
    let accept = RequestFacts { accept_encoding: line("gzip"), ..request() };
    let plain = plan(&request(), Found::File(found("app.js", 5000)), &options);
    let sidecar = FoundFile { coding: Some(Coding::Gzip), ..found("app.js", 900) };
    let coded = plan(&accept, Found::File(sidecar), &options);
    assert_eq!(coded.field("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!((coded.field("content-encoding"), coded.compress), (Some("gzip"), None));
    assert_eq!(coded.content_length, Some(900));
    let live = plan(&accept, Found::File(found("app.js", 5000)), &options);
    assert_eq!((live.field("content-encoding"), live.compress), (Some("gzip"), Some(Coding::Gzip)));
    assert_eq!((live.content_length, live.field("accept-ranges")), (None, None));
    assert!(live.field("etag").unwrap().starts_with("W/"));
    let tags: Vec<_> = [&plain, &coded, &live].map(|plan| plan.field("etag").unwrap()).to_vec();
    assert!(tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2]);
    for plan in [&plain, &coded, &live] {
        assert_eq!(plan.field("vary"), Some("Accept-Encoding"));
    }
    let small = plan(&accept, Found::File(found("app.js", 100)), &options);
    let image = plan(&accept, Found::File(found("a.jpg", 5000)), &options);
    assert_eq!((small.compress, image.compress, image.field("vary")), (None, None, None));
    let ranged = plan(
        &RequestFacts { range: line("bytes=0-9"), ..accept },
        Found::File(found("app.js", 5000)),
        &options,
    );
    assert_eq!((ranged.status, ranged.compress), (206, None));
}

#[test]
fn error_pages_fallbacks_and_listings() {
    let mut options = FilesOptions::default();
    options.rules.add("*", &[("Cache-Control", "max-age=9")]).unwrap();
    let page = FoundFile { status: 404, ..found("404.html", 50) };
    let conditional = Preconditions { if_none_match: line("*"), ..Preconditions::default() };
    let request_with = RequestFacts { preconditions: conditional, range: line("bytes=0-1"), ..request() };
    let missing = plan(&request_with, Found::File(page), &options);
    assert_eq!((missing.status, missing.content_length, missing.field("etag")), (404, Some(50), None));
    assert_eq!(missing.field("cache-control"), None);
    let fallback =
        plan(&request(), Found::File(FoundFile { is_fallback: true, ..found("index.html", 50) }), &options);
    assert_eq!(fallback.field("vary"), Some("Accept-Encoding, Accept"));
    assert_eq!(fallback.field("cache-control"), Some("max-age=9"));
    let listed = plan(&request(), Found::Page { bytes: b"x".to_vec(), form: Form::Html }, &options);
    assert_eq!((listed.status, listed.field("content-type")), (200, Some("text/html; charset=utf-8")));
    let etag = listed.field("etag").unwrap().to_owned();
    let preconditions = Preconditions { if_none_match: line(&etag), ..Preconditions::default() };
    let again = plan(
        &RequestFacts { preconditions, ..request() },
        Found::Page { bytes: b"x".to_vec(), form: Form::Html },
        &options,
    );
    assert_eq!(again.status, 304);
    let html =
        plan(&RequestFacts { accept: line("text/html,*/*;q=0.8"), ..request() }, Found::Error(404), &options);
    assert_eq!(html.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(
        plan(&request(), Found::Error(404), &options).field("content-type"),
        Some("text/plain; charset=utf-8")
    );
}

/// RFC 9110 §12.5.3: who refuses the plain form does not get it, whatever else is asked.
#[test]
fn the_plain_form_is_not_sent_to_who_refuses_it() {
    let etag = plan(&request(), Found::File(found("a.txt", 50)), &FilesOptions::default());
    let etag = etag.field("etag").unwrap().to_owned();
    let compressing = FilesOptions { compress: true, ..FilesOptions::default() };
    let ask = |encoding: &'static str, name: &'static str, may_compress, options: &FilesOptions| {
        let preconditions = Preconditions { if_none_match: line(&etag), ..Preconditions::default() };
        let facts =
            RequestFacts { accept_encoding: line(encoding), may_compress, preconditions, ..request() };
        plan(&facts, Found::File(found(name, 50)), options)
    };
    for encoding in ["identity;q=0", "*;q=0", "identity;q=0, deflate"] {
        let seen = ask(encoding, "a.txt", true, &FilesOptions::default());
        assert_eq!((seen.status, seen.field("vary")), (406, Some("Accept-Encoding, Accept")), "{encoding}");
        assert_eq!((seen.field("etag"), seen.field("content-encoding")), (None, None));
    }
    // Coded however small it is; nothing gains by coding a picture; and for want of a free place it is 503.
    let coded = ask("identity;q=0, gzip", "a.txt", true, &compressing);
    assert_eq!((coded.status, coded.field("content-encoding")), (200, Some("gzip")));
    assert_eq!(ask("gzip", "a.txt", true, &compressing).status, 304);
    assert_eq!(ask("identity;q=0, gzip", "a.png", true, &compressing).status, 406);
    let later = ask("identity;q=0, gzip", "a.txt", false, &compressing);
    assert!(later.status == 503 && later.compression_refused);
    let sidecar = FoundFile { coding: Some(negotiate::Coding::Gzip), ..found("a.txt", 50) };
    let facts = RequestFacts { accept_encoding: line("identity;q=0, gzip"), ..request() };
    assert_eq!(plan(&facts, Found::File(sidecar), &FilesOptions::default()).status, 200);
}

fn any_line() -> impl Strategy<Value = Option<String>> {
    let values = [
        "*",
        "\"x\"",
        "W/\"x\"",
        LAST_MODIFIED,
        "Wed, 01 Jan 2020 00:00:00 GMT",
        "Fri, 03 Jan 2020 00:00:00 GMT",
        "bytes=0-9",
        "bytes=0-9,20-29",
        "bytes=9000-",
        "bytes=-0",
        "gzip",
        "br;q=0.5, *",
        "identity;q=0",
        "*;q=0, gzip",
        "text/html",
        "junk",
        "",
    ];
    prop::option::of(prop::sample::select(values.to_vec()).prop_map(str::to_owned))
}

fn lines(value: &Option<String>) -> Lines<'_> {
    value.as_ref().map_or(Lines::Absent, |value| line(value))
}

proptest! {
    /// Whatever is asked: the length is that of the body, parts lie inside the file, HEAD and GET agree, no field
    /// comes twice or breaks a line.
    #[test]
    fn every_plan_is_consistent(
        values in prop::collection::vec(any_line(), 8), len in prop_oneof![Just(0_u64), Just(2000), Just(5000)], compress: bool,
    ) {
        let options = FilesOptions { compress, ..FilesOptions::default() };
        let request = RequestFacts {
            preconditions: Preconditions {
                if_match: lines(&values[0]),
                if_none_match: lines(&values[1]),
                if_modified_since: lines(&values[2]),
                if_unmodified_since: lines(&values[3]),
            },
            if_range: lines(&values[4]),
            range: lines(&values[5]),
            accept: lines(&values[6]),
            accept_encoding: lines(&values[7]),
            ..request()
        };
        let seen = plan(&request, Found::File(found("file.txt", len)), &options);
        prop_assert!([200, 206, 304, 406, 412, 416].contains(&seen.status));
        let inside = |offset: u64, count: u64| count > 0 && offset + count <= len;
        let body_len = match &seen.body {
            Body::None => 0,
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::File { offset, len } => { prop_assert!(inside(*offset, *len)); *len }
            Body::Pieces(pieces) => {
                for piece in pieces {
                    if let Piece::File { offset, len } = piece { prop_assert!(inside(*offset, *len)); }
                }
                pieces.iter().map(Piece::len).sum()
            }
        };
        match seen.content_length {
            Some(content_length) => prop_assert_eq!(content_length, body_len),
            None => prop_assert!(seen.status == 304 || seen.compress.is_some()),
        }
        for (index, (name, value)) in seen.fields.iter().enumerate() {
            prop_assert!(!seen.fields[..index].iter().any(|(other, _)| other.eq_ignore_ascii_case(name)), "{} twice", name);
            prop_assert!(value.bytes().all(|octet| (0x20..0x7f).contains(&octet)), "{}: {:?}", name, value);
        }
        let head_request = RequestFacts { method: Method::Head, ..request.clone() };
        let head = plan(&head_request, Found::File(found("file.txt", len)), &options);
        prop_assert_eq!(&head.body, &Body::None);
        if !request.range.is_present() {
            prop_assert_eq!(head, Plan { body: Body::None, ..seen });
        }
    }
}
