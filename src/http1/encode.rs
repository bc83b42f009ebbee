//! Response heads, interim responses and chunks as bytes (RFC 9112 §4, §6, §7.1).
//!
//! The caller gives the time in seconds; a `HeadTemplate` per shard keeps the start of every head ready and renews
//! its Date once a second. What may follow a head is decided here alone, so that a handler cannot desynchronize a
//! connection: by status, by request method, by version.

use super::fields::FieldLines;
use super::head::{Head, Method, Version};
use super::reject::Reject;
use super::response::Asked;

/// The request that is answered, as far as the form of the answer depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyTo {
    /// The method, as far as it matters: HEAD, CONNECT, or another.
    pub asked: Asked,
    /// The version of the request: chunked is for HTTP/1.1 (RFC 9112 §6.1).
    pub version: Version,
    /// Whether the connection may go on after this answer; `Cycle::may_persist` says so.
    pub persistent: bool,
    /// The client said that it takes trailers (RFC 9110 §6.5.1).
    pub accepts_trailers: bool,
}

impl ReplyTo {
    /// For an accepted request.
    pub fn new(head: Head<'_>, persistent: bool) -> ReplyTo {
        ReplyTo {
            asked: match head.method_kind() {
                Method::Head => Asked::Head,
                Method::Connect => Asked::Connect,
                _ => Asked::Usual,
            },
            version: head.version(),
            persistent,
            accepts_trailers: head.framing().accepts_trailers,
        }
    }
}

/// The content that the caller is going to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// None: Content-Length: 0 where a length belongs.
    Empty,
    /// Exactly so many bytes.
    Length(u64),
    /// Of unknown length: chunked, or until close for HTTP/1.0.
    Stream,
    /// None: another protocol follows (101, or 2xx to CONNECT).
    Tunnel,
}

/// A final response before it is encoded.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// 200 to 999; 101 with `Upgrade` among the fields.
    pub status: u16,
    /// The fields of the handler.
    pub fields: &'a FieldLines,
    /// The content of the handler.
    pub content: Content,
}

/// How the content must be put on the wire after the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentFrame {
    /// Write no content, whatever the handler has (HEAD, 204, 304, empty).
    None,
    /// Write exactly so many bytes as they are.
    Length(u64),
    /// Write `encode_chunk` for each piece, then `encode_last_chunk`.
    Chunked,
    /// Write the bytes as they are and close.
    UntilClose,
    /// The same; and what the peer sends is the other protocol too.
    Tunnel,
}

/// What was announced by an encoded head.
#[must_use = "the announced frame and persistence must be kept"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// The form of the content.
    pub frame: ContentFrame,
    /// Whether the connection goes on after it; if not, `Connection: close` was sent.
    pub persistent: bool,
}

/// The start of every head, ready to be copied. One per shard.
#[derive(Debug, Clone)]
pub struct HeadTemplate {
    /// `HTTP/1.1 200 OK` CRLF, Server line, Date line.
    prefix: Vec<u8>,
    /// End of the lines that are in every answer, whatever a handler sets.
    common_end: usize,
    server_end: usize,
    unix_seconds: u64,
}

const OK_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";
const DATE_NAME: &[u8] = b"Date: ";

impl HeadTemplate {
    /// A template with this Server value; an empty or unfit one sends no Server line.
    pub fn new(server: &str, unix_seconds: u64) -> HeadTemplate {
        let mut prefix = OK_LINE.to_vec();
        if !server.is_empty() && super::fields::is_field_value(server.as_bytes()) {
            prefix.extend_from_slice(b"Server: ");
            prefix.extend_from_slice(server.as_bytes());
            prefix.extend_from_slice(b"\r\n");
        }
        let server_end = prefix.len();
        prefix.extend_from_slice(DATE_NAME);
        prefix.extend_from_slice(&imf_fixdate(unix_seconds));
        prefix.extend_from_slice(b"\r\n");
        HeadTemplate { prefix, common_end: OK_LINE.len(), server_end, unix_seconds }
    }

    /// Adds a line that every answer carries. A name or value that cannot stand in a head adds nothing.
    pub fn add_common_field(&mut self, name: &str, value: &str) {
        if !super::fields::is_field_name(name.as_bytes()) || !super::fields::is_field_value(value.as_bytes())
        {
            return;
        }
        let line = format!("{name}: {value}\r\n");
        self.prefix.splice(OK_LINE.len()..OK_LINE.len(), line.bytes());
        self.server_end += line.len();
        self.common_end += line.len();
    }

