//! The command line: names, flags and their values, exactly as the README promises them. Values in, a [`Cli`] or a
//! one-line [`Failure`] out; it starts nothing, opens nothing and knows no server.

mod serve;

pub(crate) use serve::{FieldRule, ServeArgs};

use crate::failure::{Exit, Failure};
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};
use http::{HeaderName, HeaderValue};
use std::{
    ffi::OsString,
    fmt,
    net::IpAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
};

/// What the user asked for.
#[derive(Debug, Parser)]
#[command(
    name = "shardlet",
    version,
    about = "A thread-per-core HTTP server for Linux io_uring",
    disable_help_subcommand = true,
    disable_help_flag = true,
    subcommand_required = true,
    override_usage = "shardlet [COMMAND] [LISTEN] [FLAGS]",
    after_help = COMMON_HELP
)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print help
    #[arg(short, long, action = ArgAction::HelpShort, global = true, display_order = 100)]
    help: Option<bool>,
}

const COMMON_HELP: &str = "\
Without a command: demo. Common flags of the servers:
  --listen ADDR      8080, :8080 (every interface), host:port, [::1]:80, unix:/path
  --shards N         threads, one per core          --driver auto|uring|epoll
  --admin ADDR|off   metrics and health             --workers N
  --log text|json    format of the log              --access-log FILE|-|off

Exit codes: 0 ok, 1 run time, 2 usage, 4 environment. More: --help-all";

/// The commands of this version.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Everything live on one page: no files, no configuration
    Demo(ServerArgs),
    /// Serve the files of a folder
    Serve(Box<ServeArgs>),
    /// Give one fixed answer to every request
    Respond(RespondArgs),
    /// Say what works here: kernel, driver and why, limits, cores
    Doctor,
    /// Measure a server: load with latency histograms
    Bench {
        /// Everything behind `bench`, for the load tool to read
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// Flags that every server has.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Where: 8080, :8080 (every interface), host:port, unix:/path [default: 127.0.0.1:8080]
    #[arg(value_name = "LISTEN")]
    listen_position: Option<Listen>,
    /// The same as LISTEN
    #[arg(long = "listen", value_name = "ADDR", conflicts_with = "listen_position", hide_short_help = true)]
    listen_flag: Option<Listen>,
    /// Shards, one thread each [default: cores this process may use]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) shards: Option<NonZeroUsize>,
    /// Connections that one client address may have on each shard [default: not limited]
    #[arg(long, value_name = "N", hide_short_help = true, value_parser = number::<NonZeroU32>)]
    pub(crate) max_connections_per_address: Option<NonZeroU32>,
    /// How to speak to the kernel
    #[arg(long, value_enum, default_value_t = DriverChoice::Auto)]
    pub(crate) driver: DriverChoice,
    /// Address of metrics and health, or off
    #[arg(long, value_name = "ADDR", default_value = ADMIN_DEFAULT)]
    pub(crate) admin: Admin,
    /// Format of the log on standard error
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log: LogFormat,
    /// Threads for blocking work [default: one per shard, 2 or more]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Submission and completion queue entries of io_uring, such as 1024:8192
    #[arg(long, value_name = "SQ:CQ", hide_short_help = true)]
    pub(crate) ring: Option<Pair>,
    /// Receive buffers of a shard and bytes of each, such as 256:8192
    #[arg(long, value_name = "COUNT:BYTES", hide_short_help = true)]
    pub(crate) buffers: Option<Pair>,
    /// Seconds for which TERM lets the server serve on, not ready, before it closes
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub(crate) notice: u32,
    /// Seconds that TERM leaves to requests under way; then they are told to end
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(0..=86_400))]
    pub(crate) grace: u32,
    /// Access log: a file, - for standard output, or off
    #[arg(long, value_name = "FILE", default_value = "off")]
    pub(crate) access_log: AccessLog,
}

impl ServerArgs {
    /// Whether nobody asked for this admin address.
    pub(crate) fn admin_is_default(&self) -> bool {
        self.admin == ADMIN_DEFAULT.parse().expect("a constant address")
    }

    /// Where to listen: the flag, the position, or the default.
    pub(crate) fn listen(&self) -> Listen {
        let asked = self.listen_flag.as_ref().or(self.listen_position.as_ref());
        asked.cloned().unwrap_or_else(|| Listen::Tcp { host: LOOPBACK.into(), port: 8080 })
    }
}

