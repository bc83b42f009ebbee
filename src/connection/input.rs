//! Received bytes: heads become exchanges, content goes to the exchange it belongs to.

use super::{Closing, Connection, Service, dispatch::Target, pipeline::InFlight, plain::Plain};
use crate::{
    error::{EndReason, Error},
    exchange::{
        Trailer,
        seam::{Begin, HeadHolder, Loan, Received},
    },
    http1::{
        self, BodyDecoder, BodyEvent, BodyKind, ContentFrame, Head, Method, Parsed, Phase, Reject, ReplyTo,
        body::BodyLimits,
    },
    routing::HalfClose,
};
use bytes::Bytes;
use shards::{Key, Lease, net::ReceiveEnd};

impl Service {
    /// Bytes arrived.
    #[inline]
    pub(super) fn received(&self, connection: &mut Connection, lease: Lease) {
        self.counters.bytes_in(lease.len());
        let bytes = if connection.held.is_empty() {
            Received::Lease(lease)
        } else {
            connection.held.extend_from_slice(&lease);
            Received::gathered(std::mem::take(&mut connection.held))
        };
        self.consume(connection, bytes);
    }

    /// Uses what can be used of the bytes and keeps the rest. The bytes stay in the shard's loan all the way: one batch
    /// of pipelined requests moves them once.
    fn consume(&self, connection: &mut Connection, bytes: Received) {
        let mut loan = self.loan.take().unwrap_or_default();
        loan.bytes = bytes;
        while !loan.bytes.is_empty() && connection.closing == Closing::No {
            let before = loan.bytes.len();
            match connection.cycle.phase() {
                Phase::Idle | Phase::Head if self.may_begin(connection) => {
                    loan = self.take_head(connection, loan);
                }
                Phase::Idle | Phase::Head => break,
                Phase::Body | Phase::LastBody | Phase::Drain => {
                    self.take_content(connection, &mut loan.bytes);
                }
                Phase::Stopped | Phase::Linger => {
                    let actions = connection.cycle.discarded(before as u64);
                    loan.bytes = Received::empty();
                    self.perform(connection, actions);
                }
                Phase::Closed => loan.bytes = Received::empty(),
            }
            if loan.bytes.len() == before {
                break;
            }
        }
        let rest = std::mem::take(&mut loan.bytes);
        self.loan.set(Some(loan));
        self.keep(connection, rest);
    }

    fn may_begin(&self, connection: &Connection) -> bool {
        connection.cycle.may_take_request() && connection.pipeline.allows_another()
    }

    /// Keeps bytes for later. Beyond the bound receiving stops: the peer's bytes then wait in its own socket.
    fn keep(&self, connection: &mut Connection, bytes: Received) {
        if bytes.is_empty() {
            return;
        }
        connection.held = bytes.into_vec();
        if connection.held.len() >= self.limits.input_bytes_max {
            self.pause(connection);
        }
    }

