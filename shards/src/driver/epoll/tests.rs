//! What only the epoll driver promises: the cost of a request, and where a read goes that would wait for a disk.

use super::{super::SendParts, *};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

const BUFFER_BYTES: usize = 4096;

fn driver() -> (EpollDriver, Arc<WakeFd>) {
    let options = DriverOptions {
        submission_entries: 8,
        completion_entries: 16,
        buffers: 8,
        buffer_bytes: BUFFER_BYTES,
        multishot_receive: true,
    };
    let wake = Arc::new(WakeFd::new().unwrap());
    (EpollDriver::new(&options, Pool::new(BUFFER_BYTES, 8), wake.clone()).unwrap(), wake)
}

fn pair(driver: &mut EpollDriver) -> (TcpStream, Descriptor) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, driver.adopt(server.into()))
}

fn next(driver: &mut EpollDriver) -> Completion {
    loop {
        if let Some(completion) = driver.next() {
            return completion;
        }
        driver.turn(Wait::AtMost(Duration::from_secs(5))).unwrap();
    }
}

#[test]
fn a_request_on_a_kept_connection_costs_one_receive_one_send_and_one_wait() {
    const REQUESTS: u64 = 100;
    let (mut driver, _wake) = driver();
    let (mut client, socket) = pair(&mut driver);
    let receive = driver.submit(Op::Receive { socket }, Owner::Waiter(Key::NONE));
    driver.turn(Wait::No).unwrap();
    let (calls, enters) = (calls::CALLS.get(), driver.enters);
    for _ in 0..REQUESTS {
        client.write_all(b"request").unwrap();
        let Outcome::Received(lease) = next(&mut driver).outcome else { panic!("a request") };
        assert_eq!(&*lease, b"request");
        let buffer = SendBuffer::new(SendParts::Vec(b"response".to_vec()));
        driver.submit(Op::Send { socket, buffer }, Owner::Waiter(Key::NONE));
        let Outcome::Sent { result, .. } = next(&mut driver).outcome else { panic!("a send's outcome") };
        assert_eq!(result.unwrap(), 8);
        client.read_exact(&mut [0; 8]).unwrap();
    }
    assert_eq!(calls::CALLS.get() - calls, 2 * REQUESTS, "one recv and one send each");
    assert_eq!(driver.enters - enters, REQUESTS, "one wait each");
    driver.cancel(receive);
    let end = next(&mut driver);
    assert!(!end.more);
    driver.close(socket);
    assert_eq!(driver.account().buffers.leased, 0);
}

#[test]
fn sends_that_complete_at_once_do_not_keep_the_driver_from_asking_for_more() {
    let (mut driver, _wake) = driver();
    let (mut client, socket) = pair(&mut driver);
    let (mut busy_client, busy) = pair(&mut driver);
    driver.submit(Op::Receive { socket }, Owner::Receiver(Key::NONE));
    client.write_all(b"hello").unwrap();
    for _ in 0..4 {
        let buffer = SendBuffer::new(SendParts::Vec(b"again".to_vec()));
        driver.submit(Op::Send { socket: busy, buffer }, Owner::Sender(Key::NONE));
        driver.turn(Wait::No).unwrap();
        while let Some(completion) = driver.next() {
            if let Outcome::Received(lease) = completion.outcome {
                assert_eq!(&*lease, b"hello");
                busy_client.read_exact(&mut [0; 5]).unwrap();
                assert_eq!(Box::new(driver).stop(Duration::from_secs(5)), 0);
                return;
            }
        }
    }
    panic!("a receive was starved by sends");
}

