//! Load generator of the bench: one thread, io_uring, HTTP/1.1 with kept-open
//! connections. Closed loop (as fast as answers come) or, with --rate, open loop:
//! requests fall due at a constant rate and latency counts from when one was due.
//! -b N posts N bytes of content, -s is the status that counts as right.
//! Prints one line of JSON.
use io_uring::{cqueue, opcode, squeue, types, EnterFlags, IoUring};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU16, Ordering};

const RECV: u64 = 1;
const SEND: u64 = 2;

fn now() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Log-linear histogram of nanoseconds, 128 steps per doubling (under 1 % error).
struct Hist {
    n: Vec<u64>,
    total: u64,
    sum: u128,
    max: u64,
}
impl Hist {
    fn new() -> Self {
        Hist { n: vec![0; 64 * 128], total: 0, sum: 0, max: 0 }
    }
    fn add(&mut self, v: u64) {
        let v1 = v.max(128);
        let e = 63 - v1.leading_zeros() as usize;
        let i = (e - 7) * 128 + (v1 >> (e - 7)) as usize - 128;
        self.n[i] += 1;
        self.total += 1;
        self.sum += v as u128;
        self.max = self.max.max(v);
    }
    fn at(&self, q: f64) -> f64 {
        let want = (self.total as f64 * q).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.n.iter().enumerate() {
            seen += n;
            if seen >= want {
                let e = i / 128;
                return (((i % 128 + 128) as u64) << e).min(self.max) as f64 / 1e3;
            }
        }
        self.max as f64 / 1e3
    }
}

#[derive(Default)]
struct Conn {
    fd: i32,
    head: Vec<u8>, // a head not yet whole
    body: usize,   // bytes of body still to come
    left: usize,   // answers still to come of this batch
    start: u64,
}

/// What the last head looked like: most answers of a server are of one shape.
struct Shape {
    expected: Vec<u8>, // how a right answer begins
    len: usize,
    cl_at: usize,
    cl: Vec<u8>,
    body: usize,
}

fn find(b: &[u8], what: &[u8]) -> Option<usize> {
    let p = unsafe { libc::memmem(b.as_ptr().cast(), b.len(), what.as_ptr().cast(), what.len()) };
    if p.is_null() {
        None
    } else {
        Some(p as usize - b.as_ptr() as usize)
    }
}

/// Length of the head and of the body, once the head is whole.
fn head(b: &[u8], s: &mut Shape, bad: &mut u64) -> Option<(usize, usize)> {
    if s.len > 0
        && b.len() >= s.len
        && b[..12] == s.expected[..]
        && &b[s.len - 4..s.len] == b"\r\n\r\n"
        && b[s.cl_at..s.cl_at + s.cl.len()] == s.cl[..]
    {
        return Some((s.len, s.body));
    }
    let n = find(b, b"\r\n\r\n")? + 4;
    if !b.starts_with(&s.expected) {
        *bad += 1;
    }
    let lower = b[..n].to_ascii_lowercase();
    let Some(at) = find(&lower, b"\r\ncontent-length:") else {
        *bad += 1;
        return Some((n, 0));
    };
    let mut v = 0usize;
    let mut i = at + 17;
    while b[i] == b' ' {
        i += 1;
    }
    while b[i].is_ascii_digit() {
        v = v * 10 + (b[i] - b'0') as usize;
        i += 1;
    }
    *s = Shape {
        expected: std::mem::take(&mut s.expected),
        len: n,
        cl_at: at,
        cl: b[at..i + 1].to_vec(),
        body: v,
    };
    Some((n, v))
}

fn connect(port: u16, i: usize) -> i32 {
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let one: libc::c_int = 1;
        let p = &one as *const _ as *const libc::c_void;
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, p, 4);
        libc::setsockopt(fd, libc::IPPROTO_IP, 24, p, 4); // bind the address, not the port
        let mut a = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1 + (i / 4096) as u8]) },
            sin_zero: [0; 8],
        };
        assert_eq!(libc::bind(fd, &a as *const _ as *const libc::sockaddr, 16), 0);
        a.sin_port = port.to_be();
        a.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        assert_eq!(libc::connect(fd, &a as *const _ as *const libc::sockaddr, 16), 0, "connect");
        fd
    }
}

fn map(len: usize) -> *mut u8 {
    unsafe {
        let p = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
            -1,
            0,
        );
        assert_ne!(p, libc::MAP_FAILED);
        p.cast()
    }
}

