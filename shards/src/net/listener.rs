//! Listening: accepted connections arrive as [`Socket`]s on a shard.
//!
//! [`Binding`] makes the sockets before any shard starts, so that a port in use is an error of the start and not
//! of a thread. With [`AcceptMode::ReusePort`] every shard has a listener of its own and the kernel spreads
//! connections by hash; one listener is never shared between rings (one of them would get everything).
//! With [`AcceptMode::Acceptor`] the first shard accepts and hands each descriptor to the shard that has the
//! fewest live connections.
//!
//! A shard whose listener is gone, or that is stopping or overloaded, is left out; what it cannot take stays here.
//!
//! Out of descriptors: accepting backs off for [`BACK_OFF`], is armed again by a timer, and is counted. So it is with
//! every error that is not that of one connection: an error that stays must not become a busy loop.

use super::{Socket, SocketAddress};
use crate::{
    driver::{
        Address, Completion, Descriptor, DriverKind, ListenOptions, Op, Outcome, Owner, bind_listener,
        look_at_listener,
    },
    error::{Error, Result},
    handle::ShardHandle,
    shard::Shard,
    sync::Arc,
    table::Key,
    time,
    timers::TimerTarget,
};
use std::{
    fmt, io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// How long accepting rests after the kernel ran out of descriptors or memory.
pub const BACK_OFF: Duration = Duration::from_millis(100);

/// Who gets a new connection.
pub trait AcceptEvents {
    /// A connection for this shard. Keep the socket: dropping it closes the connection.
    fn on_accepted(&self, shard: &Shard, socket: Socket);
    /// Accepting rests for [`BACK_OFF`] because of this error, for example EMFILE, ENFILE, ENOBUFS or ENOMEM.
    fn on_accept_paused(&self, shard: &Shard, error: &io::Error) {
        let _ = (shard, error);
    }
}

/// How connections are spread over shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcceptMode {
    /// A listener per shard on the same port (SO_REUSEPORT). The default.
    #[default]
    ReusePort,
    /// The first shard accepts and hands over to the shard with the fewest live connections.
    Acceptor,
}

/// Bound sockets, made before the shards start; each shard takes its own with [`Binding::listen`].
#[derive(Debug, Clone)]
pub struct Binding {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddress,
    mode: AcceptMode,
    sockets: Mutex<Vec<Option<OwnedFd>>>,
    /// The way to each shard, for [`AcceptMode::Acceptor`].
    targets: Mutex<Vec<Option<ShardHandle>>>,
}

impl Binding {
    /// Binds and listens for `shards` shards. Port 0 lets the kernel choose; [`Binding::address`] tells.
    ///
    /// # Errors
    /// [`Error::Kernel`] with `bind ADDRESS` and the errno.
    pub fn bind(address: &SocketAddress, shards: usize, mode: AcceptMode, backlog: i32) -> Result<Self> {
        let one_each = mode == AcceptMode::ReusePort && address.tcp().is_some() && shards > 1;
        let options = ListenOptions { backlog, reuse_port: one_each };
        let (first, bound) = bind_listener(&address.0, options)?;
        let mut sockets = vec![Some(first)];
        for _ in 1..shards {
            sockets.push(if one_each { Some(bind_listener(&bound, options)?.0) } else { None });
        }
        Ok(Binding::of(bound, one_each, sockets))
    }

    /// Takes over sockets that listen already, such as those of another process ([`Listener::duplicate`]): one for
    /// all shards, or one for each. Nobody who waits in their queues is lost.
    ///
    /// # Errors
    /// [`Error::Misuse`] when there are more or fewer of them, or when they were in use by another kind of driver:
    /// one wants them blocking, the other not, and both processes share that. [`Error::Kernel`] when they are no
    /// listening sockets.
    pub fn adopt(sockets: Vec<OwnedFd>, shards: usize, driver: DriverKind) -> Result<Self> {
        if sockets.len() != 1 && sockets.len() != shards {
            return Err(Error::Misuse { advice: "have as many shards as whoever hands its sockets over" });
        }
        let mut address = None;
        for socket in &sockets {
            let (bound, nonblocking) = look_at_listener(socket)?;
            if nonblocking != (driver == DriverKind::Epoll) {
                return Err(Error::Misuse { advice: "have the driver of whoever hands its sockets over" });
            }
            if address.get_or_insert_with(|| bound.clone()) != &bound {
                return Err(Error::Misuse { advice: "hand over sockets of one address at a time" });
            }
        }
        let Some(address) = address else {
            return Err(Error::Misuse { advice: "hand over one socket at least" });
        };
        let one_each = sockets.len() > 1;
        let mut sockets: Vec<_> = sockets.into_iter().map(Some).collect();
        sockets.resize_with(shards, || None);
        Ok(Binding::of(address, one_each, sockets))
    }

