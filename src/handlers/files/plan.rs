//! The answer to a request for a file, decided from facts alone: status, fields, and which octets of what.
//!
//! Neighbours: [`super::lookup`] found the file, the handler sends the plan. `Date`, `Connection` and framing are
//! the connection's. Nothing is opened or read here, and the same facts give the same plan.

use super::{
    conditional::{self, Preconditions, Validators, Verdict, format_date},
    error_page,
    etag::EntityTag,
    fields::Lines,
    listing, mime, multipart,
    negotiate::{self, Coding, Form},
    options::FilesOptions,
    path::{self, SafePath},
    range::{self, ByteRange, Wanted},
};
use shards::fs::Metadata;
use std::borrow::Cow;

/// The methods, as far as this handler tells them apart (RFC 9110 §9.1: names are case-sensitive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// Known, and not allowed on a file: 405.
    Other,
    /// Not known at all: 501.
    Unknown,
}

impl Method {
    /// From the token of the request line.
    #[must_use]
    pub fn from_token(token: &[u8]) -> Method {
        match token {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" | b"PUT" | b"DELETE" | b"CONNECT" | b"TRACE" | b"PATCH" => Method::Other,
            _ => Method::Unknown,
        }
    }
}

/// What of a request matters here.
#[derive(Debug, Clone)]
pub struct RequestFacts<'a> {
    /// The method.
    pub method: Method,
    /// Path of the target, undecoded, from the slash on, without query.
    pub path: &'a str,
    /// Query without `?`.
    pub query: Option<&'a str>,
    /// The conditional fields.
    pub preconditions: Preconditions<'a>,
    /// `If-Range`
    pub if_range: Lines<'a>,
    /// `Range`
    pub range: Lines<'a>,
    /// `Accept`
    pub accept: Lines<'a>,
    /// `Accept-Encoding`
    pub accept_encoding: Lines<'a>,
    /// The wall clock, seconds since 1970: the `Date` of the answer.
    pub now_s: i64,
    /// Fresh random bits, for a multipart boundary.
    pub random: u128,
    /// Whether compression on the fly has a free place; without one the plain form is sent.
    pub may_compress: bool,
}

impl<'a> RequestFacts<'a> {
    /// A GET without any field, at time 0.
    #[must_use]
    pub fn get(path: &'a str) -> RequestFacts<'a> {
        RequestFacts {
            method: Method::Get,
            path,
            query: None,
            preconditions: Preconditions::default(),
            if_range: Lines::Absent,
            range: Lines::Absent,
            accept: Lines::Absent,
            accept_encoding: Lines::Absent,
            now_s: 0,
            random: 0,
            may_compress: true,
        }
    }
}

/// What of a file matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Octets.
    pub len: u64,
    /// Last modification, seconds since 1970.
    pub modified_s: i64,
    /// Nanoseconds on top.
    pub modified_ns: u32,
    /// Number on its device.
    pub inode: u64,
    /// Its device.
    pub device: u64,
}

impl FileFacts {
    /// Whether the time says anything: reproducible images set all files to 0 or 1.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.modified_s > 1
    }

    /// Last written before the other.
    #[must_use]
    pub fn is_older_than(&self, other: &FileFacts) -> bool {
        (self.modified_s, self.modified_ns) < (other.modified_s, other.modified_ns)
    }
}

impl From<Metadata> for FileFacts {
    fn from(metadata: Metadata) -> Self {
        let Metadata { len, modified_s, modified_ns, inode, device, .. } = metadata;
        FileFacts { len, modified_s, modified_ns, inode, device }
    }
}

/// What the lookup found.
#[derive(Debug, Clone)]
pub enum Found<'a> {
    /// A file.
    File(FoundFile<'a>),
    /// A body made for this request: a listing.
    Page {
        /// The body.
        bytes: Vec<u8>,
        /// Which form it has.
        form: Form,
    },
    /// A folder named without its slash.
    Redirect,
    /// Nothing: the status.
    Error(u16),
}

/// A file and its part in the answer.
#[derive(Debug, Clone, Copy)]
pub struct FoundFile<'a> {
    /// Name beneath the root, of a sidecar without its suffix: type and rules follow it.
    pub name: &'a str,
    /// Facts of the file that is sent.
    pub facts: FileFacts,
    /// It is a sidecar with this coding.
    pub coding: Option<Coding>,
    /// 200, or the status of the error whose page it is.
    pub status: u16,
    /// It stands in for a page that does not exist.
    pub is_fallback: bool,
}

