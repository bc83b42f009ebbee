//! The house rules as tests: who may import whom, sizes, the list of files with unsafe code, and what no file may
//! hold. A message says where and what to do instead. The table is the one of ARCHITECTURE.md; a part that does not
//! exist yet is no error. `tidy/source.rs` reads Rust as far as these rules need, `tidy/imports.rs` is the table, `tidy/faults.rs` the lists of faults.

#[path = "tidy/faults.rs"]
mod faults;
#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/source.rs"]
mod source;

use source::Source;
use std::{fs, path::Path};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const EXAMPLE_LINES_MAX: usize = 120;

/// Files that may hold unsafe code, each block with its SAFETY note (clippy checks those).
const UNSAFE_FILES: [&str; 9] = [
    "shards/src/driver/uring.rs",
    "shards/src/driver/uring/complete.rs",
    "shards/src/driver/uring/ring.rs",
    "shards/src/driver/epoll.rs",
    "shards/src/driver/ring_buffers.rs",
    "shards/src/tasks/raw.rs",
    "shards/src/tasks/waker.rs",
    "shards/src/inbox.rs",
    "shards/src/affinity.rs",
];

/// The only files that name the io_uring crate.
const URING_FILES: [&str; 5] = [
    "shards/src/driver/uring.rs",
    "shards/src/driver/uring/complete.rs",
    "shards/src/driver/uring/entries.rs",
    "shards/src/driver/uring/ring.rs",
    "shards/src/driver/ring_buffers.rs",
];

/// Every Rust file of the project, with its path from the root.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let folders =
        ["src", "shards/src", "shards/tests", "shards/examples", "tests", "examples", "benches", "fuzz"];
    for folder in folders.into_iter().chain(["benches/peers/handover"]) {
        collect(root, &root.join(folder), &mut found);
    }
    assert!(found.len() > 20, "only {} files found under {}", found.len(), root.display());
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        // The peers are opponents in a benchmark: other servers, as others write them.
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target" && name != "peers") {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            found.push(Source::new(name, fs::read_to_string(&path).expect("readable")));
        }
    }
}

