//! What an access log says of an answer. Costs nothing where nobody listens.

use super::{Connection, Service, pipeline::InFlight};
use crate::http1::Head;
use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Who is told of every answer, on the shard that gave it.
pub(crate) type AccessSink = Arc<dyn Fn(&AccessRecord<'_>) + Send + Sync>;

/// One answer. Strings are the client's: escape what is written to a log.
#[derive(Debug, Clone, Copy)]
pub struct AccessRecord<'a> {
    /// The client's address; Unix sockets have none.
    pub peer: Option<SocketAddr>,
    /// The method.
    pub method: &'a str,
    /// The request target as sent.
    pub target: &'a str,
    /// `HTTP/1.1` or `HTTP/1.0`.
    pub version: &'static str,
    /// The field, if there was one.
    pub referer: Option<&'a [u8]>,
    /// The field, if there was one.
    pub user_agent: Option<&'a [u8]>,
    /// Status of the answer; 0 when there was none.
    pub status: u16,
    /// Content bytes of the answer, as far as they were written.
    pub bytes: u64,
    /// From the head of the request to the end of the answer.
    pub duration: Duration,
    /// Whether the answer is whole; false when the connection was cut.
    pub whole: bool,
    /// The shard that answered.
    pub shard: usize,
}

/// What is kept of a request until its answer is over.
#[derive(Debug)]
pub(super) struct Pending {
    method: String,
    target: String,
    version: &'static str,
    referer: Option<Vec<u8>>,
    user_agent: Option<Vec<u8>>,
    began: Duration,
    pub(super) status: u16,
    pub(super) bytes: u64,
}

impl Service {
    /// Notes what the log will want to know, if there is a log.
    #[inline]
    pub(super) fn note_request(&self, head: Head<'_>) -> Option<Box<Pending>> {
        self.access_log.as_ref()?;
        Some(Box::new(Pending {
            method: head.method().to_owned(),
            target: head.target().to_owned(),
            version: if head.version() == crate::http1::Version::Http10 { "HTTP/1.0" } else { "HTTP/1.1" },
            referer: head.header("referer").map(<[u8]>::to_vec),
            user_agent: head.header("user-agent").map(<[u8]>::to_vec),
            began: self.now(),
            status: 0,
            bytes: 0,
        }))
    }

    /// The answer is over.
    pub(super) fn log_answer(&self, connection: &Connection, pending: &Pending, whole: bool) {
        let Some(sink) = &self.access_log else { return };
        let record = AccessRecord {
            peer: connection.socket.peer(),
            method: &pending.method,
            target: &pending.target,
            version: pending.version,
            referer: pending.referer.as_deref(),
            user_agent: pending.user_agent.as_deref(),
            status: pending.status,
            bytes: pending.bytes,
            duration: self.now().saturating_sub(pending.began),
            whole,
            shard: self.shard.id().index(),
        };
        // The sink is the application's: its panic costs the record and nothing of the answer (L-14).
        if catch_unwind(AssertUnwindSafe(|| sink(&record))).is_err() {
            tracing::error!(shard = record.shard, target = record.target, "the access log's sink panicked");
        }
    }

    /// Logs what is still pending on a connection that ends.
    pub(super) fn log_cut(&self, connection: &mut Connection) {
        if self.access_log.is_none() {
            return;
        }
        let pending: Vec<_> = connection.pipeline.iter_mut().filter_map(InFlight::take_pending).collect();
        for pending in pending {
            self.log_answer(connection, &pending, false);
        }
    }
}
