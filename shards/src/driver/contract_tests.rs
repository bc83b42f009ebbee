//! The contract of `mod.rs`, one suite against every driver: epoll, io_uring where it works, and the simulator with
//! and without faults. A driver that passes can stand in for another; [`transcripts_are_the_same_on_every_driver`]
//! says so outright.

mod crowds;
mod world;

use super::*;
use bytes::Bytes;
use std::{collections::HashSet, io::Write, os::fd::AsFd};
use world::{World, errno, for_each_driver, harmless_faults, pattern};

#[test]
fn accept_echo_close() {
    for_each_driver(16, |world| {
        let (listener, port) = world.listen();
        let accept = world.submit(Op::Accept { listener });
        let peers: Vec<_> = (0..10).map(|_| world.connect(port)).collect();
        world.until("ten connections", |world| world.record(accept).accepted.len() == 10);
        let streams = world.record(accept).accepted.clone();
        let receives: Vec<_> = streams.iter().map(|fd| world.receive(*fd)).collect();
        for (index, peer) in peers.iter().enumerate() {
            world.write(*peer, format!("I am peer {index}").as_bytes());
        }
        for (fd, receive) in streams.iter().zip(&receives) {
            world.until("the request", |world| world.record(*receive).data.len() == 11);
            let data = world.record(*receive).data.clone();
            world.send_all(*fd, SendParts::Vec(data));
        }
        let mut seen = HashSet::new();
        for peer in &peers {
            world.until("the echo", |world| world.received(*peer).len() == 11);
            assert!(seen.insert(world.received(*peer)));
            world.finish(*peer);
        }
        assert_eq!(seen.len(), 10);
        for (fd, receive) in streams.iter().zip(receives) {
            assert!(matches!(world.wait(receive), Outcome::EndOfStream), "{}", world.name);
            assert!(world.driver.peer(*fd).unwrap().is_some());
            world.driver.close(*fd);
        }
        for peer in peers {
            world.until("the end", |world| world.end(peer) == Some(End::Fin));
        }
        assert_eq!(errno(&world.cancel(accept)), Some(libc::ECANCELED));
        world.driver.close(listener);
    });
}

#[test]
fn big_bodies_arrive_whole_in_both_directions() {
    for_each_driver(16, |world| {
        let (peer, fd) = world.pair();
        let up = pattern(600_000);
        let receive = world.receive(fd);
        world.write(peer, &up);
        world.finish(peer);
        assert!(matches!(world.wait(receive), Outcome::EndOfStream));
        assert!(world.record(receive).data == up, "{}", world.name);

        let rest = vec![Bytes::from(pattern(300_000)), Bytes::new(), Bytes::from(pattern(70_001))];
        let down = [&b"head"[..], &rest[0], &rest[2]].concat();
        let parts = SendParts::Vectored(Box::new(Vectored { head: b"head".to_vec(), rest }));
        world.send_all(fd, parts);
        world.send_all(fd, SendParts::Bytes(Bytes::from_static(b"tail")));
        world.driver.close(fd);
        world.until("the end", |world| world.end(peer).is_some());
        assert!(world.received(peer) == [&down[..], b"tail"].concat(), "{}", world.name);
    });
}

#[test]
fn each_direction_can_end_alone() {
    for_each_driver(16, |world| {
        let (peer, fd) = world.pair();
        let receive = world.receive(fd);
        world.write(peer, b"all I have");
        world.finish(peer);
        assert!(matches!(world.wait(receive), Outcome::EndOfStream));
        assert_eq!(world.record(receive).data, b"all I have");
        world.send_all(fd, SendParts::Vec(b"still here".to_vec()));
        world.until("the answer", |world| world.received(peer) == b"still here");
        world.driver.close(fd);

        let (peer, fd) = world.pair();
        let receive = world.receive(fd);
        world.driver.shutdown(fd, Shutdown::Write).unwrap();
        world.until("the end", |world| world.end(peer) == Some(End::Fin));
        world.write(peer, b"later");
        world.until("data after our end", |world| world.record(receive).data == b"later");
        let refused = world.send(fd, b"x");
        assert_eq!(errno(&world.wait(refused)), Some(libc::EPIPE), "{}", world.name);
        world.driver.shutdown(fd, Shutdown::Read).unwrap();
        assert!(matches!(world.wait(receive), Outcome::EndOfStream), "{}", world.name);
        world.driver.close(fd);
    });
}

