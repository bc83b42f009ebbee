//! S1, S2, S3: peers that send or take next to nothing, many at a time.

use super::{
    common::{DEADLINE, wait_for},
    frame::{
        Attacked, Kind, alone, connect_from, limits, patience, resident_kib, router, scale, under_attack,
    },
};
use shardlet::{
    EndReason, Router,
    handlers::files::{Files, FilesOptions},
};
use shards::Shard;
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// One slow connection: what it has said, what came back, and when it was closed.
struct Slow {
    stream: TcpStream,
    begun: Instant,
    said: Vec<u8>,
    came: Vec<u8>,
    closed: Option<Duration>,
}

impl Slow {
    fn connect(server: &Attacked, first: &[u8]) -> Slow {
        let mut stream = connect_from(7, server.address).expect("connect");
        let begun = Instant::now();
        stream.write_all(first).expect("send");
        stream.set_nonblocking(true).expect("nonblocking");
        Slow { stream, begun, said: first.to_vec(), came: Vec::new(), closed: None }
    }

    /// Takes what has come, at most so much; notes the end.
    fn look(&mut self, most: usize) {
        let mut chunk = [0; 4096];
        let most = most.min(chunk.len());
        while self.closed.is_none() && most > 0 {
            match self.stream.read(&mut chunk[..most]) {
                Ok(0) => self.closed = Some(self.begun.elapsed()),
                Ok(count) => self.came.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.closed = Some(self.begun.elapsed()),
            }
        }
    }

    fn say(&mut self, octet: u8) {
        self.said.push(octet);
        let _ = self.stream.write(&[octet]);
    }
}

