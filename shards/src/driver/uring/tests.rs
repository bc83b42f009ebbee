//! What only this driver has: single-shot fallbacks, races of a cancel, teardown with the kernel at work; and in
//! `ends.rs` peers that leave, in `pressure.rs` rings that overflow and buffers that run out. The contract itself is tested for all drivers in `contract_tests.rs`.

mod ends;
mod pressure;

use super::*;
use crate::driver::{Outcome, SendBuffer, Vectored, slots::Kind};
use std::{
    collections::HashMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    thread,
    time::Instant,
};

const OPTIONS: DriverOptions = DriverOptions {
    submission_entries: 64,
    completion_entries: 256,
    buffers: 16,
    buffer_bytes: 4096,
    multishot_receive: true,
};

const LONG: Duration = Duration::from_secs(10);
const LISTEN: ListenOptions = ListenOptions { backlog: 4096, reuse_port: false };

fn driver(options: &DriverOptions) -> Box<UringDriver> {
    let pool = Pool::new(options.buffer_bytes, options.buffers);
    Box::new(UringDriver::new(options, pool, Arc::new(WakeFd::new().unwrap())).unwrap())
}

/// Both ways to receive.
fn both_modes(test: impl Fn(DriverOptions)) {
    for multishot_receive in [true, false] {
        test(DriverOptions { multishot_receive, ..OPTIONS });
    }
}

fn owner() -> Owner {
    Owner::Waiter(Key::NONE)
}

/// Turns until there is a completion.
fn completion(driver: &mut UringDriver) -> Completion {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(completion) = driver.next() {
            return completion;
        }
        assert!(Instant::now() < deadline, "no completion: {driver:?}");
        driver.turn(Wait::AtMost(Duration::from_millis(200))).unwrap();
    }
}

/// Turns until `done`; nothing may complete meanwhile.
fn quiet_until(driver: &mut UringDriver, mut done: impl FnMut(&mut UringDriver) -> bool) {
    let deadline = Instant::now() + LONG;
    while !done(driver) {
        assert!(Instant::now() < deadline, "the condition did not come true: {driver:?}");
        driver.turn(Wait::AtMost(Duration::from_millis(5))).unwrap();
        if let Some(completion) = driver.next() {
            panic!("unexpected: {completion:?}");
        }
    }
}

fn pair(driver: &mut UringDriver) -> (UnixStream, Descriptor) {
    let (peer, ours) = UnixStream::pair().unwrap();
    peer.set_read_timeout(Some(LONG)).unwrap();
    (peer, driver.adopt(ours.into()))
}

fn assert_cancelled(outcome: &Outcome) {
    assert!(
        matches!(outcome, Outcome::Failed(error) if error.raw_os_error() == Some(libc::ECANCELED)),
        "{outcome:?}"
    );
}

/// The end of every test: nothing in flight, no descriptor, every buffer accounted for.
fn finish(driver: Box<UringDriver>) {
    let account = driver.account();
    assert_eq!((account.in_flight, account.descriptors, account.stale_completions), (0, 0, 0), "{account:?}");
    assert_eq!(account.buffers.leased, 0, "{account:?}");
    let pool = driver.pool.clone();
    assert_eq!(driver.stop(LONG), 0);
    assert_eq!(pool.account().loaned, 0);
}

/// An echo server on the seam: at most one send a stream, short sends continued.
#[derive(Default)]
struct Echo {
    listener: Option<(Key, Descriptor)>,
    streams: HashMap<Key, Descriptor>,
    waiting: HashMap<Descriptor, Vec<u8>>,
    sending: HashMap<Descriptor, bool>,
    ended: usize,
    failed: Vec<io::Error>,
}

impl Echo {
    fn listen(driver: &mut UringDriver) -> (Echo, SocketAddr) {
        let at = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (listener, real) = driver.listen(&at, LISTEN).unwrap();
        let key = driver.submit(Op::Accept { listener }, owner());
        let Address::Tcp(address) = real else { panic!("a TCP address") };
        (Echo { listener: Some((key, listener)), ..Echo::default() }, address)
    }

    fn serve(&mut self, driver: &mut UringDriver, socket: Descriptor) {
        let key = driver.submit(Op::Receive { socket }, owner());
        self.streams.insert(key, socket);
        self.sending.insert(socket, false);
    }

