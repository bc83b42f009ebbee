//! The shard: the loop that owns a core, and the only file that knows all of its parts.
//!
//! One turn, each stage with a budget so that nothing starves:
//!
//! ```text
//!   inbox ─▶ completions ─▶ tasks ─▶ timers ─▶ tasks ─▶ submit and wait (one enter)
//! ```
//!
//! The inbox comes first: a sleeping shard is woken for it, and a result that had arrived when the turn began beats a
//! timeout that had expired by then.
//! Nothing of the driver, the tables or the wheel is borrowed while a callback runs, and no callback runs inside
//! another: completions are queued by the driver and delivered from here.

mod deliver;
mod measure;
#[cfg(all(test, not(loom)))]
mod sleep_tests;
mod stop;

use crate::{
    clock::Clock,
    driver::{Driver, Wait},
    error::{Error, Result},
    file_io::Files,
    handle::{ShardHandle, ShardId},
    inbox::Inbox,
    net::{self, Net},
    offload::{self, OffloadPool},
    stages::{Stage, Stages},
    stats::ShardStats,
    sync::Arc,
    table::Key,
    tasks::{JoinHandle, TaskQueue},
    timers::{TimerEvents, TimerTarget, Wheel},
};
use std::{
    any::{Any, TypeId},
    cell::{Cell, RefCell, RefMut},
    collections::HashMap,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::OnceLock,
    task::Waker,
    time::Duration,
};

use measure::Measure;
use stop::Stop;
pub use stop::Stopped;

/// One core's worth of a server: `!Send`, cheap to clone, found with [`Shard::current`] from any code that runs
/// on it.
#[derive(Clone)]
pub struct Shard {
    inner: Rc<Inner>,
}

struct Inner {
    handle: ShardHandle,
    driver: RefCell<Driver>,
    net: Net,
    files: Files,
    timers: RefCell<Timers>,
    alarm: RefCell<Option<Alarm>>,
    tasks: Rc<TaskQueue>,
    inbox: Inbox,
    clock: Clock,
    now: Cell<Duration>,
    /// How many callbacks are on the stack: work may run inline only at depth zero.
    depth: Cell<u32>,
    stop: RefCell<Stop>,
    going_down: Cell<bool>,
    stats: RefCell<ShardStats>,
    measure: Measure,
    stages: Stages,
    budgets: Budgets,
    offload: Option<Arc<OffloadPool>>,
    locals: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    siblings: Siblings,
}

/// All shards that were started together, in order; complete before any of them runs its root.
pub(crate) type Siblings = Arc<OnceLock<Vec<ShardHandle>>>;

/// How much of each kind of work one turn may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budgets {
    /// Completions delivered.
    pub(crate) completions: usize,
    /// Task polls, before and again after inbox and timers.
    pub(crate) polls: usize,
    /// Inbox messages.
    pub(crate) messages: usize,
    /// Timers fired.
    pub(crate) timers: usize,
    /// A turn's work beyond this is counted and warned about.
    pub(crate) stall: Duration,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets {
            completions: 256,
            polls: 256,
            messages: 256,
            timers: 1024,
            stall: Duration::from_millis(100),
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Shard>> = const { RefCell::new(None) };
}

/// The wheel in the shard's unit of time.
pub(crate) struct Timers {
    wheel: Wheel<TimerTarget>,
}

