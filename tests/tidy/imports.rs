//! Who may import whom: the table of ARCHITECTURE.md, and the reader of paths that it is checked with. A part is the
//! first name below `src`: `src/http1/scan.rs` belongs to `http1`.

use super::source::{Source, braced, word_places};

/// What a part of the server may import. `ROOT` stands for what `lib.rs` exports.
struct Rule {
    part: &'static str,
    parts: &'static [&'static str],
    shards: bool,
}

const ROOT: &str = "what lib.rs exports";

const fn rule(part: &'static str, parts: &'static [&'static str], shards: bool) -> Rule {
    Rule { part, parts, shards }
}

/// Everything below `server`, in the order in which a request meets it.
const SERVER_PARTS: &[&str] =
    &["connection", "http1", "exchange", "routing", "workers", "metrics", "shutdown", "server", "stats"];

const RULES: [Rule; 18] = [
    rule("limits", &[], false),
    rule("error", &[], false),
    rule("http1", &[], false),
    rule("exchange", &["http1"], true),
    rule("routing", &["http1", "exchange"], false),
    rule("workers", &["exchange"], true),
    rule("metrics", &[], true),
    rule("connection", &["http1", "exchange", "routing", "workers", "metrics"], true),
    rule("server", SERVER_PARTS, true),
    rule("shutdown", SERVER_PARTS, true),
    rule("stats", SERVER_PARTS, true),
    rule("handlers", &[ROOT], true),
    rule("load", &["http1::response", "metrics::histogram"], true),
    rule("failure", &[], false),
    rule("cli", &["failure"], false),
    rule("logging", &["cli"], false),
    rule("startup", &["cli", "failure"], true),
    rule("doctor", &["startup"], true),
];

/// All may import them.
const FOR_ALL: [&str; 2] = ["limits", "error"];

/// Of the runtime, the life cycle may know ids, inbox, timers and buffers; bytes travel elsewhere.
const NOT_FOR_EXCHANGE: [&str; 7] = ["net", "fs", "Listener", "Stream", "TcpListener", "TcpStream", "relay"];

/// Parts of the runtime that know no driver.
const WITHOUT_DRIVER: [&str; 4] = ["buffers", "tasks", "timers", "inbox"];

/// Everything the file imports against the table.
pub(crate) fn breaches(source: &Source) -> Vec<String> {
    let paths = paths(source);
    match source.name.strip_prefix("shards/src/") {
        Some(within) => paths.iter().filter_map(|path| runtime_breach(source, within, path)).collect(),
        None => match source.name.strip_prefix("src/") {
            Some(within) => paths.iter().filter_map(|path| server_breach(source, within, path)).collect(),
            None => Vec::new(),
        },
    }
}

fn part_of(within: &str) -> &str {
    within.split('/').next().unwrap_or(within).trim_end_matches(".rs")
}

fn runtime_breach(source: &Source, within: &str, path: &Path) -> Option<String> {
    let part = part_of(within);
    let is_breach = WITHOUT_DRIVER.contains(&part) && path.starts_with(&["crate", "driver"]);
    is_breach
        .then(|| path.breach(source, &format!("{part} knows no driver: let shard.rs bring the two together")))
}

fn server_breach(source: &Source, within: &str, path: &Path) -> Option<String> {
    let part = part_of(within);
    if matches!(part, "main" | "lib") {
        return None;
    }
    let rule = RULES.iter().find(|rule| rule.part == part)?;
    match path.names.first().map(String::as_str)? {
        "crate" => crate_breach(source, rule, within, path),
        "shardlet" => (part != "handlers").then(|| path.breach(source, "write crate:: inside the crate")),
        "shards" if !rule.shards => {
            Some(path.breach(source, &format!("{part} does not know the runtime: pass values in")))
        }
        "shards" if part == "exchange" => {
            let name = path.names.get(1).map_or("", String::as_str);
            let is_io = NOT_FOR_EXCHANGE.contains(&name);
            is_io
                .then(|| path.breach(source, "exchange moves no bytes: give an action to connection instead"))
        }
        _ => None,
    }
}

fn crate_breach(source: &Source, rule: &Rule, within: &str, path: &Path) -> Option<String> {
    let target = path.names.get(1).map_or("", String::as_str);
    let is_root_export = target.starts_with(char::is_uppercase) || target == "*";
    if rule.part == "handlers" {
        let own = within.split('/').nth(1).map_or("", |name| name.trim_end_matches(".rs"));
        let other = path.names.get(2).map_or("", String::as_str);
        let is_foreign =
            target == "handlers" && own != "mod" && !own.is_empty() && other != own && !other.is_empty();
        return is_foreign.then(|| {
            path.breach(source, "a handler never imports another: move what both need into lib.rs's exports")
        });
    }
    let is_allowed = target == rule.part
        || FOR_ALL.contains(&target)
        || rule.parts.iter().any(|allowed| path.is_below(allowed))
        || (is_root_export && rule.parts.contains(&ROOT));
    let allowed = rule.parts.iter().chain(&FOR_ALL).copied().collect::<Vec<_>>().join(", ");
    (!is_allowed).then(|| {
        path.breach(
            source,
            &format!("{} may import only: {allowed}; pass a value or move the type down", rule.part),
        )
    })
}

/// One path that the code names, made absolute where it was relative.
#[derive(Debug, PartialEq, Eq)]
struct Path {
    names: Vec<String>,
    line: usize,
}

impl Path {
    fn starts_with(&self, names: &[&str]) -> bool {
        self.names.len() >= names.len() && self.names.iter().zip(names).all(|(mine, other)| mine == other)
    }

    /// Whether `crate::` plus this module is the beginning of the path.
    fn is_below(&self, module: &str) -> bool {
        let names: Vec<&str> = std::iter::once("crate").chain(module.split("::")).collect();
        self.starts_with(&names)
    }

    fn breach(&self, source: &Source, advice: &str) -> String {
        format!("{}:{}: {}: {advice}", source.name, self.line, self.names.join("::"))
    }
}

/// The names a path of ours can start with.
const STARTS: [&str; 4] = ["crate", "super", "shards", "shardlet"];

/// Every path in production code that starts with one of [`STARTS`], use groups spread out.
fn paths(source: &Source) -> Vec<Path> {
    let module = module_of(&source.name);
    let mut found = Vec::new();
    for start in STARTS {
        for at in word_places(&source.production, start) {
            let before = source.production[..at].trim_end();
            if before.ends_with("::") || !source.production[at + start.len()..].starts_with("::") {
                continue;
            }
            let mut spread = Vec::new();
            spread_path(&source.production[at..], &mut Vec::new(), &mut spread);
            let line = source.line_of(at);
            let mut within = module.clone();
            within.extend(inline_modules(&source.production, at));
            found.extend(spread.into_iter().map(|names| Path { names: absolute(names, &within), line }));
        }
    }
    found
}

/// `src/http1/scan.rs` → `http1::scan`; `src/http1/mod.rs` → `http1`.
fn module_of(name: &str) -> Vec<String> {
    let within = name.split_once("src/").map_or(name, |(_, within)| within).trim_end_matches(".rs");
    let names = within.split('/').filter(|name| !matches!(*name, "mod" | "lib" | "main"));
    names.map(str::to_string).collect()
}

/// The modules written out in the file (`mod a { … }`) that this place is inside of, the outermost first.
fn inline_modules(code: &str, at: usize) -> impl Iterator<Item = String> + '_ {
    word_places(code, "mod").take_while(move |&start| start < at).filter_map(move |start| {
        let rest = &code[start..];
        let open = rest.find(['{', ';'])?;
        let end = start + open + braced(&rest[open..])?.len();
        (at < end).then(|| rest[3..open].trim().to_string())
    })
}