    fn step(&mut self, driver: &mut UringDriver, wait: Duration) {
        driver.turn(if driver.has_work() { Wait::No } else { Wait::AtMost(wait) }).unwrap();
        while let Some(completion) = driver.next() {
            self.take(driver, completion);
        }
    }

    fn take(&mut self, driver: &mut UringDriver, completion: Completion) {
        match completion.outcome {
            Outcome::Accepted(socket) => self.serve(driver, socket),
            Outcome::Received(lease) => {
                let socket = self.streams[&completion.key];
                self.waiting.entry(socket).or_default().extend_from_slice(&lease);
                self.flush(driver, socket);
            }
            Outcome::Sent { result, buffer } => {
                let Owner::Sender(Key { slot, .. }) = completion.owner else { panic!("a sender") };
                let socket = Descriptor(slot as i32);
                self.sending.insert(socket, false);
                if result.is_ok() && buffer.remaining() > 0 {
                    self.send(driver, socket, buffer);
                } else {
                    self.flush(driver, socket);
                }
                self.close_if_done(driver, socket);
            }
            Outcome::EndOfStream | Outcome::Failed(_) => {
                if let Outcome::Failed(error) = completion.outcome {
                    self.failed.push(error);
                }
                match self.streams.remove(&completion.key) {
                    Some(socket) => {
                        self.ended += 1;
                        self.close_if_done(driver, socket);
                    }
                    None => driver.close(self.listener.take().unwrap().1),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn flush(&mut self, driver: &mut UringDriver, socket: Descriptor) {
        if !self.sending[&socket]
            && let Some(bytes) = self.waiting.remove(&socket)
        {
            self.send(driver, socket, SendBuffer::new(SendParts::Vec(bytes)));
        }
    }

    fn send(&mut self, driver: &mut UringDriver, socket: Descriptor, buffer: SendBuffer) {
        self.sending.insert(socket, true);
        driver
            .submit(Op::Send { socket, buffer }, Owner::Sender(Key { slot: socket.0 as u32, generation: 0 }));
    }

    fn close_if_done(&mut self, driver: &mut UringDriver, socket: Descriptor) {
        let receiving = self.streams.values().any(|open| *open == socket);
        if !receiving && !self.sending[&socket] {
            self.sending.remove(&socket);
            driver.close(socket);
        }
    }

    fn run_until(&mut self, driver: &mut UringDriver, mut done: impl FnMut(&Echo) -> bool) {
        let deadline = Instant::now() + LONG;
        while !done(self) {
            assert!(Instant::now() < deadline, "{} streams, {driver:?}", self.streams.len());
            self.step(driver, Duration::from_millis(100));
        }
    }

    fn end(mut self, mut driver: Box<UringDriver>) {
        let (key, _) = self.listener.unwrap();
        driver.cancel(key);
        self.run_until(&mut driver, |echo| echo.listener.is_none() && echo.sending.is_empty());
        finish(driver);
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| ((index * 31 + index / 251 + seed) % 256) as u8).collect()
}

/// Clients in one thread: each connects, all say their line, each reads its line back, all leave.
fn talk(address: SocketAddr, clients: usize, bytes: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut streams: Vec<TcpStream> =
            (0..clients).map(|_| TcpStream::connect(address).unwrap()).collect();
        for (index, stream) in streams.iter_mut().enumerate() {
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(&pattern(bytes, index)).unwrap();
        }
        for (index, stream) in streams.iter_mut().enumerate() {
            let mut back = vec![0; bytes];
            stream.read_exact(&mut back).unwrap();
            assert!(back == pattern(bytes, index), "client {index} has the bytes of another");
        }
    })
}

fn echo_with(options: &DriverOptions, clients: usize, bytes: usize) -> DriverAccount {
    let mut driver = driver(options);
    let (mut echo, address) = Echo::listen(&mut driver);
    let peers = talk(address, clients, bytes);
    echo.run_until(&mut driver, |echo| echo.ended == clients && echo.sending.is_empty());
    peers.join().unwrap();
    let account = driver.account();
    echo.end(driver);
    account
}

#[test]
fn echoes_over_loopback() {
    both_modes(|options| {
        echo_with(&options, 8, 1000);
    });
}

#[test]
fn echoes_more_than_the_sockets_and_buffers_hold() {
    both_modes(|options| {
        let mut driver = driver(&options);
        let (mut echo, address) = Echo::listen(&mut driver);
        let peer = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let mut reader = stream.try_clone().unwrap();
            reader.set_read_timeout(Some(LONG)).unwrap();
            let sender = thread::spawn(move || stream.write_all(&pattern(8 << 20, 3)).unwrap());
            let mut back = vec![0; 8 << 20];
            reader.read_exact(&mut back).unwrap();
            sender.join().unwrap();
            assert!(back == pattern(8 << 20, 3));
        });
        echo.run_until(&mut driver, |echo| echo.ended == 1 && echo.sending.is_empty());
        peer.join().unwrap();
        echo.end(driver);
    });
}

