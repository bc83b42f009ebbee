//! Bytes to `HeadIndex`: the request line, the field lines one by one (`lines.rs`), then what they mean together.
//!
//! `parse` takes a buffer from its first byte and is meant for the common case that a whole head has arrived.
//! `parse_resumable` adds `scan` for heads that arrive in pieces: one attempt to parse, then a linear search for the
//! end, then one more parse. The target's grammar is in `target.rs`.

use super::framing::{BodyKind, FramingScan};
use super::grammar::is_tchar;
use super::head::{HeadIndex, Method, Span, TargetForm, Version};
use super::lines::field_lines;
use super::reject::Reject;
use super::scan::HeadScan;
use super::target::{parse_path, parse_target};
use crate::limits::Limits;

/// The outcome for bytes that are not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The index describes a head of `head_len` bytes; the content or the next request follows.
    Complete {
        /// Bytes from the start of the buffer to the end of the head, an empty line before it included.
        head_len: usize,
    },
    /// More bytes are needed; the index means nothing.
    Partial,
}

/// Parses the head at the start of `bytes`.
///
/// # Errors
/// Every violation of RFC 9112 §2 to §6 and RFC 9110 §5 in the head, and every limit it exceeds.
pub fn parse(bytes: &[u8], index: &mut HeadIndex, limits: &Limits) -> Result<Parsed, Reject> {
    // RFC 9112 §2.2: ignore at least one empty line before the request line. One, so that a flood ends.
    let start = match bytes {
        [b'\r', b'\n', b'\r', ..] => return Err(Reject::LeadingEmptyLines),
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(Parsed::Partial),
        [b'\r' | b'\n', ..] => return Err(Reject::BareLineBreak),
        _ => 0,
    };
    // A head beyond its limit is not worth parsing to its end, and offsets stay within 16 bits.
    let window = bytes.len().min(start + limits.head_bytes_max);
    let truncated = window < bytes.len();
    match parse_window(&bytes[..window], start, index, limits)? {
        Parsed::Partial if truncated => Err(Reject::HeadTooLarge),
        parsed => Ok(parsed),
    }
}

