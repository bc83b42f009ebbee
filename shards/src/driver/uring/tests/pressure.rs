//! Too few buffers, too small queues, too much at once.

use super::*;

#[test]
fn fault_r6_enobufs_at_arm_on_idle_socket() {
    both_modes(|options| {
        let options = DriverOptions { buffers: 2, completion_entries: 2048, ..options };
        let mut driver = driver(&options);
        let mut leases = Vec::new();
        // Both buffers are taken before the idle sockets are armed.
        let (mut greedy, greedy_socket) = pair(&mut driver);
        let greedy_key = driver.submit(Op::Receive { socket: greedy_socket }, owner());
        greedy.write_all(&pattern(8192, 0)).unwrap();
        while leases.len() < 2 {
            let Outcome::Received(lease) = completion(&mut driver).outcome else { panic!("bytes") };
            leases.push(lease);
        }
        let mut streams: Vec<_> = (0..500).map(|_| pair(&mut driver)).collect();
        let keys: Vec<_> = streams
            .iter()
            .map(|(_, socket)| driver.submit(Op::Receive { socket: *socket }, owner()))
            .collect();
        quiet_until(&mut driver, |driver| driver.ring.queued() == 0);
        let enters = driver.counts.enters;
        assert!(!driver.has_work(), "idle sockets make no work");
        assert_eq!(driver.counts.buffer_shortages, 0, "an idle socket wants no buffer");

        streams[250].0.write_all(b"hello").unwrap();
        quiet_until(&mut driver, |driver| driver.counts.buffer_shortages == 1);
        for _ in 0..5 {
            driver.turn(Wait::AtMost(Duration::from_millis(2))).unwrap();
            assert!(driver.next().is_none() && !driver.has_work());
        }
        assert!(driver.counts.enters < enters + 50, "no spinning while there is no buffer");
        assert_eq!(driver.counts.buffer_shortages, 1, "not tried again without a buffer");
        leases.clear();
        let served = completion(&mut driver);
        assert_eq!(served.key, keys[250]);
        assert!(matches!(served.outcome, Outcome::Received(lease) if &*lease == b"hello"));

        for key in keys.iter().chain([&greedy_key]) {
            driver.orphan(*key);
        }
        quiet_until(&mut driver, |driver| driver.account().in_flight == 0);
        for socket in streams.iter().map(|(_, socket)| *socket).chain([greedy_socket]) {
            driver.close(socket);
        }
        finish(driver);
    });
}

#[test]
fn a_starved_receive_can_be_cancelled() {
    let mut driver = driver(&DriverOptions { buffers: 1, ..OPTIONS });
    let (mut peer, socket) = pair(&mut driver);
    peer.write_all(&pattern(3 * 4096, 0)).unwrap();
    let key = driver.submit(Op::Receive { socket }, owner());
    let Outcome::Received(kept) = completion(&mut driver).outcome else { panic!("bytes") };
    quiet_until(&mut driver, |driver| driver.starved.len() == 1);
    driver.cancel(key);
    let end = completion(&mut driver);
    assert_cancelled(&end.outcome);
    drop(kept);
    driver.submit(Op::Receive { socket }, owner());
    assert!(matches!(completion(&mut driver).outcome, Outcome::Received(_)));
    driver.shutdown(socket, Shutdown::Both).unwrap();
    while completion(&mut driver).more {}
    driver.close(socket);
    finish(driver);
}

#[test]
fn fault_r7_r9_many_flood_two_buffers_and_every_byte_is_right() {
    both_modes(|options| {
        let account = echo_with(&DriverOptions { buffers: 2, buffer_bytes: 512, ..options }, 40, 20_000);
        assert!(account.buffers.loaned <= 2);
    });
}

#[test]
fn fault_r10_r15_tiny_queues_only_make_it_slow() {
    both_modes(|options| {
        let options = DriverOptions { submission_entries: 4, completion_entries: 16, ..options };
        let account = echo_with(&options, 300, 700);
        assert!(
            account.overflows > 0 || !options.multishot_receive,
            "the queue was small enough to overflow"
        );
    });
}

