//! The simulator's own promises: time, order, ends, and that chance alone decides what goes wrong.

use super::{
    super::{Outcome, SendBuffer, SendParts, Shutdown},
    *,
};
use crate::clock::Clock;

struct Sim {
    net: SimNet,
    clock: Clock,
    driver: SimDriver,
}

fn sim(seed: u64, faults: SimFaults) -> Sim {
    let clock = Clock::simulated();
    let net = SimNet::new(seed, clock.clone(), faults);
    let driver = new_driver(&net);
    Sim { net, clock, driver }
}

fn new_driver(net: &SimNet) -> SimDriver {
    let options = DriverOptions {
        submission_entries: 4,
        completion_entries: 8,
        buffers: 4,
        buffer_bytes: 512,
        multishot_receive: true,
    };
    SimDriver::new(net, &options)
}

fn listen(driver: &mut SimDriver, port: u16) -> (Descriptor, u16) {
    let at = Address::Tcp(([127, 0, 0, 1], port).into());
    let (fd, real) = driver.listen(&at, ListenOptions { backlog: 8, reuse_port: true }).unwrap();
    let Address::Tcp(real) = real else { panic!("a TCP address") };
    (fd, real.port())
}

impl Sim {
    /// Turns until nothing will happen any more, and gives everything that completed.
    fn settle(&mut self) -> Vec<Completion> {
        let mut all = Vec::new();
        loop {
            self.driver.turn(Wait::No).unwrap();
            all.extend(std::iter::from_fn(|| self.driver.next()));
            if self.driver.has_work() {
                continue;
            }
            let Some(at) = self.net.next_event() else { return all };
            self.clock.advance(at.saturating_sub(self.clock.now()));
        }
    }

    fn pair(&mut self) -> (SimClient, Descriptor) {
        let (listener, port) = listen(&mut self.driver, 0);
        let accept = self.driver.submit(Op::Accept { listener }, Owner::Listener(Key::NONE));
        let client = self.net.connect(port);
        let fd = self
            .settle()
            .into_iter()
            .find_map(|completion| match completion.outcome {
                Outcome::Accepted(fd) => Some(fd),
                _ => None,
            })
            .expect("a connection");
        self.driver.cancel(accept);
        self.settle();
        self.driver.close(listener);
        (client, fd)
    }

    fn receive(&mut self, socket: Descriptor) -> Key {
        self.driver.submit(Op::Receive { socket }, Owner::Receiver(Key::NONE))
    }

    fn send(&mut self, socket: Descriptor, bytes: &[u8]) -> Key {
        let buffer = SendBuffer::new(SendParts::Vec(bytes.to_vec()));
        self.driver.submit(Op::Send { socket, buffer }, Owner::Sender(Key::NONE))
    }
}

#[test]
fn nothing_arrives_before_its_time() {
    let latency = Duration::from_millis(3);
    let mut sim = sim(1, SimFaults { latency_min: latency, latency_max: latency, ..SimFaults::default() });
    let (client, fd) = sim.pair();
    sim.receive(fd);
    sim.driver.turn(Wait::Forever).unwrap();
    assert_eq!(sim.net.next_event(), None, "a quiet network has no next event");
    let sent_at = sim.clock.now();
    client.write(b"x");
    assert_eq!(sim.net.next_event(), Some(sent_at + latency));
    sim.clock.advance(latency - Duration::from_nanos(1));
    sim.driver.turn(Wait::Forever).unwrap();
    assert!(sim.driver.next().is_none());
    sim.clock.advance(Duration::from_nanos(1));
    assert!(!sim.driver.has_work(), "the network has not moved yet");
    sim.driver.turn(Wait::Forever).unwrap();
    assert!(matches!(sim.driver.next().unwrap().outcome, Outcome::Received(_)));
    assert_eq!(Box::new(sim.driver).stop(Duration::ZERO), 0);
}

