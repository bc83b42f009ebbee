//! A parsed request head as offsets into its own bytes, and the two ways to hold it.
//!
//! `parse` fills a `HeadIndex`; the connection reuses one for all requests, so that a request allocates nothing.
//! `Head` is the borrowed view that handlers read. `OwnedHead` is the one compact snapshot of a parked request.
//! Nothing here checks anything: an index exists only for a head that `parse` has accepted.

use super::framing::{BodyKind, Framing};
use super::target::KnownHost;

/// A request method; the ones of RFC 9110 §9.3 and PATCH (RFC 5789) by name. Methods are case-sensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// POST
    Post,
    /// PUT
    Put,
    /// DELETE
    Delete,
    /// CONNECT
    Connect,
    /// OPTIONS
    Options,
    /// TRACE
    Trace,
    /// PATCH
    Patch,
    /// Any other token; `Head::method` has its text.
    Other,
}

impl Method {
    /// The method of these octets, compared with case (RFC 9110 §9.1).
    pub fn from_bytes(bytes: &[u8]) -> Method {
        match bytes {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"CONNECT" => Method::Connect,
            b"OPTIONS" => Method::Options,
            b"TRACE" => Method::Trace,
            b"PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    /// The method's text; "OTHER" for `Other`: a bounded set of metric labels.
    pub const fn label(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Connect => "CONNECT",
            Method::Options => "OPTIONS",
            Method::Trace => "TRACE",
            Method::Patch => "PATCH",
            Method::Other => "OTHER",
        }
    }
}

/// The version of a message as it is treated: a minor number above 1 is treated as HTTP/1.1 (RFC 9110 §2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and any later HTTP/1.x
    Http11,
}

/// The form of a request target (RFC 9112 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, with CONNECT only
    Authority,
    /// `*`, with OPTIONS only
    Asterisk,
}

/// A range of the head's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub(super) start: u16,
    pub(super) len: u16,
}

impl Span {
    /// `start` and `end` are offsets into a head, which `HEAD_BYTES_CEILING` bounds.
    #[inline]
    pub(super) fn new(start: usize, end: usize) -> Span {
        debug_assert!(start <= end && end <= usize::from(u16::MAX));
        Span { start: start as u16, len: (end - start) as u16 }
    }

    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start()..self.end()]
    }

    #[inline]
    pub(super) fn start(self) -> usize {
        usize::from(self.start)
    }

    #[inline]
    pub(super) fn end(self) -> usize {
        self.start() + usize::from(self.len)
    }
}

/// One field line: 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
}

/// Where the parts of a head are. One per connection, reused; filled by `parse`.
#[derive(Debug, Clone)]
pub struct HeadIndex {
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) form: TargetForm,
    pub(super) method_span: Span,
    pub(super) target: Span,
    /// Empty if an absolute-form target has no path.
    pub(super) path: Span,
    pub(super) query: Option<Span>,
    /// The authority of the target, else the value of Host.
    pub(super) host: Option<Span>,
    pub(super) upgrade: Option<Span>,
    pub(super) framing: Framing,
    pub(super) fields: Vec<Field>,
    pub(super) known_host: KnownHost,
}

impl HeadIndex {
    /// An index with room for `fields` field lines; it grows to the limit of `parse` and stays there.
    pub fn with_capacity(fields: usize) -> HeadIndex {
        HeadIndex {
            method: Method::Other,
            version: Version::Http11,
            form: TargetForm::Origin,
            method_span: Span::default(),
            target: Span::default(),
            path: Span::default(),
            query: None,
            host: None,
            upgrade: None,
            framing: Framing::default(),
            fields: Vec::with_capacity(fields),
            known_host: KnownHost::default(),
        }
    }

    /// What framing found: body, persistence, expectation.
    #[inline]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The known method.
    #[inline]
    pub fn method(&self) -> Method {
        self.method
    }

    /// The version as it is treated.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Default for HeadIndex {
    fn default() -> Self {
        HeadIndex::with_capacity(16)
    }
}

/// A request head: the bytes that were received and the index into them. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    bytes: &'a [u8],
    index: &'a HeadIndex,
}