/// A field of the answer.
pub type Field = (Cow<'static, str>, Cow<'static, str>);

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Status code.
    pub status: u16,
    /// Fields, without `Date`, `Content-Length` and those of the connection.
    pub fields: Vec<Field>,
    /// `Content-Length`: of the GET also where HEAD sends no body. None for 204 and 304, and where the length is
    /// not known before (compression).
    pub content_length: Option<u64>,
    /// What is sent.
    pub body: Body,
    /// The file's octets go through this coding on their way.
    pub compress: Option<Coding>,
    /// They would, had there been a free place: the next request may get another answer.
    pub compression_refused: bool,
}

/// Content of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// None: HEAD, 204, 304, or an empty file.
    None,
    /// These octets.
    Bytes(Vec<u8>),
    /// A part of the file, at least one octet.
    File {
        /// Where it begins.
        offset: u64,
        /// Octets.
        len: u64,
    },
    /// Several pieces in order: `multipart/byteranges`.
    Pieces(Vec<Piece>),
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These octets.
    Bytes(Vec<u8>),
    /// A part of the file.
    File {
        /// Where it begins.
        offset: u64,
        /// Octets.
        len: u64,
    },
}

impl Piece {
    /// Octets.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::File { len, .. } => *len,
        }
    }

    /// No octet at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Decides what needs no file: methods (RFC 9110 §9.1, §15.5.6, §15.6.2) and paths that name nothing.
///
/// # Errors
/// The plan that answers such a request.
pub fn preflight(request: &RequestFacts<'_>, options: &FilesOptions) -> Result<SafePath, Plan> {
    match request.method {
        Method::Unknown => return Err(error(request, 501)),
        Method::Other => {
            let mut plan = error(request, 405);
            plan.set("Allow", ALLOW);
            return Err(plan);
        }
        Method::Options => {
            let mut plan = Plan::new(204);
            plan.set("Allow", ALLOW);
            return Err(plan);
        }
        Method::Get | Method::Head => {}
    }
    path::safe_path(request.path, options.show_hidden).map_err(|refusal| error(request, refusal.status()))
}

/// Decides the answer to a GET or HEAD for what was found.
#[must_use]
pub fn plan(request: &RequestFacts<'_>, found: Found<'_>, options: &FilesOptions) -> Plan {
    match found {
        Found::File(file) => file_plan(request, &file, options),
        Found::Page { bytes, form } => page(request, bytes, form),
        Found::Redirect => redirect(request),
        Found::Error(status) => error(request, status),
    }
}

fn file_plan(request: &RequestFacts<'_>, file: &FoundFile<'_>, options: &FilesOptions) -> Plan {
    let content_type = mime::content_type(file.name);
    let coding = compression(request, file, &content_type, options);
    let compress = coding.filter(|_| request.may_compress);
    let is_plain = file.coding.or(compress).is_none();
    if file.status == 200 && is_plain && negotiate::refuses_plain(&request.accept_encoding) {
        return not_acceptable(request, coding.is_some());
    }
    let validators = validators(request, file, compress);
    let mut plan = Plan::new(file.status);
    plan.compress = compress;
    plan.compression_refused = coding.is_some() && compress.is_none();
    plan.set_file_fields(file, &content_type, options);
    if file.status != 200 {
        // The page of an error: no validators, no parts (RFC 9110 §13.2.1: only where 2xx would be sent).
        return plan.with_whole(request, file.facts.len);
    }
    if let Some(etag) = &validators.etag {
        plan.set("ETag", etag.to_string());
    }
    if let Some(modified_s) = validators.modified_s {
        plan.set("Last-Modified", format_date(modified_s));
    }
    match conditional::evaluate(&request.preconditions, &validators) {
        Verdict::NotModified => return plan.into_not_modified(),
        Verdict::Failed => return error(request, 412),
        Verdict::Proceed => {}
    }
    if compress.is_some() {
        return plan.with_whole(request, file.facts.len);
    }
    plan.set("Accept-Ranges", "bytes");
    // Range is defined for GET alone (§14.2).
    let may_range =
        request.method == Method::Get && conditional::if_range_holds(&request.if_range, &validators);
    let wanted = if may_range { range::wanted(&request.range, file.facts.len) } else { Wanted::Whole };
    match wanted {
        Wanted::Whole => plan.with_whole(request, file.facts.len),
        Wanted::Parts(parts) => plan.with_parts(request, &parts, &content_type, file.facts.len),
        Wanted::Unsatisfiable => {
            let mut plan = error(request, 416);
            plan.set("Content-Range", format!("bytes */{}", file.facts.len));
            plan.set("Accept-Ranges", "bytes");
            plan
        }
    }
}