    fn of(address: Address, one_each: bool, sockets: Vec<Option<OwnedFd>>) -> Self {
        Binding {
            shared: Arc::new(Shared {
                address: SocketAddress(address),
                mode: if one_each { AcceptMode::ReusePort } else { AcceptMode::Acceptor },
                targets: Mutex::new(vec![None; sockets.len()]),
                sockets: Mutex::new(sockets),
            }),
        }
    }

    /// The real address.
    pub fn address(&self) -> &SocketAddress {
        &self.shared.address
    }

    /// Starts accepting on this shard; every shard calls this once. With [`AcceptMode::Acceptor`] only the first
    /// shard's listener accepts, and this is how connections find the others.
    ///
    /// # Errors
    /// [`Error::Misuse`] on a shard that was not counted at [`Binding::bind`], or that had its socket already.
    pub fn listen(&self, shard: &Shard, events: Rc<dyn AcceptEvents>) -> Result<Listener> {
        let index = shard.id().index();
        let mut sockets = self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = sockets.get_mut(index);
        let socket = socket.ok_or(Error::Misuse { advice: "bind for as many shards as there are" })?.take();
        drop(sockets);
        let spread = (self.shared.mode == AcceptMode::Acceptor).then(|| self.clone());
        if socket.is_none() && (spread.is_none() || index == 0) {
            return Err(Error::Misuse { advice: "a shard listens once per binding: bind again" });
        }
        if spread.is_some() {
            self.set_target(index, Some(shard.handle()));
        }
        let fd = socket.map(|socket| shard.driver().adopt(socket));
        Ok(Listener::start(shard, fd, self.shared.address.clone(), ListenerRole { events, spread }))
    }

    /// The shard with the fewest live connections; the accepting shard itself among equals.
    fn least_loaded(&self, own: usize) -> Option<ShardHandle> {
        let targets = self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let known = targets.iter().flatten().filter(|handle| !handle.is_stopped());
        known.min_by_key(|handle| (handle.connections(), handle.id().index() != own)).cloned()
    }

    fn set_target(&self, index: usize, target: Option<ShardHandle>) {
        self.shared.targets.lock().unwrap_or_else(PoisonError::into_inner)[index] = target;
    }

    fn identity(&self) -> usize {
        Arc::as_ptr(&self.shared) as usize
    }
}

/// What one listener counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerStats {
    /// Connections accepted here.
    pub accepted: u64,
    /// Of these, handed to other shards.
    pub handed_over: u64,
    /// Times accepting had to rest.
    pub pauses: u64,
    /// Connections that another shard should have had but could not take (full or stopping): they stayed here.
    pub kept: u64,
}

struct ListenerRole {
    events: Rc<dyn AcceptEvents>,
    spread: Option<Binding>,
}

pub(super) struct ListenerEntry {
    /// `None` where another shard accepts for this one.
    fd: Option<Descriptor>,
    role: ListenerRole,
    accepting: Option<Key>,
    resting: Option<Key>,
    closing: bool,
    stats: ListenerStats,
}

/// A listener of this shard. Dropping it stops accepting and closes its socket; connections that the kernel had
/// accepted by then still arrive.
pub struct Listener {
    shard: Shard,
    key: Key,
    address: SocketAddress,
}

impl Listener {
    /// Listens on this shard alone.
    ///
    /// # Errors
    /// [`Error::Kernel`] with `bind ADDRESS` and the errno.
    pub fn bind(shard: &Shard, address: &SocketAddress, events: Rc<dyn AcceptEvents>) -> Result<Self> {
        let options = ListenOptions { backlog: BACKLOG, reuse_port: false };
        let (fd, bound) = shard.driver().listen(&address.0, options)?;
        let role = ListenerRole { events, spread: None };
        Ok(Listener::start(shard, Some(fd), SocketAddress(bound), role))
    }

