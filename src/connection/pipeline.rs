//! The requests of a connection that are taken and not yet over, oldest first: answers leave in this order.

use super::{access::Pending, dispatch::Target};
use crate::http1::{ContentFrame, ReplyTo};
use shards::Key;
use std::collections::VecDeque;

/// One request in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) exchange: Key,
    /// Its number on the connection.
    pub(super) sequence: u32,
    /// The form that its answer must have.
    pub(super) reply: ReplyTo,
    /// Who answers it.
    pub(super) target: Target,
    /// How the content goes on the wire, once the head is encoded.
    pub(super) frame: Option<ContentFrame>,
    /// Content bytes that the announced length still leaves.
    pub(super) length_left: u64,
    /// `100 Continue` is to be written when its turn comes.
    pub(super) owes_continue: bool,
    /// Nothing comes behind what is in the exchange's output queue.
    pub(super) finished: bool,
    /// Produced bytes should leave.
    pub(super) flush: bool,
    /// All of it is in the connection's output.
    pub(super) encoded: bool,
    /// Content bytes in the output that wait for the next send.
    pub(super) unsent: u64,
    /// Content bytes in the send that is in flight.
    pub(super) leaving: u64,
    /// The send in flight holds the last byte of the answer.
    pub(super) leaving_whole: bool,
    /// The timer for the exchange's own deadline; `Key::NONE` for none.
    timer: Key,
    /// The exchange is over; only the answer's bytes are left.
    pub(super) released: bool,
    pub(super) sequel: Sequel,
    /// For the access log.
    pub(super) pending: Option<Box<Pending>>,
    /// Whether the methods allow the next request to be worked on beside it (RFC 9112 §9.3.2: safe methods).
    pub(super) is_safe: bool,
}

/// What comes behind a request's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sequel {
    /// Whatever the client asks for next.
    Open,
    /// The end of the connection.
    Last,
    /// The same, and this request is not answered either.
    GivenUp,
}

impl InFlight {
    pub(super) fn new(exchange: Key, sequence: u32, reply: ReplyTo, is_safe: bool, target: Target) -> Self {
        InFlight {
            exchange,
            sequence,
            reply,
            target,
            frame: None,
            length_left: 0,
            owes_continue: false,
            finished: false,
            flush: false,
            encoded: false,
            unsent: 0,
            leaving: 0,
            leaving_whole: false,
            timer: Key::NONE,
            released: false,
            sequel: Sequel::Open,
            pending: None,
            is_safe,
        }
    }
}

impl InFlight {
    /// The timer for the exchange's own deadline.
    pub(super) fn timer(&self) -> Option<Key> {
        (self.timer != Key::NONE).then_some(self.timer)
    }

    pub(super) fn set_timer(&mut self, timer: Option<Key>) {
        self.timer = timer.unwrap_or(Key::NONE);
    }

    pub(super) fn take_pending(&mut self) -> Option<Box<Pending>> {
        self.pending.take()
    }
}

// Each parked request has one.
const _: () = assert!(size_of::<InFlight>() <= 104);

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    queue: VecDeque<InFlight>,
}

impl Pipeline {
    pub(super) fn push(&mut self, entry: InFlight) {
        if self.queue.capacity() == 0 {
            // Nearly always there is one: four would cost half a kilobyte for each parked request.
            self.queue.reserve_exact(1);
        }
        self.queue.push_back(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn front(&mut self) -> Option<&mut InFlight> {
        self.queue.front_mut()
    }

    pub(super) fn pop_front(&mut self) -> Option<InFlight> {
        let entry = self.queue.pop_front();
        if self.queue.is_empty() && self.queue.capacity() > KEPT_MAX {
            self.queue = VecDeque::new();
        }
        entry
    }

    /// The oldest request whose answer is not yet all in the output.
    pub(super) fn answering(&mut self) -> Option<&mut InFlight> {
        self.queue.iter_mut().find(|entry| !entry.encoded)
    }

    /// The newest request.
    pub(super) fn newest(&mut self) -> Option<&mut InFlight> {
        self.queue.back_mut()
    }

    pub(super) fn find(&mut self, exchange: Key) -> Option<&mut InFlight> {
        self.queue.iter_mut().find(|entry| entry.exchange == exchange)
    }

    /// The request before this one, if it is not over.
    pub(super) fn before(&mut self, exchange: Key) -> Option<&mut InFlight> {
        let at = self.queue.iter().position(|entry| entry.exchange == exchange)?;
        self.queue.get_mut(at.checked_sub(1)?)
    }

    /// Takes a request out that is over.
    pub(super) fn remove(&mut self, exchange: Key) {
        match self.queue.front() {
            Some(front) if front.exchange == exchange => drop(self.queue.pop_front()),
            _ => self.queue.retain(|entry| entry.exchange != exchange),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &InFlight> {
        self.queue.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut InFlight> {
        self.queue.iter_mut()
    }

    /// Takes out the requests behind this one.
    pub(super) fn cut_behind(&mut self, sequence: u32) -> VecDeque<InFlight> {
        let kept = self.queue.iter().take_while(|entry| entry.sequence <= sequence).count();
        self.queue.split_off(kept)
    }

    /// The exchanges that are not over.
    pub(super) fn live(&self) -> Vec<Key> {
        self.queue.iter().filter(|entry| !entry.released).map(|entry| entry.exchange).collect()
    }

    /// Whether another request may be worked on beside those in flight.
    pub(super) fn allows_another(&self) -> bool {
        self.queue.iter().all(|entry| entry.is_safe || entry.encoded)
    }
}

/// Capacity that an empty queue keeps.
const KEPT_MAX: usize = 4;
