//! All pure parts over a real folder: request in, status and octets out, without server. Shows that what is opened
//! lies beneath the root, and that the cases of the static profile come out as wanted.

use super::{
    Body, FilesOptions, Found, Lookup, Method, Opened, Outcome, Piece, RequestFacts, Step,
    fields::Lines,
    listing::{ENTRIES_MAX, ListedEntry, Listing, Order},
    negotiate::{self, Form},
    plan::{FoundFile, Plan, plan, preflight},
};
use shards::fs::{Follow, Kind, OpenFile, Root};
use std::{
    collections::HashSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

const NOW_S: i64 = 4_000_000_000;

/// The folder of the conformance tool, with traps: links out, a hidden file, sidecars old and corrupt.
fn tree() -> (TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let www = outer.path().join("www");
    fs::create_dir_all(www.join("sub")).unwrap();
    fs::create_dir_all(www.join("bare")).unwrap();
    fs::create_dir_all(outer.path().join("outside")).unwrap();
    fs::write(outer.path().join("secret.txt"), b"SECRET").unwrap();
    fs::write(outer.path().join("outside/page.js.gz"), b"\x1f\x8bSECRET").unwrap();
    for (name, content) in [
        ("index.html", "<p>index"),
        ("file.txt", "0123456789abcdefghij"),
        ("empty.txt", ""),
        ("a b.txt", "space"),
        (".env", "SECRET"),
        ("sub/index.html", "<p>sub"),
        ("sub/inner.txt", "inner"),
        ("bare/x<y>.txt", "x"),
        ("page.js", "let plain;"),
        ("good.js", "let plain;"),
        ("bad.js", "let plain;"),
        ("bad.js.gz", "not gzip"),
    ] {
        fs::write(www.join(name), content).unwrap();
    }
    fs::write(www.join("good.js.gz"), b"\x1f\x8bcoded").unwrap();
    symlink("../secret.txt", www.join("link.txt")).unwrap();
    symlink("../outside", www.join("away")).unwrap();
    symlink("../outside/page.js.gz", www.join("page.js.gz")).unwrap();
    (outer, www)
}

/// What a handler does, with blocking calls.
fn respond(root: &Root, request: &RequestFacts<'_>, options: &FilesOptions) -> (Plan, Vec<u8>, Option<u64>) {
    let path = match preflight(request, options) {
        Ok(path) => path,
        Err(plan) => return finish(plan, None),
    };
    let (mut lookup, mut step) = Lookup::start(path, request, options);
    let outcome = loop {
        match step {
            Step::Answer(outcome) => break outcome,
            Step::Open { name, magic } => step = lookup.next(open(root, &name, magic), options),
        }
    };
    match outcome {
        Outcome::File(file) => {
            let (facts, coding) = (file.facts, file.coding);
            let found = FoundFile {
                name: &file.name,
                facts,
                coding,
                status: file.status,
                is_fallback: file.is_fallback,
            };
            finish(plan(request, Found::File(found), options), Some(&file.handle))
        }
        Outcome::List(folder) => {
            let form = negotiate::form(&request.accept, &[Form::Html, Form::Json]);
            let bytes = list(&folder, request, options).render(form);
            finish(plan(request, Found::Page { bytes, form }, options), None)
        }
        Outcome::Redirect => finish(plan(request, Found::Redirect, options), None),
        Outcome::Error(status) => finish(plan(request, Found::Error(status), options), None),
    }
}

fn open(root: &Root, name: &str, magic: &[u8]) -> Opened<OpenFile> {
    let result = root.open_blocking(Path::new(name), Follow::No);
    match result {
        Ok(file) => {
            let mut start = vec![0; magic.len()];
            if file.metadata().kind == Kind::File && !magic.is_empty() {
                let read = file.read_blocking(&mut start, 0).unwrap_or(0);
                if &start[..read] != magic {
                    return Opened::Failed(404);
                }
            }
            Opened::of(Ok((file.metadata(), file)))
        }
        Err(error) => Opened::of(Err(&error)),
    }
}

fn list(folder: &OpenFile, request: &RequestFacts<'_>, options: &FilesOptions) -> Listing {
    let entries = folder.entries_blocking(ENTRIES_MAX).unwrap();
    let mut listing = Listing::of(request.path, entries);
    listing.prepare(Order::from_query(request.query), options.show_hidden);
    listing
}

fn finish(plan: Plan, file: Option<&OpenFile>) -> (Plan, Vec<u8>, Option<u64>) {
    let read = |offset: u64, len: u64| {
        let mut buffer = vec![0; usize::try_from(len).unwrap()];
        let read = file.unwrap().read_blocking(&mut buffer, offset).unwrap();
        buffer.truncate(read);
        buffer
    };
    let body = match &plan.body {
        Body::None => Vec::new(),
        Body::Bytes(bytes) => bytes.clone(),
        Body::File { offset, len } => read(*offset, *len),
        Body::Pieces(pieces) => pieces
            .iter()
            .flat_map(|piece| match piece {
                Piece::Bytes(bytes) => bytes.clone(),
                Piece::File { offset, len } => read(*offset, *len),
            })
            .collect(),
    };
    let inode = file.map(|file| file.metadata().inode);
    (plan, body, inode)
}

fn get(path: &str) -> RequestFacts<'_> {
    RequestFacts { now_s: NOW_S, random: 1, ..RequestFacts::get(path) }
}