/// There is no form that the client takes (RFC 9110 §12.5.3, §15.5.7). If it only could not be made now, another time
/// it can. Conditions are not asked: without them the answer would be no other (§13.2.1).
fn not_acceptable(request: &RequestFacts<'_>, could_be_made: bool) -> Plan {
    let mut plan = error(request, if could_be_made { 503 } else { 406 });
    plan.compression_refused = could_be_made;
    plan.set("Vary", "Accept-Encoding, Accept");
    plan
}

/// The coding made on the fly, if it gains or the plain form is refused: never where octets of the plain form are asked
/// for or compared.
fn compression(
    request: &RequestFacts<'_>,
    file: &FoundFile<'_>,
    content_type: &str,
    options: &FilesOptions,
) -> Option<Coding> {
    let len_min =
        if negotiate::refuses_plain(&request.accept_encoding) { 0 } else { options.compress_len_min };
    let wanted = options.compress
        && file.coding.is_none()
        && (len_min..=options.compress_len_max).contains(&file.facts.len)
        && !request.range.is_present()
        && !request.preconditions.if_match.is_present()
        && mime::is_compressible(content_type);
    if !wanted {
        return None;
    }
    negotiate::codings(&request.accept_encoding).into_iter().next()
}

fn validators(request: &RequestFacts<'_>, file: &FoundFile<'_>, compress: Option<Coding>) -> Validators {
    let facts = &file.facts;
    let variant = match (file.coding, compress) {
        (Some(coding), _) => coding.suffix().replace('.', "-"),
        (None, Some(coding)) => format!("{}-live", coding.suffix().replace('.', "-")),
        (None, None) => String::new(),
    };
    let etag = EntityTag::of_file(facts, &variant, request.now_s);
    Validators {
        etag: Some(if compress.is_some() { etag.into_weak() } else { etag }),
        // §8.8.2.1: never later than the Date of the answer.
        modified_s: facts.has_time().then(|| facts.modified_s.min(request.now_s)),
        // §8.8.2.2: the second is over, and the octets are those of the file.
        date_is_strong: facts.modified_s < request.now_s && compress.is_none(),
    }
}

/// A listing: small, new each time, compared by a weak tag of its content.
fn page(request: &RequestFacts<'_>, bytes: Vec<u8>, form: Form) -> Plan {
    let validators =
        Validators { etag: Some(EntityTag::of_bytes(&bytes)), modified_s: None, date_is_strong: false };
    let mut plan = Plan::new(200);
    plan.set("Content-Type", form.content_type());
    plan.set("X-Content-Type-Options", "nosniff");
    plan.set("Content-Security-Policy", listing::CONTENT_SECURITY_POLICY);
    plan.set("Cache-Control", "no-cache");
    plan.set("Vary", "Accept");
    if let Some(etag) = &validators.etag {
        plan.set("ETag", etag.to_string());
    }
    match conditional::evaluate(&request.preconditions, &validators) {
        Verdict::NotModified => plan.into_not_modified(),
        Verdict::Failed => error(request, 412),
        Verdict::Proceed => plan.with_bytes(request, bytes),
    }
}

/// To the same path with its slash. The path passed [`preflight`], so it starts with one slash, not two, and holds
/// nothing that could end the field; a query that could is left off.
fn redirect(request: &RequestFacts<'_>) -> Plan {
    let is_safe = |text: &&str| text.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'#');
    let query = request.query.filter(is_safe).map(|query| format!("?{query}")).unwrap_or_default();
    let mut plan = error(request, 301);
    plan.set("Location", format!("{}/{query}", request.path));
    plan
}

