//! Answers as bytes, in the order of the requests: heads and content are gathered and leave with one send in
//! flight. A batch of pipelined answers is one buffer.
//!
//! An answer counts as accepted when the kernel has taken its last byte, not earlier (L-20).

use super::{
    Closing, Connection, Service,
    pipeline::{InFlight, Sequel},
};
use crate::{
    error::EndReason,
    exchange::{
        Chunk,
        seam::{OutputQueue, ResponseParts},
    },
    http1::{self, Asked, Content, ContentFrame, FieldLines, Reject, ResponseHead},
};
use bytes::Bytes;
use shards::{
    Key,
    net::{Outgoing, Sent, Vectored},
};

/// What waits to be sent on a connection, behind the send that is in flight.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) head: Vec<u8>,
    /// What did not fit behind the head: mostly nothing.
    rest: Option<Box<Rest>>,
    sending: bool,
    /// The refusal that is the last answer, and whether a HEAD was refused.
    refusal: Option<(Reject, bool)>,
}

/// Content that is sent from where it is.
#[derive(Debug, Default)]
struct Rest {
    pieces: Vec<Bytes>,
    /// Small pieces behind the last large one are gathered here.
    tail: Vec<u8>,
    /// All of it, in bytes.
    bytes: usize,
}

impl Rest {
    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }
}

impl Output {
    pub(super) fn is_sending(&self) -> bool {
        self.sending
    }

    pub(super) fn len(&self) -> usize {
        self.head.len() + self.rest.as_ref().map_or(0, |rest| rest.bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether an answer may be put right behind what waits.
    pub(super) fn takes_answer(&self, bound: usize) -> bool {
        self.rest.is_none() && self.refusal.is_none() && self.head.len() < bound
    }

    pub(super) fn owe_refusal(&mut self, reject: Reject, to_head: bool) {
        self.refusal = Some((reject, to_head));
    }

    pub(super) fn forget_refusal(&mut self) {
        self.refusal = None;
    }

    /// Encodes bytes behind everything that waits.
    fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        match &mut self.rest {
            None => encode(&mut self.head),
            Some(rest) => {
                let before = rest.tail.len();
                encode(&mut rest.tail);
                rest.bytes += rest.tail.len() - before;
            }
        }
    }

    fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            let rest = self.rest.get_or_insert_default();
            rest.end_tail();
            rest.bytes += bytes.len();
            rest.pieces.push(bytes);
        }
    }

    fn append_content(&mut self, content: Chunk) {
        if content.as_slice().len() <= COPY_BYTES_MAX {
            self.append(|out| out.extend_from_slice(content.as_slice()));
        } else {
            self.push(content.into_bytes());
        }
    }

    fn take(&mut self) -> Outgoing {
        let head = std::mem::take(&mut self.head);
        match self.rest.take() {
            None => Outgoing::Vec(head),
            Some(mut rest) => {
                rest.end_tail();
                Outgoing::Vectored(Box::new(Vectored { head, rest: rest.pieces }))
            }
        }
    }
}

impl Service {
    /// Moves everything on that can move: answers into the output, the output to the socket, held bytes to their
    /// exchanges.
    #[inline]
    pub(super) fn advance(&self, connection: &mut Connection) {
        self.encode(connection);
        while !connection.held.is_empty() || connection.paused {
            let before = (connection.held.len(), connection.paused);
            self.consume_held(connection);
            self.encode(connection);
            if (connection.held.len(), connection.paused) == before {
                break;
            }
        }
        self.finish_if_due(connection);
        self.send(connection);
        if connection.output.is_empty() && !connection.output.sending && connection.pipeline.is_empty() {
            let actions = connection.cycle.output_flushed();
            self.perform(connection, actions);
        }
    }

