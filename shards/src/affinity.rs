//! Which cores this process may use, and keeping a thread on one of them. It starts no thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{fs, io, path::Path};

/// The cores the calling thread may run on (sched_getaffinity(2)), ascending; core 0 if the kernel will not say.
pub(crate) fn available_cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect(),
        Err(_) => vec![0],
    }
}

/// How many shards to start when nobody says: one for each core this process may use, but no more than its control
/// group's quota pays for, and at least one.
pub(crate) fn default_shards() -> usize {
    let cores = available_cores().len();
    let of_process = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    match cpu_quota(Path::new("/sys/fs/cgroup"), &of_process) {
        Some(quota) => cores.min(quota),
        None => cores,
    }
    .max(1)
}

/// Keeps the calling thread on one core (sched_setaffinity(2)). Fails with `EINVAL` if the core may not be used.
pub(crate) fn pin_to(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// The smallest quota on the way from the process's group up to the root, in whole cores rounded up. `None`: there
/// is none. `of_process` is the text of /proc/self/cgroup (cgroups(7)).
fn cpu_quota(root: &Path, of_process: &str) -> Option<usize> {
    let mut smallest = None;
    for line in of_process.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let relative = Path::new(group.trim_start_matches('/'));
        for group in relative.ancestors() {
            let quota = if controllers.is_empty() {
                quota_v2(&root.join(group))
            } else if controllers.split(',').any(|controller| controller == "cpu") {
                quota_v1(&root.join(controllers).join(group))
                    .or_else(|| quota_v1(&root.join("cpu").join(group)))
            } else {
                None
            };
            smallest = [smallest, quota].into_iter().flatten().min();
        }
    }
    smallest
}

/// cgroup v2, cpu.max: `QUOTA PERIOD` in microseconds, or `max PERIOD`.
fn quota_v2(group: &Path) -> Option<usize> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cores(quota.parse().ok()?, period.parse().ok()?)
}

/// cgroup v1: two files in microseconds; a quota of -1 means none.
fn quota_v1(group: &Path) -> Option<usize> {
    let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
    whole_cores(quota.trim().parse().ok()?, period.trim().parse().ok()?)
}

fn whole_cores(quota_us: u64, period_us: u64) -> Option<usize> {
    (period_us > 0).then(|| quota_us.div_ceil(period_us).max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A made-up control group file system, removed at the end.
    struct Groups(PathBuf);

    impl Groups {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("shards-affinity-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory");
                fs::write(path, text).expect("a file");
            }
            Groups(root)
        }
    }

    impl Drop for Groups {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_quota_of_v2_is_the_smallest_on_the_way_up_rounded_up() {
        let groups = Groups::new(
            "v2",
            &[
                ("cpu.max", "max 100000\n"),
                ("a/cpu.max", "150000 100000\n"),
                ("a/b/cpu.max", "400000 100000\n"),
            ],
        );
        assert_eq!(cpu_quota(&groups.0, "0::/a/b\n"), Some(2));
        assert_eq!(cpu_quota(&groups.0, "0::/\n"), None);
        assert_eq!(cpu_quota(&groups.0, "0::/missing\n"), None);
    }

    #[test]
    fn a_tiny_quota_is_one_core_and_nonsense_is_no_quota() {
        let files = [("a/cpu.max", "1 100000\n"), ("b/cpu.max", "5 0\n"), ("c/cpu.max", "what\n")];
        let groups = Groups::new("tiny", &files);
        assert_eq!(cpu_quota(&groups.0, "0::/a\n"), Some(1));
        assert_eq!(cpu_quota(&groups.0, "0::/b\n0::/c\nnonsense\n"), None);
    }

    #[test]
    fn the_quota_of_v1_is_read_under_either_name() {
        let files = [
            ("cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n"),
            ("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
            ("cpu/b/cpu.cfs_quota_us", "-1\n"),
            ("cpu/b/cpu.cfs_period_us", "100000\n"),
        ];
        let groups = Groups::new("v1", &files);
        assert_eq!(cpu_quota(&groups.0, "4:cpu,cpuacct:/a\n1:memory:/a\n"), Some(3));
        assert_eq!(cpu_quota(&groups.0, "4:cpu,cpuacct:/b\n"), None);
    }

    #[test]
    fn a_thread_can_be_pinned_to_each_core_it_may_use() {
        let cores = available_cores();
        assert!(!cores.is_empty() && cores.is_sorted());
        assert!((1..=cores.len()).contains(&default_shards()));
        for core in cores {
            std::thread::spawn(move || {
                pin_to(core).expect("the core may be used");
                assert_eq!(available_cores(), [core]);
            })
            .join()
            .expect("no assertion failed");
        }
        assert!(pin_to(usize::MAX).is_err());
    }
}