#[test]
fn a_cancelled_receive_loses_nothing() {
    for_each_driver(16, |world| {
        let (peer, fd) = world.pair();
        let sent = pattern(20_000);
        let mut got = Vec::new();
        for chunk in sent.chunks(500) {
            let receive = world.receive(fd);
            world.write(peer, chunk);
            world.step();
            let end = world.cancel(receive);
            assert_eq!(errno(&end), Some(libc::ECANCELED), "{}", world.name);
            got.extend_from_slice(&world.record(receive).data);
        }
        let receive = world.receive(fd);
        world.finish(peer);
        world.wait(receive);
        got.extend_from_slice(&world.record(receive).data);
        assert!(got == sent, "{}", world.name);
        world.driver.cancel(receive);
        world.driver.orphan(receive);
        world.driver.close(fd);
    });
}

#[test]
fn a_blocked_send_waits_and_a_cancel_gives_the_buffer_back() {
    for_each_driver(16, |world| {
        let (peer, fd) = world.pair();
        world.driver.set_option(fd, SocketOption::SendBuffer(16 * 1024)).unwrap();
        world.set_reads(peer, false);
        let body = pattern(8 << 20);
        let mut sent = 0;
        let cancelled = loop {
            let key = world.send(fd, &body[sent..]);
            world.steps_unless_over(20, key);
            let Outcome::Sent { result, buffer } = world.cancel(key) else { panic!("a send's outcome") };
            assert_eq!(buffer.len(), body.len() - sent, "{}: the whole buffer is back", world.name);
            sent += buffer.sent;
            if let Err(error) = result {
                break error.raw_os_error();
            }
        };
        assert_eq!(cancelled, Some(libc::ECANCELED), "{}", world.name);
        assert!(sent < body.len(), "{}: a peer that reads nothing holds the sender back", world.name);
        // The kernel may still find room for a little more (it moves its bounds); it comes to an end.
        let blocked = loop {
            let key = world.send(fd, &body[sent..]);
            world.steps_unless_over(20, key);
            if !world.is_over(key) {
                break key;
            }
            let Outcome::Sent { result, .. } = world.wait(key) else { panic!("a send's outcome") };
            sent += result.unwrap();
        };
        world.set_reads(peer, true);
        let Outcome::Sent { result, .. } = world.wait(blocked) else { panic!("a send's outcome") };
        sent += result.unwrap();
        world.driver.close(fd);
        world.until("the end", |world| world.end(peer).is_some());
        assert!(world.received(peer) == body[..sent], "{}", world.name);
    });
}

#[test]
fn orphans_give_everything_back() {
    for_each_driver(16, |world| {
        let (listener, port) = world.listen();
        let (peer, fd) = world.pair_at(listener, port);
        let receive = world.receive(fd);
        world.write(peer, b"nobody will read this");
        world.driver.orphan(receive);
        world.set_reads(peer, false);
        let send = world.send(fd, &vec![7; 32 << 20]);
        world.driver.orphan(send);
        let accept = world.submit(Op::Accept { listener });
        let others: Vec<_> = (0..5).map(|_| world.connect(port)).collect();
        world.driver.turn(Wait::No).unwrap();
        world.driver.orphan(accept);
        let idle = world.baseline.in_flight;
        world.until("the orphans to end", |world| world.driver.account().in_flight == idle);
        for key in [receive, send, accept] {
            assert!(!world.is_over(key), "{}: an orphan's completion came to its owner", world.name);
        }
        assert!(world.record(accept).accepted.is_empty(), "{}", world.name);
        world.driver.close(fd);
        world.driver.close(listener);
        for peer in others {
            world.until("the end", |world| world.end(peer).is_some());
        }
    });
}

#[test]
fn fault_r3_descriptor_leak_when_accept_races_cancel() {
    for_each_driver(16, |world| {
        let (listener, port) = world.listen();
        for round in 0..30 {
            let accept = world.submit(Op::Accept { listener });
            let peer = world.connect(port);
            if round % 2 == 0 {
                world.step();
            }
            if round % 3 == 0 {
                world.driver.orphan(accept);
            } else {
                world.cancel(accept);
            }
            for fd in world.record(accept).accepted.clone() {
                world.driver.close(fd);
            }
            world.drop_peer(peer);
        }
        world.until("the descriptors to be back", |world| world.driver.account().descriptors == 1);
        world.driver.close(listener);
    });
}

