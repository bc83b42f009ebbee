//! Response fields as bytes that are ready to be sent.
//!
//! A field is checked once, when it is set; a value with CR, LF or NUL is a typed error there, so that response
//! splitting cannot reach the wire (RFC 9110 §5.5). Framing fields are the codec's own and cannot be set here.

use core::fmt;

use super::classes::{is_name, is_value};
use super::grammar::trim_ows;

/// Field lines, each `Name: value` CRLF. Order is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldLines {
    lines: Vec<u8>,
    has_date: bool,
    has_server: bool,
}

/// Why a field was not taken; nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldError {
    /// The name is no token (RFC 9110 §5.1).
    Name,
    /// The value holds CR, LF, NUL or another control octet (RFC 9110 §5.5).
    Value,
    /// Content-Length, Transfer-Encoding, Connection and Keep-Alive are set by the codec.
    Framing,
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            FieldError::Name => "a field name must be a token",
            FieldError::Value => "a field value must not hold control characters",
            FieldError::Framing => "framing fields are set by the server itself",
        })
    }
}

impl core::error::Error for FieldError {}

impl FieldLines {
    /// No fields; allocates nothing.
    pub const fn new() -> FieldLines {
        FieldLines { lines: Vec::new(), has_date: false, has_server: false }
    }

    /// Replaces all lines of this name by one.
    ///
    /// # Errors
    /// If the name or the value may not be sent.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FieldError> {
        let value = check(name, value.as_ref())?;
        self.remove(name);
        self.push(name, value);
        Ok(())
    }

    /// As `set` for `Content-Type`, whose name needs no check.
    ///
    /// # Errors
    /// If the value may not be sent.
    pub fn set_content_type(&mut self, value: &str) -> Result<(), FieldError> {
        const NAME: &str = "Content-Type";
        let value = check_value(value.as_bytes())?;
        self.remove(NAME);
        self.push(NAME, value);
        Ok(())
    }

    /// Adds a line and keeps the others of this name (Set-Cookie, Link, Vary).
    ///
    /// # Errors
    /// If the name or the value may not be sent.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FieldError> {
        let value = check(name, value.as_ref())?;
        self.push(name, value);
        Ok(())
    }

    /// Gives up the memory of an empty list.
    pub(crate) fn trim(&mut self) {
        if self.lines.is_empty() {
            self.lines = Vec::new();
        }
    }

    /// Removes all lines of this name; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        if self.lines.is_empty() {
            return false;
        }
        let mut removed = false;
        let mut at = 0;
        while let Some((line_name, line)) = line_at(&self.lines, at) {
            let end = at + line.len();
            if line_name.eq_ignore_ascii_case(name.as_bytes()) {
                self.lines.drain(at..end);
                removed = true;
            } else {
                at = end;
            }
        }
        if removed {
            self.note(name, false);
        }
        removed
    }

    /// The value of the first line of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter()
            .find(|(line_name, _)| line_name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// All lines in order: name, value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let (name, line) = line_at(&self.lines, at)?;
            at += line.len();
            Some((name, trim_ows(&line[name.len() + 1..line.len() - 2])))
        })
    }

    /// The encoded lines.
    pub fn as_bytes(&self) -> &[u8] {
        &self.lines
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Replaces all lines by those of another and keeps the memory.
    pub fn copy_from(&mut self, other: &FieldLines) {
        self.lines.clone_from(&other.lines);
        (self.has_date, self.has_server) = (other.has_date, other.has_server);
    }

    /// Removes all lines and keeps the memory.
    pub fn clear(&mut self) {
        self.lines.clear();
        (self.has_date, self.has_server) = (false, false);
    }

    /// Whether a Date line is here (a proxy passes on the one of the origin, RFC 9110 §6.6.1).
    pub(super) fn has_date(&self) -> bool {
        self.has_date
    }

    /// Whether a Server line is here.
    pub(super) fn has_server(&self) -> bool {
        self.has_server
    }

    #[inline]
    fn push(&mut self, name: &str, value: &[u8]) {
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
        self.note(name, true);
    }

    #[inline]
    fn note(&mut self, name: &str, present: bool) {
        if name.eq_ignore_ascii_case("date") {
            self.has_date = present;
        } else if name.eq_ignore_ascii_case("server") {
            self.has_server = present;
        }
    }
}

