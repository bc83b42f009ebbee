//! The clients that people use, each against `demo` and `serve`: GET, HEAD, parts, a chunked upload, reuse of the
//! connection, `Expect: 100-continue`, and an error. A client that is not installed is left out, aloud.
//!
//! Scripts print `ok` as their last word; what they check is checked in the client's own language.

mod common;

use common::{Launch, Server};
use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

const TEXT: &str = "0123456789abcdefghij";

/// Both servers and the folder that one of them serves.
struct Servers {
    demo: Server,
    files: Server,
    folder: TempDir,
}

impl Servers {
    fn start() -> Servers {
        let folder = tempfile::tempdir().expect("a folder");
        let www = folder.path().join("www");
        fs::create_dir_all(www.join("list")).expect("folders");
        let story = "once upon a time ".repeat(500);
        for (name, content) in [
            ("index.html", "<!doctype html><title>index</title><p id=it>the page"),
            ("file.txt", TEXT),
            ("story.txt", &story),
            ("list/a & <b>.txt", "x"),
        ] {
            fs::write(www.join(name), content).expect("write");
            let file = fs::File::options().append(true).open(www.join(name)).expect("open");
            file.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("set the time");
        }
        let www = www.display().to_string();
        let files = Launch::server(&["serve", &www], "auto").args(&["--listing", "--compress"]).start();
        Servers { demo: Launch::server(&["demo"], "auto").start(), files, folder }
    }

    fn demo(&self, path: &str) -> String {
        format!("http://{}{path}", self.demo.address())
    }

    fn files(&self, path: &str) -> String {
        format!("http://{}{path}", self.files.address())
    }