#[test]
fn vectored_sends_arrive_in_order_and_reuse_their_headers() {
    let mut driver = driver(&OPTIONS);
    let (mut peer, socket) = pair(&mut driver);
    for round in 0..3 {
        let rest: Vec<_> =
            (1..super::super::SEND_PARTS_MAX).map(|part| pattern(part, round).into()).collect();
        let parts = Vectored { head: b"head".to_vec(), rest };
        let mut buffer = SendBuffer::new(SendParts::Vectored(Box::new(parts)));
        buffer.sent = 2;
        let expected = buffer.slices().collect::<Vec<_>>().concat();
        driver.submit(Op::Send { socket, buffer }, owner());
        let Outcome::Sent { result, buffer } = completion(&mut driver).outcome else { panic!("a send") };
        assert_eq!((result.unwrap(), buffer.remaining()), (expected.len(), 0));
        let mut arrived = vec![0; expected.len()];
        peer.read_exact(&mut arrived).unwrap();
        assert_eq!(arrived, expected);
        assert_eq!(driver.spare_messages.len(), 1);
    }
    driver.close(socket);
    finish(driver);
}

#[test]
fn connects_and_reads_files() {
    let mut driver = driver(&OPTIONS);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let socket = driver.socket(&address).unwrap();
    driver.submit(Op::Connect { socket, address: address.clone() }, owner());
    assert!(matches!(completion(&mut driver).outcome, Outcome::Connected(Ok(()))));
    driver.close(socket);
    drop(listener);
    let socket = driver.socket(&address).unwrap();
    driver.submit(Op::Connect { socket, address }, owner());
    let Outcome::Connected(Err(refused)) = completion(&mut driver).outcome else { panic!("nobody listens") };
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let too_long = Address::Unix("x".repeat(200).into());
    driver.submit(Op::Connect { socket, address: too_long }, owner());
    assert!(driver.next().is_none(), "submit never completes inside the call");
    assert!(matches!(completion(&mut driver).outcome, Outcome::Connected(Err(_))));
    driver.close(socket);

    let file = driver.adopt(std::fs::File::open("Cargo.toml").unwrap().into());
    let expected = std::fs::read("Cargo.toml").unwrap();
    driver.submit(Op::Read { file, offset: 5, buffer: Vec::new(), len: 20 }, owner());
    let Outcome::Read { result, buffer } = completion(&mut driver).outcome else { panic!("a read") };
    assert_eq!((result.unwrap(), &buffer[..]), (20, &expected[5..25]));
    driver.submit(Op::Read { file, offset: 1 << 30, buffer, len: 20 }, owner());
    let Outcome::Read { result, buffer } = completion(&mut driver).outcome else { panic!("a read") };
    assert_eq!((result.unwrap(), buffer.len()), (0, 0));
    driver.close(file);
    finish(driver);
}

#[test]
fn a_cancel_that_races_with_data_loses_no_byte() {
    both_modes(|options| {
        let mut driver = driver(&options);
        let (mut peer, socket) = pair(&mut driver);
        let writer = thread::spawn(move || {
            for index in 0..3000u32 {
                peer.write_all(&index.to_be_bytes()).unwrap();
            }
            peer
        });
        let (mut arrived, mut cancels) = (Vec::new(), 0);
        while arrived.len() < 12_000 {
            let key = driver.submit(Op::Receive { socket }, owner());
            driver.turn(Wait::No).unwrap();
            driver.cancel(key);
            driver.cancel(key);
            loop {
                let Completion { outcome, more, .. } = completion(&mut driver);
                match outcome {
                    Outcome::Received(lease) => arrived.extend_from_slice(&lease),
                    other => {
                        assert_cancelled(&other);
                        assert!(!more);
                        break;
                    }
                }
            }
            assert!(driver.next().is_none(), "nothing after the terminal completion");
            cancels += 1;
        }
        let expected: Vec<u8> = (0..3000u32).flat_map(u32::to_be_bytes).collect();
        assert!(arrived == expected, "after {cancels} cancels");
        drop(writer.join().unwrap());
        driver.close(socket);
        finish(driver);
    });
}

