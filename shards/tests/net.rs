//! Sockets, streams, relays, listeners and files, on every set-up that lacks something.
#![cfg(not(loom))]

mod common;

use bytes::Bytes;
use common::{
    Accepts, account, balanced, count, drivers, eventually, listen, pair, pattern, poll_and_drop,
    read_exactly, read_to_end, setups,
};
use shards::{
    Error, File, Lease, Shard,
    net::{
        AcceptEvents, AcceptMode, Binding, Listener, Outgoing, ReceiveEnd, RelayEnd, SEND_PARTS_MAX, Sent,
        Socket, SocketAddress, SocketEvents, Stream, Vectored, relay,
    },
    time,
};
use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

#[test]
fn fault_r1_every_size_arrives_as_it_was_sent() {
    let mut sizes: Vec<usize> = (0..=130).collect();
    sizes.extend((8..=16).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]));
    for setup in setups() {
        let sizes = sizes.clone();
        setup.run(move |shard| {
            let sizes = sizes.clone();
            async move {
                let (client, mut server) = pair(&shard).await;
                for (turn, size) in sizes.into_iter().enumerate() {
                    let expected = pattern(size, turn);
                    let outgoing = match turn % 3 {
                        0 => Outgoing::Vec(expected.clone()),
                        1 => Outgoing::Bytes(Bytes::from(expected.clone())),
                        _ => in_pieces(&expected),
                    };
                    let reading = shard.spawn(async move { (read_exactly(&server, size).await, server) });
                    client.write(outgoing).await.expect("sent");
                    let (got, back) = reading.await.expect("no panic");
                    assert!(got == expected, "{size} bytes, other than they were sent");
                    server = back;
                }
                drop(client);
                assert!(read_to_end(&server).await.is_empty());
            }
        });
    }
}

/// A head and as many pieces as there may be.
fn in_pieces(bytes: &[u8]) -> Outgoing {
    let (head, rest) = bytes.split_at(bytes.len() / 3);
    let piece = rest.len().div_ceil(SEND_PARTS_MAX - 1).max(1);
    let rest = rest.chunks(piece).map(Bytes::copy_from_slice).collect();
    Outgoing::Vectored(Box::new(Vectored { head: head.to_vec(), rest }))
}

#[test]
fn a_half_closed_stream_still_sends_and_lingers() {
    for setup in setups() {
        setup.run(|shard| async move {
            let (client, server) = pair(&shard).await;
            client.write_all(b"question".to_vec()).await.expect("sent");
            client.finish().expect("half-closed");
            assert_eq!(read_to_end(&server).await, b"question");
            assert!(server.read().await.expect("still the end").is_none());
            let answer = pattern(100_000, 1);
            let expected = answer.clone();
            let serving = shard.spawn(async move {
                server.write_all(answer).await.expect("the other half is open");
                server.linger(1 << 20, Duration::from_secs(5)).await;
            });
            assert!(read_to_end(&client).await == expected);
            drop(client);
            serving.await.expect("no panic");
        });
    }
}

#[test]
fn a_linger_ends_at_its_time_and_at_its_bytes() {
    for setup in drivers() {
        setup.run(|shard| async move {
            let (silent, server) = pair(&shard).await;
            server.linger(1 << 20, Duration::from_millis(20)).await;
            drop(silent);
            let (chatty, server) = pair(&shard).await;
            let chatting = shard.spawn(async move { while chatty.write_all(vec![7; 4096]).await.is_ok() {} });
            server.linger(100_000, Duration::from_secs(20)).await;
            chatting.await.expect("it met the closed socket");
        });
    }
}

