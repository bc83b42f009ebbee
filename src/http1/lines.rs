//! One field line at a time: where its name and value are (RFC 9112 §5), for requests and responses alike.
//!
//! Strict, and the same whoever asks: a line ends in CRLF, a name is a token with its colon behind it, a value holds no
//! control octet, nothing is folded. Each octet is looked at once; values, most of a head, eight octets at a time. What
//! a field means is not decided here. httparse is the oracle of the tests.

use super::grammar::{is_tchar, is_value_octet};
use super::head::{Field, Span};
use super::reject::Reject;

/// What stands at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// A field, and the offset of the next line.
    Field(Field, usize),
    /// The empty line that ends the section; the offset behind it.
    End(usize),
    /// The line is not all there.
    Partial,
}

/// The field line that begins at `start`.
///
/// # Errors
/// The first octet that may not stand where it stands.
#[inline]
pub(super) fn field_line(bytes: &[u8], start: usize) -> Result<Line, Reject> {
    let colon = name_end(bytes, start);
    match bytes.get(colon) {
        Some(b':') if colon > start => {}
        None => return Ok(Line::Partial),
        Some(&octet) => return no_name(bytes, start, octet),
    }
    let mut value = colon + 1;
    while let Some(b' ' | b'\t') = bytes.get(value) {
        value += 1;
    }
    let end = value_end(bytes, value);
    match bytes.get(end..) {
        Some([b'\r', b'\n', ..]) => {
            let field =
                Field { name: Span::new(start, colon), value: Span::new(value, trimmed(bytes, value, end)) };
            Ok(Line::Field(field, end + 2))
        }
        None | Some([] | [b'\r']) => Ok(Line::Partial),
        Some([b'\r' | b'\n', ..]) => Err(Reject::BareLineBreak),
        Some(_) => Err(Reject::FieldValue),
    }
}

/// A line that does not begin with a name and its colon: the empty line, or a violation.
#[inline]
fn no_name(bytes: &[u8], start: usize, octet: u8) -> Result<Line, Reject> {
    match &bytes[start..] {
        [b'\r', b'\n', ..] => Ok(Line::End(start + 2)),
        [b'\r'] => Ok(Line::Partial),
        [b'\r' | b'\n', ..] => Err(Reject::BareLineBreak),
        // RFC 9112 §5.2, §2.2: no folded line, no whitespace before the first field.
        [b' ' | b'\t', ..] => Err(Reject::FoldedLine),
        _ if octet == b'\n' => Err(Reject::BareLineBreak),
        _ => Err(Reject::FieldName),
    }
}

#[inline]
fn name_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < bytes.len() && is_tchar(bytes[at]) {
        at += 1;
    }
    at
}

/// The offset of the first octet from `start` on that a field value may not hold (RFC 9110 §5.5).
#[inline]
fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(word) = bytes[at..].first_chunk::<8>() {
        let hits = suspects(u64::from_le_bytes(*word));
        if hits == 0 {
            at += 8;
            continue;
        }
        at += hits.trailing_zeros() as usize / 8;
        if !is_value_octet(bytes[at]) {
            return at;
        }
        at += 1;
    }
    while at < bytes.len() && is_value_octet(bytes[at]) {
        at += 1;
    }
    at
}

/// The lowest bit set marks the first octet, in memory order, that is below 0x20 or is 0x7f: a control octet, or HTAB.
/// Bits above the lowest one may be wrong: a borrow runs into the octets behind a hit, never before it.
#[inline]
const fn suspects(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = word ^ (ONES * 0x7f);
    let is_delete = delete.wrapping_sub(ONES) & !delete;
    (below_space | is_delete) & TOPS
}

/// The end of a value without the whitespace behind it (RFC 9112 §5.1).
#[inline]
fn trimmed(bytes: &[u8], start: usize, mut end: usize) -> usize {
    while end > start && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §5.5: every octet, at every place of a value, with every kind of neighbour.
    #[test]
    fn a_value_ends_at_the_first_octet_it_may_not_hold() {
        for octet in 0..=255u8 {
            for filler in [b'a', b'\t', 0xff, 0x80, b' ', 0x7e] {
                for place in 0..20 {
                    let mut value = [filler; 20];
                    value[place] = octet;
                    let expected = value.iter().position(|&octet| !is_value_octet(octet)).unwrap_or(20);
                    assert_eq!(value_end(&value, 0), expected, "{octet:#x} at {place} among {filler:#x}");
                }
            }
        }
    }

    #[test]
    fn lines_and_their_beginnings() {
        let line = b"Name: \tvalue here \t\r\nX";
        let Ok(Line::Field(field, next)) = field_line(line, 0) else { panic!("a field") };
        assert_eq!((field.name.of(line), field.value.of(line), next), (&b"Name"[..], &b"value here"[..], 21));
        for len in 0..21 {
            assert_eq!(field_line(&line[..len], 0), Ok(Line::Partial), "{len}");
        }
        assert_eq!(field_line(b"ab\r\n", 2), Ok(Line::End(4)));
        assert_eq!(field_line(b"\r", 0), Ok(Line::Partial));
        let empty = field_line(b"A:\r\n", 0);
        assert_eq!(empty, Ok(Line::Field(Field { name: Span::new(0, 1), value: Span::new(2, 2) }, 4)));
    }

    #[test]
    fn violations_have_their_reasons() {
        let cases: [(&[u8], Reject); 10] = [
            (b"\n", Reject::BareLineBreak),
            (b"\rA: b", Reject::BareLineBreak),
            (b"A: b\n", Reject::BareLineBreak),
            (b"A: b\rc\r\n", Reject::BareLineBreak),
            (b"A\n", Reject::BareLineBreak),
            (b" A: b\r\n", Reject::FoldedLine),
            (b"\tb\r\n", Reject::FoldedLine),
            (b": b\r\n", Reject::FieldName),
            (b"A : b\r\n", Reject::FieldName),
            (b"A: b\x7f\r\n", Reject::FieldValue),
        ];
        for (line, reject) in cases {
            assert_eq!(field_line(line, 0), Err(reject), "{line:?}");
        }
    }
}