/// The answer of `respond`, and its server.
#[derive(Debug, Clone, Args)]
pub(crate) struct RespondArgs {
    /// Status code of the answer
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) status: u16,
    /// Content of the answer
    #[arg(long, default_value = "")]
    pub(crate) body: String,
    /// A field of the answer; may be given more than once
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<Field>,
    /// Where and how to serve.
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `--driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriverChoice {
    /// io_uring where it works, else epoll
    Auto,
    /// io_uring, or fail with the reason
    Uring,
    /// epoll
    Epoll,
}

/// `--log`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

/// A place to listen at. Host names are looked up at start, not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    /// A TCP port; 0 means any.
    Tcp {
        /// Address or name, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// More threads than this are a slip of the finger, and would end the process half-way.
const THREADS_MAX: usize = 1024;

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let count: NonZeroUsize = number(text)?;
    if count.get() > THREADS_MAX { Err(format!("at most {THREADS_MAX}")) } else { Ok(count) }
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "give a number, 1 or more".into())
}

const LOOPBACK: &str = "127.0.0.1";
const EVERY_INTERFACE: &str = "0.0.0.0";

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: needs a path, as in unix:/run/shardlet.sock".into()),
                path => Ok(Listen::Unix(path.into())),
            };
        }
        let (host, port) = match text.rsplit_once(':') {
            None => (LOOPBACK, text),
            Some(("", port)) => (EVERY_INTERFACE, port),
            Some((host, port)) => (host, port),
        };
        let port = parse_port(port).ok_or_else(|| format!("'{port}' is no port (0 to 65535)"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').filter(|address| is_ipv6(address)),
            None => Some(host).filter(|host| is_host(host)),
        };
        let host = host.ok_or("use 8080, :8080, host:port, [::1]:80 or unix:/path")?;
        Ok(Listen::Tcp { host: host.into(), port })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp { host, port } if host.contains(':') => write!(out, "[{host}]:{port}"),
            Listen::Tcp { host, port } => write!(out, "{host}:{port}"),
            Listen::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// Digits only: `u16::from_str` alone would take a sign.
fn parse_port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn is_ipv6(text: &str) -> bool {
    matches!(text.parse(), Ok(IpAddr::V6(_)))
}

fn is_host(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

/// Where metrics and health are, unless somebody says otherwise.
const ADMIN_DEFAULT: &str = "127.0.0.1:9090";

/// Two numbers of a kind, each a power of two: sizes of rings and buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) u32, pub(crate) u32);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Pair, String> {
        let power = |text: &str| text.parse::<u32>().ok().filter(|number| number.is_power_of_two());
        match text.split_once(':').map(|(first, second)| (power(first), power(second))) {
            Some((Some(first), Some(second))) => Ok(Pair(first, second)),
            _ => Err("give two powers of two, such as 1024:8192".into()),
        }
    }
}

/// `--admin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admin {
    /// No admin listener.
    Off,
    /// Listens here.
    At(Listen),
}

impl FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Admin, String> {
        match text {
            "off" => Ok(Admin::Off),
            address => address.parse().map(Admin::At),
        }
    }
}

/// `--access-log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessLog {
    /// None is written.
    Off,
    /// To standard output.
    StandardOutput,
    /// To the end of this file.
    File(PathBuf),
}

impl FromStr for AccessLog {
    type Err = String;

    fn from_str(text: &str) -> Result<AccessLog, String> {
        match text {
            "off" => Ok(AccessLog::Off),
            "-" => Ok(AccessLog::StandardOutput),
            "" => Err("give a file, - or off".into()),
            file => Ok(AccessLog::File(file.into())),
        }
    }
}

/// One field of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: HeaderName,
    /// Its value.
    pub(crate) value: HeaderValue,
}

/// Fields that frame the message or belong to the connection: the server writes them itself.
const OWN_FIELDS: [&str; 7] =
    ["content-length", "transfer-encoding", "connection", "date", "trailer", "upgrade", "keep-alive"];

impl FromStr for Field {
    type Err = String;

