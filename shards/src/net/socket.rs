//! The event face of a connected socket, and the one place that knows which of its operations are in flight.
//!
//! Receiving side of an entry:
//!
//! ```text
//!            start_receiving            stop_receiving
//!   Idle ─────────────────────▶ Armed ─────────────────▶ Stopping ──terminal──▶ Idle (or Armed again, if
//!                                 │ end of stream, error     │                        asked meanwhile)
//!                                 └────────────▶ Ended ◀─────┘
//! ```

use super::{Outgoing, SocketAddress};
pub use crate::driver::Shutdown as HowToShut;
use crate::{
    buffers::Lease,
    driver::{Completion, Descriptor, Op, Outcome, Owner, SendBuffer, SendProgress, Shutdown, SocketOption},
    error::Result,
    shard::Shard,
    table::{Key, bytes_in_table},
};
use std::{fmt, io, net::SocketAddr, rc::Rc, time::Duration};

/// What happens to a socket. All calls come on the shard's thread, never one inside another; each carries the
/// token that was given with [`Socket::listen_to`].
///
/// A callback that panics ends its socket: [`SocketEvents::on_receive_end`] comes once more, whatever came before, with
/// an error of the kind `ConnectionAborted`, and the socket is closed. Nothing else of the shard is concerned.
pub trait SocketEvents {
    /// A [`Socket::start_connecting`] is over. After an error the socket is of no use.
    fn on_connected(&self, shard: &Shard, token: u64, result: io::Result<()>) {
        let _ = (shard, token, result);
    }
    /// Bytes arrived; never empty. Dropping the lease gives the buffer back to the kernel's supply.
    fn on_received(&self, shard: &Shard, token: u64, bytes: Lease);
    /// Nothing more will be received. Sending may still be possible after [`ReceiveEnd::Finished`].
    fn on_receive_end(&self, shard: &Shard, token: u64, end: ReceiveEnd);
    /// A [`Socket::send`] is over: everything was taken by the kernel, or it failed. The buffer comes back.
    fn on_sent(&self, shard: &Shard, token: u64, sent: Sent);
}

/// Why nothing more is received.
#[derive(Debug)]
pub enum ReceiveEnd {
    /// The peer has shut down its sending side (FIN).
    Finished,
    /// The connection failed, for example `ECONNRESET`.
    Failed(io::Error),
}

/// The end of one send.
#[derive(Debug)]
pub struct Sent {
    /// `Ok` when the kernel has taken every byte. That the peer has them is another matter: see
    /// [`Socket::unacknowledged`].
    pub result: io::Result<()>,
    /// How many bytes the kernel took.
    pub bytes: usize,
    /// What was sent, to be used again.
    pub buffer: Outgoing,
}

/// Where the receive is; its operation is beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiving {
    Idle,
    Armed,
    Stopping,
    /// Stopping, and to be armed again as soon as that is over.
    Restarting,
    Ended,
}

struct Listening {
    events: Rc<dyn SocketEvents>,
    token: u64,
}

pub(super) struct SocketEntry {
    fd: Descriptor,
    receiving: Receiving,
    /// The receive in flight, if `receiving` says that there is one.
    receive: Key,
    /// The send or connect in flight; [`Key::NONE`] if none is.
    sending: Key,
    listening: Option<Listening>,
    closing: bool,
    /// Bytes the kernel has taken, ever.
    sent_bytes: u64,
}

/// Part of what an idle connection costs: see the parent module.
const _: () = assert!(bytes_in_table::<SocketEntry>() <= 64);

/// A connected stream socket of this shard. Dropping it closes it at once, whatever is in flight; to end
/// politely wait for [`SocketEvents::on_sent`], then [`Socket::shut`] and wait for the peer's end.
pub struct Socket {
    shard: Shard,
    key: Key,
}

impl Socket {
    pub(crate) fn new(shard: &Shard, fd: Descriptor) -> Self {
        shard.handle_ref().count_connection(true);
        Socket::counted(shard, fd)
    }

    /// A socket that its sender has counted for this shard already.
    pub(crate) fn counted(shard: &Shard, fd: Descriptor) -> Self {
        let key = shard.net().sockets.borrow_mut().insert(SocketEntry {
            fd,
            receiving: Receiving::Idle,
            receive: Key::NONE,
            sending: Key::NONE,
            listening: None,
            closing: false,
            sent_bytes: 0,
        });
        Socket { shard: shard.clone(), key }
    }