#[test]
fn a_cancelled_receive_leaves_the_rest_to_the_next_one() {
    both_modes(|options| {
        let mut driver = driver(&options);
        let (mut peer, socket) = pair(&mut driver);
        let key = driver.submit(Op::Receive { socket }, owner());
        driver.turn(Wait::No).unwrap();
        driver.cancel(key);
        assert_cancelled(&completion(&mut driver).outcome);
        driver.cancel(key);
        peer.write_all(b"kept").unwrap();
        driver.submit(Op::Receive { socket }, owner());
        assert!(matches!(completion(&mut driver).outcome, Outcome::Received(lease) if &*lease == b"kept"));
        drop(peer);
        assert!(matches!(completion(&mut driver).outcome, Outcome::EndOfStream));
        driver.close(socket);
        finish(driver);
    });
}

#[test]
fn fault_r3_an_orphaned_accept_closes_what_it_accepts() {
    let mut accepted_late = 0;
    for round in 0..50 {
        let mut driver = driver(&OPTIONS);
        let at = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (listener, real) = driver.listen(&at, LISTEN).unwrap();
        let Address::Tcp(address) = real else { panic!("a TCP address") };
        let key = driver.submit(Op::Accept { listener }, owner());
        driver.turn(Wait::No).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        if round % 2 == 0 {
            driver.turn(Wait::AtMost(LONG)).unwrap();
            accepted_late += driver.batch.len();
        }
        driver.orphan(key);
        quiet_until(&mut driver, |driver| driver.account().in_flight == 0);
        driver.close(listener);
        match client.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the accepted socket is open: {other:?}"),
        }
        finish(driver);
    }
    assert!(accepted_late > 0, "no accept was quicker than its orphan");
}

#[test]
fn fault_r5_an_orphaned_receive_gives_its_buffers_back() {
    both_modes(|options| {
        let mut driver = driver(&options);
        for _ in 0..100 {
            let (mut peer, socket) = pair(&mut driver);
            let key = driver.submit(Op::Receive { socket }, owner());
            driver.turn(Wait::No).unwrap();
            peer.write_all(&pattern(10_000, 0)).unwrap();
            driver.turn(Wait::AtMost(Duration::from_millis(1))).unwrap();
            driver.orphan(key);
            quiet_until(&mut driver, |driver| driver.account().in_flight == 0);
            driver.close(socket);
        }
        finish(driver);
    });
}

#[test]
fn an_armed_receive_ends_by_shutdown_before_the_close() {
    both_modes(|options| {
        let mut driver = driver(&options);
        let (_peer, socket) = pair(&mut driver);
        driver.submit(Op::Receive { socket }, owner());
        driver.turn(Wait::No).unwrap();
        driver.shutdown(socket, Shutdown::Read).unwrap();
        let end = completion(&mut driver);
        assert!(matches!(end.outcome, Outcome::EndOfStream) && !end.more);
        driver.close(socket);
        finish(driver);
    });
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "an operation is in flight on")]
fn a_close_under_an_operation_is_caught() {
    let mut driver = driver(&OPTIONS);
    let (_peer, socket) = pair(&mut driver);
    driver.submit(Op::Receive { socket }, owner());
    driver.close(socket);
}

#[test]
fn a_wake_ends_the_sleep_each_time_and_is_never_shown() {
    let wake = Arc::new(WakeFd::new().unwrap());
    let mut driver = UringDriver::new(&OPTIONS, Pool::new(64, 16), wake.clone()).map(Box::new).unwrap();
    for _ in 0..100 {
        let waker = {
            let wake = wake.clone();
            thread::spawn(move || wake.wake())
        };
        let started = Instant::now();
        driver.turn(Wait::AtMost(LONG)).unwrap();
        assert!(started.elapsed() < LONG / 2, "the wake was lost");
        assert!(driver.next().is_none());
        waker.join().unwrap();
    }
    driver.turn(Wait::AtMost(Duration::from_millis(30))).unwrap();
    finish(driver);
}

