//! Real descriptors, owned: shared by the `uring` and `epoll` drivers.
//!
//! Every descriptor of a shard is in this table and nowhere else, under its own number; a [`Descriptor`] whose
//! number is not in the table is answered with `EBADF`, never handed to the kernel. Only calls that answer at
//! once are made here (no operation table, no completions): those are the drivers' job.

use super::{Address, Descriptor, ListenOptions, SendProgress, Shutdown, SocketOption};
use crate::{
    error::{Error, Result},
    table::make_room,
};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

/// The descriptors of one shard.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// Indexed by descriptor number: the kernel gives out the lowest free one, so the table stays dense.
    open: Vec<Option<OwnedFd>>,
    count: usize,
}

/// How the driver waits on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listening {
    /// The kernel waits (io_uring accept): the socket stays blocking.
    ByOperation,
    /// The driver waits for readiness and then accepts: a connection that went away in between must not block.
    ByReadiness,
}

impl Descriptors {
    pub(super) fn new() -> Self {
        Descriptors::default()
    }

    /// How many descriptors are owned.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes a descriptor over.
    pub(super) fn adopt(&mut self, fd: OwnedFd) -> Descriptor {
        let number = fd.as_raw_fd();
        let index = number as usize;
        if self.open.len() <= index {
            let more = index + 1 - self.open.len();
            make_room(&mut self.open, more);
            self.open.resize_with(index + 1, || None);
        }
        assert!(self.open[index].is_none(), "descriptor {number} has two owners");
        self.open[index] = Some(fd);
        self.count += 1;
        Descriptor(number)
    }

    /// Gives a descriptor away.
    pub(super) fn release(&mut self, fd: Descriptor) -> Option<OwnedFd> {
        let owned = self.open.get_mut(usize::try_from(fd.0).ok()?)?.take()?;
        self.count -= 1;
        Some(owned)
    }

    /// A second descriptor of the same open file.
    pub(super) fn duplicate(&self, fd: Descriptor) -> io::Result<OwnedFd> {
        self.get(fd)?.try_clone_to_owned()
    }

    /// Closes a descriptor. An error of close(2) is of no use to anybody: the descriptor is gone in any case.
    pub(super) fn close(&mut self, fd: Descriptor) {
        let owned = self.release(fd);
        debug_assert!(owned.is_some(), "closed twice: {fd:?}");
    }

    /// The descriptor, for a call; `EBADF` if it is not ours.
    pub(super) fn get(&self, fd: Descriptor) -> io::Result<BorrowedFd<'_>> {
        let index = usize::try_from(fd.0).ok();
        let owned = index.and_then(|index| self.open.get(index)?.as_ref());
        owned.map(AsFd::as_fd).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// The descriptor as a socket.
    pub(super) fn socket_ref(&self, fd: Descriptor) -> io::Result<SockRef<'_>> {
        let index = usize::try_from(fd.0).ok();
        let owned = index.and_then(|index| self.open.get(index)?.as_ref());
        owned.map(SockRef::from).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Makes a listening socket. Gives the address that the kernel really bound.
    pub(super) fn listen(
        &mut self,
        at: &Address,
        options: ListenOptions,
        listening: Listening,
    ) -> Result<(Descriptor, Address)> {
        let (socket, real) = bind_listener(at, options)?;
        if listening == Listening::ByReadiness {
            SockRef::from(&socket)
                .set_nonblocking(true)
                .map_err(|source| Error::kernel(format!("listen on {}", shown(at)), source))?;
        }
        Ok((self.adopt(socket), real))
    }

    /// Makes a blocking stream socket for a connection to this address.
    pub(super) fn socket(&mut self, to: &Address) -> Result<Descriptor> {
        let socket =
            open_stream(to).map_err(|source| Error::kernel(format!("socket for {}", shown(to)), source))?;
        Ok(self.adopt(socket.into()))
    }

    /// shutdown(2).
    pub(super) fn shutdown(&self, fd: Descriptor, how: Shutdown) -> io::Result<()> {
        self.socket_ref(fd)?.shutdown(match how {
            Shutdown::Read => std::net::Shutdown::Read,
            Shutdown::Write => std::net::Shutdown::Write,
            Shutdown::Both => std::net::Shutdown::Both,
        })
    }

    /// getpeername(2); `None` for a Unix socket.
    pub(super) fn peer(&self, fd: Descriptor) -> io::Result<Option<SocketAddr>> {
        Ok(self.socket_ref(fd)?.peer_addr()?.as_socket())
    }