    /// Makes a socket and starts to connect it; [`SocketEvents::on_connected`] tells how it went.
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) when no socket can be made.
    pub fn start_connecting(
        shard: &Shard,
        to: &SocketAddress,
        events: Rc<dyn SocketEvents>,
        token: u64,
    ) -> Result<Socket> {
        let fd = shard.driver().socket(&to.0)?;
        let socket = Socket::new(shard, fd);
        socket.listen_to(events, token);
        let connect = Op::Connect { socket: fd, address: to.0.clone() };
        let operation = shard.driver().submit(connect, Owner::Sender(socket.key));
        socket.with(|entry| entry.sending = operation);
        Ok(socket)
    }

    /// The socket's name on its shard.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Who is told what happens from now on, and under which token.
    pub fn listen_to(&self, events: Rc<dyn SocketEvents>, token: u64) {
        let before = self.with(|entry| match entry.closing {
            true => None,
            false => entry.listening.replace(Listening { events, token }),
        });
        // Outside the borrow: its destructor may be anybody's code.
        drop(before);
    }

    /// Arms receiving. No buffer is held until bytes arrive. Without effect if armed already or over.
    pub fn start_receiving(&self) {
        let fd = match self.with(|entry| match &mut entry.receiving {
            Receiving::Idle => Some(entry.fd),
            stopping @ Receiving::Stopping => {
                *stopping = Receiving::Restarting;
                None
            }
            Receiving::Armed | Receiving::Restarting | Receiving::Ended => None,
        }) {
            Some(Some(socket)) => socket,
            Some(None) | None => return,
        };
        let operation = self.shard.driver().submit(Op::Receive { socket: fd }, Owner::Receiver(self.key));
        self.with(|entry| entry.armed(operation));
    }

    /// Stops receiving: back-pressure towards the peer. What was already on its way may still arrive.
    pub fn stop_receiving(&self) {
        stop_receiving(&self.shard, self.key);
    }

    /// Sends the whole buffer. One send at a time. On a socket that is not open any more the buffer is dropped.
    ///
    /// # Panics
    /// When a send is still in flight: order on the wire would be lost.
    pub fn send(&self, buffer: Outgoing) {
        let fd = self.with(|entry| {
            assert!(entry.send_in_flight().is_none(), "one send in flight per socket; wait for on_sent");
            entry.fd
        });
        if let Some(fd) = fd {
            submit_send(&self.shard, self.key, fd, SendBuffer::new(buffer));
        }
    }

    /// False once the runtime has closed the socket: a callback of it panicked, or the shard is going down. Calls on
    /// it are then without effect or fail with `ENOTCONN`.
    pub fn is_open(&self) -> bool {
        self.with(|_| ()).is_some()
    }

    /// Whether a send is in flight.
    pub fn is_sending(&self) -> bool {
        self.with(|entry| entry.send_in_flight().is_some()).unwrap_or(false)
    }

    /// shutdown(2). After `Write` the peer sees the end of the stream.
    pub fn shut(&self, how: Shutdown) -> io::Result<()> {
        let fd = self.fd()?;
        self.shard.driver().shutdown(fd, how)
    }

    /// Makes the coming close reset the connection (SO_LINGER 0): the peer cannot take it for a clean end.
    pub fn reset_on_close(&self) {
        // A socket that is already reset cannot be told so again; the close that follows is what counts.
        let _ = self.set_option(SocketOption::Linger(Some(Duration::ZERO)));
    }

    /// The peer's address; Unix sockets have none.
    pub fn peer(&self) -> Option<SocketAddr> {
        let fd = self.fd().ok()?;
        self.shard.driver().peer(fd).ok().flatten()
    }

    /// As [`Socket::peer`], by the socket's name on its shard.
    pub fn peer_of(shard: &Shard, socket: Key) -> Option<SocketAddr> {
        let fd = shard.net().sockets.borrow().get(socket).map(|entry| entry.fd)?;
        shard.driver().peer(fd).ok().flatten()
    }

    /// Bytes accepted by the kernel that the peer has not acknowledged (SIOCOUTQ).
    pub fn unacknowledged(&self) -> io::Result<u64> {
        let fd = self.fd()?;
        self.shard.driver().send_progress(fd).map(|progress| progress.unacknowledged)
    }

    /// Bytes that the peer has acknowledged, ever: progress of an output, whatever waits in between. Where the
    /// transport does not tell (UNIX sockets), bytes that have left the socket's queue.
    pub fn acknowledged(&self) -> io::Result<u64> {
        let fd = self.fd()?;
        let SendProgress { unacknowledged, acknowledged, .. } = self.shard.driver().send_progress(fd)?;
        Ok(acknowledged.unwrap_or_else(|| self.sent_bytes().saturating_sub(unacknowledged)))
    }

    /// Whether the peer's end (FIN or RST) has arrived, behind whatever has not been received yet. Only TCP tells.
    pub fn has_peer_ended(&self) -> bool {
        let progress = self.fd().and_then(|fd| self.shard.driver().send_progress(fd));
        progress.is_ok_and(|progress| progress.peer_ended)
    }

    /// As [`Socket::unacknowledged`], by the socket's name on its shard.
    ///
    /// # Errors
    /// `ENOTCONN` when there is no such socket any more; the kernel's own.
    pub fn unacknowledged_of(shard: &Shard, socket: Key) -> io::Result<u64> {
        let sockets = shard.net().sockets.borrow();
        let fd = sockets.get(socket).map(|entry| entry.fd).ok_or(io::ErrorKind::NotConnected)?;
        drop(sockets);
        shard.driver().send_progress(fd).map(|progress| progress.unacknowledged)
    }

    /// Bytes of finished and partly finished sends that the kernel has taken, ever.
    pub fn sent_bytes(&self) -> u64 {
        self.with(|entry| entry.sent_bytes).unwrap_or(0)
    }

    /// TCP_NODELAY; accepted sockets have it on.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.set_option(SocketOption::NoDelay(on))
    }

    /// TCP keep-alive probes after this much silence; `None` turns them off.
    pub fn set_keepalive(&self, after: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::KeepAlive(after))
    }

    /// SO_RCVBUF in bytes.
    pub fn set_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        self.set_option(SocketOption::ReceiveBuffer(bytes))
    }

    /// SO_SNDBUF in bytes.
    pub fn set_send_buffer(&self, bytes: usize) -> io::Result<()> {
        self.set_option(SocketOption::SendBuffer(bytes))
    }

    /// The shard this socket lives on.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    fn set_option(&self, option: SocketOption) -> io::Result<()> {
        let fd = self.fd()?;
        self.shard.driver().set_option(fd, option)
    }

    fn fd(&self) -> io::Result<Descriptor> {
        self.with(|entry| entry.fd).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))
    }

    /// `None` when the runtime has closed the socket under its owner.
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut SocketEntry) -> R) -> Option<R> {
        let mut sockets = self.shard.net().sockets.borrow_mut();
        sockets.get_mut(self.key).filter(|entry| !entry.closing).map(f)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        close(&self.shard, self.key);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Socket({:?} of {:?})", self.key, self.shard.id())
    }
}

