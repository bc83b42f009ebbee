//! The response's head while it can still change, and the proxy with which an application changes it.

use super::core::Core;
use crate::error::{Error, Result};
use http::StatusCode;

/// Status and fields of a response, kept as encoded lines so that a pooled exchange allocates nothing.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    status: StatusCode,
    /// `Name: value\r\n`, again and again.
    lines: Vec<u8>,
}

impl Default for ResponseHead {
    fn default() -> Self {
        ResponseHead { status: StatusCode::OK, lines: Vec::new() }
    }
}

impl ResponseHead {
    pub(crate) fn reset(&mut self) {
        self.status = StatusCode::OK;
        self.lines.clear();
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The status of an error answer.
    pub(crate) fn set_error_status(&mut self, status: u16) {
        self.status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }

    /// The field lines as they go on the wire, without the empty line behind them.
    pub(crate) fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// Names and values in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lines.split(|byte| *byte == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], &line[colon + 2..]))
        })
    }

    fn remove(&mut self, name: &str) {
        let mut at = 0;
        while at < self.lines.len() {
            let end =
                memchr::memchr(b'\n', &self.lines[at..]).map_or(self.lines.len(), |offset| at + offset + 1);
            let line = &self.lines[at..end];
            let is_it = line.len() > name.len()
                && line[name.len()] == b':'
                && line[..name.len()].eq_ignore_ascii_case(name.as_bytes());
            if is_it {
                self.lines.drain(at..end);
            } else {
                at = end;
            }
        }
    }

    fn append(&mut self, name: &str, value: &str) -> Result<()> {
        if !is_token(name) || !is_field_value(value) {
            return Err(Error::InvalidField);
        }
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value.as_bytes());
        self.lines.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// RFC 9110 §5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// RFC 9110 §5.5: no control characters (so no line can be smuggled in), no white space at the ends.
fn is_field_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
        && !value.starts_with([' ', '\t'])
        && !value.ends_with([' ', '\t'])
}

/// The response of an exchange, for the time of an expression.
#[derive(Debug)]
pub struct Response<'a> {
    core: &'a Core,
}

impl<'a> Response<'a> {
    pub(crate) fn new(core: &'a Core) -> Self {
        Response { core }
    }

    /// The status as it stands.
    pub fn status(&self) -> StatusCode {
        self.core.response.borrow().status
    }

    /// Sets the status. Ignored, and false, after commit.
    pub fn set_status(&mut self, status: StatusCode) -> bool {
        if self.check_open().is_err() {
            return false;
        }
        self.core.response.borrow_mut().status = status;
        true
    }

    /// Replaces all fields of this name.
    ///
    /// # Errors
    /// `Committed`, `Ended`, or `InvalidField` for a name or value that cannot stand in a head.
    pub fn set_header(&mut self, name: &str, value: &str) -> Result<()> {
        self.check_open()?;
        let mut head = self.core.response.borrow_mut();
        if !is_token(name) || !is_field_value(value) {
            return Err(Error::InvalidField);
        }
        head.remove(name);
        head.append(name, value)
    }

    /// Adds a field, beside others of its name.
    ///
    /// # Errors
    /// As [`Response::set_header`].
    pub fn append_header(&mut self, name: &str, value: &str) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().append(name, value)
    }

    /// Removes all fields of this name.
    ///
    /// # Errors
    /// `Committed` or `Ended`.
    pub fn remove_header(&mut self, name: &str) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().remove(name);
        Ok(())
    }

    /// Sets `Content-Type`.
    ///
    /// # Errors
    /// As [`Response::set_header`].
    pub fn set_content_type(&mut self, value: &str) -> Result<()> {
        self.set_header("Content-Type", value)
    }

    /// The first field of this name.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.core.response.borrow();
        let found = head.fields().find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// Whether the head is on its way.
    pub fn is_committed(&self) -> bool {
        self.core.state().committed
    }

    /// Forgets status, fields and body.
    ///
    /// # Errors
    /// `Committed` or `Ended`.
    pub fn reset(&mut self) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().reset();
        self.core.output.borrow_mut().clear_body();
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        self.core.check_live()?;
        if self.is_committed() { Err(Error::Committed) } else { Ok(()) }
    }
}
