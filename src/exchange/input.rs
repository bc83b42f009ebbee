//! The request body between the connection and the application: a bounded queue and the readiness rule (L-18).

use crate::error::{EndReason, Error, Result};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Received body bytes that the application has not taken.
#[derive(Debug)]
pub(crate) struct InputQueue {
    chunks: VecDeque<Bytes>,
    buffered: usize,
    /// The connection stops reading when so many bytes wait.
    window: usize,
    /// How much the whole body may be.
    limit: u64,
    received: u64,
    ended: bool,
    failed: Option<EndReason>,
    /// The reader has seen "not ready" and waits to be told (L-18).
    wanting: bool,
}

impl Default for InputQueue {
    fn default() -> Self {
        InputQueue {
            chunks: VecDeque::new(),
            buffered: 0,
            window: 0,
            limit: u64::MAX,
            received: 0,
            ended: true,
            failed: None,
            wanting: true,
        }
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
        self.chunks.clear();
        self.buffered = 0;
        self.window = window;
        self.limit = u64::MAX;
        self.received = 0;
        self.ended = !has_body;
        self.failed = None;
        self.wanting = true;
    }

    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.window = self.window.max(usize::try_from(limit).unwrap_or(usize::MAX).min(BUFFERED_WINDOW_MAX));
    }

    /// Adds received bytes. True when the reader waits and is to be told.
    pub(crate) fn push(&mut self, bytes: Bytes) -> Result<bool> {
        self.received += bytes.len() as u64;
        if self.received > self.limit {
            return Err(Error::BodyTooLarge { limit: self.limit });
        }
        if !bytes.is_empty() {
            self.buffered += bytes.len();
            self.chunks.push_back(bytes);
        }
        Ok(std::mem::take(&mut self.wanting))
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn fail(&mut self, reason: EndReason) {
        self.failed = Some(reason);
        self.chunks.clear();
        self.buffered = 0;
    }

    /// How many bytes the connection may still push before the reader has taken some.
    pub(crate) fn room(&self) -> usize {
        self.window.saturating_sub(self.buffered)
    }

    pub(crate) fn buffered(&self) -> usize {
        self.buffered
    }

    /// Whether the last byte has been received, taken or not.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether everything has been taken.
    pub(crate) fn is_consumed(&self) -> bool {
        self.ended && self.chunks.is_empty()
    }

    /// Whether `read` would not say "not ready". A "no" asks for one call of the read listener.
    pub(crate) fn is_ready(&mut self) -> bool {
        let ready = !self.chunks.is_empty() || self.ended || self.failed.is_some();
        self.wanting = !ready;
        ready
    }

    pub(crate) fn read(&mut self) -> Result<Read> {
        if let Some(reason) = self.failed {
            return Err(Error::Ended(reason));
        }
        if let Some(bytes) = self.chunks.pop_front() {
            self.buffered -= bytes.len();
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
        self.buffered = 0;
        if self.chunks.len() <= 1 {
            return self.chunks.pop_front().unwrap_or_default();
        }
        let mut whole = BytesMut::new();
        for chunk in self.chunks.drain(..) {
            whole.extend_from_slice(&chunk);
        }
        whole.freeze()
    }
}

/// A buffered body may wait whole, up to this.
const BUFFERED_WINDOW_MAX: usize = 64 * 1024 * 1024;