fn submit_send(shard: &Shard, key: Key, socket: Descriptor, buffer: SendBuffer) {
    let operation = shard.driver().submit(Op::Send { socket, buffer }, Owner::Sender(key));
    let mut sockets = shard.net().sockets.borrow_mut();
    sockets.get_mut(key).expect("the sender is in the table").sending = operation;
}

/// See [`Socket::stop_receiving`].
pub(super) fn stop_receiving(shard: &Shard, key: Key) {
    let operation = {
        let mut sockets = shard.net().sockets.borrow_mut();
        let Some(entry) = sockets.get_mut(key).filter(|entry| !entry.closing) else { return };
        match entry.receiving {
            Receiving::Armed => {
                entry.receiving = Receiving::Stopping;
                Some(entry.receive)
            }
            Receiving::Restarting => {
                entry.receiving = Receiving::Stopping;
                None
            }
            Receiving::Idle | Receiving::Stopping | Receiving::Ended => None,
        }
    };
    if let Some(operation) = operation {
        shard.driver().cancel(operation);
    }
}

/// The end of a socket one of whose callbacks panicked. Gives who is to be told, and the token.
pub(super) fn abort(shard: &Shard, key: Key) -> Option<(Rc<dyn SocketEvents>, u64)> {
    let listening = shard.net().sockets.borrow_mut().get_mut(key)?.listening.take();
    close(shard, key);
    listening.map(|listening| (listening.events, listening.token))
}

/// Ends everything on the socket; the descriptor is closed when the last operation has come back.
pub(super) fn close(shard: &Shard, key: Key) {
    let (fd, listening, receive, send) = {
        let mut sockets = shard.net().sockets.borrow_mut();
        let Some(entry) = sockets.get_mut(key) else { return };
        if std::mem::replace(&mut entry.closing, true) {
            return;
        }
        let listening = entry.listening.take();
        (entry.fd, listening, entry.receive_in_flight(), entry.send_in_flight())
    };
    let mut driver = shard.driver();
    receive.into_iter().chain(send).for_each(|operation| driver.cancel(operation));
    drop(driver);
    close_if_quiet(shard, key, fd);
    // Last and with nothing borrowed: its destructor may be anybody's code, and may hold other sockets.
    drop(listening);
}

fn close_if_quiet(shard: &Shard, key: Key, fd: Descriptor) {
    let mut sockets = shard.net().sockets.borrow_mut();
    let Some(entry) = sockets.get(key) else { return };
    let quiet = entry.send_in_flight().is_none() && entry.receive_in_flight().is_none();
    if entry.closing && quiet {
        sockets.remove(key);
        drop(sockets);
        shard.handle_ref().count_connection(false);
        shard.driver().close(fd);
    }
}

