//! Listening: accepted connections arrive as [`Socket`]s on a shard.
//!
//! [`Binding`] makes the sockets before any shard starts, so that a port in use is an error of the start and not
//! of a thread. With [`AcceptMode::ReusePort`] every shard has a listener of its own and the kernel spreads
//! connections by hash; one listener is never shared between rings (one of them would get everything).
//! With [`AcceptMode::Acceptor`] the first shard accepts and hands each descriptor to the shard that has the
//! fewest live connections.
//!
//! Out of descriptors: accepting backs off for [`BACK_OFF`], is armed again by a timer, and is counted.

use super::{Socket, SocketAddress};
use crate::{
    driver::{Completion, Descriptor, ListenOptions, Op, Outcome, Owner, bind_listener},
    error::{Error, Result},
    handle::ShardHandle,
    shard::Shard,
    sync::Arc,
    table::Key,
    timers::TimerTarget,
};
use std::{
    fmt, io,
    os::fd::OwnedFd,
    rc::Rc,
    sync::{Mutex, OnceLock},
    time::Duration,
};

/// How long accepting rests after the kernel ran out of descriptors or memory.
pub const BACK_OFF: Duration = Duration::from_millis(100);

/// Who gets a new connection.
pub trait AcceptEvents {
    /// A connection for this shard. Keep the socket: dropping it closes the connection.
    fn on_accepted(&self, shard: &Shard, socket: Socket);
    /// Accepting rests for [`BACK_OFF`] because of this error (EMFILE, ENFILE, ENOBUFS, ENOMEM).
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
    targets: Vec<OnceLock<ShardHandle>>,
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
        Ok(Binding {
            shared: Arc::new(Shared {
                address: SocketAddress(bound),
                mode: if one_each { AcceptMode::ReusePort } else { AcceptMode::Acceptor },
                sockets: Mutex::new(sockets),
                targets: (0..shards).map(|_| OnceLock::new()).collect(),
            }),
        })
    }

    /// The real address.
    pub fn address(&self) -> &SocketAddress {
        &self.shared.address
    }

    /// Starts accepting on this shard; every shard calls this once. With [`AcceptMode::Acceptor`] only the first
    /// shard's listener accepts, and this is how connections find the others.
    ///
    /// # Errors
    /// [`Error::Misuse`] on a shard that was not counted at [`Binding::bind`].
    pub fn listen(&self, shard: &Shard, events: Rc<dyn AcceptEvents>) -> Result<Listener> {
        let index = shard.id().index();
        let target = self.shared.targets.get(index);
        let target = target.ok_or(Error::Misuse { advice: "bind for as many shards as there are" })?;
        // Listening again on the same shard finds the same handle there.
        let _ = target.set(shard.handle());
        let socket = self.shared.sockets.lock().expect("nobody panics holding it")[index].take();
        let fd = socket.map(|socket| shard.driver().adopt(socket));
        let spread = (self.shared.mode == AcceptMode::Acceptor).then(|| self.clone());
        Ok(Listener::start(shard, fd, self.shared.address.clone(), ListenerRole { events, spread }))
    }

    /// The shard with the fewest live connections; the accepting shard itself among equals.
    fn least_loaded(&self, own: usize) -> Option<&ShardHandle> {
        let known = self.shared.targets.iter().filter_map(OnceLock::get);
        known.min_by_key(|handle| (handle.connections(), handle.id().index() != own))
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
    /// Connections that could not be handed over (the other shard was stopping) and were closed.
    pub refused: u64,
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

/// A listener of this shard. Dropping it stops accepting and closes its socket.
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
            shard.net().adopters.borrow_mut().insert(binding.identity(), role.events.clone());
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

    /// What this listener counted.
    pub fn stats(&self) -> ListenerStats {
        let listeners = self.shard.net().listeners.borrow();
        listeners.get(self.key).expect("an entry lives as long as its listener").stats
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
    let mut listeners = shard.net().listeners.borrow_mut();
    let Some(entry) = listeners.get_mut(key) else { return };
    if std::mem::replace(&mut entry.closing, true) {
        return;
    }
    if let Some(binding) = &entry.role.spread {
        shard.net().adopters.borrow_mut().remove(&binding.identity());
    }
    let (accepting, resting) = (entry.accepting, entry.resting.take());
    if let Some(timer) = resting {
        shard.timers().remove(timer);
    }
    match accepting {
        Some(operation) => shard.driver().cancel(operation),
        None => {
            let entry = listeners.remove(key).expect("it was there");
            entry.fd.into_iter().for_each(|fd| shard.driver().close(fd));
        }
    }
}

pub(super) fn deliver_accepted(shard: &Shard, key: Key, completion: Completion) -> bool {
    match completion.outcome {
        Outcome::Accepted(fd) => {
            let (events, spread, more) = {
                let mut listeners = shard.net().listeners.borrow_mut();
                let Some(entry) = listeners.get_mut(key) else {
                    shard.driver().close(fd);
                    return false;
                };
                entry.stats.accepted += 1;
                (entry.role.events.clone(), entry.role.spread.clone(), completion.more)
            };
            place(shard, key, fd, (events, spread));
            if !more {
                accept(shard, key);
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
    let Some(socket) = shard.driver().release(fd) else { return };
    let identity = binding.identity();
    other.count_connection(true);
    let handed = other.execute(move |shard: &Shard| adopt(shard, identity, socket));
    if handed.is_err() {
        other.count_connection(false);
    }
    if let Some(entry) = shard.net().listeners.borrow_mut().get_mut(key) {
        match handed {
            Ok(()) => entry.stats.handed_over += 1,
            Err(_) => entry.stats.refused += 1,
        }
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
        None => shard.handle().count_connection(false),
    }
}

fn failed(shard: &Shard, key: Key, error: &io::Error) {
    let mut listeners = shard.net().listeners.borrow_mut();
    let Some(entry) = listeners.get_mut(key) else { return };
    entry.accepting = None;
    if entry.closing {
        let entry = listeners.remove(key).expect("it was there");
        entry.fd.into_iter().for_each(|fd| shard.driver().close(fd));
        return;
    }
    if !is_shortage(error) {
        // A connection that died in the queue (ECONNABORTED) and the like: the next one is not concerned.
        drop(listeners);
        return accept(shard, key);
    }
    entry.stats.pauses += 1;
    let events = entry.role.events.clone();
    let at = shard.now() + BACK_OFF;
    entry.resting = Some(shard.timers().insert(at, TimerTarget::Accept(key)));
    drop(listeners);
    events.on_accept_paused(shard, error);
}

/// Errors that say "not now": only time or closed descriptors mend them.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Length of the accept queue where the caller does not say; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;
