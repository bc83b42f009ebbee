//! The exchanges of one shard, and the seam through which a connection drives them.
//!
//! A connection begins an exchange, feeds it events, and carries out what [`Exchanges::next_action`] asks for until
//! it says `None`. Listeners, tasks and futures are run here; what needs the router or the wire goes back to the
//! caller as [`Next`]. Several exchanges may belong to one connection (D11): `owner` names the stream.
//!
//! ```text
//! key = begin(…); loop { match next_action(key) { Run handler → enter(key, …), Flush/Finish → take the output, … } }
//! ```

use super::{
    Exchange, Outcome,
    async_context::Gateway,
    core::{Core, Hub},
    counters::{Counters, Snapshot, down, up},
    executor::WORKER_QUEUE_LIMIT,
    latencies::Latencies,
    life::{self, Action, Callback, Event, Intents, Phase, Wait},
    output::WaterMarks,
    post::{Post, Workers},
    registry,
    request::HeadHolder,
    run::drop_quietly,
    topic::SUBSCRIBERS_LIMIT,
};
use crate::error::{EndReason, Error};
use shards::{Key, Table};
use std::{
    cell::{Cell, RefCell},
    fmt,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The name of an exchange: shard, slot and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExchangeId {
    /// The shard that owns it.
    pub shard: u32,
    /// Slot and generation.
    pub key: Key,
}

/// How a table is made.
pub struct TableOptions {
    /// The shard's number.
    pub shard: u32,
    /// The way in.
    pub post: Arc<dyn Post>,
    /// The worker pool, if there is one.
    pub workers: Option<Arc<dyn Workers>>,
    /// Tasks that may wait for one exchange.
    pub tasks_max: u32,
    /// Sleeps that one exchange may wait for at once.
    pub sleeps_max: u32,
    /// Bounds of an exchange's output queue, unless it sets its own.
    pub marks: WaterMarks,
    /// Body bytes that may wait for a reader before the connection stops reading.
    pub input_window: usize,
    /// Bytes of a stream (by owner) that the kernel has taken and the peer has not acknowledged, if known (L-20).
    pub unacknowledged: Box<dyn Fn(u64) -> Option<u64>>,
    /// The address of a stream's peer (by owner), while the stream is there and if it has one.
    pub peer: Box<dyn Fn(u64) -> Option<SocketAddr>>,
    /// Called outside all callbacks when an exchange has become ready by another way than its connection:
    /// drive everything that `next_ready` gives.
    pub on_ready: Box<dyn Fn(&Exchanges)>,
    /// Told the kind of a callback before it runs here: for what measures them (L-27).
    pub name_callback: Box<dyn Fn(&'static str)>,
}

impl fmt::Debug for TableOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableOptions").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// What a connection says of a new exchange.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Begin {
    /// The stream of the connection, opaque here.
    pub(crate) owner: u64,
    /// An application's coordinator decides.
    pub(crate) coordinated: bool,
    /// A request body follows.
    pub(crate) has_body: bool,
    /// What the handler waits for.
    pub(crate) wait: Wait,
    /// `Expect: 100-continue` from an HTTP/1.1 client with a body (L-17).
    pub(crate) expects_continue: bool,
    /// The part of the chain that does not support async.
    pub(crate) sync_only: Option<&'static str>,
    /// The application does not want to hear of it when the client leaves.
    pub(crate) hush_client_gone: bool,
}

/// What only the connection can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the exchange waits for it"]
pub(crate) enum Next {
    /// Run coordinator, or filters and handler, in `enter`.
    Run(Callback),
    /// Run the error handler in `enter`; the status is set already.
    ErrorDispatch(u16),
    /// Write `100 Continue`, a status line and an empty line.
    SendContinue,
    /// Write the head, if it is not written, and what is in the output queue.
    Flush,
    /// As `Flush`, and the response ends behind it. Then report `output_finished`.
    FinishResponse,
    /// Consume the rest of the body within the bounds, then report `input_ended`; or close with a linger.
    DiscardInput,
    /// Cut the stream; report nothing more.
    AbortConnection,
    /// `next_wake` has changed.
    Timer,
    /// The exchange is over and its slot free.
    Released,
}

/// The exchanges of one shard.
pub struct Exchanges {
    pub(crate) hub: Rc<Hub>,
    pub(super) table: RefCell<Table<Rc<Core>>>,
    pub(super) pool: RefCell<Vec<Rc<Core>>>,
    /// The core that has served last on the short way. It keeps its slot, under a name that nobody knows yet.
    pub(super) warm: Cell<Option<Rc<Core>>>,
    on_ready: Box<dyn Fn(&Exchanges)>,
    pub(super) name_callback: Box<dyn Fn(&'static str)>,
    driving: Cell<bool>,
}

impl Exchanges {
    /// A table for this thread; parcels find it until it is dropped.
    pub fn new(options: TableOptions) -> Rc<Self> {
        let table_id = registry::next_table_id();
        let hub = Rc::new(Hub {
            shard: options.shard,
            gateway: Arc::new(Gateway {
                table_id,
                post: options.post,
                workers: options.workers,
                tasks_max: options.tasks_max,
                rejected: AtomicU64::new(0),
            }),
            sleeps_max: options.sleeps_max,
            marks: Rc::new(options.marks),
            input_window: options.input_window,
            unacknowledged: options.unacknowledged,
            peer: options.peer,
            counters: Counters::default(),
            latencies: RefCell::default(),
            now: Cell::new(Duration::ZERO),
            depth: Cell::new(0),
            ready: RefCell::default(),
        });
        let exchanges = Rc::new(Exchanges {
            hub,
            table: RefCell::default(),
            pool: RefCell::default(),
            warm: Cell::default(),
            on_ready: options.on_ready,
            name_callback: options.name_callback,
            driving: Cell::new(false),
        });
        registry::add(table_id, &exchanges);
        exchanges
    }

    /// The shard's clock for this turn.
    pub fn set_now(&self, now: Duration) {
        self.hub.now.set(now);
    }

    /// The counters as they are.
    pub fn counters(&self) -> Snapshot {
        let mut counters = self.hub.counters.snapshot();
        counters.executor_rejected += self.hub.gateway.rejected.load(Ordering::Relaxed);
        counters
    }

    /// The distributions as they are.
    pub fn latencies(&self) -> Latencies {
        self.hub.latencies.borrow().clone()
    }

    /// How many exchanges there are.
    pub fn len(&self) -> usize {
        let warm = self.warm.take();
        let vacant = usize::from(warm.is_some());
        self.warm.set(warm);
        self.table.borrow().len() - vacant
    }

    /// Whether there is no exchange.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn core(&self, key: Key) -> Option<Rc<Core>> {
        self.table.borrow().get(key).cloned()
    }

    /// Begins an exchange.
    pub(crate) fn begin(&self, begin: Begin) -> Key {
        self.begin_core(begin).key.get()
    }

    /// The same, with the core in hand: for callers that go on with it at once.
    pub(crate) fn begin_core(&self, begin: Begin) -> Rc<Core> {
        let core = self.take_core(begin);
        core.feed(Event::Started {
            coordinated: begin.coordinated,
            has_body: begin.has_body,
            wait: begin.wait,
        });
        self.ask_for_body(&core);
        core
    }

    /// A slot and a core for an exchange whose machine has not been told yet.
    pub(super) fn take_core(&self, begin: Begin) -> Rc<Core> {
        let core = self.warm.take().unwrap_or_else(|| self.place_core());
        core.begin(begin.owner, begin.has_body);
        core.expects_continue.set(begin.expects_continue);
        core.sync_only.set(begin.sync_only);
        core.hush_client_gone.set(begin.hush_client_gone);
        self.hub.counters.update(|c| {
            up(&mut c.started);
            up(&mut c.live);
            up(&mut c.sync_active);
        });
        core
    }

    /// A core of the pool, in a slot.
    fn place_core(&self) -> Rc<Core> {
        let core = self.pool.borrow_mut().pop().unwrap_or_else(|| Rc::new(Core::new(self.hub.clone())));
        core.key.set(self.table.borrow_mut().insert(core.clone()));
        core
    }

    /// Runs the callback that `next_action` has asked for, inside the fence (L-14), with the head on loan. The
    /// head comes back; if the exchange may need it later a snapshot has been made.
    pub(crate) fn enter<O: Outcome>(
        &self,
        key: Key,
        head: HeadHolder,
        callback: impl FnOnce(&mut Exchange) -> O,
    ) -> HeadHolder {
        let Some(core) = self.core(key) else { return head };
        self.run_fenced(&core, head, callback)
    }

    /// As `enter`, with the snapshot in place of the loan.
    pub(crate) fn enter_parked<O: Outcome>(&self, key: Key, callback: impl FnOnce(&mut Exchange) -> O) {
        if let Some(core) = self.core(key) {
            let head = owned_head(&core);
            self.run_fenced(&core, head, callback);
        }
    }

    pub(crate) fn run_fenced<O: Outcome>(
        &self,
        core: &Rc<Core>,
        head: HeadHolder,
        callback: impl FnOnce(&mut Exchange) -> O,
    ) -> HeadHolder {
        let (head, outcome) = self.call_fenced(core, head, callback);
        self.finish_callback(core, outcome, &head);
        head
    }

    /// The callback alone: its machine is not told of the outcome yet.
    #[inline]
    pub(super) fn call_fenced<O: Outcome>(
        &self,
        core: &Rc<Core>,
        head: HeadHolder,
        callback: impl FnOnce(&mut Exchange) -> O,
    ) -> (HeadHolder, life::Outcome) {
        assert_eq!(self.hub.depth.replace(1), 0, "callbacks are never nested (L-1)");
        let mut x = Exchange::new(core.clone(), head);
        let returned = catch_unwind(AssertUnwindSafe(|| callback(&mut x).into_result()));
        self.hub.depth.set(0);
        let outcome = self.note_outcome(core, returned);
        let head = std::mem::take(&mut x.head);
        (head, outcome)
    }

    fn note_outcome(
        &self,
        core: &Core,
        returned: std::thread::Result<crate::error::Result<()>>,
    ) -> life::Outcome {
        self.hub.counters.update(|c| up(&mut c.callbacks));
        let refused_async = core.intents.get().start_async && core.sync_only.get().is_some();
        match returned {
            Ok(Ok(())) if refused_async => life::Outcome::Failed(EndReason::HandlerFailed),
            Ok(Ok(())) => life::Outcome::Returned,
            // A call that came too late is no failure of the handler: the end was decided by somebody else.
            Ok(Err(Error::Ended(_))) if core.check_live().is_err() => life::Outcome::Returned,
            Ok(Err(error)) => {
                let reason = match error {
                    Error::LimitReached { limit: WORKER_QUEUE_LIMIT | SUBSCRIBERS_LIMIT } => {
                        EndReason::Overload
                    }
                    _ => EndReason::HandlerFailed,
                };
                if let Some(status) = request_fault(&error) {
                    core.failure_status.set(status);
                }
                core.with_rare(|rare| rare.seldom().fault = Some(error));
                life::Outcome::Failed(reason)
            }
            Err(panic) => {
                self.hub.counters.update(|c| up(&mut c.panics));
                core.with_rare(|rare| rare.seldom().fault = Some(Error::handler(panic_text(&*panic))));
                life::Outcome::Failed(EndReason::Panicked)
            }
        }
    }

    pub(super) fn finish_callback(&self, core: &Core, outcome: life::Outcome, head: &HeadHolder) {
        let intents = core.intents.replace(Intents::default());
        core.feed(Event::CallbackReturned { outcome, intents });
        self.ask_for_body(core);
        let state = core.state();
        if !matches!(state.phase, Phase::Ended | Phase::Vacant) {
            self.count_async(core, state.started_async);
        }
        if needs_snapshot(core) {
            core.snapshot(head);
        }
    }

    /// A handler that waits for the body is as good as one that reads: the client is told to send it (L-17).
    fn ask_for_body(&self, core: &Core) {
        if !core.expects_continue.get() || core.input.borrow().is_ended() {
            return;
        }
        let state = core.state();
        if state.phase == Phase::Handling && state.wait != Wait::Nothing {
            core.expects_continue.set(false);
            self.hub.counters.update(|c| up(&mut c.continues_sent));
            core.actions.borrow_mut().push(Action::SendContinue);
        }
    }

    /// What the connection has to do next for this exchange. Runs listeners, tasks and futures on the way.
    pub(crate) fn next_action(&self, key: Key) -> Option<Next> {
        let core = self.core(key)?;
        self.next_action_of(&core)
    }

    /// The same for a core in hand.
    #[inline]
    pub(crate) fn next_action_of(&self, core: &Rc<Core>) -> Option<Next> {
        loop {
            if core.timer_dirty.take() {
                return Some(Next::Timer);
            }
            let Some(action) = core.actions.borrow_mut().pop() else {
                if core.counted_async.get() && core.state().is_parked() {
                    core.trim();
                }
                return None;
            };
            if let Some(next) = self.act(core, action) {
                return Some(next);
            }
        }
    }

    fn act(&self, core: &Rc<Core>, action: Action) -> Option<Next> {
        match action {
            Action::Run(callback @ (Callback::DoRequest | Callback::Handler(_) | Callback::DoResponse)) => {
                return Some(Next::Run(callback));
            }
            Action::Run(callback) => self.run_internal(core, callback),
            Action::ErrorDispatch(status) => {
                let status = set_error_status(core, status);
                return Some(Next::ErrorDispatch(status));
            }
            Action::BuiltInAnswer(status) => {
                let status = set_error_status(core, status);
                let text = format!("{status}\n");
                // The queue has just been emptied; a few bytes fit.
                let _ = core.output.borrow_mut().write_copy(text.as_bytes());
            }
            Action::SendContinue => return Some(Next::SendContinue),
            Action::Flush => return Some(Next::Flush),
            Action::FinishResponse => {
                core.output.borrow_mut().finish();
                return Some(Next::FinishResponse);
            }
            Action::DiscardInput => {
                if core.expects_continue.replace(false) {
                    self.hub.counters.update(|c| up(&mut c.continues_refused));
                }
                return Some(Next::DiscardInput);
            }
            Action::AbortConnection => return Some(Next::AbortConnection),
            Action::ArmTimer => return Some(Next::Timer),
            Action::CancelTimer => {
                core.set_deadline(None);
                return Some(Next::Timer);
            }
            Action::NextCycle => self.next_cycle(core),
            Action::RefuseTasks => self.refuse_tasks(core),
            Action::FireCancelToken => self.fire_cancel_token(core),
            Action::DropFuture => self.drop_future(core),
            Action::CountEnd(reason) => self.count_end(core, reason),
            Action::Release => {
                self.release(core);
                return Some(Next::Released);
            }
        }
        None
    }

    pub(super) fn count_async(&self, core: &Core, is_async: bool) {
        if core.counted_async.replace(is_async) == is_async {
            return;
        }
        self.hub.counters.update(|c| {
            let (from, to) = if is_async {
                (&mut c.sync_active, &mut c.async_active)
            } else {
                (&mut c.async_active, &mut c.sync_active)
            };
            down(from);
            up(to);
        });
    }

    pub(super) fn count_end(&self, core: &Core, reason: EndReason) {
        if core.counted_async.get() {
            self.hub.latencies.borrow_mut().async_ended(core.age());
        }
        self.count_async(core, false);
        let dropped = core.output.borrow().dropped();
        self.hub.counters.update(|c| {
            c.ends[reason.index()] += 1;
            c.messages_dropped += dropped;
            down(&mut c.live);
            down(&mut c.sync_active);
        });
    }

    /// Gives the slot back; the key finds nothing from now on. A core that somebody still holds is not reused.
    pub(super) fn release(&self, core: &Rc<Core>) {
        debug_assert_eq!(core.state().phase, Phase::Vacant);
        let rare = core.rare.take();
        if rare.is_some() {
            // Hooks, attributes, futures: the application's destructors.
            drop_quietly(self, rare);
        }
        core.request.take();
        core.actions.borrow_mut().clear();
        core.in_ready.set(false);
        let removed = self.table.borrow_mut().remove(core.key.get());
        let Some(removed) = removed else { return };
        if Rc::strong_count(&removed) <= CORE_HOLDERS_AT_RELEASE && self.pool.borrow().len() < POOL_MAX {
            self.pool.borrow_mut().push(removed);
        }
    }

    /// The next exchange for which something has to be done, with its owner.
    pub(crate) fn next_ready(&self) -> Option<(Key, u64)> {
        loop {
            let key = self.hub.ready.borrow_mut().pop_front()?;
            if let Some(core) = self.core(key) {
                core.in_ready.set(false);
                return Some((key, core.owner.get()));
            }
        }
    }

    /// Drives what has become ready, unless that is being done already further up the stack.
    pub(crate) fn kick(&self) {
        if self.hub.depth.get() == 0
            && let Some(_driving) = Raised::raise(&self.driving)
        {
            (self.on_ready)(self);
        }
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        registry::remove(self.hub.gateway.table_id);
    }
}

impl fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchanges").field("shard", &self.hub.shard).field("live", &self.len()).finish()
    }
}