#[test]
fn ends_are_told_as_tcp_tells_them() {
    let mut sim = sim(2, SimFaults::default());
    let (client, fd) = sim.pair();
    client.write(b"unread");
    sim.settle();
    sim.driver.close(fd);
    sim.settle();
    assert_eq!(client.end(), Some(End::Rst), "data left unread: reset");
    drop(client);

    let (client, fd) = sim.pair();
    sim.driver.close(fd);
    sim.settle();
    assert_eq!(client.end(), Some(End::Fin));
    client.write(b"nobody is there");
    sim.settle();
    drop(client);

    let (listener, port) = listen(&mut sim.driver, 0);
    let waiting = sim.net.connect(port);
    sim.settle();
    sim.driver.close(listener);
    sim.settle();
    assert_eq!(waiting.end(), Some(End::Rst), "a closed listener resets its queue");
    let refused = sim.net.connect(port);
    sim.settle();
    assert_eq!(refused.end(), Some(End::Rst), "nobody listens");
    drop((waiting, refused));
    assert_eq!(sim.net.open_sockets(), 0);
}

#[test]
fn a_window_holds_the_sender_back_and_reading_lets_it_go_on() {
    let mut sim = sim(3, SimFaults::default());
    let (client, fd) = sim.pair();
    client.set_receive_window(100);
    sim.settle();
    sim.send(fd, &[7; 250]);
    let mut sent = 0;
    let mut read = 0;
    for _ in 0..3 {
        for completion in sim.settle() {
            let Outcome::Sent { result, buffer } = completion.outcome else { panic!("a send's outcome") };
            sent += result.unwrap();
            assert!(sent - read <= 100, "never more than the window on its way or unread");
            if buffer.remaining() > 0 {
                sim.driver.submit(Op::Send { socket: fd, buffer }, Owner::Sender(Key::NONE));
            }
        }
        sim.settle();
        read += client.read().len();
    }
    assert_eq!((sent, read), (250, 250));
    assert_eq!(sim.driver.send_progress(fd).unwrap().unacknowledged, 0);
    sim.driver.shutdown(fd, Shutdown::Both).unwrap();
    sim.driver.close(fd);
}

#[test]
fn faults_of_the_connection_look_like_the_kernels() {
    let mut sim = sim(4, SimFaults::default());
    let (client, fd) = sim.pair();
    sim.net.set_faults(|faults| faults.spurious_cancel = 1.0);
    sim.receive(fd);
    client.write(b"data");
    let cancelled = sim.settle().pop().unwrap();
    assert!(
        matches!(&cancelled.outcome, Outcome::Failed(error) if error.raw_os_error() == Some(libc::ECANCELED))
    );
    sim.net.set_faults(|faults| faults.spurious_cancel = 0.0);
    sim.receive(fd);
    let received = sim.settle().pop().unwrap();
    assert!(matches!(&received.outcome, Outcome::Received(lease) if &**lease == b"data"), "nothing was lost");
    drop(received);
    sim.net.set_faults(|faults| faults.connection_error = 1.0);
    client.write(b"more");
    let failed = sim.settle().pop().unwrap();
    assert!(
        matches!(&failed.outcome, Outcome::Failed(error) if error.raw_os_error() == Some(libc::ECONNRESET))
    );
    assert_eq!(client.end(), Some(End::Rst));
    sim.send(fd, b"late");
    let sent = sim.settle().pop().unwrap();
    assert!(matches!(
        &sent.outcome,
        Outcome::Sent { result: Err(error), .. } if error.raw_os_error() == Some(libc::EPIPE)
    ));
    sim.driver.close(fd);
    assert_eq!(sim.net.wake_delay(), Duration::ZERO);
    sim.net.set_faults(|faults| faults.late_wake = 1.0);
    assert!(sim.net.wake_delay() > Duration::ZERO);
}

