//! A run from start to result: shards are started, told when to begin, and what they count is collected, interval by
//! interval. A sweep is a row of such runs. Neighbours: `client` on each shard, `interval_log` for what is saved.

use std::{
    collections::BTreeMap,
    fs,
    io::BufWriter,
    net::TcpStream,
    num::NonZeroU64,
    path::Path,
    time::{Duration, SystemTime},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use shards::{DriverChoice, Shard, ShardEnd, Shards};

use super::{
    args::Driver,
    client::{Client, ClientEnd, ClientOptions, Event, Place},
    error::LoadError,
    health::{ClockQuality, Evidence, Health, OFFERED_SHARE_MIN, ShardEffort},
    interrupt::Interrupt,
    interval_log::{LogEnd, LogWriter, unix_seconds},
    intervals::Intervals,
    output::{self, LiveLine, Output},
    plan::Plan,
    record::{Measure, Recorder},
    result::{RunMeta, RunResult},
    schedule::{Pace, ScheduleOptions},
    scrape::Board,
    sweep::{Sweep, SweepPoint},
};

/// How long the first connection may take.
const PREFLIGHT: Duration = Duration::from_secs(3);
/// From the word to begin until the first request: every shard has heard it by then.
const LEAD: Duration = Duration::from_millis(50);
/// Warm-up of the later steps of a sweep.
const STEP_WARM_UP: Duration = Duration::from_millis(500);
/// Events that may wait for the collector, for each shard.
const EVENTS_PER_SHARD: usize = 4;

/// What every step of a run shares.
struct Run<'a> {
    plan: &'a Plan,
    output: &'a Output,
    interrupt: Interrupt,
    board: Option<Board>,
}

/// Does what the plan says, or as much of it as the user waits for.
///
/// # Errors
/// No connection, no driver, or a file that cannot be written.
pub fn run(mut plan: Plan, output: &Output, board: Option<Board>) -> Result<RunResult, LoadError> {
    preflight(&plan)?;
    let failed = |error: std::io::Error| LoadError::environment(format!("take over Ctrl-C: {error}"));
    let interrupt = Interrupt::listen().map_err(failed)?;
    let sweep = plan.sweep.take();
    let run = Run { plan: &plan, output, interrupt, board };
    match sweep {
        Some(sweep) => run.sweep(sweep),
        None => {
            let step = Step { pace: plan.pace, warm_up: plan.load.warm_up, time: plan.load.time };
            run.step(step, output.save.as_deref())
        }
    }
}

/// One load for one time.
#[derive(Debug, Clone, Copy)]
struct Step {
    pace: Pace,
    warm_up: Duration,
    time: Duration,
}

impl Step {
    /// About forty intervals, 0.1 to 1 second each.
    fn interval(&self) -> Duration {
        let wanted = self.time / 40;
        Duration::from_millis(wanted.as_millis().clamp(100, 1_000) as u64)
    }

    fn due(&self, measured: Duration) -> u64 {
        match self.pace {
            Pace::Open { rate } => (rate * measured.as_secs_f64()).round() as u64,
            Pace::Closed => 0,
        }
    }
}

/// The wrong port should be said at once, in words.
fn preflight(plan: &Plan) -> Result<(), LoadError> {
    match TcpStream::connect_timeout(&plan.address, PREFLIGHT.min(plan.timeout)) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(LoadError::run_time(format!("connect to {}: {error}; is the server running?", plan.address)))
        }
    }
}

