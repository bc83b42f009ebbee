//! What the runtime costs a request when nothing is parsed: a server of the event face that answers every receive with
//! the same bytes, as the floors in `benches/peers` do.
//!
//! `cargo bench -p shards --bench echo_cost` measures both drivers: processor time of the shard's thread (the kernel's
//! part included) per request, with blocking clients on threads of their own. `-- ADDRESS uring|epoll` serves there
//! until it is ended, for a load generator.

use bytes::Bytes;
use shards::{
    DriverChoice, Key, Lease, Shard, Shards, Table,
    net::{
        AcceptEvents, AcceptMode, Binding, Outgoing, ReceiveEnd, Sent, Socket, SocketAddress, SocketEvents,
    },
};
use std::{
    cell::{Cell, RefCell},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nServer: raw\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
const CLIENTS: usize = 32;
const MEASURED: Duration = Duration::from_secs(1);

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if let [address, driver] = &arguments[..] {
        let driver = if driver == "epoll" { DriverChoice::Epoll } else { DriverChoice::Uring };
        let address = address.parse::<SocketAddr>().expect("an address and a port");
        let shards = start(driver, bind(address)).expect("started");
        shards.join();
        return;
    }
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        measure(driver);
    }
}

fn start(driver: DriverChoice, binding: Binding) -> shards::Result<Shards<()>> {
    Shards::builder().shards(1).driver(driver).start(move |shard| {
        let binding = binding.clone();
        async move {
            let listener = binding.listen(&shard, shard.local(Server::default)).expect("the first listener");
            shard.stopped().await;
            drop(listener);
            let sockets = shard.local(Server::default).sockets.take();
            drop(sockets);
        }
    })
}

fn bind(address: SocketAddr) -> Binding {
    Binding::bind(&SocketAddress::from(address), 1, AcceptMode::ReusePort, 1024).expect("bound")
}

fn measure(driver: DriverChoice) {
    let binding = bind(SocketAddr::from(([127, 0, 0, 1], 0)));
    let address = binding.address().tcp().expect("a TCP address");
    let shards = match start(driver, binding) {
        Ok(shards) => shards,
        Err(error) => return println!("{driver:?}: left out: {error}"),
    };
    let handle = shards.handles()[0].clone();
    let look = || {
        let look = handle.submit_to(|shard| (shard.local(Server::default).answered.get(), thread_time()));
        look.wait().expect("the shard lives")
    };
    let until = Instant::now() + MEASURED;
    let (before, began) = look();
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || ask(address, until))).collect();
    clients.into_iter().for_each(|client| client.join().expect("answered"));
    let (after, ended) = look();
    let each = (ended - began).as_secs_f64() * 1e6 / (after - before) as f64;
    println!("{driver:?}: {each:.2} us of the shard's core per request, {} requests", after - before);
    shards.stop();
    shards.join();
}

fn ask(address: SocketAddr, until: Instant) {
    let mut stream = TcpStream::connect(address).expect("connected");
    let mut answer = [0; ANSWER.len()];
    while Instant::now() < until {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        stream.read_exact(&mut answer).expect("answered");
    }
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// All connections of the shard; the token of a socket is its key here.
#[derive(Default)]
struct Server {
    sockets: RefCell<Table<Socket>>,
    answered: Cell<u64>,
}

impl AcceptEvents for Server {
    fn on_accepted(&self, shard: &Shard, socket: Socket) {
        let key = self.sockets.borrow_mut().insert(socket);
        let sockets = self.sockets.borrow();
        let socket = sockets.get(key).expect("just put in");
        socket.listen_to(shard.local(Server::default), key.to_u64());
        socket.start_receiving();
    }
}

impl SocketEvents for Server {
    fn on_received(&self, _: &Shard, token: u64, _: Lease) {
        self.answered.set(self.answered.get() + 1);
        if let Some(socket) = self.sockets.borrow().get(Key::from_u64(token)) {
            socket.send(Outgoing::Bytes(Bytes::from_static(ANSWER)));
        }
    }

    fn on_receive_end(&self, _: &Shard, token: u64, _: ReceiveEnd) {
        let socket = self.sockets.borrow_mut().remove(Key::from_u64(token));
        drop(socket);
    }

    fn on_sent(&self, _: &Shard, _: u64, _: Sent) {}
}
