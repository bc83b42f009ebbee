//! Answers as a strict client sees them.

/// One answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) closes: bool,
}

/// What the bytes of a connection are.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) whole: Vec<Reply>,
    /// Bytes behind the last whole answer: one that is cut, or not all there yet.
    pub(super) rest: usize,
}

/// Panics on anything that is not an answer in its right form.
pub(super) fn parse(bytes: &[u8]) -> Replies {
    let (mut at, mut whole) = (0, Vec::new());
    while let Some((reply, used)) = parse_one(&bytes[at..]) {
        at += used;
        if reply.status >= 200 {
            whole.push(reply);
        }
    }
    Replies { whole, rest: bytes.len() - at }
}

fn parse_one(bytes: &[u8]) -> Option<(Reply, usize)> {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let start = &bytes[..bytes.len().min(9)];
    assert_eq!(start, &b"HTTP/1.1 "[..start.len()], "not an answer: {shown}");
    let head_len = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_len]).expect("a head in ASCII");
    let status = head[9..12].parse().unwrap_or_else(|_| panic!("status: {shown}"));
    let field = |name: &str| {
        let mut values = head.split("\r\n").skip(1).filter_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        });
        let value = values.next();
        assert!(values.next().is_none(), "{name} twice: {shown}");
        value
    };
    let closes = field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let rest = &bytes[head_len..];
    let (body, used) = match (field("content-length"), field("transfer-encoding")) {
        (Some(length), None) => {
            let length: usize = length.parse().expect("a number");
            (rest.get(..length)?.to_vec(), length)
        }
        (None, Some(coding)) => {
            assert_eq!(coding, "chunked");
            chunked(rest)?
        }
        (None, None) => {
            assert!(status < 200 || status == 204 || status == 304, "no frame: {shown}");
            (Vec::new(), 0)
        }
        _ => panic!("two frames: {shown}"),
    };
    Some((Reply { status, body, closes }, head_len + used))
}

fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let digits = std::str::from_utf8(&bytes[at..at + line]).expect("ASCII");
        let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("chunk size {digits:?}"));
        at += line + 2;
        let piece = bytes.get(at..at + size + 2)?;
        assert_eq!(&piece[size..], b"\r\n", "a chunk ends with CRLF");
        at += size + 2;
        if size == 0 {
            return Some((body, at));
        }
        body.extend_from_slice(&piece[..size]);
    }
}