    fn scratch(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a script with the two addresses as its arguments; its last word must be `ok`.
    fn script(&self, program: &str, before: &[&str]) {
        let output = run(Command::new(program)
            .args(before)
            .args([self.demo(""), self.files("")])
            .current_dir(self.scratch()));
        let stdout = text(&output.stdout);
        assert!(stdout.trim_end().ends_with("ok"), "{program}: {stdout}{}", text(&output.stderr));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    // Proxies of the environment have no part in this.
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// What a command that must succeed printed.
fn printed(program: &str, words: &[&str]) -> String {
    let output = run(Command::new(program).args(words));
    assert!(output.status.success(), "{program} {words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Whether the program is there; says so if it is not.
fn installed(program: &str, version: &str) -> bool {
    let found = Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        println!("{program} left out: it is not installed");
    }
    is_there
}

#[test]
fn curl() {
    if !installed("curl", "--version") {
        return;
    }
    let servers = Servers::start();
    let curl =
        |words: &[&str]| printed("curl", &[&["-sS", "--max-time", "20", "--noproxy", "*"], words].concat());
    assert_eq!(curl(&[&servers.demo("/plaintext")]), "Hello, World!");
    assert!(curl(&["-I", &servers.files("/file.txt")]).contains("Content-Length: 20"));
    assert_eq!(curl(&["-r", "5-9", &servers.files("/file.txt")]), "56789");
    let story = servers.scratch().join("www/story.txt");
    let plain = fs::read_to_string(&story).expect("the file");
    for coding in ["gzip", "br", "zstd"] {
        let coded = [&format!("Accept-Encoding: {coding}"), &servers.files("/story.txt")];
        let head =
            printed("curl", &["-sS", "-D-", "-o", "/dev/null", "--noproxy", "*", "-H", coded[0], coded[1]]);
        assert!(head.contains(&format!("Content-Encoding: {coding}")), "{head}");
    }
    assert_eq!(curl(&["--compressed", &servers.files("/story.txt")]), plain);
    // Chunked, asked for with 100-continue, twice over one connection.
    let upload = format!("@{}", story.display());
    let echo = servers.demo("/echo");
    for fields in [&["-H", "Transfer-Encoding: chunked"][..], &["-H", "Expect: 100-continue"]] {
        assert_eq!(curl(&[fields, &["--data-binary", &upload, &echo]].concat()), plain);
    }
    let page = servers.demo("/plaintext");
    let connects = curl(&["-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", &page, &page]);
    assert_eq!(connects, "1 0 ", "the second request opened a connection of its own");
    let status = curl(&["-o", "/dev/null", "-w", "%{http_code}", &servers.files("/nothing")]);
    assert_eq!(status, "404");
    let known = curl(&[
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "-z",
        "Thu, 31 Dec 2037 23:59:59 GMT",
        &servers.files("/file.txt"),
    ]);
    assert_eq!(known, "304");
}

#[test]
fn wget() {
    if !installed("wget", "--version") {
        return;
    }
    let servers = Servers::start();
    let quiet = ["-q", "--no-proxy", "--tries=1", "--timeout=20", "-O"];
    let file = servers.files("/file.txt");
    assert_eq!(printed("wget", &[&quiet[..], &["-", &file]].concat()), TEXT);
    printed("wget", &[&quiet[..], &["-", "--spider", &file]].concat());
    // A download that was cut is taken up again by a range.
    let part = servers.scratch().join("part");
    fs::write(&part, &TEXT[..7]).expect("write");
    printed("wget", &[&quiet[..], &[&part.display().to_string(), "-c", &file]].concat());
    assert_eq!(fs::read_to_string(&part).expect("the file"), TEXT);
    let posted = format!("--post-data={TEXT}");
    assert_eq!(printed("wget", &[&quiet[..], &["-", &posted, &servers.demo("/echo")]].concat()), TEXT);
    // All of a listing, recursively: the links of the listing are those of the files.
    let list = servers.files("/list/");
    let into = servers.scratch().join("copy").display().to_string();
    printed("wget", &["-q", "--no-proxy", "-r", "-np", "-nd", "-e", "robots=off", "-P", &into, &list]);
    assert_eq!(fs::read(Path::new(&into).join("a & <b>.txt")).expect("the file behind the link"), b"x");
    let missing = run(Command::new("wget").args(quiet).args(["-", &servers.files("/nothing")]));
    assert_eq!(missing.status.code(), Some(8), "wget's code for an error of the server");
}

#[test]
fn python() {
    if installed("python3", "--version") {
        Servers::start().script("python3", &["-c", include_str!("clients/client.py")]);
    }
}

#[test]
fn node() {
    if !installed("node", "--version") {
        return;
    }
    let has_fetch =
        run(Command::new("node").args(["-e", "process.exit(typeof fetch === 'function' ? 0 : 1)"]));
    if !has_fetch.status.success() {
        return println!("node left out: this version has no fetch");
    }
    Servers::start().script("node", &["-e", include_str!("clients/client.js"), "--"]);
}

#[test]
fn go() {
    if !installed("go", "version") {
        return;
    }
    let servers = Servers::start();
    let source = servers.scratch().join("client.go");
    fs::write(&source, include_str!("clients/client.go")).expect("write");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    let program = servers.scratch().join("client");
    let built = run(Command::new("go")
        .args(["build", "-o", &program.display().to_string(), &source.display().to_string()])
        .env("GOCACHE", cache)
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off"));
    assert!(built.status.success(), "{}", text(&built.stderr));
    servers.script(&program.display().to_string(), &[]);
}

/// A page, a listing, an error page and the demo's page, as a real browser reads them.
#[test]
fn browser() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = names.into_iter().find(|name| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    }) else {
        return println!("the browser is left out: none of {names:?} is installed");
    };
    let servers = Servers::start();
    let profile = format!("--user-data-dir={}", servers.scratch().join("profile").display());
    let see = |url: &str| {
        let words = ["--headless", "--no-sandbox", "--disable-gpu", "--no-proxy-server", &profile];
        let more = ["--virtual-time-budget=2000", "--timeout=15000", "--dump-dom", url];
        printed(browser, &[&words[..], &more].concat())
    };
    assert!(see(&servers.files("/")).contains("<p id=\"it\">the page</p>"));
    let listing = see(&servers.files("/list/"));
    assert!(listing.contains("a &amp; &lt;b&gt;.txt</a>") && !listing.contains("<b>.txt"), "{listing}");
    let missing = see(&servers.files("/nothing"));
    assert!(missing.contains("<h1>404</h1>") && missing.contains("Not Found"), "{missing}");
    assert!(see(&servers.demo("/")).contains("</html>"));
}
