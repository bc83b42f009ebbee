//! The HTTP service of one shard: its connections, its exchanges, its routes; and the glue to the runtime's events.

use super::{AccessSink, Closing, Connection, addresses::Addresses, counters::ConnectionCounters};
use crate::{
    error::EndReason,
    exchange::{
        Exchanges, ShardPost, TableOptions, WaterMarks, Workers,
        seam::{Loan, Raised},
    },
    http1::{HeadTemplate, Reject},
    limits::Limits,
    routing::Router,
};
use shards::{
    Key, Lease, Shard, Table, TimerEvents,
    net::{ReceiveEnd, Sent, Socket, SocketEvents},
};
use std::{
    cell::{Cell, RefCell},
    fmt,
    net::SocketAddr,
    rc::{Rc, Weak},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What a service is made with.
pub(crate) struct ServiceOptions {
    pub(crate) limits: Limits,
    pub(crate) router: Router,
    /// Value of the Server field; empty sends none.
    pub(crate) server_name: String,
    /// Field lines in every answer of this shard, such as `X-Shard`.
    pub(crate) common_fields: Vec<(&'static str, String)>,
    pub(crate) workers: Option<Arc<dyn Workers>>,
    /// Connections this shard may have.
    pub(crate) connections_max: usize,
    /// Connections that one client address may have on this shard.
    pub(crate) connections_per_address_max: Option<u32>,
    /// Who is told of every answer.
    pub(crate) access_log: Option<AccessSink>,
}

/// The HTTP service of one shard.
pub(crate) struct Service {
    this: Weak<Service>,
    pub(super) shard: Shard,
    pub(super) limits: Limits,
    pub(super) router: Router,
    pub(crate) exchanges: Rc<Exchanges>,
    pub(super) connections: RefCell<Table<ConnectionPlace>>,
    pub(super) template: RefCell<HeadTemplate>,
    /// When the template's date must be renewed, on the shard's clock.
    date_due: Cell<Duration>,
    /// The head in hand: there is one at a time, and its index is used again and again.
    pub(super) loan: Cell<Option<Box<Loan>>>,
    /// Buffers that were sent, for the next answers.
    pub(super) buffers: RefCell<Vec<Vec<u8>>>,
    pub(crate) counters: ConnectionCounters,
    pub(super) connections_max: usize,
    pub(super) addresses: Option<RefCell<Addresses>>,
    pub(super) draining: Cell<bool>,
    /// Ready exchanges are being driven further up the stack.
    driving: Cell<bool>,
    pub(super) access_log: Option<AccessSink>,
}

/// A connection in the table.
pub(super) struct ConnectionPlace {
    /// Its socket, for questions while something happens to the connection.
    pub(super) socket: Key,
    /// `None` while something happens to it.
    pub(super) connection: Option<Box<Connection>>,
}

/// A connection while something happens to it. A panic leaves it in here: it is not lost with its place taken.
struct Taken<'a> {
    service: &'a Service,
    connection: Option<Box<Connection>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        connection.closing = Closing::Reset;
        self.service.set_connection_timer(self.service.now(), connection.key);
        self.service.put_back(connection);
    }
}

/// A connection that ends: its place is free behind this, also if what is told of the end panics.
struct Gone<'a> {
    service: &'a Service,
    key: Key,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.service.connections.borrow_mut().remove(self.key);
        if let Some(addresses) = &self.service.addresses {
            addresses.borrow_mut().closed(self.key);
        }
        self.service.counters.closed();
    }
}

/// Marks a timer token as an exchange's; the keys leave these bits free.
const EXCHANGE_TOKEN: u64 = 1 << 63;