#[test]
fn connect_succeeds_or_tells_why_not() {
    for_each_driver(16, |world| {
        let (listener, port) = world.listen();
        let to = Address::Tcp(([127, 0, 0, 1], port).into());
        let accept = world.submit(Op::Accept { listener });
        let client = world.driver.socket(&to).unwrap();
        let connect = world.submit(Op::Connect { socket: client, address: to.clone() });
        assert!(matches!(world.wait(connect), Outcome::Connected(Ok(()))), "{}", world.name);
        world.until("the other end", |world| world.record(accept).accepted.len() == 1);
        let server = world.record(accept).accepted[0];
        let receive = world.receive(client);
        world.send_all(server, SendParts::Vec(b"welcome".to_vec()));
        world.driver.shutdown(server, Shutdown::Write).unwrap();
        assert!(matches!(world.wait(receive), Outcome::EndOfStream));
        assert_eq!(world.record(receive).data, b"welcome");
        world.cancel(accept);
        for fd in [listener, client, server] {
            world.driver.close(fd);
        }
        let refused = world.driver.socket(&to).unwrap();
        let connect = world.submit(Op::Connect { socket: refused, address: to });
        assert_eq!(errno(&world.wait(connect)), Some(libc::ECONNREFUSED), "{}", world.name);
        world.driver.close(refused);
    });
}

#[test]
fn a_reset_ends_both_directions() {
    for_each_driver(16, |world| {
        let (peer, fd) = world.pair();
        let receive = world.receive(fd);
        world.reset(peer);
        assert_eq!(errno(&world.wait(receive)), Some(libc::ECONNRESET), "{}", world.name);
        let send = world.send(fd, b"too late");
        assert_eq!(errno(&world.wait(send)), Some(libc::EPIPE), "{}", world.name);
        world.driver.close(fd);

        let (peer, fd) = world.pair();
        world.driver.set_option(fd, SocketOption::Linger(Some(Duration::ZERO))).unwrap();
        world.driver.close(fd);
        world.until("the reset", |world| world.end(peer) == Some(End::Rst));
    });
}

#[test]
fn a_file_is_read_to_its_end_and_beyond() {
    let content = pattern(10_000);
    for_each_driver(16, |world| {
        let mut file = tempfile();
        file.write_all(&content).unwrap();
        let fd = world.driver.adopt(file.as_fd().try_clone_to_owned().unwrap());
        let mut got = Vec::new();
        loop {
            let op = Op::Read { file: fd, offset: got.len() as u64, buffer: Vec::new(), len: 3000 };
            let key = world.submit(op);
            let Outcome::Read { result, buffer } = world.wait(key) else { panic!("a read's outcome") };
            assert_eq!(result.unwrap(), buffer.len());
            if buffer.is_empty() {
                break;
            }
            got.extend_from_slice(&buffer);
        }
        assert!(got == content, "{}", world.name);
        let beyond = world.submit(Op::Read { file: fd, offset: 1 << 40, buffer: vec![1; 9], len: 100 });
        let Outcome::Read { result: Ok(0), buffer } = world.wait(beyond) else { panic!("nothing is there") };
        assert!(buffer.is_empty());
        world.driver.close(fd);
    });
}

#[test]
fn fault_r12_accept_goes_on_when_armed_again_without_a_new_connection() {
    for_each_driver(16, |world| {
        let (listener, port) = world.listen();
        let (first, fd) = world.pair_at(listener, port);
        let waiting = world.connect(port);
        for _ in 0..10 {
            world.step();
        }
        let accept = world.submit(Op::Accept { listener });
        world.until("the waiting connection", |world| world.record(accept).accepted.len() == 1);
        let second = world.record(accept).accepted[0];
        world.cancel(accept);
        for fd in [fd, second, listener] {
            world.driver.close(fd);
        }
        world.until("the ends", |world| world.end(first).is_some() && world.end(waiting).is_some());
    });
}

