//! What was typed, made sense of: files read, the host looked up, requests made ready. After this nothing about the
//! command line can go wrong. Neighbours: `args` before it, `run` after it.

use std::{
    fs,
    net::{SocketAddr, ToSocketAddrs},
    path::Path,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::Method;

use super::{
    args::{LoadArgs, RequestArgs, RunArgs},
    error::LoadError,
    requests::{self, Common, REQUEST_BYTES_MAX, REQUESTS_MAX, Request, Target},
    schedule::Pace,
    sweep::Sweep,
};

/// Requests per second when nothing is said.
const RATE_DEFAULT: f64 = 1_000.0;

/// A run, ready to start.
#[derive(Debug)]
pub struct Plan {
    /// What the reports call it.
    pub target: String,
    /// The method, or `mixed`.
    pub method: String,
    /// Where to connect.
    pub address: SocketAddr,
    /// What to send, in turn.
    pub requests: Arc<[Request]>,
    /// What an answer must be.
    pub expect: Expect,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// When to give up on an answer.
    pub timeout: Duration,
    /// Single rate, or none for a closed loop; a sweep begins with it.
    pub pace: Pace,
    /// Steps of rate, if that is what was asked.
    pub sweep: Option<Sweep>,
    /// Generator shards.
    pub shards: u32,
    /// What was said about the load.
    pub load: LoadArgs,
    /// Things to tell the user before the run.
    pub notes: Vec<String>,
}

/// What an answer must be, to count as right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expect {
    /// The status; none means below 400.
    pub status: Option<u16>,
    /// The body's length.
    pub length: Option<u64>,
    /// Whether all bodies of one request must be equal.
    pub same_body: bool,
}

impl Plan {
    /// Makes sense of a command line.
    ///
    /// # Errors
    /// Usage, or a file or host that is not there.
    pub fn new(args: &RunArgs) -> Result<Self, LoadError> {
        let url = args.url.as_deref().ok_or_else(|| LoadError::usage("name a URL"))?;
        let target = Target::parse(url).map_err(LoadError::usage)?;
        let common = common(&args.request, &target)?;
        let mut notes = Vec::new();
        let requests = make_requests(&args.request, &target, &common, &mut notes)?;
        let methods_differ = args.request.replay.is_some();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = args.load.shards.unwrap_or((cores as u32 / 2).max(1)).min(args.load.connections);
        let rate = args.load.rate.unwrap_or(RATE_DEFAULT);
        let sweep = match (args.load.ramp, args.load.sweep) {
            (Some(ramp), _) => Some(Sweep::ramp(ramp)),
            (None, Some(goal)) => Some(Sweep::search(rate, goal)),
            (None, None) => None,
        };
        if args.load.time.is_zero() || args.load.step_time.is_zero() || args.request.timeout.is_zero() {
            return Err(LoadError::usage("a time of 0 measures nothing"));
        }
        Ok(Self {
            target: name_of(&target, requests.len()),
            method: if methods_differ { "mixed".to_owned() } else { common.method.to_string() },
            address: look_up(&target)?,
            requests: requests.into(),
            expect: Expect {
                status: args.request.expect_status,
                length: args.request.expect_length,
                same_body: args.request.same_body,
            },
            keep_alive: common.keep_alive,
            timeout: args.request.timeout,
            pace: if args.load.closed { Pace::Closed } else { Pace::Open { rate } },
            sweep,
            shards,
            load: args.load.clone(),
            notes,
        })
    }
}

fn common(args: &RequestArgs, target: &Target) -> Result<Common, LoadError> {
    let body = match (&args.body, &args.body_file, args.body_size) {
        (Some(text), _, _) => Bytes::from(text.clone()),
        (None, Some(file), _) => Bytes::from(read(file, REQUEST_BYTES_MAX)?),
        (None, None, Some(size)) if size > REQUEST_BYTES_MAX as u64 => {
            return Err(LoadError::usage("a body has at most 64 MiB"));
        }
        (None, None, Some(size)) => Bytes::from(requests::random_body(size)),
        (None, None, None) => Bytes::new(),
    };
    let method = match &args.method {
        Some(name) => name.parse().map_err(|_| LoadError::usage(format!("`{name}` is not a method")))?,
        None if body.is_empty() => Method::GET,
        None => Method::POST,
    };
    if method == Method::CONNECT {
        return Err(LoadError::usage("CONNECT opens a tunnel, which cannot be measured"));
    }
    let headers = args.headers.iter().map(|text| requests::parse_header(text)).collect::<Result<Vec<_>, _>>();
    let headers = headers.map_err(LoadError::usage)?;
    Ok(Common { method, authority: target.authority.clone(), headers, body, keep_alive: !args.no_keepalive })
}

