//! What happens before the first connection: limits are raised, the kernel's refusals become one line with what,
//! where and the cure, and the start message is written. Facts in, values out wherever that is possible; the few
//! functions that look at the machine are named `find_*`, `raise_*` or `check_*`. It starts no server.

use crate::{
    cli::{self, Listen, ServerArgs},
    failure::{Exit, Failure},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shards::DriverChoice;
use std::{
    fmt::Write,
    fs,
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// What a server starts with, once everything that can be known before has been checked.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    /// Where to listen.
    pub(crate) place: Place,
    /// Lines for the log.
    pub(crate) warnings: Vec<String>,
}

/// A place to listen at, host names looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// TCP; port 0 means any.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// Raises limits, makes sure that the driver works here and that the address can be had, unless its sockets are there
/// already.
pub(crate) fn prepare(args: &ServerArgs, is_taken_over: bool) -> Result<Prepared, Failure> {
    let limit = raise_descriptor_limit();
    check_driver(args.driver)?;
    let listen = args.listen();
    let place = if is_taken_over { find_place(&listen)? } else { check_listen(&listen)? };
    Ok(Prepared { place, warnings: descriptor_warning(limit).into_iter().collect() })
}

fn check_driver(choice: cli::DriverChoice) -> Result<(), Failure> {
    let choice = match choice {
        cli::DriverChoice::Auto => DriverChoice::Auto,
        cli::DriverChoice::Uring => DriverChoice::Uring,
        cli::DriverChoice::Epoll => DriverChoice::Epoll,
    };
    let refusal =
        |error: shards::Error| Failure::new(Exit::Environment, error.to_string(), "or use --driver auto");
    choice.resolve().map(drop).map_err(refusal)
}

/// The place without a look at who has it.
pub(crate) fn find_place(listen: &Listen) -> Result<Place, Failure> {
    match listen {
        Listen::Tcp { host, port } => find_address(host, *port).map(Place::Tcp),
        Listen::Unix(path) => Ok(Place::Unix(path.clone())),
    }
}

/// Makes sure that nobody listens there. The shards' own sockets share their port (SO_REUSEPORT, socket(7)), so a second
/// server of the same user would get its part of the connections without a word; an ordinary socket is refused.
pub(crate) fn check_listen(listen: &Listen) -> Result<Place, Failure> {
    let refusal = |error: io::Error| listen_failure(listen, &error, &find_address_facts(listen));
    match listen {
        Listen::Tcp { host, port } => {
            let address = find_address(host, *port)?;
            TcpListener::bind(address).map_err(refusal)?;
            Ok(Place::Tcp(address))
        }
        Listen::Unix(path) if UnixStream::connect(path).is_ok() => Err(refusal(ErrorKind::AddrInUse.into())),
        Listen::Unix(path)
            if path.parent().is_some_and(|folder| folder != Path::new("") && !folder.is_dir()) =>
        {
            Err(refusal(ErrorKind::NotFound.into()))
        }
        Listen::Unix(path) => Ok(Place::Unix(path.clone())),
    }
}

/// What the start message says.
#[derive(Debug, Clone)]
pub(crate) struct StartFacts<'a> {
    /// Name of the command.
    pub(crate) command: &'a str,
    /// How many shards.
    pub(crate) shards: usize,
    /// `io_uring` or `epoll`.
    pub(crate) driver: &'a str,
    /// Why it is not io_uring, and the cure, where that was not the user's own choice.
    pub(crate) driver_reason: Option<&'a str>,
    /// The real address, `host:port` or `unix:/path`.
    pub(crate) address: &'a str,
    /// The real address of the admin listener.
    pub(crate) admin: Option<&'a str>,
    /// How long a graceful stop may take.
    pub(crate) graceful: Duration,
}

/// The start message, with the kernel's version as uname(2) gives it.
pub(crate) fn start_message(facts: &StartFacts<'_>, kernel_release: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let shards = if facts.shards == 1 { "1 shard".into() } else { format!("{} shards", facts.shards) };
    let (command, driver, kernel) = (facts.command, facts.driver, short_version(kernel_release));
    let mut text =
        format!("shardlet {version}  {command}  ({shards}, driver: {driver}, kernel {kernel})\n  ");
    text.push_str(&url(facts.address));
    if let Some(admin) = facts.admin {
        let _ = write!(text, "     metrics {}", metrics_url(admin));
    }
    let seconds = facts.graceful.as_secs();
    let _ = writeln!(text, "\n  TERM = graceful ({seconds} s), HUP = reload, Ctrl-C twice = now");
    if let Some(reason) = facts.driver_reason {
        let _ = writeln!(text, "  io_uring is not used: {}", reason.replace('\n', " "));
    }
    text
}