/// `super::a` → `crate::parent::a`; a path that climbs above the crate is left at it.
fn absolute(names: Vec<String>, module: &[String]) -> Vec<String> {
    let climbs = names.iter().take_while(|name| *name == "super").count();
    if climbs == 0 {
        return names;
    }
    let kept = module.len().saturating_sub(climbs);
    let parents = std::iter::once("crate".to_string()).chain(module[..kept].iter().cloned());
    parents.chain(names.into_iter().skip(climbs)).collect()
}

/// Reads `a::b::{c, d::{e, f}}` from the front of the text and gives each path in it.
fn spread_path(text: &str, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let depth = prefix.len();
    let mut rest = text.trim_start();
    loop {
        if let Some(group) = rest.starts_with('{').then(|| braced(rest)).flatten() {
            for item in split_group(&group[1..group.len() - 1]) {
                spread_path(item, prefix, found);
            }
            break;
        }
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = if rest.starts_with('*') { 1 } else { length };
        prefix.push(rest[..length].to_string());
        let after = rest[length..].trim_start();
        match after.strip_prefix("::") {
            Some(next) if !next.trim_start().starts_with('<') => rest = next.trim_start(),
            _ => {
                found.push(prefix.clone());
                break;
            }
        }
    }
    prefix.truncate(depth);
}

