//! Limits and faults that belong to a whole process: each test runs alone, in a process of its own.
#![cfg(not(loom))]

mod common;

use common::{
    Accepts, Echo, Setup, alone, count, cpu_ticks, drivers, eventually, listen, read_exactly, within,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use shards::{DriverChoice, DriverKind, Shard, net::Stream, time};
use std::{
    collections::BTreeMap,
    net::TcpStream,
    rc::Rc,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

#[test]
fn fault_r12_accepting_goes_on_after_descriptors_ran_out() {
    alone("fault_r12_accepting_goes_on_after_descriptors_ran_out", || {
        for setup in drivers() {
            setup.run(|shard| async move {
                let accepts = Rc::new(Accepts::default());
                let listener = listen(&shard, accepts.clone());
                let address = listener.address().tcp().expect("TCP");
                let clients: Vec<_> =
                    (0..6).map(|_| TcpStream::connect(address).expect("in the queue")).collect();
                let whole = getrlimit(Resource::Nofile);
                let three_more = common::open_descriptors() as u64 + 2;
                setrlimit(Resource::Nofile, Rlimit { current: Some(three_more), ..whole }).expect("lowered");
                // The limit is read when accepting is armed: the first round may still have the old one.
                let more: Vec<_> = std::iter::from_fn(|| TcpStream::connect(address).ok()).take(6).collect();
                let paused = || !accepts.pauses.borrow().is_empty() && listener.stats().pauses > 0;
                let before = shard.stats().turns;
                let deadline = shard.now() + Duration::from_secs(2);
                while !paused() && shard.now() < deadline {
                    time::sleep(Duration::from_millis(5)).await;
                }
                let turns = shard.stats().turns - before;
                assert!(turns < 1500, "{turns} turns: it does not rest");
                let restored = Instant::now();
                setrlimit(Resource::Nofile, whole).expect("restored");
                let late = TcpStream::connect(address).expect("in the queue");
                for _ in 0..clients.len() + more.len() + 1 {
                    let next = time::timeout(Duration::from_secs(1), accepts.next_socket()).await;
                    next.expect("accepted within a second").set_nodelay(true).expect("a live socket");
                }
                assert!(restored.elapsed() < Duration::from_secs(1), "{:?}", restored.elapsed());
                println!("  {}: rested {} times", shard.driver_name(), listener.stats().pauses);
                drop((clients, more, late));
            });
        }
    });
}

#[test]
fn fault_r20_two_hundred_rings_with_little_locked_memory() {
    alone("fault_r20_two_hundred_rings_with_little_locked_memory", || {
        let little = Rlimit { current: Some(64 * 1024), maximum: Some(64 * 1024) };
        setrlimit(Resource::Memlock, little).expect("lowered");
        let choice = shards::probe().driver;
        println!("  with 64 KiB of locked memory the probe says {}", shards::probe());
        for setup in drivers().into_iter().filter(|setup| setup.driver != DriverChoice::Epoll) {
            assert_eq!(choice, DriverKind::Uring);
            for _ in 0..200 {
                let shards = setup.builder().start(|shard| async move { shard.id() });
                let ends = shards.expect("no memory is missing").join();
                assert!(ends[0].result.is_ok() && ends[0].leaked == 0, "{ends:?}");
            }
        }
    });
}

#[test]
fn fault_r18_and_r19_forbidden_calls_lead_to_epoll_with_one_reason() {
    alone("fault_r18_and_r19_forbidden_calls_lead_to_epoll_with_one_reason", || {
        // In a container the calls may be forbidden already; then the reason is the same, and the rest holds too.
        let calls = [425, 426, 427];
        let all_and_each = calls.iter().map(std::slice::from_ref).chain([&calls[..]]);
        let mut seen = Vec::new();
        for denied in all_and_each {
            let program = std::env::current_exe().expect("the test's own program");
            let denied = denied.to_vec();
            let output = thread::spawn(move || {
                forbid(&denied);
                // The filter is inherited by what this thread starts.
                let mut child = std::process::Command::new(program);
                child.args(["--exact", "what_the_probe_finds", "--nocapture"]).env("SHARDS_ALONE", "1");
                child.output().expect("it starts")
            });
            let output = output.join().expect("no panic");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            let line =
                text.lines().find(|line| line.starts_with("  epoll")).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(line.matches("no io_uring").count(), 1, "{line}");
            seen.push(line.to_owned());
        }
        seen.iter().for_each(|line| println!("{line}"));
    });
}

/// Helper of the test above: run alone under a filter; otherwise a plain check that the probe's choice works.
#[test]
fn what_the_probe_finds() {
    println!("  {}", shards::probe());
    let setup = Setup { driver: DriverChoice::Auto, ..drivers()[0] };
    setup.run(|shard| async move {
        let listener = listen(&shard, Rc::new(Echo));
        let stream = Stream::connect(listener.address()).await.expect("connected");
        stream.write_all(b"hello".to_vec()).await.expect("sent");
        assert_eq!(read_exactly(&stream, 5).await, b"hello");
        assert_eq!(shard.driver_name(), shards::probe().driver.name());
    });
}

fn forbid(calls: &[i64]) {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let deny = SeccompAction::Errno(libc_eperm());
    let machine = std::env::consts::ARCH.try_into().expect("a known machine");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, deny, machine).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("applied");
}

fn libc_eperm() -> u32 {
    rustix::io::Errno::PERM.raw_os_error().unsigned_abs()
}

#[test]
fn fault_r32_a_shard_with_nothing_to_do_uses_no_processor() {
    alone("fault_r32_a_shard_with_nothing_to_do_uses_no_processor", || {
        for setup in drivers() {
            setup.run(|shard| async move {
                let listener = listen(&shard, Rc::new(Echo));
                let stream = Stream::connect(listener.address()).await.expect("connected");
                stream.write_all(b"once".to_vec()).await.expect("sent");
                read_exactly(&stream, 4).await;
                let (ticks, enters) = (cpu_ticks(), shard.stats().enters);
                time::sleep(Duration::from_secs(3)).await;
                let (ticks, enters) = (cpu_ticks() - ticks, shard.stats().enters - enters);
                let share = ticks as f64 / 300.0;
                println!(
                    "  {}: {:.2} % of a core in 3 s, {enters} enters",
                    shard.driver_name(),
                    share * 100.0
                );
                assert!(share < 0.01, "{ticks} ticks of 10 ms in 3 s");
                assert!(enters < 20, "{enters} enters of a sleeping shard");
            });
        }
    });
}

#[test]
fn fault_r21_an_idle_shard_is_not_shown_as_waiting_for_a_disk() {
    alone("fault_r21_an_idle_shard_is_not_shown_as_waiting_for_a_disk", || {
        if !shards::probe().flags.iter().any(|flag| flag.contains("NO_IOWAIT")) {
            println!("  left out: the kernel does not offer NO_IOWAIT: {}", shards::probe());
            return;
        }
        let idle = |setup: Setup| {
            setup.run(|_| async move {
                let before = iowait_ticks();
                time::sleep(Duration::from_millis(1500)).await;
                iowait_ticks() - before
            })
        };
        let by_driver: Vec<_> = drivers().into_iter().map(|setup| (setup.driver, idle(setup))).collect();
        println!("  iowait of the whole machine in 1.5 s, in ticks: {by_driver:?}");
        if let [(_, uring), (_, epoll)] = by_driver[..] {
            // Others may wait for disks as well; a shard shown as waiting would add 150.
            if epoll > 20 {
                println!("  left out: the machine waits for its disks without us");
                return;
            }
            assert!(uring < 100, "{uring} ticks, with epoll {epoll}");
        }
    });
}

/// Time that the processors spent idle with a task waiting for a disk (proc_stat(5), fifth number).
fn iowait_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("proc is mounted");
    let first = stat.lines().next().expect("the sum of all processors");
    first.split_whitespace().nth(5).expect("iowait").parse().expect("a number")
}