    /// Puts answers into the output, oldest first, as far as they go and as the bound allows.
    #[inline]
    pub(super) fn encode(&self, connection: &mut Connection) {
        while connection.output.len() < self.limits.output_high_water_bytes {
            let Connection { pipeline, output, .. } = connection;
            let Some(entry) = pipeline.answering() else { break };
            if entry.sequel == Sequel::GivenUp {
                self.end_unanswered(connection);
                break;
            }
            if std::mem::take(&mut entry.owes_continue) {
                output.append(http1::encode::encode_continue);
            }
            let exchange = entry.exchange;
            if entry.frame.is_none() {
                for (status, fields) in self.exchanges.take_interims(exchange) {
                    output.append(|out| {
                        _ = http1::encode::encode_interim(out, status, &fields, entry.reply.version);
                    });
                }
            }
            if !(entry.finished || entry.flush) || !self.encode_entry(connection) {
                break;
            }
            self.end_plain(connection, exchange);
        }
        self.encode_refusal(connection);
    }

    /// The request whose turn it is will not be answered, nor those behind it.
    fn end_unanswered(&self, connection: &mut Connection) {
        let entry = connection.pipeline.answering().expect("the caller saw it");
        let (exchange, sequence, pending) = (entry.exchange, entry.sequence, entry.take_pending());
        connection.pipeline.remove(exchange);
        let actions = connection.cycle.answer_ended(false);
        self.perform(connection, actions);
        if let Some(pending) = pending {
            self.log_answer(connection, &pending, false);
        }
        self.drop_behind(connection, sequence);
    }

    /// An exchange that nobody listens to ends when its answer is in the output.
    fn end_plain(&self, connection: &mut Connection, exchange: Key) {
        let Some(entry) = connection.pipeline.find(exchange) else { return };
        if entry.leaving == 0 && self.exchanges.end_plain(exchange, entry.unsent) {
            connection.pipeline.remove(exchange);
            self.drive(connection, exchange);
        }
    }

    /// The refusal of the last request, once everything before it is in the output.
    fn encode_refusal(&self, connection: &mut Connection) {
        if connection.output.refusal.is_none() || connection.pipeline.answering().is_some() {
            return;
        }
        let Some((reject, to_head)) = connection.output.refusal.take() else { return };
        let received: &[u8] = if to_head { b"HEAD " } else { b"" };
        let template = self.template.borrow();
        connection.output.append(|out| template.encode_reject(out, reject, received));
        let actions = connection.cycle.answer_ended(false);
        self.perform(connection, actions);
    }

    /// The head of the answering exchange, unless it is there already.
    fn begin_answer(&self, connection: &mut Connection) {
        let newest_unread = connection.body.as_ref().map_or(Some(0), |body| body.unread());
        let Connection { pipeline, output, cycle, held, .. } = connection;
        let entry = pipeline.answering().expect("the caller saw it");
        entry.flush = false;
        self.lend_buffer(output);
        if entry.frame.is_none() {
            let strays = entry.reply.asked == Asked::Connect && !held.is_empty();
            entry.reply.persistent =
                entry.sequel == Sequel::Open && cycle.may_persist(entry.sequence, newest_unread) && !strays;
            self.encode_head(entry, output);
            if entry.frame == Some(ContentFrame::Tunnel) {
                self.switch_protocol(connection);
            }
        }
    }

    /// Encodes what the answering exchange has. True when that answer is whole.
    fn encode_entry(&self, connection: &mut Connection) -> bool {
        self.begin_answer(connection);
        let Connection { pipeline, output, cycle, .. } = connection;
        let entry = pipeline.answering().expect("the caller saw it");
        let bound = self.limits.output_high_water_bytes;
        let exchange = entry.exchange;
        let trailers = self.trailers_of(entry);
        let encode = |_: &ResponseParts, queue: &mut OutputQueue| {
            let encoded = encode_content(entry, output, queue, bound, &trailers);
            // What the bound left behind was asked to leave too: it follows when the output has room.
            entry.flush = queue.len() > 0;
            encoded
        };
        match self.exchanges.with_output(exchange, encode) {
            Some(Encoded::Whole) => {}
            Some(Encoded::Part) => return false,
            // Less content than announced, or the exchange is gone before its end: the client must see the cut.
            Some(Encoded::Broken) | None => {
                connection.closing = Closing::Reset;
                return false;
            }
        }
        entry.encoded = true;
        let pending = entry.take_pending();
        let (sequence, persistent) = (entry.sequence, entry.reply.persistent);
        let actions = cycle.answer_ended(persistent);
        if sequence + 1 == cycle.taken() {
            // Bytes behind an Upgrade are requests after all.
            let _ = cycle.hold_next(false);
        }
        self.perform(connection, actions);
        if let Some(pending) = pending {
            self.log_answer(connection, &pending, true);
        }
        if !persistent {
            self.drop_behind(connection, sequence);
        }
        true
    }