fn url(address: &str) -> String {
    if address.starts_with("unix:") { address.into() } else { format!("http://{address}") }
}

fn metrics_url(address: &str) -> String {
    if address.starts_with("unix:") {
        format!("/metrics on {address}")
    } else {
        format!("{}/metrics", url(address))
    }
}

/// `6.18.44-generic` → `6.18`.
fn short_version(release: &str) -> String {
    let numbers: Vec<&str> = release.split(|c: char| !c.is_ascii_digit()).take(2).collect();
    numbers.join(".")
}

/// Looks a host name up.
pub(crate) fn find_address(host: &str, port: u16) -> Result<SocketAddr, Failure> {
    let found = (host, port).to_socket_addrs().map(|mut addresses| addresses.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(no_such_host(host, "it has no address")),
        Err(error) => Err(no_such_host(host, &error.to_string())),
    }
}

fn no_such_host(host: &str, why: &str) -> Failure {
    let what = format!("cannot listen on '{host}': {why}");
    Failure::new(Exit::Environment, what, "give an address of this machine, such as 127.0.0.1")
}

/// What the machine says about an address that could not be had.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddressFacts {
    /// Who listens there, as `name (pid N)`.
    pub(crate) holder: Option<String>,
    /// The next port that is free.
    pub(crate) free_port: Option<u16>,
    /// The first port that needs no privilege (ip_unprivileged_port_start).
    pub(crate) first_free_port: u16,
}

/// Finds the facts for [`listen_failure`].
pub(crate) fn find_address_facts(listen: &Listen) -> AddressFacts {
    let first_free_port = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024);
    let Listen::Tcp { host, port } = listen else {
        return AddressFacts { first_free_port, ..AddressFacts::default() };
    };
    let holder = find_holder(Path::new("/proc"), *port);
    AddressFacts { holder, free_port: find_free_port(host, *port), first_free_port }
}

/// How many ports after the wanted one are tried before no advice is given.
const PORTS_TRIED: u16 = 100;

fn find_free_port(host: &str, wanted: u16) -> Option<u16> {
    let candidates = wanted.checked_add(1)?..=wanted.saturating_add(PORTS_TRIED);
    candidates.into_iter().find(|&port| TcpListener::bind((host, port)).is_ok())
}

/// Who listens on this TCP port: the inode from net/tcp, then the process with that socket open (proc(5)). Sees other
/// users' processes only with the right to.
fn find_holder(proc: &Path, port: u16) -> Option<String> {
    let inode = ["net/tcp", "net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(proc.join(table)).ok()?;
        text.lines().skip(1).find_map(|line| listening_inode(line, port).map(str::to_string))
    })?;
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir(proc).ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find_map(|pid| {
        let folder = proc.join(pid.to_string());
        let mut open = fs::read_dir(folder.join("fd")).ok()?.flatten();
        open.find(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == socket.as_str()))?;
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        Some(format!("{} (pid {pid})", name.trim()))
    })
}

/// The inode in a line of net/tcp if that socket listens on this port. Fields: sl, local_address, rem_address, st, …,
/// inode is the tenth; state 0A is LISTEN.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let at = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    (at == port && fields.get(3) == Some(&"0A")).then(|| fields.get(9).copied())?
}

/// Why a place to listen at could not be had, and the cure (bind(2), listen(2)).
pub(crate) fn listen_failure(listen: &Listen, error: &io::Error, facts: &AddressFacts) -> Failure {
    let at = format!("cannot listen on {listen}");
    let (why, cure) = match (error.kind(), listen) {
        (ErrorKind::AddrInUse, Listen::Unix(path)) => (
            "a socket is already there".to_string(),
            format!("stop its owner, or remove {} if it is left over", path.display()),
        ),
        (ErrorKind::AddrInUse, Listen::Tcp { .. }) => (in_use(facts), other_port(listen, facts)),
        (ErrorKind::PermissionDenied, Listen::Tcp { port, .. }) if *port < facts.first_free_port => (
            format!("ports below {} need a privilege", facts.first_free_port),
            format!(
                "use another port, give the program CAP_NET_BIND_SERVICE (setcap cap_net_bind_service=+ep), or set \
                 sysctl net.ipv4.ip_unprivileged_port_start={port}"
            ),
        ),
        (ErrorKind::PermissionDenied, _) => {
            ("permission denied".into(), "check the rights of the folder and the security policy".into())
        }
        (ErrorKind::AddrNotAvailable, _) => (
            "no interface of this machine has that address".into(),
            "see ip address; :PORT means every one".into(),
        ),
        (ErrorKind::NotFound, _) => ("its folder does not exist".into(), "make the folder first".into()),
        _ if is_out_of_descriptors(error) => ("no file descriptor is left".into(), "raise ulimit -n".into()),
        _ => (error.to_string(), "see shardlet doctor".into()),
    };
    Failure::new(Exit::Environment, format!("{at}: {why}"), cure)
}

