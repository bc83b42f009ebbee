//! Fields set by the operator for files whose name matches a pattern: `Cache-Control`, CORS, security fields.
//!
//! Patterns are matched by a bit set in one pass, so no pattern and no name costs more than its length.
//! Neighbours: [`mod@super::plan`] applies the rules to answers that carry a file.

use http::{HeaderName, HeaderValue};
use std::fmt;

/// A glob over a name beneath the root.
///
/// `?` is one character and `*` any number, both without `/`; `**` any number with `/`. A pattern without `/` is
/// matched against the last segment, so `*.css` means every such file.
#[derive(Debug, Clone)]
pub struct Pattern {
    tokens: Vec<Token>,
    last_segment_only: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Exactly(char),
    AnyOne,
    Any,
    AnyWithSlash,
}

/// Fields for the names that match.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Pattern,
    fields: Vec<(HeaderName, HeaderValue)>,
}

/// Rules in order; of two that set the same field the later wins.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// Why a rule is no rule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Empty, or more than 120 tokens.
    Pattern(String),
    /// Not a field name.
    Name(String),
    /// Not a field value: RFC 9110 §5.5 (a line break would split the response).
    Value(String),
    /// A field that framing or the file itself decides.
    Reserved(String),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuleError::Pattern(pattern) => {
                write!(f, "pattern {pattern:?} is empty or longer than {TOKENS_MAX}")
            }
            RuleError::Name(name) => write!(f, "{name:?} is not a field name"),
            RuleError::Value(value) => write!(f, "{value:?} is not a field value"),
            RuleError::Reserved(name) => write!(f, "{name} is set by the server and cannot be set by a rule"),
        }
    }
}

impl std::error::Error for RuleError {}

impl Pattern {
    /// Reads a pattern; a leading `/` is allowed and means the root.
    ///
    /// # Errors
    /// [`RuleError::Pattern`].
    pub fn new(text: &str) -> Result<Pattern, RuleError> {
        let mut tokens = Vec::new();
        let mut characters = text.strip_prefix('/').unwrap_or(text).chars().peekable();
        while let Some(character) = characters.next() {
            let token = match character {
                '?' => Token::AnyOne,
                '*' if characters.next_if_eq(&'*').is_some() => {
                    while characters.next_if_eq(&'*').is_some() {}
                    Token::AnyWithSlash
                }
                '*' => Token::Any,
                other => Token::Exactly(other),
            };
            tokens.push(token);
        }
        if tokens.is_empty() || tokens.len() > TOKENS_MAX {
            return Err(RuleError::Pattern(text.to_owned()));
        }
        let last_segment_only = !text.contains('/') && !tokens.contains(&Token::AnyWithSlash);
        Ok(Pattern { tokens, last_segment_only })
    }

    /// Does it match this name beneath the root (no leading slash)?
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = if self.last_segment_only { name.rsplit('/').next().unwrap_or_default() } else { name };
        let mut states = self.closure(1);
        for character in name.chars() {
            let mut next = 0_u128;
            for (index, token) in self.tokens.iter().enumerate() {
                if states & (1 << index) != 0 {
                    next |= token.step(character) << index;
                }
            }
            states = self.closure(next);
            if states == 0 {
                return false;
            }
        }
        states & (1 << self.tokens.len()) != 0
    }

    /// A star may match nothing: where one can begin, what follows it can begin too.
    fn closure(&self, mut states: u128) -> u128 {
        for (index, token) in self.tokens.iter().enumerate() {
            if states & (1 << index) != 0 && matches!(token, Token::Any | Token::AnyWithSlash) {
                states |= 1 << (index + 1);
            }
        }
        states
    }
}

impl Token {
    /// The states after one character, seen from this one: bit 0 stays, bit 1 goes on.
    fn step(self, character: char) -> u128 {
        match self {
            Token::Exactly(wanted) => u128::from(wanted == character) << 1,
            Token::AnyOne => u128::from(character != '/') << 1,
            Token::Any => u128::from(character != '/'),
            Token::AnyWithSlash => 1,
        }
    }
}

impl Rules {
    /// Adds a rule behind the others.
    ///
    /// # Errors
    /// A pattern or field that cannot be used; nothing is added then.
    pub fn add(&mut self, pattern: &str, fields: &[(&str, &str)]) -> Result<(), RuleError> {
        let pattern = Pattern::new(pattern)?;
        let fields = fields.iter().map(|(name, value)| field(name, value)).collect::<Result<_, _>>()?;
        self.rules.push(Rule { pattern, fields });
        Ok(())
    }

