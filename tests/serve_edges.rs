//! `shardlet serve` at its edges, from outside and on both drivers: what names, conditions, ranges and codings may look
//! like, and files that are replaced while they are sent. Neighbour: `serve.rs` has the plain cases and the attacks.

mod common;

use common::{
    DEADLINE, Server,
    client::{Client, Response},
    for_each_driver,
    tree::{Tree, ask, noise},
    wait_for,
};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::{Command, Stdio},
};

/// What no request can name.
const ODD_NAMES: [&[u8]; 6] =
    [b"bad\xff", b"control\x01", b"new\nline", b"back\\slash", b"\x7f", b"overlong\xc0\xae"];

fn head(client: &mut Client, path: &str, fields: &str) -> Response {
    client.send(format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
    client.read_head_response()
}

/// All links of a page, as they stand in it.
fn links(page: &str) -> Vec<&str> {
    page.split("<a href=\"./").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// A name with odd octets is one name: what a listing links to is what is served, and what cannot be named in a
/// request is not listed.
#[test]
fn names_of_every_kind() {
    let tree = Tree::new();
    fs::create_dir(tree.path("names")).expect("folder");
    let long = "l".repeat(255);
    let served = [
        "per%25cent",
        "ü ñ 日本",
        "a?b#c&d=e",
        "q'\"<>",
        "plus+sp ace",
        "semi;a=b",
        "http:colon",
        "%2e%2e",
        "-",
        long.as_str(),
        "a,b",
        "[x]",
        "{y}",
        "`|^",
        "..a",
        "emoji 🦀",
    ];
    for name in served {
        tree.write(&format!("names/{name}"), name.as_bytes());
    }
    for octets in ODD_NAMES {
        fs::write(tree.path("names").join(OsStr::from_bytes(octets)), b"SECRET").expect("write");
    }
    for_each_driver(|driver| {
        let server = tree.serve(driver, &["--listing"]);
        let mut client = server.connect();
        let page = ask(&mut client, "/names/", "Accept: text/html\r\n");
        let links = links(page.text());
        // Two dots in front are a hidden name's, three are too.
        assert_eq!(links.len(), served.len() - 1, "{links:?}");
        for link in links {
            let file = client.get(&format!("/names/{link}"));
            let name = percent_encoding::percent_decode_str(link).decode_utf8().expect("UTF-8");
            assert_eq!((file.status, file.text()), (200, &*name), "{link}");
        }
        let json = ask(&mut client, "/names/", "Accept: application/json\r\n");
        let json: serde_json::Value = serde_json::from_slice(&json.body).expect("JSON");
        let names: Vec<_> =
            json["entries"].as_array().expect("entries").iter().map(|e| e["name"].as_str()).collect();
        assert!(names.contains(&Some("q'\"<>")) && names.len() == served.len() - 1, "{names:?}");
    });
}

/// Paths that name nothing are refused, not repaired.
#[test]
fn names_that_are_none() {
    let tree = Tree::new();
    for octets in ODD_NAMES {
        fs::write(tree.path("").join(OsStr::from_bytes(octets)), b"SECRET").expect("write");
    }
    for_each_driver(|driver| {
        let server = tree.serve(driver, &["--listing"]);
        let mut client = server.connect();
        let deep = "/d".repeat(70);
        let too_long = format!("/{}", "n".repeat(256));
        let (longer, longest) = (format!("/{}", "n".repeat(5000)), format!("/{}", "x/".repeat(3900)));
        for (path, status) in [
            ("/bad%FF", 400),
            ("/control%01", 400),
            ("/new%0Aline", 400),
            ("/back%5Cslash", 400),
            ("/%7F", 400),
            ("/overlong%C0%AE", 400),
            ("/%C3", 400),
            ("/%", 400),
            ("/%4", 400),
            ("/%zz", 400),
            ("/%00", 400),
            (&*too_long, 404),
            (&*longer, 404),
            (&*deep, 404),
            (&*longest, 404),
            ("/FILE.TXT", 404),
            ("/file.txt;a", 404),
            ("/file.txt/", 404),
            ("/bare/./x", 400),
            ("/.//bare", 400),
        ] {
            let answer = client.get(path);
            assert_eq!(answer.status, status, "{path}");
            // A target that is no target ends the connection, a path that names nothing does not.
            if answer.field("connection") == Some("close") {
                client = server.connect();
            }
        }
    });
}

/// To the same host and the same folder: no path makes a redirect that leads elsewhere.
#[test]
fn folders_without_their_slash() {
    let tree = Tree::new();
    fs::create_dir_all(tree.path("evil.example")).expect("folder");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        for (target, location) in [
            ("/bare", Some("/bare/")),
            ("/bare?x=1&y", Some("/bare/?x=1&y")),
            ("/bare?//evil.example", Some("/bare/?//evil.example")),
            ("/bare?a=%0d%0aX:y", Some("/bare/?a=%0d%0aX:y")),
            ("http://evil.example/bare", Some("/bare/")),
            ("//evil.example", None),
            ("//evil.example/..", None),
            ("///evil.example", None),
            ("/%2Fevil.example", None),
            ("/%5Cevil.example", None),
            ("/bare/..//evil.example", None),
            ("/.//evil.example", None),
        ] {
            let answer = server.connect().get(target);
            let expected = if location.is_some() { 301 } else { 400 };
            assert_eq!((answer.status, answer.field("location")), (expected, location), "{target}");
        }
        let answer = head(&mut server.connect(), "/bare", "");
        assert_eq!((answer.status, answer.field("location")), (301, Some("/bare/")));
    });
}

