//! The request's head as an application sees it: read-only, either on loan from the connection for the time of a
//! synchronous callback, or as an owned snapshot that any thread may keep (`Send + Sync`).

use bytes::Bytes;
use shards::Lease;
use std::{fmt, ops::Range, sync::Arc};

/// Where the parts of a head stand in its bytes.
#[derive(Debug, Clone, Default)]
pub struct HeadIndex {
    /// The method.
    pub method: Range<u32>,
    /// The request target, as sent.
    pub target: Range<u32>,
    /// Minor version: 1 for HTTP/1.1.
    pub minor_version: u8,
    /// Names and values in the order in which they came.
    pub fields: Vec<(Range<u32>, Range<u32>)>,
}

/// A borrowed view of a head.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    bytes: &'a [u8],
    index: &'a HeadIndex,
}

impl<'a> Head<'a> {
    /// A view of `bytes` through `index`.
    pub fn new(bytes: &'a [u8], index: &'a HeadIndex) -> Self {
        Head { bytes, index }
    }

    fn slice(self, range: &Range<u32>) -> &'a [u8] {
        &self.bytes[range.start as usize..range.end as usize]
    }

    fn text(self, range: &Range<u32>) -> &'a str {
        std::str::from_utf8(self.slice(range)).unwrap_or("")
    }

    /// The method, for example `GET`.
    pub fn method(self) -> &'a str {
        self.text(&self.index.method)
    }

    /// The request target as sent, for example `/a?b=c`.
    pub fn target(self) -> &'a str {
        self.text(&self.index.target)
    }

    /// The target up to the first `?`.
    pub fn path(self) -> &'a str {
        let target = self.target();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// The target behind the first `?`.
    pub fn query(self) -> Option<&'a str> {
        self.target().split_once('?').map(|(_, query)| query)
    }

    /// 1 for HTTP/1.1, 0 for HTTP/1.0.
    pub fn minor_version(self) -> u8 {
        self.index.minor_version
    }

    /// The first field of this name, whatever its case.
    pub fn header(self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All fields in order.
    pub fn headers(self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.index.fields.iter().map(move |(name, value)| (self.text(name), self.slice(value)))
    }
}

impl fmt::Debug for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({} {})", self.method(), self.target())
    }
}

/// An owned, immutable snapshot of a head: one compact copy.
#[derive(Debug, Clone, Default)]
pub struct OwnedHead {
    bytes: Bytes,
    index: HeadIndex,
}

impl OwnedHead {
    /// Copies a head.
    pub fn copy(head: Head<'_>) -> Self {
        OwnedHead { bytes: Bytes::copy_from_slice(head.bytes), index: head.index.clone() }
    }

    /// The view.
    pub fn view(&self) -> Head<'_> {
        Head::new(&self.bytes, &self.index)
    }
}

/// A request as any thread may keep it.
pub type Request = Arc<OwnedHead>;

/// Where an exchange's head is at the moment.
#[derive(Debug, Default)]
pub(crate) enum HeadHolder {
    /// With nobody: the exchange is over or has not begun.
    #[default]
    Gone,
    /// On loan from the connection: the receive buffer itself.
    Leased(Lease, HeadIndex),
    /// A snapshot.
    Owned(Request),
}

impl HeadHolder {
    /// The view. A head that is gone reads as an empty one.
    pub(crate) fn view(&self) -> Head<'_> {
        match self {
            HeadHolder::Gone => Head::new(&[], &EMPTY_INDEX),
            HeadHolder::Leased(lease, index) => Head::new(lease, index),
            HeadHolder::Owned(head) => head.view(),
        }
    }

    /// A snapshot of it, made when first asked for.
    pub(crate) fn snapshot(&self) -> Request {
        match self {
            HeadHolder::Owned(head) => head.clone(),
            HeadHolder::Gone | HeadHolder::Leased(..) => Arc::new(OwnedHead::copy(self.view())),
        }
    }
}

static EMPTY_INDEX: HeadIndex =
    HeadIndex { method: 0..0, target: 0..0, minor_version: 1, fields: Vec::new() };
