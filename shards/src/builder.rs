//! Starts shards: one pinned thread each, a root future made on the thread by a factory, join at the end.

use crate::{
    affinity,
    clock::{Clock, Start},
    driver::{Driver, DriverChoice, DriverOptions, ProbeReport},
    error::{Error, Result},
    handle::{ShardHandle, ShardId},
    inbox::{self, Inbox, WakeFd},
    offload::OffloadPool,
    shard::{Budgets, Parts, Shard, Siblings},
    sync::Arc,
    tasks::{JoinError, panic_message},
    thread_times::this_thread,
    watchdog::Watchdog,
};
use std::{
    any::Any,
    cell::Cell,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    rc::Rc,
    sync::mpsc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

/// How shards are set up. Every value has a default that suits a server.
#[derive(Debug, Clone)]
pub struct Builder {
    shards: usize,
    cores: Option<Vec<usize>>,
    driver: DriverChoice,
    name: String,
    options: DriverOptions,
    inbox_messages_max: usize,
    offload_threads: usize,
    offload_queue: usize,
    budgets: Budgets,
    tear_down: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            shards: affinity::default_shards(),
            cores: None,
            driver: DriverChoice::Auto,
            name: "shard".into(),
            options: DriverOptions {
                submission_entries: 1024,
                completion_entries: 8192,
                buffers: 256,
                buffer_bytes: 8192,
                multishot_receive: true,
            },
            inbox_messages_max: 16_384,
            offload_threads: 4,
            offload_queue: 1024,
            budgets: Budgets::default(),
            tear_down: Duration::from_secs(5),
        }
    }
}