impl Run<'_> {
    fn sweep(&self, mut sweep: Sweep) -> Result<RunResult, LoadError> {
        let (load, save) = (&self.plan.load, self.output.save.as_ref());
        let mut kept: Option<RunResult> = None;
        let mut warm_up = load.warm_up;
        while let Some(rate) = sweep.next_rate() {
            let step = Step { pace: Pace::Open { rate }, warm_up, time: load.step_time };
            let partial = save.map(|file| file.with_extension("partial"));
            let result = self.step(step, partial.as_deref())?;
            let cut_short = result.meta.cut_short_s.is_some();
            // A step that was cut short is no point of the curve; it is all there is if it was the first.
            let better = !cut_short && {
                let point = point_of(&result, rate, &sweep);
                let better =
                    point.clone().judged(sweep.goal()).kept && sweep.best().is_none_or(|best| rate > best);
                sweep.record(point);
                better
            };
            if better || kept.is_none() {
                kept = Some(result);
                keep_file(partial.as_deref(), save.map(|file| file.as_path()))?;
            } else if let Some(partial) = partial {
                let _ = fs::remove_file(partial);
            }
            if cut_short {
                break;
            }
            warm_up = warm_up.min(STEP_WARM_UP);
        }
        let mut result = kept.ok_or_else(|| LoadError::usage("a sweep without a step"))?;
        result.sweep = sweep.into_points();
        if self.interrupt.is_set() {
            result.meta.cut_short_s.get_or_insert(result.meta.time_s);
        }
        Ok(result)
    }

    fn step(&self, step: Step, save: Option<&Path>) -> Result<RunResult, LoadError> {
        let plan = self.plan;
        let clock = ClockQuality::measure();
        let (events_in, events) = bounded(EVENTS_PER_SHARD * plan.shards as usize);
        let (spares, spares_out) = bounded(EVENTS_PER_SHARD * plan.shards as usize);
        let shards = start_shards(plan, step, &events_in, &spares_out)?;
        // The channel ends when the last shard has ended.
        drop(events_in);
        await_connections(&events, plan)?;
        let started = begin(&shards, step)?;
        self.interrupt.watch(shards.handles());
        let mut meta = meta_of(plan, step, shards.report().driver.name(), started, &self.output.label);
        let mut collector = Collector::new(plan, step, spares, self.output.quiet);
        collector.board.clone_from(&self.board);
        collector.log = save.map(|file| begin_log(file, &meta)).transpose()?;
        for event in events {
            collector.take(event)?;
        }
        let ends = shards.join().into_iter().map(end_of).collect::<Result<Vec<ClientEnd>, LoadError>>()?;
        let efforts: Vec<ShardEffort> = ends.iter().map(|end| end.effort).collect();
        let last_answer = ends.iter().map(|end| end.last_answer).max().unwrap_or_default();
        let cut_short = ends.iter().filter_map(|end| end.cut_short).max();
        let measured = cut_short.unwrap_or(step.time);
        meta.cut_short_s = cut_short.map(|time| time.as_secs_f64());
        collector.finish(ends)?;
        let elapsed = last_answer.max(measured);
        let evidence = Evidence {
            pace: step.pace,
            recorder: &collector.totals,
            efforts: &efforts,
            due: step.due(measured),
            behind: elapsed.mul_f64(OFFERED_SHARE_MIN) > measured,
            clock,
        };
        let health = Health::judge(&evidence);
        if let Some(log) = collector.log.take() {
            let end =
                LogEnd { elapsed, cut_short_s: meta.cut_short_s, health: Some(&health), ..LogEnd::default() };
            log.end(&end).map_err(|error| not_saved(&error))?;
        }
        let (totals, intervals) = (collector.totals, collector.intervals);
        Ok(RunResult { meta, elapsed, totals, intervals, health: Some(health), sweep: Vec::new() })
    }
}

fn keep_file(partial: Option<&Path>, file: Option<&Path>) -> Result<(), LoadError> {
    let (Some(partial), Some(file)) = (partial, file) else { return Ok(()) };
    fs::rename(partial, file)
        .map_err(|error| LoadError::run_time(format!("keep {}: {error}", file.display())))
}

fn point_of(result: &RunResult, rate: f64, sweep: &Sweep) -> SweepPoint {
    let response = result.totals.measure(Measure::Response);
    let at = |quantile: f64| response.quantile(quantile).as_nanos() as u64;
    SweepPoint {
        rate,
        achieved: result.rate(),
        latency_ns: [0.5, 0.9, 0.99, 0.999, 1.0].map(at),
        goal_ns: sweep.goal().map_or(0, |goal| at(goal.quantile)),
        error_share: result.totals.counters().error_share(),
        valid: result.health.as_ref().is_some_and(|health| health.valid),
        kept: false,
    }
}