impl Timers {
    /// A timer that fires at `at` or later (rounded up to the next millisecond).
    pub(crate) fn insert(&mut self, at: Duration, target: TimerTarget) -> Key {
        self.wheel.insert(round_up_ms(at), target)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<TimerTarget> {
        self.wheel.remove(key)
    }

    fn reset(&mut self, key: Key, at: Duration) -> bool {
        self.wheel.reset(key, round_up_ms(at))
    }
}

/// The one deadline of a shard that is not rounded to milliseconds.
struct Alarm {
    at: Duration,
    events: Rc<dyn TimerEvents>,
    token: u64,
}

fn round_up_ms(at: Duration) -> u64 {
    // What does not fit lies 584 million years ahead.
    u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The parts a shard is put together from.
pub(crate) struct Parts {
    pub(crate) handle: ShardHandle,
    pub(crate) inbox: Inbox,
    pub(crate) driver: Driver,
    pub(crate) clock: Clock,
    pub(crate) budgets: Budgets,
    pub(crate) offload: Option<Arc<OffloadPool>>,
    pub(crate) siblings: Siblings,
}

impl Shard {
    pub(crate) fn new(parts: Parts) -> Self {
        let now = parts.clock.now();
        let tasks = TaskQueue::new(parts.handle.shared().sender.clone());
        Shard {
            inner: Rc::new(Inner {
                handle: parts.handle,
                driver: RefCell::new(parts.driver),
                net: Net::default(),
                files: Files::default(),
                timers: RefCell::new(Timers { wheel: Wheel::new(now.as_millis() as u64) }),
                alarm: RefCell::default(),
                tasks,
                inbox: parts.inbox,
                measure: Measure::new(&parts.clock),
                clock: parts.clock,
                now: Cell::new(now),
                depth: Cell::new(0),
                stop: RefCell::default(),
                going_down: Cell::new(false),
                stats: RefCell::new(ShardStats::new()),
                stages: Stages::default(),
                budgets: parts.budgets,
                offload: parts.offload,
                locals: RefCell::default(),
                siblings: parts.siblings,
            }),
        }
    }

    /// The shard whose loop runs on this thread.
    ///
    /// # Panics
    /// Outside a shard's loop; [`Shard::try_current`] asks without panicking.
    pub fn current() -> Shard {
        Shard::try_current().expect("called outside a shard's loop")
    }

    /// The shard whose loop runs on this thread, if one does.
    pub fn try_current() -> Option<Shard> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Which shard this is.
    pub fn id(&self) -> ShardId {
        self.inner.handle.id()
    }

    /// The handle that other threads use.
    pub fn handle(&self) -> ShardHandle {
        self.inner.handle.clone()
    }

    /// The handles of all shards that were started together, this one included, in order.
    pub fn siblings(&self) -> &[ShardHandle] {
        self.inner.siblings.get().map_or(std::slice::from_ref(&self.inner.handle), Vec::as_slice)
    }

    pub(crate) fn handle_ref(&self) -> &ShardHandle {
        &self.inner.handle
    }

    /// The shard's time, read once a turn: counted from the shard's start, monotonic.
    #[inline]
    pub fn now(&self) -> Duration {
        self.inner.now.get()
    }

    /// Which driver runs: `io_uring`, `epoll` or `sim`.
    pub fn driver_name(&self) -> &'static str {
        self.driver().name()
    }

    /// Spawns a future on this shard. It need not be `Send`; dropping the handle lets it run on.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
    {
        self.inner.tasks.spawn(future)
    }

    /// Arms a timer of the event face: `events` is told at `at` ([`Shard::now`]'s scale) or later.
    pub fn set_timer(&self, at: Duration, events: Rc<dyn TimerEvents>, token: u64) -> Key {
        self.timers().insert(at, TimerTarget::Events(events, token))
    }

    /// Moves a timer that has not fired. Gives whether there was one.
    pub fn reset_timer(&self, timer: Key, at: Duration) -> bool {
        self.timers().reset(timer, at)
    }

    /// Takes a timer back. Gives whether it had not fired.
    pub fn cancel_timer(&self, timer: Key) -> bool {
        // Dropped after the wheel is let go: the destructor of an event may be anybody's code.
        let target = self.timers().remove(timer);
        target.is_some()
    }

    /// Arms the shard's alarm, in place of the one before: `events` is told at `at` or later, and no later than the
    /// kernel's clock and the turn under way make it; other timers are rounded up to milliseconds. There is one per
    /// shard, for work that is paced by the clock.
    pub fn set_alarm(&self, at: Duration, events: Rc<dyn TimerEvents>, token: u64) {
        self.inner.alarm.replace(Some(Alarm { at, events, token }));
    }

    /// Takes the alarm back, if it has not gone off.
    pub fn clear_alarm(&self) {
        self.inner.alarm.take();
    }

    /// A fresh reading of the clock behind [`Shard::now`], which stands still for a turn.
    pub fn read_clock(&self) -> Duration {
        self.inner.clock.now()
    }

    /// The one value of type `T` on this shard, made when first asked for: state per core without locks.
    pub fn local<T: 'static>(&self, make: impl FnOnce() -> T) -> Rc<T> {
        if let Some(found) = self.inner.locals.borrow().get(&TypeId::of::<T>()) {
            return found.clone().downcast().expect("filed under its own type");
        }
        let made = Rc::new(make());
        self.inner.locals.borrow_mut().insert(TypeId::of::<T>(), made.clone());
        made
    }

