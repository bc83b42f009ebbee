//! One connection of the generator: its socket, its phase, and requests that wait to be handed to the socket. What
//! comes back is `line`'s business, what becomes of it `client`'s.

use std::{collections::VecDeque, time::Duration};

use shards::net::{Outgoing, Socket, Vectored};

use super::line::{Flight, Line};
use crate::load::requests::Request;

/// Requests joined into one buffer up to here; larger ones go as pieces.
const JOINED_BYTES_MAX: usize = 64 * 1_024;

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Never tried.
    New,
    /// On its way; `since` is its start.
    Connecting,
    /// Requests can be sent.
    Open,
    /// The server said close with its last answer; waits for that, so that the server's side closes first and the
    /// generator does not run out of ports (TIME_WAIT stays with who closes first).
    Draining,
    /// Failed, or closed without an answer; `since` is when to try again.
    Resting,
    /// Gone.
    Closed,
    /// Gone, and connects when it gets a request (no keep-alive).
    Idle,
}

pub(super) struct Link {
    pub(super) phase: Phase,
    pub(super) since: Duration,
    pub(super) line: Line,
    /// Whether it stands in the client's list of links to flush.
    pub(super) dirty: bool,
    /// Finished requests of one callback; kept for its memory.
    pub(super) done: Vec<Flight>,
    socket: Option<Socket>,
    /// Requests that are not handed to the socket, by number.
    queue: VecDeque<u32>,
    spare: Vec<u8>,
    retry: Duration,
    /// Whether this connection brought an answer.
    pub(super) served: bool,
}

impl Link {
    pub(super) fn new(hashes: bool) -> Self {
        Self {
            phase: Phase::New,
            since: Duration::ZERO,
            line: Line::new(hashes),
            dirty: false,
            done: Vec::new(),
            socket: None,
            queue: VecDeque::new(),
            spare: Vec::new(),
            retry: Duration::ZERO,
            served: false,
        }
    }

    /// The socket that was started at `now`, or why there is none.
    pub(super) fn connecting(&mut self, socket: shards::Result<Socket>, now: Duration) -> shards::Result<()> {
        self.phase = Phase::Connecting;
        self.since = now;
        self.socket = Some(socket?);
        Ok(())
    }

    pub(super) fn opened(&mut self, requests: &[Request]) {
        self.phase = Phase::Open;
        self.served = false;
        if let Some(socket) = &self.socket {
            // Without it a pipelined request would wait for the acknowledgement of the one before. A socket that
            // refuses is about to tell why by itself.
            let _ = socket.set_nodelay(true);
            socket.start_receiving();
        }
        self.send(requests);
    }

    pub(super) fn push(&mut self, flight: Flight) {
        self.queue.push_back(flight.request);
        self.line.push(flight);
    }

    /// Hands what is queued to the socket, unless a send is under way (its end calls again).
    pub(super) fn send(&mut self, requests: &[Request]) {
        let Some(socket) = self.socket.as_ref().filter(|socket| !socket.is_sending()) else { return };
        let Some(first) = self.queue.pop_front() else { return };
        let request = &requests[first as usize];
        if self.queue.is_empty() && request.body.is_empty() {
            socket.send(Outgoing::Bytes(request.head.clone()));
            return;
        }
        let mut joined = std::mem::take(&mut self.spare);
        joined.clear();
        joined.extend_from_slice(&request.head);
        if request.body.len() > JOINED_BYTES_MAX {
            let rest = vec![request.body.clone()];
            socket.send(Outgoing::Vectored(Box::new(Vectored { head: joined, rest })));
            return;
        }
        joined.extend_from_slice(&request.body);
        while let Some(next) = self.queue.front().map(|next| &requests[*next as usize]) {
            if joined.len() + next.head.len() + next.body.len() > JOINED_BYTES_MAX {
                break;
            }
            joined.extend_from_slice(&next.head);
            joined.extend_from_slice(&next.body);
            self.queue.pop_front();
        }
        socket.send(Outgoing::Vec(joined));
    }

    /// A buffer that was sent, to be used again.
    pub(super) fn take_back(&mut self, buffer: Outgoing) {
        match buffer {
            Outgoing::Vec(spare) => self.spare = spare,
            Outgoing::Vectored(parts) => self.spare = parts.head,
            Outgoing::Bytes(_) => {}
        }
    }

    pub(super) fn drain_until_closed(&mut self, now: Duration) {
        self.phase = Phase::Draining;
        self.since = now;
    }

    /// No new try before a while that doubles with every failure.
    pub(super) fn rest_until_retry(&mut self, now: Duration, first: Duration, longest: Duration) {
        self.retry = (self.retry * 2).clamp(first, longest);
        self.since = now + self.retry;
        self.phase = Phase::Resting;
    }

    /// An answer came: the server serves, and the next failure is a first one.
    pub(super) fn note_served(&mut self) {
        self.served = true;
        self.retry = Duration::ZERO;
    }

    /// Closes; a connection that rests before its next try goes on resting.
    pub(super) fn close(&mut self) {
        if self.phase != Phase::Resting {
            self.phase = Phase::Closed;
        }
        self.socket = None;
        self.queue.clear();
    }
}
