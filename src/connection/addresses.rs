//! How many connections each client address has on this shard, where that is limited (`connections_per_address_max`).
//! It counts and compares, and knows no socket: `accept` asks, the end of a connection gives back. Nothing is shared
//! between shards, so an address may have its limit on each of them.

use shards::Key;
use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv6Addr},
};

/// The counts of one shard: no more entries than it has connections. The maps are keyed at random for each process, so
/// that nobody can choose addresses that collide.
#[derive(Debug)]
pub(super) struct Addresses {
    connections_max: u32,
    counts: HashMap<IpAddr, u32>,
    holders: HashMap<Key, IpAddr>,
}

impl Addresses {
    /// With so many connections for each address.
    pub(super) fn new(connections_max: u32) -> Self {
        Addresses { connections_max, counts: HashMap::new(), holders: HashMap::new() }
    }

    /// Whether an address may have one more.
    pub(super) fn has_room(&self, address: IpAddr) -> bool {
        self.counts.get(&network(address)).is_none_or(|count| *count < self.connections_max)
    }

    /// A connection begins.
    pub(super) fn opened(&mut self, connection: Key, address: IpAddr) {
        let network = network(address);
        *self.counts.entry(network).or_default() += 1;
        self.holders.insert(connection, network);
    }

    /// A connection has ended; one without an address was never counted.
    pub(super) fn closed(&mut self, connection: Key) {
        let Some(network) = self.holders.remove(&connection) else { return };
        if let Entry::Occupied(mut count) = self.counts.entry(network) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// What counts as one client: an IPv4 address, however it is written, or the 64 bits of an IPv6 address that a
/// provider hands to one customer (RFC 6177 §2, RFC 4291 §2.5.4): the rest is the customer's to choose.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shards::Table;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_address_has_its_own_room_and_gets_it_back() {
        let mut keys = Table::default();
        let [first, second, other, unknown] = [0; 4].map(|value| keys.insert(value));
        let mut addresses = Addresses::new(2);
        addresses.opened(first, address("192.0.2.1"));
        addresses.opened(second, address("::ffff:192.0.2.1"));
        addresses.opened(other, address("192.0.2.2"));
        assert!(!addresses.has_room(address("192.0.2.1")), "a mapped address is the same client");
        assert!(addresses.has_room(address("192.0.2.2")));
        addresses.closed(unknown);
        addresses.closed(first);
        addresses.closed(first);
        assert!(addresses.has_room(address("192.0.2.1")));
        addresses.closed(second);
        addresses.closed(other);
        assert!(addresses.counts.is_empty() && addresses.holders.is_empty(), "{addresses:?}");
    }

    #[test]
    fn an_ipv6_customer_is_one_client() {
        let mut keys = Table::default();
        let mut addresses = Addresses::new(1);
        addresses.opened(keys.insert(()), address("2001:db8:0:1::1"));
        assert!(!addresses.has_room(address("2001:db8:0:1:ffff::2")));
        assert!(addresses.has_room(address("2001:db8:0:2::1")));
    }
}
