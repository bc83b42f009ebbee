//! `shardlet serve` from outside, on both drivers: whole files, parts, conditions, codings, and the rows of the
//! security table about paths and files (P1–P4), compression (F10) and ranges (F11).

mod common;

use common::{
    DEADLINE, Launch,
    client::{Client, Response},
    for_each_driver, process,
    tree::{Tree, ask, noise},
    wait_for,
};
use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::Read,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime},
};

/// The content without its coding.
fn decoded(answer: &Response) -> Vec<u8> {
    let (bytes, mut plain) = (&answer.body[..], Vec::new());
    match answer.field("content-encoding") {
        Some("gzip") => flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain),
        Some("br") => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain),
        Some("zstd") => zstd::Decoder::new(bytes).and_then(|mut decoder| decoder.read_to_end(&mut plain)),
        None => return bytes.to_vec(),
        other => panic!("coding {other:?}"),
    }
    .expect("the announced coding");
    plain
}

#[test]
fn whole_files_parts_and_conditions() {
    let tree = Tree::new();
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        let whole = client.get("/file.txt");
        assert_eq!((whole.status, whole.text()), (200, "0123456789abcdefghij"));
        assert_eq!(whole.field("content-type"), Some("text/plain; charset=utf-8"));
        let tag = whole.field("etag").expect("a tag").to_owned();
        let date = whole.field("last-modified").expect("a date").to_owned();
        // Twice: once read, once from what is kept.
        for _ in 0..2 {
            let known = ask(&mut client, "/file.txt", &format!("If-None-Match: {tag}\r\n"));
            assert_eq!((known.status, known.field("etag"), known.body.len()), (304, Some(&*tag), 0));
            assert_eq!(known.field("content-type"), None);
        }
        assert_eq!(ask(&mut client, "/file.txt", &format!("If-Modified-Since: {date}\r\n")).status, 304);
        assert_eq!(ask(&mut client, "/file.txt", "If-None-Match: \"other\"\r\n").status, 200);
        assert_eq!(ask(&mut client, "/file.txt", "If-Match: \"other\"\r\n").status, 412);
        let part = ask(&mut client, "/file.txt", &format!("Range: bytes=5-9\r\nIf-Range: {tag}\r\n"));
        assert_eq!((part.status, part.text()), (206, "56789"));
        assert_eq!(part.field("content-range"), Some("bytes 5-9/20"));
        let parts = ask(&mut client, "/file.txt", "Range: bytes=0-1,-2\r\n");
        assert!(parts.field("content-type").is_some_and(|value| value.starts_with("multipart/byteranges")));
        assert!(parts.text().contains("\r\n\r\n01\r\n--") && parts.text().contains("\r\n\r\nij\r\n--"));
        assert_eq!(ask(&mut client, "/file.txt", "Range: bytes=20-\r\n").status, 416);
        for path in ["/file.txt", "/"] {
            for _ in 0..2 {
                client.send(format!("HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
                let head = client.read_head_response();
                let length = client.get(path).body.len().to_string();
                assert_eq!((head.status, head.field("content-length")), (200, Some(&*length)));
            }
        }
        assert_eq!(client.post("/file.txt", b"x").status, 405);
        assert_eq!((client.get("/bare").status, client.get("/bare/").status), (301, 404));
    });
}

#[test]
fn a_large_file_arrives_whole_and_its_parts_fit() {
    let tree = Tree::new();
    let content = noise(5_000_003);
    tree.write("big.bin", &content);
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        // Pipelined: each answer in its turn, and the connection is in step afterwards.
        let one = "GET /big.bin HTTP/1.1\r\nHost: test\r\n\r\n";
        client.send(format!("{one}GET /file.txt HTTP/1.1\r\nHost: test\r\n\r\n{one}"));
        assert!(client.read_response().body == content, "other bytes");
        assert_eq!(client.read_response().text().len(), 20);
        assert!(client.read_response().body == content, "other bytes");
        let part = ask(&mut client, "/big.bin", "Range: bytes=1000000-3999999\r\n");
        assert!(part.status == 206 && part.body == content[1_000_000..4_000_000]);
        let parts = ask(&mut client, "/big.bin", "Range: bytes=0-99999,2000000-2099999\r\n");
        let found = |wanted: &[u8]| parts.body.windows(wanted.len()).any(|window| window == wanted);
        assert!(parts.status == 206 && found(&content[2_000_000..2_100_000]));
        client.send("HEAD /big.bin HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(client.read_head_response().field("content-length"), Some("5000003"));
        assert_eq!(client.get("/file.txt").status, 200);
    });
}