impl Service {
    pub(crate) fn new(shard: &Shard, options: ServiceOptions) -> Rc<Self> {
        Rc::new_cyclic(|this: &Weak<Service>| {
            let on_ready = this.clone();
            let exchanges = Exchanges::new(TableOptions {
                shard: shard.id().index() as u32,
                post: Arc::new(ShardPost::new(shard.handle())),
                workers: options.workers,
                tasks_max: options.limits.exchange_tasks_max,
                sleeps_max: options.limits.exchange_sleeps_max,
                marks: WaterMarks {
                    high: options.limits.exchange_output_high_water_bytes,
                    low: options.limits.exchange_output_low_water_bytes,
                    limit: options.limits.exchange_output_bytes_max,
                },
                input_window: options.limits.exchange_input_window_bytes,
                unacknowledged: {
                    let service = this.clone();
                    Box::new(move |owner| service.upgrade()?.unacknowledged(Key::from_u64(owner)))
                },
                peer: {
                    let service = this.clone();
                    Box::new(move |owner| service.upgrade()?.peer(Key::from_u64(owner)))
                },
                on_ready: Box::new(move |_| {
                    if let Some(service) = on_ready.upgrade() {
                        service.drive_ready();
                    }
                }),
                name_callback: {
                    let shard = shard.clone();
                    Box::new(move |name| shard.name_callback(name))
                },
            });
            let mut template = HeadTemplate::new(&options.server_name, 0);
            for (name, value) in &options.common_fields {
                template.add_common_field(name, value);
            }
            Service {
                this: this.clone(),
                shard: shard.clone(),
                limits: options.limits,
                router: options.router,
                exchanges,
                connections: RefCell::default(),
                template: RefCell::new(template),
                date_due: Cell::new(Duration::ZERO),
                loan: Cell::default(),
                buffers: RefCell::default(),
                counters: ConnectionCounters::default(),
                connections_max: options.connections_max,
                addresses: options.connections_per_address_max.map(|max| RefCell::new(Addresses::new(max))),
                draining: Cell::new(false),
                driving: Cell::new(false),
                access_log: options.access_log,
            }
        })
    }

    #[inline]
    pub(super) fn now(&self) -> Duration {
        self.shard.now()
    }

    /// Tells the time to everybody who needs it. Called at the start of every event.
    #[inline]
    fn tick(&self) {
        let now = self.now();
        self.exchanges.set_now(now);
        if now >= self.date_due.get() {
            self.renew_date(now);
        }
    }

