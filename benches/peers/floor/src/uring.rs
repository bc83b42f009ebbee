//! Floor, io_uring: multishot accept, multishot recv out of a provided buffer
//! ring, one send per recv, everything submitted and waited for in one enter.
//! Switches pick the variants; without --parse nothing is parsed.
use io_uring::{cqueue, opcode, squeue, types, IoUring};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU16, Ordering};

#[path = "shared.rs"]
mod shared;

const ACCEPT: u64 = 1;
const RECV: u64 = 2;
const SEND: u64 = 3;
const CLOSE: u64 = 4;

#[derive(Clone, Copy, PartialEq)]
enum Send {
    Copy,
    Skip,
    Zc,
    ZcFixed,
    Sync,
}

struct Opt {
    mode: String,
    direct: bool,
    bundle: bool,
    single: bool,
    parse: bool,
    regring: bool,
    send: Send,
    want: usize,
    minwait: u32,
    bufs: usize,
    bufsz: usize,
}

#[derive(Default)]
struct Conn {
    live: bool,
    dying: bool,
    busy: bool, // a send is under way
    state: u8,
    owed: usize,
    out: Vec<u8>,
    next: Vec<u8>,
    rest: Vec<u8>,
}

struct BufRing {
    ring: *mut types::BufRingEntry,
    mem: *mut u8,
    n: usize,
    sz: usize,
    tail: u16,
}

impl BufRing {
    fn put(&mut self, bid: u16) {
        unsafe {
            let e = &mut *self.ring.add(self.tail as usize & (self.n - 1));
            e.set_addr(self.mem.add(bid as usize * self.sz) as u64);
            e.set_len(self.sz as u32);
            e.set_bid(bid);
        }
        self.tail = self.tail.wrapping_add(1);
    }
    fn publish(&self) {
        unsafe {
            (*(types::BufRingEntry::tail(self.ring) as *const AtomicU16)).store(self.tail, Ordering::Release)
        }
    }
    fn get(&self, bid: u16, len: usize) -> &'static [u8] {
        unsafe { std::slice::from_raw_parts(self.mem.add(bid as usize * self.sz), len) }
    }
}

fn map(len: usize) -> *mut u8 {
    unsafe {
        let p = libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
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

fn recv(ring: &mut IoUring, o: &Opt, id: u32) {
    let ud = RECV << 32 | id as u64;
    let e = match (o.direct, o.single, o.bundle) {
        (false, true, _) => opcode::Recv::new(types::Fd(id as i32), std::ptr::null_mut(), o.bufsz as u32)
            .buf_group(0)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT),
        (true, true, _) => opcode::Recv::new(types::Fixed(id), std::ptr::null_mut(), o.bufsz as u32)
            .buf_group(0)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT),
        (false, _, true) => opcode::RecvMultiBundle::new(types::Fd(id as i32), 0).build(),
        (true, _, true) => opcode::RecvMultiBundle::new(types::Fixed(id), 0).build(),
        (false, _, _) => opcode::RecvMulti::new(types::Fd(id as i32), 0).build(),
        (true, _, _) => opcode::RecvMulti::new(types::Fixed(id), 0).build(),
    };
    push(ring, e.user_data(ud));
}

fn send(ring: &mut IoUring, o: &Opt, id: u32, p: *const u8, len: usize) {
    let ud = SEND << 32 | id as u64;
    let fl = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    macro_rules! on {
        ($fd:expr) => {
            match o.send {
                Send::Zc => opcode::SendZc::new($fd, p, len as u32).flags(fl).build(),
                Send::ZcFixed => opcode::SendZc::new($fd, p, len as u32).flags(fl).buf_index(Some(0)).build(),
                Send::Skip => {
                    opcode::Send::new($fd, p, len as u32).flags(fl).build().flags(squeue::Flags::SKIP_SUCCESS)
                }
                _ => opcode::Send::new($fd, p, len as u32).flags(fl).build(),
            }
        };
    }
    let e = if o.direct { on!(types::Fixed(id)) } else { on!(types::Fd(id as i32)) };
    push(ring, e.user_data(ud));
}