/// As `parse`, for a head that may arrive in pieces: `bytes` is the same buffer, grown; `scan` remembers how far it
/// was seen. The total work is linear in the length of the head. `scan` is ready for the next head after `Complete`.
///
/// # Errors
/// As `parse`; a violation is reported with the first byte that no valid head could contain there.
pub fn parse_resumable(
    scan: &mut HeadScan,
    bytes: &[u8],
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<Parsed, Reject> {
    if scan.is_fresh() {
        let parsed = parse(bytes, index, limits)?;
        if parsed != Parsed::Partial {
            return Ok(parsed);
        }
    }
    let line_was_complete = scan.line_is_complete();
    let end = scan.find_end(bytes, limits)?;
    if !line_was_complete && scan.line_is_complete() {
        // Once: a line that can never be accepted is refused before its fields have come.
        parse_request_line(bytes, scan.head_start(), index, limits)?;
    }
    if end.is_none() {
        return Ok(Parsed::Partial);
    }
    *scan = HeadScan::new();
    parse(bytes, index, limits)
}

#[inline]
fn parse_window(
    bytes: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<Parsed, Reject> {
    let fields_start = match parse_usual_line(bytes, start, index, limits) {
        Some(fields_start) => fields_start,
        None => match parse_request_line(bytes, start, index, limits)? {
            Some(fields_start) => fields_start,
            None => return Ok(Parsed::Partial),
        },
    };
    parse_fields(bytes, fields_start, index, limits)
}

/// The line that nearly all requests have: a frequent method, origin-form, HTTP/1.1. None says nothing about the line:
/// `parse_request_line` then decides, and decides alike about what is taken here.
#[inline]
fn parse_usual_line(bytes: &[u8], start: usize, index: &mut HeadIndex, limits: &Limits) -> Option<usize> {
    let (method, method_len) = match &bytes[start..] {
        [b'G', b'E', b'T', b' ', b'/', ..] => (Method::Get, 3),
        [b'P', b'O', b'S', b'T', b' ', b'/', ..] => (Method::Post, 4),
        _ => return None,
    };
    let target_start = start + method_len + 1;
    let target_end = parse_path(bytes, target_start, index).ok()?;
    let line_end = target_end + " HTTP/1.1".len();
    if bytes.get(target_end..line_end + 2) != Some(b" HTTP/1.1\r\n")
        || line_end - start > limits.request_line_bytes_max
        || method_len > limits.method_bytes_max
    {
        return None;
    }
    index.method = method;
    index.version = Version::Http11;
    index.form = TargetForm::Origin;
    index.method_span = Span::new(start, start + method_len);
    index.target = Span::new(target_start, target_end);
    index.host = None;
    Some(line_end + 2)
}

/// RFC 9112 §3: method SP request-target SP HTTP-version CRLF. Returns where the fields start.
#[inline]
fn parse_request_line(
    bytes: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<Option<usize>, Reject> {
    let window = &bytes[..bytes.len().min(start + limits.request_line_bytes_max + 2)];
    let Some(line_feed) = memchr::memchr(b'\n', &window[start..]).map(|at| start + at) else {
        if window.len() < start + limits.request_line_bytes_max + 2 {
            return Ok(None);
        }
        return Err(Reject::RequestLineTooLong);
    };
    // RFC 9112 §2.2: LF alone could end a line; a reader that does not take it sees another message. Refused.
    if line_feed == start || bytes[line_feed - 1] != b'\r' {
        return Err(Reject::BareLineBreak);
    }
    let end = line_feed - 1;
    let line = &bytes[..end];
    let method_end =
        start + line[start..].iter().position(|&octet| !is_tchar(octet)).ok_or(Reject::RequestLine)?;
    if method_end == start || line[method_end] != b' ' {
        return Err(if line[method_end] == b' ' { Reject::RequestLine } else { Reject::Method });
    }
    if method_end - start > limits.method_bytes_max {
        return Err(Reject::MethodTooLong);
    }
    let target_start = method_end + 1;
    index.version = parse_version(&line[target_start..])?;
    // SP and eight octets of version are there, or the version would have been refused.
    let target_end = end - 9;
    if target_end <= target_start {
        return Err(Reject::RequestLine);
    }
    index.method_span = Span::new(start, method_end);
    index.method = Method::from_bytes(&line[start..method_end]);
    index.target = Span::new(target_start, target_end);
    parse_target(&line[..target_end], target_start, index, limits)?;
    Ok(Some(line_feed + 1))
}

/// RFC 9112 §2.3: `HTTP/` DIGIT `.` DIGIT at the end of the line, in upper case, after one SP. A minor version above
/// 1 is answered as 1.1 (RFC 9110 §2.5); another major version is 505 (RFC 9110 §15.6.6).
#[inline]
fn parse_version(rest: &[u8]) -> Result<Version, Reject> {
    let Some((_, tail)) = rest.split_last_chunk::<9>() else {
        return Err(Reject::RequestLine);
    };
    match tail {
        b" HTTP/1.1" => Ok(Version::Http11),
        b" HTTP/1.0" => Ok(Version::Http10),
        [b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(Reject::VersionUnsupported)
            }
        }
        _ => Err(Reject::Version),
    }
}

/// The field lines; once the last is there, what framing finds in them.
#[inline]
fn parse_fields(
    bytes: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<Parsed, Reject> {
    index.fields.clear();
    let Some(head_len) = field_lines(bytes, start, limits.fields_max, &mut index.fields)? else {
        return Ok(Parsed::Partial);
    };
    let mut scan = FramingScan::default();
    for field in &index.fields {
        scan.field(field.name.of(bytes), field.value.of(bytes), field.value)?;
    }
    finish(bytes, index, &mut scan, limits)?;
    Ok(Parsed::Complete { head_len })
}

/// The rules that need the whole head: Host, framing, methods that end the connection.
#[inline]
fn finish(
    bytes: &[u8],
    index: &mut HeadIndex,
    scan: &mut FramingScan,
    limits: &Limits,
) -> Result<(), Reject> {
    match scan.host {
        Some(span) => {
            index.known_host.check(bytes, span, limits)?;
            // RFC 9112 §3.2.2: the authority of the target replaces Host, which must be valid all the same.
            if index.host.is_none() {
                index.host = Some(span);
            }
        }
        // RFC 9112 §3.2: an HTTP/1.1 request without Host is 400, whatever its target.
        None if index.version == Version::Http11 => return Err(Reject::HostMissing),
        None => {}
    }
    index.framing = scan.finish(index.version)?;
    index.upgrade = scan.upgrade;
    if index.form == TargetForm::Authority {
        // RFC 9110 §9.3.6: a CONNECT has no content, so a length would only say where a reader that believes it sees
        // the tunnel begin.
        if index.framing.body != BodyKind::None {
            return Err(Reject::ConnectContent);
        }
        index.framing.asks_tunnel = true;
    }
    Ok(())
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
