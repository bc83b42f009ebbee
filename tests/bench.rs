//! `shardlet bench` as a stranger uses it: against the demo, from the command line, on both drivers. What it writes is
//! read back by programs that are not ours.

mod common;

use common::{Ended, Launch, Server, for_each_driver, wait_for};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

/// Runs the load tool to its end.
fn bench(words: &[&str]) -> Ended {
    Launch::new(["bench"].iter().chain(words).copied()).run_to_end()
}

fn demo(driver: &str) -> Server {
    Launch::server(&["demo", "--shards", "1"], driver).start()
}

fn url(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address())
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("is JSON")
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("was written")
    }
}

/// 400 requests a second for one second, saved.
fn save(url: &str, file: &str, more: &[&str]) -> Ended {
    let words = [url, "--rate", "400", "--time", "1s", "--warm-up", "200ms", "-c", "8", "--save", file];
    bench(&[&words, more].concat())
}

#[test]
fn a_strangers_run_fits_a_screen_and_counts_everything() {
    for_each_driver(|driver| {
        let (server, folder) = (demo(driver), Folder::new());
        let ended = save(
            &url(&server, "/plaintext"),
            &folder.path("a.hlog"),
            &["--driver", driver, "--json", &folder.path("a.json"), "--same-body", "--expect-length", "13"],
        );
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        let lines: Vec<&str> = ended.stdout.lines().collect();
        assert!(lines.len() <= 23, "{}", ended.stdout);
        assert!(lines.iter().all(|line| line.chars().count() <= 80 || line.starts_with("  shardlet ")));
        for part in [
            "GET http://",
            "open loop at 400/s",
            "generator",
            "p99.9",
            "400 answered",
            "next: ",
            "  shardlet bench ",
        ] {
            assert!(ended.stdout.contains(part), "{part} in\n{}", ended.stdout);
        }
        let result = folder.json("a.json");
        assert_eq!(result["requests"]["answered"], 400);
        assert_eq!(result["requests"]["failed"], 0);
        assert_eq!(result["latency"]["response"]["count"], 400);
        assert_eq!(result["latency"]["connect"]["count"], 8);
        let wanted = if driver == "uring" { "io_uring" } else { driver };
        assert_eq!(result["load"]["driver"], wanted);
    });
}

/// The reader's experiment of wg/wrk #99, at two fifths of its length: a server stopped for 1.6 s of 4 s.
#[test]
fn a_stopped_server_shows_in_the_percentiles() {
    let (server, folder) = (demo("auto"), Folder::new());
    let (target, file) = (url(&server, "/plaintext"), folder.path("a.json"));
    let words = ["--rate", "250", "--time", "4s", "--warm-up", "500ms", "-c", "32", "-q", "--json", &file];
    let words: Vec<String> = ["bench", &target].iter().chain(&words).map(ToString::to_string).collect();
    let run = thread::spawn(move || Launch::new(words).run_to_end());
    // The measured part begins once its connections stand and the warm-up is over; then well into it.
    assert!(wait_for(common::DEADLINE, || connections(&server) >= 32), "connects");
    thread::sleep(Duration::from_millis(1_500));
    let stop = Freeze::begin(&server);
    thread::sleep(Duration::from_millis(1_600));
    drop(stop);
    let ended = run.join().expect("runs");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let result = folder.json("a.json");
    let response = &result["latency"]["response"];
    assert_eq!(response["count"], 1_000, "rate × time, whatever the server did");
    let seconds = |name: &str| response["percentiles_ns"][name].as_u64().expect("a number") as f64 / 1e9;
    assert!((seconds("max") - 1.6).abs() < 0.2, "max {}", seconds("max"));
    // 40 % of the requests waited, from 1.6 s down to nothing: the upper tenth waited more than 1.2 s.
    assert!((seconds("p90") - 1.2).abs() < 0.2, "p90 {}", seconds("p90"));
    assert!((seconds("p75") - 0.6).abs() < 0.2, "p75 {}", seconds("p75"));
    assert!(seconds("p50") < 0.1, "p50 {}", seconds("p50"));
}

fn connections(server: &Server) -> usize {
    let states = common::process::tcp_states(server.address());
    states.get("ESTABLISHED").copied().unwrap_or(0)
}

