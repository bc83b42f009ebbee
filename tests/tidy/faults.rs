//! Holds `docs/faults.md` and `docs/security.md` to account: each fault that is known has a row, each test that a row names
//! exists, and each test that is named after a fault or an attack is named there. It does not judge what a test shows.

use super::{Source, sources};
use std::collections::BTreeSet;

/// The rows of the list of faults in the life of a request. The list has gaps.
const LIFE: &[u32] = &[
    1, 2, 3, 4, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 25, 26, 27, 28, 30, 31, 32, 34, 35,
    36, 37, 38, 40, 41, 42, 43, 44, 46, 48, 49, 50, 51, 52, 53, 56, 57, 59, 60, 61, 62, 64, 65, 67, 68, 69,
    70, 72, 74, 75, 77, 78, 79, 81, 82, 83, 84, 85, 86, 89,
];

/// The rows of the list of faults in the runtime.
const RUNTIME: &[u32] = &[
    1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 25, 26, 27, 28, 29, 30, 31, 32, 33,
    34, 36, 37, 39, 40, 42,
];

const FAULTS: &str = include_str!("../../docs/faults.md");
const SECURITY: &str = include_str!("../../docs/security.md");

pub(super) fn check() {
    let mut breaches = rows_missing();
    let functions = functions();
    for (document, text) in [("docs/faults.md", FAULTS), ("docs/security.md", SECURITY)] {
        for name in names_in(text) {
            if !functions.contains(name) {
                breaches.push(format!("{document}: there is no test {name}: write it, or mend the name"));
            }
        }
    }
    breaches.extend(unnamed(&functions));
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

/// A row is the numbers in the first cell of its line: `| 18 |`, `| r18, r19 |`.
fn rows_missing() -> Vec<String> {
    let mut present = BTreeSet::new();
    for line in FAULTS.lines() {
        let mut cells = line.strip_prefix("| ").into_iter().flat_map(|rest| rest.split(" | "));
        let (Some(numbers), Some(tests)) = (cells.next(), cells.nth(1)) else { continue };
        if tests.trim_end_matches('|').trim().is_empty() {
            continue;
        }
        present.extend(numbers.split(", ").map(str::to_owned));
    }
    let life = LIFE.iter().map(ToString::to_string);
    let runtime = RUNTIME.iter().map(|number| format!("r{number}"));
    let missing = life.chain(runtime).filter(|number| !present.contains(number));
    missing
        .map(|number| format!("docs/faults.md: fault {number} has no row with a test or a reason"))
        .collect()
}

/// Every function of the tree, tests included.
fn functions() -> BTreeSet<String> {
    sources().iter().flat_map(Source::functions).map(|function| function.name).collect()
}

/// Whole names in backticks that are those of tests: words joined by underscores, three at least. Names that are cut
/// short with … name nobody, and neither do those of settings, modules and files.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|name| {
        let is_word =
            name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        is_word && name.matches('_').count() >= 2
    })
}

/// Tests named after a fault or an attack that no document knows.
fn unnamed(functions: &BTreeSet<String>) -> Vec<String> {
    let documents = [FAULTS, SECURITY].concat();
    let named: BTreeSet<&str> = names_in(&documents).collect();
    // In the list of attacks a name may be cut short behind its row.
    let cut: Vec<&str> = documents.split('`').filter_map(|name| name.strip_suffix('…')).collect();
    let is_known = |name: &str| named.contains(name) || cut.iter().any(|start| name.starts_with(start));
    let ours = functions.iter().filter(|name| name.starts_with("attack_") || name.contains("fault_"));
    let ours = ours.filter(|name| name.split("fault_").nth(1).is_none_or(begins_with_row));
    ours.filter(|name| !is_known(name))
        .map(|name| format!("{name}: name it in docs/faults.md or docs/security.md, at its row"))
        .collect()
}

/// `12_…`, `r12_…`, `s1_…`: the row of a fault or an attack.
fn begins_with_row(rest: &str) -> bool {
    let row = rest.split('_').next().unwrap_or_default();
    row.trim_start_matches(|c: char| c.is_ascii_lowercase()).parse::<u32>().is_ok() && row.len() <= 3
}