#[test]
fn connecting_has_a_bound_and_says_where_it_failed() {
    for setup in drivers() {
        setup.run(|shard| async move {
            let address = listen(&shard, Rc::new(Accepts::default())).address().clone();
            eventually(&shard, || shard.stats().descriptors == 0, || "the listener is closed".into()).await;
            let refused = Stream::connect(&address).await.expect_err("nobody listens");
            let text = refused.to_string();
            assert!(text.contains(&format!("connect to {address}")), "{text}");
            assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::ConnectionRefused);
            // A full accept queue drops what comes: connecting hangs.
            let full = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
            let address = SocketAddress::from(full.local_addr().expect("an address"));
            socket2::SockRef::from(&full).listen(0).expect("a short queue");
            let mut filled = Vec::new();
            let outcome = loop {
                match Stream::connect_within(&address, Duration::from_millis(50)).await {
                    Ok(stream) => filled.push(stream),
                    Err(error) => break error,
                }
                assert!(filled.len() < 100, "the queue never fills");
            };
            assert!(matches!(outcome, Error::TimedOut), "{outcome}");
        });
    }
}

#[test]
fn unix_sockets_carry_the_same() {
    for setup in setups() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        setup.run(move |shard| {
            let path = path.clone();
            async move {
                let accepts = Rc::new(Accepts::default());
                let address = SocketAddress::from(path);
                let listener = Listener::bind(&shard, &address, accepts.clone()).expect("bound");
                let client = Stream::connect(&address).await.expect("connected");
                let server = accepts.next().await;
                assert_eq!(server.peer(), None);
                let sending = shard.spawn(async move {
                    client.write_all(pattern(300_000, 3)).await.expect("sent");
                });
                assert!(read_to_end(&server).await == pattern(300_000, 3));
                sending.await.expect("no panic");
                drop(listener);
            }
        });
    }
}

#[test]
fn a_relay_counts_both_ways_and_passes_the_half_close_on() {
    for setup in setups() {
        setup.run(|shard| async move {
            let (client, front) = pair(&shard).await;
            let (back, server) = pair(&shard).await;
            let relaying = shard.spawn(async move { relay(&front, &back).await });
            let serving = shard.spawn(async move {
                let question = read_to_end(&server).await;
                server.write_all(pattern(250_000, 5)).await.expect("sent");
                question
            });
            client.write_all(pattern(150_000, 4)).await.expect("sent");
            client.finish().expect("half-closed");
            assert!(read_to_end(&client).await == pattern(250_000, 5));
            assert!(serving.await.expect("no panic") == pattern(150_000, 4));
            let relayed = relaying.await.expect("no panic");
            assert_eq!((relayed.forth, relayed.back), (150_000, 250_000));
            assert!(matches!(relayed.forth_end, RelayEnd::Finished), "{relayed:?}");
            assert!(matches!(relayed.back_end, RelayEnd::Finished), "{relayed:?}");
        });
    }
}

#[test]
fn a_relay_ends_both_ways_when_one_fails() {
    for setup in drivers() {
        setup.run(|shard| async move {
            let (client, front) = pair(&shard).await;
            let (back, server) = pair(&shard).await;
            let relaying = shard.spawn(async move { relay(&front, &back).await });
            client.socket().reset_on_close();
            drop(client);
            let relayed = relaying.await.expect("no panic");
            assert!(matches!(relayed.forth_end, RelayEnd::Failed(_)), "{relayed:?}");
            assert!(server.read().await.expect("the relay closed it").is_none());
        });
    }
}

#[test]
fn who_does_not_read_presses_on_the_sender_and_not_on_memory_nor_on_others() {
    for setup in setups() {
        setup.run(move |shard| async move {
            let (client, front) = pair(&shard).await;
            let (back, server) = pair(&shard).await;
            for socket in [&client, &back] {
                socket.socket().set_send_buffer(65_536).expect("set");
            }
            let relaying = shard.spawn(async move { relay(&front, &back).await });
            let sent = Rc::new(Cell::new(0_usize));
            let counter = sent.clone();
            let flooding = shard.spawn(async move {
                while client.write_all(vec![9; 16_384]).await.is_ok() {
                    counter.set(counter.get() + 16_384);
                }
            });
            let mut before = usize::MAX;
            let mut still = 0;
            while still < 20 {
                time::sleep(Duration::from_millis(2)).await;
                still = if sent.get() == before { still + 1 } else { 0 };
                before = sent.get();
            }
            assert!(before < 32 << 20, "{before} bytes went somewhere while nobody read");
            // The others get their buffers all the same.
            let (one, two) = pair(&shard).await;
            one.write_all(b"through".to_vec()).await.expect("sent");
            assert_eq!(read_exactly(&two, 7).await, b"through");
            assert_eq!(shard.stats().buffers.2, 0, "what waits unread is no buffer of the ring");
            let mut got = 0;
            while got < before {
                got += server.read().await.expect("no error").expect("not the end").len();
            }
            flooding.cancel();
            relaying.cancel();
        });
    }
}

