//! A driver and the peers it talks to, alike for real sockets and the simulated network: a test says what happens,
//! [`World::until`] lets time go on until it has happened.

use super::super::*;
use crate::clock::Clock;
use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    time::Instant,
};

pub(super) struct World {
    pub(super) name: String,
    pub(super) driver: Driver,
    pub(super) net: Option<(SimNet, Clock)>,
    pub(super) wake: Arc<WakeFd>,
    /// Keeps received buffers instead of giving them back at once.
    pub(super) keep_leases: bool,
    pub(super) leases: Vec<crate::buffers::Lease>,
    ops: HashMap<Key, Record>,
    peers: Vec<Option<Peer>>,
    /// The accounts before the script.
    pub(super) baseline: DriverAccount,
}

/// What an operation has brought so far.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) data: Vec<u8>,
    pub(super) accepted: Vec<Descriptor>,
    pub(super) terminal: Option<Outcome>,
}

enum Peer {
    Real { stream: TcpStream, unsent: Vec<u8>, received: Vec<u8>, end: Option<End>, reads: bool },
    Sim(SimClient),
}

/// Name of a peer in the world.
pub(super) type PeerId = usize;

pub(super) const LOCALHOST: &str = "127.0.0.1:0";
/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(10);
const BUFFER_BYTES: usize = 4096;

pub(super) fn options(buffers: usize) -> DriverOptions {
    DriverOptions {
        submission_entries: 64,
        completion_entries: 1024,
        buffers,
        buffer_bytes: BUFFER_BYTES,
        multishot_receive: true,
    }
}

/// Faults that delay and cut but lose nothing: the contract holds under all of them.
pub(super) fn harmless_faults() -> SimFaults {
    SimFaults {
        short_send: 0.3,
        late_completion: 0.3,
        late_cancel: 0.3,
        out_of_buffers: 0.2,
        duplicate_completion: 0.2,
        reorder: 0.3,
        ..SimFaults::default()
    }
}

/// Runs a script against every driver that works here, and checks that nothing is left over.
pub(super) fn for_each_driver(buffers: usize, script: impl Fn(&mut World)) {
    for kind in [DriverKind::Epoll, DriverKind::Uring] {
        if let Some(mut world) = World::real(kind, buffers) {
            script(&mut world);
            world.assert_balanced();
        }
    }
    for seed in 0..6 {
        let faults = if seed == 0 { SimFaults::default() } else { harmless_faults() };
        let mut world = World::sim(seed, buffers, faults);
        script(&mut world);
        world.assert_balanced();
    }
}

impl World {
    pub(super) fn real(kind: DriverKind, buffers: usize) -> Option<World> {
        if kind == DriverKind::Uring && !uring_works() {
            return None;
        }
        let wake = Arc::new(WakeFd::new().unwrap());
        let driver = Driver::new(kind, &options(buffers), wake.clone()).unwrap();
        Some(World::new(format!("{kind:?}"), driver, None, wake))
    }

    pub(super) fn sim(seed: u64, buffers: usize, faults: SimFaults) -> World {
        let clock = Clock::simulated();
        let net = SimNet::new(seed, clock.clone(), faults);
        let driver = Driver::Sim(Box::new(SimDriver::new(&net, &options(buffers))));
        let wake = Arc::new(WakeFd::new().unwrap());
        World::new(format!("sim, seed {seed}"), driver, Some((net, clock)), wake)
    }

    fn new(name: String, mut driver: Driver, net: Option<(SimNet, Clock)>, wake: Arc<WakeFd>) -> World {
        driver.turn(Wait::No).unwrap();
        let baseline = driver.account();
        World {
            name,
            driver,
            net,
            wake,
            keep_leases: false,
            leases: Vec::new(),
            ops: HashMap::new(),
            peers: Vec::new(),
            baseline,
        }
    }

    pub(super) fn listen(&mut self) -> (Descriptor, u16) {
        let at = Address::Tcp(LOCALHOST.parse().unwrap());
        let options = ListenOptions { backlog: 256, reuse_port: false };
        let (fd, real) = self.driver.listen(&at, options).unwrap();
        let Address::Tcp(real) = real else { panic!("a TCP address") };
        (fd, real.port())
    }

