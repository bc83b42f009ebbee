//! Where a request ends and what follows it: RFC 9112 §6 and §9.3, decided in one pass over the fields.
//!
//! `parse` feeds each field once and asks for the verdict at the end. Whatever two readers could take in two ways is
//! refused, and a refused message closes its connection; that is the whole defence against request smuggling (RFC
//! 9112 §11.2). Responses have their own rules in `response.rs`.

use super::grammar::{is_token, list_elements, trim_ows};
use super::head::{Span, Version};
use super::reject::Reject;

/// How the content of a message is delimited (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyKind {
    /// No content.
    #[default]
    None,
    /// Content-Length, not zero.
    Length(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
    /// No content but another protocol, until the peer closes: what follows a 101 (RFC 9110 §7.8). No head says so.
    Tunnel,
}

/// What the fields of a request say about its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framing {
    /// The content that follows the head.
    pub body: BodyKind,
    /// The client's side of persistence (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// An HTTP/1.1 client with content waits for 100 (RFC 9110 §10.1.1).
    pub expects_continue: bool,
    /// TE names trailers: a response may carry them (RFC 9110 §6.5.1).
    pub accepts_trailers: bool,
    /// A CONNECT: a 2xx makes a tunnel of what follows (RFC 9110 §9.3.6).
    pub asks_tunnel: bool,
}

/// What one pass over the fields has found so far.
#[derive(Debug, Default)]
pub(super) struct FramingScan {
    content_length: Option<u64>,
    transfer_encoding: Option<bool>,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    expectation: Expectation,
    accepts_trailers: bool,
    pub(super) host: Option<Span>,
    pub(super) upgrade: Option<Span>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expectation {
    #[default]
    None,
    Continue,
    Unknown,
}

impl FramingScan {
    /// Looks at one field; the length of its name selects the few that matter.
    #[inline]
    pub(super) fn field(&mut self, name: &[u8], value: &[u8], span: Span) -> Result<(), Reject> {
        match name.len() {
            2 if is(name, b"te") => self.te(value),
            4 if is(name, b"host") => return self.host(span),
            6 if is(name, b"expect") => self.expect(value),
            7 if is(name, b"upgrade") => self.upgrade = Some(span),
            10 if is(name, b"connection") => self.connection(value),
            14 if is(name, b"content-length") => return self.length(value),
            17 if is(name, b"transfer-encoding") => return self.encoding(value),
            _ => {}
        }
        Ok(())
    }

    /// RFC 9112 §3.2: more than one Host line is 400.
    #[inline]
    fn host(&mut self, span: Span) -> Result<(), Reject> {
        if self.host.replace(span).is_some() { Err(Reject::HostRepeated) } else { Ok(()) }
    }

    /// RFC 9112 §6.3: a list or a second line would be allowed if all values agreed; it is never needed, so refused.
    fn length(&mut self, value: &[u8]) -> Result<(), Reject> {
        if value.contains(&b',') {
            return Err(Reject::ContentLengthRepeated);
        }
        let length = parse_content_length(value)?;
        if self.content_length.replace(length).is_some() {
            return Err(Reject::ContentLengthRepeated);
        }
        Ok(())
    }

    /// RFC 9112 §6.1: only `chunked`, once, on one line. The verdict waits for the other fields.
    fn encoding(&mut self, value: &[u8]) -> Result<(), Reject> {
        if self.transfer_encoding.is_some() {
            return Err(Reject::TransferEncoding);
        }
        self.transfer_encoding = Some(transfer_encoding_is_chunked(value)?);
        Ok(())
    }

    /// RFC 9110 §7.6.1: a list of options, compared without case. Options that name fields are for proxies.
    #[inline]
    fn connection(&mut self, value: &[u8]) {
        // What nearly all send.
        if is(value, b"keep-alive") {
            self.keep_alive = true;
            return;
        }
        self.connection_options(value);
    }

    fn connection_options(&mut self, value: &[u8]) {
        for option in list_elements(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade_option = true,
                _ => {}
            }
        }
    }