fn start_shards(
    plan: &Plan,
    step: Step,
    events: &Sender<Event>,
    spares: &Receiver<Box<Recorder>>,
) -> Result<Shards<ClientEnd>, LoadError> {
    let options: Vec<ClientOptions> =
        (0..plan.shards).map(|shard| client_options(plan, step, shard, events, spares)).collect();
    let driver = match plan.load.driver {
        Driver::Auto => DriverChoice::Auto,
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    // Not pinned: the server under test may be pinned to the very core that would be taken.
    let builder =
        Shards::builder().shards(plan.shards as usize).cores(Vec::new()).driver(driver).name("bench");
    let root = move |shard: Shard| {
        // The default lets the kernel wake a sleeper up to 50 µs late (prctl(2), PR_SET_TIMERSLACK). Where that
        // cannot be set the lateness says so.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let client = Client::start(&shard, options[shard.id().index()].clone());
        shard.local(Place::default).0.replace(Some(client.clone()));
        async move { client.finished().await }
    };
    builder.start(root).map_err(|error| LoadError::environment(error.to_string()))
}

fn client_options(
    plan: &Plan,
    step: Step,
    shard: u32,
    events: &Sender<Event>,
    spares: &Receiver<Box<Recorder>>,
) -> ClientOptions {
    let (connections, shards) = (plan.load.connections, plan.shards);
    let schedule = ScheduleOptions {
        pace: step.pace,
        connections: connections / shards + u32::from(connections % shards > shard),
        pipeline: plan.load.pipeline,
        warm_up: step.warm_up,
        time: step.time,
        shard: (shard, shards),
    };
    ClientOptions {
        address: plan.address.into(),
        requests: plan.requests.clone(),
        expect: plan.expect,
        keep_alive: plan.keep_alive,
        timeout: plan.timeout,
        schedule,
        interval: step.interval(),
        events: events.clone(),
        spares: spares.clone(),
    }
}

fn await_connections(events: &Receiver<Event>, plan: &Plan) -> Result<(), LoadError> {
    let (mut ready, mut connected, mut why) = (0, 0, None);
    while ready < plan.shards {
        match events.recv() {
            Ok(Event::Ready { connected: more, failure }) => {
                ready += 1;
                connected += more;
                why = why.or(failure);
            }
            Ok(Event::Interval { .. }) => {}
            Err(_) => return Err(LoadError::run_time("the generator ended before it began")),
        }
    }
    if connected < plan.load.connections {
        let why = why.unwrap_or_else(|| "no reason told".to_owned());
        let all = plan.load.connections;
        if connected == 0 {
            return Err(LoadError::run_time(format!("no connection to {}: {why}", plan.address)));
        }
        eprintln!("note: only {connected} of {all} connections stand: {why}");
    }
    Ok(())
}

/// Tells all shards the same start. Answers the wall clock at the start of the measured part.
fn begin(shards: &Shards<ClientEnd>, step: Step) -> Result<f64, LoadError> {
    let failed = |error: shards::Error| LoadError::run_time(format!("begin: {error}"));
    let first = shards.handles().first().ok_or_else(|| LoadError::run_time("no shard"))?;
    // Shards that were started together share the zero of their clocks.
    let start = first.submit_to(|shard: &Shard| shard.read_clock()).wait().map_err(failed)? + LEAD;
    let started = unix_seconds(SystemTime::now() + LEAD + step.warm_up);
    for handle in shards.handles() {
        let told = handle.submit_to(move |shard: &Shard| {
            if let Some(client) = shard.local(Place::default).0.borrow().as_ref() {
                client.begin(start);
            }
        });
        told.wait().map_err(failed)?;
    }
    Ok(started)
}

fn end_of(end: ShardEnd<ClientEnd>) -> Result<ClientEnd, LoadError> {
    end.result.map_err(|failure| LoadError::run_time(format!("a generator shard failed: {failure}")))
}

fn meta_of(plan: &Plan, step: Step, driver: &str, started: f64, label: &str) -> RunMeta {
    RunMeta {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        target: plan.target.clone(),
        method: plan.method.clone(),
        open_loop: step.pace != Pace::Closed,
        rate: match step.pace {
            Pace::Open { rate } => Some(rate),
            Pace::Closed => None,
        },
        connections: plan.load.connections,
        pipeline: plan.load.pipeline,
        keep_alive: plan.keep_alive,
        shards: plan.shards,
        driver: driver.to_owned(),
        warm_up_s: step.warm_up.as_secs_f64(),
        time_s: step.time.as_secs_f64(),
        cut_short_s: None,
        started_unix_s: started,
        host: host(),
        label: label.to_owned(),
    }
}

fn host() -> String {
    let system = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{} {}, {cores} cores", system.sysname().to_string_lossy(), system.release().to_string_lossy())
}

fn begin_log(file: &Path, meta: &RunMeta) -> Result<LogWriter<BufWriter<fs::File>>, LoadError> {
    LogWriter::begin(output::create(file)?, meta).map_err(|error| not_saved(&error))
}

/// Puts the shards' intervals together.
struct Collector {
    interval: Duration,
    time: Duration,
    totals: Recorder,
    intervals: Intervals,
    log: Option<LogWriter<BufWriter<fs::File>>>,
    live: LiveLine,
    /// Where Prometheus looks.
    board: Option<Board>,
    spares: Sender<Box<Recorder>>,
    /// Sums of intervals that not every shard has told yet, by number; as many as the shards are apart.
    open: BTreeMap<u32, Box<Recorder>>,
    /// How far each shard has told.
    told: Vec<Duration>,
    /// The first interval that is not written.
    next: u32,
}

impl Collector {
    fn new(plan: &Plan, step: Step, spares: Sender<Box<Recorder>>, quiet: bool) -> Self {
        Self {
            interval: step.interval(),
            time: step.time,
            totals: Recorder::new(),
            intervals: Intervals::new(),
            log: None,
            live: LiveLine::new(quiet),
            board: None,
            spares,
            open: BTreeMap::new(),
            told: vec![Duration::ZERO; plan.shards as usize],
            next: 0,
        }
    }

    fn take(&mut self, event: Event) -> Result<(), LoadError> {
        let Event::Interval { shard, start, length, recorder } = event else { return Ok(()) };
        self.told[shard as usize] = start + length;
        self.add(start, recorder);
        let all = self.told.iter().copied().min().unwrap_or_default();
        self.write_up_to(self.number_of(all))
    }

    fn finish(&mut self, ends: Vec<ClientEnd>) -> Result<(), LoadError> {
        for end in ends {
            self.add(end.rest_start, end.rest);
        }
        let last = self.open.last_key_value().map_or(0, |(number, _)| number + 1);
        self.write_up_to(last)?;
        self.live.clear();
        Ok(())
    }

    fn number_of(&self, start: Duration) -> u32 {
        (start.as_nanos() / self.interval.as_nanos()) as u32
    }

    fn add(&mut self, start: Duration, mut recorder: Box<Recorder>) {
        let number = self.number_of(start);
        match self.open.get_mut(&number) {
            None => {
                self.open.insert(number, recorder);
            }
            Some(sum) => {
                sum.add(&recorder);
                recorder.clear();
                // When all places are taken there are spares enough.
                let _ = self.spares.try_send(recorder);
            }
        }
    }

    fn write_up_to(&mut self, end: u32) -> Result<(), LoadError> {
        while self.next < end {
            let start = self.interval * self.next;
            let mut recorder = self.open.remove(&self.next).unwrap_or_default();
            self.totals.add(&recorder);
            self.intervals.push(start, self.interval, &recorder);
            if let Some(log) = &mut self.log {
                log.interval(start, self.interval, &recorder).map_err(|error| not_saved(&error))?;
            }
            self.live.show(start + self.interval, self.time, self.interval, &recorder);
            if let Some(board) = &self.board {
                board.put_up(&self.totals);
            }
            recorder.clear();
            let _ = self.spares.try_send(recorder);
            self.next += 1;
        }
        Ok(())
    }
}

fn not_saved(error: &std::io::Error) -> LoadError {
    LoadError::run_time(format!("save the result: {error}"))
}
