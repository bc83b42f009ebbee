//! Lookups over a made-up tree: which names are opened, in which order, and what answers.

use super::*;
use crate::handlers::files::{fields::Lines, path::safe_path};

/// Name and age of files; a name that ends in `/` is a folder, one that begins with `!` is denied.
type Tree = [(&'static str, i64)];

fn facts(modified_s: i64) -> FileFacts {
    FileFacts { len: 10, modified_s, modified_ns: 0, inode: 1, device: 1 }
}

fn run(
    tree: &Tree,
    path: &str,
    accept: &'static str,
    options: &FilesOptions,
) -> (Vec<String>, Outcome<String>) {
    let request = RequestFacts {
        accept: Lines::One(accept.as_bytes()),
        accept_encoding: Lines::One(b"br, gzip"),
        ..RequestFacts::get(path)
    };
    let (mut lookup, mut step) = Lookup::start(safe_path(path, false).unwrap(), &request, options);
    let mut opened = Vec::new();
    loop {
        let name = match step {
            Step::Answer(outcome) => return (opened, outcome),
            Step::Open { name, .. } => name,
        };
        assert!(opened.len() < 20, "a lookup that does not end: {opened:?}");
        let find = |wanted: &str| tree.iter().find(|(name, _)| *name == wanted);
        let result = if let Some((_, age)) = find(&name) {
            Opened::File(facts(*age), name.clone())
        } else if name.is_empty() || find(&format!("{name}/")).is_some() {
            Opened::Folder(name.clone())
        } else {
            Opened::Failed(if find(&format!("!{name}")).is_some() { 403 } else { 404 })
        };
        opened.push(name);
        step = lookup.next(result, options);
    }
}

fn file_of(outcome: Outcome<String>) -> FileOutcome<String> {
    match outcome {
        Outcome::File(file) => file,
        other => panic!("no file: {other:?}"),
    }
}

const TREE: &Tree = &[
    ("index.html", 5),
    ("photo.jpg", 5),
    ("app.js", 5),
    ("app.js.br", 4),
    ("app.js.gz", 5),
    ("sub/", 0),
    ("bare/", 0),
    ("sub/index.html", 5),
    ("404.html", 5),
    ("!locked", 0),
];

#[test]
fn files_folders_and_nothing() {
    let options = FilesOptions { precompressed: false, ..FilesOptions::default() };
    let get = |path| run(TREE, path, "*/*", &options);
    assert_eq!(file_of(get("/photo.jpg").1).handle, "photo.jpg");
    let (opened, index) = get("/");
    assert_eq!((opened, file_of(index).name.as_str()), (vec!["index.html".to_owned()], "index.html"));
    assert_eq!(file_of(get("/sub/").1).handle, "sub/index.html");
    assert_eq!(get("/sub").1, Outcome::Redirect);
    assert_eq!(get("/photo.jpg/").1, Outcome::Error(404));
    assert_eq!(get("/bare/").1, Outcome::Error(404));
    assert_eq!(get("/nope").1, Outcome::Error(404));
    assert_eq!(get("/locked").1, Outcome::Error(403));
}

/// P4: a sidecar older than its file is passed over, the next coding is tried.
#[test]
fn sidecars_by_preference_and_age() {
    let options = FilesOptions::default();
    let (opened, outcome) = run(TREE, "/app.js", "*/*", &options);
    assert_eq!(opened, ["app.js", "app.js.br", "app.js.gz"]);
    let file = file_of(outcome);
    assert_eq!(
        (file.name.as_str(), file.handle.as_str(), file.coding),
        ("app.js", "app.js.gz", Some(Coding::Gzip))
    );
    let (opened, outcome) = run(TREE, "/photo.jpg", "*/*", &options);
    assert_eq!((opened.len(), file_of(outcome).coding), (1, None));
    let (opened, outcome) = run(TREE, "/sub/", "*/*", &options);
    assert_eq!(opened, ["sub/index.html", "sub/index.html.br", "sub/index.html.gz"]);
    assert_eq!(file_of(outcome).handle, "sub/index.html");
}

#[test]
fn listings_fallbacks_and_error_pages() {
    let options = FilesOptions { listing: true, ..FilesOptions::default() };
    assert_eq!(run(TREE, "/bare/", "*/*", &options).1, Outcome::List("bare".into()));
    assert_eq!(run(TREE, "/photo.jpg/", "*/*", &options).1, Outcome::Error(404));
    let options = FilesOptions {
        fallback: Some("index.html".into()),
        error_pages: vec![(404, "404.html".into())],
        precompressed: false,
        ..FilesOptions::default()
    };
    let page = file_of(run(TREE, "/some/route", "text/html", &options).1);
    assert_eq!((page.name.as_str(), page.status, page.is_fallback), ("index.html", 200, true));
    let script = file_of(run(TREE, "/missing.js", "*/*", &options).1);
    assert_eq!((script.name.as_str(), script.status, script.is_fallback), ("404.html", 404, false));
    assert_eq!(run(&[], "/some/route", "text/html", &options).1, Outcome::Error(404));
}
