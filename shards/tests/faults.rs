//! Faults that other runtimes had (faults.md, table "Runtime"), on every set-up that lacks something.
#![cfg(not(loom))]

mod common;

use common::{
    Accepts, Echo, account, balanced, count, drivers, eventually, listen, local, pair, pattern, read_exactly,
    read_to_end, setups, within,
};
use shards::{
    Shard, ShardHandle,
    net::{AcceptMode, Binding, Stream},
    time,
};
use std::{
    cell::Cell,
    io::{Read, Write},
    net::TcpStream,
    rc::Rc,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// Opens `count` connections from a thread of its own and gives them back, without holding the shard up.
async fn foreign_clients(shard: &Shard, address: std::net::SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = move || (0..count).map(|_| TcpStream::connect(address).expect("connected")).collect();
    shard.offload(connect).await.expect("the pool is there")
}

#[test]
fn fault_r2_a_reused_descriptor_number_never_meets_its_former_life() {
    for setup in setups() {
        setup.run(move |shard| async move {
            let before = account(&shard, setup.buffers);
            let listener = listen(&shard, Rc::new(Echo));
            for life in 0..count("SHARDS_LIVES", 300) {
                let stream = Stream::connect(listener.address()).await.expect("connected");
                let name = pattern(64, life);
                stream.write_all(name.clone()).await.expect("sent");
                match life % 3 {
                    // A receive and a send are under way when the descriptor goes.
                    0 => common::poll_and_drop(stream.read()).await,
                    1 => common::poll_and_drop(stream.write_all(name)).await,
                    _ => assert_eq!(read_exactly(&stream, 64).await, name, "the answer of another life"),
                }
            }
            drop(listener);
            balanced(&shard, setup.buffers, before).await;
            assert_eq!(shard.stats().unowned_completions, 0);
        });
    }
}

#[test]
fn fault_r3_an_accept_cancelled_under_connects_leaks_no_descriptor() {
    common::alone("fault_r3_an_accept_cancelled_under_connects_leaks_no_descriptor", || {
        for setup in drivers() {
            setup.run(move |shard| async move {
                let (open, before) = (common::open_descriptors(), account(&shard, setup.buffers));
                for _ in 0..count("SHARDS_CANCELS", 100) {
                    let accepts = Rc::new(Accepts::default());
                    let listener = listen(&shard, accepts.clone());
                    let address = listener.address().tcp().expect("TCP");
                    let clients = shard.offload(move || {
                        // The listener goes while these come: some are refused.
                        (0..4).filter_map(|_| TcpStream::connect(address).ok()).count()
                    });
                    common::poll_and_drop(time::sleep(Duration::ZERO)).await;
                    drop(listener);
                    clients.await.expect("the pool is there");
                    drop(accepts);
                }
                eventually(&shard, || common::open_descriptors() == open, || "descriptors".into()).await;
                balanced(&shard, setup.buffers, before).await;
            });
        }
    });
}

#[test]
fn fault_r5_buffers_come_back_from_cancelled_receives() {
    for setup in setups() {
        setup.run(move |shard| async move {
            for round in 0..count("SHARDS_CANCELS", 100) {
                let (client, server) = pair(&shard).await;
                common::poll_and_drop(server.read()).await;
                client.write_all(pattern(10_000, round)).await.expect("sent");
                server.socket().stop_receiving();
                match round % 2 {
                    0 => drop(server),
                    _ => drop((server, client)),
                }
            }
            let all_back = || {
                let (free, loaned, leased) = shard.stats().buffers;
                leased == 0 && free + loaned <= setup.buffers && shard.stats().streams == 0
            };
            eventually(&shard, all_back, || format!("{:?}", shard.stats().buffers)).await;
            let (client, server) = pair(&shard).await;
            let sending = shard.spawn(async move { client.write_all(pattern(500_000, 1)).await.map(drop) });
            assert!(read_to_end(&server).await == pattern(500_000, 1), "the supply is whole");
            sending.await.expect("no panic").expect("sent");
        });
    }
}

#[test]
fn fault_r6_idle_sockets_on_two_buffers_neither_fail_nor_spin() {
    for setup in drivers() {
        let setup = common::Setup { buffers: 2, ..setup };
        setup.run(|shard| async move {
            let listener = listen(&shard, Rc::new(Echo));
            let address = listener.address().tcp().expect("TCP");
            let mut clients = foreign_clients(&shard, address, 500).await;
            eventually(&shard, || shard.stats().streams == 500, || "all are there".into()).await;
            let before = shard.stats();
            time::sleep(Duration::from_millis(100)).await;
            let after = shard.stats();
            assert!(after.turns - before.turns < 50, "{} turns of nothing", after.turns - before.turns);
            let echo = move || {
                let mut answer = [0; 5];
                clients[250].write_all(b"hello").expect("sent");
                clients[250].read_exact(&mut answer).expect("answered");
                answer
            };
            assert_eq!(&shard.offload(echo).await.expect("the pool is there"), b"hello");
        });
    }
}

#[test]
fn fault_r7_a_flood_leaves_the_small_ones_their_turn() {
    for setup in setups() {
        setup.run(|shard| async move {
            let listener = listen(&shard, Rc::new(Echo));
            let flood = Stream::connect(listener.address()).await.expect("connected");
            let flood = Rc::new(flood);
            let (sender, reader) = (flood.clone(), flood);
            let flooding =
                shard.spawn(async move { while sender.write_all(vec![5; 65_536]).await.is_ok() {} });
            let reading = shard.spawn(async move { while let Ok(Some(_)) = reader.read().await {} });
            let worst = Rc::new(Cell::new(Duration::ZERO));
            let small: Vec<_> = (0..50)
                .map(|number| {
                    let (address, worst) = (listener.address().clone(), worst.clone());
                    shard.spawn(async move {
                        let stream = Stream::connect(&address).await.expect("connected");
                        for round in 0..5 {
                            let (began, text) = (Instant::now(), pattern(100, number * 5 + round));
                            stream.write_all(text.clone()).await.expect("sent");
                            assert_eq!(read_exactly(&stream, 100).await, text);
                            worst.set(worst.get().max(began.elapsed()));
                        }
                    })
                })
                .collect();
            for task in small {
                task.await.expect("served");
            }
            flooding.cancel();
            reading.cancel();
            assert!(worst.get() < Duration::from_secs(2), "a small one waited {:?}", worst.get());
        });
    }
}

#[test]
fn fault_r9_no_buffer_is_written_to_while_it_is_held() {
    for setup in setups() {
        setup.run(move |shard| async move {
            let mut held = Vec::new();
            let mut streams = Vec::new();
            for number in 0..setup.buffers.min(8) {
                let (client, server) = pair(&shard).await;
                client.write_all(pattern(1000, number)).await.expect("sent");
                let lease = server.read().await.expect("no error").expect("bytes");
                held.push((number, lease));
                streams.push((client, server));
            }
            // A lease is a loan: with all of them out nobody receives. One goes back, and the rest stay as they are.
            held.truncate(held.len() - 1);
            let (client, server) = pair(&shard).await;
            let sending = shard.spawn(async move { client.write_all(pattern(400_000, 9)).await.map(drop) });
            assert!(read_to_end(&server).await == pattern(400_000, 9));
            sending.await.expect("no panic").expect("sent");
            for (number, lease) in held {
                assert!(pattern(1000, number).starts_with(&lease), "somebody wrote into a held buffer");
            }
        });
    }
}

#[test]
fn fault_r10_and_r11_a_thousand_that_are_ready_at_once_are_all_answered() {
    for setup in setups() {
        setup.run(|shard| async move {
            let listener = listen(&shard, Rc::new(Echo));
            let address = listener.address().tcp().expect("TCP");
            let clients = foreign_clients(&shard, address, 1000).await;
            eventually(&shard, || shard.stats().streams == 1000, || "all are there".into()).await;
            let (held, hold) = mpsc::channel::<()>();
            let (its, mut clients) = (shard.clone(), clients);
            let ask = move || {
                for (number, client) in clients.iter_mut().enumerate() {
                    client.write_all(&(number as u32).to_be_bytes()).expect("sent");
                }
                drop(held);
                for (number, client) in clients.iter_mut().enumerate() {
                    let mut answer = [0; 4];
                    client.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
                    client.read_exact(&mut answer).expect("answered without another word of the client");
                    assert_eq!(u32::from_be_bytes(answer), number as u32);
                }
            };
            let asking = shard.spawn(async move { its.offload(ask).await.expect("all answered") });
            time::sleep(Duration::ZERO).await;
            // The shard is busy elsewhere until all have written.
            assert_eq!(hold.recv_timeout(Duration::from_secs(10)), Err(mpsc::RecvTimeoutError::Disconnected));
            asking.await.expect("all answered");
        });
    }
}

#[test]
fn fault_r14_a_sleeping_shard_hears_of_everything_also_on_a_busy_machine() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let burners: Vec<_> = (0..3)
        .map(|_| {
            let stop = stop.clone();
            thread::spawn(move || while !stop.load(std::sync::atomic::Ordering::Relaxed) {})
        })
        .collect();
    for setup in drivers() {
        setup.run(|shard| async move {
            let listener = listen(&shard, Rc::new(Echo));
            let address = listener.address().tcp().expect("TCP");
            for sleep in [0, 1, 1000] {
                let began = Instant::now();
                time::sleep(Duration::from_millis(sleep)).await;
                let late = began.elapsed().saturating_sub(Duration::from_millis(sleep));
                assert!(
                    began.elapsed() >= Duration::from_millis(sleep) && late < Duration::from_secs(1),
                    "{late:?}"
                );
                let asked = foreign_clients(&shard, address, 1).await.remove(0);
                let answer = shard.offload(move || {
                    let mut asked = asked;
                    asked.write_all(b"?").expect("sent");
                    asked.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
                    asked.read_exact(&mut [0]).expect("answered");
                });
                answer.await.expect("answered");
            }
        });
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    burners.into_iter().for_each(|burner| burner.join().expect("it burns no more"));
}

#[test]
fn fault_r16_no_wake_of_a_sleeping_shard_is_lost() {
    for setup in drivers() {
        let shards = setup.builder().start(|shard| async move { shard.stopped().await }).expect("started");
        let handle = shards.handles()[0].clone();
        let worst = within(Duration::from_secs(20), move || {
            let ask = |handle: ShardHandle| {
                let began = Instant::now();
                handle.submit_to(|_| ()).wait().expect("answered");
                began.elapsed()
            };
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let handle = handle.clone();
                    thread::spawn(move || (0..count("SHARDS_WAKES", 1000)).map(|_| ask(handle.clone())).max())
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().expect("no panic")).max()
        });
        assert!(worst.is_some_and(|worst| worst < Duration::from_secs(1)), "{worst:?}");
        let stats = shards.handles()[0].submit_to(Shard::stats).wait().expect("answered");
        assert!(stats.wakes <= stats.sleeps, "{} wakes, {} sleeps", stats.wakes, stats.sleeps);
        shards.stop();
        shards.join();
    }
}