impl Builder {
    /// How many shards, 1 to 65,535. Default: the cores this process may use, cut to its CPU quota.
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = count.clamp(1, usize::from(u16::MAX));
        self
    }

    /// How many shards will be started.
    pub fn shard_count(&self) -> usize {
        self.shards
    }

    /// Which cores to pin to, shard by shard; fewer cores than shards go round. Default: those allowed, in order.
    /// An empty list pins nothing.
    pub fn cores(mut self, cores: Vec<usize>) -> Self {
        self.cores = Some(cores);
        self
    }

    /// Which driver. Default: the best one that works here.
    pub fn driver(mut self, choice: DriverChoice) -> Self {
        self.driver = choice;
        self
    }

    /// Prefix of the threads' names; the shard's number follows.
    pub fn name(mut self, prefix: impl Into<String>) -> Self {
        self.name = prefix.into();
        self
    }

    /// Entries of the submission and completion queues: powers of two, the second at least twice the first.
    pub fn ring_entries(mut self, submission: u32, completion: u32) -> Self {
        self.options.submission_entries = submission;
        self.options.completion_entries = completion;
        self
    }

    /// Receive buffers per shard (a power of two) and the size of each in bytes.
    pub fn buffers(mut self, count: usize, bytes: usize) -> Self {
        self.options.buffers = count;
        self.options.buffer_bytes = bytes;
        self
    }

    /// Whether one receive operation may bring many pieces, where the kernel does that well. On by default; off for
    /// comparison.
    pub fn multishot_receive(mut self, allowed: bool) -> Self {
        self.options.multishot_receive = allowed;
        self
    }

    /// Messages that may wait in a shard's inbox before [`ShardHandle::execute`] answers `Full`.
    pub fn inbox(mut self, messages_max: usize) -> Self {
        self.inbox_messages_max = messages_max;
        self
    }

    /// Threads and queue length of the pool for blocking work, shared by all shards.
    pub fn offload(mut self, threads: usize, queue: usize) -> Self {
        self.offload_threads = threads;
        self.offload_queue = queue;
        self
    }

    /// A turn's work beyond this is counted, and warned about by name.
    pub fn stall_after(mut self, limit: Duration) -> Self {
        self.budgets.stall = limit;
        self
    }

    /// Starts the shards. `root` runs once on every shard's thread and makes the future that is the shard's life:
    /// when it ends, the shard ends. No root runs before all shards have been set up: if one cannot be, none begins.
    /// If a root panics or a driver fails, that is logged and all other shards are asked to end, as by
    /// [`Shards::stop`]: [`Shards::join`] then tells which one failed.
    ///
    /// # Errors
    /// [`Error::Misuse`] for sizes that cannot be; [`Error::DriverUnavailable`] when the wanted driver cannot work here; [`Error::Kernel`] when a thread, a
    /// ring or an eventfd cannot be made.
    pub fn start<F, R>(self, root: F) -> Result<Shards<R::Output>>
    where
        F: Fn(Shard) -> R + Send + Sync + 'static,
        R: Future + 'static,
        R::Output: Send + 'static,
    {
        self.check()?;
        let report = self.driver.resolve()?;
        let clock = Start::new();
        let offload = match self.offload_threads {
            0 => None,
            threads => {
                let pool = OffloadPool::new(threads, self.offload_queue);
                Some(Arc::new(pool.map_err(|source| Error::kernel("start the offload threads", source))?))
            }
        };
        let root = Arc::new(root);
        let siblings = Siblings::default();
        let mut shards = Shards { handles: Vec::new(), threads: Vec::new(), report, _watchdog: None };
        let common = Common { report: shards.report.clone(), clock, offload, siblings };
        let seeds = (0..self.shards).map(|index| self.seed(index, &common)).collect::<Result<Vec<_>>>()?;
        shards.handles = seeds.iter().map(|seed| seed.handle.clone()).collect();
        // Nobody has set it before: it was made above.
        let _ = common.siblings.set(shards.handles.clone());
        let mut begin = Vec::new();
        for (index, seed) in seeds.into_iter().enumerate() {
            match self.start_one(index, seed, &root) {
                Ok(started) => {
                    shards.threads.push(started.thread);
                    begin.push((started.ready, started.begin));
                }
                Err(error) => return Err(shards.give_up(begin, error)),
            }
        }
        for (ready, _) in &begin {
            // A thread that went without an answer has panicked, which is a defect of this crate.
            let answer = ready.recv().unwrap_or(Err(Error::Stopping));
            if let Err(error) = answer {
                return Err(shards.give_up(begin, error));
            }
        }
        for (_, begin) in begin {
            // A thread that waits for this is there.
            let _ = begin.send(());
        }
        shards._watchdog = Some(Watchdog::start(shards.handles.clone(), clock));
        Ok(shards)
    }

    /// Whether the sizes are ones that the kernel takes (io_uring_setup(2), io_uring_register_buf_ring(3)).
    fn check(&self) -> Result<()> {
        let DriverOptions { submission_entries, completion_entries, buffers, buffer_bytes, .. } =
            self.options;
        let powers = submission_entries.is_power_of_two() && completion_entries.is_power_of_two();
        if !powers || submission_entries < 4 || completion_entries < 2 * submission_entries {
            return Err(Error::Misuse {
                advice: "ring entries are powers of two, 4 or more, the completions at least twice the submissions",
            });
        }
        if !buffers.is_power_of_two() || buffers > 32_768 || buffer_bytes == 0 {
            return Err(Error::Misuse {
                advice: "buffers are a power of two, 32,768 at most, of a byte or more",
            });
        }
        Ok(())
    }

    fn start_one<F, R>(&self, index: usize, seed: Seed, root: &Arc<F>) -> Result<Started<R::Output>>
    where
        F: Fn(Shard) -> R + Send + Sync + 'static,
        R: Future + 'static,
        R::Output: Send + 'static,
    {
        let root = root.clone();
        let (answer, ready) = mpsc::channel();
        let (begin, may_begin) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("{}-{index}", self.name));
        let thread = thread.spawn(move || seed.run(&*root, &answer, &may_begin));
        let thread = thread.map_err(|source| Error::kernel("start a shard's thread", source))?;
        Ok(Started { thread, ready, begin })
    }

    fn seed(&self, index: usize, common: &Common) -> Result<Seed> {
        let wake = WakeFd::new().map_err(|source| Error::kernel("make an eventfd", source))?;
        let wake = Arc::new(wake);
        let (sender, inbox) = inbox::channel(self.inbox_messages_max, wake.clone());
        let mut options = self.options.clone();
        options.multishot_receive &= common.report.multishot_receive;
        let cores = self.cores.clone().unwrap_or_else(affinity::available_cores);
        Ok(Seed {
            handle: ShardHandle::new(ShardId(index as u16), sender),
            inbox,
            wake,
            common: common.clone(),
            options,
            core: (!cores.is_empty()).then(|| cores[index % cores.len()]),
            budgets: self.budgets,
            tear_down: self.tear_down,
        })
    }
}