    /// Renews the Date if the second has changed (RFC 9110 §6.6.1). Cheap to call for every batch of events.
    #[inline]
    pub fn refresh(&mut self, unix_seconds: u64) {
        if unix_seconds != self.unix_seconds {
            self.unix_seconds = unix_seconds;
            let start = self.server_end + DATE_NAME.len();
            self.prefix[start..start + DATE_LEN].copy_from_slice(&imf_fixdate(unix_seconds));
        }
    }

    /// The Date text of this second.
    pub fn date(&self) -> &[u8] {
        let start = self.server_end + DATE_NAME.len();
        &self.prefix[start..start + DATE_LEN]
    }

    /// Encodes the head of a final response, its empty line included.
    pub fn encode_head(&self, out: &mut Vec<u8>, head: &ResponseHead<'_>, to: ReplyTo) -> Announced {
        let fields = head.fields;
        out.reserve(self.prefix.len() + fields.as_bytes().len() + 96);
        self.encode_start(out, head.status, fields);
        out.extend_from_slice(fields.as_bytes());
        let announced = encode_framing(out, head, to);
        out.extend_from_slice(b"\r\n");
        announced
    }

    /// Encodes the answer to a refused request: head and one line of text, and `Connection: close` (RFC 9112 §9.6).
    /// `received` are the bytes of the refused request as far as they came; no content answers a HEAD.
    pub fn encode_reject(&self, out: &mut Vec<u8>, reject: Reject, received: &[u8]) {
        let text = reject.text().as_bytes();
        let mut fields = FieldLines::new();
        let typed = fields.append("Content-Type", "text/plain; charset=utf-8");
        debug_assert!(typed.is_ok());
        let head = ResponseHead {
            status: reject.status(),
            fields: &fields,
            content: Content::Length(text.len() as u64 + 1),
        };
        let is_head = received.strip_prefix(b"\r\n").unwrap_or(received).starts_with(b"HEAD ");
        let to = ReplyTo {
            asked: if is_head { Asked::Head } else { Asked::Usual },
            version: Version::Http11,
            persistent: false,
            accepts_trailers: false,
        };
        if self.encode_head(out, &head, to).frame != ContentFrame::None {
            out.extend_from_slice(text);
            out.push(b'\n');
        }
    }

    /// Status line, Server and Date, in one copy for 200.
    #[inline]
    fn encode_start(&self, out: &mut Vec<u8>, status: u16, fields: &FieldLines) {
        if status == 200 && !fields.has_date() && !fields.has_server() {
            out.extend_from_slice(&self.prefix);
            return;
        }
        encode_status_line(out, status);
        out.extend_from_slice(&self.prefix[OK_LINE.len()..self.common_end]);
        let from = if fields.has_server() { self.server_end } else { self.common_end };
        let to = if fields.has_date() { self.server_end } else { self.prefix.len() };
        out.extend_from_slice(&self.prefix[from..to.max(from)]);
    }
}