fn push(ring: &mut IoUring, e: squeue::Entry) {
    unsafe {
        while ring.submission().push(&e).is_err() {
            ring.submit().unwrap();
        }
    }
}

fn main() {
    let (mut port, mut path, mut conns, mut depth, mut secs, mut rate) =
        (0u16, String::from("/plaintext"), 64usize, 1usize, 4f64, 0f64);
    let mut headers = String::new();
    let (mut bufs, mut bufsz) = (512usize, 4096usize);
    let (mut content, mut status) = (0usize, 200u16);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let v = args.next().expect("a value");
        match a.as_str() {
            "-p" => port = v.parse().unwrap(),
            "-u" => path = v,
            "-c" => conns = v.parse().unwrap(),
            "-m" => depth = v.parse().unwrap(),
            "-d" => secs = v.parse().unwrap(),
            "-R" => rate = v.parse().unwrap(),
            "-b" => content = v.parse().unwrap(),
            "-s" => status = v.parse().unwrap(),
            "-H" => headers += &format!("{v}\r\n"),
            "--bufs" => bufs = v.parse().unwrap(),
            "--bufsz" => bufsz = v.parse().unwrap(),
            _ => panic!("{a}?"),
        }
    }
    let method = if content > 0 { "POST" } else { "GET" };
    if content > 0 {
        headers += &format!("Content-Type: text/plain\r\nContent-Length: {content}\r\n");
    }
    let one =
        format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{headers}\r\n{}", "x".repeat(content));
    let expected = format!("HTTP/1.1 {status}").into_bytes();
    let batch = one.repeat(depth).into_bytes();

    let mut b = IoUring::builder();
    b.setup_single_issuer().setup_defer_taskrun().setup_submit_all().setup_cqsize(16384);
    let mut ring: IoUring = b.build(4096).unwrap();
    ring.submitter().register_ring_fd().ok();
    let br: *mut types::BufRingEntry = map(bufs * 16).cast();
    let mem = map(bufs * bufsz);
    unsafe { ring.submitter().register_buf_ring_with_flags(br as u64, bufs as u16, 0, 0).unwrap() };
    let mut tail = 0u16;
    let put = |bid: u16, tail: &mut u16| unsafe {
        let e = &mut *br.add(*tail as usize & (bufs - 1));
        e.set_addr(mem.add(bid as usize * bufsz) as u64);
        e.set_len(bufsz as u32);
        e.set_bid(bid);
        *tail = tail.wrapping_add(1);
    };
    let publish = |tail: u16| unsafe {
        (*(types::BufRingEntry::tail(br) as *const AtomicU16)).store(tail, Ordering::Release)
    };
    for i in 0..bufs {
        put(i as u16, &mut tail);
    }
    publish(tail);

    let mut cs: Vec<Conn> = (0..conns).map(|i| Conn { fd: connect(port, i), ..Default::default() }).collect();
    let mut hist = Hist::new();
    let mut shape = Shape { expected, len: 0, cl_at: 0, cl: vec![], body: 0 };
    let (mut done, mut bytes, mut bad, mut dead) = (0u64, 0u64, 0u64, 0u64);
    let recv = |ring: &mut IoUring, cs: &[Conn], i: usize| {
        push(ring, opcode::RecvMulti::new(types::Fd(cs[i].fd), 0).build().user_data(RECV << 32 | i as u64));
    };
    let send = |ring: &mut IoUring, c: &mut Conn, i: usize, at: u64| {
        c.start = at;
        c.left = depth;
        let e = opcode::Send::new(types::Fd(c.fd), batch.as_ptr(), batch.len() as u32)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(SEND << 32 | i as u64);
        push(ring, e);
    };
    for i in 0..conns {
        recv(&mut ring, &cs, i);
    }
    let t0 = now();
    let end = t0 + (secs * 1e9) as u64;
    let mut idle: VecDeque<usize> = VecDeque::new();
    let mut issued = 0u64;
    let due_at = |k: u64| t0 + (k as f64 * 1e9 * depth as f64 / rate) as u64;
    if rate > 0.0 {
        idle.extend(0..conns);
    } else {
        for i in 0..conns {
            send(&mut ring, &mut cs[i], i, t0);
        }
    }
    let mut got: Vec<(u64, i32, u32)> = Vec::with_capacity(4096);
    let mut t;
    loop {
        t = now();
        if t >= end {
            break;
        }
        let r = if rate > 0.0 {
            while !idle.is_empty() && due_at(issued) <= t {
                let i = idle.pop_front().unwrap();
                let at = due_at(issued);
                send(&mut ring, &mut cs[i], i, at);
                issued += 1;
            }
            // no sleep: a timer would add its own delay to what is measured
            let n = ring.submission().len() as u32;
            unsafe { ring.submitter().enter::<libc::sigset_t>(n, 0, EnterFlags::GETEVENTS.bits(), None) }
        } else {
            let ts = types::Timespec::new().nsec(200_000_000);
            let a = types::SubmitArgs::new().timespec(&ts);
            ring.submitter().submit_with_args(1, &a)
        };
        if let Err(e) = r {
            match e.raw_os_error() {
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("enter: {e}"),
            }
        }
        got.clear();
        got.extend(ring.completion().map(|c| (c.user_data(), c.result(), c.flags())));
        let mut freed = false;
        for &(ud, res, flags) in &got {
            let i = ud as u32 as usize;
            if ud >> 32 == SEND {
                dead += 1;
                continue;
            }
            if res <= 0 {
                if res == -libc::ENOBUFS {
                    if freed {
                        publish(tail);
                    }
                    recv(&mut ring, &cs, i);
                } else {
                    // closed by the server: counted, and opened again (servers may limit requests per connection)
                    dead += 1;
                    unsafe { libc::close(cs[i].fd) };
                    cs[i] = Conn { fd: connect(port, i), ..Default::default() };
                    recv(&mut ring, &cs, i);
                    let at = now();
                    if rate > 0.0 {
                        idle.push_back(i);
                    } else {
                        send(&mut ring, &mut cs[i], i, at);
                    }
                }
                continue;
            }
            bytes += res as u64;
            let bid = cqueue::buffer_select(flags).unwrap();
            let mut d = unsafe { std::slice::from_raw_parts(mem.add(bid as usize * bufsz), res as usize) };
            let c = &mut cs[i];
            while !d.is_empty() {
                if c.body > 0 {
                    let k = c.body.min(d.len());
                    c.body -= k;
                    d = &d[k..];
                    if c.body > 0 {
                        break;
                    }
                } else if c.head.is_empty() {
                    match head(d, &mut shape, &mut bad) {
                        Some((h, b)) => {
                            let k = (h + b).min(d.len());
                            c.body = h + b - k;
                            d = &d[k..];
                            if c.body > 0 {
                                break;
                            }
                        }
                        None => {
                            c.head.extend_from_slice(d);
                            break;
                        }
                    }
                } else {
                    let had = c.head.len();
                    c.head.extend_from_slice(d);
                    match head(&c.head, &mut shape, &mut bad) {
                        Some((h, b)) => {
                            let k = (h - had + b).min(d.len());
                            c.body = h + b - had - k;
                            d = &d[k..];
                            c.head.clear();
                            if c.body > 0 {
                                break;
                            }
                        }
                        None => break,
                    }
                }
                // one answer is whole
                done += 1;
                c.left = c.left.saturating_sub(1);
                if c.left == 0 {
                    let t = now();
                    hist.add(t.saturating_sub(c.start));
                    if rate > 0.0 {
                        idle.push_back(i);
                    } else {
                        send(&mut ring, c, i, t);
                    }
                }
            }
            put(bid, &mut tail);
            freed = true;
            if !cqueue::more(flags) {
                recv(&mut ring, &cs, i);
            }
        }
        if freed {
            publish(tail);
        }
    }
    let late = if rate > 0.0 { ((t - t0) as f64 * rate / 1e9 / depth as f64) as u64 - issued } else { 0 };
    // connections close before the process ends, so that the server sees it at once
    for c in cs {
        drop(unsafe { <std::net::TcpStream as std::os::fd::FromRawFd>::from_raw_fd(c.fd) });
    }
    println!(
        "JSON {{\"requests\":{},\"duration_us\":{},\"bytes\":{},\"connect\":0,\"read\":{},\"write\":0,\"status\":{},\"timeout\":{},\"mean\":{:.2},\"p50\":{:.1},\"p90\":{:.1},\"p99\":{:.1},\"p999\":{:.1},\"max\":{:.1}}}",
        done, (t - t0) / 1000, bytes, dead, bad, late,
        hist.sum as f64 / hist.total.max(1) as f64 / 1e3, hist.at(0.5), hist.at(0.9), hist.at(0.99), hist.at(0.999), hist.max as f64 / 1e3
    );
}