fn main() {
    let mut o = Opt {
        mode: "defer".into(),
        direct: false,
        bundle: false,
        single: false,
        parse: false,
        regring: true,
        send: Send::Copy,
        want: 1,
        minwait: 0,
        bufs: 4096,
        bufsz: 4096,
    };
    for a in std::env::args().skip(1) {
        let (k, v) = a.split_once('=').unwrap_or((&a, ""));
        match k {
            "--mode" => o.mode = v.into(),
            "--direct" => o.direct = true,
            "--bundle" => o.bundle = true,
            "--single" => o.single = true,
            "--parse" => o.parse = true,
            "--noregring" => o.regring = false,
            "--want" => o.want = v.parse().unwrap(),
            "--minwait" => o.minwait = v.parse().unwrap(),
            "--bufs" => o.bufs = v.parse().unwrap(),
            "--bufsz" => o.bufsz = v.parse().unwrap(),
            "--send" => {
                o.send = match v {
                    "copy" => Send::Copy,
                    "skip" => Send::Skip,
                    "zc" => Send::Zc,
                    "zcfixed" => Send::ZcFixed,
                    "sync" => Send::Sync,
                    _ => panic!("send?"),
                }
            }
            _ => panic!("unknown switch {k}"),
        }
    }
    let lfd = common::listener(common::port()).into_raw_fd();
    let mut b = IoUring::builder();
    b.setup_cqsize(32768).setup_submit_all();
    match o.mode.as_str() {
        "plain" => {}
        "coop" => {
            b.setup_coop_taskrun();
        }
        "single" => {
            b.setup_single_issuer();
        }
        "coopsingle" => {
            b.setup_single_issuer().setup_coop_taskrun();
        }
        "defer" => {
            b.setup_single_issuer().setup_defer_taskrun();
        }
        "sqpoll" => {
            b.setup_single_issuer().setup_sqpoll(50);
        }
        m => panic!("mode {m}?"),
    }
    let mut ring: IoUring = b.build(4096).unwrap();
    if o.regring {
        ring.submitter().register_ring_fd().ok();
    }
    let mut br = BufRing {
        ring: map(o.bufs * 16).cast(),
        mem: map(o.bufs * o.bufsz),
        n: o.bufs,
        sz: o.bufsz,
        tail: 0,
    };
    unsafe { ring.submitter().register_buf_ring_with_flags(br.ring as u64, o.bufs as u16, 0, 0).unwrap() };
    for i in 0..o.bufs {
        br.put(i as u16);
    }
    br.publish();
    if o.direct {
        ring.submitter()
            .register_files_sparse(65536.min(16384 * 4))
            .or_else(|_| ring.submitter().register_files_sparse(16384))
            .unwrap();
    }
    let one = shared::RESPONSE;
    let many_len = one.len() * shared::MAX;
    let many = map(many_len);
    for i in 0..shared::MAX {
        unsafe { std::ptr::copy_nonoverlapping(one.as_ptr(), many.add(i * one.len()), one.len()) };
    }
    if o.send == Send::ZcFixed {
        let iov = libc::iovec { iov_base: many.cast(), iov_len: many_len };
        unsafe { ring.submitter().register_buffers(&[iov]).unwrap() };
    }
    let accept = |ring: &mut IoUring| {
        let e = opcode::AcceptMulti::new(types::Fd(lfd)).allocate_file_index(o.direct).build();
        push(ring, e.user_data(ACCEPT << 32));
    };
    accept(&mut ring);
    let mut conns: Vec<Conn> = Vec::new();
    let mut batch: Vec<(u64, i32, u32)> = Vec::with_capacity(4096);
    loop {
        let r = if o.want > 1 || o.minwait > 0 {
            let args = types::SubmitArgs::new().min_wait_usec(o.minwait);
            ring.submitter().submit_with_args(o.want, &args)
        } else {
            ring.submit_and_wait(1)
        };
        if let Err(e) = r {
            match e.raw_os_error() {
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
                _ => panic!("enter: {e}"),
            }
        }
        batch.clear();
        batch.extend(ring.completion().map(|c| (c.user_data(), c.result(), c.flags())));
        let mut freed = false;
        for &(ud, res, flags) in &batch {
            let id = ud as u32;
            match ud >> 32 {
                ACCEPT => {
                    if res >= 0 {
                        let i = res as usize;
                        if conns.len() <= i {
                            conns.resize_with(i + 1, Conn::default);
                        }
                        conns[i].live = true;
                        conns[i].dying = false;
                        conns[i].busy = false;
                        conns[i].state = 0;
                        conns[i].owed = 0;
                        recv(&mut ring, &o, i as u32);
                    }
                    if !cqueue::more(flags) {
                        accept(&mut ring);
                    }
                }
                RECV => {
                    let c = &mut conns[id as usize];
                    if res > 0 {
                        let mut left = res as usize;
                        let mut bid = cqueue::buffer_select(flags).unwrap();
                        loop {
                            let n = left.min(br.sz);
                            let data = br.get(bid, n);
                            if o.parse {
                                let (used, _open) = if c.rest.is_empty() {
                                    let (used, open) = common::answer(data, &mut c.next);
                                    if used < n {
                                        c.rest.extend_from_slice(&data[used..]);
                                    }
                                    (used, open)
                                } else {
                                    c.rest.extend_from_slice(data);
                                    let (used, open) = common::answer(&c.rest, &mut c.next);
                                    c.rest.drain(..used);
                                    (used, open)
                                };
                                let _ = used;
                            } else {
                                c.owed += shared::count(data, &mut c.state);
                            }
                            br.put(bid);
                            freed = true;
                            left -= n;
                            if left == 0 {
                                break;
                            }
                            bid = (bid + 1) & (br.n as u16 - 1);
                        }
                        if o.parse {
                            if !c.busy && !c.next.is_empty() {
                                c.out.clear();
                                std::mem::swap(&mut c.out, &mut c.next);
                                c.busy = true;
                                let (p, l) = (c.out.as_ptr(), c.out.len());
                                send(&mut ring, &o, id, p, l);
                            }
                        } else if !c.busy && c.owed > 0 {
                            let k = c.owed.min(shared::MAX);
                            c.owed -= k;
                            match o.send {
                                Send::Sync => unsafe {
                                    libc::send(id as i32, many.cast(), k * one.len(), libc::MSG_NOSIGNAL);
                                },
                                _ => {
                                    c.busy = o.send != Send::Skip;
                                    send(&mut ring, &o, id, many, k * one.len());
                                }
                            }
                        }
                        if !cqueue::more(flags) {
                            recv(&mut ring, &o, id);
                        }
                    } else if res == -libc::ENOBUFS {
                        if freed {
                            br.publish();
                        }
                        recv(&mut ring, &o, id);
                    } else {
                        c.dying = true;
                        if !c.busy {
                            shut(&mut ring, &o, c, id);
                        }
                    }
                }
                SEND => {
                    if cqueue::notif(flags) {
                        continue; // the zero-copy buffer is free again; the bytes are constant
                    }
                    if o.send == Send::Skip {
                        continue; // only failures come here
                    }
                    let c = &mut conns[id as usize];
                    c.busy = false;
                    if res < 0 {
                        c.owed = 0;
                        c.next.clear();
                    }
                    if o.parse && !c.next.is_empty() {
                        c.out.clear();
                        std::mem::swap(&mut c.out, &mut c.next);
                        c.busy = true;
                        let (p, l) = (c.out.as_ptr(), c.out.len());
                        send(&mut ring, &o, id, p, l);
                    } else if c.owed > 0 {
                        let k = c.owed.min(shared::MAX);
                        c.owed -= k;
                        c.busy = true;
                        send(&mut ring, &o, id, many, k * one.len());
                    } else if c.dying {
                        shut(&mut ring, &o, c, id);
                    }
                }
                _ => {}
            }
        }
        if freed {
            br.publish();
        }
    }
}

fn shut(ring: &mut IoUring, o: &Opt, c: &mut Conn, id: u32) {
    if !c.live {
        return;
    }
    *c = Conn::default();
    let e = if o.direct {
        opcode::Close::new(types::Fixed(id)).build()
    } else {
        opcode::Close::new(types::Fd(id as i32)).build()
    };
    push(ring, e.user_data(CLOSE << 32));
}
