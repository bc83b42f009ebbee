//! A client in raw bytes: what a test sends is what goes out, what comes back is parsed strictly (RFC 9112) and any
//! surprise fails the test. It knows HTTP/1.1 responses and nothing else.

use super::DEADLINE;
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

/// One response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Fields in order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The content, chunked coding undone.
    pub body: Vec<u8>,
}

impl Response {
    /// The one value of a field. Panics if it is there twice.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} is there more than once: {:?}", self.fields);
        first
    }

    /// The content as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text in UTF-8")
    }
}

/// How the content of the next response is delimited.
enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

impl Client {
    /// Connects, with [`DEADLINE`] on every read and write.
    pub fn connect(to: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&to, DEADLINE).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("read timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("write timeout");
        stream.set_nodelay(true).expect("nodelay");
        Client { stream, received: Vec::new() }
    }

    /// The socket itself, for options.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends these bytes, all of them.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("send");
    }

    /// Sends what the peer takes before it closes; for floods that are cut off on purpose.
    pub fn send_if_open(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Ends the sending side.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("half close");
    }

    /// Closes with a reset (SO_LINGER 0, socket(7)), which the peer's kernel has heard of when this returns.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("linger");
    }

    /// Sends `GET path` with keep-alive and reads the response.
    pub fn get(&mut self, path: &str) -> Response {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.read_response()
    }

    /// Sends `POST path` with this content and reads the response.
    pub fn post(&mut self, path: &str, body: &[u8]) -> Response {
        self.send(format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len()));
        self.send(body);
        self.read_response()
    }

    /// Reads one response to anything but HEAD. Interim responses are given as they come.
    pub fn read_response(&mut self) -> Response {
        self.read_any(false)
    }

    /// Reads the response to a HEAD: it has no content, whatever its fields say.
    pub fn read_head_response(&mut self) -> Response {
        self.read_any(true)
    }

    fn read_any(&mut self, to_head: bool) -> Response {
        let head = self.take_until(b"\r\n\r\n");
        let (status, fields) = parse_head(&head);
        let mut response = Response { status, fields, body: Vec::new() };
        response.body = match framing(&response, to_head) {
            Framing::None => Vec::new(),
            Framing::Length(length) => self.read_exact(length),
            Framing::Chunked => self.read_chunks(),
            Framing::UntilClose => self.read_until_close(),
        };
        response
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.take_until(b"\r\n");
            let digits = std::str::from_utf8(&line[..line.len() - 2]).expect("chunk size in ASCII");
            let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("chunk size {digits:?}"));
            if size == 0 {
                assert_eq!(self.take_until(b"\r\n"), b"\r\n", "trailers were not asked for");
                return body;
            }
            body.extend(self.read_exact(size));
            assert_eq!(self.read_exact(2), b"\r\n", "a chunk ends with CRLF");
        }
    }

    /// Reads exactly so many bytes.
    pub fn read_exact(&mut self, count: usize) -> Vec<u8> {
        while self.received.len() < count {
            assert!(self.fill(), "closed after {} of {count} bytes: {}", self.received.len(), self.shown());
        }
        self.received.drain(..count).collect()
    }

    /// Reads up to and with this mark.
    pub fn take_until(&mut self, mark: &[u8]) -> Vec<u8> {
        let mut searched = 0;
        loop {
            let found = self.received[searched..].windows(mark.len()).position(|window| window == mark);
            if let Some(at) = found {
                return self.received.drain(..searched + at + mark.len()).collect();
            }
            searched = self.received.len().saturating_sub(mark.len() - 1);
            assert!(self.fill(), "closed before {:?}: {}", String::from_utf8_lossy(mark), self.shown());
        }
    }

    /// Reads until the peer closes (an end or a reset) and gives what came. Panics if it stays open.
    pub fn read_until_close(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.received)
    }

    /// Panics unless the peer says nothing more and keeps the connection open for so long.
    pub fn expect_silence(&mut self, span: Duration) {
        assert!(self.received.is_empty(), "bytes nobody asked for: {}", self.shown());
        self.stream.set_read_timeout(Some(span)).expect("read timeout");
        let mut byte = [0; 64];
        let answer = self.stream.read(&mut byte);
        self.stream.set_read_timeout(Some(DEADLINE)).expect("read timeout");
        match answer {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            other => panic!("expected silence, got {other:?}: {}", String::from_utf8_lossy(&byte)),
        }
    }

    /// Gives false at the end of the stream; a reset is an end too.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => {
                    self.received.extend_from_slice(&chunk[..count]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("read: {error} after {}", self.shown()),
            }
        }
    }

    fn shown(&self) -> String {
        let shown = &self.received[..self.received.len().min(500)];
        String::from_utf8_lossy(shown).into_owned()
    }
}

/// RFC 9112 §6.3, and nothing that a careful server would not send.
fn framing(response: &Response, to_head: bool) -> Framing {
    let length = response.field("content-length");
    let coding = response.field("transfer-encoding");
    assert!(length.is_none() || coding.is_none(), "length and transfer coding: {:?}", response.fields);
    if to_head || response.status < 200 || matches!(response.status, 204 | 304) {
        return Framing::None;
    }
    match (length, coding) {
        (Some(length), None) => Framing::Length(length.parse().expect("content length is a number")),
        (None, Some(coding)) => {
            assert_eq!(coding, "chunked", "the only transfer coding");
            Framing::Chunked
        }
        _ => Framing::UntilClose,
    }
}

fn parse_head(head: &[u8]) -> (u16, Vec<(String, String)>) {
    let text = std::str::from_utf8(head).expect("a head in ASCII");
    let mut lines = text.strip_suffix("\r\n\r\n").expect("a whole head").split("\r\n");
    let status_line = lines.next().unwrap_or("");
    let status =
        status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..4)?.trim_end().parse().ok());
    let status = status.unwrap_or_else(|| panic!("status line {status_line:?}"));
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("field line {line:?}"));
        let is_token = !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        assert!(is_token && !line.contains(['\r', '\n', '\0']), "field line {line:?}");
        (name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_string())
    });
    (status, fields.collect())
}
