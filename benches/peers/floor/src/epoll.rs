//! Floor, epoll: no parsing at all. Counts the ends of requests (CRLF CRLF) and
//! answers each with the same bytes; one recv and one send per wake-up.
use std::os::fd::IntoRawFd;

#[path = "shared.rs"]
mod shared;

#[derive(Default)]
struct Conn {
    state: u8,
    owed: usize, // bytes of constant answers still to be written
}

fn ctl(ep: i32, op: i32, fd: i32, events: i32) {
    let mut e = libc::epoll_event { events: events as u32, u64: fd as u64 };
    unsafe { libc::epoll_ctl(ep, op, fd, &mut e) };
}

fn main() {
    let lfd = common::listener(common::port()).into_raw_fd();
    let one = shared::RESPONSE;
    let many: Vec<u8> = one.iter().copied().cycle().take(one.len() * shared::MAX).collect();
    let mut conns: Vec<Option<Conn>> = Vec::new();
    let mut buf = vec![0u8; 65536];
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
                        conns[c as usize] = Some(Conn::default());
                        ctl(ep, libc::EPOLL_CTL_ADD, c, libc::EPOLLIN);
                    }
                    continue;
                }
                let Some(c) = conns[fd as usize].as_mut() else { continue };
                let was = c.owed;
                if was == 0 || what & libc::EPOLLOUT == 0 {
                    let r = libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), 0);
                    if r <= 0 {
                        conns[fd as usize] = None;
                        libc::close(fd);
                        continue;
                    }
                    let k = shared::count(&buf[..r as usize], &mut c.state);
                    c.owed += k * one.len();
                }
                while c.owed > 0 {
                    // whole answers repeat, so any offset into one is (owed mod len) from its end
                    let part = c.owed % one.len();
                    let off = if part == 0 { 0 } else { one.len() - part };
                    let len = c.owed.min(many.len() - off);
                    let w = libc::send(fd, many.as_ptr().add(off).cast(), len, libc::MSG_NOSIGNAL);
                    if w <= 0 {
                        break;
                    }
                    c.owed -= w as usize;
                }
                if (was == 0) != (c.owed == 0) {
                    ctl(
                        ep,
                        libc::EPOLL_CTL_MOD,
                        fd,
                        if c.owed == 0 { libc::EPOLLIN } else { libc::EPOLLOUT },
                    );
                }
            }
        }
    }
}
