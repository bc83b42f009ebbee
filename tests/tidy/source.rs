//! Reads Rust as far as the house rules need it: blanks comments and strings, cuts test modules out, finds functions,
//! attributes and paths. It is no parser; it sees tokens, and every blanked character keeps its line.

use std::iter;

/// A file and what is left of it without comments, strings and tests.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the root of the project.
    pub(crate) name: String,
    /// The text as it is.
    pub(crate) text: String,
    /// Code alone: comments and the insides of strings are blanks.
    pub(crate) code: String,
    /// `code` without test modules; empty for a file of tests.
    pub(crate) production: String,
    test_lines: usize,
}

/// A function and how long it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// The line it starts at.
    pub(crate) at: usize,
    /// Lines of code between its braces, blank ones and comments not counted.
    pub(crate) lines: usize,
}

impl Source {
    /// Reads it.
    pub(crate) fn new(name: String, text: String) -> Source {
        let code = blank_comments_and_strings(&text);
        let production = if is_test_file(&name) { String::new() } else { blank_tests(&code) };
        let test_lines = code.lines().zip(production.lines()).filter(|(code, left)| code != left).count();
        Source { name, text, code, production, test_lines }
    }

    /// Lines of the file, comments included, test modules not. A file of tests counts as a whole.
    pub(crate) fn text_lines_without_tests(&self) -> usize {
        self.text.lines().count() - self.test_lines
    }

    /// Every function, tests included.
    pub(crate) fn functions(&self) -> Vec<Function> {
        word_places(&self.code, "fn").filter_map(|at| self.function_at(at)).collect()
    }

    fn function_at(&self, at: usize) -> Option<Function> {
        let after = self.code[at + 2..].trim_start();
        let name: String = after.chars().take_while(|&c| is_word_char(c)).collect();
        let rest = &self.code[at..];
        let open = rest.find(['{', ';']).filter(|_| !name.is_empty())?;
        let body = braced(&rest[open..])?;
        let lines = body.lines().filter(|line| !line.trim().is_empty()).count();
        Some(Function { name, at: self.line_of(at), lines: lines.saturating_sub(2) })
    }

    /// Attributes of these names with their whole text and line.
    pub(crate) fn attributes_named(&self, names: &[&str]) -> Vec<(usize, &str)> {
        let places = names.iter().flat_map(|name| word_places(&self.code, name));
        let is_attribute = |&at: &usize| {
            let before = self.code[..at].trim_end();
            before.ends_with("#[") || before.ends_with("#![") || before.ends_with(',')
        };
        places
            .filter(|&at| self.code[at..].trim_start_matches(is_word_char).starts_with('('))
            .filter(is_attribute)
            .map(|at| (self.line_of(at), &self.code[at..at + self.code[at..].find(')').unwrap_or(0)]))
            .collect()
    }

    /// The number of the line that this byte is on.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.code[..at].bytes().filter(|&byte| byte == b'\n').count() + 1
    }
}

/// Files whose every line is for tests: by their own name or a folder's.
fn is_test_file(name: &str) -> bool {
    let mut names = name.trim_end_matches(".rs").split('/');
    names.any(|name| name == "tests" || name == "testing" || name.ends_with("_tests"))
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the word stands alone.
pub(crate) fn word_places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    iter::from_fn(move || {
        let at = from + text.get(from..)?.find(word)?;
        from = at + word.len();
        Some(at)
    })
    .filter(move |&at| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let ends_in_word = word.ends_with(is_word_char);
        let joins_next = ends_in_word && after.is_some_and(is_word_char);
        !joins_next && !before.is_some_and(is_word_char)
    })
}

/// Whether the word stands alone somewhere in the text.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    word_places(text, word).next().is_some()
}

/// The text from its first `{` to the `}` that closes it; nothing if a `;` comes first.
pub(crate) fn braced(text: &str) -> Option<&str> {
    if !text.starts_with('{') {
        return None;
    }
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[..=at]);
        }
    }
    None
}

/// Blanks what follows `#[cfg(test)]` (or a cfg with `test` in an `all`), up to the end of its item.
fn blank_tests(code: &str) -> String {
    let mut left = code.to_string();
    let mut from = 0;
    while let Some(at) = left[from..].find("#[cfg(").map(|at| from + at) {
        from = at + 1;
        let Some(close) = left[at..].find(']') else { break };
        let condition = &left[at..at + close];
        if !has_word(condition, "test") || condition.contains("not(") {
            continue;
        }
        let item = &left[at..];
        let Some(open) = item.find(['{', ';']) else { break };
        let end = open + braced(&item[open..]).map_or(1, str::len);
        let blank: String = item[..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        left.replace_range(at..at + end, &blank);
    }
    left
}

/// What the scanner is inside of.
enum Inside {
    Code,
    LineComment,
    BlockComment(usize),
    Text,
    RawText(usize),
}

fn blank_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = Inside::Code;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (taken, keep, next) = step(&inside, rest, first, out.chars().next_back());
        let (token, after) = rest.split_at(taken);
        out.extend(token.chars().map(|c| if keep || c == '\n' { c } else { ' ' }));
        inside = next.unwrap_or(inside);
        rest = after;
    }
    out
}

