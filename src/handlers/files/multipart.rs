//! `multipart/byteranges` (RFC 9110 §14.6, framing of RFC 2046 §5.1): the octets around the parts.
//!
//! Neighbours: [`super::range`] chose the parts, [`mod@super::plan`] sends them. The length is known before the first
//! octet leaves; file content is never touched here.

use super::{plan::Piece, range::ByteRange};
use std::fmt::Write;

/// A framed set of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multipart {
    /// Value of `Content-Type`.
    pub content_type: String,
    /// What is sent, in order.
    pub pieces: Vec<Piece>,
    /// Octets of all pieces.
    pub content_length: u64,
}

/// Frames `parts` of a representation of `len` octets. `boundary` is fresh random bits: content that was written
/// beforehand cannot contain it (RFC 2046 §5.1.1: it must not occur in a part).
#[must_use]
pub fn frame(parts: &[ByteRange], content_type: Option<&str>, len: u64, boundary: u128) -> Multipart {
    let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
    for (index, part) in parts.iter().enumerate() {
        let mut head = String::with_capacity(160);
        // The line end before the delimiter belongs to the delimiter.
        let before = if index == 0 { "" } else { "\r\n" };
        let _ = write!(head, "{before}--{boundary:032x}\r\n");
        if let Some(content_type) = content_type {
            let _ = write!(head, "Content-Type: {content_type}\r\n");
        }
        let _ = write!(head, "Content-Range: bytes {}-{}/{len}\r\n\r\n", part.first, part.last);
        pieces.push(Piece::Bytes(head.into_bytes()));
        pieces.push(Piece::File { offset: part.first, len: part.count() });
    }
    pieces.push(Piece::Bytes(format!("\r\n--{boundary:032x}--\r\n").into_bytes()));
    let content_length = pieces.iter().map(Piece::len).sum();
    Multipart {
        content_type: format!("multipart/byteranges; boundary={boundary:032x}"),
        pieces,
        content_length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_two_parts_with_their_exact_length() {
        let parts = [ByteRange { first: 0, last: 9 }, ByteRange { first: 1000, last: 1009 }];
        let framed = frame(&parts, Some("text/plain"), 2000, 0xab);
        let body: String = framed
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Bytes(bytes) => String::from_utf8(bytes.clone()).unwrap(),
                Piece::File { offset, len } => {
                    "x".repeat(usize::try_from(*len).unwrap()).replace("xx", &format!("{}x", offset % 10))
                }
            })
            .collect();
        let boundary = "000000000000000000000000000000ab";
        let wanted = format!(
            "--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-9/2000\r\n\r\n0x0x0x0x0x\
             \r\n--{boundary}\r\nContent-Type: text/plain\r\nContent-Range: bytes 1000-1009/2000\r\n\r\n0x0x0x0x0x\
             \r\n--{boundary}--\r\n"
        );
        assert_eq!(body, wanted);
        assert_eq!(framed.content_length, body.len() as u64);
        assert_eq!(framed.content_type, format!("multipart/byteranges; boundary={boundary}"));
    }
}