/// A shard's thread that sets its shard up, says how that went, and waits for the word to begin.
struct Started<T> {
    thread: thread::JoinHandle<ShardEnd<T>>,
    ready: Ready,
    begin: Begin,
}

type Ready = mpsc::Receiver<Result<()>>;
type Begin = mpsc::Sender<()>;

/// What all shards of a start have in common.
#[derive(Clone)]
struct Common {
    report: ProbeReport,
    clock: Start,
    offload: Option<Arc<OffloadPool>>,
    siblings: Siblings,
}

/// Everything a shard's thread starts with.
struct Seed {
    handle: ShardHandle,
    inbox: Inbox,
    wake: Arc<WakeFd>,
    common: Common,
    options: DriverOptions,
    core: Option<usize>,
    budgets: Budgets,
    tear_down: Duration,
}

impl Seed {
    fn run<F, R>(
        self,
        root: &F,
        ready: &mpsc::Sender<Result<()>>,
        may_begin: &mpsc::Receiver<()>,
    ) -> ShardEnd<R::Output>
    where
        F: Fn(Shard) -> R,
        R: Future + 'static,
    {
        if let Some(core) = self.core
            && let Err(error) = affinity::pin_to(core)
        {
            tracing::warn!(shard = %self.handle.id(), core, "not pinned: {error}");
        }
        let (tear_down, siblings) = (self.tear_down, self.common.siblings.clone());
        let shard = match self.build() {
            Ok(shard) => shard,
            Err(error) => {
                // A starter that has given up on another shard does not listen any more.
                let _ = ready.send(Err(error));
                return ShardEnd { result: Err(ShardFailure::NotStarted), leaked: 0 };
            }
        };
        let _ = ready.send(Ok(()));
        let fall = Fall { id: shard.id(), siblings };
        shard.handle_ref().shared().heartbeat.runs_on(this_thread());
        shard.clone().entered(|| {
            let result = match may_begin.recv() {
                Ok(()) => begin(&shard, root),
                Err(mpsc::RecvError) => Err(ShardFailure::NotStarted),
            };
            match &result {
                Ok(_) | Err(ShardFailure::NotStarted) => {}
                Err(failure) => fall.tell(failure),
            }
            let leaked = shard.tear_down(tear_down);
            ShardEnd { result, leaked }
        })
    }

    fn build(self) -> Result<Shard> {
        let driver = Driver::new(self.common.report.driver, &self.options, self.wake)?;
        Ok(Shard::new(Parts {
            handle: self.handle,
            inbox: self.inbox,
            driver,
            clock: Clock::Real(self.common.clock),
            budgets: self.budgets,
            offload: self.common.offload,
            siblings: self.common.siblings,
        }))
    }
}

/// A shard that fails takes the others with it: what is placed on it would wait for ever, and a process that is half
/// alive is seen by nobody, while one that ends is started again.
struct Fall {
    id: ShardId,
    siblings: Siblings,
}

