//! Every refusal is one line with what, where and the cure; the start message is the one of the README.

use super::*;
use std::os::unix::fs::symlink;

const LOCAL: &str = "127.0.0.1:8080";

fn facts() -> StartFacts<'static> {
    StartFacts {
        command: "demo",
        shards: 2,
        driver: "io_uring",
        driver_reason: None,
        address: LOCAL,
        admin: Some("127.0.0.1:9090"),
        graceful: Duration::from_secs(30),
    }
}

#[test]
fn start_message_to_the_letter() {
    let want = format!(
        "shardlet {}  demo  (2 shards, driver: io_uring, kernel 6.18)\n  \
         http://127.0.0.1:8080     metrics http://127.0.0.1:9090/metrics\n  \
         TERM = graceful (30 s), HUP = reload, Ctrl-C twice = now\n",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(start_message(&facts(), "6.18.44-fc"), want);
}

#[test]
fn start_message_on_epoll_says_why() {
    let reason = "io_uring_setup gives EPERM (seccomp); allow it in the profile";
    let facts = StartFacts {
        driver: "epoll",
        driver_reason: Some(reason),
        shards: 1,
        admin: None,
        address: "unix:/run/a.sock",
        ..facts()
    };
    let message = start_message(&facts, "6.1");
    let lines: Vec<&str> = message.lines().collect();
    assert!(lines[0].ends_with("demo  (1 shard, driver: epoll, kernel 6.1)"), "{message}");
    assert_eq!(lines[1], "  unix:/run/a.sock");
    assert_eq!(lines[3], format!("  io_uring is not used: {reason}"));
    assert_eq!(lines.len(), 4);
}

fn tcp(text: &str) -> Listen {
    text.parse().expect("an address")
}

fn line(listen: &str, kind: ErrorKind, facts: &AddressFacts) -> String {
    let failure = listen_failure(&tcp(listen), &kind.into(), facts);
    assert_eq!(failure.exit, Exit::Environment);
    assert!(!failure.cure.is_empty(), "no cure: {failure}");
    failure.to_string()
}

#[test]
fn listen_failures_name_place_and_cure() {
    let known =
        AddressFacts { holder: Some("nginx (pid 7)".into()), free_port: Some(8081), first_free_port: 1024 };
    assert_eq!(
        line(LOCAL, ErrorKind::AddrInUse, &known),
        "shardlet: cannot listen on 127.0.0.1:8080: the port is in use by nginx (pid 7); \
         port 8081 is free: --listen 127.0.0.1:8081"
    );
    let unknown = AddressFacts { first_free_port: 1024, ..AddressFacts::default() };
    assert!(line(LOCAL, ErrorKind::AddrInUse, &unknown).contains("or 0 for any"));
    let privileged = line(":80", ErrorKind::PermissionDenied, &unknown);
    for word in ["CAP_NET_BIND_SERVICE", "net.ipv4.ip_unprivileged_port_start=80", "0.0.0.0:80"] {
        assert!(privileged.contains(word), "{privileged}");
    }
    assert!(!line(":8080", ErrorKind::PermissionDenied, &unknown).contains("CAP_NET"));
    assert!(line("unix:/x/y", ErrorKind::NotFound, &unknown).contains("folder"));
    assert!(line("unix:/x/y", ErrorKind::AddrInUse, &unknown).contains("remove /x/y"));
    assert!(line("192.0.2.1:1", ErrorKind::AddrNotAvailable, &unknown).contains("interface"));
    let full = io::Error::from(rustix::io::Errno::MFILE);
    assert!(listen_failure(&tcp(LOCAL), &full, &unknown).cure.contains("ulimit -n"));
}

#[test]
fn holder_and_free_port_of_a_real_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let facts = find_address_facts(&Listen::Tcp { host: "127.0.0.1".into(), port });
    let me = format!("(pid {})", std::process::id());
    assert!(facts.holder.as_deref().is_some_and(|holder| holder.ends_with(&me)), "{facts:?}");
    assert!(facts.free_port.is_none_or(|free| free > port));
}