#[test]
fn fault_r49_handles_hammer_shards_that_stop_and_no_foreign_descriptor_is_written() {
    alone("fault_r49_handles_hammer_shards_that_stop_and_no_foreign_descriptor_is_written", || {
        let open = common::open_descriptors();
        for setup in drivers() {
            within(Duration::from_secs(60), move || {
                for _ in 0..count("SHARDS_HAMMERED", 15) {
                    hammer(setup);
                }
            });
        }
        assert_eq!(common::open_descriptors(), open, "wake descriptors close with their last holder");
    });
}

fn hammer(setup: Setup) {
    let shards = setup.builder().shards(2).start(|shard| async move { shard.stopped().await });
    let shards = shards.expect("started");
    let at_once = Arc::new(Barrier::new(9));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let (handle, at_once) = (shards.handles()[number % 2].clone(), at_once.clone());
            thread::spawn(move || {
                at_once.wait();
                while handle.submit_to(|_| ()).wait().is_ok() {}
                // Long after the shard's end the handle still answers, and touches no descriptor.
                for _ in 0..100 {
                    assert!(handle.execute(|_| unreachable!("nobody runs it")).is_err());
                }
            })
        })
        .collect();
    at_once.wait();
    thread::sleep(Duration::from_millis(3));
    shards.stop();
    // Numbers that become free now are given to these files: a late wake would write into one.
    let files: Vec<_> = (0..8).map(|_| tempfile::tempfile().expect("a file")).collect();
    assert!(shards.join().iter().all(|end| end.result.is_ok() && end.leaked == 0));
    let more: Vec<_> = (0..8).map(|_| tempfile::tempfile().expect("a file")).collect();
    threads.into_iter().for_each(|thread| {
        thread.join().expect("no panic");
    });
    for file in files.iter().chain(&more) {
        assert_eq!(
            file.metadata().expect("a file").len(),
            0,
            "somebody wrote into a file that is not theirs"
        );
    }
}

