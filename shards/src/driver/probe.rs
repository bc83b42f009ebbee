//! Which driver can work here, found by running real operations on a throw-away ring (`probe/self_test.rs`), never
//! by a version number: distributions backport, containers forbid, and a sandbox may let a ring be made that it
//! then does not let anybody use.
//!
//! The answer is for people too: why not io_uring, and what would help, each in one line.

mod self_test;

use super::uring::Extras;
use crate::error::{Error, Result};
use std::{fmt, fs, io, sync::OnceLock};

/// A driver that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

impl DriverKind {
    /// Short name, as in `--driver` and the start line.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Uring => "io_uring",
            DriverKind::Epoll => "epoll",
        }
    }
}

/// A driver that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// io_uring where it works, else epoll.
    #[default]
    Auto,
    /// io_uring, or an error that says why not.
    Uring,
    /// epoll.
    Epoll,
}

/// What the probe found. `Display` gives it in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// The driver to use.
    pub driver: DriverKind,
    /// How much of io_uring there is: `E` none (epoll), `U1` single-shot receives, `U2` and multishot receives,
    /// `U3` and idle time that is not shown as waiting for a disk.
    pub level: &'static str,
    /// Whether multishot receives are sound here.
    pub multishot_receive: bool,
    /// The ring's flags in use, by the kernel's names.
    pub flags: Vec<&'static str>,
    /// Release of the kernel.
    pub kernel: String,
    /// Why not io_uring.
    pub reason: Option<String>,
    /// What would help.
    pub cure: Option<String>,
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (level {}, kernel {})", self.driver.name(), self.level, self.kernel)?;
        if !self.flags.is_empty() {
            write!(f, ", {}", self.flags.join(" "))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, "; no io_uring: {reason}")?;
        }
        if let Some(cure) = &self.cure {
            write!(f, "; cure: {cure}")?;
        }
        Ok(())
    }
}

/// What works here. The first call takes some milliseconds, the answer is kept for the process.
///
/// `SHARDLET_FORCE_EPOLL=1` in the environment answers epoll. `SHARDS_MASK` takes away what the machine has, for
/// tests of the fallbacks: a list of `multishot`, `no_sqarray`, `no_iowait`, `registered`, separated by commas.
pub fn probe() -> ProbeReport {
    static REPORT: OnceLock<ProbeReport> = OnceLock::new();
    REPORT.get_or_init(|| probe_with(environment())).clone()
}

impl DriverChoice {
    /// The driver for this choice, or why it cannot be had ([`Error::DriverUnavailable`]).
    pub fn resolve(self) -> Result<ProbeReport> {
        settle(self, probe)
    }
}

/// What of the ring's extras the environment leaves in use.
pub(super) fn allowed_extras() -> Extras {
    environment().extras
}

fn settle(choice: DriverChoice, probe: impl FnOnce() -> ProbeReport) -> Result<ProbeReport> {
    match choice {
        DriverChoice::Epoll => Ok(epoll_report("epoll was asked for", None)),
        DriverChoice::Auto => Ok(probe()),
        DriverChoice::Uring => {
            let report = probe();
            if report.driver == DriverKind::Uring {
                return Ok(report);
            }
            let lines = [report.reason, report.cure];
            let reason = lines.into_iter().flatten().collect::<Vec<_>>().join("; cure: ");
            Err(Error::DriverUnavailable { driver: DriverKind::Uring.name(), reason })
        }
    }
}

/// What the environment allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowed {
    uring: bool,
    multishot: bool,
    extras: Extras,
}

fn environment() -> Allowed {
    static ALLOWED: OnceLock<Allowed> = OnceLock::new();
    *ALLOWED.get_or_init(|| {
        let force_epoll = std::env::var("SHARDLET_FORCE_EPOLL").is_ok_and(|value| value == "1");
        allowed(force_epoll, &std::env::var("SHARDS_MASK").unwrap_or_default())
    })
}

fn allowed(force_epoll: bool, mask: &str) -> Allowed {
    let has = |name: &str| !mask.split(',').any(|masked| masked.trim() == name);
    Allowed {
        uring: !force_epoll,
        multishot: has("multishot"),
        extras: Extras {
            no_sqarray: has("no_sqarray"),
            no_iowait: has("no_iowait"),
            registered: has("registered"),
        },
    }
}

