//! What the raw peers share: the smallest HTTP/1.1 work that still looks at
//! every header, and a Date value renewed once a second.
use std::cell::UnsafeCell;

pub const BODY: &[u8] = b"Hello, World!";

pub fn port() -> u16 {
    std::env::var("PORT").ok().and_then(|p| p.parse().ok()).expect("PORT is not set")
}

/// IMF-fixdate of a Unix time (days-from-civil turned round).
pub fn http_date(secs: i64, out: &mut [u8; 29]) {
    let days = secs.div_euclid(86_400);
    let rem = secs.rem_euclid(86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let d = doy - (153 * mp + 2) / 5 + 1;
    let m = if mp < 10 { mp + 3 } else { mp - 9 };
    let y = yoe + era * 400 + i64::from(m <= 2);
    const WD: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MO: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let s = format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
        WD[days.rem_euclid(7) as usize],
        d,
        MO[(m - 1) as usize],
        y,
        rem / 3600,
        rem / 60 % 60,
        rem % 60
    );
    out.copy_from_slice(s.as_bytes());
}

struct Head {
    sec: i64,
    text: Vec<u8>,
}
thread_local!(static HEAD: UnsafeCell<Head> = const { UnsafeCell::new(Head { sec: -1, text: Vec::new() }) });

fn push_ok(out: &mut Vec<u8>) {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut ts) };
    HEAD.with(|h| {
        // one thread, no re-entry: nothing else holds the cell here
        let h = unsafe { &mut *h.get() };
        if h.sec != ts.tv_sec {
            h.sec = ts.tv_sec;
            let mut d = [0u8; 29];
            http_date(ts.tv_sec, &mut d);
            h.text.clear();
            h.text.extend_from_slice(b"HTTP/1.1 200 OK\r\nServer: raw\r\nDate: ");
            h.text.extend_from_slice(&d);
            h.text.extend_from_slice(b"\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n");
            h.text.extend_from_slice(BODY);
        }
        out.extend_from_slice(&h.text);
    })
}

/// Answers every complete request in `buf` into `out`; gives the bytes used and
/// whether the connection stays open. A body is not expected (GET only).
#[inline]
pub fn answer(buf: &[u8], out: &mut Vec<u8>) -> (usize, bool) {
    let mut used = 0;
    loop {
        if used == buf.len() {
            return (used, true);
        }
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; 32];
        let mut req = httparse::Request::new(&mut []);
        match req.parse_with_uninit_headers(&buf[used..], &mut headers) {
            Ok(httparse::Status::Complete(n)) => {
                used += n;
                let mut close = false;
                for h in req.headers.iter() {
                    if h.name.len() == 10
                        && h.name.eq_ignore_ascii_case("connection")
                        && h.value.eq_ignore_ascii_case(b"close")
                    {
                        close = true;
                    }
                }
                if req.method == Some("GET") && req.path == Some("/plaintext") {
                    push_ok(out);
                } else {
                    out.extend_from_slice(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
                }
                if close {
                    return (used, false);
                }
            }
            Ok(httparse::Status::Partial) => return (used, true),
            Err(_) => {
                out.extend_from_slice(
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                return (used, false);
            }
        }
    }
}

/// A listening socket: loopback, reusable, deep backlog, no Nagle (inherited by
/// what is accepted).
pub fn listener(port: u16) -> std::net::TcpListener {
    use std::os::fd::FromRawFd;
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let one: libc::c_int = 1;
        let p = &one as *const _ as *const libc::c_void;
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, p, 4);
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, p, 4);
        let a = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        assert_eq!(libc::bind(fd, &a as *const _ as *const libc::sockaddr, 16), 0, "bind");
        assert_eq!(libc::listen(fd, 4096), 0, "listen");
        std::net::TcpListener::from_raw_fd(fd)
    }
}
