//! Where the head of a request is: on loan from the connection for the time of a synchronous callback, or an owned
//! snapshot that any thread may keep (`Send + Sync`), made only when the exchange outlives the callback.

use crate::http1::{Head, HeadIndex, OwnedHead};
use shards::Lease;
use std::{ops::Deref, sync::Arc};

/// A request as any thread may keep it: immutable, one compact copy.
pub type Request = Arc<OwnedHead>;

/// Received bytes, used up from the front.
#[derive(Debug)]
pub(crate) enum Received {
    /// The receive buffer itself.
    Lease(Lease),
    /// A buffer of the connection's own, for what came in pieces, and how much of it is used up.
    Gathered(Vec<u8>, usize),
}

impl Default for Received {
    fn default() -> Self {
        Received::empty()
    }
}

impl Received {
    /// Nothing.
    pub(crate) const fn empty() -> Self {
        Received::Gathered(Vec::new(), 0)
    }

    /// A buffer of the connection's own.
    pub(crate) const fn gathered(bytes: Vec<u8>) -> Self {
        Received::Gathered(bytes, 0)
    }

    /// Forgets the first `count` bytes.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        match self {
            Received::Lease(lease) => lease.advance(count),
            Received::Gathered(bytes, used) => {
                assert!(*used + count <= bytes.len(), "advance beyond the received bytes");
                *used += count;
            }
        }
    }

    /// What is left, in a buffer that outlives the lease.
    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Received::Lease(lease) => lease.to_vec(),
            Received::Gathered(mut bytes, used) => {
                bytes.drain(..used);
                bytes
            }
        }
    }
}

impl Deref for Received {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Received::Lease(lease) => lease,
            Received::Gathered(bytes, used) => &bytes[*used..],
        }
    }
}

/// A head on loan: bytes, how many of them are the head, and the index into them.
#[derive(Debug, Default)]
pub(crate) struct Loan {
    /// The head and whatever was received behind it.
    pub(crate) bytes: Received,
    /// Length of the head.
    pub(crate) head_len: usize,
    /// Made by `http1::parse` for these bytes.
    pub(crate) index: HeadIndex,
}

/// Where an exchange's head is at the moment.
#[derive(Debug, Default)]
pub(crate) enum HeadHolder {
    /// With nobody: the exchange is over.
    #[default]
    Gone,
    /// On loan from the connection.
    Loan(Box<Loan>),
    /// A snapshot.
    Owned(Request),
}

impl HeadHolder {
    /// The view; a head that is gone has none.
    #[inline]
    pub(crate) fn view(&self) -> Option<Head<'_>> {
        match self {
            HeadHolder::Gone => None,
            HeadHolder::Loan(loan) => Some(Head::new(&loan.bytes[..loan.head_len], &loan.index)),
            HeadHolder::Owned(head) => Some(head.head()),
        }
    }

    /// A snapshot of it.
    pub(crate) fn snapshot(&self) -> Option<Request> {
        match self {
            HeadHolder::Owned(head) => Some(head.clone()),
            HeadHolder::Gone | HeadHolder::Loan(_) => Some(Arc::new(self.view()?.to_owned_head())),
        }
    }
}