    fn from_str(text: &str) -> Result<Field, String> {
        let (name, value) = text.split_once(':').ok_or("write it as 'Name: value'")?;
        let name: HeaderName = name.parse().map_err(|_| format!("'{name}' is no field name"))?;
        if OWN_FIELDS.contains(&name.as_str()) {
            return Err(format!("the server writes {name} itself"));
        }
        let value = value.trim_matches([' ', '\t']);
        let value = value.parse().map_err(|_| "control characters are not allowed in a value")?;
        Ok(Field { name, value })
    }
}

/// How parsing can end without a command to run.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// `--help` or `--version`: print this, exit 0.
    Text(String),
    /// `--help-all`: print this, and what the load tool has to say behind it.
    HelpOfAll(String),
    /// Wrong usage.
    Failure(Failure),
}

/// Commands that are promised and not built yet.
const LATER_COMMANDS: [&str; 4] = ["proxy", "run", "check", "config"];

/// Reads the command line, `args[0]` being the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Refusal> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let first = args.get(1).and_then(|arg| arg.to_str()).unwrap_or("");
    if LATER_COMMANDS.contains(&first) {
        let what = format!("the command '{first}' is not in this version");
        let cure = "there are demo, serve, respond, doctor and bench: see shardlet --help";
        return Err(Refusal::Failure(Failure::new(Exit::Usage, what, cure)));
    }
    if first == "bench" {
        // The load tool reads its own flags, --help among them.
        return Ok(Cli { command: Command::Bench { args: args.split_off(2) }, help: None });
    }
    if first == "--help-all" {
        return Err(Refusal::HelpOfAll(help_of_all()));
    }
    // `shardlet 8080` is `shardlet demo 8080`; no command looks like a place.
    let is_place = first.parse::<Listen>().is_ok();
    let is_flag = first.is_empty() || first.starts_with('-');
    if (is_place || is_flag) && !["-h", "--help", "-V", "--version"].contains(&first) {
        args.insert(1.min(args.len()), "demo".into());
    }
    let help = help_of(&args);
    let cli = Cli::try_parse_from(args).map_err(|error| refusal(&error, &help))?;
    check_response(&cli).map_err(Refusal::Failure)?;
    Ok(cli)
}

/// Where the help for this line is.
fn help_of(args: &[OsString]) -> String {
    let command = args.get(1).and_then(|arg| arg.to_str());
    let known = command.filter(|name| Cli::command().find_subcommand(name).is_some());
    known.map_or_else(|| "see shardlet --help".into(), |name| format!("see shardlet {name} --help"))
}

/// The short help, then that of every command.
fn help_of_all() -> String {
    let mut program = Cli::command();
    program.build();
    let mut text = program.render_help().to_string();
    for command in program.get_subcommands_mut().filter(|command| command.get_name() != "bench") {
        let help = command.render_long_help();
        text.push_str(&format!("\n\n# shardlet {}\n\n{help}", command.get_name()));
    }
    one_newline(&text)
}

/// Text that ends with one line break, as a terminal wants it.
fn one_newline(text: &str) -> String {
    format!("{}\n", text.trim_end())
}

/// RFC 9110 §15.3.5, §15.3.6 and §15.4.5: 204, 205 and 304 have no content.
fn check_response(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Respond(args) if matches!(args.status, 204 | 205 | 304) && !args.body.is_empty() => {
            let what = format!("--status {} cannot have a --body", args.status);
            Err(Failure::new(Exit::Usage, what, "leave --body out or choose another status"))
        }
        _ => Ok(()),
    }
}

fn refusal(error: &clap::Error, help: &str) -> Refusal {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            Refusal::Text(one_newline(&error.render().to_string()))
        }
        _ => Refusal::Failure(usage_failure(&error.render().to_string(), help)),
    }
}

/// clap explains itself in paragraphs: the first says what, a `tip:` line says the cure.
fn usage_failure(rendered: &str, help: &str) -> Failure {
    let first: Vec<&str> = rendered.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let what = first.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    let details = rendered.lines().map(str::trim).filter(|line| line.starts_with("[possible values"));
    let mut what = what.to_string();
    for detail in details.filter(|detail| !first.contains(detail)) {
        what.push(' ');
        what.push_str(detail);
    }
    let tip = rendered.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let cure = tip.map_or_else(|| help.to_owned(), |tip| format!("{tip}; {help}"));
    Failure::new(Exit::Usage, what, cure)
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
