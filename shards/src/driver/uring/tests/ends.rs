//! Peers that leave before the kernel looks.

use super::*;
use socket2::SockRef;

/// A peer that is gone by the time the kernel looks: what it said, and how it left, are both told.
#[test]
fn an_end_or_a_reset_behind_bytes_is_told_whenever_the_receive_is_armed() {
    both_modes(|options| {
        // With one buffer, kept, the second receive is armed while there is none.
        for (reset, armed_before, buffers) in [false, true]
            .into_iter()
            .flat_map(|reset| [(reset, true, 16), (reset, false, 16), (reset, false, 1)])
        {
            let mut driver = driver(&DriverOptions { buffers, ..options });
            let (mut other, other_socket) = pair(&mut driver);
            other.write_all(b"x").unwrap();
            let other_key = driver.submit(Op::Receive { socket: other_socket }, owner());
            let Outcome::Received(kept) = completion(&mut driver).outcome else { panic!("a byte") };
            let mut kept = Some(kept);

            let (unix, unix_socket) = pair(&mut driver);
            let (tcp, tcp_socket) = tcp_pair(&mut driver);
            if reset {
                SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).unwrap();
            }
            let peers: [Box<dyn Write>; 2] = [Box::new(unix), Box::new(tcp)];
            for (socket, mut peer) in [unix_socket, tcp_socket].into_iter().zip(peers) {
                let arm = |driver: &mut UringDriver| {
                    driver.submit(Op::Receive { socket }, owner());
                    driver.turn(Wait::No).unwrap();
                };
                if armed_before {
                    arm(&mut driver);
                }
                peer.write_all(b"last words").unwrap();
                drop(peer);
                if !armed_before {
                    arm(&mut driver);
                }
                if buffers == 1 {
                    kept.take();
                }
                let mut words = Vec::new();
                let end = loop {
                    let completion = completion(&mut driver);
                    match completion.outcome {
                        Outcome::Received(lease) => words.extend_from_slice(&lease),
                        end => break end,
                    }
                };
                let failed = matches!(end, Outcome::Failed(_));
                assert_eq!(failed, reset && socket == tcp_socket, "{end:?}");
                assert_eq!(words, b"last words");
                driver.close(socket);
            }
            driver.cancel(other_key);
            assert_cancelled(&completion(&mut driver).outcome);
            driver.close(other_socket);
            drop(kept);
            finish(driver);
        }
    });
}

fn tcp_pair(driver: &mut UringDriver) -> (TcpStream, Descriptor) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    (peer, driver.adopt(ours.into()))
}