/// Runs a rule over all files and fails with every breach at once.
fn check(rule: impl Fn(&Source) -> Vec<String>) {
    let breaches: Vec<String> = sources().iter().flat_map(rule).collect();
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

fn breach(source: &Source, line: usize, advice: &str) -> String {
    format!("{}:{line}: {advice}", source.name)
}

/// A breach for each line of code (no comments, no strings, no tests) that has the word.
fn lines_with(source: &Source, word: &str, advice: &str) -> Vec<String> {
    let lines = source.production.lines().enumerate();
    lines
        .filter(|(_, line)| source::has_word(line, word))
        .map(|(at, _)| breach(source, at + 1, advice))
        .collect()
}

#[test]
fn imports_follow_the_table() {
    check(imports::breaches);
}

#[test]
fn every_file_says_what_it_is_for() {
    check(|source| {
        let opens = source.text.starts_with("//!") || source.text.starts_with("#!/");
        if opens {
            Vec::new()
        } else {
            vec![breach(source, 1, "open with //!: its one job, its neighbours, what it will not do")]
        }
    });
}

#[test]
fn files_are_short() {
    check(|source| {
        let lines = source.production.lines().filter(|line| !line.trim().is_empty()).count();
        let all = source.text_lines_without_tests();
        match all > FILE_LINES_MAX {
            true => vec![breach(
                source,
                1,
                &format!(
                    "{all} lines ({lines} of code) without tests, {FILE_LINES_MAX} are the wall: split off one idea into a file of its own"
                ),
            )],
            false => Vec::new(),
        }
    });
}

#[test]
fn examples_fit_a_page() {
    check(|source| {
        let lines = source.text.lines().count();
        let is_long = source.name.starts_with("examples/") && lines > EXAMPLE_LINES_MAX;
        let advice = format!("{lines} lines, {EXAMPLE_LINES_MAX} are the wall: show one thing");
        if is_long { vec![breach(source, 1, &advice)] } else { Vec::new() }
    });
}

#[test]
fn functions_are_short() {
    check(|source| {
        let long = source.functions().into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
        long.map(|function| {
            let advice = format!(
                "fn {} has {} lines, {FUNCTION_LINES_MAX} are the wall: name its steps and make them functions",
                function.name, function.lines
            );
            breach(source, function.at, &advice)
        })
        .collect()
    });
}

#[test]
fn unsafe_stays_in_its_files() {
    check(|source| {
        if UNSAFE_FILES.contains(&source.name.as_str()) || !is_production(source) {
            return Vec::new();
        }
        lines_with(
            source,
            "unsafe",
            "use a safe wrapper (rustix, socket2), or move this into a file of the unsafe list",
        )
    });
}

#[test]
fn only_sync_names_atomics() {
    check(|source| {
        if !source.name.starts_with("shards/src/") || source.name == "shards/src/sync.rs" {
            return Vec::new();
        }
        lines_with(source, "atomic", "take it from crate::sync, so that loom can check it")
    });
}

#[test]
fn only_clock_asks_the_time() {
    check(|source| {
        if !source.name.starts_with("shards/src/") || source.name == "shards/src/clock.rs" {
            return Vec::new();
        }
        let words = ["Instant::now", "SystemTime::now"];
        words
            .iter()
            .flat_map(|word| {
                lines_with(source, word, "take now from the shard's Clock, so that time can be simulated")
            })
            .collect()
    });
}

#[test]
fn the_ring_is_named_in_three_files() {
    check(|source| {
        let mut found = lines_with(
            source,
            "IO_LINK",
            "queue the second operation when the first completes: links do not cross submits",
        );
        if !URING_FILES.contains(&source.name.as_str()) {
            found.extend(lines_with(
                source,
                "io_uring::",
                "go through driver::Driver, so that every driver can do it",
            ));
        }
        found
    });
}

#[test]
fn the_protocol_has_no_clock_and_no_socket() {
    check(|source| {
        if !source.name.starts_with("src/http1/") {
            return Vec::new();
        }
        let words = ["Instant", "SystemTime", "std::net", "std::io", "std::thread", "tracing"];
        words
            .iter()
            .flat_map(|word| lines_with(source, word, "http1 is sans-IO: take bytes and now, give values"))
            .collect()
    });
}

#[test]
fn no_file_leaves_work_undone() {
    // Put together here, so that this file does not hold what it looks for.
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat(), ["XX", "X"].concat(), ["HA", "CK"].concat()];
    check(|source| {
        let lines = source.text.lines().enumerate();
        let found = lines.filter(|(_, line)| marks.iter().any(|mark| source::has_word(line, mark)));
        found
            .map(|(at, _)| breach(source, at + 1, "do it now, or file an issue and say the present state"))
            .collect()
    });
}

/// The rules of the life cycle, L-1 to L-27: each is the name of a test that would fail without it.
#[test]
fn every_rule_of_the_life_cycle_has_a_test_of_its_name() {
    let sources = sources();
    let has_test = |number: u32| {
        let names = [format!("fn l_{number}_"), format!("fn rule_l{number}_")];
        sources.iter().any(|source| names.iter().any(|name| source.code.contains(name.as_str())))
    };
    let without: Vec<u32> = (1..=27).filter(|number| !has_test(*number)).collect();
    assert!(without.is_empty(), "no test is named l_N_... or rule_lN_... for the rules {without:?}");
}

#[test]
fn every_exception_has_a_reason() {
    check(|source| {
        let exceptions = source.attributes_named(&["allow", "expect"]);
        let unreasoned = exceptions.into_iter().filter(|(_, text)| !text.contains("reason"));
        unreasoned.map(|(at, _)| breach(source, at, "say why: allow(…, reason = \"…\")")).collect()
    });
}

#[test]
fn shards_knows_no_http() {
    let manifest = include_str!("../shards/Cargo.toml");
    for name in ["http", "httparse", "h2", "hyper", "shardlet", "tokio"] {
        let is_named = manifest.lines().any(|line| line.split(['.', ' ', '=']).next() == Some(name));
        assert!(
            !is_named,
            "shards/Cargo.toml: {name} does not belong into the runtime; use it in the shardlet crate"
        );
    }
}

#[test]
fn every_fault_has_its_row_and_every_row_its_tests() {
    faults::check();
}

#[test]
fn licences_are_allowed() {
    licences::check();
}

/// Code that ships, not tests or benchmarks.
fn is_production(source: &Source) -> bool {
    source.name.starts_with("src/")
        || source.name.starts_with("shards/src/")
        || source.name.starts_with("examples/")
}
