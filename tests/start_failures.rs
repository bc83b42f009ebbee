//! What cannot start says so in one line with what, where and the cure, and ends with the right code.

mod common;

use common::{Ended, Launch, confine::IO_URING_DENIALS};
use std::{fs, net::TcpListener};

/// Checks the code and that it is one line with these words.
fn expect(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("shardlet: ")).collect();
    assert_eq!(lines.len(), 1, "not one line: {ended:?}");
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is missing: {}", lines[0]);
    }
    assert_eq!(ended.stdout, "", "a failed start prints no address");
}

#[test]
fn port_in_use_names_the_holder_and_a_free_port() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    let pid = format!("(pid {})", std::process::id());
    for command in [&["demo"][..], &["respond"], &["serve", "."]] {
        let ended =
            Launch::new(command.iter().copied()).args(&["--listen", &address, "--admin", "off"]).run_to_end();
        expect(&ended, 4, &[&address, "in use", &pid, "is free: --listen 127.0.0.1:"]);
    }
}

#[test]
fn folders_that_cannot_be_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("file");
    let missing = folder.path().join("missing");
    for (path, word) in [(&missing, "does not exist"), (&file, "not a folder")] {
        let path = path.to_str().expect("UTF-8");
        expect(&Launch::server(&["serve", path], "auto").run_to_end(), 4, &[path, word]);
    }
}

#[test]
fn forced_uring_under_a_filter_ends_with_reason_and_cure() {
    for denied in IO_URING_DENIALS {
        let ended = Launch::server(&["demo"], "uring").deny(denied).run_to_end();
        expect(&ended, 4, &["io_uring cannot work here", "--driver auto"]);
    }
}

#[test]
fn addresses_that_are_none_of_this_machine() {
    // 192.0.2.0/24 is for documentation (RFC 5737).
    let ended = Launch::new(["demo", "192.0.2.1:8080", "--admin", "off"]).run_to_end();
    expect(&ended, 4, &["192.0.2.1:8080", "interface"]);
    let ended = Launch::new(["demo", "no-such-host.invalid:8080", "--admin", "off"]).run_to_end();
    expect(&ended, 4, &["no-such-host.invalid"]);
    let ended = Launch::new(["demo", "unix:/no/such/folder/socket", "--admin", "off"]).run_to_end();
    expect(&ended, 4, &["unix:/no/such/folder/socket", "make the folder"]);
}
