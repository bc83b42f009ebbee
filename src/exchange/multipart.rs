//! `multipart/form-data` (RFC 7578) out of chunks that end anywhere: bytes in, events out, half a boundary waits for its
//! other half (L-18).
//!
//! Neighbours: [`fields`] reads what stands at the head of a part, [`form`] feeds the decoder from an exchange. It keeps a
//! part's header and nothing else; content passes as slices of what came in. Nested multiparts and transfer encodings are
//! not undone.

mod fields;
mod form;
#[cfg(test)]
mod tests;

pub use fields::PartHead;
pub use form::{Form, Part};

use crate::{
    error::{Error, Result},
    limits::MultipartLimits,
};
use bytes::{Buf, Bytes};
use memchr::memmem::Finder;

/// What the decoder has found.
#[derive(Debug, PartialEq, Eq)]
pub enum MultipartEvent {
    /// A part begins.
    Part(PartHead),
    /// Bytes of the part's content, never none.
    Data(Bytes),
    /// The part is over.
    PartEnd,
    /// The last part is over; whatever follows is passed over.
    End,
    /// The input is used up.
    NeedMore,
}

/// Names of the bounds that a form can reach; the client is answered with 413 for them.
pub(crate) const LIMIT_NAMES: [&str; 4] = [PARTS, HEADER, MARGIN, PART_BYTES];
const PARTS: &str = "multipart parts_max";
const HEADER: &str = "multipart header_bytes_max";
const MARGIN: &str = "multipart margin_bytes_max";
const PART_BYTES: &str = "multipart part bytes";

/// Cuts a body at its boundary. After an error every call gives that error again.
#[derive(Debug)]
pub struct MultipartDecoder {
    /// CRLF, two hyphens and the boundary. Its one CR is its first octet, so it never overlaps itself: what has been
    /// matched of it is known by its length alone.
    delimiter: Bytes,
    finder: Finder<'static>,
    limits: MultipartLimits,
    place: Place,
    parts: u32,
    /// Bytes in front of the first boundary or behind the last one, or of padding behind one between.
    margin: usize,
    /// The header of the part that begins.
    header: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In front of the first boundary, where bytes mean nothing, or in the content of a part. `matched` octets of the
    /// delimiter are withheld; the first `assumed` of them belong to what came before.
    Content {
        preamble: bool,
        matched: usize,
        assumed: usize,
    },
    /// Behind a boundary, in the rest of its line.
    Line(Line),
    Header,
    Epilogue,
    Failed(Refusal),
}

#[derive(Debug, Clone, Copy)]
enum Line {
    Start,
    Hyphen,
    Padding,
    CarriageReturn,
}

/// Why a form is refused.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    Invalid(&'static str),
    Limit(&'static str),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Invalid(what) => Error::InvalidBody(what),
            Refusal::Limit(limit) => Error::LimitReached { limit },
        }
    }
}

/// Octets of the delimiter in front of its hyphens.
const LINE_END: usize = 2;

impl MultipartDecoder {
    /// A decoder for bodies with this boundary.
    ///
    /// # Errors
    /// `InvalidBody` unless it has 1 to 70 of the characters of RFC 2046 §5.1.1 and does not end in a space.
    pub fn new(boundary: &str, limits: MultipartLimits) -> Result<Self> {
        if !is_boundary(boundary.as_bytes()) {
            return Err(Error::InvalidBody("no multipart boundary of 1 to 70 allowed characters"));
        }
        let delimiter = Bytes::from(format!("\r\n--{boundary}"));
        let finder = Finder::new(&delimiter).into_owned();
        // The first boundary may be the first octets of the body (RFC 2046 §5.1.1).
        let place = Place::Content { preamble: true, matched: LINE_END, assumed: LINE_END };
        Ok(MultipartDecoder { delimiter, finder, limits, place, parts: 0, margin: 0, header: Vec::new() })
    }

    /// A decoder for the boundary of this `Content-Type` value.
    ///
    /// # Errors
    /// `UnsupportedMediaType` if it is not `multipart/form-data`; as [`MultipartDecoder::new`].
    pub fn for_content_type(value: &[u8], limits: MultipartLimits) -> Result<Self> {
        MultipartDecoder::new(&fields::boundary(value)?, limits)
    }