/// P3: a file that shrinks while it is sent is cut, one that grows has the length that was announced.
#[test]
fn a_file_that_changes_length_while_it_is_sent() {
    let tree = Tree::new();
    const LEN: u64 = 64 << 20;
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        for (name, to) in [("shrinks.bin", LEN / 2), ("grows.bin", LEN + 12_345)] {
            let file = tree.create(name, b"");
            file.set_len(LEN).expect("a sparse file");
            let mut client = server.connect();
            client.send(format!("GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n"));
            let head = String::from_utf8(client.take_until(b"\r\n\r\n")).expect("text");
            assert!(head.contains(&format!("Content-Length: {LEN}\r\n")), "{head}");
            file.set_len(to).expect("change the length");
            if to < LEN {
                let rest = client.read_until_close();
                assert!((rest.len() as u64) < LEN, "{} bytes", rest.len());
            } else {
                let rest = client.read_exact(usize::try_from(LEN).expect("fits"));
                assert!(rest.iter().all(|byte| *byte == 0));
                assert_eq!(client.get("/file.txt").status, 200, "in step after exactly the announced length");
            }
        }
        assert_eq!(server.connect().get("/file.txt").status, 200);
    });
}

/// S3: a client that does not read holds no more than the water mark.
#[test]
fn slow_readers_hold_little_memory() {
    let tree = Tree::new();
    tree.create("big.bin", b"").set_len(256 << 20).expect("a sparse file");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        assert_eq!(server.connect().get("/file.txt").status, 200);
        let before = process::resident_kib(server.pid());
        const READERS: u64 = 24;
        let mut clients: Vec<Client> = (0..READERS).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send("GET /big.bin HTTP/1.1\r\nHost: test\r\n\r\n");
            client.take_until(b"\r\n\r\n");
        }
        // All that will be sent has been: the server has nothing to do for a tenth of a second.
        let mut busy = (process::cpu_time(server.pid()), Instant::now());
        let rests = || {
            let now = process::cpu_time(server.pid());
            if now != busy.0 {
                busy = (now, Instant::now());
            }
            busy.1.elapsed() > Duration::from_millis(100)
        };
        assert!(wait_for(DEADLINE, rests), "the server never rests");
        let grown = process::resident_kib(server.pid()).saturating_sub(before);
        assert!(grown <= READERS * 400 + 8 * 1024, "{grown} KiB for {READERS} readers");
        assert_eq!(server.connect().get("/file.txt").status, 200, "others are served meanwhile");
        drop(clients);
        let closed =
            || process::descriptor_targets(server.pid()).iter().all(|name| !name.contains("big.bin"));
        assert!(wait_for(DEADLINE, closed), "the file stays open after its readers have gone");
    });
}

/// P1, P4: nothing outside, nothing hidden.
#[test]
fn names_that_lead_nowhere() {
    let tree = Tree::new();
    symlink("../secret.txt", tree.path("link.txt")).expect("link");
    symlink("..", tree.path("up")).expect("link");
    symlink("loop", tree.path("loop")).expect("link");
    tree.write("page.js~", b"SECRET");
    for flags in [&[][..], &["--follow-links", "--hidden"]] {
        for_each_driver(|driver| {
            let server = tree.serve(driver, flags);
            let mut client = server.connect();
            for path in [
                "/../secret.txt",
                "/%2e%2e/secret.txt",
                "/..%2fsecret.txt",
                "/..%5csecret.txt",
                "/%252e%252e/secret.txt",
                "/..;/secret.txt",
                "/bare/..%00/secret.txt",
                "/%c0%ae%c0%ae/secret.txt",
                "//etc/passwd",
                "/link.txt",
                "/up/secret.txt",
                "/loop",
                "/file.txt.",
                "/file.txt%20",
                "/file.txt/",
            ] {
                let answer = client.get(path);
                assert!(matches!(answer.status, 400 | 403 | 404), "{path}: {}", answer.status);
                assert!(!answer.text().contains("SECRET"), "{path}");
            }
            let expected = if flags.is_empty() { 404 } else { 200 };
            for path in ["/.env", "/page.js~"] {
                assert_eq!(client.get(path).status, expected, "{path}");
            }
        });
    }
}

