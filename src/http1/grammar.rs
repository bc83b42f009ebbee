//! The character classes of RFC 9110 and RFC 3986 as one table, and the few small rules that several files share.
//!
//! No file here but this one spells out a character class.

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const HOST: u8 = 4;
const VALUE: u8 = 8;
const HEX: u8 = 16;
const TEXT: u8 = 32;

/// Classes of each octet.
static CLASS: [u8; 256] = build();

const fn build() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut octet = 0usize;
    while octet < 256 {
        let b = octet as u8;
        let unreserved = b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~');
        let sub_delims =
            matches!(b, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        let mut class = 0;
        // RFC 9110 §5.6.2: tchar.
        if b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            )
        {
            class |= TOKEN;
        }
        // RFC 3986 §3.3, §3.4: pchar, "/" and, in a query, "?"; "%" is looked at apart.
        if unreserved || sub_delims || matches!(b, b':' | b'@' | b'/') {
            class |= TARGET;
        }
        // RFC 3986 §3.2.2: reg-name; "%" is looked at apart.
        if unreserved || sub_delims {
            class |= HOST;
        }
        // RFC 9110 §5.5: field-vchar, SP, HTAB.
        if b == b'\t' || (b >= 0x20 && b != 0x7f) {
            class |= VALUE;
        }
        if b.is_ascii_hexdigit() {
            class |= HEX;
        }
        // VCHAR and SP: all that a request line holds.
        if b >= 0x20 && b < 0x7f {
            class |= TEXT;
        }
        table[octet] = class;
        octet += 1;
    }
    table
}

#[inline]
fn has(octet: u8, class: u8) -> bool {
    CLASS[usize::from(octet)] & class != 0
}

/// tchar of RFC 9110 §5.6.2.
#[inline]
pub(super) fn is_tchar(octet: u8) -> bool {
    has(octet, TOKEN)
}

/// token of RFC 9110 §5.6.2: at least one tchar.
pub(super) fn is_token(octets: &[u8]) -> bool {
    !octets.is_empty() && octets.iter().all(|&octet| is_tchar(octet))
}

/// An octet of a path (RFC 3986 §3.3) other than "%".
#[inline]
pub(super) fn is_target_octet(octet: u8) -> bool {
    has(octet, TARGET)
}

/// An octet of a reg-name (RFC 3986 §3.2.2) other than "%".
#[inline]
pub(super) fn is_host_octet(octet: u8) -> bool {
    has(octet, HOST)
}

/// An octet that a field value may hold (RFC 9110 §5.5).
#[inline]
pub(super) fn is_value_octet(octet: u8) -> bool {
    has(octet, VALUE)
}

/// HEXDIG.
#[inline]
pub(super) fn is_hex(octet: u8) -> bool {
    has(octet, HEX)
}

/// VCHAR or SP.
#[inline]
pub(super) fn is_text(octet: u8) -> bool {
    has(octet, TEXT)
}

/// The elements of a comma-separated list without their whitespace; empty ones are skipped (RFC 9110 §5.6.1.2).
pub(super) fn list_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&octet| octet == b',').map(trim_ows).filter(|element| !element.is_empty())
}

/// Without OWS (SP and HTAB, RFC 9110 §5.6.3) on both sides.
pub(super) fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §5.6.2.
    #[test]
    fn a_token_holds_exactly_the_tchars() {
        let delimiters = b"\"(),/:;<=>?@[\\]{} \t\x7f\0";
        assert!(delimiters.iter().all(|&octet| !is_tchar(octet)));
        assert_eq!((0..=255u8).filter(|&octet| is_tchar(octet)).count(), 26 + 26 + 10 + 15);
        assert!(!is_token(b""));
    }

    /// RFC 9110 §5.6.1.2: "a recipient MUST parse and ignore a reasonable number of empty list elements".
    #[test]
    fn list_elements_skip_empty_ones() {
        assert_eq!(list_elements(b", a ,\t,b,").collect::<Vec<_>>(), [b"a", b"b"]);
    }
}
