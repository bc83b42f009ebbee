//! What the tests of the runtime share: the ways to set a shard up, a pair of connected streams, accounts that must
//! balance, and deadlines. It tests nothing.
#![allow(dead_code, reason = "each test program uses its own part")]
#![allow(unreachable_pub, reason = "a module that several test programs share")]

use shards::{
    DriverChoice, DriverKind, Shard, ShardEnd, Shards,
    net::{AcceptEvents, Listener, Socket, SocketAddress, Stream},
    time,
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    future::Future,
    io,
    process::Command,
    rc::Rc,
    sync::mpsc,
    task::{Poll, Waker},
    thread,
    time::Duration,
};

/// One way to set a shard up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub driver: DriverChoice,
    pub ring: (u32, u32),
    pub buffers: usize,
    pub multishot: bool,
}

const URING: Setup = Setup { driver: DriverChoice::Uring, ring: (256, 1024), buffers: 64, multishot: true };
const EPOLL: Setup = Setup { driver: DriverChoice::Epoll, ..URING };

/// Both drivers with room enough; only epoll, said aloud, where io_uring cannot work.
pub fn drivers() -> Vec<Setup> {
    keep_possible(vec![URING, EPOLL])
}

/// Both drivers, and each of them short of something: queues of 4 and 16, two buffers, no multishot receive.
pub fn setups() -> Vec<Setup> {
    keep_possible(vec![
        URING,
        Setup { ring: (4, 16), ..URING },
        Setup { buffers: 2, ..URING },
        Setup { multishot: false, ..URING },
        Setup { ring: (4, 16), buffers: 2, multishot: false, ..URING },
        EPOLL,
        Setup { buffers: 2, ..EPOLL },
    ])
}

fn keep_possible(mut setups: Vec<Setup>) -> Vec<Setup> {
    let report = shards::probe();
    if report.driver != DriverKind::Uring {
        println!("io_uring left out: {report}");
        setups.retain(|setup| setup.driver == DriverChoice::Epoll);
    }
    setups
}

impl Setup {
    pub fn builder(&self) -> shards::Builder {
        Shards::builder()
            .shards(1)
            .cores(Vec::new())
            .driver(self.driver)
            .ring_entries(self.ring.0, self.ring.1)
            .buffers(self.buffers, 4096)
            .multishot_receive(self.multishot)
            .offload(2, 64)
    }

    /// Runs a root future on one shard to its end.
    pub fn run<F, R>(&self, root: F) -> R::Output
    where
        F: Fn(Shard) -> R + Send + Sync + 'static,
        R: Future + 'static,
        R::Output: Send + 'static,
    {
        let setup = *self;
        println!("with {setup:?}");
        within(Duration::from_secs(30), move || {
            let shards = setup.builder().start(root).expect("the shard starts");
            let ShardEnd { result, leaked } = shards.join().pop().expect("one shard");
            assert_eq!(leaked, 0, "every operation came back");
            result.unwrap_or_else(|error| panic!("{setup:?}: {error}"))
        })
    }
}

/// Runs `f` on a thread of its own; a panic in it is the caller's, and so is one that takes too long.
pub fn within<T: Send + 'static>(limit: Duration, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        // A caller that has given up does not listen.
        let _ = done.send(f());
    });
    match result.recv_timeout(limit) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("not over after {limit:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

/// Runs the test alone in a process of its own: for limits and for counts that belong to a whole process.
pub fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os("SHARDS_ALONE").is_some() {
        return body();
    }
    let program = std::env::current_exe().expect("the test's own program");
    let output =
        Command::new(program).args(["--exact", test, "--nocapture"]).env("SHARDS_ALONE", "1").output();
    let output = output.expect("the test's own program starts");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().filter(|line| line.starts_with("  ")).for_each(|line| println!("{line}"));
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "the test {test} did not run: {text}");
}

/// A number from the environment, for longer runs than everyday's.
pub fn count(name: &str, everyday: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(everyday)
}

/// What a shard holds; equal before and after whatever leaks nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    pub streams: usize,
    pub operations: usize,
    pub descriptors: usize,
    pub tasks: usize,
    pub timers: usize,
    pub leased: usize,
    pub buffers_lost: bool,
    pub connections: usize,
}

