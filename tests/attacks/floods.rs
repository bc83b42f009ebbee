//! F1, F4, F10: connects, long heads and compression, many at a time.

use super::{
    common::{DEADLINE, client::Client, process, wait_for},
    frame::{Kind, alone, connect_from, router, scale, under_attack},
};
use shardlet::{
    Router,
    handlers::files::{Files, FilesOptions},
};
use shards::Shard;
use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

/// F1: 20,000 connects as fast as two clients can, each closed at once.
#[test]
fn attack_f1_connect_storm() {
    let _alone = alone();
    let each = scale(10_000, 1_000);
    under_attack(("F1", Kind::Flood), router, 8 * 1024, |server| {
        let (address, start) = (server.address, Instant::now());
        thread::scope(|scope| {
            for last in [100, 200] {
                // An address for each five hundred: a search for a free port would be most of the work.
                let connect = move |number: u8| connect_from(last + number, address).expect("connect");
                scope.spawn(move || (0..each).for_each(|number| drop(connect((number % 20) as u8))));
            }
        });
        println!("  {} connects in {:.2?}", 2 * each, start.elapsed());
    });
}

/// F4: the work for a head is linear in its octets, however they come: twice the length costs twice the time.
#[test]
fn attack_f4_work_is_linear() {
    let _alone = alone();
    let rounds = scale(2_000, 200);
    under_attack(("F4", Kind::Flood), router, 8 * 1024, |server| {
        for (kind, piece) in [("in one piece", usize::MAX), ("in pieces of 600 octets", 600)] {
            let one_field =
                |len: usize| format!("GET /plain HTTP/1.1\r\nHost: t\r\nA: {}\r\n\r\n", "a".repeat(len));
            let short = time_of(server.address, &one_field(15 << 10), piece, 2 * rounds);
            let long = time_of(server.address, &one_field(30 << 10), piece, rounds);
            let ratio = long.as_secs_f64() / short.as_secs_f64();
            println!(
                "  {rounds} heads of 30 KiB {kind}: {:.1} µs each, {ratio:.2} times two of 15 KiB",
                long.as_secs_f64() * 1e6 / f64::from(rounds)
            );
            assert!(ratio <= 2.0, "{ratio} times the work for the same octets");
        }
    });
}

/// CPU time of the server's threads and of the client for so many answers: the client's part is linear.
fn time_of(address: std::net::SocketAddr, head: &str, piece: usize, rounds: u32) -> Duration {
    let mut client = Client::connect(address);
    let before = process::cpu_time_exact(std::process::id());
    for _ in 0..rounds {
        for part in head.as_bytes().chunks(piece) {
            client.stream().write_all(part).expect("send");
        }
        assert_eq!(client.read_response().status, 200);
    }
    process::cpu_time_exact(std::process::id()) - before
}

/// F10: 500 clients want compression at once, of the largest files that are compressed and of larger ones; no turn of a
/// loop is long, and who finds no free place gets the file as it is.
#[test]
fn attack_f10_costly_compression() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("plain"), "plain").expect("write");
    let text: String = (0..)
        .map(|number: u32| format!("{} of a text\n", number.wrapping_mul(2_654_435_761)))
        .take(60_000)
        .collect();
    let text = &text.as_bytes()[..1 << 20];
    std::fs::write(folder.path().join("most.txt"), text).expect("write");
    std::fs::write(folder.path().join("more.txt"), text.repeat(10)).expect("write");
    let mut options = FilesOptions::default();
    (options.compress, options.cache_bytes) = (true, 0);
    let files = Files::open(folder.path(), options).expect("open");
    let routes = move |shard: &Shard| -> Router { files.router(shard) };
    let many = scale(500, 24);
    under_attack(("F10", Kind::Flood), routes, 128 * 1024, |server| {
        let (address, start) = (server.address, Instant::now());
        // All ask before anybody reads; then four take the answers, so that not five hundred threads want the CPU.
        let mut clients: Vec<(Client, usize)> =
            (0..many).map(|number| ask_for_text(address, number)).collect();
        let part = clients.len().div_ceil(4);
        let coded: usize = thread::scope(|scope| {
            let readers: Vec<_> = clients
                .chunks_mut(part)
                .map(|part| {
                    scope.spawn(move || {
                        part.iter_mut()
                            .map(|(client, len)| usize::from(is_coded(client, *len)))
                            .sum::<usize>()
                    })
                })
                .collect();
            readers.into_iter().map(|reader| reader.join().expect("answered")).sum()
        });
        drop(clients);
        let longest = server.snapshots().iter().map(|shard| shard.runtime.longest_callback).max();
        println!(
            "  {many} clients in {:.1?}: {coded} answers coded, the others plain; longest callback {longest:.1?}",
            start.elapsed()
        );
        assert!((1..many - many / 10).contains(&coded) || many < 50 && coded >= 1, "{coded} coded");
        assert!(longest <= Some(scale(Duration::from_millis(100), Duration::from_secs(2))), "{longest:?}");
        assert!(wait_for(DEADLINE, || server.snapshots().iter().all(|shard| shard.life_cycle.live <= 5)));
    });
}

/// One of ten asks for the text that is too long to be compressed.
fn ask_for_text(address: std::net::SocketAddr, number: usize) -> (Client, usize) {
    let (path, len) = if number.is_multiple_of(10) { ("more.txt", 10 << 20) } else { ("most.txt", 1 << 20) };
    let mut client = Client::connect(address);
    client.stream().set_read_timeout(Some(DEADLINE * 4)).expect("timeout");
    client.send(format!("GET /{path} HTTP/1.1\r\nHost: t\r\nAccept-Encoding: br\r\n\r\n"));
    (client, len)
}

/// Reads a whole answer and keeps nothing of it: the memory that is looked at is this process's.
fn is_coded(client: &mut Client, len: usize) -> bool {
    let head = String::from_utf8(client.take_until(b"\r\n\r\n")).expect("text");
    let is_coded = head.contains("\r\nContent-Encoding: br\r\n");
    let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut rest: usize = length.expect("a length").parse().expect("a number");
    assert!(head.starts_with("HTTP/1.1 200 ") && (is_coded || rest == len), "{head}");
    assert!(!is_coded || len == 1 << 20, "coded beyond the bound");
    while rest > 0 {
        rest -= client.read_exact(rest.min(1 << 16)).len();
    }
    is_coded
}
