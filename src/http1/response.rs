//! Responses parsed strictly, for a client: the load tool and the proxy (RFC 9112 §4, §6.3, §9.3).
//!
//! The caller keeps unconsumed bytes and gives them again with more behind them; nothing is copied and, after the
//! first response, nothing is allocated. Requests are parsed elsewhere: their rules differ where it matters.

use core::fmt;
use core::ops::Range;

use super::body::{BodyDecoder, BodyEvent, BodyLimits};
use super::framing::{BodyKind, parse_content_length, transfer_encoding_is_chunked};
use super::grammar::{is_value_octet, list_elements};
use super::head::{Field, Version};
use super::lines::field_lines;
use super::reject::Reject;
use crate::limits::{HEAD_BYTES_CEILING, Limits};

/// What the consumed bytes were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseEvent {
    /// More bytes are needed; give the unconsumed ones again, with more behind them.
    NeedMore,
    /// An interim response (1xx other than 101); the final one follows.
    Interim(ResponseLine),
    /// The head of the final response; its fields are in the consumed bytes (`ResponseParser::fields`).
    Head(ResponseLine),
    /// Content: this range of the input, inside the consumed bytes.
    Data(Range<usize>),
    /// The response is complete. Whether the connection may be used again.
    End {
        /// RFC 9112 §9.3.
        keep_alive: bool,
    },
}

/// The status line, and how the content is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLine {
    /// 100 to 999.
    pub status: u16,
    /// The version of the server.
    pub version: Version,
    /// The form of the content.
    pub frame: ResponseFrame,
}

/// RFC 9112 §6.3, for responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFrame {
    /// No content: HEAD, 1xx, 204, 304, Content-Length: 0.
    None,
    /// Content-Length.
    Length(u64),
    /// Chunked.
    Chunked,
    /// Until the connection closes.
    UntilClose,
    /// 101: the connection is no longer HTTP (RFC 9110 §15.2.2). Also 2xx to CONNECT.
    Switched,
}

/// Why a response is not one. The connection is of no further use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponseError {
    /// The status line is malformed (RFC 9112 §4).
    StatusLine,
    /// A field line is malformed, or a line does not end in CRLF.
    Field,
    /// The head is larger than a head may be.
    HeadTooLarge,
    /// Content-Length is malformed, repeated, or stands beside Transfer-Encoding.
    ContentLength,
    /// Transfer-Encoding is anything but chunked, or stands in HTTP/1.0, 1xx or 204.
    TransferEncoding,
    /// The chunked framing or the trailers are malformed.
    Chunk,
    /// The connection closed before the response was complete.
    Truncated,
    /// Too many interim responses.
    InterimFlood,
}

impl fmt::Display for ResponseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ResponseError::StatusLine => "malformed status line",
            ResponseError::Field => "malformed field line",
            ResponseError::HeadTooLarge => "response head too large",
            ResponseError::ContentLength => "malformed Content-Length",
            ResponseError::TransferEncoding => "malformed Transfer-Encoding",
            ResponseError::Chunk => "malformed chunked content",
            ResponseError::Truncated => "response cut short",
            ResponseError::InterimFlood => "too many interim responses",
        })
    }
}

impl core::error::Error for ResponseError {}

/// The request that is being answered, as far as the form of the answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asked {
    /// Any method without a rule of its own.
    #[default]
    Usual,
    /// HEAD: no content (RFC 9112 §6.3 item 1).
    Head,
    /// CONNECT: 2xx switches to a tunnel (RFC 9112 §6.3 item 2).
    Connect,
}

/// The parser of one connection's responses.
#[derive(Debug, Clone)]
pub struct ResponseParser {
    place: Place,
    asked: Asked,
    searched: usize,
    interims: u8,
    keep_alive: bool,
    body: BodyDecoder,
    fields: Vec<Field>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    Body,
    UntilClose,
    Ended,
    Failed,
}

/// Field lines of one response: beyond, it is an attack on the client.
const FIELDS_MAX: usize = 1024;

/// Interim responses before one final response: a server that sends more does not mean to answer.
const INTERIMS_MAX: u8 = 32;

impl ResponseParser {
    /// A parser that expects a response.
    pub fn new() -> ResponseParser {
        ResponseParser {
            place: Place::Head,
            asked: Asked::Usual,
            searched: 0,
            interims: 0,
            keep_alive: true,
            body: BodyDecoder::new(BodyLimits::from(&Limits::DEFAULT)),
            fields: Vec::new(),
        }
    }