pub fn account(shard: &Shard, buffers: usize) -> Account {
    let stats = shard.stats();
    let (free, loaned, leased) = stats.buffers;
    Account {
        streams: stats.streams,
        operations: stats.operations_in_flight,
        descriptors: stats.descriptors,
        tasks: stats.tasks,
        timers: stats.timers,
        leased,
        buffers_lost: free + loaned + leased > buffers,
        connections: shard.handle().connections(),
    }
}

/// Waits until the shard holds what it held before.
pub async fn balanced(shard: &Shard, buffers: usize, before: Account) {
    eventually(
        shard,
        || account(shard, buffers) == before,
        || format!("before {before:?}\n   now {:?}", account(shard, buffers)),
    )
    .await;
}

/// Waits for a condition, with a deadline.
pub async fn eventually(shard: &Shard, holds: impl Fn() -> bool, say: impl Fn() -> String) {
    let deadline = shard.now() + Duration::from_secs(10);
    while !holds() {
        assert!(shard.now() < deadline, "not within 10 s: {}", say());
        // The timer of this very sleep must not be in the account when it is looked at.
        time::sleep(Duration::from_millis(1)).await;
    }
}

pub fn local() -> SocketAddress {
    "127.0.0.1:0".parse().expect("an address")
}

/// Accepted sockets, to be awaited one by one.
#[derive(Default)]
pub struct Accepts {
    sockets: RefCell<VecDeque<Socket>>,
    waker: RefCell<Option<Waker>>,
    pub pauses: RefCell<Vec<io::ErrorKind>>,
}

impl AcceptEvents for Accepts {
    fn on_accepted(&self, _shard: &Shard, socket: Socket) {
        self.sockets.borrow_mut().push_back(socket);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn on_accept_paused(&self, _shard: &Shard, error: &io::Error) {
        self.pauses.borrow_mut().push(error.kind());
    }
}

impl Accepts {
    pub async fn next(&self) -> Stream {
        Stream::new(self.next_socket().await)
    }

    pub async fn next_socket(&self) -> Socket {
        std::future::poll_fn(|context| match self.sockets.borrow_mut().pop_front() {
            Some(socket) => Poll::Ready(socket),
            None => {
                self.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// Answers with what it gets.
pub struct Echo;

impl AcceptEvents for Echo {
    fn on_accepted(&self, shard: &Shard, socket: Socket) {
        let stream = Stream::new(socket);
        // The handle is dropped: the task runs on.
        drop(shard.spawn(async move {
            while let Ok(Some(lease)) = stream.read().await {
                if stream.write_bytes(lease.into_bytes()).await.is_err() {
                    break;
                }
            }
        }));
    }
}

pub fn listen(shard: &Shard, events: Rc<dyn AcceptEvents>) -> Listener {
    Listener::bind(shard, &local(), events).expect("a listener")
}

/// Two connected streams of this shard.
pub async fn pair(shard: &Shard) -> (Stream, Stream) {
    let accepts = Rc::new(Accepts::default());
    let listener = listen(shard, accepts.clone());
    let client = Stream::connect(listener.address()).await.expect("connected");
    (client, accepts.next().await)
}

/// Reads exactly this much.
pub async fn read_exactly(stream: &Stream, bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        let lease = stream.read().await.expect("no error").expect("not the end");
        all.extend_from_slice(&lease);
    }
    assert_eq!(all.len(), bytes, "not more than was sent");
    all
}

pub async fn read_to_end(stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(lease) = stream.read().await.expect("no error") {
        all.extend_from_slice(&lease);
    }
    all
}

/// Bytes that differ by place and by `seed`.
pub fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|place| ((place * 31 + place / 251 + seed * 17) % 251) as u8).collect()
}

/// Polls a future once and drops it.
pub async fn poll_and_drop<F: Future>(future: F) {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| {
        // Whether it is ready already is not asked here.
        let _ = future.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
}

/// Processor time of this process, in clock ticks of 10 ms (proc_pid_stat(5), utime + stime).
pub fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is mounted");
    let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
    let fields: Vec<_> = after_name.split_whitespace().collect();
    fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
}

/// Open descriptors of this process.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}