    /// RFC 9110 §10.1.1: the only expectation is `100-continue`, without case. One line, one member: two ways to
    /// write it would let two readers disagree about who waits for whom.
    fn expect(&mut self, value: &[u8]) {
        let known = value.eq_ignore_ascii_case(b"100-continue") && self.expectation == Expectation::None;
        self.expectation = if known { Expectation::Continue } else { Expectation::Unknown };
    }

    fn te(&mut self, value: &[u8]) {
        self.accepts_trailers |= list_elements(value).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    }

    /// The verdict once all fields are seen.
    #[inline]
    pub(super) fn finish(&mut self, version: Version) -> Result<Framing, Reject> {
        let body = match (self.transfer_encoding, self.content_length) {
            (None, None | Some(0)) => BodyKind::None,
            (None, Some(length)) => BodyKind::Length(length),
            // RFC 9112 §6.1: in HTTP/1.0 the framing is faulty even beside a Content-Length.
            (Some(_), _) if version == Version::Http10 => return Err(Reject::TransferEncodingInHttp10),
            (Some(_), Some(_)) => return Err(Reject::LengthAndEncoding),
            (Some(true), None) => BodyKind::Chunked,
            (Some(false), None) => return Err(Reject::TransferCodingUnknown),
        };
        let is_11 = version == Version::Http11;
        // RFC 9110 §10.1.1: in HTTP/1.0 an expectation is ignored.
        if is_11 && self.expectation == Expectation::Unknown {
            return Err(Reject::Expectation);
        }
        // RFC 9110 §7.8: Upgrade counts only with its connection option, and not in HTTP/1.0.
        if !(is_11 && self.upgrade_option) {
            self.upgrade = None;
        }
        Ok(Framing {
            body,
            // RFC 9112 §9.3: close wins; then the default of the version.
            keep_alive: !self.close && (is_11 || self.keep_alive),
            expects_continue: is_11 && self.expectation == Expectation::Continue && body != BodyKind::None,
            accepts_trailers: self.accepts_trailers,
            asks_tunnel: false,
        })
    }
}

/// Whether a name or value, in which no control octet is, has these letters and hyphens: among such octets the bit of
/// the case makes none a letter or a hyphen that is not one. All are compared at once.
#[inline]
fn is<const N: usize>(octets: &[u8], lower: &[u8; N]) -> bool {
    let Ok(octets) = <&[u8; N]>::try_from(octets) else { return false };
    octets.iter().zip(lower).fold(0, |differs, (octet, lower)| differs | (octet | 0x20) ^ lower) == 0
}

/// RFC 9110 §8.6: `1*DIGIT`. A number that does not fit is refused, never wrapped.
pub(super) fn parse_content_length(value: &[u8]) -> Result<u64, Reject> {
    if value.is_empty() {
        return Err(Reject::ContentLength);
    }
    value.iter().try_fold(0u64, |length, &octet| {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Reject::ContentLength);
        }
        length.checked_mul(10).and_then(|l| l.checked_add(u64::from(digit))).ok_or(Reject::ContentLength)
    })
}

/// Whether the value is exactly `chunked`. A well-formed list that ends in chunked is a coding we do not have (RFC
/// 9112 §6.1: 501); everything else leaves the length unknown (RFC 9112 §6.3: 400).
pub(super) fn transfer_encoding_is_chunked(value: &[u8]) -> Result<bool, Reject> {
    // RFC 9112 §7: coding names are case-insensitive.
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(true);
    }
    let mut final_is_chunked = false;
    let mut seen_chunked = false;
    for coding in value.split(|&octet| octet == b',') {
        let coding = trim_ows(coding);
        // A parameter, an empty element, a quote: no list of plain codings.
        if !is_token(coding) || seen_chunked {
            return Err(Reject::TransferEncoding);
        }
        final_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        seen_chunked |= final_is_chunked;
    }
    if final_is_chunked { Ok(false) } else { Err(Reject::TransferEncoding) }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
