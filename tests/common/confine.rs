//! Starts a program where something is forbidden: system calls that answer EPERM, few descriptors, little locked
//! memory, reading past a file's mode.
//!
//! A seccomp filter belongs to a thread and is inherited by what that thread starts (seccomp(2)). So a thread of its
//! own installs the filter, starts the child and ends: no helper program and no unsafe code between fork and exec.

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::{
    process::{Child, Command},
    thread,
};

/// io_uring_setup(2); the numbers are the same on all architectures.
pub const IO_URING_SETUP: i64 = 425;
/// io_uring_enter(2)
pub const IO_URING_ENTER: i64 = 426;
/// io_uring_register(2)
pub const IO_URING_REGISTER: i64 = 427;

/// Each io_uring call alone, and all of them.
pub const IO_URING_DENIALS: [&[i64]; 4] = [
    &[IO_URING_SETUP],
    &[IO_URING_ENTER],
    &[IO_URING_REGISTER],
    &[IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER],
];

/// What the program must do without.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// System calls that answer EPERM.
    pub denied: Vec<i64>,
    /// RLIMIT_NOFILE.
    pub descriptors: Option<u64>,
    /// RLIMIT_MEMLOCK in KiB. A process with CAP_IPC_LOCK is not bound by it.
    pub locked_kib: Option<u64>,
    /// No capability to read what the mode of a file forbids (capabilities(7)).
    pub is_bound_by_modes: bool,
}

impl Confinement {
    /// The program, behind a shell that lowers the limits where there are any.
    pub fn command(&self, program: &str) -> Command {
        let mut limits = String::new();
        for (flag, limit) in [("-n", self.descriptors), ("-l", self.locked_kib)] {
            if let Some(limit) = limit {
                limits.push_str(&format!("ulimit {flag} {limit} && "));
            }
        }
        let bound = if self.is_bound_by_modes && rustix::process::geteuid().is_root() {
            "setpriv --bounding-set=-dac_override,-dac_read_search "
        } else {
            ""
        };
        if limits.is_empty() && bound.is_empty() {
            return Command::new(program);
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits}exec {bound}\"$0\" \"$@\""), program]);
        shell
    }

    /// Starts it, under the filter if one is wanted.
    pub fn spawn(&self, mut command: Command) -> Child {
        if self.denied.is_empty() {
            return command.spawn().expect("start the program");
        }
        let filter = filter(&self.denied);
        let confined = thread::spawn(move || {
            seccompiler::apply_filter(&filter).expect("install the seccomp filter");
            command.spawn().expect("start the program under the filter")
        });
        confined.join().expect("the starting thread")
    }
}

fn filter(denied: &[i64]) -> BpfProgram {
    let rules = denied.iter().map(|&call| (call, Vec::new())).collect();
    let eperm = SeccompAction::Errno(1);
    let architecture = std::env::consts::ARCH.try_into().expect("an architecture that seccompiler knows");
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, eperm, architecture).expect("a sound filter");
    filter.try_into().expect("a filter the kernel takes")
}