fn make_requests(
    args: &RequestArgs,
    target: &Target,
    common: &Common,
    notes: &mut Vec<String>,
) -> Result<Vec<Request>, LoadError> {
    let mut wanted: Vec<(Method, String)> = if let Some(file) = &args.replay {
        let (requests, skipped) = requests::requests_of_log(&read_text(file)?);
        if skipped > 0 {
            notes.push(format!("{}: {skipped} lines without a request left out", file.display()));
        }
        requests
    } else {
        let paths = match &args.urls {
            Some(file) => requests::paths_of_list(&read_text(file)?, &target.authority)
                .map_err(|why| LoadError::usage(format!("{}: {why}", file.display())))?,
            None => requests::expand(&target.path).map_err(LoadError::usage)?,
        };
        paths.into_iter().map(|path| (common.method.clone(), path)).collect()
    };
    if wanted.is_empty() {
        return Err(LoadError::usage("no request in the file"));
    }
    if wanted.len() > REQUESTS_MAX {
        notes.push(format!("only the first {REQUESTS_MAX} requests are used"));
        wanted.truncate(REQUESTS_MAX);
    }
    let requests: Vec<Request> = wanted.iter().map(|(method, path)| common.request(method, path)).collect();
    let bytes: usize = requests.iter().map(|request| request.head.len()).sum();
    match bytes <= REQUEST_BYTES_MAX {
        true => Ok(requests),
        false => Err(LoadError::usage("the requests have more than 64 MiB together")),
    }
}

fn name_of(target: &Target, requests: usize) -> String {
    let url = format!("http://{}{}", target.authority, target.path);
    match requests {
        1 => url,
        more => format!("{url} and more ({more} requests in turn)"),
    }
}

fn look_up(target: &Target) -> Result<SocketAddr, LoadError> {
    let failed = |why: String| LoadError::environment(format!("look up {}: {why}", target.host));
    let mut addresses =
        (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().ok_or_else(|| failed("no address".to_owned()))
}

fn read(file: &Path, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    let failed = |why: String| LoadError::usage(format!("{}: {why}", file.display()));
    let length = fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    if length > bytes_max as u64 {
        return Err(failed("larger than 64 MiB".to_owned()));
    }
    fs::read(file).map_err(|error| failed(error.to_string()))
}

fn read_text(file: &Path) -> Result<String, LoadError> {
    // Logs hold bytes of strangers; what is not UTF-8 makes its line unusable, not the file.
    Ok(String::from_utf8_lossy(&read(file, REQUEST_BYTES_MAX)?).into_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::load::args::BenchArgs;

    fn plan(line: &str) -> Result<Plan, LoadError> {
        let args = BenchArgs::try_parse_from(["bench"].into_iter().chain(line.split_whitespace()));
        Plan::new(&args.expect("parses").run)
    }

    #[test]
    fn a_bare_url_makes_a_whole_plan() {
        let plan = plan("http://127.0.0.1:9/x").expect("a plan");
        assert_eq!(plan.pace, Pace::Open { rate: RATE_DEFAULT });
        assert_eq!((plan.requests.len(), plan.method.as_str()), (1, "GET"));
        assert_eq!(plan.target, "http://127.0.0.1:9/x");
        assert!(plan.shards >= 1 && plan.sweep.is_none());
    }

    #[test]
    fn a_body_makes_it_a_post() {
        let plan = plan("http://127.0.0.1:9/ --body-size 5k").expect("a plan");
        assert_eq!(plan.method, "POST");
        assert_eq!(plan.requests[0].body.len(), 5_120);
    }

    #[test]
    fn lists_make_many_requests_and_shards_do_not_outnumber_connections() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("urls");
        fs::write(&list, "/a\n/b\n").expect("writes");
        let plan =
            plan(&format!("http://127.0.0.1:9/ --urls {} --shards 8 -c 2", list.display())).expect("a plan");
        assert_eq!((plan.requests.len(), plan.shards), (2, 2));
        assert!(plan.target.ends_with("(2 requests in turn)"));
    }

    #[test]
    fn what_cannot_work_is_usage() {
        for line in [
            "https://127.0.0.1/",
            "http://127.0.0.1:9/ --urls /no/such/file",
            "http://127.0.0.1:9/ -X CONNECT",
            "http://127.0.0.1:9/ -H broken",
            "http://127.0.0.1:9/ --time 0",
            "http://127.0.0.1:9/ --body-size 1000MiB",
        ] {
            assert_eq!(plan(line).expect_err(line).exit_code, 2, "{line}");
        }
    }
}