    /// The trailers that the answer ends with, for a client that takes them.
    fn trailers_of(&self, entry: &InFlight) -> FieldLines {
        if entry.finished && entry.reply.accepts_trailers {
            return self.exchanges.response_trailers(entry.exchange);
        }
        FieldLines::new()
    }

    /// Gives the output a buffer of the pool if it has none.
    #[inline]
    pub(super) fn lend_buffer(&self, output: &mut Output) {
        if output.head.capacity() == 0
            && let Some(buffer) = self.buffers.borrow_mut().pop()
        {
            output.head = buffer;
        }
    }

    fn encode_head(&self, entry: &mut InFlight, output: &mut Output) {
        let template = self.template.borrow();
        let finished = entry.finished;
        let reply = entry.reply;
        let has_trailers = !self.trailers_of(entry).is_empty();
        let announced = self.exchanges.with_output(entry.exchange, |parts, queue| {
            let content = match (finished, parts.declared_length()) {
                _ if parts.switches() => Content::Tunnel,
                (_, Some(length)) => Content::Length(length),
                (true, None) if !has_trailers => Content::Length(queue.len() as u64),
                (_, None) => Content::Stream,
            };
            let head = ResponseHead { status: parts.status.as_u16(), fields: &parts.fields, content };
            let mut announced = None;
            output.append(|out| announced = Some(template.encode_head(out, &head, reply)));
            announced.expect("append calls its encoder")
        });
        let Some(announced) = announced else { return };
        entry.frame = Some(announced.frame);
        if let Some(pending) = &mut entry.pending {
            pending.status =
                self.exchanges.with_output(entry.exchange, |parts, _| parts.status.as_u16()).unwrap_or(0);
        }
        entry.reply.persistent = announced.persistent;
        if let ContentFrame::Length(length) = announced.frame {
            entry.length_left = length;
        }
        self.exchanges.head_committed(entry.exchange);
    }

    /// Sends what waits, unless a send is in flight.
    fn send(&self, connection: &mut Connection) {
        if connection.output.sending {
            return;
        }
        if connection.output.is_empty() {
            return self.end_without_bytes(connection);
        }
        for entry in connection.pipeline.iter_mut() {
            entry.leaving = std::mem::take(&mut entry.unsent);
            entry.leaving_whole = entry.encoded;
        }
        connection.output.sending = true;
        let outgoing = connection.output.take();
        connection.socket.send(outgoing);
    }

    /// An answer whose end brings no byte of its own, after its last byte has left: nothing is waited for.
    fn end_without_bytes(&self, connection: &mut Connection) {
        let Some(entry) = connection.pipeline.front().filter(|entry| entry.encoded) else { return };
        entry.leaving_whole = true;
        self.account_sent(connection);
    }

    /// The kernel has taken everything that was sent, or failed.
    pub(super) fn sent(&self, connection: &mut Connection, sent: Sent) {
        self.counters.bytes_out(sent.bytes);
        if connection.carries_connect() {
            connection.moved += sent.bytes as u64;
        }
        self.reuse(connection, sent.buffer);
        if sent.result.is_err() {
            // The send counts as under way for ever: what is queued behind the lost bytes would be read in their place.
            connection.closing = Closing::Reset;
            return self.end_exchanges(connection, EndReason::ClientReset);
        }
        connection.output.sending = false;
        self.account_sent(connection);
        if connection.pipeline.is_empty() && connection.output.is_empty() {
            // Idle: nothing is held.
            let buffer = std::mem::take(&mut connection.output.head);
            self.pool(buffer);
        }
    }

