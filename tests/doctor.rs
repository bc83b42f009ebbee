//! `shardlet doctor` tells the truth: what works, and under a filter or a small limit, what does not and why.

mod common;

use common::{
    Launch,
    confine::{IO_URING_DENIALS, IO_URING_ENTER, IO_URING_REGISTER, IO_URING_SETUP},
};

fn driver_line(stdout: &str) -> &str {
    let line = stdout.lines().find(|line| line.contains(" driver "));
    line.unwrap_or_else(|| panic!("no driver line in:\n{stdout}"))
}

#[test]
fn every_line_is_a_finding() {
    let ended = Launch::new(["doctor"]).run_to_end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    let mut lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.pop(), Some("servers can run here"));
    assert!(
        lines.iter().all(|line| line.starts_with("OK    ") || line.starts_with("WARN  ")),
        "{}",
        ended.stdout
    );
    for name in ["kernel", "driver", "locked memory", "file descriptors", "cores"] {
        assert!(lines.iter().any(|line| line[6..].starts_with(name)), "{name} is missing:\n{}", ended.stdout);
    }
}

#[test]
fn io_uring_is_refused_one_call_at_a_time() {
    for denied in IO_URING_DENIALS {
        let ended = Launch::new(["doctor"]).deny(denied).run_to_end();
        let line = driver_line(&ended.stdout);
        assert_eq!(ended.code, Some(0), "epoll still serves: {}", ended.stdout);
        assert!(line.starts_with("WARN  ") && line.contains("epoll"), "{denied:?}: {line}");
        let name = match denied[0] {
            IO_URING_SETUP => "io_uring_setup",
            IO_URING_ENTER => "io_uring_enter",
            IO_URING_REGISTER => "io_uring_register",
            other => panic!("unknown call {other}"),
        };
        assert!(line.contains(name) || line.contains("seccomp"), "{denied:?} is not named: {line}");
    }
}

#[test]
fn too_few_descriptors_end_with_four() {
    let ended = Launch::new(["doctor"]).descriptors(40).run_to_end();
    assert_eq!(ended.code, Some(4), "{}", ended.stdout);
    assert!(ended.stdout.contains("FAIL  file descriptors"), "{}", ended.stdout);
}

#[test]
fn little_locked_memory_is_a_warning() {
    let ended = Launch::new(["doctor"]).locked_kib(64).run_to_end();
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    assert!(ended.stdout.contains("WARN  locked memory      64 KiB"), "{}", ended.stdout);
}
