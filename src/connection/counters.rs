//! What the connections of a shard count: plain integers, added up over shards when they are read.

use crate::http1::Reject;
use std::cell::{Cell, RefCell};

/// The counters of one shard.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    accepted: Cell<u64>,
    closed: Cell<u64>,
    refused: RefCell<Vec<(&'static str, u64)>>,
    accept_pauses: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    rejects: RefCell<Vec<u64>>,
    cuts: RefCell<Vec<(&'static str, u64)>>,
}

/// The counters at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionSnapshot {
    /// Connections accepted, ever.
    pub(crate) accepted: u64,
    /// Connections that are open.
    pub(crate) live: u64,
    /// Connections closed at once, by reason.
    pub(crate) refused: Vec<(&'static str, u64)>,
    /// Times accepting had to rest.
    pub(crate) accept_pauses: u64,
    /// Bytes received.
    pub(crate) bytes_in: u64,
    /// Bytes taken by the kernel.
    pub(crate) bytes_out: u64,
    /// Refused requests by reason.
    pub(crate) rejects: Vec<(&'static str, u64)>,
    /// Connections cut by a limit, by reason.
    pub(crate) cuts: Vec<(&'static str, u64)>,
}

fn up(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// Reasons are this program's own words, so there are few.
fn up_named(counters: &RefCell<Vec<(&'static str, u64)>>, reason: &'static str) {
    let mut counters = counters.borrow_mut();
    match counters.iter_mut().find(|(known, _)| *known == reason) {
        Some((_, count)) => *count += 1,
        None => counters.push((reason, 1)),
    }
}

impl ConnectionCounters {
    pub(crate) fn accepted(&self) {
        up(&self.accepted, 1);
    }

    pub(crate) fn closed(&self) {
        up(&self.closed, 1);
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        up_named(&self.refused, reason);
    }

    pub(crate) fn accept_paused(&self) {
        up(&self.accept_pauses, 1);
    }

    #[inline]
    pub(crate) fn bytes_in(&self, count: usize) {
        up(&self.bytes_in, count as u64);
    }

    #[inline]
    pub(crate) fn bytes_out(&self, count: usize) {
        up(&self.bytes_out, count as u64);
    }

    pub(crate) fn rejected(&self, reject: Reject) {
        let mut rejects = self.rejects.borrow_mut();
        rejects.resize(Reject::COUNT, 0);
        rejects[reject.index()] += 1;
    }

    pub(crate) fn cut(&self, reason: &'static str) {
        up_named(&self.cuts, reason);
    }

    pub(crate) fn snapshot(&self) -> ConnectionSnapshot {
        let rejects = self.rejects.borrow();
        let counted = Reject::ALL.iter().zip(rejects.iter()).filter(|(_, count)| **count > 0);
        ConnectionSnapshot {
            accepted: self.accepted.get(),
            live: self.accepted.get() - self.closed.get(),
            refused: self.refused.borrow().clone(),
            accept_pauses: self.accept_pauses.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            rejects: counted.map(|(reject, count)| (reject.label(), *count)).collect(),
            cuts: self.cuts.borrow().clone(),
        }
    }
}