    /// Tells the exchanges what was accepted; those whose last byte was among it are over.
    fn account_sent(&self, connection: &mut Connection) {
        while let Some(entry) = connection.pipeline.front() {
            let (exchange, accepted, whole) =
                (entry.exchange, std::mem::take(&mut entry.leaving), entry.leaving_whole);
            if accepted > 0 {
                self.exchanges.accepted(exchange, accepted);
            }
            if whole {
                self.exchanges.output_finished(exchange);
            }
            self.drive(connection, exchange);
            if !whole {
                return;
            }
            connection.pipeline.pop_front();
        }
    }

    fn reuse(&self, connection: &mut Connection, buffer: Outgoing) {
        let mut head = match buffer {
            Outgoing::Vec(head) => head,
            Outgoing::Vectored(parts) => parts.head,
            Outgoing::Bytes(_) => return,
        };
        head.clear();
        if connection.output.head.capacity() == 0 {
            connection.output.head = head;
        } else {
            self.pool(head);
        }
    }

    fn pool(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if (1..=POOLED_BYTES_MAX).contains(&buffer.capacity()) && buffers.len() < POOLED_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

enum Encoded {
    /// The answer is whole.
    Whole,
    /// More is to come.
    Part,
    /// It cannot become what was announced.
    Broken,
}

/// Moves content from the exchange's queue into the output, in the announced frame.
fn encode_content(
    entry: &mut InFlight,
    output: &mut Output,
    queue: &mut OutputQueue,
    bound: usize,
    trailers: &FieldLines,
) -> Encoded {
    let frame = entry.frame.expect("the head is encoded before its content");
    if let (ContentFrame::Length(_), true) = (frame, output.rest.is_none()) {
        // Small answers: one copy behind the head.
        let taken = queue.take_into(&mut output.head, COPY_BYTES_MAX.min(entry.length_left as usize)) as u64;
        entry.length_left -= taken;
        entry.unsent += taken;
        if let Some(pending) = &mut entry.pending {
            pending.bytes += taken;
        }
    }
    while output.len() < bound {
        let Some(chunk) = queue.take_chunk(CHUNK_BYTES_MAX) else { break };
        let len = chunk.as_slice().len() as u64;
        entry.unsent += len;
        if let Some(pending) = &mut entry.pending {
            pending.bytes += len;
        }
        match frame {
            ContentFrame::None => {}
            ContentFrame::Length(_) if len > entry.length_left => return Encoded::Broken,
            ContentFrame::Length(_) => {
                entry.length_left -= len;
                output.append_content(chunk);
            }
            ContentFrame::UntilClose | ContentFrame::Tunnel => output.append_content(chunk),
            ContentFrame::Chunked => {
                output.append(|out| http1::encode::encode_chunk_size(out, len));
                output.append_content(chunk);
                output.append(|out| out.extend_from_slice(b"\r\n"));
            }
        }
    }
    match (queue.len(), entry.finished) {
        (0, true) if frame == ContentFrame::Chunked => {
            output.append(|out| http1::encode::encode_last_chunk(out, trailers));
            Encoded::Whole
        }
        (0, true) if entry.length_left > 0 => Encoded::Broken,
        (0, true) => Encoded::Whole,
        _ => Encoded::Part,
    }
}

/// Content up to this size is copied behind the head: one piece is sent faster than two.
const COPY_BYTES_MAX: usize = 4 * 1024;

/// Most content that is taken from a queue at once. It is in memory already, so one large send holds no more of it
/// than many small ones, and costs a fraction of the system calls.
const CHUNK_BYTES_MAX: usize = 512 * 1024;

/// A buffer with more capacity is given back to the allocator.
const POOLED_BYTES_MAX: usize = 64 * 1024;

/// Buffers that are kept for the next answers.
const POOLED_MAX: usize = 256;