/// The framing fields, and what they mean for the content.
#[inline]
fn encode_framing(out: &mut Vec<u8>, head: &ResponseHead<'_>, to: ReplyTo) -> Announced {
    if to.asked == Asked::Connect && (200..=299).contains(&head.status) {
        return encode_tunnel_framing(out, head.content);
    }
    let mut persistent = to.persistent;
    let frame = match (head.status, head.content) {
        // RFC 9110 §15.2.2: 101 ends HTTP on this connection; RFC 9112 §6.1: no framing fields in 1xx and 204.
        (100..=199, _) | (_, Content::Tunnel) => {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            return Announced { frame: ContentFrame::Tunnel, persistent: false };
        }
        // RFC 9110 §15.3.5, §15.4.5: they end with their head.
        (204 | 304, _) => ContentFrame::None,
        // RFC 9110 §15.3.6: 205 has no content, and says so.
        (205, _) | (_, Content::Empty | Content::Length(0)) => {
            out.extend_from_slice(b"Content-Length: 0\r\n");
            ContentFrame::None
        }
        (_, Content::Length(length)) => {
            push_length(out, length);
            ContentFrame::Length(length)
        }
        // RFC 9112 §6.1: Transfer-Encoding only for HTTP/1.1 requests.
        (_, Content::Stream) if to.version == Version::Http11 => {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            ContentFrame::Chunked
        }
        // RFC 9112 §6.3 item 8: the end of the connection is the end of the content.
        (_, Content::Stream) => {
            persistent &= to.asked == Asked::Head;
            ContentFrame::UntilClose
        }
    };
    // RFC 9112 §9.3, §9.6: HTTP/1.0 persists only if both say so; a close is announced.
    if !persistent {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if to.version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    // RFC 9110 §9.3.2: HEAD has the fields of GET and no content.
    Announced { frame: if to.asked == Asked::Head { ContentFrame::None } else { frame }, persistent }
}

/// RFC 9110 §9.3.6: no framing fields in a 2xx to CONNECT; the tunnel begins behind the empty line. A handler that answers so
/// without having opened one has made one that its own content and end are in.
#[cold]
fn encode_tunnel_framing(out: &mut Vec<u8>, content: Content) -> Announced {
    let frame = if content == Content::Tunnel { ContentFrame::Tunnel } else { ContentFrame::UntilClose };
    if frame == ContentFrame::UntilClose {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    Announced { frame, persistent: false }
}

/// `100 Continue` is a status line and an empty line, nothing else.
pub fn encode_continue(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Another interim response (102, 103) with its fields. Only for HTTP/1.1 requests (RFC 9110 §15.2); returns whether
/// it was encoded.
pub fn encode_interim(out: &mut Vec<u8>, status: u16, fields: &FieldLines, version: Version) -> bool {
    if version == Version::Http10 || !(102..=199).contains(&status) {
        return false;
    }
    encode_status_line(out, status);
    out.extend_from_slice(fields.as_bytes());
    out.extend_from_slice(b"\r\n");
    true
}

/// One chunk: size line, data, CRLF. Empty data writes nothing: a chunk of size zero would end the content.
pub fn encode_chunk(out: &mut Vec<u8>, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    out.reserve(data.len() + 20);
    encode_chunk_size(out, data.len() as u64);
    out.extend_from_slice(data);
    out.extend_from_slice(CHUNK_END);
}

/// The size line of a chunk whose data the caller writes, followed by `CHUNK_END`. `len` must not be zero.
pub fn encode_chunk_size(out: &mut Vec<u8>, len: u64) {
    debug_assert!(len > 0);
    let digits = (u64::BITS - len.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(len >> (digit * 4) & 0xf) as usize]);
    }
    out.extend_from_slice(b"\r\n");
}

/// What follows the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// The last chunk and the trailer section, which may be empty (RFC 9112 §7.1.2).
pub fn encode_last_chunk(out: &mut Vec<u8>, trailers: &FieldLines) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// RFC 9112 §4: the space before the reason is there even if the reason is empty.
fn encode_status_line(out: &mut Vec<u8>, status: u16) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let status = status.clamp(100, 999);
    out.extend([status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8));
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The Content-Length line, written from its end, in one copy.
#[inline]
fn push_length(out: &mut Vec<u8>, mut length: u64) {
    const NAME: &[u8; 16] = b"Content-Length: ";
    const DIGITS_MAX: usize = 20;
    let mut line = [0; NAME.len() + DIGITS_MAX + 2];
    let mut at = line.len() - 2;
    line[at..].copy_from_slice(b"\r\n");
    loop {
        at -= 1;
        line[at] = b'0' + (length % 10) as u8;
        length /= 10;
        if length == 0 {
            break;
        }
    }
    at -= NAME.len();
    line[at..at + NAME.len()].copy_from_slice(NAME);
    out.extend_from_slice(&line[at..]);
}

const DATE_LEN: usize = 29;

/// IMF-fixdate (RFC 9110 §5.6.7) of a time in seconds since 1970; years up to 9999.
pub fn imf_fixdate(unix_seconds: u64) -> [u8; DATE_LEN] {
    const WEEKDAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    const LAST: u64 = 253_402_300_799;
    let seconds = unix_seconds.min(LAST);
    let days = seconds / 86_400;
    let (year, month, day) = civil_date(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = (days % 7) as usize * 3;
    text[..3].copy_from_slice(&WEEKDAYS[weekday..weekday + 3]);
    text[8..11].copy_from_slice(&MONTHS[month * 3 - 3..month * 3]);
    let time = seconds % 86_400;
    let pairs = [
        (5, day as u64),
        (12, year / 100),
        (14, year % 100),
        (17, time / 3600),
        (20, time / 60 % 60),
        (23, time % 60),
    ];
    for (at, number) in pairs {
        text[at] = b'0' + (number / 10) as u8;
        text[at + 1] = b'0' + (number % 10) as u8;
    }
    text
}

/// Year, month from 1, day from 1, of a number of days since 1970: the Gregorian calendar counted from 1 March 0000,
/// so that the leap day is the last day of its year.
fn civil_date(days: u64) -> (u64, usize, usize) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month as usize, day as usize)
}

/// The reason phrase of a registered status code; empty for others (RFC 9112 §4: it is optional).
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
