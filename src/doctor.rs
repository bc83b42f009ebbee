//! `shardlet doctor`: what works on this machine, in lines that start with OK, WARN or FAIL and end with a cure.
//! [`Facts::find`] looks at the machine; [`findings`] judges, and is pure. It changes nothing and starts no server.

use crate::startup::{self, DescriptorLimit};
use rustix::process::{Resource, getrlimit};
use shards::{DriverKind, ProbeReport};
use std::{fmt, fs, path::Path, thread};

/// What is known about this machine and this process.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Release of the kernel, as uname(2) gives it.
    pub(crate) kernel: String,
    /// What the probe of the runtime found.
    pub(crate) driver: DriverFacts,
    /// kernel.io_uring_disabled: 0 for all, 1 for a group, 2 for nobody; `None` before Linux 6.6.
    pub(crate) uring_disabled: Option<u32>,
    /// RLIMIT_MEMLOCK in bytes; `None` is no limit.
    pub(crate) locked_bytes: Option<u64>,
    /// RLIMIT_NOFILE.
    pub(crate) descriptors: DescriptorLimit,
    /// Cores this process may use (sched_getaffinity(2), and the quota as std counts it).
    pub(crate) cores: usize,
    /// CPU quota of the control group in cores.
    pub(crate) quota: Option<f64>,
    /// net.core.somaxconn, the bound of an accept queue.
    pub(crate) accept_queue: Option<u32>,
    /// net.ipv4.ip_unprivileged_port_start.
    pub(crate) first_free_port: Option<u32>,
}

/// Which driver would run, and why.
#[derive(Debug, Clone)]
pub(crate) struct DriverFacts {
    /// What was tried and found, in one line.
    pub(crate) found: String,
    /// Why io_uring cannot work and what would help; `None` where it works.
    pub(crate) refusal: Option<(String, String)>,
}

impl From<ProbeReport> for DriverFacts {
    fn from(report: ProbeReport) -> DriverFacts {
        let found = format!("level {}, {}", report.level, report.flags.join(" "));
        let refusal = report.reason.map(|reason| (reason, report.cure.unwrap_or_default()));
        DriverFacts { found, refusal: refusal.filter(|_| report.driver == DriverKind::Epoll) }
    }
}

