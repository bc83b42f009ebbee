//! Sockets of a shard.
//!
//! There are two faces on one mechanism:
//!
//! * the **event face**, [`Socket`] with [`SocketEvents`]: callbacks, no task, no waker, nothing held while a
//!   socket is idle. Servers and proxies that count bytes per connection use this one;
//! * the **async face**, [`Stream`]: `read().await`, `write_all().await`, built on the event face.
//!
//! ```text
//!            submit                    completion
//!   Socket ──────────▶ driver ─────────────────────▶ Net::deliver ──▶ SocketEvents::on_received
//!                                                   (state stored       on_receive_end
//!                                                    first, then         on_sent
//!                                                    the callback)
//! ```
//!
//! An idle connection costs a shard, in bytes (each table holds up to a quarter more in reserve):
//!
//! | | io_uring | epoll |
//! | --- | ---: | ---: |
//! | the socket's entry | 64 | 64 |
//! | the armed receive, and what is known of the descriptor | 32 | 72 |
//! | the table of descriptors | 4 | 4 |
//! | a timer | 56 | 56 |
//! | together | 156 | 196 |
//!
//! A closed socket's entry stays in the table until its last operation has come back; only then is the
//! descriptor closed, so that a number is never reused under an operation of its former owner.

mod listener;
mod options;
mod relay;
mod socket;
mod stream;

pub use crate::driver::{SEND_PARTS_MAX, SendParts as Outgoing, Vectored};
use crate::{
    driver::{Completion, Owner},
    file_io,
    shard::Shard,
    table::Table,
};
use listener::ListenerEntry;
pub(crate) use listener::accept;
pub use listener::{AcceptEvents, AcceptMode, BACK_OFF, Binding, Listener, ListenerStats};
pub use options::SocketAddress;
pub use relay::{RelayEnd, Relayed, relay};
use socket::SocketEntry;
pub use socket::{HowToShut, ReceiveEnd, Sent, Socket, SocketEvents};
use std::{cell::RefCell, collections::HashMap, rc::Rc};
pub use stream::Stream;

/// The tables of a shard's sockets.
#[derive(Default)]
pub(crate) struct Net {
    listeners: RefCell<Table<ListenerEntry>>,
    sockets: RefCell<Table<SocketEntry>>,
    /// Who takes connections that another shard accepted, by the identity of their binding.
    adopters: RefCell<HashMap<usize, Rc<dyn AcceptEvents>>>,
}

impl Net {
    /// Live sockets, closing ones included.
    pub(crate) fn sockets(&self) -> usize {
        self.sockets.borrow().len()
    }

    /// Whether everything has been closed.
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.borrow().is_empty() && self.listeners.borrow().is_empty()
    }

    /// Routes a completion to its owner. Gives whether there was one.
    #[inline]
    pub(crate) fn deliver(shard: &Shard, completion: Completion) -> bool {
        match completion.owner {
            Owner::Receiver(key) => socket::deliver_received(shard, key, completion),
            Owner::Sender(key) => socket::deliver_sent(shard, key, completion),
            Owner::Listener(key) => listener::deliver_accepted(shard, key, completion),
            Owner::Waiter(key) => file_io::deliver(shard, key, completion),
            Owner::Nobody => false,
        }
    }

    /// A callback for this owner panicked: its socket is closed. Gives whom to tell, and the token.
    #[cold]
    pub(crate) fn abort(shard: &Shard, owner: Owner) -> Option<(Rc<dyn SocketEvents>, u64)> {
        match owner {
            Owner::Receiver(key) | Owner::Sender(key) => socket::abort(shard, key),
            Owner::Listener(_) | Owner::Waiter(_) | Owner::Nobody => None,
        }
    }

    /// Closes every socket and listener, whoever holds them: the shard is going down.
    pub(crate) fn close_all(shard: &Shard) {
        let sockets = shard.net().sockets.borrow().keys();
        sockets.into_iter().for_each(|key| socket::close(shard, key));
        let listeners = shard.net().listeners.borrow().keys();
        listeners.into_iter().for_each(|key| listener::close(shard, key));
        let adopters = std::mem::take(&mut *shard.net().adopters.borrow_mut());
        drop(adopters);
    }
}