#[test]
fn fault_r11_a_thousand_sockets_ready_at_once() {
    both_modes(|options| {
        let options = DriverOptions { completion_entries: 4096, buffers: 64, ..options };
        let mut driver = driver(&options);
        let mut echo = Echo::default();
        let mut peers = Vec::new();
        for _ in 0..1000 {
            let (peer, socket) = pair(&mut driver);
            echo.serve(&mut driver, socket);
            peers.push(peer);
        }
        driver.turn(Wait::No).unwrap();
        for (index, peer) in peers.iter_mut().enumerate() {
            peer.write_all(&pattern(100, index)).unwrap();
        }
        // The shard sleeps whenever the driver says that it may: nobody sends anything more.
        let mut answered = 0;
        let deadline = Instant::now() + LONG;
        while answered < 1000 {
            assert!(Instant::now() < deadline, "{answered} answered");
            echo.step(&mut driver, LONG);
            answered = peers.iter().filter(|peer| rustix::io::ioctl_fionread(peer).unwrap() == 100).count();
        }
        for (index, peer) in peers.iter_mut().enumerate() {
            let mut back = [0; 100];
            peer.read_exact(&mut back).unwrap();
            assert_eq!(back[..], pattern(100, index));
        }
        drop(peers);
        echo.run_until(&mut driver, |echo| echo.sending.is_empty());
        finish(driver);
    });
}

#[test]
fn fault_r12_accept_ends_at_the_descriptor_limit_and_goes_on_after_it() {
    // The limit is the process's: a child of its own runs the test.
    const CHILD: &str = "SHARDS_TEST_DESCRIPTOR_LIMIT";
    if std::env::var_os(CHILD).is_none() {
        let this = "driver::uring::tests::pressure::fault_r12_accept_ends_at_the_descriptor_limit_and_goes_on_after_it";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", this, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the child ran the test");
        return;
    }
    let mut driver = driver(&OPTIONS);
    let at = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let (listener, Address::Tcp(address)) = driver.listen(&at, LISTEN).unwrap() else {
        panic!("a TCP address")
    };
    let clients: Vec<_> = (0..6).map(|_| TcpStream::connect(address).unwrap()).collect();
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let lowest_free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let tight = rustix::process::Rlimit { current: Some(lowest_free + 3), ..limits };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, tight).unwrap();
    driver.submit(Op::Accept { listener }, owner());
    let mut accepted = Vec::new();
    let end = loop {
        match completion(&mut driver) {
            Completion { outcome: Outcome::Accepted(socket), .. } => accepted.push(socket),
            end => break end,
        }
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
    let Outcome::Failed(error) = &end.outcome else { panic!("{end:?}") };
    assert_eq!((error.raw_os_error(), end.more), (Some(libc::EMFILE), false));
    assert!(accepted.len() < clients.len());
    let key = driver.submit(Op::Accept { listener }, owner());
    while accepted.len() < clients.len() {
        let Outcome::Accepted(socket) = completion(&mut driver).outcome else { panic!("a waiting client") };
        accepted.push(socket);
    }
    driver.orphan(key);
    quiet_until(&mut driver, |driver| driver.account().in_flight == 0);
    for socket in accepted.into_iter().chain([listener]) {
        driver.close(socket);
    }
    finish(driver);
}

#[test]
fn entries_that_found_no_room_go_first_at_the_next_turn() {
    let mut driver = driver(&DriverOptions { submission_entries: 4, ..OPTIONS });
    let (mut peer, socket) = pair(&mut driver);
    driver.backlog.push_back(entries::cancel_entry(Kind::Receive, Key::NONE));
    let key = driver.submit(Op::Receive { socket }, owner());
    driver.cancel(key);
    for _ in 0..20 {
        driver.push(entries::cancel_entry(Kind::Receive, Key::NONE));
    }
    assert!(driver.has_work(), "a backlog is work");
    assert_cancelled(&completion(&mut driver).outcome);
    assert!(driver.backlog.is_empty());
    driver.submit(Op::Receive { socket }, owner());
    peer.write_all(b"after").unwrap();
    assert!(matches!(completion(&mut driver).outcome, Outcome::Received(_)));
    drop(peer);
    assert!(matches!(completion(&mut driver).outcome, Outcome::EndOfStream));
    driver.close(socket);
    finish(driver);
}

#[test]
fn a_wake_that_the_kernel_ended_is_armed_again() {
    let wake = Arc::new(WakeFd::new().unwrap());
    let mut driver = UringDriver::new(&OPTIONS, Pool::new(4096, 16), wake.clone()).map(Box::new).unwrap();
    driver.turn(Wait::No).unwrap();
    // Ends the poll as the kernel does when its queue is full: without MORE.
    let poll = user_data(Kind::Wake, Key::NONE);
    driver
        .push(io_uring::opcode::AsyncCancel::new(poll).build().user_data(user_data(Kind::Cancel, Key::NONE)));
    for _ in 0..2 {
        driver.turn(Wait::AtMost(Duration::from_millis(10))).unwrap();
        assert!(driver.next().is_none());
    }
    let started = Instant::now();
    wake.wake();
    driver.turn(Wait::AtMost(LONG)).unwrap();
    assert!(started.elapsed() < LONG / 2 && driver.wake_armed);
    finish(driver);
}
