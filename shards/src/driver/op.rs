//! The operation table's vocabulary: what a shard can ask the kernel for, and what comes back.

use crate::{buffers::Lease, error::Error, table::Key};
use bytes::Bytes;
use std::{io, net::SocketAddr, path::PathBuf};

/// A descriptor as the driver knows it: a real one under `uring` and `epoll`, a made-up one under `sim`.
/// It is closed with [`super::Driver::close`] and by nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Descriptor(pub(crate) i32);

/// Who gets the completion. The net layer finds its own table entry by the key; a key whose time is over is
/// counted and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A listener: accepted descriptors.
    Listener(Key),
    /// The receiving side of a stream.
    Receiver(Key),
    /// The sending side of a stream.
    Sender(Key),
    /// A one-shot waiter (connect, file read).
    Waiter(Key),
    /// Nobody any more: the owner let go, what comes back is released by the driver.
    Nobody,
}

/// Bytes on their way out, owned by the operation until its terminal completion. `sent` counts what the kernel
/// has taken so far; a short send is continued with the same buffer.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    pub(crate) parts: SendParts,
    /// Bytes already accepted by the kernel.
    pub(crate) sent: usize,
}

/// One piece, or several that leave in one vectored send.
#[derive(Debug)]
pub enum SendParts {
    /// A pooled, growable buffer.
    Vec(Vec<u8>),
    /// One shared piece.
    Bytes(Bytes),
    /// A head and shared pieces, in order; at most [`SEND_PARTS_MAX`].
    Vectored(Box<Vectored>),
}

/// The pieces of a vectored send.
#[derive(Debug, Default)]
pub struct Vectored {
    /// Goes first.
    pub head: Vec<u8>,
    /// Follow in order.
    pub rest: Vec<Bytes>,
}

/// Most pieces of one vectored send (head included); the kernel's own bound, UIO_MAXIOV, is 1,024.
pub const SEND_PARTS_MAX: usize = 64;

impl SendBuffer {
    pub(crate) fn new(parts: SendParts) -> Self {
        SendBuffer { parts, sent: 0 }
    }

    /// All bytes, sent or not.
    pub(crate) fn len(&self) -> usize {
        match &self.parts {
            SendParts::Vec(bytes) => bytes.len(),
            SendParts::Bytes(bytes) => bytes.len(),
            SendParts::Vectored(parts) => parts.head.len() + parts.rest.iter().map(Bytes::len).sum::<usize>(),
        }
    }

    /// Bytes the kernel has not taken yet.
    pub(crate) fn remaining(&self) -> usize {
        self.len() - self.sent
    }

    /// The slices still to be sent, in order.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let (head, rest): (&[u8], &[Bytes]) = match &self.parts {
            SendParts::Vec(bytes) => (bytes, &[]),
            SendParts::Bytes(bytes) => (bytes, &[]),
            SendParts::Vectored(parts) => (&parts.head, &parts.rest),
        };
        let mut skip = self.sent;
        std::iter::once(head).chain(rest.iter().map(|bytes| &**bytes)).filter_map(move |slice| {
            let here = skip.min(slice.len());
            skip -= here;
            (here < slice.len()).then(|| &slice[here..])
        })
    }
}

/// What can be asked. An operation owns everything the kernel may touch until its terminal completion.
#[derive(Debug)]
pub(crate) enum Op {
    /// Accept connections until cancelled or failed (multishot).
    Accept { listener: Descriptor },
    /// Receive until the end of the stream, an error or a cancel. Out of buffers is not an end: the driver waits
    /// for one to come back by itself.
    Receive { socket: Descriptor },
    /// Send the rest of the buffer. May complete short; the owner goes on with what is left.
    Send { socket: Descriptor, buffer: SendBuffer },
    /// Connect a socket made with [`super::Driver::socket`].
    Connect { socket: Descriptor, address: Address },
    /// Read a regular file at an offset into a buffer of this capacity. Short reads are possible, 0 is the end.
    Read { file: Descriptor, offset: u64, buffer: Vec<u8>, len: usize },
}

/// Where to connect to, or what to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// What came back. `more` in the [`Completion`] says whether the operation goes on.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A new connection (Accept).
    Accepted(Descriptor),
    /// Bytes arrived (Receive); never empty.
    Received(Lease),
    /// The peer has finished sending (Receive): the operation is over.
    EndOfStream,
    /// How many bytes the kernel took (Send), and the buffer back with `sent` moved on.
    Sent { result: io::Result<usize>, buffer: SendBuffer },
    /// The socket is connected, or why not.
    Connected(io::Result<()>),
    /// Bytes read from a file into `buffer` (its length is what was read).
    Read { result: io::Result<usize>, buffer: Vec<u8> },
    /// Accept or Receive failed, or was cancelled (`ECANCELED`).
    Failed(io::Error),
}

/// One answer of the kernel.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The operation. Valid for [`super::Driver::cancel`] only while `more`.
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) outcome: Outcome,
    /// The operation stays armed and will complete again.
    pub(crate) more: bool,
}

/// How long [`super::Driver::turn`] may wait for something to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all: submit, reap what is there.
    No,
    /// Until a completion or a wake.
    Forever,
    /// The same, but at most this long.
    AtMost(std::time::Duration),
}

/// How a socket is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// No more will be received: an armed receive ends.
    Read,
    /// No more will be sent: the peer sees the end.
    Write,
    /// Both.
    Both,
}

/// What the driver's turn can fail with: nothing a caller could mend, the shard reports it and ends.
pub(crate) type TurnResult = Result<(), Error>;