    fn start(shard: &Shard, fd: Option<Descriptor>, address: SocketAddress, role: ListenerRole) -> Self {
        if let Some(binding) = &role.spread {
            let before = shard.net().adopters.borrow_mut().insert(binding.identity(), role.events.clone());
            drop(before);
        }
        let key = shard.net().listeners.borrow_mut().insert(ListenerEntry {
            fd,
            role,
            accepting: None,
            resting: None,
            closing: false,
            stats: ListenerStats::default(),
        });
        accept(shard, key);
        Listener { shard: shard.clone(), key, address }
    }

    /// The real address.
    pub fn address(&self) -> &SocketAddress {
        &self.address
    }

    /// A second descriptor of its socket, for a process that goes on with it ([`Binding::adopt`]): what waits in its
    /// queue when this listener closes is that process's. `None` where another shard accepts for this one.
    ///
    /// # Errors
    /// `NotConnected` when it stops or has stopped: its socket is nobody's to hand on. The kernel's: no descriptor is
    /// left.
    pub fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        let fd = {
            let listeners = self.shard.net().listeners.borrow();
            let entry = listeners.get(self.key).filter(|entry| !entry.closing);
            entry.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the listener is closed"))?.fd
        };
        fd.map(|fd| self.shard.driver().duplicate(fd)).transpose()
    }

    /// Looks at the queue anew. Where two processes listen on one socket the kernel wakes one of them for a connection
    /// (EPOLLEXCLUSIVE, epoll_ctl(2), which io_uring's accept has too); if that one stops before it has looked, the
    /// other does not know.
    pub fn look_again(&self) {
        let accepting = {
            let listeners = self.shard.net().listeners.borrow();
            listeners.get(self.key).filter(|entry| !entry.closing).and_then(|entry| entry.accepting)
        };
        if let Some(operation) = accepting {
            // Its end is told, and it is armed again: see `concerns_one_connection`.
            self.shard.driver().cancel(operation);
        }
    }

    /// Whether it has stopped, and no further connection can arrive.
    pub fn has_stopped(&self) -> bool {
        self.shard.net().listeners.borrow().get(self.key).is_none()
    }

    /// Stops accepting, as dropping does: the socket closes as soon as the kernel has let it go.
    pub fn stop(&self) {
        close(&self.shard, self.key);
    }

    /// Stops accepting and waits until no further connection can arrive.
    pub async fn close(&self) {
        self.stop();
        while !self.has_stopped() {
            time::sleep(LOOK).await;
        }
    }

    /// What this listener counted; nothing any more once it has stopped.
    pub fn stats(&self) -> ListenerStats {
        let listeners = self.shard.net().listeners.borrow();
        listeners.get(self.key).map_or_else(ListenerStats::default, |entry| entry.stats)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        close(&self.shard, self.key);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({} on {:?})", self.address, self.shard.id())
    }
}

/// Arms accepting, if there is a socket and it is not being closed.
pub(crate) fn accept(shard: &Shard, key: Key) {
    let listener = {
        let mut listeners = shard.net().listeners.borrow_mut();
        let Some(entry) = listeners.get_mut(key) else { return };
        entry.resting = None;
        match entry.fd {
            Some(fd) if !entry.closing => fd,
            _ => return,
        }
    };
    let operation = shard.driver().submit(Op::Accept { listener }, Owner::Listener(key));
    let mut listeners = shard.net().listeners.borrow_mut();
    listeners.get_mut(key).expect("nothing ran in between").accepting = Some(operation);
}

pub(super) fn close(shard: &Shard, key: Key) {
    let (accepting, resting, binding) = {
        let mut listeners = shard.net().listeners.borrow_mut();
        let Some(entry) = listeners.get_mut(key) else { return };
        if std::mem::replace(&mut entry.closing, true) {
            return;
        }
        (entry.accepting, entry.resting.take(), entry.role.spread.clone())
    };
    if let Some(binding) = binding {
        binding.set_target(shard.id().index(), None);
        let events = shard.net().adopters.borrow_mut().remove(&binding.identity());
        drop(events);
    }
    if let Some(timer) = resting {
        shard.cancel_timer(timer);
    }
    match accepting {
        Some(operation) => shard.driver().cancel(operation),
        None => remove(shard, key),
    }
}