#[test]
fn connections_spread_over_the_listeners_of_a_port() {
    let mut sim = sim(5, SimFaults::default());
    let mut other = new_driver(&sim.net);
    let (here, port) = listen(&mut sim.driver, 0);
    let (there, _) = listen(&mut other, port);
    sim.driver.submit(Op::Accept { listener: here }, Owner::Listener(Key::NONE));
    other.submit(Op::Accept { listener: there }, Owner::Listener(Key::NONE));
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let client = sim.net.connect(port);
            sim.settle();
            other.turn(Wait::No).unwrap();
            client
        })
        .collect();
    let accepted = [sim.driver.account().descriptors - 1, other.account().descriptors - 1];
    assert_eq!(accepted[0] + accepted[1], 40);
    assert!(accepted.iter().all(|count| *count >= 8), "{accepted:?}");
    drop(clients);
    assert_eq!(Box::new(sim.driver).stop(Duration::ZERO), 0);
    assert_eq!(Box::new(other).stop(Duration::ZERO), 0);
    assert_eq!(sim.net.open_sockets(), 0);
}

/// Echo under every fault at once: what comes back is a prefix of what was sent, and nothing is left over.
/// Replay one seed with `SHARDS_SEED=… cargo test -p shards echo_under_every_fault`.
#[test]
fn echo_under_every_fault_keeps_order_and_leaves_nothing() {
    let one = std::env::var("SHARDS_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..150, |seed: u64| seed..seed + 1) {
        let outcome = std::panic::catch_unwind(|| echo_under_every_fault(seed));
        assert!(outcome.is_ok(), "seed {seed}; replay with SHARDS_SEED={seed}");
    }
}

fn echo_under_every_fault(seed: u64) {
    let mut sim = sim(seed, SimFaults::default());
    let (client, fd) = sim.pair();
    let fault = 0.1;
    sim.net.set_faults(|faults| {
        *faults = SimFaults {
            short_send: fault,
            late_completion: fault,
            late_cancel: fault,
            spurious_cancel: fault,
            out_of_buffers: fault,
            connection_error: fault / 20.0,
            duplicate_completion: fault,
            reorder: fault,
            ..SimFaults::default()
        };
    });
    let sent: Vec<u8> = (0..20_000u32).map(|index| ((index * 31) >> 3) as u8).collect();
    client.write(&sent);
    client.finish();
    let (mut queue, mut sending, mut receiving, mut broken) = (Vec::new(), false, true, false);
    sim.receive(fd);
    while receiving || sending {
        let completions = sim.settle();
        assert!(!completions.is_empty(), "the echo stands still");
        for completion in completions {
            match completion.outcome {
                Outcome::Received(lease) => queue.extend_from_slice(&lease),
                Outcome::EndOfStream => receiving = false,
                Outcome::Failed(error) if error.raw_os_error() == Some(libc::ECANCELED) => {
                    sim.receive(fd);
                }
                Outcome::Failed(_) => (receiving, broken) = (false, true),
                Outcome::Sent { result, buffer } => {
                    sending = false;
                    let cancelled = |error: &io::Error| error.raw_os_error() == Some(libc::ECANCELED);
                    broken |= result.is_err_and(|error| !cancelled(&error));
                    let left: Vec<u8> = buffer.slices().flatten().copied().collect();
                    queue.splice(0..0, left);
                }
                other => panic!("{other:?}"),
            }
        }
        if !sending && !broken && !queue.is_empty() {
            sim.send(fd, &std::mem::take(&mut queue));
            sending = true;
        }
    }
    sim.driver.close(fd);
    sim.settle();
    let echoed = client.received();
    assert!(sent.starts_with(&echoed), "bytes out of order or not ours");
    assert!(broken || echoed.len() == sent.len(), "{} of {} bytes", echoed.len(), sent.len());
    let account = sim.driver.account();
    assert_eq!((account.in_flight, account.descriptors), (0, 0));
    assert_eq!((account.buffers.loaned, account.buffers.leased), (0, 0));
    drop(client);
    assert_eq!(sim.net.open_sockets(), 0);
}