    /// Rule 1 is checked with every operation of every test.
    pub(super) fn submit(&mut self, op: Op) -> Key {
        let key = self.driver.submit(op, Owner::Waiter(Key { slot: 7, generation: 7 }));
        assert!(self.driver.next().is_none(), "{}: submit must not complete inside the call", self.name);
        let old = self.ops.insert(key, Record::default());
        assert!(old.is_none(), "{}: a key came twice", self.name);
        key
    }

    pub(super) fn receive(&mut self, socket: Descriptor) -> Key {
        self.submit(Op::Receive { socket })
    }

    pub(super) fn send(&mut self, socket: Descriptor, bytes: &[u8]) -> Key {
        let buffer = SendBuffer::new(SendParts::Vec(bytes.to_vec()));
        self.submit(Op::Send { socket, buffer })
    }

    /// Sends until everything is sent.
    pub(super) fn send_all(&mut self, socket: Descriptor, parts: SendParts) {
        let mut buffer = SendBuffer::new(parts);
        while buffer.remaining() > 0 {
            let before = buffer.sent;
            let key = self.submit(Op::Send { socket, buffer });
            let Outcome::Sent { result, buffer: back } = self.wait(key) else { panic!("a send's outcome") };
            assert_eq!(result.unwrap(), back.sent - before, "{}", self.name);
            buffer = back;
        }
    }

    pub(super) fn record(&self, key: Key) -> &Record {
        &self.ops[&key]
    }

    pub(super) fn is_over(&self, key: Key) -> bool {
        self.ops[&key].terminal.is_some()
    }

    /// Waits for the terminal completion.
    pub(super) fn wait(&mut self, key: Key) -> Outcome {
        self.until("a terminal completion", |world| world.is_over(key));
        self.ops.get_mut(&key).and_then(|record| record.terminal.take()).unwrap()
    }

    /// Cancels, and waits for the end.
    pub(super) fn cancel(&mut self, key: Key) -> Outcome {
        self.driver.cancel(key);
        self.wait(key)
    }