#[test]
fn a_cancel_before_the_turn_sends_first_what_the_socket_takes() {
    let (mut driver, _wake) = driver();
    let (mut client, socket) = pair(&mut driver);
    let send = |driver: &mut EpollDriver, len| {
        let buffer = SendBuffer::new(SendParts::Vec(vec![b'x'; len]));
        driver.submit(Op::Send { socket, buffer }, Owner::Waiter(Key::NONE))
    };
    let key = send(&mut driver, 5);
    driver.cancel(key);
    let Outcome::Sent { result, .. } = next(&mut driver).outcome else { panic!("a send's outcome") };
    assert_eq!(result.unwrap(), 5);
    client.read_exact(&mut [0; 5]).unwrap();
    let key = send(&mut driver, 7);
    driver.orphan(key);
    // More than the socket takes: the rest is given back by the cancel, and nobody writes any more.
    let mut sent = 7;
    loop {
        let key = send(&mut driver, 1 << 20);
        driver.cancel(key);
        let Outcome::Sent { result, .. } = next(&mut driver).outcome else { panic!("a send's outcome") };
        match result {
            Ok(count) => sent += count,
            Err(error) => break assert_eq!(error.raw_os_error(), Some(libc::ECANCELED)),
        }
    }
    assert_eq!(driver.account().in_flight, 0);
    driver.close(socket);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    assert_eq!(Box::new(driver).stop(Duration::from_secs(5)), 0);
}

#[test]
fn an_end_that_comes_with_the_data_is_noticed_without_another_edge() {
    let (mut driver, _wake) = driver();
    for len in [1, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES * 20 + 1] {
        let (mut client, socket) = pair(&mut driver);
        client.write_all(&vec![7; len]).unwrap();
        drop(client);
        let receive = driver.submit(Op::Receive { socket }, Owner::Waiter(Key::NONE));
        let mut got = 0;
        loop {
            match next(&mut driver).outcome {
                Outcome::Received(lease) => got += lease.len(),
                Outcome::EndOfStream => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(got, len);
        driver.cancel(receive);
        driver.close(socket);
    }
}

#[test]
fn a_released_descriptor_tells_its_edges_elsewhere_only() {
    let (mut driver, _wake) = driver();
    let (mut client, socket) = pair(&mut driver);
    let receive = driver.submit(Op::Receive { socket }, Owner::Waiter(Key::NONE));
    driver.cancel(receive);
    assert!(!next(&mut driver).more);
    // The first wait tells that the socket can be written to.
    driver.turn(Wait::No).unwrap();
    let mut elsewhere = TcpStream::from(driver.release(socket).unwrap());
    client.write_all(b"data").unwrap();
    elsewhere.read_exact(&mut [0; 4]).unwrap();
    driver.turn(Wait::No).unwrap();
    assert_eq!(driver.events.0.len(), 0, "no edge comes here any more");
}

#[test]
fn a_read_that_waits_for_a_disk_comes_back_from_a_thread() {
    let wake = Arc::new(WakeFd::new().unwrap());
    let mut reads = FileReads::new(wake.clone());
    let path = std::env::temp_dir().join(format!("shards-file-reads-{}", std::process::id()));
    std::fs::write(&path, b"from the disk").unwrap();
    let mut keys = crate::table::Table::new();
    // More than the queue and the threads hold: the rest waits in order.
    let all: Vec<Key> = (0..200).map(|_| keys.insert(())).collect();
    for key in &all {
        let file = std::fs::File::open(&path).unwrap().into();
        reads.start(FileRead { key: *key, file, offset: 5, buffer: Vec::new(), len: 64 }).unwrap();
    }
    std::fs::remove_file(path).unwrap();
    let last = *all.last().unwrap();
    let cancelled = usize::from(reads.cancel(last).is_some());
    let started = Start::new();
    let mut done = 0;
    while done < all.len() - cancelled {
        assert!(started.elapsed() < Duration::from_secs(5), "all reads come back");
        match reads.next_done() {
            Some(read) => {
                assert_eq!(read.result.unwrap(), 8);
                assert_eq!(read.buffer, b"the disk");
                assert!(keys.remove(read.key).is_some(), "each once");
                done += 1;
            }
            None => std::thread::yield_now(),
        }
    }
    assert!(wake.wakes() > 0, "a sleeping shard is told");
}