#[test]
fn fault_r6_two_buffers_serve_many_sockets() {
    for_each_driver(2, |world| {
        let (listener, port) = world.listen();
        let mut all = Vec::new();
        for _ in 0..60 {
            let (peer, fd) = world.pair_at(listener, port);
            all.push((peer, fd, world.receive(fd)));
        }
        world.keep_leases = true;
        for (peer, ..) in &all {
            world.write(*peer, b"0123456789");
        }
        world.until("the first buffers", |world| world.leases.len() == 2);
        for _ in 0..10 {
            world.step();
        }
        let enters = world.driver.account().enters;
        assert!(
            !world.driver.has_work() || world.net.is_some(),
            "{}: nothing to do without buffers",
            world.name
        );
        world.driver.turn(Wait::AtMost(Duration::from_millis(5))).unwrap();
        assert!(world.driver.account().enters <= enters + 3, "{}: no spinning", world.name);
        world.keep_leases = false;
        world.leases.clear();
        for (_, _, receive) in &all {
            world.until("everybody's bytes", |world| world.record(*receive).data == b"0123456789");
        }
        assert!(world.driver.account().buffer_shortages > 0, "{}", world.name);
        for (_, fd, receive) in all {
            world.cancel(receive);
            world.driver.close(fd);
        }
        world.driver.close(listener);
    });
}

/// Far more than the sockets' own buffers hold.
const FLOOD: usize = 32 << 20;

#[test]
fn fault_r7_a_flooding_client_leaves_room_for_small_ones() {
    for_each_driver(32, |world| {
        let (listener, port) = world.listen();
        let (flooder, flooded) = world.pair_at(listener, port);
        let flood = world.receive(flooded);
        let small: Vec<_> = (0..50)
            .map(|_| {
                let (peer, fd) = world.pair_at(listener, port);
                (peer, fd, world.receive(fd))
            })
            .collect();
        world.write(flooder, &vec![7; FLOOD]);
        for (peer, ..) in &small {
            world.write(*peer, b"small");
        }
        world.until("the small ones", |world| {
            small.iter().all(|(.., key)| world.record(*key).data.len() == 5)
        });
        let taken = world.record(flood).data.len();
        assert!(taken < FLOOD / 2, "{}: the flood was served first ({taken} bytes)", world.name);
        world.cancel(flood);
        world.driver.close(flooded);
        for (_, fd, receive) in small {
            world.cancel(receive);
            world.driver.close(fd);
        }
        world.driver.close(listener);
    });
}

#[test]
fn fault_r12_accept_fails_without_descriptors_and_goes_on_when_there_are_some() {
    const NAME: &str =
        "driver::contract_tests::fault_r12_accept_fails_without_descriptors_and_goes_on_when_there_are_some";
    if std::env::var_os("SHARDS_FEW_DESCRIPTORS").is_none() {
        // The limit is the process', so it is another process that runs into it.
        let run = std::process::Command::new("sh")
            .args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args([NAME, "--exact"])
            .env("SHARDS_FEW_DESCRIPTORS", "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    for_each_driver(8, |world| {
        let (listener, port) = world.listen();
        let peers = [world.connect(port), world.connect(port)];
        let mut hoard = Vec::new();
        match &world.net {
            Some((net, _)) => net.set_faults(|faults| faults.accept_error = 1.0),
            None => hoard.extend(std::iter::from_fn(|| std::fs::File::open("/dev/null").ok())),
        }
        let accept = world.submit(Op::Accept { listener });
        assert_eq!(errno(&world.wait(accept)), Some(libc::EMFILE), "{}", world.name);
        let mut streams = world.record(accept).accepted.clone();
        drop(hoard);
        if let Some((net, _)) = &world.net {
            net.set_faults(|faults| faults.accept_error = 0.0);
        }
        let again = world.submit(Op::Accept { listener });
        let left = peers.len() - streams.len();
        world.until("those who waited", |world| world.record(again).accepted.len() == left);
        streams.extend_from_slice(&world.record(again).accepted);
        world.cancel(again);
        for fd in streams {
            world.driver.close(fd);
        }
        world.driver.close(listener);
    });
}

