//! What an exchange has produced and the transport has not yet taken: a bounded queue of body chunks.
//!
//! The connection takes chunks from the front and reports what was accepted and what was acknowledged (L-20).
//! The slow-client policies (L-19) are applied here, at the moment of writing.

use crate::error::{EndReason, Error, Result};
use bytes::Bytes;
use std::{collections::VecDeque, rc::Rc};

/// Bytes of a response body.
#[derive(Debug, Clone)]
pub enum Chunk {
    /// Part of the program.
    Static(&'static [u8]),
    /// Shared, without a copy.
    Bytes(Bytes),
}

impl Chunk {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Static(bytes) => bytes,
            Chunk::Bytes(bytes) => bytes,
        }
    }

    /// Without a copy, as `Bytes`.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Chunk::Static(bytes) => Bytes::from_static(bytes),
            Chunk::Bytes(bytes) => bytes,
        }
    }
}

impl From<&'static str> for Chunk {
    fn from(text: &'static str) -> Self {
        Chunk::Static(text.as_bytes())
    }
}

impl From<&'static [u8]> for Chunk {
    fn from(bytes: &'static [u8]) -> Self {
        Chunk::Static(bytes)
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        Chunk::Bytes(bytes)
    }
}

impl From<String> for Chunk {
    fn from(text: String) -> Self {
        Chunk::Bytes(Bytes::from(text))
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Chunk::Bytes(Bytes::from(bytes))
    }
}

/// What happens when a client does not take what the application produces (L-19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlowClient {
    /// The application is told: `is_ready` turns false, `on_write_possible` fires later. The default.
    #[default]
    Backpressure,
    /// Messages that have not begun to leave are dropped, oldest first.
    DropOldest,
    /// A message replaces the waiting one with the same key (`write_keyed`).
    Coalesce,
    /// The exchange ends with `SlowClient`.
    Disconnect,
}

/// The three byte counts of a response (L-20), body bytes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteCounts {
    /// Produced by the application (dropped messages not counted).
    pub generated: u64,
    /// Taken by the transport.
    pub accepted: u64,
    /// Known by the kernel to have reached the peer.
    pub acknowledged: u64,
}

/// What writing did to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// Below the high water mark.
    Fits,
    /// The high water mark has been crossed by this write.
    Blocked,
}

#[derive(Debug)]
struct Piece {
    chunk: Chunk,
    key: Option<u64>,
}

/// The queue. Small writes go into `scratch` (one buffer that is kept), large ones are queued as they are.
#[derive(Debug)]
pub(crate) struct OutputQueue {
    /// Bytes before everything in `pieces`.
    scratch: Vec<u8>,
    /// What nothing small needs.
    pieces: Option<Box<Pieces>>,
    counts: ByteCounts,
    marks: Rc<WaterMarks>,
    policy: SlowClient,
    blocked: bool,
    finished: bool,
}

#[derive(Debug, Default)]
struct Pieces {
    queue: VecDeque<Piece>,
    /// Bytes in `queue`.
    bytes: usize,
    /// Messages that the policy has dropped.
    dropped: u64,
}

/// Bounds of an output queue, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaterMarks {
    /// From here on the writer is told to wait.
    pub high: usize,
    /// At or below this the writer may go on.
    pub low: usize,
    /// A write that would take the queue beyond this fails: the hard bound.
    pub limit: usize,
}

impl Default for WaterMarks {
    fn default() -> Self {
        WaterMarks { high: 64 * 1024, low: 16 * 1024, limit: 16 * 1024 * 1024 }
    }
}

impl OutputQueue {
    /// An empty queue; it allocates with the first write.
    pub(crate) fn new(marks: Rc<WaterMarks>) -> Self {
        OutputQueue {
            scratch: Vec::new(),
            pieces: None,
            counts: ByteCounts::default(),
            marks,
            policy: SlowClient::default(),
            blocked: false,
            finished: false,
        }
    }

