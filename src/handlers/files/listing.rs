//! A directory as a page or as JSON: filtered, sorted, bounded, every name escaped.
//!
//! Shows exactly what a request could name ([`super::path::is_servable`]): no hidden names, links or special
//! files. Reads no directory; the caller hands the entries over, bounded by [`ENTRIES_MAX`].

use super::{conditional::format_date, negotiate::Form, path::is_servable};
use serde::Serialize;
use shards::fs::{Entries, Entry, Kind};
use std::fmt::Write;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedEntry {
    /// Its name, one segment.
    pub name: String,
    /// A folder, not a file.
    pub is_folder: bool,
    /// Octets; 0 for a folder.
    pub len: u64,
    /// Last modification, seconds since 1970.
    pub modified_s: i64,
}

/// By what entries are sorted; folders come first always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortBy {
    /// By name, bytewise.
    #[default]
    Name,
    /// By size, then name.
    Size,
    /// By time, then name.
    Time,
}

/// What the query of the request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Order {
    /// `sort=name|size|time`
    pub by: SortBy,
    /// `order=desc`
    pub descending: bool,
}

impl Order {
    /// Reads the query; what it does not know is ignored.
    #[must_use]
    pub fn from_query(query: Option<&str>) -> Order {
        let mut order = Order::default();
        for pair in query.unwrap_or_default().split('&') {
            match pair {
                "sort=name" => order.by = SortBy::Name,
                "sort=size" => order.by = SortBy::Size,
                "sort=time" => order.by = SortBy::Time,
                "order=asc" => order.descending = false,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }
}

/// A directory to be shown.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The undecoded path of the request, with its last slash: shown, and root or not.
    pub path: String,
    /// What is in it, in any order.
    pub entries: Vec<ListedEntry>,
    /// There was more than [`ENTRIES_MAX`].
    pub truncated: bool,
}

impl Listing {
    /// From the entries of a folder; `path` is the undecoded path of the request. Links, special files and names
    /// that are not UTF-8 are left out.
    #[must_use]
    pub fn of(path: &str, entries: Entries) -> Listing {
        let listed = |entry: Entry| {
            let is_folder = entry.metadata.kind == Kind::Directory;
            let is_shown = is_folder || entry.metadata.kind == Kind::File;
            let name = entry.name.into_string().ok().filter(|_| is_shown)?;
            let len = if is_folder { 0 } else { entry.metadata.len };
            Some(ListedEntry { name, is_folder, len, modified_s: entry.metadata.modified_s })
        };
        let truncated = entries.truncated;
        Listing {
            path: path.to_owned(),
            entries: entries.list.into_iter().filter_map(listed).collect(),
            truncated,
        }
    }

    /// Keeps what a request can name, within the bound, in order.
    pub fn prepare(&mut self, order: Order, show_hidden: bool) {
        self.entries.retain(|entry| is_servable(&entry.name, show_hidden));
        if self.entries.len() > ENTRIES_MAX {
            self.entries.truncate(ENTRIES_MAX);
            self.truncated = true;
        }
        self.entries.sort_by(|one, other| {
            let key = match order.by {
                SortBy::Name => std::cmp::Ordering::Equal,
                SortBy::Size => one.len.cmp(&other.len),
                SortBy::Time => one.modified_s.cmp(&other.modified_s),
            };
            let within = key.then_with(|| one.name.cmp(&other.name));
            let within = if order.descending { within.reverse() } else { within };
            other.is_folder.cmp(&one.is_folder).then(within)
        });
    }

    /// The body.
    #[must_use]
    pub fn render(&self, form: Form) -> Vec<u8> {
        match form {
            Form::Json => self.json(),
            Form::Html | Form::Plain => self.html().into_bytes(),
        }
    }

    fn json(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Shape<'a> {
            path: &'a str,
            entries: &'a [ListedEntry],
            truncated: bool,
        }
        let shape = Shape { path: &self.path, entries: &self.entries, truncated: self.truncated };
        let mut body = serde_json::to_vec(&shape).unwrap_or_default();
        body.push(b'\n');
        body
    }

    fn html(&self) -> String {
        let title = escape(&percent_encoding::percent_decode_str(&self.path).decode_utf8_lossy());
        let mut page = String::with_capacity(1024 + self.entries.len() * 160);
        let _ = write!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width\">\n<title>Index of {title}</title>\n<style>{STYLE}</style>\n\
             <h1>Index of {title}</h1>\n<table>\n<thead><tr>"
        );
        for (by, label) in [("name", "Name"), ("size", "Size"), ("time", "Modified")] {
            let _ = write!(
                page,
                "<th>{label} <a href=\"?sort={by}\" aria-label=\"{label}, ascending\">↑</a><a \
                 href=\"?sort={by}&amp;order=desc\" aria-label=\"{label}, descending\">↓</a>"
            );
        }
        page.push_str("<tbody>\n");
        if self.path != "/" {
            page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
        }
        for entry in &self.entries {
            write_row(&mut page, entry);
        }
        page.push_str("</table>\n");
        if self.truncated {
            let _ = writeln!(page, "<p>Only the first {} entries are shown.", self.entries.len());
        }
        page.push_str("</html>\n");
        page
    }
}