/// A flag that is up until this is dropped, also by a panic.
pub(crate) struct Raised<'a>(&'a Cell<bool>);

impl<'a> Raised<'a> {
    /// `None` if it is up already.
    pub(crate) fn raise(flag: &'a Cell<bool>) -> Option<Self> {
        (!flag.replace(true)).then_some(Raised(flag))
    }
}

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// The snapshot as a head to lend.
pub(crate) fn owned_head(core: &Core) -> HeadHolder {
    core.request.borrow().clone().map_or(HeadHolder::Gone, HeadHolder::Owned)
}

/// Whether a later callback may want to read the head.
pub(super) fn needs_snapshot(core: &Core) -> bool {
    if core.request.borrow().is_some() {
        return false;
    }
    match core.state().phase {
        Phase::Deciding | Phase::Handling | Phase::Parked | Phase::Failing | Phase::Responding => true,
        Phase::Finishing | Phase::Ended => {
            core.if_rare(|rare| rare.listeners.wants_the_end().then_some(())).is_some()
        }
        Phase::Vacant => false,
    }
}

fn set_error_status(core: &Core, status: u16) -> u16 {
    let status = match core.failure_status.take() {
        0 => status,
        exact => exact,
    };
    let mut response = core.response.borrow_mut();
    response.reset();
    response.set_error_status(status);
    core.output.borrow_mut().clear_body();
    status
}

/// The status for what is the request's fault and not the handler's, where a handler ends with it.
fn request_fault(error: &Error) -> Option<u16> {
    match error {
        Error::UnsupportedMediaType => Some(415),
        Error::InvalidBody(_) => Some(400),
        Error::BodyTooLarge { .. } => Some(413),
        Error::LimitReached { limit } if super::multipart::LIMIT_NAMES.contains(limit) => Some(413),
        _ => None,
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
    format!("panic: {}", text.unwrap_or("(no text)"))
}

/// The table's own and the caller's.
pub(super) const CORE_HOLDERS_AT_RELEASE: usize = 2;
/// Pooled cores beyond this are freed.
const POOL_MAX: usize = 1024;