    fn pause(&self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.paused, true) {
            connection.socket.stop_receiving();
        }
    }

    /// Goes on with bytes that had to wait, as far as that is possible now.
    pub(super) fn consume_held(&self, connection: &mut Connection) {
        if connection.held.is_empty() || connection.closing != Closing::No {
            return self.resume(connection);
        }
        let able = match connection.cycle.phase() {
            Phase::Idle => self.may_begin(connection),
            Phase::Body | Phase::LastBody => self.has_room(connection),
            Phase::Drain | Phase::Stopped | Phase::Linger => true,
            Phase::Head | Phase::Closed => false,
        };
        if able {
            let held = Received::gathered(std::mem::take(&mut connection.held));
            self.consume(connection, held);
        }
        self.resume(connection);
    }

    fn resume(&self, connection: &mut Connection) {
        let room = connection.held.len() < self.limits.input_bytes_max;
        let wanted = match connection.cycle.phase() {
            Phase::Body | Phase::LastBody => self.has_room(connection),
            _ => true,
        };
        if connection.paused && room && wanted && !connection.peer_finished {
            connection.paused = false;
            connection.socket.start_receiving();
        }
    }

    fn has_room(&self, connection: &mut Connection) -> bool {
        connection.pipeline.newest().is_none_or(|entry| self.exchanges.input_room(entry.exchange) > 0)
    }

    fn take_head(&self, connection: &mut Connection, mut loan: Box<Loan>) -> Box<Loan> {
        let Loan { bytes, head_len, index } = &mut *loan;
        match http1::parse_resumable(&mut connection.scan, bytes, index, &self.limits) {
            Ok(Parsed::Complete { head_len: len }) => {
                *head_len = len;
                return self.begin(connection, loan);
            }
            Ok(Parsed::Partial) => {
                let actions = connection.cycle.head_began();
                self.perform(connection, actions);
            }
            Err(reject) => {
                self.refuse_with(connection, reject, bytes);
                loan.bytes = Received::empty();
            }
        }
        loan
    }

    /// A head is complete: its exchange begins, and its handler runs if nothing keeps it.
    fn begin(&self, connection: &mut Connection, mut loan: Box<Loan>) -> Box<Loan> {
        let head = Head::new(&loan.bytes[..loan.head_len], &loan.index);
        let mut framing = head.framing();
        let target = self.target(head, None);
        let route = target.route();
        if framing.asks_tunnel {
            // RFC 9931: what follows a refused CONNECT is read by nobody, unless the application knows its clients.
            let keeps = route.is_some_and(|route| route.keep_refused) && loan.bytes.len() == loan.head_len;
            framing.keep_alive &= keeps;
        }
        let limit = route.and_then(|route| route.body_bytes_max);
        if framing.body == BodyKind::None {
            connection.body = None;
        } else if let Err(reject) = self.begin_body(connection, framing.body, limit) {
            self.refuse_with(connection, reject, &loan.bytes);
            loan.bytes = Received::empty();
            return loan;
        }
        let sequence = connection.cycle.taken();
        let actions = match framing.asks_tunnel {
            false => connection.cycle.request_taken(framing),
            true => connection.cycle.connect_taken(framing),
        };
        if head.upgrade().is_some() {
            // Until it is answered nobody knows in which protocol the next byte is (RFC 9110 §7.8).
            let _ = connection.cycle.hold_next(true);
        }
        let reply = ReplyTo::new(head, true);
        if self.is_plain(connection, &target, framing) {
            let head_len = loan.head_len;
            let mut loan = self.serve_plain(connection, loan, Plain { target, reply, sequence });
            loan.bytes.advance(head_len);
            self.perform(connection, actions);
            return loan;
        }
        // What is refused by its method is not waited for and has nothing to be coordinated: no 100 precedes a 405.
        let served = route.filter(|_| matches!(target, Target::Handler(..)));
        let wait = served.map_or_else(Default::default, |route| route.wait);
        let exchange = self.exchanges.begin(Begin {
            owner: connection.key.to_u64(),
            coordinated: served.is_some_and(|route| route.make_coordinator.is_some()),
            has_body: framing.body != BodyKind::None,
            wait,
            expects_continue: framing.expects_continue,
            sync_only: route.and_then(|route| route.sync_only),
            hush_client_gone: route.is_some_and(|route| route.hush_client_gone),
        });
        if let Some(limit) = limit.filter(|_| framing.body != BodyKind::None) {
            self.exchanges.set_body_limit(exchange, limit, wait);
        }
        let is_safe = is_safe(head);
        let mut entry = InFlight::new(exchange, sequence, reply, is_safe, target);
        entry.pending = self.note_request(head);
        connection.pipeline.push(entry);
        let HeadHolder::Loan(mut loan) = self.drive_lending(connection, exchange, HeadHolder::Loan(loan))
        else {
            unreachable!("a loan comes back")
        };
        let head_len = loan.head_len;
        loan.bytes.advance(head_len);
        self.perform(connection, actions);
        loan
    }

    /// HTTP is over on this connection: what follows the newest request goes to its exchange as it is.
    pub(super) fn switch_protocol(&self, connection: &mut Connection) {
        let actions = connection.cycle.switched();
        if connection.cycle.phase() != Phase::LastBody
            || self.begin_body(connection, BodyKind::Tunnel, None).is_err()
        {
            // The connection's end had been announced before: what the client has sent since is lost.
            connection.closing = Closing::Reset;
        }
        self.perform(connection, actions);
    }

    fn begin_body(
        &self,
        connection: &mut Connection,
        kind: BodyKind,
        limit: Option<u64>,
    ) -> Result<(), Reject> {
        let mut decoder = Box::new(BodyDecoder::new(BodyLimits::from(&self.limits)));
        decoder.begin(kind, limit.unwrap_or(self.limits.body_bytes_max))?;
        connection.body = Some(decoder);
        Ok(())
    }

    /// Decodes content: into the exchange's queue, or away.
    fn take_content(&self, connection: &mut Connection, bytes: &mut Received) {
        let discard = connection.cycle.phase() == Phase::Drain;
        if !discard && !self.has_room(connection) {
            return self.pause(connection);
        }
        let decoder = connection.body.as_mut().expect("a body that is read has a decoder");
        match decoder.decode(bytes) {
            Ok((used, BodyEvent::Data(range))) => {
                connection.moved += range.len() as u64;
                let is_last = decoder.is_ended();
                if discard {
                    let actions = connection.cycle.discarded(range.len() as u64);
                    self.perform(connection, actions);
                    bytes.advance(used);
                } else {
                    connection.cycle.content_received();
                    let content = cut_out(bytes, range, used);
                    self.give_content(connection, content);
                }
                if is_last {
                    self.content_ended(connection);
                }
            }
            Ok((used, BodyEvent::NeedMore)) => bytes.advance(used),
            Ok((used, BodyEvent::End)) => {
                self.content_ended(connection);
                bytes.advance(used);
            }
            Err(reject) => {
                self.count_reject(reject);
                self.fail_body_with(connection, reject);
                *bytes = Received::empty();
            }
        }
    }

    fn give_content(&self, connection: &mut Connection, content: Bytes) {
        let Some(entry) = connection.pipeline.newest() else { return };
        let exchange = entry.exchange;
        if let Err(Error::BodyTooLarge { .. }) = self.exchanges.input(exchange, content) {
            self.count_reject(Reject::BodyTooLarge);
            return self.fail_body_with(connection, Reject::BodyTooLarge);
        }
        self.drive(connection, exchange);
    }

    fn content_ended(&self, connection: &mut Connection) {
        let trailers = connection.body.take().map(|body| received_trailers(&body)).unwrap_or_default();
        let newest = connection.pipeline.newest().map(|entry| entry.exchange);
        let actions = connection.cycle.content_ended();
        if let Some(exchange) = newest {
            self.exchanges.set_trailers(exchange, trailers);
            self.exchanges.input_ended(exchange);
            self.drive(connection, exchange);
        }
        self.perform(connection, actions);
    }

    /// The newest request's content is broken.
    fn fail_body_with(&self, connection: &mut Connection, reject: Reject) {
        if let Some(entry) = connection.pipeline.newest() {
            self.exchanges.set_failure_status(entry.exchange, reject.status());
        }
        self.fail_body(connection, EndReason::ProtocolError);
    }

    /// The newest request's content will never be complete, for this reason.
    pub(super) fn fail_body(&self, connection: &mut Connection, reason: EndReason) {
        let actions = connection.cycle.refused();
        let newest = connection.pipeline.newest().map(|entry| entry.exchange);
        connection.body = None;
        if let Some(exchange) = newest {
            self.exchanges.input_failed(exchange, reason);
            self.drive(connection, exchange);
        }
        self.perform(connection, actions);
    }

    /// Refuses what stands where a head should stand.
    pub(super) fn refuse(&self, connection: &mut Connection, reject: Reject) {
        let held = std::mem::take(&mut connection.held);
        self.refuse_with(connection, reject, &held);
    }

    fn refuse_with(&self, connection: &mut Connection, reject: Reject, received: &[u8]) {
        self.count_reject(reject);
        let actions = connection.cycle.refused();
        if actions.contains(http1::Actions::ANSWER_REFUSAL) {
            connection
                .output
                .owe_refusal(reject, received.starts_with(b"HEAD ") || received.starts_with(b"\r\nHEAD "));
        }
        self.perform(connection, actions);
    }

    /// Nothing more will be received.
    pub(super) fn receive_ended(&self, connection: &mut Connection, end: &ReceiveEnd) {
        match end {
            ReceiveEnd::Finished => self.peer_finished(connection),
            ReceiveEnd::Failed(_) => {
                let actions = connection.cycle.broken();
                self.end_exchanges(connection, EndReason::ClientReset);
                self.perform(connection, actions);
                connection.closing = Closing::Reset;
            }
        }
    }

    fn peer_finished(&self, connection: &mut Connection) {
        connection.peer_finished = true;
        connection.finish_due = true;
        self.abort_on_finish(connection);
        self.finish_if_due(connection);
    }

    /// Tells the cycle that the peer has finished, once all that came before it has been used: requests beyond the
    /// bound are complete, and are answered (RFC 9112 §9.6).
    pub(super) fn finish_if_due(&self, connection: &mut Connection) {
        let waits = match connection.cycle.phase() {
            // A tunnel may be about to be opened: the peer's end is then the end of what it carries.
            Phase::Idle if connection.cycle.is_holding() => true,
            Phase::Idle | Phase::Body | Phase::LastBody => !connection.held.is_empty(),
            _ => false,
        };
        if !connection.finish_due || waits || connection.closing != Closing::No {
            return;
        }
        connection.finish_due = false;
        if connection.cycle.phase() == Phase::Head {
            self.refuse(connection, Reject::Truncated);
        }
        if connection.is_tunnel() {
            self.content_ended(connection);
        }
        let had_body = matches!(connection.cycle.phase(), Phase::Body | Phase::LastBody);
        let actions = connection.cycle.peer_finished();
        if had_body && let Some(entry) = connection.pipeline.newest() {
            let exchange = entry.exchange;
            self.exchanges.input_failed(exchange, EndReason::ClientClosed);
            self.drive(connection, exchange);
        }
        self.abort_on_finish(connection);
        self.perform(connection, actions);
        self.encode(connection);
    }

    pub(super) fn abort_on_finish(&self, connection: &mut Connection) {
        for exchange in connection.pipeline.live() {
            if self.aborts_on_finish(connection, exchange) {
                self.exchanges.peer_finished(exchange);
                self.drive(connection, exchange);
            }
        }
    }

    fn aborts_on_finish(&self, connection: &mut Connection, exchange: Key) -> bool {
        let Some(entry) = connection.pipeline.find(exchange) else { return false };
        let tolerated = entry.target.route().is_some_and(|route| route.half_close == HalfClose::Tolerate)
            || entry.frame == Some(ContentFrame::Tunnel);
        !tolerated && self.exchanges.is_waiting(exchange)
    }
}

