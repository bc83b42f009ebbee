//! Replays the corpus of every fuzz target with each `cargo test`: what was once found stays fixed.
//!
//! A crash that fuzzing finds is fixed, and its input is stored under `fuzz/corpus/TARGET` with a name that says what it
//! is. Nothing random happens here.

#[path = "../fuzz/files.rs"]
mod files;
#[path = "../fuzz/forms.rs"]
mod forms;
#[path = "../fuzz/invariants.rs"]
mod invariants;
#[path = "../fuzz/operations.rs"]
mod operations;

use std::fs;
use std::path::Path;

fn replay(target: &str, invariant: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is part of the repository") {
        let path = entry.expect("a readable folder").path();
        let data = fs::read(&path).expect("a readable file");
        // Shown only if the invariant fails.
        println!("replaying {}", path.display());
        invariant(&data);
        // Every beginning of an input is an input too.
        for len in 0..data.len().min(200) {
            invariant(&data[..len]);
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn head() {
    replay("head", invariants::head);
}

#[test]
fn framing() {
    replay("framing", invariants::framing);
}

#[test]
fn body() {
    replay("body", invariants::body);
}

#[test]
fn response() {
    replay("response", invariants::response);
}

#[test]
fn cycle() {
    replay("cycle", operations::cycle);
}

#[test]
fn multipart() {
    replay("multipart", forms::multipart);
}

#[test]
fn path() {
    replay("path", files::path);
}

#[test]
fn range() {
    replay("range", files::range);
}
