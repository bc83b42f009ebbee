//! Starts a server for a command, says so, and ends it when a signal says so.

use crate::{
    access,
    cli::{self, Admin, DriverChoice},
    failure::{Exit, Failure},
    hand_over::{self, HandOver},
    logging,
    signals::{self, Signal},
    startup::{self, Place, Prepared, StartFacts},
};
use shardlet::{
    ShutdownPlan, handlers,
    server::{self, StartError},
};
use shards::{Shard, ShardEnd, ShardHandle, net::SocketAddress};
use std::{io::Write as _, process::ExitCode, sync::Arc, time::Duration};

/// What helps when the admin listener has no place.
const ADMIN_CURE: &str = "name another place: --admin ADDR, or --admin off";

/// How long the end waits for the log to be written.
const LOG_FLUSH: Duration = Duration::from_millis(500);

/// Runs a server with these routes until it is told to stop.
pub(crate) fn run<F>(command: &str, args: &cli::ServerArgs, routes: F) -> Result<ExitCode, Failure>
where
    F: Fn(&Shard) -> shardlet::Router + Send + Sync + 'static,
{
    let hand_over = Arc::new(HandOver::new());
    let mut taken = hand_over::take()?;
    let inherited = taken.as_mut().map_or_else(Vec::new, |taken| std::mem::take(&mut taken.sockets));
    let prepared = startup::prepare(args, !inherited.is_empty())?;
    let log =
        logging::start(args.log).map_err(|error| startup::runtime_failure("start the log thread", &error))?;
    let signals = signals::listen().map_err(|error| startup::runtime_failure("listen to signals", &error))?;
    for warning in &prepared.warnings {
        tracing::warn!("{warning}");
    }
    let mut builder = builder(args, &prepared);
    let admin = match &args.admin {
        Admin::At(listen) if inherited.len() > 1 => Some(socket_address(&startup::find_place(listen)?)),
        _ => admin_address(args)?,
    };
    builder = builder.take_over(inherited);
    if let Some(address) = &admin {
        builder = builder.beside(address.clone(), handlers::admin::router);
    }
    let (mut access_written, mut reopen) = (None, None);
    if let Some((log, written)) = access::open(&args.access_log)? {
        reopen = Some(log.reopener());
        builder = builder.access_log(move |record| log.write(record));
        access_written = Some(written);
    }
    let server = builder.start(routes).map_err(|error| start_failure(args, &error))?;
    announce(command, args, &server);
    if let Some(taken) = taken {
        let handles = server.handles();
        taken.say_ready(handles).map_err(|error| startup::runtime_failure("start a thread", &error))?;
    }
    let acts =
        Acts { handles: server.handles().to_vec(), access_log: reopen, graceful: graceful(args), hand_over };
    follow_signals(signals, acts);
    let code = end_code(&server.join());
    if let Some(written) = access_written {
        // Disconnected is what is waited for; a log that cannot be written in time loses its last lines.
        let _ = written.recv_timeout(LOG_FLUSH);
    }
    log.flush(LOG_FLUSH);
    Ok(code)
}

/// What TERM asks for.
fn graceful(args: &cli::ServerArgs) -> ShutdownPlan {
    let grace = Duration::from_secs(args.grace.into());
    ShutdownPlan { notice: Duration::from_secs(args.notice.into()), ..ShutdownPlan::graceful(grace) }
}

/// What signals act upon.
struct Acts {
    handles: Vec<ShardHandle>,
    access_log: Option<access::Reopen>,
    graceful: ShutdownPlan,
    hand_over: Arc<HandOver>,
}

impl Acts {
    fn act(&self, signal: Signal) {
        let handles = &self.handles;
        match signal {
            Signal::Graceful => server::begin_shutdown(handles, self.graceful),
            Signal::Fast => server::begin_shutdown(handles, ShutdownPlan::fast()),
            Signal::Now => server::begin_shutdown(handles, ShutdownPlan::now()),
            Signal::Reload => tracing::info!("nothing to reload: this command has no configuration file"),
            Signal::ReopenLogs => match &self.access_log {
                Some(log) => log.ask(),
                None => tracing::info!("nothing to reopen: there is no access log"),
            },
            Signal::HandOver => HandOver::begin(&self.hand_over, handles),
        }
    }
}