/// Tells another thread to stop, also if an assertion fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// P2: a name that flips between a file and a link to the outside, for 700 ms or SHARDLET_SWAP_MS.
#[test]
fn a_link_swapped_in_never_leaks() {
    let span = std::env::var("SHARDLET_SWAP_MS").map_or(700, |text| text.parse().expect("milliseconds"));
    let tree = Tree::new();
    for_each_driver(|driver| {
        let server = tree.serve(driver, &["--file-cache", "0"]);
        let over = AtomicBool::new(false);
        let statuses = thread::scope(|scope| {
            scope.spawn(|| {
                let (staged, flip) = (tree.path("staged"), tree.path("flip"));
                while !over.load(Ordering::Relaxed) {
                    symlink("../secret.txt", &staged).expect("link");
                    fs::rename(&staged, &flip).expect("rename");
                    fs::write(&staged, b"public").expect("write");
                    fs::rename(&staged, &flip).expect("rename");
                }
            });
            let _end = End(&over);
            let mut client = server.connect();
            let (mut statuses, start) = (BTreeSet::new(), Instant::now());
            while start.elapsed() < Duration::from_millis(span) {
                let answer = client.get("/flip");
                assert!(answer.status != 200 || answer.text() == "public", "leaked: {}", answer.text());
                statuses.insert(answer.status);
                // A quick machine comes to the bound of requests on one connection.
                if answer.field("connection") == Some("close") {
                    client = server.connect();
                }
            }
            statuses
        });
        assert!(statuses.contains(&200) && statuses.contains(&403), "the race was not run: {statuses:?}");
    });
}

/// P3: neither a FIFO nor a socket nor a device is a file, and none holds a shard up.
#[test]
fn special_files_are_not_served() {
    let tree = Tree::new();
    assert!(Command::new("mkfifo").arg(tree.path("fifo")).status().expect("mkfifo").success());
    let _socket = UnixListener::bind(tree.path("socket")).expect("bind");
    symlink("/dev/zero", tree.path("zero")).expect("link");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &["--listing"]);
        let mut client = server.connect();
        for path in ["/fifo", "/socket", "/zero"] {
            assert!(matches!(client.get(path).status, 403 | 404), "{path}");
        }
        let listing = ask(&mut client, "/bare/", "Accept: application/json\r\n");
        assert!(listing.text().contains("\"x<y>.txt\""), "{}", listing.text());
        let page = ask(&mut client, "/bare/", "Accept: text/html\r\n");
        assert!(page.text().contains("x&lt;y&gt;.txt") && !page.text().contains("x<y>"));
    });
}

/// P4: a sidecar counts only if it is no older than its file, begins as its coding does, and lies in the folder.
#[test]
fn sidecars() {
    let tree = Tree::new();
    for name in ["good.js", "old.js", "corrupt.js", "linked.js"] {
        tree.write(name, b"let plain;");
    }
    fs::write(tree.path("good.js.gz"), b"\x1f\x8bcoded").expect("write");
    fs::write(tree.path("corrupt.js.gz"), b"no gzip").expect("write");
    let old = tree.create("old.js.gz", b"\x1f\x8bcoded");
    old.set_modified(SystemTime::now() - Duration::from_secs(7200)).expect("set the time");
    symlink("../secret.txt", tree.path("linked.js.br")).expect("link");
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        for (path, coding) in
            [("/good.js", Some("gzip")), ("/old.js", None), ("/corrupt.js", None), ("/linked.js", None)]
        {
            let answer = ask(&mut client, path, "Accept-Encoding: gzip, br\r\n");
            assert_eq!((answer.status, answer.field("content-encoding")), (200, coding), "{path}");
            assert_eq!(answer.field("vary"), Some("Accept-Encoding"), "{path}");
            let plain = client.get(path);
            assert_eq!((plain.field("content-encoding"), plain.text()), (None, "let plain;"), "{path}");
        }
    });
}