#[test]
fn a_shard_that_never_waits_sees_everything() {
    both_modes(|options| {
        let mut driver = driver(&options);
        let (mut peer, socket) = pair(&mut driver);
        driver.submit(Op::Receive { socket }, owner());
        driver.turn(Wait::No).unwrap();
        assert!(!driver.has_work());
        let enters = driver.counts.enters;
        driver.turn(Wait::No).unwrap();
        assert_eq!(driver.counts.enters, enters, "nothing to do, nothing asked");
        peer.write_all(b"now").unwrap();
        assert!(driver.has_work(), "the kernel's deferred work is work");
        driver.turn(Wait::No).unwrap();
        assert!(matches!(driver.next(), Some(Completion { outcome: Outcome::Received(_), more: true, .. })));
        drop(peer);
        assert!(matches!(completion(&mut driver).outcome, Outcome::EndOfStream));
        driver.close(socket);
        finish(driver);
    });
}

#[test]
fn fault_r5_a_buffer_comes_back_whatever_the_completion_says() {
    const BUFFER: u32 = 1;
    let mut driver = driver(&OPTIONS);
    driver.turn(Wait::No).unwrap();
    let ours = driver.account().buffers.loaned;
    let (_peer, socket) = pair(&mut driver);
    let key = driver.submit(Op::Receive { socket }, owner());
    let stale = Key { generation: key.generation + 1, ..key };
    let late = user_data(Kind::Receive, stale);
    assert!(driver.decode((late, 5, BUFFER)).is_none());
    assert_eq!((driver.account().stale_completions, driver.account().buffers.loaned), (1, ours - 1));
    let live = user_data(Kind::Receive, key);
    let failed = driver.decode((live, -libc::ECONNRESET, 1 << 16 | BUFFER)).unwrap();
    assert!(matches!(failed.outcome, Outcome::Failed(_)) && !failed.more);
    let account = driver.account();
    assert_eq!((account.buffers.loaned, account.buffers.leased, account.in_flight), (ours - 2, 0, 0));
    assert_eq!(driver.stop(LONG), 0);
}

#[test]
fn a_turn_ends_at_its_deadline() {
    let mut driver = driver(&OPTIONS);
    driver.turn(Wait::No).unwrap();
    let started = Instant::now();
    driver.turn(Wait::AtMost(Duration::from_millis(30))).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(29) && started.elapsed() < LONG);
    finish(driver);
}

#[test]
fn fault_r20_two_hundred_rings_come_and_go() {
    for _ in 0..200 {
        let mut driver = driver(&OPTIONS);
        driver.turn(Wait::No).unwrap();
        assert!(driver.ring.extras().registered, "the slot of the ring before is free again");
        finish(driver);
    }
}

#[test]
fn stop_ends_everything_that_is_in_flight() {
    both_modes(|options| {
        let mut driver = driver(&DriverOptions { buffers: 1, ..options });
        let at = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let (listener, _) = driver.listen(&at, LISTEN).unwrap();
        driver.submit(Op::Accept { listener }, owner());
        let mut peers = Vec::new();
        for index in 0..20 {
            let (mut peer, socket) = pair(&mut driver);
            driver.submit(Op::Receive { socket }, owner());
            if index % 2 == 0 {
                peer.write_all(&pattern(9000, index)).unwrap();
            }
            let buffer = SendBuffer::new(SendParts::Vec(pattern(4 << 20, index)));
            driver.submit(Op::Send { socket, buffer }, owner());
            peers.push(peer);
        }
        let mut held = Vec::new();
        for _ in 0..5 {
            driver.turn(Wait::AtMost(Duration::from_millis(1))).unwrap();
            held.extend(driver.next());
        }
        let pool = driver.pool.clone();
        assert_eq!(driver.stop(LONG), 0);
        drop(held);
        assert_eq!((pool.account().loaned, pool.account().leased), (0, 0));
    });
}

#[test]
fn without_time_to_stop_nothing_is_freed_under_the_kernel() {
    let mut driver = driver(&OPTIONS);
    let (_peer, socket) = pair(&mut driver);
    driver.submit(Op::Receive { socket }, owner());
    driver.turn(Wait::No).unwrap();
    // What a cancel does not end at once is counted and leaked; what it ends is freed. Neither may crash.
    assert!(driver.stop(Duration::ZERO) <= 1);
    let mut dropped = self::driver(&OPTIONS);
    let (_peer, socket) = pair(&mut dropped);
    dropped.submit(Op::Receive { socket }, owner());
    dropped.turn(Wait::No).unwrap();
    drop(dropped);
}
