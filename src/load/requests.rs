//! The bytes to send, made ready before the run: from a URL, a list of them, or an access log. A run sends number
//! *n* modulo their count, so nothing is built while it is measured. Neighbours: `plan` calls it, `client` sends.

use std::{fmt::Write, str::FromStr};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Uri};

use crate::http1::response::Asked;

/// Requests made ready at most; a list beyond this is cut, and the cut is said.
pub const REQUESTS_MAX: usize = 100_000;
/// Bytes of all requests at most, bodies (which are shared) counted once.
pub const REQUEST_BYTES_MAX: usize = 64 * 1_048_576;
/// Variants of a URL with `{random:N}` in it.
const RANDOM_VARIANTS: usize = 4_096;

/// One request, ready to send.
#[derive(Debug, Clone)]
pub struct Request {
    /// Head and body; a large body is a part of its own.
    pub head: Bytes,
    /// The body, shared by all requests that have it.
    pub body: Bytes,
    /// What the form of the answer depends on.
    pub asked: Asked,
}

/// What all requests of a run have in common.
#[derive(Debug, Clone)]
pub struct Common {
    /// Method where the list does not name one.
    pub method: Method,
    /// `host:port` as it stands in the URL, for the Host field.
    pub authority: String,
    /// Fields of the user.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, or none.
    pub body: Bytes,
    /// Whether the connection is to be used again.
    pub keep_alive: bool,
}

impl Common {
    /// The request for a path (with its query).
    pub fn request(&self, method: &Method, path: &str) -> Request {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !self.has("host") {
            let _ = write!(head, "host: {}\r\n", self.authority);
        }
        if !self.has("user-agent") {
            let _ = write!(head, "user-agent: shardlet-bench/{}\r\n", env!("CARGO_PKG_VERSION"));
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        let sends_body = !self.body.is_empty() || *method == Method::POST || *method == Method::PUT;
        if sends_body && !self.has("content-length") {
            let _ = write!(head, "content-length: {}\r\n", self.body.len());
        }
        if !self.keep_alive && !self.has("connection") {
            head.push_str("connection: close\r\n");
        }
        head.push_str("\r\n");
        let asked = match *method {
            Method::HEAD => Asked::Head,
            _ => Asked::Usual,
        };
        Request {
            head: Bytes::from(head),
            body: if sends_body { self.body.clone() } else { Bytes::new() },
            asked,
        }
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(own, _)| own == name)
    }
}

/// Reads `Name: value`.
///
/// # Errors
/// One line naming what was not understood.
pub fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("`{text}` is not a header; write for example 'Accept: text/html'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::from_str(name.trim()).map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    value.to_str().map_err(|_| wrong())?;
    Ok((name, value))
}

/// An `http://` URL: what stands in Host, host and port to connect to, path and query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// For the Host field.
    pub authority: String,
    /// To look up.
    pub host: String,
    /// To connect to.
    pub port: u16,
    /// Path and query, `/` at least.
    pub path: String,
}

impl Target {
    /// Reads a URL. A missing scheme is taken for `http://`.
    ///
    /// # Errors
    /// One line naming what is wrong.
    pub fn parse(url: &str) -> Result<Self, String> {
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        // Braces stand for something; they are kept out of the check and put back.
        let checked = whole.replace(['{', '}'], "_");
        let uri = Uri::from_str(&checked).map_err(|error| format!("`{url}` is not a URL: {error}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(format!("`{url}`: TLS is not in this version; use http://")),
            _ => return Err(format!("`{url}`: only http:// is understood")),
        }
        let authority = uri.authority().ok_or_else(|| format!("`{url}` names no host"))?;
        if authority.as_str().contains('@') {
            return Err(format!("`{url}`: give a user with -H 'Authorization: …'"));
        }
        let after = &whole["http://".len() + authority.as_str().len()..];
        let path = after.split('#').next().unwrap_or_default();
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        })
    }
}

/// The paths that a path with `{random:N}` stands for: itself alone, or many with numbers below N in it.
///
/// # Errors
/// One line when the braces are not understood.
pub fn expand(path: &str) -> Result<Vec<String>, String> {
    let Some(open) = path.find('{') else { return Ok(vec![path.to_owned()]) };
    let wrong = || format!("`{path}`: the braces are not understood; write {{random:1000}}");
    let close = path.find('}').filter(|close| *close > open).ok_or_else(wrong)?;
    let bound = path[open + 1..close].strip_prefix("random:").and_then(|bound| bound.parse::<u64>().ok());
    let bound = bound.filter(|bound| *bound > 0).ok_or_else(wrong)?;
    let (before, after) = (&path[..open], &path[close + 1..]);
    if after.contains('{') {
        return Err(format!("`{path}`: one pair of braces at most"));
    }
    let mut random = Random::new();
    Ok((0..RANDOM_VARIANTS).map(|_| format!("{before}{}{after}", random.next() % bound)).collect())
}

/// Paths from a list: full URLs of the same host, or paths, one a line; `#` begins a comment.
///
/// # Errors
/// One line with the number of the line that was not understood.
pub fn paths_of_list(text: &str, authority: &str) -> Result<Vec<String>, String> {
    let mut paths = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let numbered = |why: String| format!("line {}: {why}", at + 1);
        let path = match line.starts_with('/') {
            true => line.to_owned(),
            false => {
                let target = Target::parse(line).map_err(numbered)?;
                if target.authority != authority {
                    return Err(numbered(format!("`{line}` is on another host than {authority}")));
                }
                target.path
            }
        };
        paths.push(checked_path(path).map_err(numbered)?);
    }
    Ok(paths)
}