/// What is left to do once the new state is stored.
enum Told {
    Received(Rc<dyn SocketEvents>, u64, Lease),
    End(Rc<dyn SocketEvents>, u64, ReceiveEnd),
    Again(Descriptor),
    CloseIfQuiet(Descriptor),
    Nothing,
}

#[inline]
pub(super) fn deliver_received(shard: &Shard, key: Key, completion: Completion) -> bool {
    let told = {
        let mut sockets = shard.net().sockets.borrow_mut();
        let Some(entry) = sockets.get_mut(key) else { return false };
        entry.received(completion)
    };
    match told {
        Told::Received(events, token, bytes) => events.on_received(shard, token, bytes),
        Told::End(events, token, end) => events.on_receive_end(shard, token, end),
        Told::CloseIfQuiet(fd) => close_if_quiet(shard, key, fd),
        Told::Again(socket) => {
            let operation = shard.driver().submit(Op::Receive { socket }, Owner::Receiver(key));
            let mut sockets = shard.net().sockets.borrow_mut();
            sockets.get_mut(key).expect("nothing ran in between").armed(operation);
        }
        Told::Nothing => {}
    }
    true
}

impl SocketEntry {
    fn armed(&mut self, operation: Key) {
        self.receiving = Receiving::Armed;
        self.receive = operation;
    }

    fn receive_in_flight(&self) -> Option<Key> {
        let idle = matches!(self.receiving, Receiving::Idle | Receiving::Ended);
        (!idle).then_some(self.receive)
    }

    fn send_in_flight(&self) -> Option<Key> {
        (self.sending != Key::NONE).then_some(self.sending)
    }

    #[inline]
    fn received(&mut self, completion: Completion) -> Told {
        let listening = self.listening.as_ref().map(|listening| (listening.events.clone(), listening.token));
        match completion.outcome {
            Outcome::Received(bytes) => {
                assert!(completion.more, "the driver keeps a receive armed until its end");
                match listening {
                    Some((events, token)) => Told::Received(events, token, bytes),
                    None => Told::Nothing,
                }
            }
            Outcome::EndOfStream => self.ended(listening, ReceiveEnd::Finished),
            Outcome::Failed(error) if is_cancelled(&error) => self.stopped(),
            Outcome::Failed(error) => self.ended(listening, ReceiveEnd::Failed(error)),
            other => unreachable!("a receive cannot end with {other:?}"),
        }
    }

    fn ended(&mut self, listening: Option<(Rc<dyn SocketEvents>, u64)>, end: ReceiveEnd) -> Told {
        self.receiving = Receiving::Ended;
        match listening {
            Some((events, token)) => Told::End(events, token, end),
            None => Told::CloseIfQuiet(self.fd),
        }
    }

    fn stopped(&mut self) -> Told {
        // A cancel that nobody asked for must not leave a reader waiting for ever.
        let again = matches!(self.receiving, Receiving::Restarting | Receiving::Armed);
        self.receiving = Receiving::Idle;
        if self.closing {
            Told::CloseIfQuiet(self.fd)
        } else if again {
            Told::Again(self.fd)
        } else {
            Told::Nothing
        }
    }
}

fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

#[inline]
pub(super) fn deliver_sent(shard: &Shard, key: Key, completion: Completion) -> bool {
    let mut sockets = shard.net().sockets.borrow_mut();
    let Some(entry) = sockets.get_mut(key) else { return false };
    entry.sending = Key::NONE;
    if let Outcome::Sent { result: Ok(count), .. } = &completion.outcome {
        entry.sent_bytes += *count as u64;
    }
    let fd = entry.fd;
    let listening = entry.listening.as_ref().map(|listening| (listening.events.clone(), listening.token));
    let closing = entry.closing;
    drop(sockets);
    match (completion.outcome, listening) {
        _ if closing => close_if_quiet(shard, key, fd),
        (Outcome::Sent { result: Ok(1..), buffer }, _) if buffer.remaining() > 0 => {
            submit_send(shard, key, fd, buffer);
        }
        (Outcome::Sent { result, buffer }, Some((events, token))) => {
            let result = match result {
                Ok(_) if buffer.remaining() > 0 => Err(io::ErrorKind::WriteZero.into()),
                other => other.map(|_| ()),
            };
            events.on_sent(shard, token, Sent { result, bytes: buffer.sent, buffer: buffer.parts });
        }
        (Outcome::Connected(result), Some((events, token))) => events.on_connected(shard, token, result),
        (Outcome::Sent { .. } | Outcome::Connected(_), None) => {}
        (other, _) => unreachable!("a send cannot end with {other:?}"),
    }
    true
}