    /// The fields for a name, in order of the rules; a field may come twice, the last one counts.
    pub fn fields_for<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let matching = self.rules.iter().filter(move |rule| rule.pattern.matches(name));
        let fields = matching.flat_map(|rule| &rule.fields);
        fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
    }
}

fn field(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), RuleError> {
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| RuleError::Name(name.to_owned()))?;
    if RESERVED.contains(&parsed.as_str()) {
        return Err(RuleError::Reserved(parsed.as_str().to_owned()));
    }
    let is_text = value.bytes().all(|octet| octet == b'\t' || (0x20..0x7f).contains(&octet));
    let value =
        HeaderValue::from_str(value).ok().filter(|_| is_text).ok_or(RuleError::Value(value.to_owned()))?;
    Ok((parsed, value))
}

/// What framing, negotiation and validators decide.
const RESERVED: [&str; 16] = [
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "trailer",
    "te",
    "date",
    "host",
    "content-range",
    "content-encoding",
    "accept-ranges",
    "etag",
    "last-modified",
    "vary",
    "location",
];

/// One bit a token and one for the end fit a `u128`.
const TOKENS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns() {
        let table = [
            ("*.css", "a.css", true),
            ("*.css", "deep/er/a.css", true),
            ("*.css", "a.css.map", false),
            ("assets/*", "assets/a", true),
            ("assets/*", "assets/a/b", false),
            ("assets/**", "assets/a/b", true),
            ("/assets/**", "assets/a/b", true),
            ("assets/**", "other/assets/a", false),
            ("**/*.js", "a/b/c.js", true),
            ("**", "anything/at/all", true),
            ("?.txt", "a.txt", true),
            ("?.txt", "ab.txt", false),
            ("a/?/b", "a///b", false),
            ("index.html", "sub/index.html", true),
            ("/index.html", "sub/index.html", false),
            ("*", "", true),
            ("é*", "étude", true),
        ];
        for (pattern, name, wanted) in table {
            assert_eq!(Pattern::new(pattern).unwrap().matches(name), wanted, "{pattern} {name}");
        }
        assert!(Pattern::new("").is_err());
        assert!(Pattern::new(&"a".repeat(121)).is_err());
        let stars = Pattern::new(&"*a".repeat(60)).unwrap();
        assert!(stars.matches(&"a".repeat(4000)));
        assert!(!stars.matches(&format!("{}b", "a".repeat(4000))));
    }

    #[test]
    fn rules_set_fields_and_refuse_what_would_split_or_lie() {
        let mut rules = Rules::default();
        rules.add("*", &[("Cache-Control", "no-cache")]).unwrap();
        rules.add("assets/**", &[("cache-control", "max-age=31536000, immutable"), ("X-A", "b")]).unwrap();
        let fields: Vec<_> = rules.fields_for("assets/app.js").collect();
        assert_eq!(fields.last(), Some(&("x-a", "b")));
        assert_eq!(fields.len(), 3);
        assert_eq!(rules.fields_for("page.html").count(), 1);
        let bad = |name, value| Rules::default().add("*", &[(name, value)]).unwrap_err();
        assert!(matches!(bad("X-A", "b\r\nX-B: c"), RuleError::Value(_)));
        assert!(matches!(bad("X-A", "é"), RuleError::Value(_)));
        assert!(matches!(bad("X A", "b"), RuleError::Name(_)));
        assert!(matches!(bad("Content-Length", "1"), RuleError::Reserved(_)));
    }

    /// A plain recursive reading of the same pattern.
    fn model(tokens: &[Token], name: &[char]) -> bool {
        match (tokens, name) {
            ([], []) => true,
            ([], _) => false,
            ([Token::Any, rest @ ..], name) => {
                model(rest, name)
                    || matches!(name, [first, more @ ..] if *first != '/' && model(tokens, more))
            }
            ([Token::AnyWithSlash, rest @ ..], name) => {
                model(rest, name) || matches!(name, [_, more @ ..] if model(tokens, more))
            }
            ([Token::AnyOne, rest @ ..], [first, more @ ..]) => *first != '/' && model(rest, more),
            ([Token::Exactly(wanted), rest @ ..], [first, more @ ..]) => wanted == first && model(rest, more),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn the_bit_set_agrees_with_the_model(pattern in "[ab/?*]{1,8}", name in "[ab/]{0,8}") {
            let Ok(mut pattern) = Pattern::new(&pattern) else { return Ok(()) };
            pattern.last_segment_only = false;
            let name_characters: Vec<char> = name.chars().collect();
            prop_assert_eq!(pattern.matches(&name), model(&pattern.tokens, &name_characters));
        }
    }
}