fn probe_with(allowed: Allowed) -> ProbeReport {
    if !allowed.uring {
        return epoll_report("SHARDLET_FORCE_EPOLL is set", Some("unset SHARDLET_FORCE_EPOLL"));
    }
    let extras = match self_test::single_shot(allowed.extras) {
        Ok(extras) => extras,
        Err(failure) => return failed_report(&failure, &Facts::read()),
    };
    let multishot_receive = allowed.multishot && self_test::multishot(allowed.extras).is_ok();
    let level = match (multishot_receive, extras.no_iowait) {
        (true, true) => "U3",
        (true, false) => "U2",
        (false, _) => "U1",
    };
    let mut flags = vec!["SINGLE_ISSUER", "DEFER_TASKRUN", "TASKRUN_FLAG", "SUBMIT_ALL", "CQSIZE", "CLAMP"];
    let optional = [
        (extras.no_sqarray, "NO_SQARRAY"),
        (extras.no_iowait, "NO_IOWAIT"),
        (extras.registered, "REGISTERED_RING"),
    ];
    flags.extend(optional.iter().filter(|(used, _)| *used).map(|(_, name)| *name));
    ProbeReport {
        driver: DriverKind::Uring,
        level,
        multishot_receive,
        flags,
        kernel: kernel_release(),
        reason: None,
        cure: None,
    }
}

fn epoll_report(reason: &str, cure: Option<&str>) -> ProbeReport {
    ProbeReport {
        driver: DriverKind::Epoll,
        level: "E",
        multishot_receive: false,
        flags: Vec::new(),
        kernel: kernel_release(),
        reason: Some(reason.to_owned()),
        cure: cure.map(str::to_owned),
    }
}

fn failed_report(failure: &Error, facts: &Facts) -> ProbeReport {
    let (reason, cure) = match failure {
        Error::Kernel { what, source } => explain(what, source, facts),
        other => (other.to_string(), "use a newer kernel, or stay with epoll".to_owned()),
    };
    epoll_report(&reason, Some(&cure))
}

/// What of the machine may explain a refusal.
#[derive(Debug, Default)]
struct Facts {
    /// `kernel.io_uring_disabled`: 0 for all, 1 for a group, 2 for nobody (since 6.6, and some backports).
    disabled: Option<String>,
    /// RLIMIT_MEMLOCK as /proc/self/limits shows it, in bytes.
    locked_memory: Option<String>,
    /// Whether a seccomp filter is in force.
    filtered: bool,
}

impl Facts {
    fn read() -> Facts {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
        Facts {
            disabled: fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
                .ok()
                .map(|text| text.trim().to_owned()),
            locked_memory: locked.and_then(|line| line.split_whitespace().next()).map(str::to_owned),
            filtered: status
                .lines()
                .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")),
        }
    }
}

