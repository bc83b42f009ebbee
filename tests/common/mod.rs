//! The harness of the integration tests: starts the built program, finds the address it printed, and ends it by its
//! own pid. `client` speaks to it in raw bytes, `process` looks at it from outside through /proc, `confine` starts it
//! under limits and filters, `library` starts servers of the library in this process. Every wait has a deadline.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of the harness")]

pub mod client;
pub mod confine;
pub mod library;
pub mod process;
pub mod tree;

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};

/// How long a start, a stop or an answer may take before a test gives up. Generous: a slow machine is no failure.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until the condition holds; gives whether it did before the deadline.
#[must_use]
pub fn wait_for(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the test on both drivers. io_uring is left out, aloud, only where the program itself says it cannot work.
pub fn for_each_driver(test: impl Fn(&str)) {
    match uring_reason() {
        None => test("uring"),
        Some(reason) => println!("uring left out: {reason}"),
    }
    test("epoll");
}

/// Runs the test against a server of the library in this process, with one shard and these routes, on both drivers.
pub fn for_each_router(router: fn() -> shardlet::Router, test: impl Fn(SocketAddr)) {
    for_each_driver(|driver| {
        let driver =
            if driver == "uring" { shards::DriverChoice::Uring } else { shards::DriverChoice::Epoll };
        let listen: shards::net::SocketAddress = "127.0.0.1:0".parse().expect("an address");
        let builder = shardlet::Server::builder().listen(listen).shards(1).driver(driver);
        let server = builder.start(move |_| router()).expect("the server starts");
        test(server.address().tcp().expect("a TCP address"));
    });
}

/// Why io_uring cannot work here, in the words of `shardlet doctor`; `None` where it works.
pub fn uring_reason() -> Option<&'static str> {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let doctor = Launch::new(["doctor"]).run_to_end();
        let line = doctor.stdout.lines().find(|line| line.contains(" driver "));
        let line =
            line.unwrap_or_else(|| panic!("doctor names no driver:\n{}{}", doctor.stdout, doctor.stderr));
        (!line.contains("io_uring works")).then(|| line.to_string())
    };
    REASON.get_or_init(find).as_deref()
}

/// How to start the program.
#[derive(Debug, Clone)]
pub struct Launch {
    program: String,
    args: Vec<String>,
    confinement: confine::Confinement,
}

impl Launch {
    /// With these arguments. A server must be told port 0 (`127.0.0.1:0`).
    pub fn new<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Launch {
        Launch::program(env!("CARGO_BIN_EXE_shardlet"), args)
    }

    /// One of the examples, which cargo builds beside the program; `--test` alone does not, so that is made up for.
    pub fn example(name: &str, args: &[&str]) -> Launch {
        let path = Path::new(env!("CARGO_BIN_EXE_shardlet")).with_file_name("examples").join(name);
        if !path.exists() {
            let built = Command::new(env!("CARGO")).args(["build", "--example", name]).status();
            assert!(built.expect("cargo runs").success() && path.exists(), "no {}", path.display());
        }
        Launch::program(&path.display().to_string(), args.iter().copied())
    }

    /// A program at another place.
    pub fn at(program: &str, args: &[&str]) -> Launch {
        Launch::program(program, args.iter().copied())
    }

    fn program<S: Into<String>>(program: &str, args: impl IntoIterator<Item = S>) -> Launch {
        let args = args.into_iter().map(Into::into).collect();
        Launch { program: program.into(), args, confinement: confine::Confinement::default() }
    }

    /// A server on any loopback port, without an admin listener.
    pub fn server(command: &[&str], driver: &str) -> Launch {
        let flags = ["--listen", "127.0.0.1:0", "--admin", "off", "--driver", driver];
        Launch::new(command.iter().chain(&flags).copied())
    }

    /// More arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Launch {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Under a seccomp filter that answers EPERM to these system calls (see [`confine`]).
    #[must_use]
    pub fn deny(mut self, calls: &[i64]) -> Launch {
        self.confinement.denied = calls.to_vec();
        self
    }

    /// With RLIMIT_NOFILE at this number, soft and hard.
    #[must_use]
    pub fn descriptors(mut self, limit: u64) -> Launch {
        self.confinement.descriptors = Some(limit);
        self
    }

    /// With RLIMIT_MEMLOCK at this number of KiB, soft and hard.
    #[must_use]
    pub fn locked_kib(mut self, limit: u64) -> Launch {
        self.confinement.locked_kib = Some(limit);
        self
    }