/// The end of an entry. Its events are dropped when nothing is borrowed: their destructor may be anybody's code.
fn remove(shard: &Shard, key: Key) {
    let entry = shard.net().listeners.borrow_mut().remove(key);
    let fd = entry.as_ref().and_then(|entry| entry.fd);
    fd.into_iter().for_each(|fd| shard.driver().close(fd));
    drop(entry);
}

pub(super) fn deliver_accepted(shard: &Shard, key: Key, completion: Completion) -> bool {
    if !completion.more
        && let Some(entry) = shard.net().listeners.borrow_mut().get_mut(key)
    {
        entry.accepting = None;
    }
    match completion.outcome {
        Outcome::Accepted(fd) => {
            let role = {
                let mut listeners = shard.net().listeners.borrow_mut();
                listeners.get_mut(key).map(|entry| {
                    entry.stats.accepted += 1;
                    (entry.role.events.clone(), entry.role.spread.clone(), entry.closing)
                })
            };
            let Some((events, spread, closing)) = role else {
                shard.driver().close(fd);
                return false;
            };
            // First what the listener needs: the callback may panic, or drop the listener.
            match (completion.more, closing) {
                (true, _) => {}
                (false, true) => remove(shard, key),
                (false, false) => accept(shard, key),
            }
            match shard.is_going_down() {
                true => shard.driver().close(fd),
                false => place(shard, key, fd, (events, spread)),
            }
        }
        Outcome::Failed(error) => failed(shard, key, &error),
        other => unreachable!("an accept cannot end with {other:?}"),
    }
    true
}

/// Gives the connection to this shard, or to the one with the fewest.
fn place(shard: &Shard, key: Key, fd: Descriptor, role: (Rc<dyn AcceptEvents>, Option<Binding>)) {
    let (events, spread) = role;
    let own = shard.id().index();
    let other =
        spread.as_ref().and_then(|binding| binding.least_loaded(own)).filter(|to| to.id().index() != own);
    let (Some(other), Some(binding)) = (other, &spread) else {
        return events.on_accepted(shard, Socket::new(shard, fd));
    };
    // A simulated descriptor cannot leave its shard.
    let Some(socket) = shard.driver().release(fd) else {
        return events.on_accepted(shard, Socket::new(shard, fd));
    };
    let identity = binding.identity();
    other.count_connection(true);
    let handed = other.execute(move |shard: &Shard| adopt(shard, identity, socket));
    if let Some(entry) = shard.net().listeners.borrow_mut().get_mut(key) {
        match handed {
            Ok(()) => entry.stats.handed_over += 1,
            Err(_) => entry.stats.kept += 1,
        }
    }
    if let Err(undelivered) = handed {
        other.count_connection(false);
        shard.handle_ref().count_connection(true);
        (undelivered.task)(shard);
    }
}

/// Runs on the shard that was chosen. Without a listener there the descriptor is closed by its drop.
fn adopt(shard: &Shard, identity: usize, socket: OwnedFd) {
    let events = shard.net().adopters.borrow().get(&identity).cloned();
    match events {
        Some(events) => {
            let fd = shard.driver().adopt(socket);
            events.on_accepted(shard, Socket::counted(shard, fd));
        }
        None => shard.handle_ref().count_connection(false),
    }
}

fn failed(shard: &Shard, key: Key, error: &io::Error) {
    let closing = shard.net().listeners.borrow().get(key).map(|entry| entry.closing);
    match closing {
        None => return,
        Some(true) => return remove(shard, key),
        Some(false) if concerns_one_connection(error) => return accept(shard, key),
        Some(false) => {}
    }
    let at = shard.now() + BACK_OFF;
    let timer = shard.timers().insert(at, TimerTarget::Accept(key));
    let events = {
        let mut listeners = shard.net().listeners.borrow_mut();
        let entry = listeners.get_mut(key).expect("nothing ran in between");
        entry.stats.pauses += 1;
        entry.resting = Some(timer);
        entry.role.events.clone()
    };
    events.on_accept_paused(shard, error);
}

/// A connection that died in the queue, or whose own pending network error accept(2) hands on: the next one is not
/// concerned; nor is it by a cancel, which is asked for to look at the queue anew. Everything else (a shortage, a
/// listener that is broken) rests first.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPERM
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::EINTR
                | libc::ECANCELED
        )
    )
}

/// How often a listener that closes is looked at: the kernel gives the accept back within a turn.
const LOOK: Duration = Duration::from_millis(1);

/// Length of the accept queue where the caller does not say; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;
