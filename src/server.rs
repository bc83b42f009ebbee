//! A server: shards with an HTTP service on each, started together and ended together. No request passes through
//! this file.

mod hand_over;

pub use crate::connection::AccessRecord;
use crate::{
    connection::{AccessSink, Service, ServiceOptions},
    exchange::Workers,
    limits::{LimitConflict, Limits},
    routing::{RouteError, Router},
    shutdown::{Phases, ShutdownPlan},
    stats::ShardSnapshot,
    workers::{Drained, PoolOptions, PoolSnapshot, WorkerPool},
};
use hand_over::Inherited;
pub use hand_over::{ListeningSockets, begin_hand_over, listening_sockets, look_again, wait_until_stopped};
use rustix::process::{Resource, getrlimit};
use shards::{
    DriverChoice, ProbeReport, Shard, ShardEnd, ShardHandle, Shards,
    net::{AcceptMode, Binding, Listener, SocketAddress},
};
use std::{
    any::Any,
    cell::RefCell,
    fmt,
    num::NonZeroU32,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::{Rc, Weak},
    sync::{Arc, mpsc},
};

/// How a server is set up.
#[derive(Clone)]
pub struct Builder {
    listen: Vec<SocketAddress>,
    shards: Option<usize>,
    driver: DriverChoice,
    limits: Limits,
    accept: AcceptMode,
    server_name: String,
    shard_field: Option<&'static str>,
    workers: PoolChoice,
    connections_max: usize,
    connections_per_address_max: Option<NonZeroU32>,
    beside: Vec<Site>,
    access_log: Option<AccessSink>,
    runtime: Option<SetRuntime>,
    inherited: Inherited,
}

type SetRuntime = Arc<dyn Fn(shards::Builder) -> shards::Builder + Send + Sync>;

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("listen", &self.listen)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}

/// Whose worker pool it is.
#[derive(Clone)]
enum PoolChoice {
    /// The server's own, with so many threads.
    Own(Option<usize>),
    Given(Arc<dyn Workers>),
}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// The routes contradict themselves.
    Routes(RouteError),
    /// The runtime or the kernel refused.
    Runtime(shards::Error),
    /// The worker threads could not be had.
    Workers(std::io::Error),
    /// The function that makes the routes, or another part of the start on a shard, panicked with this text.
    Panicked(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Routes(error) => error.fmt(f),
            StartError::Runtime(error) => error.fmt(f),
            StartError::Workers(error) => write!(f, "start the worker threads: {error}"),
            StartError::Panicked(text) => write!(f, "the routes could not be made: panic: {text}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<shards::Error> for StartError {
    fn from(error: shards::Error) -> Self {
        StartError::Runtime(error)
    }
}

/// A running server. Dropping it leaves it running; end it with [`Server::shutdown`] or [`Server::join`].
#[derive(Debug)]
pub struct Server {
    shards: Shards<()>,
    addresses: Vec<SocketAddress>,
    pool: Option<WorkerPool>,
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)").to_owned()
}

/// The service of a shard, where code that runs on the shard finds it.
#[derive(Default)]
struct Place(RefCell<Option<Rc<Running>>>);

struct Running {
    /// Of all sites, the first one's first.
    services: Vec<Rc<Service>>,
    /// Of all sites, in order, as long as they accept.
    listeners: Vec<Weak<Listener>>,
    plan: RefCell<Option<ShutdownPlan>>,
    pool: Option<WorkerPool>,
}

impl Server {
    /// Starts to set a server up.
    pub fn builder() -> Builder {
        Builder {
            listen: Vec::new(),
            shards: None,
            driver: DriverChoice::Auto,
            limits: Limits::DEFAULT,
            accept: AcceptMode::ReusePort,
            server_name: "shardlet".into(),
            shard_field: None,
            workers: PoolChoice::Own(None),
            connections_max: usize::MAX,
            connections_per_address_max: None,
            beside: Vec::new(),
            access_log: None,
            runtime: None,
            inherited: Inherited::default(),
        }
    }

    /// The real addresses, in the order in which they were given.
    pub fn addresses(&self) -> &[SocketAddress] {
        &self.addresses
    }

    /// The first address.
    pub fn address(&self) -> &SocketAddress {
        &self.addresses[0]
    }

    /// Which driver runs, and why.
    pub fn report(&self) -> &ProbeReport {
        self.shards.report()
    }

    /// A handle per shard.
    pub fn handles(&self) -> &[ShardHandle] {
        self.shards.handles()
    }

    /// Ends the server by a plan and waits for the end. Gives how each shard ended.
    pub fn shutdown(self, plan: ShutdownPlan) -> Vec<ShardEnd<()>> {
        self.begin_shutdown(plan);
        self.join()
    }