/// Turns signals into the server's end, on a thread of their own.
fn follow_signals(signals: crossbeam_channel::Receiver<Signal>, acts: Acts) {
    let follow = move || signals.into_iter().for_each(|signal| acts.act(signal));
    if let Err(error) = std::thread::Builder::new().name("end".into()).spawn(follow) {
        tracing::error!("signals cannot be followed: {error}");
    }
}

/// Where the admin listener will be. The default address is given up when it is taken; one that was asked for is
/// not.
fn admin_address(args: &cli::ServerArgs) -> Result<Option<SocketAddress>, Failure> {
    let Admin::At(listen) = &args.admin else { return Ok(None) };
    match startup::check_listen(listen) {
        Ok(place) => Ok(Some(socket_address(&place))),
        Err(failure) if args.admin_is_default() => {
            tracing::warn!("no admin listener: {}; {ADMIN_CURE}", failure.what);
            Ok(None)
        }
        Err(failure) => Err(Failure { cure: ADMIN_CURE.into(), ..failure }),
    }
}

fn socket_address(place: &Place) -> SocketAddress {
    match place {
        Place::Tcp(address) => SocketAddress::from(*address),
        Place::Unix(path) => SocketAddress::from(path.clone()),
    }
}

fn builder(args: &cli::ServerArgs, prepared: &Prepared) -> server::Builder {
    let address = socket_address(&prepared.place);
    let builder =
        shardlet::Server::builder().listen(address).shard_field("X-Shard").driver(match args.driver {
            DriverChoice::Auto => shards::DriverChoice::Auto,
            DriverChoice::Uring => shards::DriverChoice::Uring,
            DriverChoice::Epoll => shards::DriverChoice::Epoll,
        });
    let (ring, buffers) = (args.ring, args.buffers);
    let builder = builder.runtime(move |mut shards| {
        if let Some(cli::Pair(submission, completion)) = ring {
            shards = shards.ring_entries(submission, completion);
        }
        if let Some(cli::Pair(count, bytes)) = buffers {
            shards = shards.buffers(count as usize, bytes as usize);
        }
        shards
    });
    let builder = match args.shards {
        Some(count) => builder.shards(count.get()),
        None => builder,
    };
    let builder = match args.max_connections_per_address {
        Some(count) => builder.connections_per_address_max(count),
        None => builder,
    };
    match args.workers {
        Some(count) => builder.worker_threads(count.get()),
        None => builder,
    }
}

/// Says what runs and where, before the first connection is answered.
fn announce(command: &str, args: &cli::ServerArgs, server: &shardlet::Server) {
    let report = server.report();
    let reason = match args.driver {
        DriverChoice::Auto => report.reason.as_deref().map(|reason| match report.cure.as_deref() {
            Some(cure) => format!("{reason}; {cure}"),
            None => reason.to_owned(),
        }),
        DriverChoice::Uring | DriverChoice::Epoll => None,
    };
    let text = startup::start_message(
        &StartFacts {
            command,
            shards: server.handles().len(),
            driver: report.driver.name(),
            driver_reason: reason.as_deref(),
            address: &server.address().to_string(),
            admin: server.addresses().get(1).map(ToString::to_string).as_deref(),
            graceful: graceful(args).grace,
        },
        &report.kernel,
    );
    let mut out = std::io::stdout().lock();
    // Whoever closed our standard output does not want to know.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn start_failure(args: &cli::ServerArgs, error: &StartError) -> Failure {
    match error {
        StartError::Runtime(shards::Error::Kernel { source, .. }) => {
            let listen = args.listen();
            startup::listen_failure(&listen, source, &startup::find_address_facts(&listen))
        }
        StartError::Runtime(other) => {
            Failure::new(Exit::Environment, other.to_string(), "see shardlet doctor")
        }
        StartError::Workers(_) => Failure::new(
            Exit::Environment,
            error.to_string(),
            "ask for fewer with --workers, or raise ulimit -u",
        ),
        StartError::Routes(_) | StartError::Panicked(_) => {
            Failure::new(Exit::RunTime, error.to_string(), "mend the routes")
        }
    }
}

fn end_code(ends: &[ShardEnd<()>]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (shard, end) in ends.iter().enumerate() {
        if let Err(failure) = &end.result {
            tracing::error!(shard, "the shard ended: {failure}");
            code = Exit::RunTime.into();
        }
    }
    code
}