    /// setsockopt(2).
    pub(super) fn set_option(&self, fd: Descriptor, option: SocketOption) -> io::Result<()> {
        let socket = self.socket_ref(fd)?;
        match option {
            SocketOption::NoDelay(on) => socket.set_tcp_nodelay(on),
            SocketOption::KeepAlive(None) => socket.set_keepalive(false),
            SocketOption::KeepAlive(Some(every)) => {
                socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(every).with_interval(every))
            }
            SocketOption::Linger(how_long) => socket.set_linger(how_long),
            SocketOption::ReceiveBuffer(bytes) => socket.set_recv_buffer_size(bytes),
            SocketOption::SendBuffer(bytes) => socket.set_send_buffer_size(bytes),
        }
    }

    /// What the peer has not acknowledged yet.
    pub(super) fn send_progress(&self, fd: Descriptor) -> io::Result<SendProgress> {
        let socket = self.get(fd)?;
        let unacknowledged = super::uring::send_queue_bytes(socket)?;
        let tcp = super::uring::tcp_progress(socket);
        // include/net/tcp_states.h: TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING.
        let peer_ended = tcp.is_some_and(|(state, _)| matches!(state, 6 | 7 | 8 | 9 | 11));
        Ok(SendProgress { unacknowledged, acknowledged: tcp.map(|(_, bytes)| bytes), peer_ended })
    }
}

/// Makes a listening socket before any shard runs; the shard's driver adopts it.
pub(crate) fn bind_listener(at: &Address, options: ListenOptions) -> Result<(OwnedFd, Address)> {
    let (socket, real) = open_listener(at, options)
        .map_err(|source| Error::kernel(format!("listen on {}", shown(at)), source))?;
    Ok((socket.into(), real))
}

/// The address of a socket that listens, made elsewhere, and whether it is non-blocking.
pub(crate) fn look_at_listener(socket: &OwnedFd) -> Result<(Address, bool)> {
    let look = || -> io::Result<(Address, bool)> {
        let socket = SockRef::from(socket);
        if !socket.is_listener()? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let address = socket.local_addr()?;
        let unix = || address.as_pathname().map(|path| Address::Unix(path.to_owned()));
        let address = address.as_socket().map(Address::Tcp).or_else(unix);
        Ok((address.ok_or(io::ErrorKind::AddrNotAvailable)?, socket.nonblocking()?))
    };
    look().map_err(|source| Error::kernel("take over a listening socket", source))
}

fn open_listener(at: &Address, options: ListenOptions) -> io::Result<(Socket, Address)> {
    let socket = open_socket(at)?;
    if let Address::Tcp(address) = at {
        // A restart must not wait for the old connections' TIME_WAIT (socket(7), SO_REUSEADDR).
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(options.reuse_port)?;
        if address.is_ipv6() {
            // `[::]` means IPv6 and nothing else, whatever the machine's bindv6only says, so that `0.0.0.0` on
            // the same port can be listed beside it.
            socket.set_only_v6(true)?;
        }
        socket.set_tcp_nodelay(true)?;
    }
    socket.bind(&socket_address(at)?)?;
    socket.listen(options.backlog)?;
    let real = match at {
        Address::Tcp(address) => Address::Tcp(socket.local_addr()?.as_socket().unwrap_or(*address)),
        Address::Unix(path) => Address::Unix(path.clone()),
    };
    Ok((socket, real))
}

fn open_stream(to: &Address) -> io::Result<Socket> {
    let socket = open_socket(to)?;
    if matches!(to, Address::Tcp(_)) {
        socket.set_tcp_nodelay(true)?;
    }
    Ok(socket)
}

/// A blocking, close-on-exec stream socket of the address' family.
fn open_socket(address: &Address) -> io::Result<Socket> {
    match address {
        Address::Tcp(address) => {
            Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))
        }
        Address::Unix(_) => Socket::new(Domain::UNIX, Type::STREAM, None),
    }
}

/// The address as the kernel reads it.
pub(super) fn socket_address(address: &Address) -> io::Result<SockAddr> {
    match address {
        Address::Tcp(address) => Ok(SockAddr::from(*address)),
        Address::Unix(path) => SockAddr::unix(path),
    }
}