    /// Makes the queue ready for another exchange. Buffers of ordinary size are kept.
    pub(crate) fn reset(&mut self, marks: &Rc<WaterMarks>) {
        self.scratch.clear();
        if self.scratch.capacity() > SCRATCH_KEPT_MAX {
            self.scratch = Vec::new();
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.queue.clear();
            pieces.bytes = 0;
            pieces.dropped = 0;
        }
        self.counts = ByteCounts::default();
        if !Rc::ptr_eq(&self.marks, marks) {
            self.marks = marks.clone();
        }
        self.policy = SlowClient::default();
        self.blocked = false;
        self.finished = false;
    }

    /// Gives up the memory that an empty queue keeps for the next exchange.
    pub(super) fn trim(&mut self) {
        if self.scratch.is_empty() {
            self.scratch = Vec::new();
        }
        self.pieces.take_if(|pieces| pieces.queue.is_empty() && pieces.dropped == 0);
    }

    fn clear_pieces(&mut self) {
        if let Some(pieces) = &mut self.pieces {
            pieces.queue.clear();
            pieces.bytes = 0;
        }
    }

    fn has_pieces(&self) -> bool {
        self.pieces.as_ref().is_some_and(|pieces| !pieces.queue.is_empty())
    }

    /// Throws away what has not left yet: before commit only.
    pub(crate) fn clear_body(&mut self) {
        self.scratch.clear();
        self.clear_pieces();
        self.counts.generated = self.counts.accepted;
        self.blocked = false;
    }

    /// Bytes in the queue.
    pub(crate) fn len(&self) -> usize {
        self.scratch.len() + self.pieces.as_ref().map_or(0, |pieces| pieces.bytes)
    }

    /// The counts.
    pub(crate) fn counts(&self) -> ByteCounts {
        self.counts
    }