/// A stopped server, set going again when dropped, whatever happened to the test.
struct Freeze<'a>(&'a Server);

impl Freeze<'_> {
    fn begin(server: &Server) -> Freeze<'_> {
        server.signal("STOP");
        Freeze(server)
    }
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

#[test]
fn a_slower_server_is_worse_and_the_same_one_is_not() {
    let (server, folder) = (demo("auto"), Folder::new());
    let [fast, again, slow] = ["fast.hlog", "again.hlog", "slow.hlog"].map(|name| folder.path(name));
    for (path, file) in [("/plaintext", &fast), ("/plaintext", &again), ("/delay?ms=20", &slow)] {
        assert_eq!(save(&url(&server, path), file, &["-q"]).code, Some(0));
    }
    let svg = folder.path("diff.svg");
    let worse = bench(&["compare", &fast, &slow, "--on", "p50", "--svg", &svg]);
    assert_eq!(worse.code, Some(1), "{}", worse.stdout);
    assert!(worse.stdout.contains("WORSE"), "{}", worse.stdout);
    assert!(folder.text("diff.svg").contains("</svg>"));
    // So wide a tolerance that only nonsense would exceed it: the machine may be busy.
    let same = bench(&["compare", &fast, &again, "--on", "p50", "--tolerance", "900%"]);
    assert_eq!(same.code, Some(0), "{}", same.stdout);
    let other_way = bench(&["compare", &slow, &fast, "--on", "p50"]);
    assert_eq!(other_way.code, Some(0), "{}", other_way.stdout);
}

#[test]
fn two_generators_merge_into_one_result() {
    let (server, folder) = (demo("auto"), Folder::new());
    let target = url(&server, "/plaintext");
    let files = ["a.hlog", "b.hlog"].map(|name| folder.path(name));
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| assert_eq!(save(&target, file, &["-q"]).code, Some(0)));
        }
    });
    let sum = folder.path("sum.hlog");
    let merged = bench(&["merge", &files[0], &files[1], "-o", &sum]);
    assert_eq!(merged.code, Some(0), "{}{}", merged.stdout, merged.stderr);
    let report = bench(&["report", &sum, "--json", "-"]);
    let result: Value = serde_json::from_str(&report.stdout).expect("is JSON");
    assert_eq!(result["requests"]["answered"], 800);
    assert_eq!(result["load"]["rate"], 800.0);
}