#[test]
fn futures_dropped_at_every_point_leak_nothing() {
    for setup in setups() {
        let file = std::env::current_exe().expect("a file");
        setup.run(move |shard| {
            let file = file.clone();
            async move {
                let accepts = Rc::new(Accepts::default());
                let listener = listen(&shard, accepts.clone());
                let (client, server) = pair(&shard).await;
                client.write_all(vec![1; 10]).await.expect("sent");
                read_exactly(&server, 10).await;
                time::sleep(Duration::from_millis(5)).await;
                let before = account(&shard, setup.buffers);
                for _ in 0..count("SHARDS_DROPS", 50) {
                    poll_and_drop(Stream::connect(listener.address())).await;
                    let within = Stream::connect_within(listener.address(), Duration::from_secs(9));
                    poll_and_drop(within).await;
                    let (a, b) = pair(&shard).await;
                    poll_and_drop(a.read()).await;
                    poll_and_drop(b.write_all(vec![2; 1 << 20])).await;
                    poll_and_drop(time::timeout(Duration::from_secs(9), b.read())).await;
                    drop((a, b));
                    let open = std::fs::File::open(&file).expect("readable");
                    let open = File::new(&shard, open.into());
                    poll_and_drop(open.read_at(0, Vec::new(), 100_000)).await;
                    drop(open.read_at(4096, Vec::new(), 4096));
                    drop(open);
                    poll_and_drop(shard.offload(|| 5)).await;
                    poll_and_drop(shard.stopped()).await;
                }
                let drain = shard.spawn(async move {
                    loop {
                        drop(accepts.next_socket().await);
                    }
                });
                eventually(
                    &shard,
                    || shard.stats().streams <= before.streams,
                    || format!("{:?}", shard.stats()),
                )
                .await;
                drain.cancel();
                balanced(&shard, setup.buffers, before).await;
                client.write_all(vec![3; 10]).await.expect("sent");
                assert_eq!(read_exactly(&server, 10).await, [3; 10]);
            }
        });
    }
}

#[test]
fn a_write_that_was_dropped_goes_out_whole_before_the_next() {
    for setup in setups() {
        setup.run(|shard| async move {
            let (client, server) = pair(&shard).await;
            let reading = shard.spawn(async move { read_to_end(&server).await });
            poll_and_drop(client.write_all(pattern(1 << 20, 1))).await;
            client.write_bytes(Bytes::from(pattern(1000, 2))).await.expect("sent");
            poll_and_drop(client.write_all(pattern(10, 3))).await;
            eventually(&shard, || !client.socket().is_sending(), || "sent".into()).await;
            client.write_all(pattern(10, 4)).await.expect("sent, and the right buffer comes back");
            drop(client);
            let mut expected = pattern(1 << 20, 1);
            expected.extend(pattern(1000, 2));
            expected.extend(pattern(10, 3));
            expected.extend(pattern(10, 4));
            assert!(reading.await.expect("no panic") == expected, "whole and in order");
        });
    }
}