/// RFC 9110 §13.2.2, each step over the wire, with dates in all three forms of §5.6.7.
#[test]
fn conditions_in_their_order() {
    let tree = Tree::new();
    // Thu, 02 Jan 2020 03:04:05 GMT
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_577_934_245);
    tree.create("old.txt", b"0123456789").set_modified(time).expect("set the time");
    let same =
        ["Thu, 02 Jan 2020 03:04:05 GMT", "Thursday, 02-Jan-20 03:04:05 GMT", "Thu Jan  2 03:04:05 2020"];
    let (before, after) = ("Thu, 02 Jan 2020 03:04:04 GMT", "Thu, 02 Jan 2020 03:04:06 GMT");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        let plain = client.get("/old.txt");
        assert_eq!(plain.field("last-modified"), Some(same[0]));
        let tag = plain.field("etag").expect("a tag").to_owned();
        for date in same {
            for (fields, status) in [
                (format!("If-Modified-Since: {date}\r\n"), 304),
                (format!("If-Unmodified-Since: {date}\r\n"), 200),
                (format!("If-Range: {date}\r\nRange: bytes=0-0\r\n"), 206),
            ] {
                assert_eq!(ask(&mut client, "/old.txt", &fields).status, status, "{fields}");
                assert_eq!(
                    head(&mut client, "/old.txt", &fields).status,
                    if status == 206 { 200 } else { status }
                );
            }
        }
        for (fields, status) in [
            (format!("If-Modified-Since: {before}\r\n"), 200),
            (format!("If-Modified-Since: {after}\r\n"), 304),
            (format!("If-Modified-Since: {after}\r\nIf-Modified-Since: {after}\r\n"), 200),
            ("If-Modified-Since: 1577934245\r\n".into(), 200),
            ("If-Modified-Since: Thu, 02 Jan 2020 03:04:05 +0000\r\n".into(), 200),
            (format!("If-Unmodified-Since: {before}\r\n"), 412),
            ("If-Unmodified-Since: soon\r\n".into(), 200),
            (format!("If-Match: {tag}\r\n"), 200),
            (format!("If-Match: \"a\"\r\nIf-Match: {tag}\r\n"), 200),
            (format!("If-Match: W/{tag}\r\n"), 412),
            ("If-Match: *\r\n".into(), 200),
            (format!("If-Match: {tag}\r\nIf-Unmodified-Since: {before}\r\n"), 200),
            (format!("If-Match: \"a\"\r\nIf-None-Match: {tag}\r\n"), 412),
            (format!("If-None-Match: W/{tag}\r\n"), 304),
            ("If-None-Match: *\r\n".into(), 304),
            (format!("If-None-Match: \"a\"\r\nIf-Modified-Since: {after}\r\n"), 200),
            (format!("If-None-Match: {tag}\r\nIf-Modified-Since: {before}\r\n"), 304),
            (format!("If-None-Match: {tag}\r\nRange: bytes=0-0\r\n"), 304),
            ("If-Match: \"a\"\r\nRange: bytes=99-\r\n".into(), 412),
            (format!("If-Range: {tag}\r\nRange: bytes=0-0\r\n"), 206),
            (format!("If-Range: W/{tag}\r\nRange: bytes=0-0\r\n"), 200),
            (format!("If-Range: {after}\r\nRange: bytes=0-0\r\n"), 200),
            (format!("If-Range: {tag}\r\nRange: bytes=99-\r\n"), 416),
            ("If-Range: \"a\"\r\nRange: bytes=99-\r\n".into(), 200),
        ] {
            assert_eq!(ask(&mut client, "/old.txt", &fields).status, status, "{fields}");
        }
        for fields in ["If-Match: *\r\n", "If-None-Match: *\r\n"] {
            assert_eq!(
                ask(&mut client, "/none", fields).status,
                404,
                "conditions are asked of what is there"
            );
        }
    });
}