impl Fall {
    fn tell(&self, failure: &dyn fmt::Display) {
        tracing::error!(shard = %self.id, "the shard failed, and the others are told to stop: {failure}");
        self.siblings.get().into_iter().flatten().for_each(ShardHandle::stop);
    }
}

impl Drop for Fall {
    fn drop(&mut self) {
        if thread::panicking() {
            self.tell(&"its loop panicked, which is a defect");
        }
    }
}

/// Makes the root future and runs it to its end.
fn begin<F, R>(shard: &Shard, root: &F) -> std::result::Result<R::Output, ShardFailure>
where
    F: Fn(Shard) -> R,
    R: Future + 'static,
{
    match catch_unwind(AssertUnwindSafe(|| root(shard.clone()))) {
        Ok(root) => live(shard, root),
        Err(panic) => Err(ShardFailure::Panicked(panic_message(&*panic))),
    }
}

/// Runs the loop until the root future has ended.
fn live<R: Future + 'static>(shard: &Shard, root: R) -> std::result::Result<R::Output, ShardFailure> {
    let output = Rc::new(Cell::new(None));
    let place = output.clone();
    let task = shard.spawn(async move { place.set(Some(root.await)) });
    while !task.is_finished() {
        shard.turn(true).map_err(ShardFailure::Kernel)?;
    }
    match pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => Ok(output.take().expect("a root that ended left its output")),
        Poll::Ready(Err(JoinError::Panicked(text))) => Err(ShardFailure::Panicked(text)),
        Poll::Ready(Err(JoinError::Cancelled)) | Poll::Pending => unreachable!("nobody cancels a root task"),
    }
}

/// How one shard ended.
#[derive(Debug)]
pub struct ShardEnd<T> {
    /// What the root future gave, or why it gave nothing.
    pub result: std::result::Result<T, ShardFailure>,
    /// Operations that the kernel did not give back in time; their memory was leaked on purpose.
    pub leaked: usize,
}

/// Why a shard gave no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShardFailure {
    /// The root future, or the function that makes it, panicked with this text.
    Panicked(String),
    /// The driver failed.
    Kernel(Error),
    /// This shard or another one could not be set up; [`Builder::start`] has reported why.
    NotStarted,
}

impl fmt::Display for ShardFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardFailure::Panicked(text) => write!(f, "the root task panicked: {text}"),
            ShardFailure::Kernel(error) => write!(f, "{error}"),
            ShardFailure::NotStarted => f.write_str("the shard was not started"),
        }
    }
}

impl std::error::Error for ShardFailure {}

/// Running shards.
#[derive(Debug)]
pub struct Shards<T> {
    handles: Vec<ShardHandle>,
    threads: Vec<thread::JoinHandle<ShardEnd<T>>>,
    report: ProbeReport,
    _watchdog: Option<Watchdog>,
}

impl Shards<()> {
    /// Starts to set shards up.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<T> Shards<T> {
    /// A handle per shard, in order.
    pub fn handles(&self) -> &[ShardHandle] {
        &self.handles
    }

    /// Which driver runs, and why.
    pub fn report(&self) -> &ProbeReport {
        &self.report
    }

    /// Asks every root future to end.
    pub fn stop(&self) {
        self.handles.iter().for_each(ShardHandle::stop);
    }

    /// Waits for all shards to end.
    pub fn join(self) -> Vec<ShardEnd<T>> {
        let fallen = |panic: Box<dyn Any + Send>| ShardEnd {
            result: Err(ShardFailure::Panicked(panic_message(&*panic))),
            leaked: 0,
        };
        self.threads.into_iter().map(|thread| thread.join().unwrap_or_else(fallen)).collect()
    }

    /// One shard could not be set up: the others end without having begun.
    fn give_up(self, begin: Vec<(Ready, Begin)>, error: Error) -> Error {
        drop(begin);
        // The ends carry nothing: no root ever ran.
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
        error
    }
}
