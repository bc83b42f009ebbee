//! New connections, within the bound.

use super::{
    Closing, Connection, Service, output::Output, pipeline::Pipeline, service::ConnectionPlace,
    timeouts::Deadlines,
};
use crate::http1::{Cycle, HeadScan};
use shards::{
    Shard,
    net::{AcceptEvents, Socket},
};
use std::{io, net::IpAddr};

impl Service {
    /// Why there is no place for another connection from there, if there is none.
    fn refusal(&self, peer: Option<IpAddr>) -> Option<&'static str> {
        if self.connection_count() >= self.connections_max {
            return Some("connections_max");
        }
        let addresses = self.addresses.as_ref()?.borrow();
        peer.filter(|peer| !addresses.has_room(*peer)).map(|_| "connections_per_address_max")
    }
}

impl AcceptEvents for Service {
    fn on_accepted(&self, _shard: &Shard, socket: Socket) {
        // Asked of the kernel only where somebody counts.
        let peer = self.addresses.as_ref().and_then(|_| socket.peer()).map(|peer| peer.ip());
        if let Some(reason) = self.refusal(peer) {
            self.counters.refused(reason);
            tracing::debug!(shard = %self.shard.id(), reason, ?peer, "connection refused");
            // Dropped: the client sees the end at once and may try elsewhere.
            return;
        }
        self.counters.accepted();
        let key = self.connections.borrow_mut().insert_with(|key| {
            let name = socket.key();
            let connection = Box::new(Connection {
                key,
                socket,
                cycle: Cycle::new(&self.limits),
                scan: HeadScan::new(),
                held: Vec::new(),
                body: None,
                pipeline: Pipeline::default(),
                output: Output::default(),
                deadlines: Deadlines::new(),
                moved: 0,
                paused: false,
                peer_finished: false,
                finish_due: false,
                closing: Closing::No,
            });
            ConnectionPlace { socket: name, connection: Some(connection) }
        });
        if let (Some(addresses), Some(peer)) = (&self.addresses, peer) {
            addresses.borrow_mut().opened(key, peer);
        }
        self.with(key, |service, connection| {
            connection.socket.listen_to(service.rc(), key.to_u64());
            connection.socket.start_receiving();
        });
        if self.draining.get() {
            // The kernel had it when the listener closed: it has one request, as those that came before it.
            self.drain(key);
        }
    }

    fn on_accept_paused(&self, _shard: &Shard, error: &io::Error) {
        self.counters.accept_paused();
        tracing::warn!(
            shard = %self.shard.id(),
            "accepting pauses: {error}; raise the descriptor limit (ulimit -n) or lower the number of connections"
        );
    }
}