/// RFC 9110 §14: what is a part, what is the whole, and what is 416.
#[test]
fn ranges_in_their_forms() {
    let tree = Tree::new();
    tree.write("empty.txt", b"");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        for (range, part) in [
            ("bytes=0-0", "0-0"),
            ("bytes=-1", "19-19"),
            ("bytes=19-", "19-19"),
            ("bytes=-99", "0-19"),
            ("bytes=3-99", "3-19"),
            ("bytes=0-18446744073709551616", "0-19"),
            ("BYTES=5-6", "5-6"),
            ("bytes=,5-6,", "5-6"),
            ("bytes=5-6,30-40", "5-6"),
            ("bytes=0-4,3-6", "0-6"),
        ] {
            let answer = ask(&mut client, "/file.txt", &format!("Range: {range}\r\n"));
            assert_eq!(
                (answer.status, answer.field("content-range")),
                (206, Some(&*format!("bytes {part}/20"))),
                "{range}"
            );
            let (first, last) = part.split_once('-').expect("two numbers");
            let (first, last): (usize, usize) =
                (first.parse().expect("number"), last.parse().expect("number"));
            assert_eq!(answer.text(), &"0123456789abcdefghij"[first..=last], "{range}");
            let whole = head(&mut client, "/file.txt", &format!("Range: {range}\r\n"));
            assert_eq!(
                (whole.status, whole.field("content-length"), whole.field("content-range")),
                (200, Some("20"), None)
            );
        }
        for range in ["bytes=20-", "bytes=-0", "bytes=99999999999999999999999-", "bytes=20-30,40-"] {
            let answer = ask(&mut client, "/file.txt", &format!("Range: {range}\r\n"));
            assert_eq!((answer.status, answer.field("content-range")), (416, Some("bytes */20")), "{range}");
            assert_eq!(head(&mut client, "/file.txt", &format!("Range: {range}\r\n")).status, 200, "{range}");
        }
        for range in
            ["bytes=a-b", "bytes=5-2", "lines=1-2", "bytes=", "bytes=+0-1", "bytes=--1", "bytes 0-1", ""]
        {
            let answer = ask(&mut client, "/file.txt", &format!("Range: {range}\r\n"));
            assert_eq!((answer.status, answer.body.len()), (200, 20), "{range}");
        }
        for (range, status) in [("bytes=0-0", 416), ("bytes=0-", 416), ("bytes=-1", 200)] {
            let answer = ask(&mut client, "/empty.txt", &format!("Range: {range}\r\n"));
            assert_eq!(answer.status, status, "{range} of nothing");
        }
        assert_eq!((client.get("/empty.txt").status, client.get("/empty.txt").body.len()), (200, 0));
    });
}