#[test]
fn fault_r23_a_blocking_listener_does_not_block_its_shard() {
    for setup in drivers() {
        setup.run(|shard| async move {
            // A binding is made before there is a shard: a plain, blocking socket.
            let accepts = Rc::new(Accepts::default());
            let binding = Binding::bind(&local(), 1, AcceptMode::ReusePort, 16).expect("bound");
            let _listener = binding.listen(&shard, accepts.clone()).expect("listening");
            for _ in 0..3 {
                let client = Stream::connect(binding.address()).await.expect("connected");
                let server = accepts.next().await;
                client.write_all(b"x".to_vec()).await.expect("sent");
                read_exactly(&server, 1).await;
                time::sleep(Duration::from_millis(2)).await;
            }
            // A connection that is gone again before it is accepted.
            for _ in 0..20 {
                let client =
                    foreign_clients(&shard, binding.address().tcp().expect("TCP"), 1).await.remove(0);
                socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("set");
                drop(client);
                time::timeout(Duration::from_secs(5), time::sleep(Duration::from_millis(1)))
                    .await
                    .expect("alive");
            }
        });
    }
}

/// What has faults in some kernel or library, and is therefore not used: r17, r25 to r30 and r37 of the table.
const NOT_USED: [&str; 12] = [
    "IO_LINK",
    "IO_HARDLINK",
    "LinkTimeout",
    "SendZc",
    "setup_sqpoll",
    "RecvMultiBundle",
    "MsgRing",
    // r37: TLS in the kernel (tcp(7), TCP_ULP).
    "TCP_ULP",
    "TcpUlp",
    "tcp_ulp",
    "SOL_TLS",
    "ktls",
];