/// The items of a group, split at its own commas.
fn split_group(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut items) = (0_i32, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                items.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.push(&text[from..]);
    items.into_iter().filter(|item| !item.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        breaches(&Source::new(name.into(), text.into()))
    }

    #[test]
    fn groups_are_spread_and_relative_paths_made_absolute() {
        let source = Source::new(
            "src/http1/scan.rs".into(),
            "use super::{a::{B, c}, d as e}; fn f() { super::super::g::H }".into(),
        );
        let names: Vec<String> = paths(&source).iter().map(|path| path.names.join("::")).collect();
        assert_eq!(names, ["crate::http1::a::B", "crate::http1::a::c", "crate::http1::d", "crate::g::H"]);
    }

    #[test]
    fn forbidden_imports_are_seen() {
        for (name, text) in [
            ("src/http1/scan.rs", "use crate::exchange::State;"),
            ("src/http1/scan.rs", "fn f() { crate::metrics::count() }"),
            ("src/http1/mod.rs", "use shards::Key;"),
            ("src/http1/a/b.rs", "use super::super::super::connection::X;"),
            ("src/limits.rs", "use super::http1::Head;"),
            ("src/exchange/mod.rs", "use shards::{Key, net::Stream};"),
            ("src/exchange/mod.rs", "mod seam { use super::super::routing::Router; }"),
            ("src/exchange/mod.rs", "mod seam { } use super::routing::Router;"),
            ("src/exchange/mod.rs", "use crate::{http1::Head, routing};"),
            ("src/routing/mod.rs", "use crate::Exchange;"),
            ("src/connection/mod.rs", "use crate::handlers::demo;"),
            ("src/handlers/demo/mod.rs", "use crate::handlers::files::Folder;"),
            ("src/load/mod.rs", "use crate::http1::parse;"),
            ("src/cli.rs", "use crate::server::Server;"),
            ("shards/src/timers/wheel.rs", "use crate::{driver::Driver, table::Key};"),
        ] {
            assert_eq!(found(name, text).len(), 1, "{name}: {text}: {:?}", found(name, text));
        }
    }

    #[test]
    fn allowed_imports_pass() {
        for (name, text) in [
            ("src/http1/scan.rs", "use crate::{limits::Limits, http1::head::Head}; use super::body;"),
            ("src/exchange/mod.rs", "use shards::Key; use crate::http1::Head;"),
            ("src/connection/mod.rs", "use crate::{error::Error, routing::Router}; use shards::net::Stream;"),
            ("src/handlers/demo/mod.rs", "use crate::{Exchange, handlers::demo::page};"),
            ("src/load/report.rs", "use crate::{http1::response::Head, metrics::histogram::Latency};"),
            (
                "src/http1/scan.rs",
                "#[cfg(test)] mod tests { use crate::exchange::State; } // crate::exchange::X",
            ),
            ("src/exchange/mod.rs", "mod seam { pub use super::{output::Queue, state::State}; } fn f() {}"),
            ("src/main.rs", "use crate::anything::at::All; use shardlet::Server;"),
            ("src/not_yet_in_the_table.rs", "use crate::exchange::State;"),
        ] {
            assert_eq!(found(name, text), Vec::<String>::new(), "{name}: {text}");
        }
    }
}
