//! The command line as a contract: what is taken, what is refused, and in which words.

use super::*;

fn read(words: &str) -> Result<Cli, Refusal> {
    parse(std::iter::once("shardlet").chain(words.split_whitespace()).map(OsString::from))
}

fn server(words: &str) -> ServerArgs {
    match read(words).expect("a valid line").command {
        Command::Demo(server) => server,
        Command::Serve(args) => args.server,
        Command::Respond(args) => args.server,
        other => panic!("not a server: {other:?}"),
    }
}

fn failure(words: &str) -> Failure {
    match read(words) {
        Err(Refusal::Failure(failure)) => failure,
        other => panic!("{words}: expected a failure, got {other:?}"),
    }
}

#[test]
fn definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn no_command_is_demo() {
    assert_eq!(server("").listen().to_string(), "127.0.0.1:8080");
    assert_eq!(server("--shards 3").shards.map(NonZeroUsize::get), Some(3));
    assert_eq!(server("demo :0").listen().to_string(), "0.0.0.0:0");
    assert_eq!(server(":81 --shards 2").listen().to_string(), "0.0.0.0:81");
    assert_eq!(server("8081").listen().to_string(), "127.0.0.1:8081");
    assert_eq!(server("unix:/tmp/x").listen().to_string(), "unix:/tmp/x");
}

#[test]
fn listen_forms() {
    for (text, want) in [
        ("8080", "127.0.0.1:8080"),
        (":8080", "0.0.0.0:8080"),
        ("localhost:0", "localhost:0"),
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("unix:/run/a.sock", "unix:/run/a.sock"),
    ] {
        assert_eq!(text.parse::<Listen>().map(|listen| listen.to_string()), Ok(want.to_string()), "{text}");
    }
    for text in [
        "",
        "65536",
        "+80",
        ":-1",
        "::1",
        "::1:80",
        "[::1",
        "[x]:80",
        "unix:",
        "a b:80",
        "host:",
        "[1.2.3.4]:1",
    ] {
        assert!(text.parse::<Listen>().is_err(), "{text} was taken");
    }
}

#[test]
fn flag_and_position_are_the_same() {
    assert_eq!(server("serve . --listen :81").listen(), server("serve . :81").listen());
    assert_eq!(failure("serve . :81 --listen :82").exit, Exit::Usage);
}

#[test]
fn common_flags() {
    let args = server("demo --driver epoll --admin off --log json --workers 4 --access-log -");
    assert_eq!(args.driver, DriverChoice::Epoll);
    assert_eq!(args.admin, Admin::Off);
    assert_eq!(args.log, LogFormat::Json);
    assert_eq!(args.workers.map(NonZeroUsize::get), Some(4));
    assert_eq!(args.access_log, AccessLog::StandardOutput);
    let args = server("demo --access-log /tmp/a.log");
    assert_eq!(args.access_log, AccessLog::File("/tmp/a.log".into()));
    assert_eq!(args.admin, Admin::At("127.0.0.1:9090".parse().expect("an address")));
    assert_eq!((args.driver, args.log), (DriverChoice::Auto, LogFormat::Text));
}

#[test]
fn respond() {
    let Command::Respond(args) =
        read("respond :0 --status 503 --body x --header A:b --header c:d").unwrap().command
    else {
        panic!("respond is not respond")
    };
    assert_eq!((args.status, args.body.as_str(), args.headers.len()), (503, "x", 2));
    assert_eq!(args.headers[0].name.as_str(), "a");
    for line in [
        "respond --status 199",
        "respond --status 600",
        "respond --status 204 --body x",
        "respond --header nocolon",
        "respond --header a@:b",
        "respond --header Content-Length:3",
        "respond --header Transfer-Encoding:chunked",
    ] {
        assert_eq!(failure(line).exit, Exit::Usage, "{line}");
    }
    assert!("a: b\r\nc: d".parse::<Field>().is_err(), "a value may not carry a line break");
}

#[test]
fn serve_takes_names_inside_its_folder() {
    for line in [
        "serve . --index ../x",
        "serve . --spa /",
        "serve . --header X-A:b",
        "serve . --error-page 200=x",
        "serve . --error-page 404",
        "serve . --file-cache 5000",
    ] {
        assert_eq!(failure(line).exit, Exit::Usage, "{line}");
    }
}

#[test]
fn later_commands_say_so() {
    for line in ["proxy :8080 http://127.0.0.1:3000", "run -c x", "check -c x", "config"] {
        let failure = failure(line);
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.what.contains("not in this version"), "{failure}");
    }
}

#[test]
fn every_wrong_line_is_one_line_with_a_cure() {
    for (line, what) in [
        ("frobnicate", "frobnicate"),
        ("demo --drivr epoll", "--drivr"),
        ("demo --driver kqueue", "kqueue"),
        ("demo --shards 0", "give a number, 1 or more"),
        ("demo --workers x", "give a number, 1 or more"),
        ("demo --workers 1000000", "at most 1024"),
        ("respond --max-connections-per-address 0", "give a number, 1 or more"),
        ("demo --shards", "--shards"),
        ("serve", "DIR"),
        ("demo a b c", "'b'"),
        ("demo [::1", "[::1"),
    ] {
        let failure = failure(line);
        let text = failure.to_string();
        assert_eq!(failure.exit, Exit::Usage, "{line}");
        assert!(text.contains(what), "{line} gave: {text}");
        let command = line.split(' ').next().filter(|first| *first != "frobnicate");
        let help = command.map_or("see shardlet --help".into(), |name| format!("see shardlet {name} --help"));
        assert!(text.ends_with(&help), "{line} gave: {text}");
        assert!(!text.contains('\n'), "{line} gave more than a line: {text}");
    }
    assert!(failure("demo --driver kqueue").what.contains("epoll"), "the possible values are named");
    assert!(failure("demo --drivr epoll").cure.contains("--driver"), "a near miss is corrected");
}

#[test]
fn help_fits_one_screen() {
    for line in ["serve --help", "respond -h", "demo --help"] {
        let Err(Refusal::Text(help)) = read(line) else { panic!("{line} is no help") };
        assert!(help.lines().count() <= 24 && help.ends_with('\n'), "{help}");
    }
    for line in ["--help", "-h"] {
        let Err(Refusal::Text(help)) = read(line) else { panic!("{line} is no help") };
        assert!(help.lines().count() <= 24, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|text| text.chars().count() <= 100), "{help}");
        for word in ["demo", "serve", "respond", "doctor", "bench", "--driver", "Exit codes"] {
            assert!(help.contains(word), "{word} is missing:\n{help}");
        }
    }
    let Err(Refusal::HelpOfAll(all)) = read("--help-all") else { panic!("no help") };
    for word in ["--access-log", "--header", "--status", "<DIR>", "io_uring where it works"] {
        assert!(all.contains(word), "{word} is missing:\n{all}");
    }
    let Err(Refusal::Text(version)) = read("--version") else { panic!("no version") };
    assert_eq!(version, concat!("shardlet ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn bench_takes_what_follows() {
    for (line, count) in [("bench", 0), ("bench --help", 1)] {
        let command = read(line).unwrap().command;
        assert!(matches!(command, Command::Bench { args } if args.len() == count), "{line}");
    }
    let Command::Bench { args } = read("bench http://127.0.0.1:1/ --rate 5 --help").unwrap().command else {
        panic!("not bench")
    };
    assert_eq!(args.len(), 4);
}