#[test]
fn fault_r27_to_r30_links_rings_of_the_kernel_and_zero_copy_are_not_used() {
    let mut read = 0;
    for folder in ["/src", "/../src"] {
        let mut files = vec![std::path::PathBuf::from(format!("{}{folder}", env!("CARGO_MANIFEST_DIR")))];
        while let Some(path) = files.pop() {
            if path.is_dir() {
                files.extend(path.read_dir().expect("readable").map(|entry| entry.expect("an entry").path()));
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("readable");
            read += 1;
            for word in NOT_USED {
                assert!(!text.contains(word), "{}: {word} has faults that faults.md names", path.display());
            }
            // r29: the least wait of an enter (io_uring_enter(2)) is declared, for the kernel reads it, and zero.
            let told = |word| text.matches(word).count();
            let none = told("min_wait_us: u32") + told("min_wait_us: 0,");
            assert_eq!(told("min_wait"), none, "{}: a least wait ignores single completions", path.display());
        }
    }
    assert!(read > 150, "{read} files");
}

/// The versions of a package in the workspace's Cargo.lock.
fn locked(package: &str) -> Vec<[u64; 3]> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock"));
    let text = text.expect("the workspace's Cargo.lock");
    let name = format!("name = \"{package}\"");
    let parts = text.split("[[package]]").filter(|part| part.lines().any(|line| line == name));
    let versions = parts.map(|part| {
        let version = part.lines().find_map(|line| line.strip_prefix("version = "));
        let numbers = version.expect("a version").trim_matches('"').split('.').map(|text| text.parse());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().expect("a version of numbers");
        numbers.try_into().expect("three numbers")
    });
    versions.collect()
}