    /// Begins the end, from any thread. A second plan that ends sooner replaces the first.
    pub fn begin_shutdown(&self, plan: ShutdownPlan) {
        begin_shutdown(self.shards.handles(), plan);
    }

    /// Waits until the server has ended.
    pub fn join(self) -> Vec<ShardEnd<()>> {
        let ends = self.shards.join();
        // Workers outlive exchanges: the pool is drained last (L-26).
        if let Some(pool) = self.pool {
            let drained = pool.close(POOL_CLOSE);
            if drained != Drained::default() {
                tracing::warn!(
                    not_ended = drained.not_ended,
                    dropped = drained.dropped,
                    "worker pool cut short"
                );
            }
        }
        ends
    }

    /// The figures of the server's own worker pool.
    pub fn workers(&self) -> Option<PoolSnapshot> {
        self.pool.as_ref().map(WorkerPool::snapshot)
    }
}

/// Begins the end of the server whose shards these are.
pub fn begin_shutdown(handles: &[ShardHandle], plan: ShutdownPlan) {
    for handle in handles {
        // A shard that takes no more messages is ending already.
        let _ = handle.send_reply(plan, |shard, plan| {
            if let Some(running) = running_on(shard) {
                let before = running.plan.take();
                running.plan.replace(Some(before.map_or(plan, |before| before.sooner(plan))));
            }
            shard.handle().stop();
        });
    }
}

/// What the service of the current shard has counted, if one runs there.
pub fn snapshot(shard: &Shard) -> Option<ShardSnapshot> {
    let running = running_on(shard)?;
    let workers = running.pool.as_ref().map(WorkerPool::snapshot);
    Some(ShardSnapshot::take(shard, &running.services[0], workers))
}

/// What all shards of the current shard's server have counted, in order. Shards that are ending are left out.
pub async fn snapshots(shard: &Shard) -> Vec<ShardSnapshot> {
    let asked: Vec<_> = shard.siblings().iter().map(|handle| handle.submit_to(snapshot)).collect();
    let mut taken = Vec::with_capacity(asked.len());
    for answer in asked {
        if let Ok(Some(snapshot)) = answer.await {
            taken.push(snapshot);
        }
    }
    taken
}

/// Whether the current shard's server is to get new work: false from the moment its end begins (L-26).
pub fn is_ready(shard: &Shard) -> bool {
    running_on(shard).is_some_and(|running| running.plan.borrow().is_none())
}

fn running_on(shard: &Shard) -> Option<Rc<Running>> {
    shard.local(Place::default).0.borrow().clone()
}