#[test]
fn files_are_read_to_their_end_by_many_at_once() {
    for setup in setups() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), pattern(200_000, 6)).expect("written");
        let path = file.path().to_owned();
        setup.run(move |shard| {
            let path = path.clone();
            async move {
                let before = account(&shard, setup.buffers);
                let open = File::new(&shard, std::fs::File::open(&path).expect("readable").into());
                let mut all = Vec::new();
                let mut buffer = Vec::new();
                loop {
                    let (result, back) = open.read_at(all.len() as u64, buffer, 16_384).await;
                    let read = result.expect("readable");
                    assert_eq!(read, back.len());
                    if read == 0 {
                        break;
                    }
                    all.extend_from_slice(&back);
                    buffer = back;
                }
                assert!(all == pattern(200_000, 6));
                let reads: Vec<_> = (0..32).map(|part| open.read_at(part * 6000, Vec::new(), 6000)).collect();
                drop(open);
                for (part, read) in reads.into_iter().enumerate() {
                    let (result, bytes) = read.await;
                    assert_eq!(result.expect("readable"), bytes.len());
                    assert!(all[part * 6000..].starts_with(&bytes) && !bytes.is_empty());
                }
                balanced(&shard, setup.buffers, before).await;
            }
        });
    }
}

/// Panics in the callback it was told to.
struct Faulty {
    panic_in: &'static str,
    seen: RefCell<Vec<&'static str>>,
    socket: RefCell<Option<Socket>>,
}

impl Faulty {
    fn at(&self, place: &'static str) {
        self.seen.borrow_mut().push(place);
        assert!(self.panic_in != place, "on purpose in {place}");
    }
}

impl SocketEvents for Faulty {
    fn on_received(&self, _shard: &Shard, _token: u64, _bytes: Lease) {
        self.at("received");
    }
    fn on_receive_end(&self, _shard: &Shard, _token: u64, end: ReceiveEnd) {
        if matches!(&end, ReceiveEnd::Failed(error) if error.kind() == io::ErrorKind::ConnectionAborted) {
            self.seen.borrow_mut().push("aborted");
            let socket = self.socket.borrow_mut().take().expect("held");
            assert!(!socket.is_open() && socket.shut(shards::net::HowToShut::Write).is_err());
            socket.send(Outgoing::Vec(vec![1]));
            return;
        }
        self.at("end");
    }
    fn on_sent(&self, _shard: &Shard, _token: u64, _sent: Sent) {
        self.at("sent");
    }
}

#[test]
fn a_callback_that_panics_ends_its_socket_and_nothing_else() {
    for setup in setups() {
        setup.run(move |shard| async move {
            let (bystander, other) = pair(&shard).await;
            eventually(&shard, || shard.stats().descriptors == 2, || "the listener is closed".into()).await;
            bystander.write_all(b"first".to_vec()).await.expect("sent");
            assert_eq!(read_exactly(&other, 5).await, b"first");
            time::sleep(Duration::from_millis(1)).await;
            let before = account(&shard, setup.buffers);
            for panic_in in ["received", "end", "sent"] {
                let accepts = Rc::new(Accepts::default());
                let listener = listen(&shard, accepts.clone());
                let client = Stream::connect(listener.address()).await.expect("connected");
                let socket = accepts.next_socket().await;
                let faulty =
                    Rc::new(Faulty { panic_in, seen: RefCell::default(), socket: RefCell::default() });
                socket.listen_to(faulty.clone(), 0);
                socket.start_receiving();
                socket.send(Outgoing::Vec(b"hello".to_vec()));
                faulty.socket.replace(Some(socket));
                client.write_all(b"x".to_vec()).await.expect("sent");
                if panic_in == "end" {
                    client.finish().expect("half-closed");
                }
                while let Ok(Some(_)) = client.read().await {}
                assert_eq!(faulty.seen.borrow().last(), Some(&"aborted"), "{:?}", faulty.seen);
                drop((client, listener));
                drop(faulty);
            }
            bystander.write_all(b"alive".to_vec()).await.expect("sent");
            assert_eq!(read_exactly(&other, 5).await, b"alive");
            balanced(&shard, setup.buffers, before).await;
            assert_eq!(shard.stats().panics, 3);
        });
    }
}