/// F10: many want compression at once; each gets its file, coded or plain, and the small request is not held up.
#[test]
fn compression_is_bounded_and_right() {
    let tree = Tree::new();
    let text = |number: usize| format!("line {number} of a text that compresses well\n").repeat(12_000);
    for number in 0..16 {
        tree.write(&format!("text{number}.txt"), text(number).as_bytes());
    }
    for_each_driver(|driver| {
        let server = tree.serve(driver, &["--compress"]);
        let mut first = server.connect();
        for (accepted, coding) in
            [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("gzip, deflate, br, zstd", "br")]
        {
            let coded = ask(&mut first, "/text0.txt", &format!("Accept-Encoding: {accepted}\r\n"));
            assert_eq!(coded.field("content-encoding"), Some(coding));
            assert!(coded.field("etag").is_some_and(|tag| tag.starts_with("W/")), "{coded:?}");
            assert!(coded.body.len() < text(0).len() / 10 && decoded(&coded) == text(0).into_bytes());
        }
        thread::scope(|scope| {
            for number in 0..16 {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.connect();
                    for _ in 0..2 {
                        let path = format!("/text{number}.txt");
                        let coding = ["gzip", "br", "zstd"][number % 3];
                        let answer = ask(&mut client, &path, &format!("Accept-Encoding: {coding}\r\n"));
                        assert!(
                            answer.status == 200 && decoded(&answer) == text(number).into_bytes(),
                            "{path}"
                        );
                        assert_eq!(answer.field("vary"), Some("Accept-Encoding"));
                    }
                });
            }
            let start = Instant::now();
            assert_eq!(server.connect().get("/file.txt").status, 200);
            assert!(start.elapsed() < Duration::from_secs(2), "held up for {:?}", start.elapsed());
        });
    });
}

/// The operator's pages for what is refused, with the fields that each refusal must bear (RFC 9110 §15.5.6, §15.5.17).
#[test]
fn refusals_have_pages_too() {
    let tree = Tree::new();
    tree.write("refused.html", b"<p>our own page");
    let pages: Vec<String> = [405, 412, 416, 400]
        .into_iter()
        .map(|status| format!("--error-page={status}=refused.html"))
        .collect();
    for_each_driver(|driver| {
        let server = tree.serve(driver, &pages.iter().map(String::as_str).collect::<Vec<_>>());
        let mut client = server.connect();
        let refused = client.post("/file.txt", b"x");
        assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
        let failed = ask(&mut client, "/file.txt", "If-Match: \"other\"\r\n");
        let beyond = ask(&mut client, "/file.txt", "Range: bytes=20-\r\n");
        assert_eq!((beyond.status, beyond.field("content-range")), (416, Some("bytes */20")));
        let malformed = ask(&mut client, "/a%2Fb", "");
        assert_eq!((failed.status, malformed.status), (412, 400));
        for answer in [refused, failed, beyond, malformed] {
            assert_eq!((answer.text(), answer.field("etag")), ("<p>our own page", None));
            assert_eq!(answer.field("content-type"), Some("text/html; charset=utf-8"));
        }
        assert_eq!(ask(&mut client, "/file.txt", "").status, 200);
    });
}

/// A larger file in demand is sent from memory, a change is seen as soon as with small ones, and clients that are slow
/// to take it do not make the server hold more than the cache may.
#[test]
fn large_files_in_demand_are_kept_within_the_bound() {
    let tree = Tree::new();
    let content = noise(1 << 20);
    for number in 0..12 {
        tree.write(&format!("large{number}.bin"), &content);
    }
    for_each_driver(|driver| {
        let server = tree.serve(driver, &["--file-cache", "4", "--shards", "1"]);
        let mut client = server.connect();
        for number in [0, 0, 1, 2, 3, 4, 0] {
            assert!(client.get(&format!("/large{number}.bin")).body == content, "other bytes");
        }
        // Nobody of these takes more than the socket holds.
        let slow: Vec<Client> = (0..48)
            .map(|number| {
                let mut client = server.connect();
                client.send(format!("GET /large{}.bin HTTP/1.1\r\nHost: test\r\n\r\n", number % 12));
                client
            })
            .collect();
        for mut client in slow {
            assert!(client.read_response().body == content, "other bytes");
        }
        tree.write("large0.bin", &content[..70_000]);
        let is_new = wait_for(DEADLINE, || client.get("/large0.bin").body.len() == 70_000);
        assert!(is_new, "the old file is still sent");
        tree.write("large0.bin", &content);
    });
}