impl Builder {
    /// An address to listen on; several may be given.
    #[must_use]
    pub fn listen(mut self, address: impl Into<SocketAddress>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// How many shards. Default: the cores this process may use.
    #[must_use]
    pub fn shards(mut self, count: usize) -> Self {
        self.shards = Some(count);
        self
    }

    /// Which driver. Default: the best one that works here.
    #[must_use]
    pub fn driver(mut self, choice: DriverChoice) -> Self {
        self.driver = choice;
        self
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How connections are spread over shards.
    #[must_use]
    pub fn accept(mut self, mode: AcceptMode) -> Self {
        self.accept = mode;
        self
    }

    /// Value of the Server field; empty sends none.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = name.into();
        self
    }

    /// A field that tells in every answer which shard gave it.
    #[must_use]
    pub fn shard_field(mut self, name: &'static str) -> Self {
        self.shard_field = Some(name);
        self
    }

    /// How many threads the server's own pool has, for `start` and `blocking`. Default: one per shard, two or more.
    #[must_use]
    pub fn worker_threads(mut self, count: usize) -> Self {
        self.workers = PoolChoice::Own(Some(count));
        self
    }

    /// A pool of the application's own behind `start` and `blocking`. Whoever made it closes it, behind the server.
    #[must_use]
    pub fn workers(mut self, workers: Arc<dyn Workers>) -> Self {
        self.workers = PoolChoice::Given(workers);
        self
    }

    /// Most connections of one shard; more are closed at once and counted. Never more than its part of the
    /// descriptors that this process may open (RLIMIT_NOFILE) without `descriptors_reserved` of the limits.
    #[must_use]
    pub fn connections_max(mut self, count: usize) -> Self {
        self.connections_max = count;
        self
    }

    /// Most connections of one client address on one shard; more are closed at once and counted. An IPv6 client is the
    /// first 64 bits of its address. Shards do not ask each other: an address is never refused below `count`, and has
    /// at most `count` times the number of shards. Not limited by default, because many clients may share an address;
    /// behind a proxy all do. Unix sockets have no address and are not limited, nor are listeners [`Builder::beside`].
    #[must_use]
    pub fn connections_per_address_max(mut self, count: NonZeroU32) -> Self {
        self.connections_per_address_max = Some(count);
        self
    }

    /// Changes the set-up of the runtime below: ring sizes, buffers, cores, names. What this builder sets itself
    /// (driver, inbox, number of shards) has been set already or will be.
    #[must_use]
    pub fn runtime(
        mut self,
        set: impl Fn(shards::Builder) -> shards::Builder + Send + Sync + 'static,
    ) -> Self {
        self.runtime = Some(Arc::new(set));
        self
    }

    /// Another listener with routes of its own, for example for an operator. It serves until the first one has
    /// ended, so that the end can be watched.
    #[must_use]
    pub fn beside<F>(mut self, address: impl Into<SocketAddress>, routes: F) -> Self
    where
        F: Fn(&Shard) -> Router + Send + Sync + 'static,
    {
        self.beside.push(Site { listen: vec![address.into()], routes: Arc::new(routes) });
        self
    }

    /// Takes over sockets that listen already, such as those of the process before ([`listening_sockets`]): in the order
    /// of the addresses given here, as far as they reach. What waits in their queues is served. A port of 0 stands for
    /// whichever the sockets have.
    #[must_use]
    pub fn take_over(self, sockets: Vec<ListeningSockets>) -> Self {
        self.inherited.extend(sockets);
        self
    }

    /// Who is told of every answer, on the shard that gave it, when the answer has left or was cut. It must not
    /// block.
    #[must_use]
    pub fn access_log(mut self, sink: impl Fn(&AccessRecord<'_>) + Send + Sync + 'static) -> Self {
        self.access_log = Some(Arc::new(sink));
        self
    }

    /// Binds, checks the routes and starts. `routes` runs on every shard and makes that shard's own router.
    ///
    /// # Errors
    /// [`StartError::Routes`] for a mistake in the routes, [`StartError::Panicked`] when making them panics,
    /// [`StartError::Runtime`] when limits contradict each other, there is no address, one cannot be bound, or a shard cannot be started,
    /// [`StartError::Workers`] when the worker threads cannot be had.
    pub fn start<F>(mut self, routes: F) -> Result<Server, StartError>
    where
        F: Fn(&Shard) -> Router + Send + Sync + 'static,
    {
        if let Err(LimitConflict(advice)) = self.limits.validate() {
            return Err(StartError::Runtime(shards::Error::Misuse { advice }));
        }
        if self.listen.is_empty() {
            return Err(StartError::Runtime(shards::Error::Misuse {
                advice: "say where to listen: listen(address)",
            }));
        }
        let mut shards = Shards::builder().driver(self.driver).inbox(self.limits.inbox_messages_max);
        if let Some(runtime) = self.runtime.take() {
            shards = runtime(shards);
        }
        if let Some(count) = self.shards {
            shards = shards.shards(count);
        }
        let count = shards.shard_count();
        let mut sites = vec![Site { listen: std::mem::take(&mut self.listen), routes: Arc::new(routes) }];
        sites.append(&mut self.beside);
        self.connections_max = self.connections_max.min(descriptors_of_each(count, &self.limits));
        let sites = sites
            .into_iter()
            .map(|site| site.bind(count, self.accept, &self.inherited, self.driver))
            .collect::<shards::Result<Vec<_>>>()?;
        let addresses = sites.iter().flat_map(BoundSite::addresses).collect();
        let (pool, workers) = self.pool(count)?;
        let shared_pool = pool.clone();
        let (checked, check) = mpsc::channel();
        let shards = shards.start(move |shard| {
            let (options, sites, checked) = (self.clone(), sites.clone(), checked.clone());
            let (pool, workers) = (shared_pool.clone(), workers.clone());
            async move {
                // The starter waits for one answer per shard, also from one whose routes panic.
                let opened = catch_unwind(AssertUnwindSafe(|| options.open(&shard, &sites, &workers)));
                let (services, problem) = match opened {
                    Ok(Ok(services)) => (services, None),
                    Ok(Err(problem)) => (Vec::new(), Some(StartError::Routes(problem))),
                    Err(panic) => (Vec::new(), Some(StartError::Panicked(panic_text(&*panic)))),
                };
                let _ = checked.send(problem);
                live(&shard, services, pool).await;
            }
        })?;
        let problem = check.iter().take(count).flatten().next();
        let server = Server { shards, addresses, pool };
        match problem {
            None => Ok(server),
            Some(problem) => {
                server.shutdown(ShutdownPlan::now());
                Err(problem)
            }
        }
    }

    /// The pool that the server owns, if it does, and the pool that exchanges use.
    fn pool(&self, shards: usize) -> Result<(Option<WorkerPool>, Arc<dyn Workers>), StartError> {
        let threads = match &self.workers {
            PoolChoice::Given(workers) => return Ok((None, workers.clone())),
            PoolChoice::Own(threads) => threads.unwrap_or(shards.max(2)),
        };
        let options = PoolOptions { threads, queue_max: threads * JOBS_PER_THREAD, ..PoolOptions::default() };
        let pool = WorkerPool::new(&options).map_err(StartError::Workers)?;
        Ok((Some(pool.clone()), Arc::new(pool)))
    }

    /// The services of this shard, listening.
    fn open(
        &self,
        shard: &Shard,
        sites: &[BoundSite],
        workers: &Arc<dyn Workers>,
    ) -> Result<Vec<Open>, RouteError> {
        let mut opened = Vec::with_capacity(sites.len());
        for site in sites {
            let router = (site.routes)(shard).finish()?;
            let mut options = self.service_options(shard, router, workers.clone());
            if opened.is_empty() {
                options.access_log = self.access_log.clone();
                options.connections_per_address_max = self.connections_per_address_max.map(NonZeroU32::get);
            }
            let service = Service::new(shard, options);
            let listen = |binding: &Binding| {
                let listener = binding.listen(shard, service.clone());
                Rc::new(listener.expect("every shard was counted when the address was bound"))
            };
            opened.push(Open { listeners: site.bindings.iter().map(listen).collect(), service });
        }
        Ok(opened)
    }

    fn service_options(&self, shard: &Shard, router: Router, workers: Arc<dyn Workers>) -> ServiceOptions {
        let field = self.shard_field.map(|name| (name, shard.id().to_string()));
        ServiceOptions {
            limits: self.limits,
            router,
            server_name: self.server_name.clone(),
            common_fields: field.into_iter().collect(),
            workers: Some(workers),
            connections_max: self.connections_max,
            connections_per_address_max: None,
            access_log: None,
        }
    }
}

/// Addresses and the routes that are served there.
#[derive(Clone)]
struct Site {
    listen: Vec<SocketAddress>,
    routes: MakeRoutes,
}

type MakeRoutes = Arc<dyn Fn(&Shard) -> Router + Send + Sync>;

#[derive(Clone)]
struct BoundSite {
    bindings: Vec<Binding>,
    routes: MakeRoutes,
}

impl Site {
    fn bind(
        self,
        shards: usize,
        accept: AcceptMode,
        inherited: &Inherited,
        driver: DriverChoice,
    ) -> shards::Result<BoundSite> {
        let bind = |address: &SocketAddress| match inherited.next_for(address)? {
            Some(sockets) => Binding::adopt(sockets, shards, driver.resolve()?.driver),
            None => Binding::bind(address, shards, accept, BACKLOG),
        };
        let bindings = self.listen.iter().map(bind).collect::<shards::Result<_>>()?;
        Ok(BoundSite { bindings, routes: self.routes })
    }
}

impl BoundSite {
    fn addresses(&self) -> impl Iterator<Item = SocketAddress> {
        self.bindings.iter().map(|binding| binding.address().clone())
    }
}

/// A site on one shard.
struct Open {
    service: Rc<Service>,
    listeners: Vec<Rc<Listener>>,
}

/// The life of a shard's services: serve until told to stop, then end in phases (L-26), the first site first.
async fn live(shard: &Shard, services: Vec<Open>, pool: Option<WorkerPool>) {
    if services.is_empty() {
        return;
    }
    let running = Rc::new(Running {
        services: services.iter().map(|open| open.service.clone()).collect(),
        listeners: services.iter().flat_map(|open| &open.listeners).map(Rc::downgrade).collect(),
        plan: RefCell::default(),
        pool,
    });
    let place = shard.local(Place::default);
    place.0.replace(Some(running.clone()));
    shard.stopped().await;
    // Nobody gave a plan: the shard was stopped by its handle, or because another one failed.
    running.plan.borrow_mut().get_or_insert(ShutdownPlan::graceful(UNPLANNED_GRACE));
    let phases = Phases::new(shard, &running.plan);
    for Open { service, listeners } in services {
        phases.end(&service, listeners).await;
    }
    place.0.replace(None);
}

/// Connections that each of so many shards can have while files and upstreams still find descriptors (F2).
fn descriptors_of_each(shards: usize, limits: &Limits) -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let free = most.saturating_sub(u64::from(limits.descriptors_reserved));
    usize::try_from(free / shards as u64).unwrap_or(usize::MAX).max(1)
}

/// How long requests under way have when a server is stopped without a plan.
const UNPLANNED_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

/// Jobs that may wait for each worker thread: a second's worth of jobs of some ten milliseconds.
const JOBS_PER_THREAD: usize = 64;

/// How long the end waits for jobs that still run or wait.
const POOL_CLOSE: std::time::Duration = std::time::Duration::from_secs(5);

/// Length of the accept queue; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;