#[test]
fn fault_r37_r39_no_tls_in_the_kernel_and_a_channel_without_its_race() {
    let channels = locked("crossbeam-channel");
    assert!(!channels.is_empty(), "the channel is used");
    assert!(channels.iter().all(|version| *version >= [0, 5, 15]), "{channels:?} frees memory twice");
    assert!(locked("ktls").is_empty() && locked("ktls-core").is_empty());
}

#[test]
fn fault_r32_a_task_that_always_yields_starves_nobody() {
    for setup in setups() {
        setup.run(|shard| async move {
            let selfish = shard.spawn(std::future::poll_fn::<(), _>(|context| {
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            }));
            let (client, server) = pair(&shard).await;
            for round in 0..10 {
                client.write_all(pattern(100, round)).await.expect("sent");
                assert_eq!(read_exactly(&server, 100).await, pattern(100, round));
                time::sleep(Duration::from_millis(1)).await;
            }
            selfish.cancel();
        });
    }
}

#[test]
fn fault_r33_a_resolver_that_hangs_holds_up_nobody_else() {
    for setup in drivers() {
        setup.run(|shard| async move {
            let (release, hang) = mpsc::channel::<()>();
            // What getaddrinfo(3) does with a server that does not answer, on one of the pool's two threads.
            let resolver = move || hang.recv_timeout(Duration::from_secs(5)).is_ok();
            let its = shard.clone();
            let hanging = shard.spawn(async move { its.offload(resolver).await.expect("the pool is there") });
            let listener = listen(&shard, Rc::new(Echo));
            let began = Instant::now();
            let stream = Stream::connect(listener.address()).await.expect("connected");
            stream.write_all(b"ping".to_vec()).await.expect("sent");
            assert_eq!(read_exactly(&stream, 4).await, b"ping");
            shard.resolve("127.0.0.1", 80).await.expect("the other thread answers");
            assert!(began.elapsed() < Duration::from_secs(2) && !hanging.is_finished());
            drop(release);
            hanging.await.expect("no panic");
        });
    }
}

