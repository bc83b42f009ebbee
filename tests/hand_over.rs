//! Row 85 of the table of faults on real processes, on both drivers: a running program hands over to a new one and loses
//! nobody, neither those who wait for an answer nor those who connect meanwhile; and one that cannot start changes nothing.

mod common;

use common::{DEADLINE, Launch, Server, client::Client, for_each_driver, wait_for};
use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

/// The process that has taken over: no child of this one. Ended by its own id, also when the test fails.
struct Successor(u32);

impl Successor {
    /// Found in the log of the one before.
    fn of(server: &Server, number: usize) -> Successor {
        let mut found = None;
        let told = wait_for(DEADLINE, || {
            let log = server.stderr();
            found = log.lines().filter_map(process_in).nth(number);
            found.is_some()
        });
        assert!(told, "nobody has taken over: {}", server.stderr());
        Successor(found.expect("told"))
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.0.to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "signal {name} to {}", self.0);
    }

    /// Whoever has inherited it may not ask how it ended: a zombie is over too (proc_pid_stat(5)).
    fn is_over(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    fn end(self) {
        self.signal("TERM");
        assert!(wait_for(DEADLINE, || self.is_over()), "process {} goes on", self.0);
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.is_over() {
            self.signal("KILL");
        }
    }
}

/// `… process 123 has taken over; …`
fn process_in(line: &str) -> Option<u32> {
    line.split_once("process ")?.1.split_once(" has taken over")?.0.parse().ok()
}

/// Ends the storm, also when the test fails.
struct EndStorm<'a>(&'a AtomicBool);

impl Drop for EndStorm<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Connects, asks and hangs up, again and again; gives how often. Every one gets its whole answer.
fn storm(address: SocketAddr, over: &AtomicBool, served: &AtomicU64) {
    while !over.load(SeqCst) {
        let answer = Client::connect(address).get("/plaintext");
        assert_eq!((answer.status, answer.text()), (200, "Hello, World!"));
        served.fetch_add(1, SeqCst);
    }
}

fn park(address: SocketAddr, path: &str) -> Client {
    let mut client = Client::connect(address);
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// Hands over twice in a row under a storm of connections, with requests that wait.
fn hand_over_under_load(driver: &str, shards: &str) {
    let mut server = Launch::server(&["demo", "--shards", shards], driver).start();
    let address = server.address();
    let (over, served) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let end_storm = EndStorm(&over);
        let storms: Vec<_> = (0..3).map(|_| scope.spawn(|| storm(address, &over, &served))).collect();
        let parked: Vec<_> = (0..40).map(|_| park(address, "/delay?ms=1200")).collect();
        let idle = {
            let mut client = Client::connect(address);
            client.get("/plaintext");
            client
        };
        assert!(wait_for(DEADLINE, || served.load(SeqCst) > 200));
        server.signal("USR2");
        let first = Successor::of(&server, 0);
        // The old one is told to go: its idle connections end in good order, its requests go on.
        let mut idle = idle;
        assert!(idle.read_until_close().is_empty());
        let at = served.load(SeqCst);
        assert!(wait_for(DEADLINE, || served.load(SeqCst) > at + 200), "the new one serves");
        first.signal("USR2");
        let second = Successor::of(&server, 1);
        let at = served.load(SeqCst);
        assert!(wait_for(DEADLINE, || served.load(SeqCst) > at + 200), "the next one serves");
        for mut client in parked {
            let answer = client.read_response();
            assert_eq!((answer.status, answer.text()), (200, "waited 1200 ms\n"), "{driver}");
            assert_eq!(answer.field("connection"), Some("close"));
        }
        assert_eq!(server.wait_exit().code(), Some(0), "{driver}: {}", server.stderr());
        assert!(wait_for(DEADLINE, || first.is_over()), "the first one ends when nothing is left to it");
        drop(end_storm);
        for storm in storms {
            storm.join().expect("nobody was lost");
        }
        second.end();
    });
    println!("{driver}, {shards} shards: {} connections served, none lost", served.load(SeqCst));
}

#[test]
fn fault_85_a_hand_over_resets_nobody() {
    for_each_driver(|driver| {
        for shards in ["1", "2"] {
            hand_over_under_load(driver, shards);
        }
    });
}

/// A new version that cannot start costs nobody anything; a later one at the same place takes over.
#[test]
fn fault_85_a_program_that_cannot_start_takes_nothing_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("shardlet");
    let replace = |with: &dyn Fn(&std::path::Path)| {
        // Renamed into place: the running program keeps its own file.
        let new = folder.path().join("new");
        with(&new);
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("executable");
        fs::rename(&new, &program).expect("replaced");
    };
    let good = |at: &std::path::Path| assert!(fs::copy(env!("CARGO_BIN_EXE_shardlet"), at).is_ok());
    replace(&good);
    let flags = ["demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--shards", "1"];
    let mut server = Launch::at(&program.display().to_string(), &flags).start();
    let mut parked = park(server.address(), "/delay?ms=1500");
    for (round, broken) in ["#!/bin/sh\nexit 3\n", "no program"].into_iter().enumerate() {
        replace(&|at| fs::write(at, broken).expect("written"));
        server.signal("USR2");
        let refused = || server.stderr().matches("no hand-over, this process goes on").count() == round + 1;
        assert!(wait_for(DEADLINE, refused), "{}", server.stderr());
        assert_eq!(server.connect().get("/plaintext").status, 200, "it serves as before");
    }
    replace(&good);
    server.signal("USR2");
    let next = Successor::of(&server, 0);
    assert_eq!(server.connect().get("/plaintext").status, 200);
    assert_eq!(parked.read_response().text(), "waited 1500 ms\n");
    assert_eq!(server.wait_exit().code(), Some(0));
    // The operator's listener has gone over as well.
    let admin = server.stdout().split_once("metrics http://").and_then(|(_, rest)| {
        let address = rest.split('/').next()?;
        address.parse::<SocketAddr>().ok()
    });
    let admin = admin.expect("the start message names it");
    assert_eq!(Client::connect(admin).get("/readyz").status, 200);
    next.end();
}