/// Drips an octet to every connection each `pause` until all are closed.
fn drip(clients: &mut [Slow], pause: Duration, limit: Duration, octet: impl Fn(&Slow) -> Option<u8>) {
    let (start, mut drops) = (Instant::now(), 0);
    while clients.iter().any(|client| client.closed.is_none()) {
        assert!(
            start.elapsed() < limit,
            "{} stay open",
            clients.iter().filter(|c| c.closed.is_none()).count()
        );
        let is_due = start.elapsed() >= pause * (drops + 1);
        drops += u32::from(is_due);
        for client in clients.iter_mut().filter(|client| client.closed.is_none()) {
            if let Some(octet) = octet(client).filter(|_| is_due) {
                client.say(octet);
            }
            client.look(usize::MAX);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// When they were closed: first, middle, last.
fn closings(clients: &[Slow]) -> (Duration, Duration, Duration) {
    let mut times: Vec<_> = clients.iter().filter_map(|client| client.closed).collect();
    times.sort_unstable();
    (times[0], times[times.len() / 2], times[times.len() - 1])
}

/// S1: 2,000 heads of one octet each 5 s, and 200 connections without a word.
#[test]
fn attack_s1_slow_heads() {
    let _alone = alone();
    let (partial, silent) = scale((2_000, 200), (300, 30));
    let timeout = Duration::from_millis(limits().head_timeout_ms);
    under_attack(("S1", Kind::Slow), router, 8 * 1024, |server| {
        let (before, cut) = (resident_kib(), server.cut("head_timeout_silent"));
        let mut clients: Vec<Slow> = (0..partial + silent)
            .map(|number| Slow::connect(server, if number < partial { b"G" } else { b"" }))
            .collect();
        let all = || server.snapshots().iter().map(|s| s.connections()).sum::<u64>() >= partial + silent;
        assert!(wait_for(timeout / 2, all), "not all are accepted");
        let each = resident_kib().saturating_sub(before) as f64 / (partial + silent) as f64;
        let head = b"GET / HTTP/1.1\r\nHost: t\r\nA: ";
        let next = |client: &Slow| match client.said.len() {
            0 => None,
            at => Some(head.get(at).copied().unwrap_or(b'a')),
        };
        drip(&mut clients, timeout / 2, patience(limits().head_timeout_ms), next);
        let (first, middle, last) = closings(&clients);
        println!(
            "  {partial} slow and {silent} silent heads closed after {first:.2?}, {middle:.2?}, {last:.2?}; {each:.1} KiB each"
        );
        for (number, client) in (0..).zip(&clients) {
            let text = String::from_utf8_lossy(&client.came);
            assert_eq!(text.starts_with("HTTP/1.1 408 "), number < partial, "{number}: {text}");
            assert!(number < partial || text.is_empty(), "{text}");
        }
        // 408 is followed by a close that lingers no longer than the peer, which reads it, lets it.
        let late = scale(Duration::from_millis(500), Duration::from_secs(5))
            + Duration::from_millis(limits().linger_timeout_ms);
        assert!(
            first >= timeout - Duration::from_millis(500) && last <= timeout + late,
            "{first:?} to {last:?}"
        );
        assert!(each <= 6.0, "{each} KiB for each waiting connection");
        assert_eq!(server.cut("head_timeout_silent") - cut, silent);
    });
}

/// S2: 500 bodies of one octet each 5 s; the handler of each sees the timeout once.
#[test]
fn attack_s2_slow_bodies() {
    let _alone = alone();
    let many = scale(500, 100);
    let (grace, window) = (limits().body_grace_ms, limits().body_progress_window_ms);
    under_attack(("S2", Kind::Slow), router, 8 * 1024, |server| {
        let before = server.ended(EndReason::BodyTimeout);
        let post = b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n";
        let mut clients: Vec<Slow> = (0..many).map(|_| Slow::connect(server, post)).collect();
        drip(&mut clients, Duration::from_millis(grace / 2), patience(grace + window), |_| Some(b'x'));
        let (first, middle, last) = closings(&clients);
        println!("  {many} slow bodies closed after {first:.2?}, {middle:.2?}, {last:.2?}");
        let late = scale(Duration::from_secs(1), Duration::from_secs(5))
            + Duration::from_millis(limits().linger_timeout_ms);
        assert!(
            first >= Duration::from_millis(grace) && last <= Duration::from_millis(grace + window) + late,
            "{last:?}"
        );
        assert_eq!(server.ended(EndReason::BodyTimeout) - before, many);
    });
}

/// S3: 200 clients ask for 10 MiB with the smallest window; half of them take 100 octets a second, half take nothing.
#[test]
fn attack_s3_slow_readers() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("plain"), "plain").expect("write");
    let big = std::fs::File::create(folder.path().join("big.bin")).expect("create");
    big.set_len(10 << 20).expect("a sparse file");
    let files = Files::open(folder.path(), FilesOptions::default()).expect("open");
    let routes = move |shard: &Shard| -> Router { files.router(shard) };
    let many = scale(200, 40);
    let window = limits().write_progress_window_ms;
    // What is held for the readers is given back to the allocator, which keeps it for the next ones: a second round adds
    // nothing to it.
    under_attack(("S3", Kind::Slow), routes, many * 160, |server| {
        let (before, cut) = (resident_kib(), server.ended(EndReason::WriteTimeout));
        let mut clients: Vec<Slow> = (0..many).map(|_| ask_with_a_small_window(server)).collect();
        let (start, mut waiting, mut most, mut taken) = (Instant::now(), 0, 0, 0);
        let rest = || server.ended(EndReason::WriteTimeout) - cut < many / 2;
        while rest() {
            assert!(start.elapsed() < patience(2 * window), "readers of nothing stay");
            let pending: u64 = server.snapshots().iter().map(|shard| shard.pending_write_bytes).sum();
            waiting = waiting.max(pending / many);
            most = most.max(resident_kib().saturating_sub(before) / many);
            // An octet at a time in a window that is a hundredth of the table's would be no reader at all.
            let due = (100 * start.elapsed().as_millis() as u64 / 1000) * scale(1, 40);
            for client in clients.iter_mut().step_by(2) {
                let mut chunk = [0; 100];
                while (client.came.len() as u64) < due {
                    let Ok(count @ 1..) = client.stream.read(&mut chunk) else { break };
                    client.came.extend_from_slice(&chunk[..count]);
                    taken += count;
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        let after = start.elapsed();
        println!(
            "  {many} readers, half of them of nothing: cut after {after:.1?}; at most {waiting} octets waited and {most} KiB were held for each; {taken} octets taken"
        );
        assert!(after >= Duration::from_millis(window), "{after:?}");
        assert!(waiting <= 256 << 10, "{waiting} octets wait for each");
        assert!(most <= 512, "{most} KiB for each");
        drop(clients);
        assert!(wait_for(DEADLINE, || server.snapshots().iter().map(|s| s.connections()).sum::<u64>() <= 10));
    });
}

fn ask_with_a_small_window(server: &Attacked) -> Slow {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
    socket.set_recv_buffer_size(4096).expect("small window");
    // A segment of loopback is larger than this window.
    socket.set_tcp_mss(536).expect("small segments");
    socket.connect(&server.address.into()).expect("connect");
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"GET /big.bin HTTP/1.1\r\nHost: t\r\n\r\n").expect("send");
    stream.set_nonblocking(true).expect("nonblocking");
    Slow { stream, begun: Instant::now(), said: Vec::new(), came: Vec::new(), closed: None }
}
