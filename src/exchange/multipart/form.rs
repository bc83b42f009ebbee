//! The decoder on an exchange, for handlers that await: parts and their content in the order in which they come. What is
//! not asked for is passed over; what waits is bounded by the exchange's input window.

use super::{MultipartDecoder, MultipartEvent, PART_BYTES, PartHead};
use crate::{
    error::{Error, Result},
    exchange::Exchange,
    limits::MultipartLimits,
};
use bytes::{Bytes, BytesMut};

/// A form on its way in: see [`Exchange::multipart`].
#[derive(Debug)]
pub struct Form {
    decoder: MultipartDecoder,
    /// Received and not decoded.
    input: Bytes,
    in_part: bool,
    ended: bool,
}

/// One part of a form. Dropped before its end, the rest of it is passed over.
#[derive(Debug)]
pub struct Part<'form> {
    form: &'form mut Form,
    head: PartHead,
}

impl Exchange {
    /// Reads the request's body as `multipart/form-data`, with the default limits. An error of the form that a handler
    /// returns is answered with 415 (another type), 413 (beyond a limit) or 400 (malformed).
    ///
    /// # Errors
    /// `UnsupportedMediaType` for another or a compressed content; `InvalidBody` without a valid boundary.
    pub fn multipart(&self) -> Result<Form> {
        self.multipart_within(MultipartLimits::DEFAULT)
    }

    /// As [`Exchange::multipart`], with limits of one's own.
    ///
    /// # Errors
    /// As [`Exchange::multipart`].
    pub fn multipart_within(&self, limits: MultipartLimits) -> Result<Form> {
        let head = self.request();
        let mut types = head.headers("content-type");
        let (Some(content_type), None, None) =
            (types.next(), types.next(), head.headers("content-encoding").next())
        else {
            return Err(Error::UnsupportedMediaType);
        };
        let decoder = MultipartDecoder::for_content_type(content_type, limits)?;
        Ok(Form { decoder, input: Bytes::new(), in_part: false, ended: false })
    }
}

impl Form {
    /// The next part, or `None` when the form has been read to the end of the body. `x` is the exchange it came from.
    ///
    /// # Errors
    /// `InvalidBody`; `LimitReached`; as [`Exchange::read`].
    pub async fn next_part(&mut self, x: &mut Exchange) -> Result<Option<Part<'_>>> {
        while let Some(event) = self.next_event(x).await? {
            if let MultipartEvent::Part(head) = event {
                return Ok(Some(Part { form: self, head }));
            }
        }
        Ok(None)
    }

    async fn next_event(&mut self, x: &mut Exchange) -> Result<Option<MultipartEvent>> {
        while !self.ended {
            match self.decoder.decode(&mut self.input)? {
                MultipartEvent::NeedMore => match x.next_chunk().await? {
                    Some(bytes) => self.input = bytes,
                    None => {
                        self.decoder.finish()?;
                        self.ended = true;
                    }
                },
                event => {
                    match event {
                        MultipartEvent::Part(_) => self.in_part = true,
                        MultipartEvent::PartEnd => self.in_part = false,
                        _ => {}
                    }
                    return Ok(Some(event));
                }
            }
        }
        Ok(None)
    }
}

impl Part<'_> {
    /// What the client says about it.
    pub fn head(&self) -> &PartHead {
        &self.head
    }

    /// The name of the form's field.
    pub fn name(&self) -> &str {
        self.head.name()
    }

    /// The file's name as the client gives it, never to be trusted as a path.
    pub fn filename(&self) -> Option<&str> {
        self.head.filename()
    }

    /// The next bytes of the content, or `None` at its end.
    ///
    /// # Errors
    /// As [`Form::next_part`].
    pub async fn chunk(&mut self, x: &mut Exchange) -> Result<Option<Bytes>> {
        while self.form.in_part {
            if let Some(MultipartEvent::Data(bytes)) = self.form.next_event(x).await? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// The rest of the content in one piece, which must not have more than `limit` bytes.
    ///
    /// # Errors
    /// `LimitReached` beyond it; as [`Form::next_part`].
    pub async fn collect(&mut self, x: &mut Exchange, limit: usize) -> Result<Bytes> {
        let mut whole = BytesMut::new();
        while let Some(bytes) = self.chunk(x).await? {
            if whole.len() + bytes.len() > limit {
                return Err(Error::LimitReached { limit: PART_BYTES });
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole.freeze())
    }
}