/// The name and the whole line at an offset where a line starts.
fn line_at(lines: &[u8], at: usize) -> Option<(&[u8], &[u8])> {
    let rest = lines.get(at..)?;
    let end = memchr::memchr(b'\n', rest)? + 1;
    let colon = memchr::memchr(b':', rest)?;
    Some((&rest[..colon], &rest[..end]))
}

/// The value without its surrounding whitespace, if name and value may be sent.
fn check<'v>(name: &str, value: &'v [u8]) -> Result<&'v [u8], FieldError> {
    if !is_field_name(name.as_bytes()) {
        return Err(FieldError::Name);
    }
    if is_framing_name(name) {
        return Err(FieldError::Framing);
    }
    check_value(value)
}

#[inline]
fn check_value(value: &[u8]) -> Result<&[u8], FieldError> {
    if is_field_value(value) { Ok(trim_ows(value)) } else { Err(FieldError::Value) }
}

/// Whether every octet may stand in a field value (RFC 9110 §5.5).
pub fn is_field_value(value: &[u8]) -> bool {
    is_value(value)
}

/// Whether every octet may stand in a field name and there is one (RFC 9110 §5.1).
pub fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && is_name(name)
}

fn is_framing_name(name: &str) -> bool {
    ["content-length", "transfer-encoding", "connection", "keep-alive"]
        .iter()
        .any(|framing| name.eq_ignore_ascii_case(framing))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §5.5: "field values containing CR, LF, or NUL characters are invalid and dangerous" (H6).
    #[test]
    fn response_splitting_is_refused_before_anything_changes() {
        let mut fields = FieldLines::new();
        for value in ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "\u{b}"] {
            assert_eq!(fields.set("Location", value), Err(FieldError::Value), "{value:?}");
        }
        for name in ["", "X Y", "X:", "X\r\nY", "é"] {
            assert_eq!(fields.append(name, "v"), Err(FieldError::Name), "{name:?}");
        }
        for name in ["Content-Length", "TRANSFER-encoding", "connection", "Keep-Alive"] {
            assert_eq!(fields.set(name, "1"), Err(FieldError::Framing), "{name:?}");
        }
        assert!(fields.is_empty());
    }

    #[test]
    fn set_replaces_and_append_adds_in_order() {
        let mut fields = FieldLines::new();
        fields.append("Vary", "a").unwrap();
        fields.append("X", " padded\t").unwrap();
        fields.append("vary", "b").unwrap();
        assert_eq!(fields.as_bytes(), b"Vary: a\r\nX: padded\r\nvary: b\r\n");
        fields.set("VARY", "").unwrap();
        assert_eq!(fields.as_bytes(), b"X: padded\r\nVARY: \r\n");
        assert_eq!(
            (fields.get("x"), fields.get("vary"), fields.get("y")),
            (Some(&b"padded"[..]), Some(&b""[..]), None)
        );
        assert!(fields.remove("x") && !fields.remove("x"));
        for content_type in ["text/css", "text/plain"] {
            fields.set_content_type(content_type).unwrap();
        }
        assert_eq!(fields.set_content_type("text/html\n"), Err(FieldError::Value));
        assert_eq!(fields.get("content-type"), Some(&b"text/plain"[..]));
        assert!(fields.remove("content-type"));
        fields.set("Date", "now").unwrap();
        assert!(fields.has_date() && fields.remove("date") && !fields.has_date());
        assert_eq!(fields.iter().count(), 1);
    }
}
