//! Request content out of Content-Length and chunked framing, in whatever pieces it arrives (RFC 9112 §6.2, §7.1).
//!
//! Data is never copied: an event names a range of the input. Only a trailer section, which is rare and small, is kept
//! here until it is complete. Trailers never become headers (RFC 9110 §6.5.1).

use core::ops::Range;

use super::framing::BodyKind;
use super::grammar::{is_tchar, is_value_octet, trim_ows};
use super::reject::Reject;
use crate::limits::Limits;

/// What the consumed bytes were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEvent {
    /// Content: this range of the input, never empty, inside the consumed bytes.
    Data(Range<usize>),
    /// All input was consumed and the content goes on.
    NeedMore,
    /// The content is complete; unconsumed input belongs to the next request. `BodyDecoder::trailers` has the trailers.
    End,
}

/// The decoder of one message's content. `begin` makes it ready for the next message and keeps its buffer.
#[derive(Debug, Clone)]
pub struct BodyDecoder {
    place: Place,
    /// Bytes left of the content or of the chunk.
    remaining: u64,
    /// Bytes of content that may still be announced before the limit is passed.
    allowance: u64,
    /// Digits of the chunk size, or bytes of the extensions, on the current line.
    line_len: usize,
    /// Extension bytes in excess of data bytes.
    overhead: u64,
    limits: BodyLimits,
    trailer_fields: usize,
    trailers: Vec<u8>,
    trailer_line: usize,
}

/// The limits of one message's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Bytes of extensions on one chunk-size line.
    pub chunk_extension_bytes_max: usize,
    /// Bytes of extensions in excess of data.
    pub chunk_overhead_bytes_max: u64,
    /// Bytes of the trailer section; 431 beyond it.
    pub trailer_bytes_max: usize,
    /// Field lines of the trailer section; 431 beyond it.
    pub trailer_fields_max: usize,
}