#[test]
fn a_second_server_is_refused_even_where_ports_are_shared() {
    let first = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
    first.set_reuse_port(true).expect("SO_REUSEPORT");
    first.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bind");
    first.listen(1).expect("listen");
    let port = first.local_addr().expect("address").as_socket().expect("TCP").port();
    let listen = Listen::Tcp { host: "127.0.0.1".into(), port };
    assert!(check_listen(&listen).is_err_and(|failure| failure.what.contains("in use")));
    drop(first);
    assert_eq!(check_listen(&listen), Ok(Place::Tcp(([127, 0, 0, 1], port).into())));
}

#[test]
fn unix_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    assert_eq!(check_listen(&Listen::Unix(path.clone())), Ok(Place::Unix(path.clone())));
    let _owner = std::os::unix::net::UnixListener::bind(&path).expect("bind");
    assert!(check_listen(&Listen::Unix(path)).is_err_and(|failure| failure.what.contains("already there")));
    let nowhere = Listen::Unix(folder.path().join("none/socket"));
    assert!(check_listen(&nowhere).is_err_and(|failure| failure.what.contains("folder")));
}

#[test]
fn net_tcp_lines() {
    let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1 0 100";
    assert_eq!(listening_inode(line, 8080), Some("777"));
    assert_eq!(listening_inode(line, 8081), None);
    assert_eq!(listening_inode(&line.replace(" 0A ", " 01 "), 8080), None);
    assert_eq!(listening_inode("  sl  local_address rem_address", 8080), None);
}

#[test]
fn holder_is_found_in_a_made_up_proc() {
    let proc = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = proc.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folder");
        fs::write(path, text).expect("file");
    };
    write("net/tcp", "head\n 0: 00000000:0050 00000000:0000 0A 0:0 00:0 0 0 0 55 1\n");
    write("12/comm", "nginx\n");
    fs::create_dir_all(proc.path().join("12/fd")).expect("folder");
    symlink("socket:[55]", proc.path().join("12/fd/3")).expect("link");
    assert_eq!(find_holder(proc.path(), 80).as_deref(), Some("nginx (pid 12)"));
    assert_eq!(find_holder(proc.path(), 81), None);
}

#[test]
fn folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "x").expect("file");
    assert_eq!(check_folder(folder.path()), Ok(()));
    for (path, word) in [(folder.path().join("none"), "does not exist"), (file, "not a folder")] {
        let failure = check_folder(&path).expect_err("a refusal");
        assert_eq!(failure.exit, Exit::Environment);
        assert!(
            failure.what.contains(word) && failure.what.contains(&path.display().to_string()),
            "{failure}"
        );
    }
    let denied = folder_failure(Path::new("/a"), &ErrorKind::PermissionDenied.into());
    assert!(denied.to_string().contains("chmod"), "{denied}");
}

#[test]
fn names_are_looked_up() {
    assert_eq!(find_address("127.0.0.1", 5).map(|address| address.to_string()), Ok("127.0.0.1:5".into()));
    assert!(find_address("::1", 5).is_ok());
    let failure = find_address("no-such-host.invalid", 5).expect_err("RFC 6761 keeps .invalid unused");
    assert!(failure.to_string().contains("no-such-host.invalid"), "{failure}");
}

#[test]
fn runtime_failures() {
    for (kind, exit, word) in [
        (ErrorKind::OutOfMemory, Exit::Environment, "ulimit -l"),
        (ErrorKind::PermissionDenied, Exit::Environment, "--driver epoll"),
        (ErrorKind::Other, Exit::RunTime, "doctor"),
    ] {
        let failure = runtime_failure("cannot start shard 0", &kind.into());
        assert_eq!(failure.exit, exit);
        assert!(failure.to_string().contains(word), "{failure}");
    }
}

#[test]
fn few_descriptors_are_a_warning() {
    let few = DescriptorLimit { soft: 256, hard: 256 };
    assert!(descriptor_warning(few).is_some_and(|line| line.contains("256") && line.contains("ulimit")));
    assert_eq!(descriptor_warning(DescriptorLimit { soft: 1024, hard: 4096 }), None);
    let raised = raise_descriptor_limit();
    assert_eq!(raised.soft, raised.hard, "the soft limit is the hard one");
}