#[test]
fn fault_r34_the_acceptor_spreads_long_connections_evenly() {
    for setup in drivers() {
        let (binding, shards) = spread(setup, AcceptMode::Acceptor, 4);
        let address = binding.address().tcp().expect("TCP");
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).expect("connected")).collect();
        let counts = wait_for_counts(shards.handles(), 64);
        let most = *counts.iter().max().expect("four") as f64;
        assert!(most / 16.0 <= 1.2, "{counts:?}");
        // A shard that has left gets nothing more, and nobody is turned away.
        shards.handles()[2].stop();
        within_condition(|| shards.handles()[2].is_stopped());
        let more: Vec<_> = (0..30).map(|_| TcpStream::connect(address).expect("connected")).collect();
        for mut client in more.iter() {
            client.write_all(b"x").expect("sent");
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
            client.read_exact(&mut [0]).expect("served by another shard");
        }
        drop((clients, more));
        shards.stop();
        assert!(shards.join().iter().all(|end| end.leaked == 0 && end.result.is_ok()));
    }
}

#[test]
fn fault_r34_a_port_of_their_own_for_each_shard_serves_all() {
    for setup in drivers() {
        let (binding, shards) = spread(setup, AcceptMode::ReusePort, 2);
        let address = binding.address().tcp().expect("TCP");
        let clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).expect("connected")).collect();
        let counts = wait_for_counts(shards.handles(), 64);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        println!("  {:?}: max/mean {:.2}", setup.driver, *counts.iter().max().expect("two") as f64 / 32.0);
        drop(clients);
        shards.stop();
        shards.join();
    }
}

fn spread(setup: common::Setup, mode: AcceptMode, count: usize) -> (Binding, shards::Shards<()>) {
    let binding = Binding::bind(&local(), count, mode, 1024).expect("bound");
    let theirs = binding.clone();
    let shards = setup.builder().shards(count).start(move |shard| {
        let listener = theirs.listen(&shard, Rc::new(Echo)).expect("listening");
        async move {
            shard.stopped().await;
            drop(listener);
        }
    });
    let shards = shards.expect("started");
    // A shard counts from when it listens.
    shards.handles().iter().for_each(|handle| handle.submit_to(|_| ()).wait().expect("it listens"));
    (binding, shards)
}

fn wait_for_counts(handles: &[ShardHandle], all: usize) -> Vec<usize> {
    let counts = || handles.iter().map(ShardHandle::connections).collect::<Vec<_>>();
    within_condition(|| counts().iter().sum::<usize>() == all);
    counts()
}

fn within_condition(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 10 s");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn fault_r36_a_closed_socket_keeps_no_operation_alive() {
    for setup in setups() {
        setup.run(move |shard| async move {
            let (client, server) = pair(&shard).await;
            eventually(&shard, || shard.stats().descriptors == 2, || "the listener is closed".into()).await;
            common::poll_and_drop(server.read()).await;
            let before = account(&shard, setup.buffers);
            drop(server);
            // Closing is told to the peer at once, and the armed receive is not left behind.
            assert!(client.read().await.is_ok_and(|end| end.is_none()));
            let after =
                common::Account { streams: 1, descriptors: 1, operations: 0, connections: 1, ..before };
            balanced(&shard, setup.buffers, after).await;
        });
    }
}