    /// Expects the response to the next request.
    pub fn begin(&mut self, asked: Asked) {
        self.place = Place::Head;
        self.asked = asked;
        self.searched = 0;
        self.interims = 0;
    }

    /// Consumes the beginning of `input`. Returns the number of bytes consumed and what they were.
    ///
    /// # Errors
    /// Anything that is not a response by RFC 9112; the parser then refuses all further input.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, ResponseEvent), ResponseError> {
        let result = self.advance(input);
        if result.is_err() {
            self.place = Place::Failed;
        }
        result
    }

    /// The server closed its side. `End` if that completes the response (RFC 9112 §8), or if none had begun and
    /// `input` is empty, which the caller knows.
    ///
    /// # Errors
    /// `Truncated` if the response was not complete.
    pub fn finish(&mut self) -> Result<ResponseEvent, ResponseError> {
        match self.place {
            Place::UntilClose | Place::Ended => {
                self.place = Place::Ended;
                Ok(ResponseEvent::End { keep_alive: false })
            }
            _ => {
                self.place = Place::Failed;
                Err(ResponseError::Truncated)
            }
        }
    }

    /// The fields of the head that was last returned. `head` are the bytes consumed with it.
    pub fn fields<'a>(&'a self, head: &'a [u8]) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> {
        self.fields.iter().map(|field| {
            (core::str::from_utf8(field.name.of(head)).unwrap_or_default(), field.value.of(head))
        })
    }

    /// The trailers of chunked content, once it has ended.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.body.trailers()
    }

    fn advance(&mut self, input: &[u8]) -> Result<(usize, ResponseEvent), ResponseError> {
        match self.place {
            Place::Head => self.head(input),
            Place::Body => match self.body.decode(input).map_err(|_: Reject| ResponseError::Chunk)? {
                (used, BodyEvent::Data(range)) => Ok((used, ResponseEvent::Data(range))),
                (used, BodyEvent::NeedMore) => Ok((used, ResponseEvent::NeedMore)),
                (used, BodyEvent::End) => {
                    self.place = Place::Ended;
                    Ok((used, ResponseEvent::End { keep_alive: self.keep_alive }))
                }
            },
            Place::UntilClose if input.is_empty() => Ok((0, ResponseEvent::NeedMore)),
            Place::UntilClose => Ok((input.len(), ResponseEvent::Data(0..input.len()))),
            Place::Ended => Ok((0, ResponseEvent::End { keep_alive: self.keep_alive })),
            Place::Failed => Err(ResponseError::StatusLine),
        }
    }

    fn head(&mut self, input: &[u8]) -> Result<(usize, ResponseEvent), ResponseError> {
        let Some(head_len) = self.find_end(input)? else {
            return Ok((0, ResponseEvent::NeedMore));
        };
        let head = &input[..head_len];
        let (line_len, status, version) = parse_status_line(head)?;
        let mut found = Found::default();
        self.parse_fields(head, line_len, &mut found)?;
        self.searched = 0;
        let frame = found.frame(status, version, self.asked)?;
        let line = ResponseLine { status, version, frame };
        // RFC 9110 §15.2: any number of interim responses may come; 101 is final for HTTP.
        if (100..=199).contains(&status) && status != 101 {
            self.interims += 1;
            if self.interims > INTERIMS_MAX {
                return Err(ResponseError::InterimFlood);
            }
            return Ok((head_len, ResponseEvent::Interim(line)));
        }
        self.keep_alive = found.keep_alive(version, frame);
        self.expect_content(frame)?;
        Ok((head_len, ResponseEvent::Head(line)))
    }

    fn expect_content(&mut self, frame: ResponseFrame) -> Result<(), ResponseError> {
        let kind = match frame {
            ResponseFrame::UntilClose | ResponseFrame::Switched => {
                self.place = Place::UntilClose;
                return Ok(());
            }
            ResponseFrame::None => BodyKind::None,
            ResponseFrame::Length(length) => BodyKind::Length(length),
            ResponseFrame::Chunked => BodyKind::Chunked,
        };
        self.place = Place::Body;
        self.body.begin(kind, u64::MAX).map_err(|_| ResponseError::ContentLength)
    }

    /// The empty line that ends the head, looked for from where the last search ended.
    fn find_end(&mut self, input: &[u8]) -> Result<Option<usize>, ResponseError> {
        let window = &input[..input.len().min(HEAD_BYTES_CEILING)];
        while let Some(line_feed) = memchr::memchr(b'\n', &window[self.searched.min(window.len())..]) {
            let at = self.searched + line_feed;
            if at == 0 || window[at - 1] != b'\r' {
                return Err(ResponseError::Field);
            }
            self.searched = at + 1;
            if window[..at - 1].ends_with(b"\r\n") {
                return Ok(Some(at + 1));
            }
        }
        self.searched = window.len();
        // The longest valid start of a status line; a peer that speaks something else is not waited for.
        let start = window.len().min(9);
        if !b"HTTP/1.".starts_with(&window[..start.min(7)]) {
            return Err(ResponseError::StatusLine);
        }
        if window.len() == HEAD_BYTES_CEILING { Err(ResponseError::HeadTooLarge) } else { Ok(None) }
    }

    fn parse_fields(&mut self, head: &[u8], start: usize, found: &mut Found) -> Result<(), ResponseError> {
        self.fields.clear();
        match field_lines(head, start, FIELDS_MAX, &mut self.fields) {
            Ok(Some(end)) if end == head.len() => {}
            _ => return Err(ResponseError::Field),
        }
        self.fields.iter().try_for_each(|field| found.field(field.name.of(head), field.value.of(head)))
    }
}

