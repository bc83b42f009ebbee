//! The field lines of a head: where each name and value is (RFC 9112 §5), for requests and responses alike.
//!
//! Strict, and the same whoever asks: a line ends in CRLF, a name is a token with its colon behind it, a value holds no
//! control octet, nothing is folded. Names and values are gone over in words (`classes.rs`). What a field means is not
//! decided here. httparse is the oracle of the tests.

use super::classes::{name_end, value_end};
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
