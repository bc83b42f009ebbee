//! What both floors share: the answer, and the count of requests by their ends.
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nServer: raw\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
/// Most answers one send may hold.
pub const MAX: usize = 1024;

/// How many CRLF CRLF end inside `b`; `state` (0..=3 bytes matched) carries over
/// from one read to the next.
#[inline]
pub fn count(b: &[u8], state: &mut u8) -> usize {
    let mut n = 0;
    let mut i = 0;
    // finish what an earlier read began
    while *state != 0 && i < b.len() {
        let want = if *state & 1 == 0 { b'\r' } else { b'\n' };
        if b[i] == want {
            *state += 1;
            if *state == 4 {
                n += 1;
                *state = 0;
            }
        } else {
            *state = u8::from(b[i] == b'\r');
        }
        i += 1;
        if *state == 0 {
            break;
        }
    }
    // then jump from LF to LF
    let mut p = i;
    while p < b.len() {
        let q = unsafe { libc::memchr(b[p..].as_ptr().cast(), b'\n' as i32, b.len() - p) };
        if q.is_null() {
            break;
        }
        let k = q as usize - b.as_ptr() as usize;
        if k >= i + 3 && b[k - 1] == b'\r' && b[k - 2] == b'\n' && b[k - 3] == b'\r' {
            n += 1;
        }
        p = k + 1;
    }
    // what the tail leaves half matched
    if i < b.len() {
        let t = &b[i.max(b.len().saturating_sub(3))..];
        *state = if t.ends_with(b"\r\n\r") {
            3
        } else if t.ends_with(b"\r\n") && !b[i..].ends_with(b"\r\n\r\n") {
            2
        } else if t.ends_with(b"\r") {
            1
        } else {
            0
        };
    }
    n
}