impl Default for ResponseParser {
    fn default() -> Self {
        ResponseParser::new()
    }
}

/// RFC 9112 §4: HTTP-version SP 3DIGIT SP [ reason-phrase ] CRLF. Returns its length with CRLF.
fn parse_status_line(head: &[u8]) -> Result<(usize, u16, Version), ResponseError> {
    let end = memchr::memchr(b'\r', head).ok_or(ResponseError::StatusLine)?;
    let Some((start, reason)) = head[..end].split_first_chunk::<13>() else {
        return Err(ResponseError::StatusLine);
    };
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', a, b, c, b' '] = *start else {
        return Err(ResponseError::StatusLine);
    };
    let digits = [minor, a, b, c];
    if !digits.iter().all(u8::is_ascii_digit)
        || a == b'0'
        || !reason.iter().all(|&octet| is_value_octet(octet))
    {
        return Err(ResponseError::StatusLine);
    }
    let status = [a, b, c].iter().fold(0u16, |status, digit| status * 10 + u16::from(digit - b'0'));
    let version = if minor == b'0' { Version::Http10 } else { Version::Http11 };
    Ok((end + 2, status, version))
}

/// What one pass over the fields has found.
#[derive(Debug, Default)]
struct Found {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Found {
    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), ResponseError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in list_elements(value) {
                    self.close |= option.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = parse_content_length(value).map_err(|_| ResponseError::ContentLength)?;
                if self.length.replace(length).is_some() {
                    return Err(ResponseError::ContentLength);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || transfer_encoding_is_chunked(value) != Ok(true) {
                    return Err(ResponseError::TransferEncoding);
                }
                self.chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// RFC 9112 §6.3, in the order of its items.
    fn frame(&self, status: u16, version: Version, asked: Asked) -> Result<ResponseFrame, ResponseError> {
        // RFC 9112 §6.1: not in HTTP/1.0, and never in 1xx or 204.
        if self.chunked && (version == Version::Http10 || status < 200 || status == 204) {
            return Err(ResponseError::TransferEncoding);
        }
        // RFC 9112 §6.3 item 3: an attempt at response splitting, or one that looks like it.
        if self.chunked && self.length.is_some() {
            return Err(ResponseError::ContentLength);
        }
        Ok(match (status, asked) {
            (101, _) => ResponseFrame::Switched,
            (100..=199 | 204 | 304, _) | (_, Asked::Head) => ResponseFrame::None,
            (200..=299, Asked::Connect) => ResponseFrame::Switched,
            _ if self.chunked => ResponseFrame::Chunked,
            _ => match self.length {
                Some(0) => ResponseFrame::None,
                Some(length) => ResponseFrame::Length(length),
                None => ResponseFrame::UntilClose,
            },
        })
    }

    /// RFC 9112 §9.3.
    fn keep_alive(&self, version: Version, frame: ResponseFrame) -> bool {
        let asks = !self.close && (version == Version::Http11 || self.keep_alive);
        asks && !matches!(frame, ResponseFrame::UntilClose | ResponseFrame::Switched)
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