#[test]
fn the_cases_of_the_static_profile() {
    let (_outer, www) = tree();
    let options = FilesOptions::default();
    let table: [(&str, u16, &str); 22] = [
        ("/", 200, "<p>index"),
        ("/file.txt", 200, "0123456789abcdefghij"),
        ("/empty.txt", 200, ""),
        ("/a%20b.txt", 200, "space"),
        ("/sub/%69nner.txt", 200, "inner"),
        ("/sub/", 200, "<p>sub"),
        ("/sub", 301, ""),
        ("/bare/", 404, ""),
        ("/nope", 404, ""),
        ("/a/b/c", 404, ""),
        ("/FILE.TXT", 404, ""),
        ("/file.txt/", 404, ""),
        ("/file.txt/x", 404, ""),
        ("/.env", 404, ""),
        ("/link.txt", 403, ""),
        ("/away/page.js.gz", 403, ""),
        ("/../secret.txt", 400, ""),
        ("/..%2fsecret.txt", 400, ""),
        ("/sub/..;/../secret.txt", 400, ""),
        ("/%252e%252e/secret.txt", 404, ""),
        ("/sub%0d%0aX-Injected:y", 400, ""),
        ("/file.txt%00.html", 400, ""),
    ];
    for root in [Root::open(&www).unwrap(), Root::open(&www).unwrap().without_openat2()] {
        for (path, status, body) in table {
            let (plan, seen, _) = respond(&root, &get(path), &options);
            if path == "/away/page.js.gz" {
                assert!([403, 404].contains(&plan.status), "{path}");
            } else {
                assert_eq!(plan.status, status, "{path}");
            }
            if status == 200 {
                assert_eq!(seen, body.as_bytes(), "{path}");
            }
            assert!(!seen.windows(6).any(|octets| octets == b"SECRET"), "{path}");
        }
    }
}

/// P4: a sidecar is checked like the file: one that is a link, or no gzip, is not served.
#[test]
fn sidecars_are_checked_like_their_files() {
    let (_outer, www) = tree();
    let root = Root::open(&www).unwrap();
    let with_gzip = |path| RequestFacts { accept_encoding: Lines::One(b"gzip"), ..get(path) };
    for (path, encoding, body) in [
        ("/good.js", Some("gzip"), &b"\x1f\x8bcoded"[..]),
        ("/bad.js", None, b"let plain;"),
        ("/page.js", None, b"let plain;"),
    ] {
        let (plan, seen, _) = respond(&root, &with_gzip(path), &FilesOptions::default());
        assert_eq!((plan.field("content-encoding"), seen.as_slice()), (encoding, body), "{path}");
    }
    let (plan, seen, _) = respond(&root, &get("/good.js"), &FilesOptions::default());
    assert_eq!((plan.field("vary"), seen.as_slice()), (Some("Accept-Encoding"), &b"let plain;"[..]));
}