#[test]
fn fault_r50_short_lived_shards_hear_their_one_message() {
    alone("fault_r50_short_lived_shards_hear_their_one_message", || {
        let open = common::open_descriptors();
        for setup in drivers() {
            within(Duration::from_secs(120), move || {
                for _ in 0..count("SHARDS_STARTS", 250) {
                    let shards =
                        setup.builder().offload(0, 0).start(|shard| async move { shard.stopped().await });
                    let shards = shards.expect("started");
                    let heard = shards.handles()[0].submit_to(|shard: &Shard| shard.id().index()).wait();
                    assert_eq!(heard.expect("heard"), 0);
                    shards.stop();
                    assert!(shards.join().iter().all(|end| end.result.is_ok() && end.leaked == 0));
                }
            });
        }
        assert_eq!(common::open_descriptors(), open);
    });
}

#[test]
fn starts_and_stops_under_load_leave_nothing_behind() {
    alone("starts_and_stops_under_load_leave_nothing_behind", || {
        let open = common::open_descriptors();
        for setup in drivers() {
            for _ in 0..count("SHARDS_LOADED_STARTS", 25) {
                start_and_stop_under_load(setup);
            }
        }
        assert_eq!(common::open_descriptors(), open);
    });
}

fn start_and_stop_under_load(setup: Setup) {
    let (address_out, address) = std::sync::mpsc::channel();
    let shards = setup.builder().start(move |shard| {
        let listener = listen(&shard, Rc::new(Echo));
        address_out.send(listener.address().tcp().expect("TCP")).expect("the test listens");
        async move {
            shard.stopped().await;
            drop(listener);
        }
    });
    let shards = shards.expect("started");
    let address = address.recv().expect("bound");
    let clients: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                use std::io::{Read, Write};
                let Ok(mut client) = TcpStream::connect(address) else { return };
                while client.write_all(&[7; 3000]).is_ok() && client.read_exact(&mut [0; 3000]).is_ok() {}
            })
        })
        .collect();
    let handle = shards.handles()[0].clone();
    let deadline = Instant::now() + Duration::from_secs(10);
    while handle.submit_to(|shard| shard.stats().completions).wait().expect("it lives") < 100 {
        assert!(Instant::now() < deadline, "no load");
        thread::sleep(Duration::from_micros(200));
    }
    let began = Instant::now();
    shards.stop();
    assert!(shards.join().iter().all(|end| end.result.is_ok() && end.leaked == 0));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    clients.into_iter().for_each(|client| {
        client.join().expect("no panic");
    });
}

#[test]
fn a_shard_with_a_thousand_operations_in_flight_ends_within_a_second() {
    alone("a_shard_with_a_thousand_operations_in_flight_ends_within_a_second", || {
        let open = common::open_descriptors();
        for setup in drivers() {
            let shards = setup.builder().start(|shard| async move {
                let listener = listen(&shard, Rc::new(Echo));
                for number in 0..1000 {
                    let stream = Stream::connect(listener.address()).await.expect("connected");
                    drop(shard.spawn(async move {
                        if number % 2 == 0 {
                            // More than the other side takes: the send stays in flight.
                            drop(stream.write_all(vec![1; 64]).await);
                        }
                        drop(stream.read().await);
                        std::future::pending::<()>().await;
                    }));
                }
                let all = || shard.stats().operations_in_flight >= 1000;
                eventually(&shard, all, || format!("{}", shard.stats().operations_in_flight)).await;
                (Instant::now(), shard.stats().operations_in_flight)
            });
            let end = shards.expect("started").join().pop().expect("one");
            let (began, in_flight) = end.result.expect("it ended well");
            println!("  {:?}: {in_flight} operations were over after {:?}", setup.driver, began.elapsed());
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
            assert_eq!(end.leaked, 0);
        }
        assert_eq!(common::open_descriptors(), open);
    });
}