/// Trailer names are tokens, and so text.
fn received_trailers(body: &BodyDecoder) -> Vec<Trailer> {
    let owned = |(name, value): (&[u8], &[u8])| (String::from_utf8_lossy(name).into(), value.into());
    body.trailers().map(owned).collect()
}

/// RFC 9110 §9.2.1.
pub(super) fn is_safe(head: Head<'_>) -> bool {
    matches!(head.method_kind(), Method::Get | Method::Head | Method::Options | Method::Trace)
}

/// The content as bytes of its own; `used` bytes are taken from the front. A large piece at the end of a buffer takes
/// the buffer along instead of a copy.
fn cut_out(bytes: &mut Received, range: std::ops::Range<usize>, used: usize) -> Bytes {
    match bytes {
        Received::Lease(lease) if used == lease.len() && range.len() >= MOVE_BYTES_MIN => {
            match std::mem::take(bytes) {
                Received::Lease(lease) => lease.into_bytes().slice(range),
                Received::Gathered(..) => unreachable!("it was a lease"),
            }
        }
        _ => {
            let content = Bytes::copy_from_slice(&bytes[range]);
            bytes.advance(used);
            content
        }
    }
}

/// From this size on a received buffer is kept rather than copied.
const MOVE_BYTES_MIN: usize = 2048;