/// Methods and paths from an access log in the common or combined format. Lines that hold no request are counted,
/// not refused: real logs have them.
pub fn requests_of_log(text: &str) -> (Vec<(Method, String)>, usize) {
    let mut skipped = 0;
    let requests = (text.lines().filter(|line| !line.trim().is_empty()))
        .filter_map(|line| {
            let request = request_of_line(line);
            skipped += usize::from(request.is_none());
            request
        })
        .take(REQUESTS_MAX)
        .collect();
    (requests, skipped)
}

/// `127.0.0.1 - - [date] "GET /path HTTP/1.1" 200 …`: the first quoted part.
fn request_of_line(line: &str) -> Option<(Method, String)> {
    let quoted = line.split('"').nth(1)?;
    let mut words = quoted.split(' ');
    let method = Method::from_str(words.next()?).ok().filter(|method| *method != Method::CONNECT)?;
    let path = words.next()?;
    words.next()?.strip_prefix("HTTP/")?;
    let path = checked_path(path.to_owned()).ok()?;
    path.starts_with('/').then_some((method, path))
}

/// A request target is visible ASCII; anything else would break the request line apart.
fn checked_path(path: String) -> Result<String, String> {
    match path.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(path),
        false => {
            Err(format!("`{}` is no path: percent-encode what is not visible ASCII", path.escape_debug()))
        }
    }
}

/// Bytes that do not compress, the same in every run.
pub fn random_body(size: u64) -> Vec<u8> {
    let mut random = Random::new();
    let mut body = Vec::with_capacity(size as usize);
    while body.len() < size as usize {
        body.extend_from_slice(&random.next().to_le_bytes());
    }
    body.truncate(size as usize);
    body
}

/// xorshift64*: repeatable, and good enough to spread keys.
struct Random {
    state: u64,
}

impl Random {
    fn new() -> Self {
        Self { state: 0x2545_f491_4f6c_dd1d }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common() -> Common {
        Common {
            method: Method::GET,
            authority: "example.test:8080".to_owned(),
            headers: vec![parse_header("Accept: text/html").expect("a header")],
            body: Bytes::new(),
            keep_alive: true,
        }
    }

    fn text(request: &Request) -> String {
        String::from_utf8([&request.head[..], &request.body[..]].concat()).expect("text")
    }

    #[test]
    fn a_request_is_whole() {
        let sent = text(&common().request(&Method::GET, "/a?b=c"));
        assert!(sent.starts_with("GET /a?b=c HTTP/1.1\r\nhost: example.test:8080\r\n"), "{sent}");
        assert!(sent.contains("accept: text/html\r\n") && sent.ends_with("\r\n\r\n"));
        assert!(!sent.contains("content-length"));
        let post = Common { body: Bytes::from_static(b"hi"), keep_alive: false, ..common() };
        let sent = text(&post.request(&Method::POST, "/"));
        assert!(sent.contains("content-length: 2\r\nconnection: close\r\n\r\nhi"), "{sent}");
        let own = Common { headers: vec![parse_header("Host: other").expect("a header")], ..common() };
        assert_eq!(text(&own.request(&Method::GET, "/")).matches("host:").count(), 1);
    }

    #[test]
    fn urls_are_read() {
        let target = Target::parse("http://[::1]:8080/x?y#z").expect("a URL");
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 8080, "/x?y"));
        let bare = Target::parse("localhost:3000").expect("a URL");
        assert_eq!((bare.host.as_str(), bare.port, bare.path.as_str()), ("localhost", 3_000, "/"));
        assert_eq!(Target::parse("http://h/k/{random:9}").expect("a URL").path, "/k/{random:9}");
        for wrong in ["https://h/", "ftp://h/", "http://", "http://u:p@h/", "http://h/a b"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn random_keys_are_below_their_bound_and_differ() {
        let paths = expand("/k/{random:1000}/v").expect("braces");
        assert_eq!(paths.len(), RANDOM_VARIANTS);
        let numbers: std::collections::HashSet<u64> =
            paths.iter().map(|path| path[3..path.len() - 2].parse().expect("a number")).collect();
        assert!(numbers.len() > 900 && numbers.iter().all(|number| *number < 1_000));
        for wrong in ["/{", "/{random}", "/{random:0}", "/{random:9}{random:9}"] {
            assert!(expand(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_and_logs_are_read() {
        let list = "# paths\n/a\n\nhttp://h:1/b?c\n";
        assert_eq!(paths_of_list(list, "h:1"), Ok(vec!["/a".to_owned(), "/b?c".to_owned()]));
        assert!(paths_of_list("http://other/\n", "h:1").expect_err("another host").starts_with("line 1"));
        let log = "1.2.3.4 - - [10/Oct/2000:13:55:36 +0000] \"GET /x HTTP/1.1\" 200 5 \"-\" \"agent\"\n\
                   garbage\n1.2.3.4 - - [x] \"POST /y?z HTTP/1.0\" 201 0\n1.2.3.4 - - [x] \"\\x16\\x03\" 400 0\n";
        let (requests, skipped) = requests_of_log(log);
        assert_eq!(requests, [(Method::GET, "/x".to_owned()), (Method::POST, "/y?z".to_owned())]);
        assert_eq!(skipped, 2);
    }

    #[test]
    fn a_header_cannot_split_the_request() {
        for wrong in ["no colon", "a b: c", "X: a\r\nY: b", ": x"] {
            assert!(parse_header(wrong).is_err(), "{wrong}");
        }
        assert!(paths_of_list("/a\tb HTTP/1.1\n", "h").is_err());
    }

    #[test]
    fn a_random_body_has_its_size_and_repeats() {
        assert_eq!(random_body(1_001).len(), 1_001);
        assert_eq!(random_body(64), random_body(64));
    }
}
