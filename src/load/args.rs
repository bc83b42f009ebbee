//! What can be typed behind `shardlet bench`. Names and help texts; what they mean together is decided in `plan`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::{
    sweep::{Goal, Ramp},
    threshold::Threshold,
    units,
};

/// The command line of the load tool.
#[derive(Debug, Parser)]
#[command(
    name = "shardlet bench",
    bin_name = "shardlet bench",
    about = "Measure a server: load at a fixed rate, latency from when each request was due",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
pub struct BenchArgs {
    /// Work on saved results.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// Or a run.
    #[command(flatten)]
    pub run: RunArgs,
}

const EXAMPLES: &str = "\
Examples:
  shardlet bench http://127.0.0.1:8080/ --rate 20k --time 30s --save a.hlog --html a.html
  shardlet bench http://127.0.0.1:8080/ --sweep 'p99<5ms' --svg curve.svg
  shardlet bench http://127.0.0.1:8080/ --rate 5k --fail-if 'p99>5ms' --fail-if 'errors>0.1%'
  shardlet bench compare a.hlog b.hlog

Exit codes: 0 ok, 1 failed or worse, 2 usage, 4 environment.";

/// What can be done with saved results.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Hold results against the first one; exit code 1 when one is worse beyond noise
    Compare(CompareArgs),
    /// Add up the results of several generators that ran at the same time
    Merge(MergeArgs),
    /// Show a saved result again, or make its pictures
    Report(ReportArgs),
}

/// A run.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// What to ask for; `{random:N}` in it stands for a number below N
    #[arg(value_name = "URL", required = true)]
    pub url: Option<String>,
    /// How much, how long.
    #[command(flatten)]
    pub load: LoadArgs,
    /// What is sent and expected.
    #[command(flatten)]
    pub request: RequestArgs,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Show the run under way to Prometheus at this address
    #[arg(long, hide_short_help = true, value_name = "ADDRESS", help_heading = "Result")]
    pub metrics: Option<std::net::SocketAddr>,
}

/// How much, how long.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Requests per second, sent on a clock whatever the server does [default: 1000]
    #[arg(short, long, value_parser = units::parse_rate, conflicts_with = "closed")]
    pub rate: Option<f64>,
    /// Closed loop: a free connection sends at once. Hides the server's pauses
    #[arg(long)]
    pub closed: bool,
    /// Connections over all shards
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,
    /// Requests in flight on one connection
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub pipeline: u32,
    /// Generator threads, one core each [default: half of the cores]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub shards: Option<u32>,
    /// How to speak to the kernel
    #[arg(long, hide_short_help = true, value_enum, default_value_t = Driver::Auto)]
    pub driver: Driver,
    /// Measured time
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration)]
    pub time: Duration,
    /// Sent before, and not measured
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::parse_duration)]
    pub warm_up: Duration,
    /// Steps of rate, all of them: FROM:TO:STEPS
    #[arg(long, hide_short_help = true, value_name = "RAMP", value_parser = Ramp::parse, conflicts_with_all = ["closed", "rate"])]
    pub ramp: Option<Ramp>,
    /// Search the highest rate that keeps a latency goal, such as p99<5ms; starts at --rate
    #[arg(long, value_name = "GOAL", value_parser = Goal::parse, conflicts_with_all = ["closed", "ramp"])]
    pub sweep: Option<Goal>,
    /// Measured time of each step of a ramp or sweep
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "3s", value_parser = units::parse_duration)]
    pub step_time: Duration,
}

/// How the generator speaks to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Driver {
    /// The best one that works here.
    Auto,
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