/// One line each: the reason, the cure.
fn explain(what: &str, error: &io::Error, facts: &Facts) -> (String, String) {
    let errno = error.raw_os_error().unwrap_or(0);
    let disabled = facts.disabled.as_deref().unwrap_or("0");
    let (reason, cure) = match errno {
        libc::EPERM | libc::EACCES if disabled != "0" => (
            format!("the sysctl kernel.io_uring_disabled is {disabled}"),
            "sysctl -w kernel.io_uring_disabled=0 (or =1 and the user in kernel.io_uring_group)",
        ),
        libc::EPERM | libc::EACCES => (
            format!("{what} is forbidden ({}{error})", if facts.filtered { "seccomp filter: " } else { "" }),
            "a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register",
        ),
        libc::ENOSYS => (
            format!("{what} is unknown here (kernel without io_uring, or a filter that hides it)"),
            "Linux 6.1 or later with CONFIG_IO_URING, and no filter on its three system calls",
        ),
        libc::ENOMEM => {
            let limit = facts.locked_memory.as_deref().unwrap_or("unknown");
            (
                format!("{what} found no memory (RLIMIT_MEMLOCK is {limit} bytes)"),
                "raise RLIMIT_MEMLOCK: ulimit -l, or LimitMEMLOCK= of the service",
            )
        }
        libc::EINVAL => (format!("{what} does not know the flags that are needed"), "Linux 6.1 or later"),
        _ => (format!("{what}: {error}"), "Linux 6.1 or later, or stay with epoll"),
    };
    (reason, cure.to_owned())
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "";

    #[test]
    fn this_machine_gets_a_driver_and_the_report_fits_a_line() {
        let report = probe_with(allowed(false, ALL));
        assert!(!report.to_string().contains('\n'), "{report}");
        assert_eq!(report.reason.is_some(), report.driver == DriverKind::Epoll, "{report}");
        assert_eq!(report.cure.is_some(), report.reason.is_some(), "{report}");
        assert_eq!(report.multishot_receive, matches!(report.level, "U2" | "U3"));
        assert_eq!(probe(), probe(), "asked once a process");
    }

    #[test]
    fn the_mask_takes_away_what_it_names() {
        let full = probe_with(allowed(false, ALL));
        if full.driver == DriverKind::Epoll {
            return;
        }
        let masked = probe_with(allowed(false, "multishot, no_sqarray,no_iowait,registered"));
        assert_eq!((masked.driver, masked.level, masked.multishot_receive), (DriverKind::Uring, "U1", false));
        for flag in ["NO_SQARRAY", "NO_IOWAIT", "REGISTERED_RING"] {
            assert!(!masked.flags.contains(&flag), "{masked}");
        }
        assert!(masked.flags.contains(&"DEFER_TASKRUN"));
    }

    #[test]
    fn epoll_can_be_forced_and_a_wish_for_uring_then_says_so() {
        let forced = probe_with(allowed(true, ALL));
        assert_eq!((forced.driver, forced.level), (DriverKind::Epoll, "E"));
        assert_eq!(settle(DriverChoice::Auto, || forced.clone()).unwrap(), forced);
        let error = settle(DriverChoice::Uring, || forced).unwrap_err();
        assert_eq!(
            error.to_string(),
            "driver io_uring cannot work here: SHARDLET_FORCE_EPOLL is set; cure: unset SHARDLET_FORCE_EPOLL"
        );
        let chosen = settle(DriverChoice::Epoll, || panic!("nothing to probe")).unwrap();
        assert_eq!((chosen.driver, chosen.cure), (DriverKind::Epoll, None));
    }

    /// A filter belongs to the thread that installs it: the probe runs on one of its own.
    fn probe_under_a_filter(denied: &[i64]) -> ProbeReport {
        let rules = denied.iter().map(|&call| (call, Vec::new())).collect();
        let eperm = seccompiler::SeccompAction::Errno(libc::EPERM as u32);
        let allow = seccompiler::SeccompAction::Allow;
        let architecture = std::env::consts::ARCH.try_into().unwrap();
        let filter = seccompiler::SeccompFilter::new(rules, allow, eperm, architecture).unwrap();
        let program: seccompiler::BpfProgram = filter.try_into().unwrap();
        let probing = std::thread::spawn(move || {
            seccompiler::apply_filter(&program).unwrap();
            probe_with(allowed(false, ALL))
        });
        probing.join().unwrap()
    }

    #[test]
    fn fault_r18_r19_each_denied_call_leads_to_epoll_and_says_so() {
        let calls = [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
        if probe_with(allowed(false, ALL)).driver == DriverKind::Epoll {
            return;
        }
        for denied in [&calls[..1], &calls[1..2], &calls[2..], &calls[..]] {
            let report = probe_under_a_filter(denied);
            assert_eq!((report.driver, report.multishot_receive), (DriverKind::Epoll, false), "{report}");
            assert!(report.reason.as_ref().unwrap().contains("is forbidden (seccomp filter"), "{report}");
            assert!(report.cure.as_ref().unwrap().contains("seccomp profile"), "{report}");
        }
    }

    #[test]
    fn fault_r18_r19_r20_every_refusal_has_a_reason_and_a_cure() {
        let facts = |disabled: &str| Facts {
            disabled: Some(disabled.to_owned()),
            locked_memory: Some("65536".to_owned()),
            filtered: true,
        };
        for (errno, disabled, reason, cure) in [
            (libc::EPERM, "2", "io_uring_disabled is 2", "sysctl -w"),
            (libc::EPERM, "0", "seccomp filter", "seccomp profile"),
            (libc::ENOSYS, "0", "unknown here", "6.1"),
            (libc::ENOMEM, "0", "RLIMIT_MEMLOCK is 65536 bytes", "LimitMEMLOCK"),
            (libc::EINVAL, "0", "flags", "6.1"),
            (libc::EIO, "0", "io_uring_setup: ", "epoll"),
        ] {
            let failure = Error::kernel("io_uring_setup", io::Error::from_raw_os_error(errno));
            let report = failed_report(&failure, &facts(disabled));
            assert!(report.reason.as_ref().unwrap().contains(reason), "{report}");
            assert!(report.cure.as_ref().unwrap().contains(cure), "{report}");
            assert!(!report.to_string().contains('\n'));
        }
    }
}