    /// Lets time go on until the condition holds.
    pub(super) fn until(&mut self, what: &str, condition: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(
                Instant::now() < deadline,
                "{}: waited in vain for {what}: {:?}",
                self.name,
                self.driver.account()
            );
            self.step();
        }
    }

    pub(super) fn steps_unless_over(&mut self, steps: usize, key: Key) {
        for _ in 0..steps {
            if self.is_over(key) {
                return;
            }
            self.step();
        }
    }

    /// One turn, and a little time if there was nothing to do.
    pub(super) fn step(&mut self) {
        let wait = if self.driver.has_work() { Wait::No } else { Wait::AtMost(Duration::from_millis(1)) };
        if let (Some((net, clock)), false) = (&self.net, self.driver.has_work())
            && let Some(at) = net.next_event()
        {
            clock.advance(at.saturating_sub(clock.now()));
        }
        self.driver.turn(wait).unwrap();
        while let Some(completion) = self.driver.next() {
            self.take(completion);
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.pump();
        }
    }

    fn take(&mut self, completion: Completion) {
        let record = self.ops.get_mut(&completion.key).expect("only what was submitted completes");
        assert!(record.terminal.is_none(), "{}: nothing comes after the terminal completion", self.name);
        match completion.outcome {
            Outcome::Received(lease) => {
                assert!(!lease.is_empty(), "{}: received bytes are never empty", self.name);
                record.data.extend_from_slice(&lease);
                if self.keep_leases {
                    self.leases.push(lease);
                }
                assert!(completion.more, "{}: data does not end a receive", self.name);
            }
            Outcome::Accepted(fd) => {
                record.accepted.push(fd);
                assert!(completion.more, "{}: a connection does not end an accept", self.name);
            }
            outcome => {
                assert!(!completion.more, "{}: {outcome:?} is terminal", self.name);
                record.terminal = Some(outcome);
            }
        }
    }

    pub(super) fn connect(&mut self, port: u16) -> PeerId {
        let peer = match &self.net {
            Some((net, _)) => Peer::Sim(net.connect(port)),
            None => {
                let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                stream.set_nonblocking(true).unwrap();
                Peer::Real { stream, unsent: Vec::new(), received: Vec::new(), end: None, reads: true }
            }
        };
        self.peers.push(Some(peer));
        self.peers.len() - 1
    }

    /// A connection, both ends of it.
    pub(super) fn pair(&mut self) -> (PeerId, Descriptor) {
        let (listener, port) = self.listen();
        let (peer, fd) = self.pair_at(listener, port);
        self.driver.close(listener);
        (peer, fd)
    }

    pub(super) fn pair_at(&mut self, listener: Descriptor, port: u16) -> (PeerId, Descriptor) {
        let accept = self.submit(Op::Accept { listener });
        let peer = self.connect(port);
        self.until("an accepted connection", |world| !world.record(accept).accepted.is_empty());
        let fd = self.ops[&accept].accepted[0];
        self.cancel(accept);
        (peer, fd)
    }

    pub(super) fn write(&mut self, peer: PeerId, bytes: &[u8]) {
        match self.peer(peer) {
            Peer::Sim(client) => client.write(bytes),
            Peer::Real { unsent, .. } => unsent.extend_from_slice(bytes),
        }
        self.peer(peer).pump();
    }

    pub(super) fn received(&self, peer: PeerId) -> Vec<u8> {
        match self.peers[peer].as_ref().unwrap() {
            Peer::Sim(client) => client.received(),
            Peer::Real { received, .. } => received.clone(),
        }
    }

    pub(super) fn end(&self, peer: PeerId) -> Option<End> {
        match self.peers[peer].as_ref().unwrap() {
            Peer::Sim(client) => client.end(),
            Peer::Real { end, .. } => *end,
        }
    }

    /// FIN, after everything that was written.
    pub(super) fn finish(&mut self, peer: PeerId) {
        self.until("the peer's bytes to leave", |world| match world.peers[peer].as_ref().unwrap() {
            Peer::Real { unsent, .. } => unsent.is_empty(),
            Peer::Sim(_) => true,
        });
        match self.peer(peer) {
            Peer::Sim(client) => client.finish(),
            Peer::Real { stream, .. } => stream.shutdown(std::net::Shutdown::Write).unwrap(),
        }
    }

    /// RST.
    pub(super) fn reset(&mut self, peer: PeerId) {
        match self.peers[peer].take().unwrap() {
            Peer::Sim(client) => client.reset(),
            Peer::Real { stream, .. } => {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
    }

    pub(super) fn set_reads(&mut self, peer: PeerId, on: bool) {
        match self.peer(peer) {
            Peer::Sim(client) => client.set_receive_window(if on { usize::MAX } else { 0 }),
            Peer::Real { stream, reads, .. } => {
                // A small buffer of fixed size: a reader that stands still fills it soon.
                socket2::SockRef::from(&*stream).set_recv_buffer_size(16 * 1024).unwrap();
                *reads = on;
            }
        }
    }

    pub(super) fn drop_peer(&mut self, peer: PeerId) {
        self.peers[peer] = None;
    }

    fn peer(&mut self, peer: PeerId) -> &mut Peer {
        self.peers[peer].as_mut().unwrap()
    }

    /// Rule of every test: what was taken is given back.
    pub(super) fn assert_balanced(mut self) {
        self.leases.clear();
        let baseline = self.baseline;
        self.until("the accounts to balance", |world| {
            let account = world.driver.account();
            account.in_flight == baseline.in_flight
                && account.descriptors == baseline.descriptors
                && account.buffers.leased == 0
                && account.buffers.loaned == baseline.buffers.loaned
        });
        self.peers.clear();
        assert_eq!(self.driver.stop(Duration::from_secs(5)), 0, "{}", self.name);
        if let Some((net, _)) = self.net {
            assert_eq!(net.open_sockets(), 0, "{}", self.name);
        }
    }
}

impl Peer {
    fn pump(&mut self) {
        let Peer::Real { stream, unsent, received, end, reads } = self else { return };
        while !unsent.is_empty() {
            match stream.write(unsent) {
                Ok(count) => drop(unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => unsent.clear(),
            }
        }
        let mut buffer = [0; 8192];
        while *reads && end.is_none() {
            match stream.read(&mut buffer) {
                Ok(0) => *end = Some(End::Fin),
                Ok(count) => received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => *end = Some(End::Rst),
            }
        }
    }
}

/// Whether this machine lets us use io_uring.
fn uring_works() -> bool {
    io_uring::IoUring::new(4).is_ok()
}

/// The errno of a failed outcome.
pub(super) fn errno(outcome: &Outcome) -> Option<i32> {
    match outcome {
        Outcome::Failed(error) | Outcome::Connected(Err(error)) => error.raw_os_error(),
        Outcome::Sent { result: Err(error), .. } | Outcome::Read { result: Err(error), .. } => {
            error.raw_os_error()
        }
        _ => None,
    }
}

/// Bytes whose every place can be told from its neighbours.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}
