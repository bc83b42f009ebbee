//! From the path of a request to a name beneath the root: decoded once, refused when in doubt.
//!
//! The strict choice throughout: a client of good will sends none of what is refused here (URLs are normalised
//! before they are sent, RFC 3986 §6.2.2.3), so nothing is repaired. That the result stays beneath the root is
//! kept a second time by the kernel (`shards::fs`). Reads no file.

use std::fmt;

/// A name beneath the root: plain segments joined by `/`; no empty, dot, hidden or odd segment, no control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SafePath {
    relative: String,
    ends_with_slash: bool,
}

impl SafePath {
    /// The root itself.
    #[must_use]
    pub fn root() -> SafePath {
        SafePath { relative: String::new(), ends_with_slash: true }
    }

    /// The name without leading or trailing slash; empty for the root itself.
    #[must_use]
    pub fn relative(&self) -> &str {
        &self.relative
    }

    /// The request named a folder (the root always does).
    #[must_use]
    pub fn ends_with_slash(&self) -> bool {
        self.ends_with_slash
    }
}

/// Why a path names nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// An octet that no URI path has, or `%` without two hex digits (RFC 3986 §2.1, §3.3).
    Malformed,
    /// `.`, `..` or an empty segment, encoded or not.
    NotNormal,
    /// An encoded slash or backslash: what it separates depends on who decodes.
    EncodedSeparator,
    /// An encoded control, or octets that are not UTF-8 (overlong forms among them).
    Undecodable,
    /// A name we do not show: a dot file, a backup copy, or one that ends in a dot or space.
    Hidden,
    /// Longer or deeper than any name.
    TooLong,
}

impl Refusal {
    /// 400 where the path itself is at fault, 404 where it merely names nothing.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Refusal::Hidden | Refusal::TooLong => 404,
            _ => 400,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Malformed => "malformed path",
            Refusal::NotNormal => "path with dot or empty segments",
            Refusal::EncodedSeparator => "encoded separator in path",
            Refusal::Undecodable => "path with control or invalid octets",
            Refusal::Hidden => "hidden name",
            Refusal::TooLong => "path too long",
        })
    }
}

/// Turns the undecoded path of a request target, without query, into a name beneath the root.
///
/// # Errors
/// The first reason to refuse it.
pub fn safe_path(raw: &str, show_hidden: bool) -> Result<SafePath, Refusal> {
    let Some(rest) = raw.strip_prefix('/') else { return Err(Refusal::Malformed) };
    if raw.len() > PATH_BYTES_MAX {
        return Err(Refusal::TooLong);
    }
    let ends_with_slash = rest.is_empty() || rest.ends_with('/');
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let mut relative = String::with_capacity(rest.len());
    if rest.is_empty() {
        // "/" alone; "//" had its last slash taken and is an empty segment.
        return if raw == "/" { Ok(SafePath { relative, ends_with_slash }) } else { Err(Refusal::NotNormal) };
    }
    for (depth, segment) in rest.split('/').enumerate() {
        if depth >= SEGMENTS_MAX {
            return Err(Refusal::TooLong);
        }
        let name = decode(segment)?;
        check_name(&name)?;
        let is_well_known = depth == 0 && name == WELL_KNOWN;
        if !show_hidden && !is_well_known && is_hidden(&name) {
            return Err(Refusal::Hidden);
        }
        if depth > 0 {
            relative.push('/');
        }
        relative.push_str(&name);
    }
    Ok(SafePath { relative, ends_with_slash })
}

/// Whether a directory entry can be named by a request at all: what a listing may show.
#[must_use]
pub fn is_servable(name: &str, show_hidden: bool) -> bool {
    let plain = !name.contains(['/', '\\']) && !name.chars().any(char::is_control);
    plain && check_name(name).is_ok() && (show_hidden || !is_hidden(name))
}

/// Decodes one segment exactly once; `%25` gives a `%` that stays one.
fn decode(segment: &str) -> Result<String, Refusal> {
    let octets = segment.as_bytes();
    let mut decoded = Vec::with_capacity(octets.len());
    let mut at = 0;
    while let Some(octet) = octets.get(at) {
        if *octet == b'%' {
            let (Some(high), Some(low)) = (hex(octets.get(at + 1)), hex(octets.get(at + 2))) else {
                return Err(Refusal::Malformed);
            };
            match high * 16 + low {
                b'/' | b'\\' => return Err(Refusal::EncodedSeparator),
                octet => decoded.push(octet),
            }
            at += 3;
        } else if is_pchar(*octet) {
            decoded.push(*octet);
            at += 1;
        } else {
            return Err(Refusal::Malformed);
        }
    }
    let decoded = String::from_utf8(decoded).map_err(|_| Refusal::Undecodable)?;
    if decoded.chars().any(char::is_control) { Err(Refusal::Undecodable) } else { Ok(decoded) }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    // `..;` is the dot segment of servers that cut parameters off first.
    let before_parameters = name.split(';').next().unwrap_or_default();
    if matches!(name, "" | "." | "..") || matches!(before_parameters, "." | "..") {
        return Err(Refusal::NotNormal);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Refusal::TooLong);
    }
    // Other systems drop these at the end: `secret.txt.` must not be another spelling of a guarded name.
    if name.ends_with(['.', ' ']) { Err(Refusal::Hidden) } else { Ok(()) }
}

/// Dot files and the copies that editors and operators leave behind.
fn is_hidden(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    name.starts_with(['.', '#'])
        || name.ends_with('~')
        || BACKUP_SUFFIXES.iter().any(|end| lower.ends_with(end))
}

/// RFC 3986 §3.3, without `%`.
fn is_pchar(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&octet)
}

fn hex(octet: Option<&u8>) -> Option<u8> {
    char::from(*octet?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// RFC 8615: public by definition, though it starts with a dot. Only as the first segment.
const WELL_KNOWN: &str = ".well-known";

/// Endings of backup and swap copies, lower case.
const BACKUP_SUFFIXES: [&str; 8] = [".bak", ".old", ".orig", ".rej", ".save", ".swp", ".swo", ".backup"];

/// PATH_MAX of Linux; decoding never lengthens.
const PATH_BYTES_MAX: usize = 4096;

/// NAME_MAX of Linux.
const NAME_BYTES_MAX: usize = 255;

/// Deeper trees are not served; the kernel walks each segment.
const SEGMENTS_MAX: usize = 64;

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
