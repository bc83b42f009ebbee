//! The request target and the authority: RFC 9112 §3.2 by form, RFC 3986 by octet.
//!
//! Decoding and dot segments are not done here; the path stays as received, and whoever maps it to a file or a route
//! decodes it once.

use super::classes::{host_end, path_end};
use super::grammar::{is_hex, is_host_octet};
use super::head::{HeadIndex, Method, Span, TargetForm};
use super::reject::Reject;
use crate::limits::Limits;

/// Parses the target `line[start..]` into `index`, whose method is known.
#[inline]
pub(super) fn parse_target(
    line: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<(), Reject> {
    index.host = None;
    index.query = None;
    // RFC 9112 §3.2.3: CONNECT takes authority-form and nothing else does.
    if index.method == Method::Connect {
        return parse_authority_form(line, start, index, limits);
    }
    match line[start] {
        b'/' => {
            index.form = TargetForm::Origin;
            parse_whole_path(line, start, index)
        }
        // RFC 9112 §3.2.4: asterisk-form is for OPTIONS alone.
        b'*' if index.method == Method::Options && line.len() == start + 1 => {
            index.form = TargetForm::Asterisk;
            index.path = Span::new(start, start + 1);
            Ok(())
        }
        _ => parse_absolute_form(line, start, index, limits),
    }
}

/// As `parse_path`, up to the end of the line. RFC 9112 §3.2: whitespace, and whatever else no URI holds, is 400; a
/// fragment is not part of a target.
fn parse_whole_path(line: &[u8], start: usize, index: &mut HeadIndex) -> Result<(), Reject> {
    if parse_path(line, start, index)? == line.len() { Ok(()) } else { Err(Reject::Target) }
}

/// path-abempty [ "?" query ] (RFC 9112 §3.2.1) up to an octet that neither holds, whose offset is returned.
#[inline]
pub(super) fn parse_path(bytes: &[u8], start: usize, index: &mut HeadIndex) -> Result<usize, Reject> {
    let mut at = start;
    let mut query_mark = None;
    loop {
        at = path_end(bytes, at);
        at = match bytes.get(at) {
            Some(b'%') => percent_end(bytes, at)?,
            Some(b'?') => {
                query_mark.get_or_insert(at);
                at + 1
            }
            _ => break,
        };
    }
    index.path = Span::new(start, query_mark.unwrap_or(at));
    index.query = query_mark.map(|mark| Span::new(mark + 1, at));
    Ok(at)
}

/// RFC 3986 §2.1: "%" HEXDIG HEXDIG. Returns the offset behind it.
fn percent_end(octets: &[u8], at: usize) -> Result<usize, Reject> {
    match octets.get(at + 1..at + 3) {
        Some([high, low]) if is_hex(*high) && is_hex(*low) => Ok(at + 3),
        _ => Err(Reject::Target),
    }
}

/// RFC 9112 §3.2.2 with RFC 9110 §4.2: http or https, an authority that is not empty and has no userinfo, then a path
/// that may be empty.
fn parse_absolute_form(
    line: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<(), Reject> {
    let target = &line[start..];
    let scheme_len = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.len() >= scheme.len() && target[..scheme.len()].eq_ignore_ascii_case(scheme))
        .ok_or(Reject::Target)?
        .len();
    let authority = start + scheme_len;
    let authority_end = line[authority..]
        .iter()
        .position(|octet| matches!(octet, b'/' | b'?' | b'#'))
        .map_or(line.len(), |len| authority + len);
    check_authority(&line[..authority_end], authority, limits.host_bytes_max).map_err(|_| Reject::Target)?;
    index.form = TargetForm::Absolute;
    index.host = Some(Span::new(authority, authority_end));
    parse_whole_path(line, authority_end, index)
}

/// RFC 9112 §3.2.3: uri-host ":" port, both present; RFC 9110 §9.3.6: an empty or invalid port is 400.
fn parse_authority_form(
    line: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<(), Reject> {
    let port = check_authority(line, start, limits.host_bytes_max).map_err(|_| Reject::Target)?;
    if port.unwrap_or(0) == 0 {
        return Err(Reject::Target);
    }
    index.form = TargetForm::Authority;
    index.path = Span::new(start, start);
    index.host = Some(Span::new(start, line.len()));
    Ok(())
}

/// The Host value that was found valid last: nearly all requests to a server bring the same one, and the same octets
/// are as valid again under the same limit.
#[derive(Debug, Default)]
pub(super) struct KnownHost(Option<Box<Known>>);

#[derive(Debug)]
struct Known {
    host_bytes_max: usize,
    len: usize,
    octets: [u8; KNOWN_BYTES_MAX],
}

/// Longer values are checked each time.
const KNOWN_BYTES_MAX: usize = 64;

/// A copy of an index is for reading: it knows none.
impl Clone for KnownHost {
    fn clone(&self) -> Self {
        KnownHost(None)
    }
}

impl KnownHost {
    /// RFC 9110 §7.2: Host = uri-host [ ":" port ]. An empty one names nothing that we serve.
    #[inline]
    pub(super) fn check(&mut self, bytes: &[u8], host: Span, limits: &Limits) -> Result<(), Reject> {
        let value = host.of(bytes);
        if let Some(known) = &self.0
            && known.octets[..known.len] == *value
            && known.host_bytes_max == limits.host_bytes_max
        {
            return Ok(());
        }
        check_authority(&bytes[..host.end()], host.start(), limits.host_bytes_max)?;
        self.keep(value, limits.host_bytes_max);
        Ok(())
    }

    fn keep(&mut self, value: &[u8], host_bytes_max: usize) {
        if value.len() > KNOWN_BYTES_MAX {
            return;
        }
        let new = || Box::new(Known { host_bytes_max, len: 0, octets: [0; KNOWN_BYTES_MAX] });
        let known = self.0.get_or_insert_with(new);
        known.octets[..value.len()].copy_from_slice(value);
        (known.len, known.host_bytes_max) = (value.len(), host_bytes_max);
    }
}

/// uri-host [ ":" port ] without userinfo, from `start` to the end; the port if one with digits is there.
#[inline]
fn check_authority(bytes: &[u8], start: usize, host_bytes_max: usize) -> Result<Option<u16>, Reject> {
    let end = match &bytes[start..] {
        authority @ [b'[', ..] => start + ip_literal_len(authority)?,
        _ => reg_name_end(bytes, start)?,
    };
    if end == start || end - start > host_bytes_max {
        return Err(Reject::HostInvalid);
    }
    match &bytes[end..] {
        [] => Ok(None),
        [b':', port @ ..] => check_port(port),
        _ => Err(Reject::HostInvalid),
    }
}

/// RFC 3986 §3.2.3: `*DIGIT`; above 65535 it names no port.
#[inline]
fn check_port(port: &[u8]) -> Result<Option<u16>, Reject> {
    let mut number = 0u32;
    for octet in port {
        let digit = octet.wrapping_sub(b'0');
        number = number * 10 + u32::from(digit);
        if digit > 9 || number > 65_535 {
            return Err(Reject::HostInvalid);
        }
    }
    Ok((!port.is_empty()).then_some(number as u16))
}

/// RFC 3986 §3.2.2: reg-name or IPv4address, up to the port.
#[inline]
fn reg_name_end(bytes: &[u8], start: usize) -> Result<usize, Reject> {
    let mut at = start;
    loop {
        at = host_end(bytes, at);
        if bytes.get(at) != Some(&b'%') {
            return Ok(at);
        }
        at = percent_end(bytes, at).map_err(|_| Reject::HostInvalid)?;
    }
}

/// RFC 3986 §3.2.2: "[" ( IPv6address / IPvFuture ) "]".
fn ip_literal_len(authority: &[u8]) -> Result<usize, Reject> {
    let close = authority.iter().position(|&octet| octet == b']').ok_or(Reject::HostInvalid)?;
    let literal = &authority[1..close];
    let valid = match literal {
        [b'v' | b'V', rest @ ..] => is_ip_future(rest),
        _ => core::str::from_utf8(literal)
            .ok()
            .and_then(|text| text.parse::<core::net::Ipv6Addr>().ok())
            .is_some(),
    };
    if valid { Ok(close + 1) } else { Err(Reject::HostInvalid) }
}

/// RFC 3986 §3.2.2: "v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" ), without its "v".
fn is_ip_future(rest: &[u8]) -> bool {
    let Some(dot) = rest.iter().position(|&octet| octet == b'.') else {
        return false;
    };
    let (version, address) = (&rest[..dot], &rest[dot + 1..]);
    !version.is_empty()
        && version.iter().all(|&octet| is_hex(octet))
        && !address.is_empty()
        && address.iter().all(|&octet| is_host_octet(octet) || octet == b':')
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