/// F11: whatever the ranges are, no more than the file is sent.
#[test]
fn range_abuse() {
    let tree = Tree::new();
    tree.write("data.bin", &noise(100_000));
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        let many = (0..900).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(",");
        for (ranges, statuses) in [
            (many.as_str(), &[200, 416][..]),
            ("0-,0-,0-,0-", &[200, 206, 416]),
            ("9-0", &[200, 416]),
            ("", &[200, 416]),
            ("18446744073709551615-", &[200, 416]),
            ("0-18446744073709551616", &[200, 206]),
            ("-18446744073709551616", &[200, 206]),
            ("-0", &[416, 200]),
        ] {
            let answer = ask(&mut client, "/data.bin", &format!("Range: bytes={ranges}\r\n"));
            assert!(statuses.contains(&answer.status), "{ranges}: {}", answer.status);
            assert!(answer.body.len() <= 110_000, "{ranges}: {} bytes", answer.body.len());
        }
        // Ten thousand do not fit into a head.
        let most = (0..10_000).map(|at| format!("{at}-{at}")).collect::<Vec<_>>().join(",");
        client.send_if_open(format!("GET /data.bin HTTP/1.1\r\nHost: t\r\nRange: bytes={most}\r\n\r\n"));
        assert_eq!(client.read_response().status, 431);
    });
}

#[test]
fn what_the_operator_says() {
    let tree = Tree::new();
    tree.write("404.html", b"<p>our own page");
    tree.write("app.js", b"let x;");
    let flags = ["--error-page", "404=404.html", "--cache-control", "max-age=60", "--header", "*.js:X-A:b"];
    for_each_driver(|driver| {
        let server = tree.serve(driver, &flags);
        let mut client = server.connect();
        for path in ["/none", "/.env", "/bare/"] {
            let missing = client.get(path);
            assert_eq!((missing.status, missing.text()), (404, "<p>our own page"), "{path}");
            assert_eq!(missing.field("etag"), None);
        }
        let script = client.get("/app.js");
        assert_eq!((script.field("x-a"), script.field("cache-control")), (Some("b"), Some("max-age=60")));
        drop((client, server));
        let server = tree.serve(driver, &["--spa", "index.html"]);
        let mut client = server.connect();
        let page = ask(&mut client, "/some/view", "Accept: text/html\r\n");
        assert_eq!(
            (page.status, page.text(), page.field("vary")),
            (200, "<p>index", Some("Accept-Encoding, Accept"))
        );
        assert_eq!(ask(&mut client, "/some/data", "Accept: application/json\r\n").status, 404);
    });
}

/// What is kept is soon looked at again: changed, replaced and removed files are seen.
#[test]
fn kept_answers_are_never_old() {
    let tree = Tree::new();
    for_each_driver(|driver| {
        tree.write("news.txt", b"one");
        let server = tree.serve(driver, &[]);
        let mut client = server.connect();
        assert_eq!(client.get("/news.txt").text(), "one");
        assert_eq!(client.get("/news.txt").text(), "one");
        let staged = tree.path("staged");
        fs::write(&staged, b"two").expect("write");
        fs::rename(&staged, tree.path("news.txt")).expect("rename");
        assert!(wait_for(Duration::from_secs(2), || client.get("/news.txt").text() == "two"));
        fs::remove_file(tree.path("news.txt")).expect("remove");
        assert!(wait_for(Duration::from_secs(2), || client.get("/news.txt").status == 404));
    });
}

/// A container's filter may not know openat2(2) (number 437): names are then walked, with the same answers.
#[test]
fn without_openat2() {
    let tree = Tree::new();
    symlink("../secret.txt", tree.path("link.txt")).expect("link");
    let dir = tree.www.display().to_string();
    let server = Launch::server(&["serve", &dir], "epoll").deny(&[437]).start();
    let mut client = server.connect();
    assert_eq!(client.get("/file.txt").text(), "0123456789abcdefghij");
    assert_eq!((client.get("/link.txt").status, client.get("/none").status), (403, 404));
}

#[test]
fn curl_reads_and_resumes() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("left out: there is no curl");
        return;
    }
    let tree = Tree::new();
    let content = noise(300_000);
    tree.write("data.bin", &content);
    for_each_driver(|driver| {
        let server = tree.serve(driver, &[]);
        let url = format!("http://{}/data.bin", server.address());
        let target = tree.path("copy.part");
        fs::write(&target, &content[..100_000]).expect("a first part");
        let status = Command::new("curl").args(["-sf", "-C", "-", "-o"]).arg(&target).arg(&url).status();
        assert!(status.expect("curl runs").success());
        assert!(read(&target) == content);
        OpenOptions::new().write(true).truncate(true).open(&target).expect("empty it");
        let status = Command::new("curl").args(["-sf", "--compressed", "-o"]).arg(&target).arg(&url).status();
        assert!(status.expect("curl runs").success() && read(&target) == content);
    });
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).expect("read")
}