impl Facts {
    /// Looks at the machine.
    pub(crate) fn find(driver: DriverFacts) -> Facts {
        Facts {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            driver,
            uring_disabled: find_number("/proc/sys/kernel/io_uring_disabled"),
            locked_bytes: getrlimit(Resource::Memlock).current,
            descriptors: startup::find_descriptor_limit(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            quota: find_quota(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup")),
            accept_queue: find_number("/proc/sys/net/core/somaxconn"),
            first_free_port: find_number("/proc/sys/net/ipv4/ip_unprivileged_port_start"),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn find_number(path: &str) -> Option<u32> {
    read(path).trim().parse().ok()
}

/// The smallest quota on the way from the root of the hierarchy (cgroup v2, cpu.max) to this process.
fn find_quota(root: &Path, own_groups: &str) -> Option<f64> {
    let own = own_groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folders = Path::new(own).ancestors().map(|group| root.join(group));
    let quotas = folders.filter_map(|folder| parse_quota(&fs::read_to_string(folder.join("cpu.max")).ok()?));
    quotas.min_by(f64::total_cmp)
}

/// `50000 100000` is half a core; `max 100000` is no quota.
fn parse_quota(text: &str) -> Option<f64> {
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let (quota, period) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (period > 0.0).then(|| quota / period)
}

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Works as it should.
    Ok,
    /// Works, with less than it could.
    Warn,
    /// A server cannot run.
    Fail,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How good.
    pub(crate) level: Level,
    name: &'static str,
    value: String,
    cure: String,
}

impl Finding {
    fn ok(name: &'static str, value: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, name, value: value.into(), cure: String::new() }
    }

    fn or(self, level: Level, is_so: bool, cure: impl Into<String>) -> Finding {
        if is_so { Finding { level, cure: cure.into(), ..self } } else { self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "OK",
            Level::Warn => "WARN",
            Level::Fail => "FAIL",
        };
        write!(out, "{level:<5} {:<18} {}", self.name, self.value)?;
        if !self.cure.is_empty() {
            write!(out, "; {}", self.cure)?;
        }
        Ok(())
    }
}

/// Locked memory that the rings of one shard may need on kernels before 5.12, which charge it.
const LOCKED_WANTED: u64 = 8 << 20;
/// A server needs its listeners, rings, wake descriptors and some connections.
const DESCRIPTORS_NEEDED: u64 = 64;
const ACCEPT_QUEUE_WANTED: u32 = 1024;

/// Judges the facts.
pub(crate) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut lines = vec![Finding::ok("kernel", &*facts.kernel), driver(&facts.driver)];
    lines.extend(facts.uring_disabled.map(uring_disabled));
    lines.push(locked(facts.locked_bytes));
    lines.push(descriptors(facts.descriptors));
    lines.push(cores(facts.cores, facts.quota));
    lines.extend(facts.accept_queue.map(|length| {
        let cure = format!(
            "bursts of connections are dropped; sysctl net.core.somaxconn={ACCEPT_QUEUE_WANTED} or more"
        );
        Finding::ok("accept queue", length.to_string()).or(Level::Warn, length < ACCEPT_QUEUE_WANTED, cure)
    }));
    lines.extend(facts.first_free_port.map(|port| {
        let text =
            if port <= 80 { format!("any from {port}") } else { format!("from {port} without a privilege") };
        Finding::ok("ports", text)
    }));
    lines
}

fn driver(facts: &DriverFacts) -> Finding {
    match &facts.refusal {
        None => Finding::ok("driver", format!("io_uring works: {}", facts.found)),
        Some((reason, cure)) => Finding::ok(
            "driver",
            format!("epoll, at more CPU a request; no io_uring: {reason}"),
        )
        .or(Level::Warn, true, cure),
    }
}

fn uring_disabled(value: u32) -> Finding {
    let text = match value {
        0 => "0 (allowed for all)",
        1 => "1 (only for members of kernel.io_uring_group)",
        _ => "2 (forbidden for all)",
    };
    Finding::ok("io_uring_disabled", text).or(Level::Warn, value > 0, "sysctl kernel.io_uring_disabled=0")
}

fn locked(bytes: Option<u64>) -> Finding {
    let text = bytes.map_or_else(|| "no limit".into(), |bytes| format!("{} KiB", bytes / 1024));
    let is_small = bytes.is_some_and(|bytes| bytes < LOCKED_WANTED);
    let cure = "may be too little for io_uring on old kernels; ulimit -l 65536, or LimitMEMLOCK= in the unit";
    Finding::ok("locked memory", text).or(Level::Warn, is_small, cure)
}

fn descriptors(limit: DescriptorLimit) -> Finding {
    let DescriptorLimit { soft, hard } = limit;
    Finding::ok("file descriptors", format!("{soft} (servers raise it to {hard})"))
        .or(
            Level::Warn,
            hard < startup::DESCRIPTORS_WANTED,
            "few connections; ulimit -Hn 65536, or LimitNOFILE=",
        )
        .or(Level::Fail, hard < DESCRIPTORS_NEEDED, "too few for a server; ulimit -Hn 65536, or LimitNOFILE=")
}

fn cores(cores: usize, quota: Option<f64>) -> Finding {
    let quota_text = quota.map(|quota| format!(", quota {quota:.2}")).unwrap_or_default();
    let is_throttled = quota.is_some_and(|quota| quota < cores as f64);
    let cure =
        "shards beyond the quota are stopped by the scheduler; use --shards with the quota rounded down";
    Finding::ok("cores", format!("{cores}{quota_text}")).or(Level::Warn, is_throttled, cure)
}

/// The whole report and whether a server can run.
pub(crate) fn report(facts: &Facts) -> (String, bool) {
    let findings = findings(facts);
    let can_run = findings.iter().all(|finding| finding.level < Level::Fail);
    let mut text: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
    text.push_str(if can_run { "servers can run here\n" } else { "servers cannot run here: see FAIL\n" });
    (text, can_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            kernel: "6.18.1".into(),
            driver: DriverFacts { found: "multishot receive".into(), refusal: None },
            uring_disabled: Some(0),
            locked_bytes: None,
            descriptors: DescriptorLimit { soft: 1024, hard: 65_536 },
            cores: 2,
            quota: None,
            accept_queue: Some(4096),
            first_free_port: Some(1024),
        }
    }

    #[test]
    fn all_is_well() {
        let (text, can_run) = report(&good());
        assert!(can_run && text.lines().rev().skip(1).all(|line| line.starts_with("OK    ")), "{text}");
        assert!(text.contains("OK    driver             io_uring works: multishot receive\n"), "{text}");
    }

    #[test]
    fn each_shortage_has_its_line_and_cure() {
        let few = DescriptorLimit { soft: 256, hard: 256 };
        let refusal = Some(("io_uring_setup gives EPERM".to_string(), "allow it".to_string()));
        let seccomp = DriverFacts { found: String::new(), refusal };
        for (facts, words) in [
            (
                Facts { driver: seccomp, ..good() },
                ["no io_uring: io_uring_setup gives EPERM; allow it", "CPU"],
            ),
            (
                Facts { uring_disabled: Some(2), ..good() },
                ["io_uring_disabled", "sysctl kernel.io_uring_disabled=0"],
            ),
            (Facts { locked_bytes: Some(65_536), ..good() }, ["64 KiB", "ulimit -l"]),
            (Facts { descriptors: few, ..good() }, ["256", "ulimit -Hn"]),
            (Facts { quota: Some(0.5), ..good() }, ["quota 0.50", "--shards"]),
            (Facts { accept_queue: Some(128), ..good() }, ["128", "somaxconn"]),
        ] {
            let (text, can_run) = report(&facts);
            let warnings: Vec<&str> = text.lines().filter(|line| line.starts_with("WARN ")).collect();
            assert!(can_run && warnings.len() == 1, "{text}");
            assert!(words.iter().all(|word| warnings[0].contains(word)), "{words:?} in {text}");
        }
    }

    #[test]
    fn too_few_descriptors_is_a_failure() {
        let (text, can_run) =
            report(&Facts { descriptors: DescriptorLimit { soft: 16, hard: 16 }, ..good() });
        assert!(!can_run && text.contains("FAIL  file descriptors"), "{text}");
    }

    #[test]
    fn quota_is_the_smallest_on_the_way() {
        assert_eq!(parse_quota("50000 100000\n"), Some(0.5));
        assert_eq!(parse_quota("max 100000\n"), None);
        assert_eq!(parse_quota("1 0"), None);
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(root.path().join("a/b")).expect("folders");
        fs::write(root.path().join("a/cpu.max"), "150000 100000\n").expect("file");
        fs::write(root.path().join("a/b/cpu.max"), "max 100000\n").expect("file");
        assert_eq!(find_quota(root.path(), "0::/a/b\n"), Some(1.5));
        assert_eq!(find_quota(root.path(), "4:cpu:/a\n"), None);
    }
}
