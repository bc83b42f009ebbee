//! The contract with many sockets: numbers that are used again, and many that are ready at once.

use super::{
    super::*,
    world::{World, for_each_driver},
};

#[test]
fn fault_r2_a_number_used_again_brings_nothing_of_the_socket_before() {
    for_each_driver(8, |world| {
        let (listener, port) = world.listen();
        let mut numbers = std::collections::HashMap::<Descriptor, usize>::new();
        for round in 0..60 {
            let (peer, fd) = world.pair_at(listener, port);
            *numbers.entry(fd).or_default() += 1;
            let receive = world.receive(fd);
            let words = format!("this is round {round}");
            world.write(peer, words.as_bytes());
            world.until("the words", |world| world.record(receive).data.len() >= words.len());
            assert_eq!(world.record(receive).data, words.as_bytes(), "{}", world.name);
            world.send_all(fd, SendParts::Vec(words.clone().into_bytes()));
            if round % 2 == 0 {
                // More is on its way while the receive ends: it belongs to this socket and dies with it.
                world.write(peer, b"never read");
            }
            world.cancel(receive);
            world.driver.close(fd);
            world.until("the end", |world| world.end(peer).is_some());
            if round % 2 == 1 {
                assert_eq!(world.received(peer), words.as_bytes(), "{}", world.name);
            }
            world.drop_peer(peer);
        }
        assert!(numbers.values().any(|times| *times > 10), "{}: numbers are used again", world.name);
        world.driver.close(listener);
    });
}

#[test]
fn fault_r11_many_sockets_ready_at_once_are_all_served() {
    const SOCKETS: usize = 150;
    for_each_driver(32, |world| {
        let (listener, port) = world.listen();
        let accept = world.submit(Op::Accept { listener });
        let peers: Vec<_> = (0..SOCKETS).map(|_| world.connect(port)).collect();
        world.until("all connections", |world| world.record(accept).accepted.len() == SOCKETS);
        world.cancel(accept);
        let streams: Vec<_> = world.record(accept).accepted.clone();
        let receives: Vec<_> = streams.iter().map(|fd| world.receive(*fd)).collect();
        for peer in &peers {
            world.write(*peer, b"now");
        }
        let all = |world: &World| receives.iter().all(|key| world.record(*key).data == b"now");
        world.until("everybody's bytes, without another push", all);
        for (fd, receive) in streams.iter().zip(&receives) {
            world.driver.orphan(*receive);
            world.driver.shutdown(*fd, Shutdown::Both).unwrap();
        }
        let rest = world.baseline.in_flight;
        world.until("the orphans to end", |world| world.driver.account().in_flight == rest);
        for fd in streams {
            world.driver.close(fd);
        }
        for peer in peers {
            world.until("the ends", |world| world.end(peer).is_some());
        }
        world.driver.close(listener);
    });
}