/// RFC 9110 §12.5.3 and §12.4.2 over the wire: which of four forms of one file is sent.
#[test]
fn codings_by_their_weights() {
    let tree = Tree::new();
    let plain = "let plain;".repeat(200);
    for (name, content) in [
        ("a.js", plain.as_bytes()),
        ("a.js.br", b"brotli"),
        ("a.js.zst", b"\x28\xb5\x2f\xfdzstd"),
        ("a.js.gz", b"\x1f\x8bgzip"),
        ("b.js", plain.as_bytes()),
    ] {
        tree.write(name, content);
    }
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        let mut tags = std::collections::BTreeSet::new();
        for (accepted, coding) in [
            ("gzip", "gzip"),
            ("br", "br"),
            ("zstd", "zstd"),
            ("gzip, deflate, br, zstd", "br"),
            ("br;q=0.1, gzip", "gzip"),
            ("*", "br"),
            ("br;q=0, *;q=0.5", "zstd"),
            ("x-gzip", "gzip"),
            ("GZIP ; Q=0.5", "gzip"),
            ("identity;q=0, gzip", "gzip"),
            ("gzip;q=0.5, identity;q=0.5", "gzip"),
            ("gzip;q=0.001", "gzip"),
            ("*;q=0, zstd", "zstd"),
            ("", ""),
            ("identity", ""),
            ("gzip;q=0", ""),
            ("gzip;q=0.5, identity", ""),
            ("deflate", ""),
            ("gzip;q=1.5", ""),
            ("gzip;q=0.0001", ""),
        ] {
            for _ in 0..2 {
                let answer = ask(&mut client, "/a.js", &format!("Accept-Encoding: {accepted}\r\n"));
                assert_eq!(
                    (answer.status, answer.field("content-encoding").unwrap_or("")),
                    (200, coding),
                    "{accepted}"
                );
                assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{accepted}");
                assert_eq!(answer.field("content-type"), Some("text/javascript; charset=utf-8"));
                tags.insert((answer.field("etag").expect("a tag").to_owned(), coding));
            }
        }
        assert_eq!(tags.len(), 4, "each form has a tag of its own: {tags:?}");
        for accepted in ["identity;q=0", "*;q=0", "identity;q=0, deflate", "gzip, *;q=0, identity;q=0"] {
            let fields = format!("Accept-Encoding: {accepted}\r\n");
            let answer = ask(&mut client, "/b.js", &fields);
            assert_eq!((answer.status, answer.field("etag")), (406, None), "{accepted}");
            assert_eq!(answer.field("vary"), Some("Accept-Encoding, Accept"), "{accepted}");
            assert_eq!(head(&mut client, "/b.js", &fields).status, 406, "{accepted}");
        }
        let part = ask(&mut client, "/a.js", "Accept-Encoding: gzip\r\nRange: bytes=0-1\r\n");
        assert_eq!(
            (part.status, part.field("content-range"), &part.body[..]),
            (206, Some("bytes 0-1/6"), &b"\x1f\x8b"[..])
        );
        assert_eq!(client.get("/a.js.gz").field("content-encoding"), None, "asked for by its own name");
    });
}

/// A file whose offsets do not fit into 32 bits; it is sparse and costs nothing.
#[test]
fn beyond_four_gibibytes() {
    let tree = Tree::new();
    const LEN: u64 = (5 << 30) + 123;
    let file = tree.create("huge.bin", b"start");
    file.set_len(LEN).expect("a sparse file");
    std::os::unix::fs::FileExt::write_all_at(&file, b"end of it", LEN - 9).expect("write");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        assert_eq!(head(&mut client, "/huge.bin", "").field("content-length"), Some(&*LEN.to_string()));
        let end = ask(&mut client, "/huge.bin", "Range: bytes=-9\r\n");
        assert_eq!((end.status, end.text()), (206, "end of it"));
        assert_eq!(end.field("content-range"), Some(&*format!("bytes {}-{}/{LEN}", LEN - 9, LEN - 1)));
        let parts = ask(&mut client, "/huge.bin", &format!("Range: bytes=0-4,{}-\r\n", LEN - 9));
        assert!(
            parts.status == 206
                && parts.text().contains("\r\n\r\nstart\r\n")
                && parts.text().contains("\r\n\r\nend of it\r\n")
        );
        let megabytes = ask(&mut client, "/huge.bin", &format!("Range: bytes={}-\r\n", LEN - (2 << 20)));
        assert!(megabytes.body.len() == 2 << 20 && megabytes.body.ends_with(b"end of it"));
        // Behind a part of a stream that is as long as it is said to be, the connection is in step.
        assert_eq!(client.get("/file.txt").status, 200);
    });
}