impl<'a> Head<'a> {
    /// The view of a head. `bytes` begin where they began for the `parse` that filled `index`.
    #[inline]
    pub fn new(bytes: &'a [u8], index: &'a HeadIndex) -> Head<'a> {
        Head { bytes, index }
    }

    /// The method's text.
    pub fn method(&self) -> &'a str {
        text(self.index.method_span.of(self.bytes))
    }

    /// The known method, or `Other`.
    #[inline]
    pub fn method_kind(&self) -> Method {
        self.index.method
    }

    /// The version as it is treated.
    #[inline]
    pub fn version(&self) -> Version {
        self.index.version
    }

    /// The request target as received.
    pub fn target(&self) -> &'a str {
        text(self.index.target.of(self.bytes))
    }

    /// The form of the target.
    #[inline]
    pub fn target_form(&self) -> TargetForm {
        self.index.form
    }

    /// The path as received, not decoded, without query. "/" for an absolute-form target without path, `*` for
    /// asterisk-form (and for OPTIONS with an absolute-form target without path, RFC 9112 §3.2.4), empty for
    /// authority-form.
    pub fn path(&self) -> &'a str {
        text(self.path_bytes())
    }

    /// The bytes of `path`.
    #[inline]
    pub fn path_bytes(&self) -> &'a [u8] {
        if self.index.path.len == 0 && self.index.form == TargetForm::Absolute {
            let whole_server = self.index.method == Method::Options && self.index.query.is_none();
            return if whole_server { b"*" } else { b"/" };
        }
        self.index.path.of(self.bytes)
    }

    /// The query without `?`, if there is one; it may be empty.
    pub fn query(&self) -> Option<&'a str> {
        self.index.query.map(|span| text(span.of(self.bytes)))
    }

    /// The authority the request is for, with its port: of an absolute-form target, else the Host field (RFC 9112
    /// §3.2.2: the target wins). None only in HTTP/1.0.
    pub fn host(&self) -> Option<&'a str> {
        self.index.host.map(|span| text(span.of(self.bytes)))
    }

    /// The value of the first field line with this name, compared without case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers(name).next()
    }

    /// The values of all field lines with this name, in order.
    pub fn headers<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let bytes = self.bytes;
        let wanted = name.as_bytes();
        self.index
            .fields
            .iter()
            .filter(move |field| {
                usize::from(field.name.len) == wanted.len()
                    && field.name.of(bytes).eq_ignore_ascii_case(wanted)
            })
            .map(move |field| field.value.of(bytes))
    }

    /// All field lines in order: name as received, value without surrounding whitespace.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let bytes = self.bytes;
        self.index.fields.iter().map(move |field| (text(field.name.of(bytes)), field.value.of(bytes)))
    }

    /// What framing found.
    #[inline]
    pub fn framing(&self) -> Framing {
        self.index.framing
    }

    /// The framing of the content.
    #[inline]
    pub fn body(&self) -> BodyKind {
        self.index.framing.body
    }

    /// Whether the client asked to keep the connection (RFC 9112 §9.3).
    #[inline]
    pub fn keep_alive(&self) -> bool {
        self.index.framing.keep_alive
    }

    /// Whether the client waits for 100 (Continue) (RFC 9110 §10.1.1).
    #[inline]
    pub fn expects_continue(&self) -> bool {
        self.index.framing.expects_continue
    }

    /// The Upgrade field of an HTTP/1.1 request that also names `upgrade` in Connection (RFC 9110 §7.8).
    pub fn upgrade(&self) -> Option<&'a [u8]> {
        self.index.upgrade.map(|span| span.of(self.bytes))
    }

    /// The bytes this view indexes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A snapshot that outlives the receive buffer: two allocations of exact size.
    pub fn to_owned_head(self) -> OwnedHead {
        OwnedHead::from(self)
    }
}

/// The snapshot of a head that a parked request owns. Immutable, so any thread may read it.
#[derive(Debug, Clone)]
pub struct OwnedHead {
    bytes: Box<[u8]>,
    index: HeadIndex,
}

impl OwnedHead {
    /// The view.
    #[inline]
    pub fn head(&self) -> Head<'_> {
        Head { bytes: &self.bytes, index: &self.index }
    }

    /// Bytes on the heap, for the memory account of a parked request.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + self.index.fields.capacity() * size_of::<Field>()
    }
}

impl From<Head<'_>> for OwnedHead {
    fn from(head: Head<'_>) -> Self {
        // `Vec::clone` allocates for the length, not for the capacity.
        OwnedHead { bytes: head.bytes.into(), index: head.index.clone() }
    }
}

/// Text of octets that `parse` has found to be ASCII.
fn text(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default()
}

const _: () = assert!(size_of::<Field>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::parse::{Parsed, parse};
    use crate::limits::Limits;

    fn parsed(bytes: &[u8]) -> (HeadIndex, usize) {
        let mut index = HeadIndex::default();
        match parse(bytes, &mut index, &Limits::DEFAULT) {
            Ok(Parsed::Complete { head_len }) => (index, head_len),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_view_reads_all_parts() {
        let bytes = b"\r\nPOST /a/b?x=1 HTTP/1.1\r\nHost: x.test:80\r\nAccept: a\r\naccept:  b \r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\n";
        let (index, len) = parsed(bytes);
        assert_eq!(len, bytes.len());
        let head = Head::new(&bytes[..len], &index);
        assert_eq!((head.method(), head.method_kind()), ("POST", Method::Post));
        assert_eq!((head.target(), head.path(), head.query()), ("/a/b?x=1", "/a/b", Some("x=1")));
        assert_eq!(head.host(), Some("x.test:80"));
        assert_eq!(head.headers("ACCEPT").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(head.header("none"), None);
        assert_eq!(head.fields().len(), 5);
        assert_eq!(head.upgrade(), Some(&b"foo"[..]));
    }

    /// RFC 9112 §3.2.2: the authority of an absolute-form target replaces Host.
    #[test]
    fn absolute_form_authority_wins() {
        let bytes = b"GET http://x.test:8080?q HTTP/1.1\r\nHost: y.test\r\n\r\n";
        let (index, len) = parsed(bytes);
        let head = Head::new(&bytes[..len], &index);
        assert_eq!(head.host(), Some("x.test:8080"));
        assert_eq!((head.path(), head.query()), ("/", Some("q")));
    }

    #[test]
    fn a_snapshot_is_exact_and_may_cross_threads() {
        fn crosses<T: Send + Sync + 'static>(_: &T) {}
        let bytes = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
        let (index, len) = parsed(&bytes);
        let owned = Head::new(&bytes[..len], &index).to_owned_head();
        drop(bytes);
        crosses(&owned);
        assert_eq!(owned.head().path(), "/x");
        assert_eq!(owned.heap_bytes(), len + 8);
    }
}