/// Holds other sockets, as a proxy does, and an accept face that holds its listener.
struct Holder(#[allow(dead_code, reason = "held, not read")] RefCell<Vec<Socket>>);

impl SocketEvents for Holder {
    fn on_received(&self, _shard: &Shard, _token: u64, _bytes: Lease) {}
    fn on_receive_end(&self, _shard: &Shard, _token: u64, _end: ReceiveEnd) {}
    fn on_sent(&self, _shard: &Shard, _token: u64, _sent: Sent) {}
}

struct Unlucky(#[allow(dead_code, reason = "held, not read")] RefCell<Option<Listener>>);

impl AcceptEvents for Unlucky {
    fn on_accepted(&self, _shard: &Shard, _socket: Socket) {
        panic!("on purpose");
    }
}

#[test]
fn events_may_own_sockets_and_listeners_and_panic() {
    for setup in drivers() {
        setup.run(move |shard| async move {
            let before = account(&shard, setup.buffers);
            let accepts = Rc::new(Accepts::default());
            let listener = listen(&shard, accepts.clone());
            let mut clients = Vec::new();
            for _ in 0..3 {
                clients.push(Stream::connect(listener.address()).await.expect("connected"));
            }
            let owner = accepts.next_socket().await;
            let owned = vec![accepts.next_socket().await, accepts.next_socket().await];
            owned.iter().for_each(Socket::start_receiving);
            owner.listen_to(Rc::new(Holder(RefCell::new(owned))), 0);
            owner.start_receiving();
            drop(owner);
            let inner = listen(&shard, accepts.clone());
            let outer = listen(&shard, Rc::new(Unlucky(RefCell::new(Some(inner)))));
            for _ in 0..5 {
                let client = Stream::connect(outer.address()).await.expect("the listener goes on");
                while let Ok(Some(_)) = client.read().await {}
            }
            drop((outer, listener, clients));
            balanced(&shard, setup.buffers, before).await;
        });
    }
}

#[test]
fn a_listener_that_is_dropped_frees_its_port_and_its_binding() {
    for setup in drivers() {
        setup.run(move |shard| async move {
            let first = listen(&shard, Rc::new(Accepts::default()));
            let address = first.address().clone();
            let taken = Listener::bind(&shard, &address, Rc::new(Accepts::default())).expect_err("taken");
            assert!(taken.to_string().contains(&address.to_string()), "{taken}");
            drop(first);
            let closed = || shard.stats().descriptors == 0;
            eventually(&shard, closed, || "the listener is closed".into()).await;
            let accepts = Rc::new(Accepts::default());
            let _again = Listener::bind(&shard, &address, accepts.clone()).expect("free again");
            Stream::connect(&address).await.expect("connected");
            accepts.next().await;
            for mode in [AcceptMode::ReusePort, AcceptMode::Acceptor] {
                let binding = Binding::bind(&common::local(), 1, mode, 16).expect("bound");
                let listener = binding.listen(&shard, accepts.clone()).expect("the first time");
                Stream::connect(binding.address()).await.expect("connected");
                accepts.next().await;
                drop(listener);
                let again = binding.listen(&shard, accepts.clone());
                assert!(matches!(again, Err(Error::Misuse { .. })), "its socket is gone");
            }
        });
    }
}

/// What is handed over is all sockets of a server or nothing: not those that an end under way has left.
#[test]
fn a_listener_that_stops_has_no_socket_to_hand_over() {
    for setup in drivers() {
        setup.run(move |shard| async move {
            let listener = listen(&shard, Rc::new(Accepts::default()));
            let twin = listener.duplicate().expect("a descriptor is left");
            assert!(twin.is_some(), "this shard accepts");
            listener.stop();
            let stopping = listener.duplicate().map_err(|error| error.kind());
            assert!(matches!(stopping, Err(io::ErrorKind::NotConnected)), "{stopping:?}");
            listener.close().await;
            let stopped = listener.duplicate().map_err(|error| error.kind());
            assert!(matches!(stopped, Err(io::ErrorKind::NotConnected)), "{stopped:?}");
        });
    }
}
