//! The path as routes see it: percent-encoded unreserved characters decoded (RFC 3986 §6.2.2.2), nothing else.
//!
//! Decoding them never yields `%`, `/` or a dot segment that was not equivalent before, so whoever decodes the
//! rest later decodes every octet exactly once.

use std::borrow::Cow;

/// Decodes `%XX` of unreserved characters. Borrowed when there is nothing to decode, which is nearly always.
pub(super) fn normalised(path: &str) -> Cow<'_, str> {
    if memchr::memchr(b'%', path.as_bytes()).is_none() {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        match rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(octet) if is_unreserved(octet) => {
                out.push(char::from(octet));
                rest = &rest[at + 3..];
            }
            _ => {
                out.push('%');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// RFC 3986 §2.3.
fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn only_unreserved_characters_are_decoded_and_only_once() {
        assert_eq!(normalised("/plain"), "/plain");
        assert_eq!(normalised("/%70lain%2D"), "/plain-");
        assert_eq!(
            normalised("/a%2Fb%25%32%35"),
            "/a%2Fb%2525",
            "a decoded % would be decoded again by others"
        );
        assert_eq!(normalised("/%C3%A9"), "/%C3%A9");
        assert_eq!(normalised("/%"), "/%");
    }
}