/// What an owner sees, operation by operation; how data is cut is the driver's own affair.
fn transcript(world: &mut World) -> Vec<String> {
    let mut lines = Vec::new();
    let (listener, port) = world.listen();
    let (peer, fd) = world.pair_at(listener, port);
    let receive = world.receive(fd);
    world.write(peer, b"GET / HTTP/1.1\r\n\r\n");
    world.until("a request", |world| world.record(receive).data.len() == 18);
    world.send_all(fd, SendParts::Vec(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()));
    lines.push(format!("cancelled {:?}", world.cancel(receive)));
    let again = world.receive(fd);
    world.write(peer, b"rest");
    world.finish(peer);
    lines.push(format!("ended {:?}", world.wait(again)));
    lines.push(format!("received {:?} {:?}", world.record(receive).data, world.record(again).data));
    let over = world.receive(fd);
    lines.push(format!("ended again {:?}", world.wait(over)));
    world.driver.shutdown(fd, Shutdown::Write).unwrap();
    let late = world.send(fd, b"late");
    lines.push(format!("late send {:?}", world.wait(late)));
    world.until("the end", |world| world.end(peer).is_some());
    lines.push(format!("peer {:?} {:?}", world.received(peer), world.end(peer)));
    world.driver.close(fd);
    world.driver.close(listener);
    lines
}

#[test]
fn transcripts_are_the_same_on_every_driver() {
    let mut epoll = World::real(DriverKind::Epoll, 8).unwrap();
    let expected = transcript(&mut epoll);
    epoll.assert_balanced();
    for_each_driver(8, |world| assert_eq!(transcript(world), expected, "{}", world.name));
}

#[test]
fn stale_completions_are_counted_and_their_buffers_return() {
    let faults = SimFaults { duplicate_completion: 1.0, ..harmless_faults() };
    let mut world = World::sim(1, 8, faults);
    transcript(&mut world);
    assert!(world.driver.account().stale_completions > 0);
    world.assert_balanced();
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut world = World::sim(seed, 8, harmless_faults());
        transcript(&mut world);
        let clock = world.net.as_ref().unwrap().1.clone();
        let account = world.driver.account();
        world.assert_balanced();
        (clock.now(), account)
    };
    assert_eq!(run(42), run(42));
    assert_ne!(run(42).0, run(43).0, "another seed is another run");
}

#[test]
fn a_wake_ends_a_waiting_turn() {
    for kind in [DriverKind::Epoll, DriverKind::Uring] {
        let Some(mut world) = World::real(kind, 8) else { continue };
        for _ in 0..50 {
            let (wake, (done, ended)) = (world.wake.clone(), std::sync::mpsc::channel());
            let waker = std::thread::spawn(move || {
                // One wake at least; the shard may still be about to sleep at the first.
                while ended.recv_timeout(Duration::from_millis(1)).is_err() {
                    wake.wake();
                }
            });
            let enters = world.driver.account().enters;
            while world.driver.account().enters == enters {
                world.driver.turn(Wait::Forever).unwrap();
            }
            done.send(()).unwrap();
            waker.join().unwrap();
        }
        world.assert_balanced();
    }
}

#[test]
fn fault_r23_a_blocking_listener_does_not_hang_the_driver() {
    for kind in [DriverKind::Epoll, DriverKind::Uring] {
        let Some(mut world) = World::real(kind, 8) else { continue };
        let foreign = std::net::TcpListener::bind(world::LOCALHOST).unwrap();
        let port = foreign.local_addr().unwrap().port();
        let listener = world.driver.adopt(foreign.into());
        let accept = world.submit(Op::Accept { listener });
        for _ in 0..5 {
            world.step();
        }
        world.connect(port);
        world.until("a connection", |world| world.record(accept).accepted.len() == 1);
        let fd = world.record(accept).accepted[0];
        world.cancel(accept);
        world.driver.close(fd);
        world.driver.close(listener);
        world.assert_balanced();
    }
}

#[test]
fn a_released_descriptor_works_elsewhere_and_no_longer_here() {
    for kind in [DriverKind::Epoll, DriverKind::Uring] {
        let (Some(mut here), Some(mut there)) = (World::real(kind, 8), World::real(DriverKind::Epoll, 8))
        else {
            continue;
        };
        let (peer, fd) = here.pair();
        let receive = here.receive(fd);
        here.cancel(receive);
        let owned = here.driver.release(fd).expect("real descriptors can be given away");
        let fd = there.driver.adopt(owned);
        let receive = there.receive(fd);
        here.write(peer, b"over there");
        there.until("the bytes", |world| world.record(receive).data == b"over there");
        for _ in 0..5 {
            here.step();
        }
        there.cancel(receive);
        there.driver.close(fd);
        here.assert_balanced();
        there.assert_balanced();
    }
}

/// A file without a name.
fn tempfile() -> std::fs::File {
    let path = std::env::temp_dir().join(format!(
        "shards-contract-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let file =
        std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}