impl From<&Limits> for BodyLimits {
    fn from(limits: &Limits) -> Self {
        BodyLimits {
            chunk_extension_bytes_max: limits.chunk_extension_bytes_max,
            chunk_overhead_bytes_max: limits.chunk_overhead_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
            trailer_fields_max: limits.trailer_fields_max,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Length,
    Size,
    /// Whitespace behind the size or behind an extension: only ";" may follow (and "=" behind a name).
    AfterSize,
    ExtensionStart,
    ExtensionName,
    AfterName,
    ValueStart,
    ValueToken,
    AfterValue,
    Quoted,
    QuotedPair,
    QuotedEnd,
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Tunnel,
    End,
}

/// RFC 9112 §7.1 sets no bound; 16 digits hold every size of 64 bits.
const SIZE_DIGITS_MAX: usize = 16;

impl BodyDecoder {
    /// A decoder for a message without content.
    pub fn new(limits: BodyLimits) -> BodyDecoder {
        BodyDecoder {
            place: Place::End,
            remaining: 0,
            allowance: 0,
            line_len: 0,
            overhead: 0,
            limits,
            trailer_fields: 0,
            trailers: Vec::new(),
            trailer_line: 0,
        }
    }

    /// Makes the decoder ready for the content of the next message, of which the route allows `body_bytes_max` bytes.
    ///
    /// # Errors
    /// `BodyTooLarge` if the announced length passes the limit (RFC 9110 §15.5.14).
    pub fn begin(&mut self, kind: BodyKind, body_bytes_max: u64) -> Result<(), Reject> {
        (self.place, self.remaining) = match kind {
            BodyKind::None | BodyKind::Length(0) => (Place::End, 0),
            BodyKind::Length(length) => (Place::Length, length),
            BodyKind::Chunked => (Place::Size, 0),
            BodyKind::Tunnel => (Place::Tunnel, 0),
        };
        self.allowance = body_bytes_max.checked_sub(self.remaining).ok_or(Reject::BodyTooLarge)?;
        self.line_len = 0;
        self.overhead = 0;
        self.trailer_fields = 0;
        self.trailers.clear();
        Ok(())
    }

    /// Whether the content is complete.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.place == Place::End
    }

    /// Whether this is no content but another protocol.
    #[inline]
    pub fn is_tunnel(&self) -> bool {
        self.place == Place::Tunnel
    }

    /// Bytes of content that must still come; None if only the peer knows (chunked).
    pub fn unread(&self) -> Option<u64> {
        match self.place {
            Place::End => Some(0),
            Place::Length => Some(self.remaining),
            _ => None,
        }
    }

    /// The trailer fields, once the content has ended: names as received, values without surrounding whitespace.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = if self.is_ended() { &self.trailers[..] } else { &[] };
        lines.split(|&octet| octet == b'\n').filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], trim_ows(line[colon + 1..].strip_suffix(b"\r")?)))
        })
    }

    /// Consumes the beginning of `input`: framing, and then at most one piece of content. Returns the number of bytes
    /// consumed and what they were; after the last data of a Content-Length `is_ended` is true at once. The events do not depend on how the input is cut, except that data is cut with it.
    ///
    /// # Errors
    /// Any octet that RFC 9112 §7.1 does not allow at its place, and any limit passed. The decoder must not be used
    /// for this message again.
    pub fn decode(&mut self, input: &[u8]) -> Result<(usize, BodyEvent), Reject> {
        let mut at = 0;
        loop {
            match self.place {
                Place::End => return Ok((at, BodyEvent::End)),
                Place::Tunnel if at < input.len() => {
                    return Ok((input.len(), BodyEvent::Data(at..input.len())));
                }
                Place::Length | Place::Data if at < input.len() => {
                    let range = self.take_data(at, input.len());
                    return Ok((range.end, BodyEvent::Data(range)));
                }
                _ => {}
            }
            let Some(&octet) = input.get(at) else {
                return Ok((at, BodyEvent::NeedMore));
            };
            self.place = self.next(octet)?;
            at += 1;
        }
    }

    fn take_data(&mut self, at: usize, end: usize) -> Range<usize> {
        let len = self.remaining.min((end - at) as u64);
        self.remaining -= len;
        self.overhead = self.overhead.saturating_sub(len);
        if self.remaining == 0 {
            self.place = if self.place == Place::Data { Place::DataCarriageReturn } else { Place::End };
        }
        at..at + len as usize
    }

    /// RFC 9112 §7.1: chunk = chunk-size [ chunk-ext ] CRLF chunk-data CRLF; CRLF is both octets, always.
    fn next(&mut self, octet: u8) -> Result<Place, Reject> {
        match self.place {
            Place::Size => self.size(octet),
            Place::AfterSize
            | Place::ExtensionStart
            | Place::ExtensionName
            | Place::AfterName
            | Place::ValueStart
            | Place::ValueToken
            | Place::AfterValue
            | Place::Quoted
            | Place::QuotedPair
            | Place::QuotedEnd => self.extension(octet),
            Place::SizeLineFeed if octet == b'\n' => self.size_line_end(),
            Place::SizeLineFeed => Err(Reject::ChunkSize),
            Place::DataCarriageReturn if octet == b'\r' => Ok(Place::DataLineFeed),
            Place::DataLineFeed if octet == b'\n' => Ok(Place::Size),
            Place::DataCarriageReturn | Place::DataLineFeed => Err(Reject::ChunkEnd),
            Place::TrailerStart
            | Place::TrailerName
            | Place::TrailerValue
            | Place::TrailerLineFeed
            | Place::LastLineFeed => self.trailer(octet),
            // `decode` takes these before it comes here.
            Place::Length | Place::Data | Place::Tunnel | Place::End => Ok(self.place),
        }
    }

    /// chunk-size = 1*HEXDIG: no sign, no prefix, no whitespace before it.
    fn size(&mut self, octet: u8) -> Result<Place, Reject> {
        let digit = match octet {
            b'0'..=b'9' => octet - b'0',
            b'a'..=b'f' => octet - b'a' + 10,
            b'A'..=b'F' => octet - b'A' + 10,
            _ if self.line_len == 0 => return Err(Reject::ChunkSize),
            b'\r' => return Ok(Place::SizeLineFeed),
            b';' | b' ' | b'\t' => {
                self.line_len = 0;
                return self.extension_octet(if octet == b';' {
                    Place::ExtensionStart
                } else {
                    Place::AfterSize
                });
            }
            _ => return Err(Reject::ChunkSize),
        };
        self.line_len += 1;
        // The top bit stays free, so that sums of sizes cannot wrap (RFC 9112 §7.1).
        if self.line_len > SIZE_DIGITS_MAX || self.remaining >> 59 != 0 {
            return Err(Reject::ChunkSizeOverflow);
        }
        self.remaining = self.remaining << 4 | u64::from(digit);
        Ok(Place::Size)
    }

    /// RFC 9112 §7.1.1: chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] ). Bad whitespace must
    /// be taken (RFC 9110 §5.6.3), but not at the end of the line, where the grammar has none.
    fn extension(&mut self, octet: u8) -> Result<Place, Reject> {
        let whitespace = matches!(octet, b' ' | b'\t');
        let next = match (self.place, octet) {
            (Place::ExtensionName | Place::ValueToken | Place::QuotedEnd, b'\r') => {
                return Ok(Place::SizeLineFeed);
            }
            (Place::AfterSize, _) if whitespace => Place::AfterSize,
            (
                Place::AfterSize
                | Place::ExtensionName
                | Place::AfterName
                | Place::ValueToken
                | Place::AfterValue
                | Place::QuotedEnd,
                b';',
            ) => Place::ExtensionStart,
            (Place::ExtensionStart, _) if whitespace => Place::ExtensionStart,
            (Place::ExtensionStart | Place::ExtensionName, _) if is_tchar(octet) => Place::ExtensionName,
            (Place::ExtensionName | Place::AfterName, _) if whitespace => Place::AfterName,
            (Place::ExtensionName | Place::AfterName, b'=') => Place::ValueStart,
            (Place::ValueStart, _) if whitespace => Place::ValueStart,
            (Place::ValueStart, b'"') => Place::Quoted,
            (Place::ValueStart | Place::ValueToken, _) if is_tchar(octet) => Place::ValueToken,
            (Place::ValueToken | Place::QuotedEnd | Place::AfterValue, _) if whitespace => Place::AfterValue,
            (Place::Quoted, b'"') => Place::QuotedEnd,
            (Place::Quoted, b'\\') => Place::QuotedPair,
            // RFC 9110 §5.6.4: qdtext and quoted-pair hold HTAB, SP, VCHAR, obs-text; no CR, no LF.
            (Place::Quoted | Place::QuotedPair, _) if is_value_octet(octet) => Place::Quoted,
            _ => return Err(Reject::ChunkExtension),
        };
        self.extension_octet(next)
    }

    /// Counts one octet of an extension.
    fn extension_octet(&mut self, next: Place) -> Result<Place, Reject> {
        self.line_len += 1;
        self.overhead += 1;
        if self.line_len > self.limits.chunk_extension_bytes_max
            || self.overhead > self.limits.chunk_overhead_bytes_max
        {
            return Err(Reject::ChunkExtensionTooLong);
        }
        Ok(next)
    }

    /// The chunk-size line is complete: data follows, or the trailer section after the last chunk.
    fn size_line_end(&mut self) -> Result<Place, Reject> {
        self.line_len = 0;
        if self.remaining == 0 {
            self.trailer_line = 0;
            return Ok(Place::TrailerStart);
        }
        self.allowance = self.allowance.checked_sub(self.remaining).ok_or(Reject::BodyTooLarge)?;
        Ok(Place::Data)
    }

    /// RFC 9112 §7.1.2: trailer-section = *( field-line CRLF ), with the grammar of §5 and the same refusals.
    fn trailer(&mut self, octet: u8) -> Result<Place, Reject> {
        let next = match (self.place, octet) {
            (Place::TrailerStart, b'\r') => return Ok(Place::LastLineFeed),
            (Place::LastLineFeed, b'\n') => return Ok(Place::End),
            (Place::TrailerStart, _) if is_tchar(octet) => {
                self.trailer_line = self.trailers.len();
                self.trailer_fields += 1;
                Place::TrailerName
            }
            (Place::TrailerName, _) if is_tchar(octet) => Place::TrailerName,
            (Place::TrailerName, b':') => {
                if is_forbidden_trailer(&self.trailers[self.trailer_line..]) {
                    return Err(Reject::TrailerForbidden);
                }
                Place::TrailerValue
            }
            (Place::TrailerValue, b'\r') => Place::TrailerLineFeed,
            (Place::TrailerValue, _) if is_value_octet(octet) => Place::TrailerValue,
            (Place::TrailerLineFeed, b'\n') => Place::TrailerStart,
            _ => return Err(Reject::Trailer),
        };
        if self.trailers.len() >= self.limits.trailer_bytes_max
            || self.trailer_fields > self.limits.trailer_fields_max
        {
            return Err(Reject::TrailerTooLarge);
        }
        self.trailers.push(octet);
        Ok(next)
    }
}

/// RFC 9110 §6.5.1: fields for framing, routing, authentication, request modifiers, response control, and for how the
/// content is read. Refused rather than dropped: a reader behind us might merge them.
pub(crate) fn is_forbidden_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: [&[u8]; 27] = [
        b"transfer-encoding",
        b"content-length",
        b"host",
        b"trailer",
        b"te",
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"upgrade",
        b"expect",
        b"cache-control",
        b"max-forwards",
        b"pragma",
        b"range",
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
        b"authorization",
        b"proxy-authorization",
        b"cookie",
        b"set-cookie",
        b"content-encoding",
        b"content-type",
        b"content-range",
        b"forwarded",
    ];
    FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