#[test]
fn parts_and_listings_of_real_files() {
    let (_outer, www) = tree();
    let root = Root::open(&www).unwrap();
    let options = FilesOptions { listing: true, ..FilesOptions::default() };
    let of = |range: &'static [u8]| {
        respond(&root, &RequestFacts { range: Lines::One(range), ..get("/file.txt") }, &options)
    };
    assert_eq!(of(b"bytes=2-4").1, b"234");
    let (plan, body, _) = of(b"bytes=0-1,-2");
    let text = String::from_utf8(body).unwrap();
    assert_eq!(plan.content_length, Some(text.len() as u64));
    assert!(
        text.contains("bytes 0-1/20\r\n\r\n01\r\n--") && text.contains("bytes 18-19/20\r\n\r\nij\r\n--"),
        "{text}"
    );
    let (_, page, _) = respond(&root, &get("/bare/"), &options);
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("x&lt;y&gt;.txt") && !page.contains("x<y>"), "{page}");
    let json = RequestFacts { accept: Lines::One(b"application/json"), ..get("/bare/") };
    let (plan, body, _) = respond(&root, &json, &options);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((plan.status, body["entries"][0]["name"].as_str()), (200, Some("x<y>.txt")));
    let names = Listing::of(
        "/",
        Root::open(&www)
            .unwrap()
            .open_blocking(Path::new(""), Follow::No)
            .unwrap()
            .entries_blocking(99)
            .unwrap(),
    );
    let shown: Vec<_> = names.entries.iter().map(|entry: &ListedEntry| entry.name.as_str()).collect();
    assert!(!shown.contains(&"link.txt") && shown.contains(&"file.txt"));
}

/// P1, P2: over a grammar of attacks on a real tree, what is opened is always one of the files beneath the root.
#[test]
fn whatever_is_asked_the_served_file_is_beneath_the_root() {
    const TOKENS: [&str; 26] = [
        "/",
        "/",
        "/",
        "..",
        ".",
        "%2e%2e",
        "%2f",
        "..%2f",
        "\\",
        "%5c",
        ";",
        "%00",
        "%c0%ae",
        "%252e",
        "file.txt",
        "sub",
        "inner.txt",
        "secret.txt",
        "link.txt",
        "away",
        "page.js",
        ".gz",
        "outside",
        "www",
        ".env",
        "%20",
    ];
    let (_outer, www) = tree();
    let inside: HashSet<u64> = ["", "sub", "bare"]
        .iter()
        .flat_map(|folder| fs::read_dir(www.join(folder)).unwrap())
        .map(|entry| fs::symlink_metadata(entry.unwrap().path()).unwrap().ino())
        .collect();
    let roots = [Root::open(&www).unwrap(), Root::open(&www).unwrap().without_openat2()];
    let seed =
        std::env::var("SHARDLET_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x2545_f491_u64);
    println!("replay with SHARDLET_SEED={seed}");
    let mut state = seed | 1;
    let mut next = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % bound
    };
    let mut served = 0;
    for round in 0..20_000 {
        let mut path = String::from("/");
        (0..=next(6)).for_each(|_| path.push_str(TOKENS[next(TOKENS.len())]));
        let options = FilesOptions { show_hidden: round % 4 == 3, ..FilesOptions::default() };
        let method = if round % 3 == 0 { Method::Head } else { Method::Get };
        let request = RequestFacts { method, accept_encoding: Lines::One(b"gzip"), ..get(&path) };
        let (plan, body, inode) = respond(&roots[round % 2], &request, &options);
        if let Some(inode) = inode {
            assert!(inside.contains(&inode), "{path}");
            served += 1;
        }
        let is_env = options.show_hidden && path.contains(".env");
        assert!(is_env || !body.windows(6).any(|octets| octets == b"SECRET"), "{path}");
        assert!([200, 301, 400, 403, 404].contains(&plan.status), "{path}: {}", plan.status);
    }
    assert!(served > 100, "the grammar finds too few files: {served}");
}
