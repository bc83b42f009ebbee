//! The "epoll floor": one thread, level-triggered epoll, one read and one write
//! per wake-up of a connection, httparse over every request.
use std::os::fd::IntoRawFd;

#[derive(Default)]
struct Conn {
    rest: Vec<u8>,
    out: Vec<u8>,
    sent: usize,
    blocked: bool,
    closing: bool,
}

fn ctl(ep: i32, op: i32, fd: i32, events: i32) {
    let mut e = libc::epoll_event { events: events as u32, u64: fd as u64 };
    unsafe { libc::epoll_ctl(ep, op, fd, &mut e) };
}

fn main() {
    let lfd = common::listener(common::port()).into_raw_fd();
    let mut conns: Vec<Option<Box<Conn>>> = Vec::new();
    let mut buf = vec![0u8; 65536];
    let mut out: Vec<u8> = Vec::with_capacity(65536);
    unsafe {
        let fl = libc::fcntl(lfd, libc::F_GETFL);
        libc::fcntl(lfd, libc::F_SETFL, fl | libc::O_NONBLOCK);
        let ep = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        ctl(ep, libc::EPOLL_CTL_ADD, lfd, libc::EPOLLIN);
        let mut evs = vec![libc::epoll_event { events: 0, u64: 0 }; 1024];
        loop {
            let n = libc::epoll_wait(ep, evs.as_mut_ptr(), 1024, -1);
            for i in 0..n.max(0) as usize {
                let (fd, what) = (evs[i].u64 as i32, evs[i].events as i32);
                if fd == lfd {
                    loop {
                        let c = libc::accept4(
                            lfd,
                            std::ptr::null_mut(),
                            std::ptr::null_mut(),
                            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                        );
                        if c < 0 {
                            break;
                        }
                        if conns.len() <= c as usize {
                            conns.resize_with(c as usize + 1, || None);
                        }
                        conns[c as usize] = Some(Box::default());
                        ctl(ep, libc::EPOLL_CTL_ADD, c, libc::EPOLLIN);
                    }
                    continue;
                }
                let Some(c) = conns[fd as usize].as_mut() else { continue };
                let mut dead = false;
                if c.blocked && what & libc::EPOLLOUT != 0 {
                    let w = libc::send(
                        fd,
                        c.out[c.sent..].as_ptr().cast(),
                        c.out.len() - c.sent,
                        libc::MSG_NOSIGNAL,
                    );
                    if w > 0 {
                        c.sent += w as usize;
                        if c.sent == c.out.len() {
                            c.out.clear();
                            c.sent = 0;
                            c.blocked = false;
                            dead = c.closing;
                            ctl(ep, libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN);
                        }
                    } else {
                        dead = true;
                    }
                } else if !c.blocked {
                    let r = libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), 0);
                    if r <= 0 {
                        dead = true;
                    } else {
                        out.clear();
                        let open;
                        if c.rest.is_empty() {
                            let (used, o) = common::answer(&buf[..r as usize], &mut out);
                            open = o;
                            c.rest.extend_from_slice(&buf[used..r as usize]);
                        } else {
                            c.rest.extend_from_slice(&buf[..r as usize]);
                            let (used, o) = common::answer(&c.rest, &mut out);
                            open = o;
                            c.rest.drain(..used);
                        }
                        if !out.is_empty() {
                            let w = libc::send(fd, out.as_ptr().cast(), out.len(), libc::MSG_NOSIGNAL);
                            let w = w.max(0) as usize;
                            if w < out.len() {
                                c.out.extend_from_slice(&out[w..]);
                                c.blocked = true;
                                c.closing = !open;
                                ctl(ep, libc::EPOLL_CTL_MOD, fd, libc::EPOLLOUT);
                            }
                        }
                        dead |= !open && !c.blocked;
                    }
                }
                if dead {
                    conns[fd as usize] = None;
                    libc::close(fd);
                }
            }
        }
    }
}
