//! The field lines of a head: where each name and value is (RFC 9112 §5), for requests and responses alike.
//!
//! Strict, and the same whoever asks: a line ends in CRLF, a name is a token with its colon behind it, a value holds no
//! control octet, nothing is folded. Each octet is looked at once; letters and values, most of a head, eight octets at a
//! time. What a field means is not decided here. httparse is the oracle of the tests.

use super::grammar::{is_tchar, is_value_octet};
use super::head::{Field, Span};
use super::reject::Reject;

/// The lines from `start` to the empty line that ends them, at most `max`, appended to `fields`. The offset behind the
/// empty line, or None if it has not come; `fields` then means nothing.
///
/// # Errors
/// The first octet that may not stand where it stands; one line too many.
#[inline]
pub(super) fn field_lines(
    bytes: &[u8],
    start: usize,
    max: usize,
    fields: &mut Vec<Field>,
) -> Result<Option<usize>, Reject> {
    let mut at = start;
    loop {
        let colon = name_end(bytes, at);
        match bytes.get(colon) {
            Some(b':') if colon > at => {}
            Some(_) => return no_name(bytes, at, colon),
            None => return Ok(None),
        }
        if fields.len() == max {
            return Err(Reject::TooManyFields);
        }
        let mut value = colon + 1;
        while let Some(b' ' | b'\t') = bytes.get(value) {
            value += 1;
        }
        let end = value_end(bytes, value);
        match bytes[end..] {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Ok(None),
            [b'\r' | b'\n', ..] => return Err(Reject::BareLineBreak),
            _ => return Err(Reject::FieldValue),
        }
        fields
            .push(Field { name: Span::new(at, colon), value: Span::new(value, trimmed(bytes, value, end)) });
        at = end + 2;
    }
}

/// A line that does not begin with a name and its colon, but has another octet at `other`: the empty line, or a
/// violation.
#[inline]
fn no_name(bytes: &[u8], start: usize, other: usize) -> Result<Option<usize>, Reject> {
    match bytes[start..] {
        [b'\r', b'\n', ..] => Ok(Some(start + 2)),
        [b'\r'] => Ok(None),
        [b'\r' | b'\n', ..] => Err(Reject::BareLineBreak),
        // RFC 9112 §5.2, §2.2: no folded line, no whitespace before the first field.
        [b' ' | b'\t', ..] => Err(Reject::FoldedLine),
        _ if bytes[other] == b'\n' => Err(Reject::BareLineBreak),
        _ => Err(Reject::FieldName),
    }
}

/// The offset of the first octet from `start` on that is no tchar (RFC 9110 §5.6.2). Letters and hyphens, of which
/// names are made, eight at a time.
#[inline]
fn name_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(word) = bytes[at..].first_chunk::<8>() {
        let others = not_letters(u64::from_le_bytes(*word));
        if others == 0 {
            at += 8;
            continue;
        }
        at += others.trailing_zeros() as usize / 8;
        if !is_tchar(bytes[at]) {
            return at;
        }
        at += 1;
    }
    while at < bytes.len() && is_tchar(bytes[at]) {
        at += 1;
    }
    at
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const TOPS: u64 = ONES * 0x80;

/// The top bit of each octet that is neither an ASCII letter nor a hyphen. No sum of two of the octets carries.
#[inline]
const fn not_letters(word: u64) -> u64 {
    let low = word & !TOPS;
    let lower_case = low | (ONES * 0x20);
    let at_least_a = lower_case + ONES * (0x80 - b'a' as u64);
    let above_z = lower_case + ONES * (0x7f - b'z' as u64);
    let no_hyphen = (low ^ (ONES * b'-' as u64)) + ONES * 0x7f;
    let letter = at_least_a & !above_z;
    (word | (no_hyphen & !letter)) & TOPS
}

/// The offset of the first octet from `start` on that a field value may not hold (RFC 9110 §5.5).
#[inline]
fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while bytes[at..].first_chunk::<32>().is_some_and(|block| !holds_control(block)) {
        at += 32;
    }
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

/// Whether an octet is below 0x20 or is 0x7f. A loop of this shape becomes vector instructions.
#[inline]
fn holds_control(block: &[u8; 32]) -> bool {
    block.iter().fold(false, |found, &octet| found | (octet < 0x20) | (octet == 0x7f))
}

/// The lowest bit set marks the first octet, in memory order, that is below 0x20 or is 0x7f: a control octet, or HTAB.
/// Bits above the lowest one may be wrong: a borrow runs into the octets behind a hit, never before it.
#[inline]
const fn suspects(word: u64) -> u64 {
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

    /// RFC 9110 §5.6.2.
    #[test]
    fn a_name_ends_at_the_first_octet_that_is_no_tchar() {
        for octet in 0..=255u8 {
            for filler in [b'a', b'Z', b'-', b'0', b'~'] {
                for place in 0..20 {
                    let mut name = [filler; 20];
                    name[place] = octet;
                    let expected = name.iter().position(|&octet| !is_tchar(octet)).unwrap_or(20);
                    assert_eq!(name_end(&name, 0), expected, "{octet:#x} at {place} among {filler:#x}");
                }
            }
        }
    }

    fn verdict(bytes: &[u8]) -> Result<Option<usize>, Reject> {
        field_lines(bytes, 0, 2, &mut Vec::new())
    }

    #[test]
    fn names_and_values_are_found_whatever_the_whitespace() {
        let lines = b"Name: \tvalue here \t\r\nA:\r\n\r\nX";
        let mut fields = Vec::new();
        assert_eq!(field_lines(lines, 0, 2, &mut fields), Ok(Some(27)));
        let parts: Vec<_> =
            fields.iter().map(|field| (field.name.of(lines), field.value.of(lines))).collect();
        assert_eq!(parts, [(&b"Name"[..], &b"value here"[..]), (b"A", b"")]);
        for len in 0..27 {
            assert_eq!(verdict(&lines[..len]), Ok(None), "{len}");
        }
        assert_eq!(verdict(b"\r\n"), Ok(Some(2)));
        assert_eq!(verdict(b"A: b\r\nA: b\r\nA: b\r\n\r\n"), Err(Reject::TooManyFields));
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
            assert_eq!(verdict(line), Err(reject), "{line:?}");
            assert_eq!(verdict(&[b"Ok: ok\r\n", line].concat()), Err(reject), "{line:?} behind another");
        }
    }
}
