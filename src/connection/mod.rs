//! Where bytes meet the codec: the connections of one shard.
//!
//! ```text
//!   accept ─▶ Connection ◀─ input  (bytes → heads → exchanges, bodies)
//!                 │      ◀─ dispatch (what an exchange asks for: callbacks, continue, flush, abort)
//!                 │      ─▶ output (heads and bodies → one send in flight)
//!                 └──────── timeouts (one lazily re-armed timer for all its deadlines)
//! ```
//!
//! A connection is taken out of the table while something happens to it, so that nothing is borrowed while user
//! code runs. The order of events on the wire is decided by `http1::Cycle`, the life of a request by
//! `exchange::state`; this module only carries out.

mod accept;
mod access;
mod addresses;
mod counters;
mod dispatch;
mod input;
mod output;
mod pipeline;
mod plain;
mod service;
#[cfg(test)]
mod tests;
mod timeouts;
mod tunnel;

pub use access::AccessRecord;
pub(crate) use access::AccessSink;
pub(crate) use counters::ConnectionSnapshot;
pub(crate) use service::{Service, ServiceOptions};
pub use tunnel::{Relayed, relay};

use crate::http1::{Asked, BodyDecoder, ContentFrame, Cycle, HeadScan};
use output::Output;
use pipeline::{InFlight, Pipeline};
use shards::{Key, net::Socket};
use timeouts::Deadlines;

/// One client's connection. Idle, it holds no buffer.
#[derive(Debug)]
pub(crate) struct Connection {
    key: Key,
    socket: Socket,
    cycle: Cycle,
    scan: HeadScan,
    /// Received bytes that could not be used yet: a part of a head, or requests beyond the bound.
    held: Vec<u8>,
    /// The decoder of the newest request's body, while there is one.
    body: Option<Box<BodyDecoder>>,
    pipeline: Pipeline,
    output: Output,
    deadlines: Deadlines,
    /// Content bytes received, ever, and what a tunnel has sent: progress.
    moved: u64,
    /// The peer has shut its side.
    peer_finished: bool,
    /// The cycle has not been told so yet: bytes that came before wait to be used.
    finish_due: bool,
    /// Receiving is stopped: somebody has to take something first.
    paused: bool,
    /// The socket is to be closed when the event in hand is over.
    closing: Closing,
}

impl Connection {
    /// Whether HTTP is over on it, and its peer has not finished.
    fn is_tunnel(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.is_tunnel())
    }

    /// Whether the oldest request is a CONNECT whose tunnel is open, in one direction at least.
    fn carries_connect(&self) -> bool {
        let is_open = |entry: &InFlight| {
            entry.reply.asked == Asked::Connect && entry.frame == Some(ContentFrame::Tunnel)
        };
        self.pipeline.iter().next().is_some_and(is_open)
    }
}

// Ten thousand idle ones are the usual case: what is rarely there is on the heap.
const _: () = assert!(size_of::<Connection>() <= 248);

/// Whether and how a connection ends with the event in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// An orderly end.
    Close,
    /// The peer must not take it for an orderly end.
    Reset,
}