/// An answer without file: a body of our own in the form the client likes.
fn error(request: &RequestFacts<'_>, status: u16) -> Plan {
    let form = if negotiate::wants_page(&request.accept) {
        negotiate::form(&request.accept, &[Form::Html, Form::Json, Form::Plain])
    } else {
        negotiate::form(&request.accept, &[Form::Plain, Form::Json])
    };
    let mut plan = Plan::new(status);
    plan.set("Content-Type", form.content_type());
    plan.set("X-Content-Type-Options", "nosniff");
    plan.set("Vary", "Accept");
    plan.with_bytes(request, error_page::render(status, form))
}

impl Plan {
    fn new(status: u16) -> Plan {
        Plan {
            status,
            fields: Vec::with_capacity(10),
            content_length: None,
            body: Body::None,
            compress: None,
            compression_refused: false,
        }
    }

    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_ref())
    }

    fn set(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) {
        let name = name.into();
        self.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        self.fields.push((name, value.into()));
    }

    /// What every answer with this file bears: type, coding, `Vary`, cache rules, the operator's fields.
    fn set_file_fields(&mut self, file: &FoundFile<'_>, content_type: &str, options: &FilesOptions) {
        self.set("Content-Type", content_type.to_owned());
        if let Some(coding) = file.coding.or(self.compress) {
            self.set("Content-Encoding", coding.token());
        }
        // The same for every variant, also the plain one (RFC 9110 §12.5.5).
        let by_coding = (options.precompressed || options.compress) && mime::is_compressible(content_type);
        match (by_coding, file.is_fallback) {
            (true, true) => self.set("Vary", "Accept-Encoding, Accept"),
            (true, false) => self.set("Vary", "Accept-Encoding"),
            (false, true) => self.set("Vary", "Accept"),
            (false, false) => {}
        }
        self.set("X-Content-Type-Options", "nosniff");
        if file.status == 200 {
            if let Some(cache_control) = &options.cache_control {
                self.set("Cache-Control", cache_control.clone());
            }
            for (name, value) in options.rules.fields_for(file.name) {
                self.set(name.to_owned(), value.to_owned());
            }
        }
    }

    /// 304 keeps what a cache needs and what says who may read it, and describes no content (RFC 9110 §15.4.5;
    /// `Last-Modified` only where there is no tag).
    fn into_not_modified(mut self) -> Plan {
        let has_tag = self.field("ETag").is_some();
        self.fields.retain(|(name, _)| {
            let describes_content = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"))
                && !name.eq_ignore_ascii_case("content-security-policy");
            let is_superfluous = has_tag && name.eq_ignore_ascii_case("Last-Modified");
            !(describes_content || is_superfluous)
        });
        Plan { status: 304, body: Body::None, content_length: None, compress: None, ..self }
    }

    fn with_whole(mut self, request: &RequestFacts<'_>, len: u64) -> Plan {
        if self.compress.is_none() {
            self.content_length = Some(len);
        }
        if request.method != Method::Head && len > 0 {
            self.body = Body::File { offset: 0, len };
        }
        self
    }

    fn with_bytes(mut self, request: &RequestFacts<'_>, bytes: Vec<u8>) -> Plan {
        self.content_length = Some(bytes.len() as u64);
        if request.method != Method::Head {
            self.body = Body::Bytes(bytes);
        }
        self
    }

    /// 206: one part bears its `Content-Range` itself, several are framed (RFC 9110 §15.3.7). All fields of the
    /// 200 are kept, after `If-Range` too: players choose by them.
    fn with_parts(
        mut self,
        request: &RequestFacts<'_>,
        parts: &[ByteRange],
        content_type: &str,
        len: u64,
    ) -> Plan {
        self.status = 206;
        if let [part] = parts {
            self.set("Content-Range", format!("bytes {}-{}/{len}", part.first, part.last));
            self.content_length = Some(part.count());
            self.body = Body::File { offset: part.first, len: part.count() };
            return self;
        }
        let framed = multipart::frame(parts, Some(content_type), len, request.random);
        self.set("Content-Type", framed.content_type);
        self.content_length = Some(framed.content_length);
        self.body = Body::Pieces(framed.pieces);
        self
    }
}

const ALLOW: &str = "GET, HEAD, OPTIONS";

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