/// How many bytes the next token has, whether it is code, and what comes after it.
fn step(inside: &Inside, rest: &str, first: char, before: Option<char>) -> (usize, bool, Option<Inside>) {
    match inside {
        Inside::Code => code_step(rest, first, before),
        Inside::LineComment if first == '\n' => (1, true, Some(Inside::Code)),
        Inside::BlockComment(depth) if rest.starts_with("*/") => {
            let outer = if *depth == 1 { Inside::Code } else { Inside::BlockComment(depth - 1) };
            (2, false, Some(outer))
        }
        Inside::BlockComment(depth) if rest.starts_with("/*") => {
            (2, false, Some(Inside::BlockComment(depth + 1)))
        }
        Inside::Text if first == '\\' => {
            (1 + rest[1..].chars().next().map_or(0, char::len_utf8), false, None)
        }
        Inside::Text if first == '"' => (1, true, Some(Inside::Code)),
        Inside::RawText(hashes) if first == '"' && rest[1..].starts_with(&"#".repeat(*hashes)) => {
            (1 + hashes, true, Some(Inside::Code))
        }
        _ => (first.len_utf8(), false, None),
    }
}

fn code_step(rest: &str, first: char, before: Option<char>) -> (usize, bool, Option<Inside>) {
    let starts_word = !before.is_some_and(is_word_char);
    if rest.starts_with("//") {
        return (2, false, Some(Inside::LineComment));
    }
    if rest.starts_with("/*") {
        return (2, false, Some(Inside::BlockComment(1)));
    }
    if first == '"' {
        return (1, true, Some(Inside::Text));
    }
    if starts_word && let Some((length, hashes)) = raw_string_start(rest) {
        return (length, true, Some(Inside::RawText(hashes)));
    }
    match char_literal(rest) {
        Some(length) => (length, false, None),
        None => (first.len_utf8(), true, None),
    }
}

/// `r"`, `r#"`, `br##"` …: how long the start is and how many hashes the end needs.
fn raw_string_start(rest: &str) -> Option<(usize, usize)> {
    let after =
        rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
    after[hashes..].starts_with('"').then(|| (rest.len() - after.len() + hashes + 1, hashes))
}

/// The length of a character literal; a lifetime is none.
fn char_literal(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    if first == '\\' {
        let end = inner.char_indices().skip(2).find(|&(_, c)| c == '\'')?.0;
        return Some(1 + end + 1);
    }
    inner[first.len_utf8()..].starts_with('\'').then(|| 1 + first.len_utf8() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("src/x.rs".into(), text.into())
    }

    #[test]
    fn comments_strings_and_tests_are_not_code() {
        let text = "use a; // unsafe\n/* unsafe /* unsafe */ unsafe */ let c = '\"'; let s = \"unsafe \\\" unsafe\";\n\
            let r = r#\"unsafe \" unsafe\"#; fn f<'a>(x: &'a str) {}\n#[cfg(test)]\nmod tests {\n  unsafe {}\n}\nlet last;\n";
        let source = source(text);
        assert!(!has_word(&source.production, "unsafe"), "{}", source.production);
        assert!(has_word(&source.code, "unsafe") && has_word(&source.production, "last"));
        assert_eq!(source.production.lines().count(), text.lines().count());
        assert_eq!(source.text_lines_without_tests(), 4);
    }

    #[test]
    fn cfg_not_test_is_code() {
        let source = source(
            "#[cfg(not(test))]\nmod a { unsafe {} }\n#[cfg(all(test, unix))]\nmod b;\nunsafe fn c() {}",
        );
        assert_eq!(word_places(&source.production, "unsafe").count(), 2);
    }

    #[test]
    fn functions_and_their_lines() {
        let source =
            source("trait T { fn none(); }\nfn two(a: u8) -> u8 {\n    // why\n    a;\n\n    a\n}\n");
        assert_eq!(source.functions(), [Function { name: "two".into(), at: 2, lines: 2 }]);
    }

    #[test]
    fn attributes() {
        let source =
            source("#![allow(a)]\n#[cfg_attr(x, allow(b))]\n#[expect(c, reason = \"d\")]\nallow(e);\n");
        let found: Vec<_> = source.attributes_named(&["allow", "expect"]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found.iter().filter(|(_, text)| text.contains("reason")).count(), 1);
    }
}
