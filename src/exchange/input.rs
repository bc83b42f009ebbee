//! The request body between the connection and the application: a bounded queue and the readiness rule (L-18).

use crate::error::{EndReason, Error, Result};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Received body bytes that the application has not taken. Most requests have no body, and none of the inside.
#[derive(Debug)]
pub(crate) struct InputQueue {
    body: Option<Box<Body>>,
    ended: bool,
    failed: Option<EndReason>,
    /// The reader has seen "not ready" and waits to be told (L-18).
    wanting: bool,
}

#[derive(Debug)]
struct Body {
    chunks: VecDeque<Bytes>,
    buffered: usize,
    /// The connection stops reading when so many bytes wait.
    window: usize,
    /// How much the whole body may be.
    limit: u64,
    received: u64,
}

impl Default for InputQueue {
    fn default() -> Self {
        InputQueue { body: None, ended: true, failed: None, wanting: true }
    }
}

impl Body {
    fn new(window: usize) -> Box<Self> {
        Box::new(Body { chunks: VecDeque::new(), buffered: 0, window, limit: u64::MAX, received: 0 })
    }

    fn reset(&mut self, window: usize) {
        let Body { chunks, buffered, window: own_window, limit, received } = self;
        chunks.clear();
        (*buffered, *own_window, *limit, *received) = (0, window, u64::MAX, 0);
    }
}

/// What an attempt to read found.
#[derive(Debug)]
pub enum Read {
    /// Bytes of the body.
    Data(Bytes),
    /// Nothing now; the read listener will be told, once.
    NotReady,
    /// The body is over.
    End,
}

impl InputQueue {
    pub(crate) fn reset(&mut self, has_body: bool, window: usize) {
        match &mut self.body {
            Some(body) => body.reset(window),
            None if has_body => self.body = Some(Body::new(window)),
            None => {}
        }
        self.ended = !has_body;
        self.failed = None;
        self.wanting = true;
    }

    /// Gives up what a body needs, when there is none or it has been taken.
    pub(super) fn trim(&mut self) {
        if self.is_consumed() {
            self.body = None;
        }
    }

    /// Bounds the body, if there is one.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        if let Some(body) = &mut self.body {
            body.limit = limit;
        }
    }

    /// Makes room for the whole body, as far as it is bounded: nobody reads before it is there.
    pub(crate) fn widen(&mut self) {
        if let Some(body) = &mut self.body {
            let limit = usize::try_from(body.limit).unwrap_or(usize::MAX);
            body.window = body.window.max(limit.min(BUFFERED_WINDOW_MAX));
        }
    }

    /// Adds received bytes. True when the reader waits and is to be told.
    pub(crate) fn push(&mut self, bytes: Bytes) -> Result<bool> {
        let body = self.body.get_or_insert_with(|| Body::new(0));
        body.received += bytes.len() as u64;
        if body.received > body.limit {
            return Err(Error::BodyTooLarge { limit: body.limit });
        }
        if !bytes.is_empty() {
            body.buffered += bytes.len();
            body.chunks.push_back(bytes);
        }
        Ok(std::mem::take(&mut self.wanting))
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn fail(&mut self, reason: EndReason) {
        self.failed = Some(reason);
        if let Some(body) = &mut self.body {
            body.chunks.clear();
            body.buffered = 0;
        }
    }

    /// How many bytes the connection may still push before the reader has taken some.
    pub(crate) fn room(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.window.saturating_sub(body.buffered))
    }

    pub(crate) fn buffered(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.buffered)
    }

    fn is_empty(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.chunks.is_empty())
    }

    /// Whether the last byte has been received, taken or not.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether everything has been taken.
    pub(crate) fn is_consumed(&self) -> bool {
        self.ended && self.is_empty()
    }

    /// Whether `read` would not say "not ready". A "no" asks for one call of the read listener.
    pub(crate) fn is_ready(&mut self) -> bool {
        let ready = !self.is_empty() || self.ended || self.failed.is_some();
        self.wanting = !ready;
        ready
    }

    pub(crate) fn read(&mut self) -> Result<Read> {
        if let Some(reason) = self.failed {
            return Err(Error::Ended(reason));
        }
        if let Some(body) = &mut self.body
            && let Some(bytes) = body.chunks.pop_front()
        {
            body.buffered -= bytes.len();
            return Ok(Read::Data(bytes));
        }
        if self.ended {
            return Ok(Read::End);
        }
        self.wanting = true;
        Ok(Read::NotReady)
    }

    /// All that is buffered, in one piece.
    pub(crate) fn take_all(&mut self) -> Bytes {
        let Some(body) = &mut self.body else { return Bytes::new() };
        body.buffered = 0;
        if body.chunks.len() <= 1 {
            return body.chunks.pop_front().unwrap_or_default();
        }
        let mut whole = BytesMut::new();
        for chunk in body.chunks.drain(..) {
            whole.extend_from_slice(&chunk);
        }
        whole.freeze()
    }
}

/// A buffered body may wait whole, up to this.
const BUFFERED_WINDOW_MAX: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A route that allows long bodies still keeps no more than the window of one that is read as it comes.
    #[test]
    fn a_bound_opens_no_window() {
        let mut input = InputQueue::default();
        input.reset(true, 64);
        input.set_limit(1000);
        assert_eq!(input.room(), 64);
        input.widen();
        assert_eq!(input.room(), 1000);
        assert!(input.push(Bytes::from(vec![0; 1001])).is_err());
    }
}