fn in_use(facts: &AddressFacts) -> String {
    match &facts.holder {
        Some(holder) => format!("the port is in use by {holder}"),
        None => "the port is in use".into(),
    }
}

fn other_port(listen: &Listen, facts: &AddressFacts) -> String {
    match (listen, facts.free_port) {
        (Listen::Tcp { host, .. }, Some(port)) => {
            format!("port {port} is free: --listen {}", Listen::Tcp { host: host.clone(), port })
        }
        _ => "choose another port, or 0 for any".into(),
    }
}

/// EMFILE or ENFILE.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|e| error.raw_os_error() == Some(e.raw_os_error()))
}

/// Makes sure that this is a folder that can be served.
pub(crate) fn check_folder(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(data) if !data.is_dir() => Err(folder_failure(path, &ErrorKind::NotADirectory.into())),
        Ok(_) => fs::read_dir(path).map(drop).map_err(|error| folder_failure(path, &error)),
        Err(error) => Err(folder_failure(path, &error)),
    }
}

/// Why a folder cannot be served.
pub(crate) fn folder_failure(path: &Path, error: &io::Error) -> Failure {
    let (why, cure) = match error.kind() {
        ErrorKind::NotFound => ("it does not exist", "make it, or name another: shardlet serve DIR"),
        ErrorKind::NotADirectory => ("it is not a folder", "name the folder that holds it"),
        ErrorKind::PermissionDenied => {
            ("no right to read it", "run as its owner, or give read and search rights (chmod o+rx)")
        }
        _ => {
            return Failure::new(
                Exit::Environment,
                format!("cannot serve '{}': {error}", path.display()),
                "",
            );
        }
    };
    Failure::new(Exit::Environment, format!("cannot serve '{}': {why}", path.display()), cure)
}

/// A file that cannot be opened for what it is wanted for.
pub(crate) fn file_failure(what: &str, path: &Path, error: &io::Error) -> Failure {
    let cure = match error.kind() {
        ErrorKind::NotFound => "make the folder that it is to be in",
        ErrorKind::PermissionDenied => "give the right to write there, or name another file",
        ErrorKind::IsADirectory => "name a file in that folder",
        _ => "name another file",
    };
    Failure::new(Exit::Environment, format!("cannot {what} '{}': {error}", path.display()), cure)
}

/// A failure of the runtime at start, such as a driver that cannot work here.
pub(crate) fn runtime_failure(what: &str, error: &io::Error) -> Failure {
    let (exit, cure) = match error.kind() {
        ErrorKind::OutOfMemory => {
            (Exit::Environment, "raise ulimit -l (locked memory), or use fewer --shards, or --driver epoll")
        }
        ErrorKind::PermissionDenied => {
            (Exit::Environment, "allow io_uring in the seccomp profile and sysctl, or use --driver epoll")
        }
        _ if is_out_of_descriptors(error) => (Exit::Environment, "raise ulimit -n"),
        _ => (Exit::RunTime, "see shardlet doctor"),
    };
    Failure::new(exit, format!("{what}: {error}"), cure)
}

/// The limit of open descriptors after [`raise_descriptor_limit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorLimit {
    /// What this process may have now.
    pub(crate) soft: u64,
    /// What it may raise itself to.
    pub(crate) hard: u64,
}

/// Fewer descriptors than this leave too little for connections, files and upstreams.
pub(crate) const DESCRIPTORS_WANTED: u64 = 1024;

/// Reads RLIMIT_NOFILE (getrlimit(2)); no limit is `u64::MAX`.
pub(crate) fn find_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    DescriptorLimit { soft: limit.current.unwrap_or(u64::MAX), hard: limit.maximum.unwrap_or(u64::MAX) }
}

/// Raises the soft limit to the hard one: the soft one is low only for programs that use select(2).
pub(crate) fn raise_descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let _unchanged_is_no_error = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    find_descriptor_limit()
}

/// A warning for the log where even the raised limit is small.
pub(crate) fn descriptor_warning(limit: DescriptorLimit) -> Option<String> {
    (limit.soft < DESCRIPTORS_WANTED).then(|| {
        format!(
            "only {} file descriptors (RLIMIT_NOFILE), so fewer connections; raise the hard limit: ulimit -Hn 65536, or \
             LimitNOFILE= in the unit",
            limit.soft
        )
    })
}

#[cfg(test)]
#[path = "startup_tests.rs"]
mod tests;