/// What the file's mode forbids is 403, for root as for anybody, and says nothing of what is behind it.
#[test]
fn permission_denied() {
    let has_setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_ok();
    if rustix::process::geteuid().is_root() && !has_setpriv {
        return println!("left out: root reads everything, and there is no setpriv");
    }
    let tree = Tree::new();
    fs::create_dir(tree.path("closed")).expect("folder");
    tree.write("closed/in.txt", b"SECRET");
    tree.write("closed.txt", b"SECRET");
    for name in ["closed", "closed.txt"] {
        fs::set_permissions(tree.path(name), fs::Permissions::from_mode(0o000)).expect("mode");
    }
    for_each_driver(|driver| {
        let www = tree.www.display().to_string();
        let server = common::Launch::server(&["serve", &www, "--listing"], driver).bound_by_modes().start();
        let mut client = server.connect();
        for path in ["/closed.txt", "/closed/", "/closed/in.txt", "/closed/none"] {
            let answer = client.get(path);
            assert_eq!((answer.status, answer.text()), (403, "403 Forbidden\n"), "{path}");
        }
        assert_eq!(client.get("/file.txt").status, 200);
    });
    fs::set_permissions(tree.path("closed"), fs::Permissions::from_mode(0o755)).expect("mode");
}

/// A large file under `name` on its way: the head is taken, and most of the rest waits in the server's file.
fn begin(server: &Server, name: &str, len: usize) -> Client {
    let mut client = server.connect();
    client.send(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n"));
    let head = String::from_utf8(client.take_until(b"\r\n\r\n")).expect("text");
    assert!(head.contains(&format!("Content-Length: {len}\r\n")), "{head}");
    client
}

/// P3: a file that is replaced or removed while it is sent: who began with the old one gets all of it, who comes later
/// the new one, and the old one is let go.
#[test]
fn a_file_that_is_replaced_while_it_is_sent() {
    let tree = Tree::new();
    let (old, new) = (noise(24 << 20), vec![b'n'; 1000]);
    for_each_driver(|driver| {
        tree.write("swapped.bin", &old);
        tree.write("removed.bin", &old);
        let server = tree.serve(driver, &[]);
        let mut swapped = begin(&server, "swapped.bin", old.len());
        let mut removed = begin(&server, "removed.bin", old.len());
        tree.write("staged", &new);
        fs::rename(tree.path("staged"), tree.path("swapped.bin")).expect("rename");
        fs::remove_file(tree.path("removed.bin")).expect("remove");
        let mut later = server.connect();
        assert!(wait_for(DEADLINE, || later.get("/swapped.bin").body == new));
        assert_eq!(later.get("/removed.bin").status, 404);
        for client in [&mut swapped, &mut removed] {
            assert!(client.read_exact(old.len()) == old, "other bytes");
            assert_eq!(client.get("/file.txt").status, 200, "in step");
        }
        let is_open = |name: &String| name.contains("swapped") || name.contains("removed");
        let closed = || !common::process::descriptor_targets(server.pid()).iter().any(is_open);
        assert!(wait_for(DEADLINE, closed), "the old file stays open");
    });
}

/// A kept copy under readers that do not read: replaced meanwhile, it is theirs to the last octet, and gone after them.
#[test]
fn a_kept_copy_outlives_its_file_under_slow_readers() {
    let tree = Tree::new();
    let (old, new) = (noise(1 << 20), noise(900_000));
    for_each_driver(|driver| {
        tree.write("kept.bin", &old);
        let server = tree.serve(driver, &["--file-cache", "16", "--shards", "1"]);
        assert!(server.connect().get("/kept.bin").body == old);
        let slow: Vec<Client> = (0..12).map(|_| begin(&server, "kept.bin", old.len())).collect();
        tree.write("staged", &new);
        fs::rename(tree.path("staged"), tree.path("kept.bin")).expect("rename");
        let mut client = server.connect();
        assert!(wait_for(DEADLINE, || client.get("/kept.bin").body == new), "the old file is still sent");
        let two = begin(&server, "kept.bin", new.len());
        for (mut client, content) in slow.into_iter().map(|c| (c, &old)).chain([(two, &new)]) {
            assert!(client.read_exact(content.len()) == *content, "other bytes");
            assert_eq!(client.get("/file.txt").status, 200, "in step");
        }
    });
}