    /// As an owner who has no more rights than the mode of a file gives: root alone reads what it may not.
    #[must_use]
    pub fn bound_by_modes(mut self) -> Launch {
        self.confinement.is_bound_by_modes = true;
        self
    }

    fn command(&self) -> Command {
        let mut command = self.confinement.command(&self.program);
        // One more set-up for the whole suite, such as "--ring 4:16 --buffers 2:8192".
        let more = std::env::var("SHARDLET_TEST_ARGS").unwrap_or_default();
        if matches!(self.args.first().map(String::as_str), Some("demo" | "serve" | "respond")) {
            command.args(&self.args[..1]).args(more.split_whitespace()).args(&self.args[1..]);
        } else {
            command.args(&self.args);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts a server and waits for the line that names its address. Panics with what it said instead.
    pub fn start(&self) -> Server {
        let child = self.confinement.spawn(self.command());
        let mut server = Server::watch(child);
        let found = wait_for(DEADLINE, || server.find_address() || server.has_ended());
        assert!(
            found && server.find_address(),
            "{} {:?} printed no address\nstdout: {}\nstderr: {}",
            self.program,
            self.args,
            server.stdout(),
            server.stderr()
        );
        server
    }

    /// Runs a command that ends by itself.
    pub fn run_to_end(&self) -> Ended {
        let mut server = Server::watch(self.confinement.spawn(self.command()));
        let status = server.wait_end();
        Ended { code: status.code(), stdout: server.stdout(), stderr: server.stderr() }
    }
}

/// What a command left behind.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

/// A running server; dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ended: Option<ExitStatus>,
    address: Option<SocketAddr>,
    outputs: [Output; 2],
}

#[derive(Debug)]
struct Output {
    text: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Output {
    fn collect(from: impl Read + Send + 'static) -> Output {
        let text = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut lines = BufReader::new(from);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                sink.lock().expect("output lock").push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Output { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().expect("output lock").clone()
    }
}

impl Server {
    fn watch(mut child: Child) -> Server {
        let stdout = Output::collect(child.stdout.take().expect("stdout is piped"));
        let stderr = Output::collect(child.stderr.take().expect("stderr is piped"));
        Server { child, ended: None, address: None, outputs: [stdout, stderr] }
    }

    fn find_address(&mut self) -> bool {
        self.address = self.address.or_else(|| printed_address(&self.stdout()));
        self.address.is_some()
    }

    fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("wait for the program");
        }
        self.ended.is_some()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("a started server has an address")
    }

    /// A new connection to it.
    pub fn connect(&self) -> client::Client {
        client::Client::connect(self.address())
    }

    /// Its process, for the readers in [`process`].
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        self.outputs[0].text()
    }

    /// What it has logged so far.
    pub fn stderr(&self) -> String {
        self.outputs[1].text()
    }

    /// Sends a signal by name: `TERM`, `INT`, `HUP`, `USR1`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success(), "signal {name} could not be sent");
    }

    /// Waits until it has ended by itself, whoever else still holds its outputs. Panics at the deadline.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let over = wait_for(DEADLINE, || self.has_ended());
        assert!(over, "did not end in {DEADLINE:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
        self.ended.expect("it has ended")
    }

    /// Waits until it has ended by itself and all it said has been read. Panics at the deadline.
    pub fn wait_end(&mut self) -> ExitStatus {
        let over = wait_for(DEADLINE, || self.has_ended());
        assert!(over, "did not end in {DEADLINE:?}\nstdout: {}\nstderr: {}", self.stdout(), self.stderr());
        for output in &mut self.outputs {
            if let Some(reader) = output.reader.take() {
                reader.join().expect("output reader");
            }
        }
        self.ended.expect("it has ended")
    }

    /// Asks it to end (TERM) and waits for it.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait_end()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.child.kill().expect("kill the server by its own pid");
            self.child.wait().expect("reap the server");
        }
        if thread::panicking() {
            eprintln!("server's stdout: {}\nserver's stderr: {}", self.stdout(), self.stderr());
        }
    }
}

/// The address in the second line of the start message (`  http://127.0.0.1:8080     metrics …`), or in the words of
/// the examples: `listening on 127.0.0.1:7000`.
fn printed_address(stdout: &str) -> Option<SocketAddr> {
    let complete = &stdout[..stdout.rfind('\n')?];
    let after =
        |line: &'static str| complete.lines().find_map(move |text| text.trim_start().strip_prefix(line));
    let address = after("http://").or_else(|| after("listening on "))?;
    let address = address.trim_start_matches("http://");
    address.split([' ', '/']).next()?.parse().ok()
}
