//! The end of a head that arrives in pieces: each byte is looked at once, however small the pieces are.
//!
//! The search is also a check: it knows what may stand at each place of a head and refuses at the first byte that may
//! not, so that a peer that sends no HTTP is not waited for. `parse` still decides about the whole head.

use super::grammar::{is_tchar, is_text, is_value_octet};
use super::reject::Reject;
use crate::limits::Limits;

/// A search in progress. One per connection; it holds no bytes.
#[derive(Debug, Clone, Copy)]
pub struct HeadScan {
    position: u32,
    fields: u32,
    /// 0, or 2 behind an empty line.
    head_start: u8,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    LeadingLineFeed,
    Method,
    Line,
    LineFeed,
    FieldStart,
    Name,
    Value,
    ValueLineFeed,
    LastLineFeed,
    End,
}

impl HeadScan {
    /// A search that has seen nothing.
    pub const fn new() -> HeadScan {
        HeadScan { position: 0, head_start: 0, fields: 0, place: Place::Start }
    }

    /// Whether nothing has been looked at yet.
    pub const fn is_fresh(&self) -> bool {
        self.position == 0
    }

    /// Whether the request line and its CRLF were seen.
    pub(super) const fn line_is_complete(&self) -> bool {
        !matches!(
            self.place,
            Place::Start | Place::LeadingLineFeed | Place::Method | Place::Line | Place::LineFeed
        )
    }

    /// Where the request line begins: behind an empty line, if there was one.
    pub(super) const fn head_start(&self) -> usize {
        self.head_start as usize
    }

    /// Looks at the bytes that were not seen before. `bytes` is the buffer of the call before, grown. Returns the
    /// offset behind the head once its end is there.
    ///
    /// # Errors
    /// The first byte that no head may hold at its place; 414 and 431 as soon as a limit is passed.
    pub fn find_end(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<usize>, Reject> {
        while self.place != Place::End {
            let Some(&octet) = bytes.get(self.position as usize) else {
                return Ok(None);
            };
            self.place = self.next(octet)?;
            self.position += 1;
            self.check_limits(limits)?;
        }
        Ok(Some(self.position as usize))
    }

    fn next(&mut self, octet: u8) -> Result<Place, Reject> {
        match (self.place, octet) {
            // RFC 9112 §2.2: at least one empty line before the request line is ignored.
            (Place::Start, b'\r') if self.head_start == 0 => Ok(Place::LeadingLineFeed),
            (Place::Start, b'\r') => Err(Reject::LeadingEmptyLines),
            (Place::LeadingLineFeed, b'\n') => {
                self.head_start = 2;
                Ok(Place::Start)
            }
            (Place::Start | Place::Method, _) if is_tchar(octet) => Ok(Place::Method),
            (Place::Method, b' ') => Ok(Place::Line),
            (Place::Line, b'\r') => Ok(Place::LineFeed),
            (Place::Line, _) if is_text(octet) => Ok(Place::Line),
            (Place::LineFeed | Place::ValueLineFeed, b'\n') => Ok(Place::FieldStart),
            (Place::FieldStart, b'\r') => Ok(Place::LastLineFeed),
            // RFC 9112 §5.2, §2.2: no folded line, no whitespace before the first field.
            (Place::FieldStart, b' ' | b'\t') => Err(Reject::FoldedLine),
            (Place::FieldStart, _) if is_tchar(octet) => {
                self.fields += 1;
                Ok(Place::Name)
            }
            (Place::Name, b':') => Ok(Place::Value),
            (Place::Name, _) if is_tchar(octet) => Ok(Place::Name),
            (Place::Value, b'\r') => Ok(Place::ValueLineFeed),
            (Place::Value, _) if is_value_octet(octet) => Ok(Place::Value),
            (Place::LastLineFeed, b'\n') => Ok(Place::End),
            (place, _) => Err(violation(place, octet)),
        }
    }

    fn check_limits(&self, limits: &Limits) -> Result<(), Reject> {
        let len = self.position.saturating_sub(u32::from(self.head_start)) as usize;
        match self.place {
            Place::Method if len > limits.method_bytes_max => Err(Reject::MethodTooLong),
            // The CR that may end the line is not part of it.
            Place::Method | Place::Line if len > limits.request_line_bytes_max => {
                Err(Reject::RequestLineTooLong)
            }
            _ if len > limits.head_bytes_max || self.position == u32::MAX => Err(Reject::HeadTooLarge),
            _ if self.fields as usize > limits.fields_max => Err(Reject::TooManyFields),
            _ => Ok(()),
        }
    }
}

impl Default for HeadScan {
    fn default() -> Self {
        HeadScan::new()
    }
}

/// The reason for an octet that may not stand at this place.
#[cold]
fn violation(place: Place, octet: u8) -> Reject {
    match (place, octet) {
        (Place::LeadingLineFeed | Place::LineFeed | Place::ValueLineFeed | Place::LastLineFeed, _)
        | (Place::Line | Place::Value | Place::FieldStart | Place::Start, b'\n') => Reject::BareLineBreak,
        (Place::Start | Place::Method, b'\r' | b'\n' | b' ') => Reject::RequestLine,
        (Place::Start | Place::Method, _) => Reject::Method,
        (Place::Line, 0x80..) => Reject::Target,
        (Place::Line | Place::Value, _) => Reject::ControlOctet,
        _ => Reject::FieldName,
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
