//! A process seen from outside, through /proc (proc(5)): descriptors, threads, memory, CPU time, and the states of
//! TCP sockets. Reading only.

use std::{collections::BTreeMap, fs, net::SocketAddr, time::Duration};

/// Open descriptors.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count()
}

/// What each descriptor is, such as `socket:[123]` or `anon_inode:[io_uring]`.
pub fn descriptor_targets(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|path| path.display().to_string()).collect()
}

/// Threads.
pub fn threads(pid: u32) -> usize {
    status_number(pid, "Threads:") as usize
}

/// Resident memory in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    status_number(pid, "VmRSS:")
}

fn status_number(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{key} is missing in /proc/{pid}/status"))
}

/// CPU time used so far by all threads, user and system. The kernel counts it in ticks of 10 ms (USER_HZ is 100 on
/// every architecture that Rust's std supports on Linux).
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let after_name = stat.rsplit_once(')').expect("the name is in brackets").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|&at| fields[at].parse::<u64>().expect("ticks are a number")).sum();
    Duration::from_millis(ticks * 10)
}

/// The same in the scheduler's nanoseconds (`schedstat` in proc(5)), of the threads that live.
pub fn cpu_time_exact(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let of = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|run| run.parse::<u64>().ok()).unwrap_or(0)
    };
    Duration::from_nanos(threads.flatten().map(|thread| of(thread.path())).sum())
}

/// How many TCP sockets of this local address are in each state (`ESTABLISHED`, `LISTEN`, `CLOSE_WAIT`, …).
pub fn tcp_states(local: SocketAddr) -> BTreeMap<&'static str, usize> {
    let mut states = BTreeMap::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let mut fields = line.split_whitespace().skip(1);
            let (Some(at), Some(state)) = (fields.next(), fields.nth(1)) else { continue };
            let port = at.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            if port == Some(local.port()) {
                *states.entry(state_name(state)).or_insert(0) += 1;
            }
        }
    }
    states
}

/// Whether the server's side of this connection is in CLOSE_WAIT, by the kernel's table: the client has finished, and
/// the server has not closed.
pub fn is_in_close_wait(server: SocketAddr, client: SocketAddr) -> bool {
    server_state(server, client) == Some("CLOSE_WAIT")
}

/// The state of the server's side of this connection; nothing once it is closed, by whichever side.
pub fn server_state(server: SocketAddr, client: SocketAddr) -> Option<&'static str> {
    let table = fs::read_to_string("/proc/net/tcp").expect("the table of sockets");
    let ends = |field: &str, port: u16| field.ends_with(&format!(":{port:04X}"));
    let row = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|fields| fields.len() > 3 && ends(fields[1], server.port()) && ends(fields[2], client.port()));
    row.map(|fields| state_name(fields[3]))
}

/// include/net/tcp_states.h
fn state_name(number: &str) -> &'static str {
    match number {
        "01" => "ESTABLISHED",
        "02" => "SYN_SENT",
        "03" => "SYN_RECV",
        "04" => "FIN_WAIT1",
        "05" => "FIN_WAIT2",
        "06" => "TIME_WAIT",
        "07" => "CLOSE",
        "08" => "CLOSE_WAIT",
        "09" => "LAST_ACK",
        "0A" => "LISTEN",
        "0B" => "CLOSING",
        "0C" => "NEW_SYN_RECV",
        other => panic!("unknown TCP state {other}"),
    }
}