fn write_row(page: &mut String, entry: &ListedEntry) {
    let slash = if entry.is_folder { "/" } else { "" };
    let name = escape(&entry.name);
    // "./" before it: a name with a colon is no scheme (RFC 3986 §4.2).
    let href = percent_encoding::utf8_percent_encode(&entry.name, percent_encoding::NON_ALPHANUMERIC);
    let size = match (entry.is_folder, entry.len) {
        (true, _) => "<td>".to_owned(),
        (false, len) => format!("<td title=\"{len}\">{}", size(len)),
    };
    let date = format_date(entry.modified_s);
    let _ = writeln!(page, "<tr><td><a href=\"./{href}{slash}\">{name}{slash}</a>{size}<td>{date}");
}

/// Octets for people: exact below a KiB, then to a tenth.
fn size(len: u64) -> String {
    let mut value = len as f64;
    for unit in ["", " KiB", " MiB", " GiB"] {
        if value < 1023.95 {
            return if unit.is_empty() { len.to_string() } else { format!("{value:.1}{unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Text for element content and quoted attributes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Most entries that are read and shown.
pub const ENTRIES_MAX: usize = 10_000;

/// The page may style itself and do nothing else.
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// The theme is the root's: on the body it would colour links for a background that stays white. Names break anywhere and
/// keep their direction to themselves.
const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;\
padding:0 1em}table{width:100%;border-collapse:collapse}th{text-align:left}th a{text-decoration:none}\
td,th{padding:.2em .6em;border-bottom:1px solid #8884;white-space:nowrap}td:nth-child(1){white-space:normal;\
overflow-wrap:anywhere}td a{unicode-bidi:isolate}td:nth-child(2),th:nth-child(2){text-align:right}";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(name: &str, is_folder: bool, len: u64) -> ListedEntry {
        ListedEntry { name: name.into(), is_folder, len, modified_s: 0 }
    }

    fn listing(entries: Vec<ListedEntry>) -> Listing {
        Listing { path: "/sub/".into(), entries, truncated: false }
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn shows_what_can_be_named_in_the_order_asked_for() {
        let entries = ["b.txt", ".env", "a.txt", "old.bak", "x\\y", "z."]
            .map(|name| entry(name, false, name.len() as u64));
        let mut list = listing(entries.to_vec());
        list.entries.push(entry("zoo", true, 0));
        list.entries[0].len = 1;
        list.prepare(Order::default(), false);
        assert_eq!(names(&list), ["zoo", "a.txt", "b.txt"]);
        list.prepare(Order::from_query(Some("x=1&sort=size&order=desc")), false);
        assert_eq!(names(&list), ["zoo", "a.txt", "b.txt"]);
        list.prepare(Order::from_query(Some("sort=size")), false);
        assert_eq!(names(&list), ["zoo", "b.txt", "a.txt"]);
    }

    #[test]
    fn is_bounded() {
        let mut list =
            listing((0..ENTRIES_MAX + 5).map(|index| entry(&format!("f{index}"), false, 1)).collect());
        list.prepare(Order::default(), false);
        assert_eq!((list.entries.len(), list.truncated), (ENTRIES_MAX, true));
        assert!(String::from_utf8(list.render(Form::Html)).unwrap().contains("Only the first 10000"));
    }

    #[test]
    fn both_forms() {
        let list = listing(vec![entry("a b&c.txt", false, 12), entry("javascript:x", true, 0)]);
        let html = String::from_utf8(list.render(Form::Html)).unwrap();
        assert!(
            html.contains("<a href=\"./a%20b%26c%2Etxt\">a b&amp;c.txt</a><td title=\"12\">12<td>"),
            "{html}"
        );
        // A theme on the body alone leaves the background white.
        assert!(html.contains("<style>:root{color-scheme:light dark}"), "{html}");
        assert!(html.contains("<a href=\"./javascript%3Ax/\">") && html.contains("href=\"../\""));
        let json: serde_json::Value = serde_json::from_slice(&list.render(Form::Json)).unwrap();
        assert_eq!(json["entries"][0]["name"], "a b&c.txt");
        assert_eq!(json["truncated"], false);
        let root = Listing { path: "/".into(), entries: vec![], truncated: false };
        assert!(!String::from_utf8(root.render(Form::Html)).unwrap().contains("../"));
    }

    #[test]
    fn sizes_for_people() {
        let table = [(0, "0"), (1023, "1023"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB")];
        let more = [((1 << 20) - 1, "1.0 MiB"), (4_700_000_000, "4.4 GiB"), (u64::MAX, "16777216.0 TiB")];
        for (len, text) in table.into_iter().chain(more) {
            assert_eq!(size(len), text);
        }
    }

    proptest! {
        /// No name and no path adds an element or ends an attribute.
        #[test]
        fn nothing_in_a_name_becomes_markup(name in "\\PC{1,20}", path in "[a-z%<>\"'&0-9]{0,12}") {
            let plain = Listing { path: "/x/".into(), entries: vec![entry("x", false, 1)], truncated: false };
            let hostile = Listing { path: format!("/{path}/"), entries: vec![entry(&name, false, 1)], truncated: false };
            let count = |list: &Listing, sign: char| String::from_utf8(list.render(Form::Html)).unwrap().matches(sign).count();
            for sign in ['<', '>', '"'] {
                prop_assert_eq!(count(&plain, sign), count(&hostile, sign));
            }
        }
    }
}