/// What is sent and expected.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Request")]
pub struct RequestArgs {
    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long)]
    pub method: Option<String>,
    /// A header, `Name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    pub headers: Vec<String>,
    /// A body
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["body_file", "body_size"])]
    pub body: Option<String>,
    /// A body from a file
    #[arg(long, hide_short_help = true, value_name = "FILE", conflicts_with = "body_size")]
    pub body_file: Option<PathBuf>,
    /// A body of random bytes
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = units::parse_size)]
    pub body_size: Option<u64>,
    /// Ask for the URLs or paths of this file in turn, one a line
    #[arg(long, hide_short_help = true, value_name = "FILE", conflicts_with = "replay")]
    pub urls: Option<PathBuf>,
    /// Ask for what an access log (common or combined) asks for, in its order
    #[arg(long, hide_short_help = true, value_name = "LOG")]
    pub replay: Option<PathBuf>,
    /// A new connection for each request
    #[arg(long, hide_short_help = true)]
    pub no_keepalive: bool,
    /// Give up on an answer after
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "10s", value_parser = units::parse_duration)]
    pub timeout: Duration,
    /// The only status that is right [default: below 400]
    #[arg(long, hide_short_help = true, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=999))]
    pub expect_status: Option<u16>,
    /// The only length of a body that is right
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = units::parse_size)]
    pub expect_length: Option<u64>,
    /// Every body must be the same as the first one from its URL
    #[arg(long, hide_short_help = true)]
    pub same_body: bool,
}

/// What becomes of the result.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Result")]
pub struct OutputArgs {
    /// Keep the result (HdrHistogram interval log), for compare, merge, report
    #[arg(long, value_name = "FILE.hlog")]
    pub save: Option<PathBuf>,
    /// Percentile spectrum for the HdrHistogram plotter
    #[arg(long, hide_short_help = true, value_name = "FILE.hgrm")]
    pub hgrm: Option<PathBuf>,
    /// The figures for programs; - for standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A page with figures and pictures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// The pictures alone
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Exit with 1 if p99>5ms, mean>1ms, errors>0.1% or rate<19k; may be repeated
    #[arg(long, value_name = "RULE", value_parser = Threshold::parse)]
    pub fail_if: Vec<Threshold>,
    /// A name for the result in comparisons
    #[arg(long, hide_short_help = true, default_value = "", hide_default_value = true)]
    pub label: String,
    /// No live line and no screen
    #[arg(short, long)]
    pub quiet: bool,
}

/// Results against the first.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Saved results; repeated runs of the same thing joined by commas: a1.hlog,a2.hlog b1.hlog,b2.hlog
    #[arg(value_name = "RESULT", num_args = 2.., required = true)]
    pub results: Vec<String>,
    /// Percentiles held against each other
    #[arg(long, value_name = "LIST", default_value = "p50,p90,p99,p99.9")]
    pub on: String,
    /// How much worse is accepted
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = units::parse_share)]
    pub tolerance: f64,
    /// The overlay of the percentile spectra
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// A page with tables and overlay
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Several generators, one result.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Saved results of generators that ran at the same time
    #[arg(value_name = "RESULT", num_args = 1.., required = true)]
    pub results: Vec<PathBuf>,
    /// Where the sum goes
    #[arg(short, long, value_name = "FILE.hlog")]
    pub output: PathBuf,
}

/// A saved result.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The saved result
    pub result: PathBuf,
    /// What becomes of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<BenchArgs, clap::Error> {
        BenchArgs::try_parse_from(["bench"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_is_sound() {
        BenchArgs::command().debug_assert();
    }

    #[test]
    fn a_url_is_enough_and_needed() {
        let args = parse("http://h/").expect("a URL is enough");
        assert!(args.action.is_none());
        assert_eq!(args.run.load.time, Duration::from_secs(10));
        assert!(parse("").is_err());
        assert!(parse("compare a b").expect("no URL needed").action.is_some());
        assert!(parse("compare a").is_err());
        assert!(parse("merge a b -o c").expect("no URL needed").action.is_some());
    }

    #[test]
    fn what_contradicts_is_refused() {
        for line in [
            "http://h/ --rate 5 --closed",
            "http://h/ --ramp 1:2:3 --sweep p99<1ms",
            "http://h/ --body x --body-size 5",
            "http://h/ --connections 0",
            "http://h/ --rate fast",
            "http://h/ --fail-if p99",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