    #[cold]
    fn renew_date(&self, now: Duration) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.template.borrow_mut().refresh(wall.as_secs());
        let left = 1_000_000_000 - u64::from(wall.subsec_nanos());
        self.date_due.set(now + Duration::from_nanos(left));
    }

    pub(super) fn rc(&self) -> Rc<Service> {
        self.this.upgrade().expect("a service runs while somebody holds it")
    }

    /// Takes the connection out, lets `event` happen to it, and does what is due after every event. If that panics
    /// the connection goes back into its place, and is reset by its timer as soon as the shard comes to it.
    #[inline]
    pub(super) fn with(&self, key: Key, event: impl FnOnce(&Self, &mut Connection)) {
        let taken = self.connections.borrow_mut().get_mut(key).and_then(|place| place.connection.take());
        let Some(connection) = taken else { return };
        let mut taken = Taken { service: self, connection: Some(connection) };
        let Some(connection) = &mut taken.connection else { return };
        self.tick();
        if connection.closing == Closing::No {
            event(self, connection);
            self.after_event(connection);
        }
        let Some(connection) = taken.connection.take() else { return };
        match connection.closing {
            Closing::No => self.put_back(connection),
            how => self.close(connection, how),
        }
        self.drive_ready();
    }

    #[inline]
    fn put_back(&self, connection: Box<Connection>) {
        if let Some(place) = self.connections.borrow_mut().get_mut(connection.key) {
            place.connection = Some(connection);
        }
    }

    fn after_event(&self, connection: &mut Connection) {
        self.advance(connection);
        if connection.closing == Closing::No {
            self.renew_deadline(connection);
        }
    }

    fn close(&self, mut connection: Box<Connection>, how: Closing) {
        let gone = Gone { service: self, key: connection.key };
        self.log_cut(&mut connection);
        self.end_exchanges(&mut connection, EndReason::ClientReset);
        self.drop_timer(&connection);
        drop(gone);
        if how == Closing::Reset {
            connection.socket.reset_on_close();
        }
    }

    /// Drives what has become ready outside of its connection's events. Each of them is an event of its
    /// connection, behind which this is called again: the flag makes a loop of what would be a recursion as deep as
    /// many exchanges are ready.
    fn drive_ready(&self) {
        let Some(_driving) = Raised::raise(&self.driving) else { return };
        while let Some((exchange, owner)) = self.exchanges.next_ready() {
            self.with(Key::from_u64(owner), |service, connection| service.drive(connection, exchange));
        }
    }

    pub(super) fn set_connection_timer(&self, at: Duration, connection: Key) -> Key {
        self.shard.set_timer(at, self.rc(), connection.to_u64())
    }

    pub(super) fn set_exchange_timer(&self, at: Duration, exchange: Key) -> Key {
        self.shard.set_timer(at, self.rc(), exchange.to_u64() | EXCHANGE_TOKEN)
    }

    pub(super) fn count_reject(&self, reject: Reject) {
        self.counters.rejected(reject);
        tracing::debug!(shard = %self.shard.id(), reason = reject.label(), "request refused: {reject}");
    }

    pub(super) fn count_cut(&self, reason: &'static str) {
        self.counters.cut(reason);
        tracing::debug!(shard = %self.shard.id(), reason, "connection cut");
    }

    /// What the peer of a connection has not acknowledged.
    fn unacknowledged(&self, connection: Key) -> Option<u64> {
        let socket = self.connections.borrow().get(connection)?.socket;
        Socket::unacknowledged_of(&self.shard, socket).ok()
    }

    /// The address of a connection's peer.
    fn peer(&self, connection: Key) -> Option<SocketAddr> {
        let socket = self.connections.borrow().get(connection)?.socket;
        Socket::peer_of(&self.shard, socket)
    }

    /// Live connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.borrow().len()
    }

    /// Exchanges that wait, by route. The connection in hand is not counted.
    pub(crate) fn parked_by_route(&self) -> Vec<(String, u64)> {
        let mut parked: Vec<(String, u64)> = Vec::new();
        let connections = self.connections.borrow();
        for (_, place) in connections.iter() {
            let entries = place.connection.iter().flat_map(|connection| connection.pipeline.iter());
            for entry in entries.filter(|entry| self.exchanges.is_parked(entry.exchange)) {
                let pattern = entry.target.route().map_or("", |route| route.pattern());
                match parked.iter_mut().find(|(known, _)| known == pattern) {
                    Some((_, count)) => *count += 1,
                    None => parked.push((pattern.to_owned(), 1)),
                }
            }
        }
        parked
    }

    /// Content that has left the exchanges and that the kernel has not taken. The connection in hand is not counted.
    pub(crate) fn unsent_bytes(&self) -> u64 {
        let connections = self.connections.borrow();
        let held = connections.iter().flat_map(|(_, place)| place.connection.iter());
        held.flat_map(|connection| connection.pipeline.iter()).map(|entry| entry.unsent + entry.leaving).sum()
    }

    /// Nothing new is begun from now on; [`Service::drain`] tells each connection.
    pub(crate) fn begin_drain(&self) {
        self.draining.set(true);
    }

    /// An idle connection closes, a busy one ends with its answers, a new one with the answer to its request.
    pub(crate) fn drain(&self, connection: Key) {
        self.with(connection, |service, connection| {
            let unsent = !connection.pipeline.is_empty() || connection.output.is_sending();
            let actions = connection.cycle.begin_shutdown(unsent);
            Service::hasten_head(connection);
            service.perform(connection, actions);
        });
    }

    /// What still runs on a connection is told that it must end, with this reason. One on which nothing runs closes.
    pub(crate) fn force(&self, connection: Key, reason: EndReason) {
        self.with(connection, |service, connection| {
            if connection.cycle.in_flight() == 0 && !connection.output.is_sending() {
                let actions = connection.cycle.idle_expired();
                service.perform(connection, actions);
            }
            for exchange in connection.pipeline.live() {
                service.exchanges.shutdown_forced(exchange, reason);
                service.drive(connection, exchange);
            }
        });
    }

    /// The end of a connection.
    pub(crate) fn cut(&self, connection: Key) {
        self.with(connection, |_, connection| connection.closing = Closing::Reset);
    }

    /// The connections as they are now.
    pub(crate) fn connection_keys(&self) -> Vec<Key> {
        self.connections.borrow().keys()
    }
}

impl SocketEvents for Service {
    fn on_received(&self, _shard: &Shard, token: u64, bytes: Lease) {
        self.with(Key::from_u64(token), |service, connection| service.received(connection, bytes));
    }

    fn on_receive_end(&self, _shard: &Shard, token: u64, end: ReceiveEnd) {
        self.with(Key::from_u64(token), |service, connection| service.receive_ended(connection, &end));
    }

    fn on_sent(&self, _shard: &Shard, token: u64, sent: Sent) {
        self.with(Key::from_u64(token), |service, connection| service.sent(connection, sent));
    }
}

impl TimerEvents for Service {
    fn on_timer(&self, _shard: &Shard, token: u64) {
        if token & EXCHANGE_TOKEN == 0 {
            return self.with(Key::from_u64(token), |service, connection| service.on_deadline(connection));
        }
        let exchange = Key::from_u64(token & !EXCHANGE_TOKEN);
        self.tick();
        let Some(owner) = self.exchanges.owner(exchange) else { return };
        self.with(Key::from_u64(owner), |service, connection| {
            if let Some(entry) = connection.pipeline.find(exchange) {
                entry.set_timer(None);
            }
            service.exchanges.timer_fired(exchange);
            service.drive(connection, exchange);
        });
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({} connections on {:?})", self.connection_count(), self.shard)
    }
}
