//! The async face: a connection as a pair of futures, built on the event face.
//!
//! Received leases wait in a short queue; at [`QUEUE_MAX`] receiving is stopped, so that a reader that does not read
//! puts pressure on the peer and not on memory. What nobody waits for leaves the pool's supply: a stream that is not
//! read never takes the receive buffers of the others.

use super::{
    HowToShut, Outgoing, ReceiveEnd, Sent, Socket, SocketAddress, SocketEvents, socket::stop_receiving,
};
use crate::{
    buffers::Lease,
    error::{Error, Result},
    shard::Shard,
    table::Key,
    time,
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt, io,
    net::SocketAddr,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Leases that may wait for the reader before receiving stops; those already on their way still come.
const QUEUE_MAX: usize = 8;

/// A connected stream with `read` and `write` futures. Dropping it closes it at once; [`Stream::finish`] ends it
/// politely.
pub struct Stream {
    socket: Socket,
    state: Rc<State>,
}

#[derive(Default)]
struct State {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    received: VecDeque<Lease>,
    end: Option<ReceiveEnd>,
    receiving: bool,
    writing: bool,
    sent: Option<Sent>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl SocketEvents for State {
    fn on_received(&self, shard: &Shard, token: u64, mut bytes: Lease) {
        let (reader, stop) = {
            let mut inner = self.inner.borrow_mut();
            let reader = inner.reader.take();
            if reader.is_none() {
                bytes.detach();
            }
            inner.received.push_back(bytes);
            let stop = inner.receiving && inner.received.len() >= QUEUE_MAX;
            inner.receiving &= !stop;
            (reader, stop)
        };
        if stop {
            stop_receiving(shard, Key::from_u64(token));
        }
        wake(reader);
    }

    fn on_receive_end(&self, _shard: &Shard, _token: u64, end: ReceiveEnd) {
        let reader = {
            let mut inner = self.inner.borrow_mut();
            inner.end = Some(end);
            inner.reader.take()
        };
        wake(reader);
    }

    fn on_sent(&self, _shard: &Shard, _token: u64, sent: Sent) {
        let writer = {
            let mut inner = self.inner.borrow_mut();
            inner.sent = Some(sent);
            inner.writer.take()
        };
        wake(writer);
    }
}

/// Puts the waker into its place. The one before it is dropped with nothing borrowed.
fn keep(state: &State, place: impl FnOnce(&mut Inner) -> &mut Option<Waker>, context: &Context<'_>) {
    let waker = context.waker().clone();
    let before = place(&mut state.inner.borrow_mut()).replace(waker);
    drop(before);
}

/// The one write that is being awaited.
struct Writing<'a>(&'a State);

impl<'a> Writing<'a> {
    fn begin(state: &'a State) -> Self {
        let already = std::mem::replace(&mut state.inner.borrow_mut().writing, true);
        assert!(!already, "one write at a time per stream");
        Writing(state)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.inner.borrow_mut().writing = false;
    }
}

fn wake(waker: Option<Waker>) {
    waker.into_iter().for_each(Waker::wake);
}

impl Stream {
    /// The async face of an accepted socket.
    pub fn new(socket: Socket) -> Self {
        let state = Rc::new(State::default());
        socket.listen_to(state.clone(), socket.key().to_u64());
        Stream { socket, state }
    }

    /// Connects from the current shard.
    ///
    /// # Errors
    /// [`Error::Kernel`] with the address and the errno.
    pub async fn connect(address: &SocketAddress) -> Result<Self> {
        Ok(Stream::new(Socket::connect(address).await?))
    }

    /// Connects, but gives up after `within`.
    ///
    /// # Errors
    /// As [`Stream::connect`], and [`Error::TimedOut`].
    pub async fn connect_within(address: &SocketAddress, within: Duration) -> Result<Self> {
        time::timeout(within, Stream::connect(address)).await?
    }

    /// The next bytes, or `None` after the peer's end. Nothing is held while it waits.
    ///
    /// # Errors
    /// The connection's error, each time it is asked.
    pub async fn read(&self) -> io::Result<Option<Lease>> {
        std::future::poll_fn(|context| self.poll_read(context)).await
    }

    /// [`Stream::read`] for hand-written futures.
    pub fn poll_read(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        let mut inner = self.state.inner.borrow_mut();
        if let Some(lease) = inner.received.pop_front() {
            return Poll::Ready(Ok(Some(lease)));
        }
        match &inner.end {
            Some(ReceiveEnd::Finished) => return Poll::Ready(Ok(None)),
            Some(ReceiveEnd::Failed(error)) => return Poll::Ready(Err(copy_of(error))),
            None => {}
        }
        let start = !std::mem::replace(&mut inner.receiving, true);
        drop(inner);
        keep(&self.state, |inner| &mut inner.reader, context);
        if start {
            self.socket.start_receiving();
        }
        Poll::Pending
    }

    /// Sends everything in the buffer; gives it back for reuse. Resolves when the kernel has taken it all.
    ///
    /// # Errors
    /// The connection's error.
    ///
    /// # Panics
    /// When another write on this stream is being awaited. One that was dropped is no hindrance: its bytes go out
    /// whole, and then these.
    pub async fn write_all(&self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self.write(Outgoing::Vec(bytes)).await? {
            Outgoing::Vec(bytes) => Ok(bytes),
            other => unreachable!("the same buffer comes back, not {other:?}"),
        }
    }

    /// Sends shared bytes without copying them.
    ///
    /// # Errors
    /// The connection's error.
    pub async fn write_bytes(&self, bytes: Bytes) -> io::Result<()> {
        self.write(Outgoing::Bytes(bytes)).await.map(|_| ())
    }

    /// Sends one piece or several in one vectored send.
    ///
    /// # Errors
    /// The connection's error.
    pub async fn write(&self, buffer: Outgoing) -> io::Result<Outgoing> {
        let _writing = Writing::begin(&self.state);
        // A write that was dropped half-way is finished by the kernel: order on the wire is kept.
        self.until(|| !self.socket.is_sending()).await;
        let left_over = self.state.inner.borrow_mut().sent.take();
        drop(left_over);
        if !self.socket.is_open() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.socket.send(buffer);
        let mut sent = None;
        self.until(|| {
            sent = self.state.inner.borrow_mut().sent.take();
            sent.is_some()
        })
        .await;
        let sent = sent.expect("that was waited for");
        sent.result.map(|()| sent.buffer)
    }

    /// Waits, as the one writer, until something holds that `on_sent` brings about.
    async fn until(&self, mut done: impl FnMut() -> bool) {
        std::future::poll_fn(|context| match done() {
            true => Poll::Ready(()),
            false => {
                keep(&self.state, |inner| &mut inner.writer, context);
                Poll::Pending
            }
        })
        .await;
    }

    /// Ends the sending side: the peer reads to the end of what was sent.
    ///
    /// # Errors
    /// `ENOTCONN` when the connection is gone already.
    pub fn finish(&self) -> io::Result<()> {
        self.socket.shut(HowToShut::Write)
    }

    /// Half-closes and then reads and drops what the peer still sends, until its end, `bytes_max` or `within`:
    /// a close with unread bytes would reset the connection and could destroy what was sent last.
    pub async fn linger(self, bytes_max: usize, within: Duration) {
        if self.finish().is_err() {
            return;
        }
        let drain = async {
            let mut left = bytes_max;
            while let Ok(Some(lease)) = self.read().await {
                left = left.saturating_sub(lease.len());
                if left == 0 {
                    break;
                }
            }
        };
        // Whichever bound is met first: the socket is closed now.
        let _ = time::timeout(within, drain).await;
    }

    /// The peer's address; Unix sockets have none.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer()
    }

    /// The socket below, for options.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}

impl Socket {
    /// Connects from the current shard.
    ///
    /// # Errors
    /// [`Error::Kernel`] with the address and the errno.
    pub async fn connect(address: &SocketAddress) -> Result<Socket> {
        let connecting = Rc::new(Connecting::default());
        let socket = Socket::start_connecting(&Shard::current(), address, connecting.clone(), 0)?;
        let result = std::future::poll_fn(|context| connecting.poll(context)).await;
        result.map_err(|error| Error::kernel(format!("connect to {address}"), error))?;
        Ok(socket)
    }
}

/// Waits for the connection and for nothing else.
#[derive(Default)]
struct Connecting {
    result: RefCell<Option<io::Result<()>>>,
    waker: RefCell<Option<Waker>>,
}

impl Connecting {
    fn poll(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        match self.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                self.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl SocketEvents for Connecting {
    fn on_connected(&self, _shard: &Shard, _token: u64, result: io::Result<()>) {
        self.result.replace(Some(result));
        wake(self.waker.take());
    }

    fn on_received(&self, _shard: &Shard, _token: u64, _bytes: Lease) {}

    fn on_receive_end(&self, _shard: &Shard, _token: u64, _end: ReceiveEnd) {}

    fn on_sent(&self, _shard: &Shard, _token: u64, _sent: Sent) {}
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.socket.key())
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