    /// Takes what it needs from the front of `input` and gives the next event: call it until it needs more.
    ///
    /// # Errors
    /// `InvalidBody`; `LimitReached` with the name of a bound of the limits.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<MultipartEvent> {
        self.next_event(input).map_err(|refusal| {
            self.place = Place::Failed(refusal);
            refusal.into()
        })
    }

    /// The body is over.
    ///
    /// # Errors
    /// `InvalidBody` when it ended before its last boundary.
    pub fn finish(&self) -> Result<()> {
        match self.place {
            Place::Epilogue => Ok(()),
            Place::Failed(refusal) => Err(refusal.into()),
            _ => Err(Error::InvalidBody("the form ends before its last boundary")),
        }
    }

    fn next_event(&mut self, input: &mut Bytes) -> Result<MultipartEvent, Refusal> {
        while !input.is_empty() {
            let event = match self.place {
                Place::Content { preamble, matched, assumed } => {
                    let data = self.content(input, matched, assumed);
                    if preamble {
                        self.pass_over(data.map_or(0, |data| data.len()))?;
                        None
                    } else if let Some(data) = data {
                        (!data.is_empty()).then_some(MultipartEvent::Data(data))
                    } else {
                        Some(MultipartEvent::PartEnd)
                    }
                }
                Place::Line(line) => self.line(line, input)?,
                Place::Header => self.take_header(input)?,
                Place::Epilogue => {
                    self.pass_over(input.len())?;
                    input.clear();
                    None
                }
                Place::Failed(refusal) => return Err(refusal),
            };
            if let Some(event) = event {
                return Ok(event);
            }
        }
        match self.place {
            Place::Failed(refusal) => Err(refusal),
            _ => Ok(MultipartEvent::NeedMore),
        }
    }

    /// Content up to the next delimiter or to what may become one; `None` when the delimiter is complete.
    fn content(&mut self, input: &mut Bytes, matched: usize, assumed: usize) -> Option<Bytes> {
        let Place::Content { preamble, .. } = self.place else { return None };
        let content = |matched, assumed| Place::Content { preamble, matched, assumed };
        if matched > 0 {
            let rest = &self.delimiter[matched..];
            let same = rest.iter().zip(input.iter()).take_while(|(wanted, octet)| wanted == octet).count();
            if same == rest.len() {
                input.advance(same);
                self.begin_line();
                return None;
            }
            if same == input.len() {
                input.clear();
                self.place = content(matched + same, assumed);
                return Some(Bytes::new());
            }
            // No delimiter after all. No CR is among the octets that were the same: they are looked at once more.
            self.place = content(0, 0);
            return Some(self.delimiter.slice(assumed..matched));
        }
        if let Some(at) = self.finder.find(input) {
            let data = input.split_to(at);
            // The delimiter itself is matched by the next round, from its first octet.
            input.advance(1);
            self.place = content(1, 0);
            return Some(data);
        }
        let window = input.len().saturating_sub(self.delimiter.len() - 1);
        let kept = memchr::memrchr(b'\r', &input[window..])
            .map(|at| window + at)
            .filter(|&at| self.delimiter.starts_with(&input[at..]))
            .unwrap_or(input.len());
        self.place = content(input.len() - kept, 0);
        let data = input.split_to(kept);
        input.clear();
        Some(data)
    }

    fn begin_line(&mut self) {
        self.margin = 0;
        self.place = Place::Line(Line::Start);
    }

    /// RFC 2046 §5.1.1: two hyphens behind the last boundary, otherwise blanks and the end of the line.
    fn line(&mut self, line: Line, input: &mut Bytes) -> Result<Option<MultipartEvent>, Refusal> {
        let octet = input.split_to(1)[0];
        let next = match (line, octet) {
            (Line::Start, b'-') => Line::Hyphen,
            (Line::Hyphen, b'-') => {
                self.place = Place::Epilogue;
                return Ok(Some(MultipartEvent::End));
            }
            (Line::Start | Line::Padding, b' ' | b'\t') => {
                self.pass_over(1)?;
                Line::Padding
            }
            (Line::Start | Line::Padding, b'\r') => Line::CarriageReturn,
            (Line::CarriageReturn, b'\n') => {
                self.begin_header()?;
                return Ok(None);
            }
            _ => return Err(Refusal::Invalid("a multipart boundary is followed by something else")),
        };
        self.place = Place::Line(next);
        Ok(None)
    }

    fn begin_header(&mut self) -> Result<(), Refusal> {
        if self.parts == self.limits.parts_max {
            return Err(Refusal::Limit(PARTS));
        }
        self.parts += 1;
        self.header.clear();
        // The end of the line before: a header without fields is an empty line at once.
        self.header.extend_from_slice(b"\r\n");
        self.place = Place::Header;
        Ok(())
    }

    fn take_header(&mut self, input: &mut Bytes) -> Result<Option<MultipartEvent>, Refusal> {
        const EMPTY_LINE: &[u8] = b"\r\n\r\n";
        let before = self.header.len();
        let room = self.limits.header_bytes_max + EMPTY_LINE.len() - before;
        let taken = input.len().min(room);
        self.header.extend_from_slice(&input[..taken]);
        let seen = before.saturating_sub(EMPTY_LINE.len() - 1);
        let Some(at) = memchr::memmem::find(&self.header[seen..], EMPTY_LINE) else {
            if taken == room {
                return Err(Refusal::Limit(HEADER));
            }
            input.advance(taken);
            return Ok(None);
        };
        let end = seen + at;
        input.advance(end + EMPTY_LINE.len() - before);
        let head =
            PartHead::parse(self.header.get(LINE_END..end).unwrap_or_default()).map_err(Refusal::Invalid)?;
        // A part without content: its header's last line end is the delimiter's first (RFC 2046 §5.1.1).
        self.place = Place::Content { preamble: false, matched: LINE_END, assumed: LINE_END };
        Ok(Some(MultipartEvent::Part(head)))
    }

    fn pass_over(&mut self, count: usize) -> Result<(), Refusal> {
        self.margin = self.margin.saturating_add(count);
        if self.margin > self.limits.margin_bytes_max { Err(Refusal::Limit(MARGIN)) } else { Ok(()) }
    }
}

/// RFC 2046 §5.1.1: `bchars`, at most 70, the last of them no space.
fn is_boundary(boundary: &[u8]) -> bool {
    let is_allowed = |octet: &u8| octet.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(octet);
    (1..=70).contains(&boundary.len()) && boundary.iter().all(is_allowed) && !boundary.ends_with(b" ")
}