    /// What the shard counted so far.
    pub fn stats(&self) -> ShardStats {
        let account = self.driver().account();
        let mut stats = self.inner.stats.borrow().snapshot(&account, self.inner.net.sockets());
        stats.watchdog_warnings = self.inner.handle.shared().heartbeat.stuck();
        let inbox = &self.inner.inbox;
        stats.inbox_queued = inbox.queued();
        stats.inbox_high_water = inbox.high_water();
        stats.inbox_rejected = inbox.rejected();
        stats.sleeps = inbox.sleeps();
        stats.wakes = inbox.wakes();
        self.inner.measure.tell(&mut stats);
        stats.tasks = self.inner.tasks.live();
        stats.panics += self.inner.tasks.panics();
        stats.timers = self.timers().wheel.len();
        stats
    }

    /// Resolves when [`ShardHandle::stop`] was called: the root task should end.
    pub fn stopped(&self) -> Stopped {
        Stopped { shard: self.clone(), place: None }
    }

    /// Runs `work`, which may block, on the bounded pool, and resolves on this shard to what it gave. Dropping the
    /// future does not stop work that has begun; its result is dropped.
    ///
    /// # Errors
    /// [`Error::LimitReached`] when the pool's queue is full, [`Error::Misuse`] where the shards were built without
    /// a pool, and an error with the text if `work` panicked.
    pub async fn offload<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let pool = self.offload_pool()?.clone();
        offload::offload(&pool, &self.inner.handle.shared().sender, work).await
    }

    /// Looks a host up (getaddrinfo(3)) on the pool: a resolver that hangs never blocks the shard.
    ///
    /// # Errors
    /// As [`Shard::offload`], and the resolver's own.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<std::net::SocketAddr>> {
        let pool = self.offload_pool()?.clone();
        offload::resolve(&pool, &self.inner.handle.shared().sender, host, port).await
    }

    fn offload_pool(&self) -> Result<&Arc<OffloadPool>> {
        self.inner.offload.as_ref().ok_or(Error::Misuse { advice: "build the shards with offload threads" })
    }

    #[inline]
    pub(crate) fn net(&self) -> &Net {
        &self.inner.net
    }

    pub(crate) fn files(&self) -> &Files {
        &self.inner.files
    }

    #[inline]
    pub(crate) fn driver(&self) -> RefMut<'_, Driver> {
        self.inner.driver.borrow_mut()
    }

    pub(crate) fn timers(&self) -> RefMut<'_, Timers> {
        self.inner.timers.borrow_mut()
    }

    /// Whether a dispatched task may run at once: no callback is on the stack and nothing waits in the inbox.
    pub(crate) fn may_run_inline(&self) -> bool {
        self.inner.depth.get() == 0 && self.inner.inbox.is_empty()
    }

    pub(crate) fn run_inline(&self, task: impl FnOnce(&Shard)) {
        self.fenced("task", || task(self));
    }

    pub(crate) fn note_stop_asked(&self) {
        let waiting = {
            let mut stop = self.inner.stop.borrow_mut();
            stop.asked = true;
            let keys = stop.waiting.keys();
            keys.into_iter().filter_map(|key| stop.waiting.remove(key)).collect::<Vec<_>>()
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the end has begun: what still arrives is not for anybody.
    pub(crate) fn is_going_down(&self) -> bool {
        self.inner.going_down.get()
    }

    /// The time now, on the scale of [`Shard::now`] but not as old as the turn.
    pub(crate) fn exact_now(&self) -> Duration {
        self.inner.clock.now()
    }

    /// Runs one callback: measured, and a panic ends the callback and nothing else.
    fn fenced(&self, kind: &'static str, callback: impl FnOnce()) {
        self.caught(|| self.timed(kind, callback));
    }

    /// Runs callbacks; `None` if one of them panicked.
    #[inline]
    fn caught(&self, callbacks: impl FnOnce()) -> Option<()> {
        self.inner.depth.set(self.inner.depth.get() + 1);
        let outcome = catch_unwind(AssertUnwindSafe(callbacks));
        self.inner.depth.set(self.inner.depth.get() - 1);
        outcome.map_err(|payload| self.note_panic(&*payload)).ok()
    }

    #[cold]
    fn note_panic(&self, payload: &(dyn Any + Send)) {
        self.inner.stats.borrow_mut().panics += 1;
        let text = payload.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)");
        tracing::error!(shard = %self.id(), "a callback panicked: {text}");
    }

    /// Makes this the thread's current shard for the time of `f`.
    pub(crate) fn entered<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Puts the former shard back, also if `f` panics.
        struct Back(Option<Shard>);
        impl Drop for Back {
            fn drop(&mut self) {
                let ours = CURRENT.replace(self.0.take());
                drop(ours);
            }
        }
        let _back = Back(CURRENT.replace(Some(self.clone())));
        f()
    }

    /// One turn. With `may_wait` it sleeps in the kernel when nothing is to be done.
    pub(crate) fn turn(&self, may_wait: bool) -> Result<()> {
        let wait = if may_wait { self.how_long() } else { Wait::No };
        if wait != Wait::No {
            self.inner.handle.shared().heartbeat.waits();
        }
        self.stage_ended(Stage::Between);
        let entered = self.driver().turn(wait);
        if wait != Wait::No {
            self.inner.inbox.unpark();
        }
        entered?;
        let began = self.inner.clock.now();
        self.inner.now.set(began);
        self.inner.handle.shared().heartbeat.turn_begins(began);
        self.inner.measure.begin_turn(began);
        self.stage_ended(Stage::Enter);
        self.drain_inbox();
        self.stage_ended(Stage::Inbox);
        self.deliver_completions();
        self.stage_ended(Stage::Completions);
        self.run_tasks();
        self.stage_ended(Stage::Tasks);
        self.fire_timers();
        self.stage_ended(Stage::Timers);
        self.run_tasks();
        self.stage_ended(Stage::Tasks);
        self.account_turn(began);
        Ok(())
    }

    #[inline]
    fn stage_ended(&self, stage: Stage) {
        self.inner.stages.ended(stage, &self.inner.clock);
    }

    /// How long the next enter may wait. Parks the inbox when the answer is not [`Wait::No`].
    fn how_long(&self) -> Wait {
        let busy = !self.inner.tasks.is_idle() || self.driver().has_work();
        if busy || !self.inner.inbox.is_empty() {
            return Wait::No;
        }
        let wait = match self.next_timer() {
            None => Wait::Forever,
            Some(deadline) => match deadline.checked_sub(self.inner.clock.now()) {
                Some(left) if !left.is_zero() => Wait::AtMost(left),
                _ => return Wait::No,
            },
        };
        if self.inner.inbox.park() { wait } else { Wait::No }
    }

    fn run_tasks(&self) {
        if !self.inner.tasks.is_idle() {
            let polls = self.inner.tasks.run(self.inner.budgets.polls);
            self.inner.stats.borrow_mut().polls += polls as u64;
        }
    }

    fn drain_inbox(&self) {
        let inbox = &self.inner.inbox;
        if inbox.is_empty() {
            return;
        }
        self.inner.depth.set(self.inner.depth.get() + 1);
        let messages = inbox.drain(self.inner.budgets.messages, &mut |payload| self.note_panic(&*payload));
        self.inner.depth.set(self.inner.depth.get() - 1);
        self.inner.stats.borrow_mut().messages += messages as u64;
    }

    fn fire_timers(&self) {
        let now_ms = self.now().as_millis() as u64;
        for _ in 0..self.inner.budgets.timers {
            let Some(target) = self.timers().wheel.expire(now_ms) else { break };
            self.inner.stats.borrow_mut().timers_fired += 1;
            match target {
                TimerTarget::Waker(waker) => waker.wake(),
                TimerTarget::Events(events, token) => {
                    self.fenced("timer", || events.on_timer(self, token));
                }
                TimerTarget::Accept(listener) => net::accept(self, listener),
            }
        }
        let now = self.now();
        let alarm = self.inner.alarm.borrow_mut().take_if(|alarm| alarm.at <= now);
        if let Some(Alarm { events, token, .. }) = alarm {
            self.fenced("timer", || events.on_timer(self, token));
        }
    }

    /// Whether a turn would find nothing to do before something comes from outside or a timer is due.
    pub(crate) fn is_quiet(&self) -> bool {
        self.inner.tasks.is_idle() && !self.driver().has_work() && self.inner.inbox.is_empty()
    }

    /// When the next timer or the alarm is due, on the scale of [`Shard::now`].
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let alarm = self.inner.alarm.borrow().as_ref().map(|alarm| alarm.at);
        let timer = self.timers().wheel.next_deadline_ms().map(Duration::from_millis);
        alarm.into_iter().chain(timer).min()
    }

    /// The end of the shard: futures dropped, sockets closed, operations reaped. Gives how many operations did
    /// not come back within `within` (their memory is leaked, not freed). Whatever could hold the shard in a circle
    /// is let go, and mail that nobody will run is dropped, so that who waits for its answer is told.
    pub(crate) fn tear_down(self, within: Duration) -> usize {
        self.inner.going_down.set(true);
        if Stages::COUNTED {
            let completions = self.inner.stats.borrow().completions;
            tracing::info!(shard = %self.id(), "stages of {completions} completions: {}", self.inner.stages);
        }
        self.inner.handle.shared().heartbeat.waits();
        self.inner.tasks.clear();
        self.fenced("end of the shard", || drop(self.inner.locals.take()));
        self.fenced("end of the shard", || Net::close_all(&self));
        Files::close_all(&self);
        let deadline = self.inner.clock.now() + within;
        while !(self.inner.net.is_empty() && self.inner.files.is_empty()) && self.inner.clock.now() < deadline
        {
            if self.driver().turn(Wait::AtMost(Duration::from_millis(10))).is_err() {
                break;
            }
            self.deliver_completions();
        }
        self.inner.inbox.close();
        self.inner.inbox.discard();
        self.inner.tasks.clear();
        let timers = std::mem::replace(&mut self.timers().wheel, Wheel::new(0));
        self.fenced("end of the shard", || drop(timers));
        self.fenced("end of the shard", || drop(self.inner.locals.take()));
        let left = deadline.saturating_sub(self.inner.clock.now()).max(Duration::from_millis(50));
        self.driver().stop(left)
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shard({} on {})", self.id(), self.driver_name())
    }
}
