//! The request target and the authority: RFC 9112 §3.2 by form, RFC 3986 by octet.
//!
//! Decoding and dot segments are not done here; the path stays as received, and whoever maps it to a file or a route
//! decodes it once.

use super::grammar::{is_hex, is_host_octet, is_target_octet};
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
            parse_path(line, start, index)
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

/// path-abempty [ "?" query ] up to the end of the line. RFC 9112 §3.2: whitespace, and whatever else no URI holds,
/// is 400; a fragment is not part of a target.
#[inline]
fn parse_path(line: &[u8], start: usize, index: &mut HeadIndex) -> Result<(), Reject> {
    let mut at = start;
    let mut path_end = None;
    while at < line.len() {
        let octet = line[at];
        if is_target_octet(octet) {
            at += 1;
        } else if octet == b'%' {
            at = percent_end(line, at)?;
        } else if octet == b'?' {
            path_end.get_or_insert(at);
            at += 1;
        } else {
            return Err(Reject::Target);
        }
    }
    let end = path_end.unwrap_or(line.len());
    index.path = Span::new(start, end);
    index.query = path_end.map(|end| Span::new(end + 1, line.len()));
    Ok(())
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
    check_authority(&line[authority..authority_end], limits.host_bytes_max).map_err(|_| Reject::Target)?;
    index.form = TargetForm::Absolute;
    index.host = Some(Span::new(authority, authority_end));
    parse_path(line, authority_end, index)
}

/// RFC 9112 §3.2.3: uri-host ":" port, both present.
fn parse_authority_form(
    line: &[u8],
    start: usize,
    index: &mut HeadIndex,
    limits: &Limits,
) -> Result<(), Reject> {
    let authority = &line[start..];
    let has_port = check_authority(authority, limits.host_bytes_max).map_err(|_| Reject::Target)?;
    if !has_port {
        return Err(Reject::Target);
    }
    index.form = TargetForm::Authority;
    index.path = Span::new(start, start);
    index.host = Some(Span::new(start, line.len()));
    Ok(())
}

/// RFC 9110 §7.2: Host = uri-host [ ":" port ]. An empty one names nothing that we serve.
#[inline]
pub(super) fn check_host(value: &[u8], limits: &Limits) -> Result<(), Reject> {
    check_authority(value, limits.host_bytes_max).map(|_| ())
}

/// uri-host [ ":" port ] without userinfo; whether a port with digits is there.
#[inline]
fn check_authority(authority: &[u8], host_bytes_max: usize) -> Result<bool, Reject> {
    let host_len = match authority {
        [b'[', ..] => ip_literal_len(authority)?,
        _ => reg_name_len(authority)?,
    };
    if host_len == 0 || host_len > host_bytes_max {
        return Err(Reject::HostInvalid);
    }
    match &authority[host_len..] {
        [] => Ok(false),
        [b':', port @ ..] => check_port(port),
        _ => Err(Reject::HostInvalid),
    }
}

/// RFC 3986 §3.2.3: `*DIGIT`; above 65535 it names no port.
#[inline]
fn check_port(port: &[u8]) -> Result<bool, Reject> {
    let mut number = 0u32;
    for octet in port {
        let digit = octet.wrapping_sub(b'0');
        number = number * 10 + u32::from(digit);
        if digit > 9 || number > 65_535 {
            return Err(Reject::HostInvalid);
        }
    }
    Ok(!port.is_empty())
}

/// RFC 3986 §3.2.2: reg-name or IPv4address, up to the port.
#[inline]
fn reg_name_len(authority: &[u8]) -> Result<usize, Reject> {
    let mut at = 0;
    while at < authority.len() {
        let octet = authority[at];
        if is_host_octet(octet) {
            // RFC 9110 §5.3: two Host fields joined by a proxy make a list; no name of the DNS holds a comma.
            if octet == b',' {
                return Err(Reject::HostInvalid);
            }
            at += 1;
        } else if octet == b'%' {
            at = percent_end(authority, at).map_err(|_| Reject::HostInvalid)?;
        } else {
            break;
        }
    }
    Ok(at)
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
