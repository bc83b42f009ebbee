//! The response's head while it can still change, and the proxy with which an application changes it.

use super::core::Core;
use crate::{
    error::{Error, Result},
    http1::FieldLines,
};
use http::StatusCode;

/// Status and fields of a response. `http1::encode` makes bytes of it; a pooled exchange reuses its buffer.
#[derive(Debug)]
pub(crate) struct ResponseParts {
    pub(crate) status: StatusCode,
    pub(crate) fields: FieldLines,
    /// The length that the application promises for its content; `UNDECLARED` for none.
    declared_length: u64,
    /// The connection is another protocol's after this head, as the status says too.
    switched: bool,
}

/// No content is as long as this.
const UNDECLARED: u64 = u64::MAX;

impl Default for ResponseParts {
    fn default() -> Self {
        ResponseParts {
            status: StatusCode::OK,
            fields: FieldLines::default(),
            declared_length: UNDECLARED,
            switched: false,
        }
    }
}

impl ResponseParts {
    pub(crate) fn reset(&mut self) {
        self.status = StatusCode::OK;
        self.fields.clear();
        self.declared_length = UNDECLARED;
        self.switched = false;
    }

    /// The length that the application promises for its content.
    pub(crate) fn declared_length(&self) -> Option<u64> {
        (self.declared_length != UNDECLARED).then_some(self.declared_length)
    }

    /// Gives up an empty buffer.
    pub(super) fn trim(&mut self) {
        self.fields.trim();
    }

    /// Whether it ends HTTP on the connection.
    pub(crate) fn switches(&self) -> bool {
        self.switched
    }

    /// Nothing but octets follows the head: 101, or a 2xx to CONNECT.
    pub(super) fn switch(&mut self, status: StatusCode) {
        (self.status, self.switched) = (status, true);
    }

    /// The status of an error answer.
    pub(crate) fn set_error_status(&mut self, status: u16) {
        self.switched = false;
        self.status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }
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

    /// Sets the status. Ignored, and false, after commit, after `Exchange::upgrade` and `Exchange::open_tunnel`, and for
    /// 1xx: those are for `Exchange::send_interim` and `Exchange::upgrade`.
    pub fn set_status(&mut self, status: StatusCode) -> bool {
        let switched = self.core.response.borrow().switched;
        if status.is_informational() || switched || self.check_open().is_err() {
            return false;
        }
        self.core.response.borrow_mut().status = status;
        true
    }

    /// Replaces all fields of this name.
    ///
    /// # Errors
    /// `Committed`, `Ended`, or `InvalidField` for a name or value that cannot stand in a head.
    pub fn set_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().fields.set(name, value).map_err(|_| Error::InvalidField)
    }

    /// Adds a field, beside others of its name.
    ///
    /// # Errors
    /// As [`Response::set_header`].
    pub fn append_header(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().fields.append(name, value).map_err(|_| Error::InvalidField)
    }

    /// Replaces all fields by these, which were checked when they were made.
    ///
    /// # Errors
    /// `Committed` or `Ended`.
    pub fn set_fields(&mut self, fields: &FieldLines) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().fields.copy_from(fields);
        Ok(())
    }

    /// Removes all fields of this name; true if there was one.
    ///
    /// # Errors
    /// `Committed` or `Ended`.
    pub fn remove_header(&mut self, name: &str) -> Result<bool> {
        self.check_open()?;
        Ok(self.core.response.borrow_mut().fields.remove(name))
    }

    /// Sets `Content-Type`.
    ///
    /// # Errors
    /// As [`Response::set_header`].
    pub fn set_content_type(&mut self, value: &str) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().fields.set_content_type(value).map_err(|_| Error::InvalidField)
    }

    /// A copy of the first field of this name.
    pub fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.core.response.borrow().fields.get(name).map(<[u8]>::to_vec)
    }

    /// Promises so many bytes of content, where the length is known before the bytes are there. Content that
    /// turns out longer or shorter cuts the connection: the client must not take it for whole.
    ///
    /// # Errors
    /// `Committed` or `Ended`.
    pub fn set_content_length(&mut self, length: u64) -> Result<()> {
        self.check_open()?;
        self.core.response.borrow_mut().declared_length = length;
        Ok(())
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