fn shown(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    const OPTIONS: ListenOptions = ListenOptions { backlog: 16, reuse_port: true };

    fn loopback() -> Address {
        Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    #[test]
    fn listeners_report_their_real_port_and_share_it_when_asked() {
        let mut descriptors = Descriptors::new();
        let (first, real) = descriptors.listen(&loopback(), OPTIONS, Listening::ByOperation).unwrap();
        let Address::Tcp(address) = &real else { panic!("a TCP address") };
        assert_ne!(address.port(), 0);
        let (second, same) = descriptors.listen(&real, OPTIONS, Listening::ByReadiness).unwrap();
        assert_eq!(same, real);
        assert_eq!(descriptors.len(), 2);
        assert!(descriptors.socket_ref(second).unwrap().nonblocking().unwrap());
        assert!(!descriptors.socket_ref(first).unwrap().nonblocking().unwrap());
        let alone = ListenOptions { reuse_port: false, ..OPTIONS };
        let refused = descriptors.listen(&real, alone, Listening::ByOperation).unwrap_err();
        assert!(refused.to_string().starts_with(&format!("listen on {address}: ")), "{refused}");
        descriptors.close(first);
        descriptors.close(second);
        assert_eq!(descriptors.len(), 0);
    }

    #[test]
    fn accepted_sockets_have_no_delay_from_their_listener() {
        let mut descriptors = Descriptors::new();
        let (listener, real) = descriptors.listen(&loopback(), OPTIONS, Listening::ByOperation).unwrap();
        let Address::Tcp(address) = real else { panic!("a TCP address") };
        let client = TcpStream::connect(address).unwrap();
        let (accepted, _) = descriptors.socket_ref(listener).unwrap().accept().unwrap();
        assert!(accepted.tcp_nodelay().unwrap());
        let accepted = descriptors.adopt(accepted.into());
        assert_eq!(descriptors.peer(accepted).unwrap(), Some(client.local_addr().unwrap()));
    }

    #[test]
    fn a_foreign_number_is_answered_with_ebadf() {
        let mut descriptors = Descriptors::new();
        for number in [-1, 0, 1 << 20] {
            let error = descriptors.shutdown(Descriptor(number), Shutdown::Both).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
            assert!(descriptors.release(Descriptor(number)).is_none());
        }
    }

    #[test]
    fn options_and_progress_reach_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut descriptors = Descriptors::new();
        let fd = descriptors.adopt(server.into());
        let minute = Duration::from_secs(60);
        for option in [
            SocketOption::NoDelay(true),
            SocketOption::KeepAlive(Some(minute)),
            SocketOption::Linger(Some(Duration::ZERO)),
            SocketOption::ReceiveBuffer(64 << 10),
            SocketOption::SendBuffer(64 << 10),
        ] {
            descriptors.set_option(fd, option).unwrap();
        }
        let socket = descriptors.socket_ref(fd).unwrap();
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), minute);
        assert_eq!(socket.linger().unwrap(), Some(Duration::ZERO));
        assert!(
            socket.recv_buffer_size().unwrap() >= 64 << 10 && socket.send_buffer_size().unwrap() >= 64 << 10
        );
        descriptors.set_option(fd, SocketOption::KeepAlive(None)).unwrap();
        descriptors.set_option(fd, SocketOption::Linger(None)).unwrap();
        assert!(!descriptors.socket_ref(fd).unwrap().keepalive().unwrap());

        let mut taken = [0; 4];
        let owned = descriptors.release(fd).unwrap();
        let mut server = TcpStream::from(owned);
        server.write_all(b"data").unwrap();
        client.read_exact(&mut taken).unwrap();
        let fd = descriptors.adopt(server.into());
        let deadline = std::time::Instant::now() + Duration::from_secs(2);
        while descriptors.send_progress(fd).unwrap().unacknowledged != 0 {
            assert!(std::time::Instant::now() < deadline, "the peer has read everything");
            std::thread::yield_now();
        }
    }

    #[test]
    fn unix_sockets_listen_and_have_no_peer_address() {
        let directory = std::env::temp_dir().join(format!("shards-descriptors-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let at = Address::Unix(directory.join("socket"));
        let mut descriptors = Descriptors::new();
        let (listener, real) = descriptors.listen(&at, OPTIONS, Listening::ByOperation).unwrap();
        assert_eq!(real, at);
        let client = descriptors.socket(&at).unwrap();
        descriptors.socket_ref(client).unwrap().connect(&socket_address(&at).unwrap()).unwrap();
        assert_eq!(descriptors.peer(client).unwrap(), None);
        descriptors.close(client);
        descriptors.close(listener);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