    /// How many messages the slow-client policy has dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.pieces.as_ref().map_or(0, |pieces| pieces.dropped)
    }

    /// Whether the writer may go on.
    pub(crate) fn is_ready(&self) -> bool {
        !self.blocked
    }

    pub(crate) fn set_policy(&mut self, policy: SlowClient) {
        self.policy = policy;
    }

    pub(crate) fn set_marks(&mut self, marks: WaterMarks) {
        self.marks = Rc::new(marks);
    }

    /// Nothing more will be written.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// Appends a copy.
    pub(crate) fn write_copy(&mut self, bytes: &[u8]) -> Result<Wrote> {
        if !self.has_pieces() && self.scratch.len() + bytes.len() <= SCRATCH_BYTES_MAX {
            self.scratch.extend_from_slice(bytes);
            self.counts.generated += bytes.len() as u64;
            return Ok(self.wrote());
        }
        self.write_chunk(Chunk::Bytes(Bytes::copy_from_slice(bytes)), None)
    }

    /// Appends a chunk, without a copy unless it is small.
    pub(crate) fn write_chunk(&mut self, chunk: Chunk, key: Option<u64>) -> Result<Wrote> {
        let len = chunk.as_slice().len();
        if len == 0 {
            return Ok(Wrote::Fits);
        }
        if key.is_none()
            && len <= COPY_BYTES_MAX
            && !self.has_pieces()
            && self.policy == SlowClient::Backpressure
            && self.scratch.len() + len <= SCRATCH_BYTES_MAX
        {
            self.scratch.extend_from_slice(chunk.as_slice());
            self.counts.generated += len as u64;
            return Ok(self.wrote());
        }
        self.make_room(len, key)?;
        if self.len() + len > self.marks.limit {
            return Err(Error::LimitReached { limit: "output_bytes_max" });
        }
        self.counts.generated += len as u64;
        let pieces = self.pieces.get_or_insert_default();
        pieces.bytes += len;
        pieces.queue.push_back(Piece { chunk, key });
        Ok(self.wrote())
    }

    fn wrote(&mut self) -> Wrote {
        if !self.blocked && self.len() >= self.marks.high {
            self.blocked = true;
            return Wrote::Blocked;
        }
        Wrote::Fits
    }

    fn make_room(&mut self, len: usize, key: Option<u64>) -> Result<()> {
        match self.policy {
            SlowClient::Backpressure => {}
            SlowClient::DropOldest => {
                while self.len() + len > self.marks.high && self.has_pieces() {
                    self.drop_piece(0);
                }
            }
            SlowClient::Coalesce => {
                let waiting = self.pieces.iter().flat_map(|pieces| &pieces.queue);
                let at =
                    key.and_then(|key| waiting.map(|piece| piece.key).position(|known| known == Some(key)));
                if let Some(at) = at {
                    self.drop_piece(at);
                }
            }
            SlowClient::Disconnect => {
                if self.len() + len > self.marks.high {
                    return Err(Error::Ended(EndReason::SlowClient));
                }
            }
        }
        Ok(())
    }

    fn drop_piece(&mut self, at: usize) {
        let Some(pieces) = &mut self.pieces else { return };
        if let Some(piece) = pieces.queue.remove(at) {
            let len = piece.chunk.as_slice().len();
            pieces.bytes -= len;
            pieces.dropped += 1;
            self.counts.generated -= len as u64;
        }
    }

    /// Copies at most `max` bytes from the front into `out`: the way for small answers.
    pub(crate) fn take_into(&mut self, out: &mut Vec<u8>, max: usize) -> usize {
        let mut taken = 0;
        if !self.scratch.is_empty() && self.scratch.len() <= max {
            out.extend_from_slice(&self.scratch);
            taken = self.scratch.len();
            self.scratch.clear();
        }
        let Some(pieces) = &mut self.pieces else { return taken };
        while let Some(piece) = pieces.queue.front() {
            let bytes = piece.chunk.as_slice();
            if taken + bytes.len() > max {
                break;
            }
            out.extend_from_slice(bytes);
            taken += bytes.len();
            pieces.bytes -= bytes.len();
            pieces.queue.pop_front();
        }
        taken
    }

    /// Takes the chunk at the front, at most `max` bytes of it.
    pub(crate) fn take_chunk(&mut self, max: usize) -> Option<Chunk> {
        if !self.scratch.is_empty() {
            let rest = self.scratch.split_off(self.scratch.len().min(max));
            return Some(Chunk::Bytes(Bytes::from(std::mem::replace(&mut self.scratch, rest))));
        }
        let pieces = self.pieces.as_mut()?;
        let piece = pieces.queue.front_mut()?;
        let len = piece.chunk.as_slice().len();
        if len <= max {
            pieces.bytes -= len;
            return pieces.queue.pop_front().map(|piece| piece.chunk);
        }
        // What has begun to leave is no message of its own any more.
        piece.key = None;
        pieces.bytes -= max;
        Some(split_front(&mut piece.chunk, max))
    }

    /// The transport has taken `count` body bytes. True when the low water mark has been reached by it.
    pub(crate) fn note_accepted(&mut self, count: u64) -> bool {
        self.counts.accepted += count;
        debug_assert!(self.counts.accepted <= self.counts.generated, "accepted more than was generated");
        if self.blocked && self.len() <= self.marks.low {
            self.blocked = false;
            return true;
        }
        false
    }

    /// `count` bytes of the stream have been taken by the kernel and not acknowledged by the peer. Heads and frames
    /// are among them, so what follows is a lower bound: never more than is known.
    pub(crate) fn note_unacknowledged(&mut self, count: u64) {
        let known = self.counts.accepted.saturating_sub(count);
        self.counts.acknowledged = self.counts.acknowledged.max(known);
    }
}

fn split_front(chunk: &mut Chunk, at: usize) -> Chunk {
    match chunk {
        Chunk::Static(bytes) => {
            let (front, rest) = bytes.split_at(at);
            *bytes = rest;
            Chunk::Static(front)
        }
        Chunk::Bytes(bytes) => Chunk::Bytes(bytes.split_to(at)),
    }
}

/// Chunks up to this size are copied together.
const COPY_BYTES_MAX: usize = 4 * 1024;
/// So much is gathered before pieces are queued.
const SCRATCH_BYTES_MAX: usize = 64 * 1024;
/// A scratch buffer beyond this is not kept for the next exchange.
const SCRATCH_KEPT_MAX: usize = 16 * 1024;