#[test]
fn a_sweep_finds_a_rate_and_draws_the_curve() {
    let (server, folder) = (demo("auto"), Folder::new());
    let words = ["--ramp", "100:300:3", "--step-time", "300ms", "--warm-up", "100ms", "-c", "8"];
    let files = [folder.path("a.json"), folder.path("a.svg")];
    let target = url(&server, "/plaintext");
    let ended = bench(&[&[target.as_str()], &words[..], &["--json", &files[0], "--svg", &files[1]]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("offered"), "{}", ended.stdout);
    assert_eq!(folder.json("a.json")["sweep"].as_array().map(Vec::len), Some(3));
    assert!(folder.text("a.svg").contains("Latency against offered load"));
}

/// Starts a run that is longer than anybody waits, and gives it when its first interval is in the file.
fn long_run(server: &Server, file: &str, more: &[&str]) -> std::process::Child {
    let url = url(server, "/plaintext");
    let words =
        ["bench", &url, "--time", "1h", "--warm-up", "0s", "-c", "4", "--timeout", "30s", "--save", file];
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardlet"));
    let run =
        command.args(words).args(more).stdout(std::process::Stdio::piped()).spawn().expect("the tool starts");
    let begun = || fs::read_to_string(file).is_ok_and(|text| text.contains("#[Interval: "));
    assert!(wait_for(common::DEADLINE, begun), "no interval was written");
    run
}

/// What a run takes is taken at its start. Ten minutes at a high rate: `scripts/bench-memory`.
#[test]
fn memory_does_not_grow_with_the_run() {
    let (server, folder) = (demo("auto"), Folder::new());
    let mut run = long_run(&server, &folder.path("a.hlog"), &["--rate", "2000", "-q"]);
    // Some intervals on, every kind of histogram has been in use.
    thread::sleep(Duration::from_millis(2_500));
    let early = common::process::resident_kib(run.id());
    thread::sleep(Duration::from_millis(2_500));
    let late = common::process::resident_kib(run.id());
    interrupt(&run);
    assert_eq!(run.wait().expect("wait").code(), Some(130));
    assert!(late.abs_diff(early) <= 1_024, "from {early} to {late} KiB");
}

fn interrupt(run: &std::process::Child) {
    let sent = Command::new("kill").args(["-s", "INT", &run.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Ctrl-C: what was measured is told and saved, marked as partial, with the exit code of shells; a second one ends the
/// tool at once, whatever it waits for.
#[test]
fn an_interrupted_run_tells_what_it_has() {
    for_each_driver(|driver| {
        for pace in [&["--rate", "500"][..], &["--closed"]] {
            let (server, folder) = (demo(driver), Folder::new());
            let file = folder.path("a.hlog");
            let run = long_run(&server, &file, &[pace, &["--driver", driver]].concat());
            interrupt(&run);
            let ended = run.wait_with_output().expect("it ends");
            let screen = String::from_utf8_lossy(&ended.stdout).into_owned();
            assert_eq!(ended.status.code(), Some(130), "{screen}");
            assert!(screen.contains("PARTIAL: interrupted after"), "{screen}");
            let again = bench(&["report", &file]);
            let requests =
                |text: &str| text.lines().find(|line| line.starts_with("requests")).map(str::to_owned);
            assert!(again.stdout.contains("PARTIAL"), "{}", again.stdout);
            assert_eq!(requests(&again.stdout), requests(&screen), "the file says what the screen said");
        }
        let (server, folder) = (demo(driver), Folder::new());
        let run = long_run(&server, &folder.path("b.hlog"), &["--rate", "500"]);
        server.signal("STOP");
        let mut run = run;
        let ended = wait_for(common::DEADLINE, || {
            interrupt(&run);
            run.try_wait().expect("wait").is_some()
        });
        server.signal("CONT");
        assert!(ended, "two interrupts did not end it");
        assert_eq!(run.wait().expect("wait").code(), Some(130));
    });
}

#[test]
fn what_cannot_be_measured_is_said_with_its_exit_code() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let refused = bench(&[&format!("http://{}/", nobody.expect("a free port"))]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("is the server running?"), "{}", refused.stderr);
    assert_eq!(bench(&[]).code, Some(2));
    let server = demo("auto");
    let late = bench(&[&url(&server, "/plaintext"), "--time", "1h", "--html", "/no/such/folder/a.html"]);
    assert_eq!(late.code, Some(1), "said before the run, not after it");
    assert_eq!(bench(&["https://127.0.0.1/"]).code, Some(2));
    assert_eq!(bench(&["compare", "/no/such/a", "/no/such/b"]).code, Some(2));
    let help = bench(&["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.stdout.contains("--rate") && help.stdout.contains("compare"));
}

#[test]
fn rules_decide_the_exit_code() {
    let (server, folder) = (demo("auto"), Folder::new());
    let ended = save(&url(&server, "/delay?ms=30"), &folder.path("a.hlog"), &["--fail-if", "p50>10ms"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stdout.contains("FAILED: p50>10ms"), "{}", ended.stdout);
    let wrong = save(&url(&server, "/nothing-here"), &folder.path("b.hlog"), &[]);
    assert!(wrong.stdout.contains("status 400"), "{}", wrong.stdout);
}

/// Where `scripts/setup-test-tools` puts the independent readers.
fn python() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_shardlet")).ancestors().nth(2).expect("target/debug/shardlet");
    let python = target.join("py/bin/python");
    let there = python.exists();
    // A fresh checkout may test without it; the check that everything must pass may not.
    assert!(there || std::env::var_os("CI").is_none(), "run scripts/setup-test-tools first");
    if !there {
        println!("left out: no {}; scripts/setup-test-tools makes it", python.display());
    }
    there.then_some(python)
}

const READ_BACK: &str = r#"
import sys, json, xml.etree.ElementTree as tree
import jsonschema
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
log, spectrum, svg, schema, *documents = sys.argv[1:]
new = lambda: HdrHistogram(1, 3600 * 10**9, 3)
reader, total = HistogramLogReader(log, new()), new()
while (interval := reader.get_next_interval_histogram()) is not None:
    if not interval.get_tag():
        total.add(interval)
rows = [line.split() for line in open(spectrum) if line.strip() and line[0] != '#'][1:]
footer = [line for line in open(spectrum) if line[0] == '#']
assert tree.parse(svg).getroot().tag == '{http://www.w3.org/2000/svg}svg'
schema = json.load(open(schema))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
faults = [error.message for document in documents for error in validator.iter_errors(json.load(open(document)))]
# A schema that accepts anything would prove nothing.
wrong = json.load(open(documents[0])) | {'elapsed_s': 'long', 'more': 1}
print(json.dumps({
    'count': total.get_total_count(),
    'p50': total.get_value_at_percentile(50.0),
    'p99': total.get_value_at_percentile(99.0),
    'max': total.get_max_value(),
    'start': reader.get_start_time_sec(),
    'last': [float(rows[-1][0]), float(rows[-1][1]), int(rows[-1][2])],
    'footer': len(footer),
    'faults': faults,
    'faults_of_wrong': len(list(validator.iter_errors(wrong))),
}))
"#;

#[test]
fn files_are_read_by_an_independent_reader() {
    let Some(python) = python() else { return };
    let (server, folder) = (demo("auto"), Folder::new());
    let [log, spectrum, svg, json] = ["a.hlog", "a.hgrm", "a.svg", "a.json"].map(|name| folder.path(name));
    let more = ["-q", "--hgrm", &spectrum, "--svg", &svg, "--json", &json];
    assert_eq!(save(&url(&server, "/plaintext"), &log, &more).code, Some(0));
    let curve = folder.path("curve.json");
    let ramp = ["--ramp", "100:200:2", "--step-time", "200ms", "--warm-up", "0s", "--fail-if", "errors>1%"];
    bench(&[&[url(&server, "/plaintext").as_str(), "-q", "--json", &curve], &ramp[..]].concat());
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/bench-result.schema.json");
    let files = [&log, &spectrum, &svg, schema, &json, &curve];
    let output = Command::new(python).args(["-c", READ_BACK]).args(files).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let own = folder.json("a.json");
    let percentiles = &own["latency"]["response"]["percentiles_ns"];
    assert_eq!(read["faults"], serde_json::json!([]), "the document is not what the schema says");
    assert_eq!(read["faults_of_wrong"], 2);
    assert_eq!(read["count"], 400);
    assert_eq!(read["p50"], percentiles["p50"]);
    assert_eq!(read["p99"], percentiles["p99"]);
    assert_eq!(read["max"], percentiles["max"]);
    let started = own["load"]["started_unix_s"].as_f64().expect("a number");
    assert!((read["start"].as_f64().expect("a number") - started).abs() < 0.01);
    let max_ms = percentiles["max"].as_u64().expect("a number") as f64 / 1e6;
    assert!((read["last"][0].as_f64().expect("a number") - max_ms).abs() < 0.001);
    assert_eq!((&read["last"][1], &read["last"][2], &read["footer"]), (&1.0.into(), &400.into(), &3.into()));
}

/// A real browser opens the page: the text is there, and its console is silent.
#[test]
fn the_page_opens_in_a_browser() {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| runs(name))
    else {
        println!("left out: no chromium here");
        return;
    };
    let (server, folder) = (demo("auto"), Folder::new());
    let page = folder.path("a.html");
    let more = ["-q", "--html", page.as_str()];
    assert_eq!(save(&url(&server, "/plaintext"), &folder.path("a.hlog"), &more).code, Some(0));
    let profile = format!("--user-data-dir={}", folder.path("profile"));
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            &profile,
            "--dump-dom",
        ])
        .arg(format!("file://{page}"))
        .output()
        .expect("runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    for part in ["Latency by percentile", "Over time", "Heat map", "first byte", "400"] {
        assert!(dom.contains(part), "{part} is not on the page");
    }
    assert!(!String::from_utf8_lossy(&output.stderr).contains("CONSOLE"), "the console has something to say");
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}
