//! The inside of an exchange: its state and everything that hangs on it, behind short borrows.
//!
//! A core is pooled: a synchronous request on a kept connection allocates nothing. What only asynchronous requests
//! need is in `Rare`, made when first needed. Nothing here is borrowed while user code runs.

use super::{
    async_context::{ContextCore, Gateway, Queued},
    counters::{Counters, up},
    extras::Extras,
    input::InputQueue,
    latencies::Latencies,
    life::{Actions, Event, Intents, State},
    listeners::Listeners,
    output::{OutputQueue, WaterMarks, Wrote},
    request::{HeadHolder, Request},
    response::ResponseParts,
    state,
};
use crate::error::{EndReason, Error, Result};
use shards::Key;
use std::{
    any::{Any, TypeId},
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

/// What all exchanges of one table share: counters, time, the way in from other threads.
pub(crate) struct Hub {
    pub(crate) shard: u32,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) marks: Rc<WaterMarks>,
    pub(crate) input_window: usize,
    pub(crate) sleeps_max: u32,
    /// Bytes of a stream that the kernel has and the peer has not acknowledged.
    pub(crate) unacknowledged: Box<dyn Fn(u64) -> Option<u64>>,
    /// The address of a stream's peer.
    pub(crate) peer: Box<dyn Fn(u64) -> Option<SocketAddr>>,
    pub(crate) counters: Counters,
    pub(crate) latencies: RefCell<Latencies>,
    pub(crate) now: Cell<Duration>,
    /// Callbacks on the stack: 0 or 1 (L-1).
    pub(crate) depth: Cell<u32>,
    /// Exchanges for which there is something to do.
    pub(crate) ready: RefCell<VecDeque<Key>>,
}

/// The future of an asynchronous handler.
pub(crate) type LocalFuture = Pin<Box<dyn Future<Output = Result<()>>>>;

/// What a synchronous request does not have. Each parked request has one: what most of them lack is further away.
#[derive(Default)]
pub(crate) struct Rare {
    pub(crate) listeners: Listeners,
    #[allow(clippy::box_collection, reason = "one word where there is none, instead of four")]
    tasks: Option<Box<VecDeque<Queued>>>,
    pub(crate) future: Option<LocalFuture>,
    pub(crate) context: Option<Arc<ContextCore>>,
    #[allow(clippy::box_collection, reason = "one word where there is none, instead of three")]
    sleeps: Option<Box<Vec<Duration>>>,
    seldom: Option<Box<Seldom>>,
}

/// What few exchanges have.
#[derive(Default)]
pub(crate) struct Seldom {
    pub(crate) attributes: Vec<(TypeId, Box<dyn Any>)>,
    pub(crate) redispatch_target: Option<Box<str>>,
    pub(crate) fault: Option<Error>,
    pub(crate) extras: Extras,
}

impl Rare {
    pub(crate) fn push_task(&mut self, task: Queued) {
        self.tasks.get_or_insert_default().push_back(task);
    }

    pub(crate) fn pop_task(&mut self) -> Option<Queued> {
        self.tasks.as_mut()?.pop_front()
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| !tasks.is_empty())
    }

    /// The future waits until then. False, and nothing done, if it waits for `most` moments already.
    pub(crate) fn push_sleep(&mut self, until: Duration, most: u32) -> bool {
        let sleeps = self.sleeps.get_or_insert_default();
        let fits = sleeps.len() < most as usize;
        if fits {
            push_first(sleeps, until);
        }
        fits
    }

    /// Nobody waits for that moment any more.
    pub(crate) fn drop_sleep(&mut self, until: Duration) {
        let Some(sleeps) = &mut self.sleeps else { return };
        if let Some(at) = sleeps.iter().position(|other| *other == until) {
            sleeps.swap_remove(at);
        }
    }

    /// Forgets the sleeps that are over at `now`. Gives whether there were any.
    pub(crate) fn end_sleeps(&mut self, now: Duration) -> bool {
        let Some(sleeps) = &mut self.sleeps else { return false };
        let before = sleeps.len();
        sleeps.retain(|at| *at > now);
        sleeps.len() < before
    }

    pub(crate) fn forget_sleeps(&mut self) {
        self.sleeps = None;
    }

    pub(crate) fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }

    pub(crate) fn if_seldom(&mut self) -> Option<&mut Seldom> {
        self.seldom.as_deref_mut()
    }

    /// Gives up what only a task on its way needs, and a context that nobody holds any more: it is made again when
    /// it is asked for.
    fn trim(&mut self) {
        self.tasks.take_if(|tasks| tasks.is_empty());
        self.context.take_if(|context| Arc::get_mut(context).is_some_and(|core| core.shared.is_unused()));
    }
}

/// One exchange.
pub(crate) struct Core {
    pub(crate) hub: Rc<Hub>,
    pub(crate) key: Cell<Key>,
    /// The stream of the connection that this exchange belongs to; opaque here (D11).
    pub(crate) owner: Cell<u64>,
    pub(crate) cycle: Cell<u32>,
    /// When it began, in nanoseconds of the shard's clock.
    began: Cell<u64>,
    state: Cell<State>,
    pub(crate) intents: Cell<Intents>,
    pub(crate) actions: RefCell<Actions>,
    pub(crate) request: RefCell<Option<Request>>,
    pub(crate) response: RefCell<ResponseParts>,
    pub(crate) output: RefCell<OutputQueue>,
    pub(crate) input: RefCell<InputQueue>,
    /// The application's deadline in nanoseconds of the shard's clock; `u64::MAX` for none.
    deadline: Cell<u64>,
    /// The client waits for `100 Continue` and has not got it.
    pub(crate) expects_continue: Cell<bool>,
    /// The name of the part of the chain that does not support async, if there is one (L-21).
    pub(crate) sync_only: Cell<Option<&'static str>>,
    /// No `on_error` is called when the client leaves.
    pub(crate) hush_client_gone: Cell<bool>,
    /// The deadline or the sleeps have changed.
    pub(crate) timer_dirty: Cell<bool>,
    /// The status for a failure that its reason does not say exactly; zero for none.
    pub(crate) failure_status: Cell<u16>,
    pub(crate) in_ready: Cell<bool>,
    /// Counted as asynchronous, not as synchronous.
    pub(crate) counted_async: Cell<bool>,
    pub(crate) rare: RefCell<Option<Box<Rare>>>,
}

impl Core {
    pub(crate) fn new(hub: Rc<Hub>) -> Self {
        Core {
            output: RefCell::new(OutputQueue::new(hub.marks.clone())),
            hub,
            key: Cell::new(Key::NONE),
            owner: Cell::new(0),
            cycle: Cell::new(0),
            began: Cell::new(0),
            state: Cell::new(State::VACANT),
            intents: Cell::default(),
            actions: RefCell::default(),
            request: RefCell::default(),
            response: RefCell::default(),
            input: RefCell::default(),
            deadline: Cell::new(NO_DEADLINE),
            expects_continue: Cell::new(false),
            sync_only: Cell::new(None),
            hush_client_gone: Cell::new(false),
            timer_dirty: Cell::new(false),
            failure_status: Cell::new(0),
            in_ready: Cell::new(false),
            counted_async: Cell::new(false),
            rare: RefCell::default(),
        }
    }

    /// Makes a pooled core ready for the next exchange. The one before has left nothing (asserted).
    pub(crate) fn begin(&self, owner: u64, has_body: bool) {
        assert!(self.rare.borrow().is_none(), "an exchange left something in its slot");
        self.owner.set(owner);
        self.cycle.set(0);
        self.began.set(self.hub.now.get().as_nanos() as u64);
        self.state.set(State::VACANT);
        self.intents.set(Intents::default());
        self.response.borrow_mut().reset();
        self.output.borrow_mut().reset(&self.hub.marks);
        self.input.borrow_mut().reset(has_body, self.hub.input_window);
        self.deadline.set(NO_DEADLINE);
        self.sync_only.set(None);
        self.timer_dirty.set(false);
        self.failure_status.set(0);
    }

    /// Puts the machine into a state of its own that a test has reached by its steps.
    pub(super) fn set_state(&self, state: State) {
        self.state.set(state);
    }

    pub(crate) fn state(&self) -> State {
        self.state.get()
    }

    /// One step: decide, store, and queue what is to be done.
    pub(crate) fn feed(&self, event: Event) {
        let mut state = self.state.get();
        state::advance(&mut state, event, &mut self.actions.borrow_mut());
        self.state.set(state);
    }

    /// Puts the exchange on the list of those for which there is something to do.
    pub(crate) fn make_ready(&self) {
        if !self.in_ready.replace(true) {
            self.hub.ready.borrow_mut().push_back(self.key.get());
        }
    }

    pub(crate) fn with_rare<R>(&self, use_it: impl FnOnce(&mut Rare) -> R) -> R {
        let mut rare = self.rare.borrow_mut();
        use_it(rare.get_or_insert_with(Box::default))
    }

    /// As `with_rare`, where there is nothing to be found in what does not exist.
    pub(crate) fn if_rare<R>(&self, use_it: impl FnOnce(&mut Rare) -> Option<R>) -> Option<R> {
        use_it(self.rare.borrow_mut().as_deref_mut()?)
    }

    pub(crate) fn has_tasks(&self) -> bool {
        self.rare.borrow().as_ref().is_some_and(|rare| rare.has_tasks())
    }

    /// Refuses a call when the end is decided, or this callback has already asked for it.
    pub(crate) fn check_live(&self) -> Result<()> {
        let state = self.state.get();
        if let Some(reason) = state.end_decided() {
            return Err(Error::Ended(reason));
        }
        if self.intents.get().ends_cycle() {
            return Err(Error::Ended(state.reason.unwrap_or(EndReason::Completed)));
        }
        if state.client_gone {
            return Err(Error::Ended(state.reason.unwrap_or(EndReason::ClientReset)));
        }
        Ok(())
    }

    /// As `check_live`, for calls that would end the exchange: a refusal is counted (L-11).
    pub(crate) fn check_may_end(&self) -> Result<()> {
        let checked = self.check_live();
        if checked.is_err() {
            self.hub.counters.update(|c| up(&mut c.double_terminal_suppressed));
        }
        checked
    }

    pub(crate) fn intend(&self, change: impl FnOnce(&mut Intents)) {
        let mut intents = self.intents.get();
        change(&mut intents);
        self.intents.set(intents);
    }

    /// The snapshot of the head, made from `head` when there is none yet.
    pub(crate) fn snapshot(&self, head: &HeadHolder) -> Request {
        let mut request = self.request.borrow_mut();
        let made = request.get_or_insert_with(|| head.snapshot().expect("a live exchange has its head"));
        made.clone()
    }

    /// The context that foreign threads hold, made when first asked for.
    pub(crate) fn context(&self, head: &HeadHolder) -> Arc<ContextCore> {
        let request = self.snapshot(head);
        self.with_rare(|rare| {
            rare.context.get_or_insert_with(|| Arc::new(ContextCore::new(self, request))).clone()
        })
    }

    pub(crate) fn write(&self, write: impl FnOnce(&mut OutputQueue) -> Result<Wrote>) -> Result<()> {
        self.check_live()?;
        let wrote = write(&mut self.output.borrow_mut());
        match wrote {
            Ok(Wrote::Fits) => Ok(()),
            Ok(Wrote::Blocked) => {
                self.feed(Event::OutputBlocked);
                self.intend(|intents| intents.flush = true);
                Ok(())
            }
            Err(Error::Ended(reason)) => {
                self.hub.counters.update(|c| up(&mut c.slow_client_cuts));
                self.feed(Event::OutputFailed(reason));
                Err(Error::Ended(reason))
            }
            Err(error) => Err(error),
        }
    }

    /// The exchange waits, with nothing to do: it gives up the buffers that it can have again. Then a parked request
    /// costs what it needs, whatever its slot served before.
    #[cold]
    pub(crate) fn trim(&self) {
        self.actions.borrow_mut().trim();
        self.output.borrow_mut().trim();
        self.input.borrow_mut().trim();
        self.response.borrow_mut().trim();
        self.if_rare(|rare| {
            rare.trim();
            Some(())
        });
    }

    /// The next moment at which the exchange wants to be woken: its deadline or a sleep of its future.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let sleep = self.if_rare(|rare| rare.sleeps.as_ref()?.iter().min().copied());
        let deadline = self.deadline().filter(|_| self.state.get().timer_armed);
        [deadline, sleep].into_iter().flatten().min()
    }

    pub(crate) fn set_deadline(&self, deadline: Option<Duration>) {
        self.deadline.set(deadline.map_or(NO_DEADLINE, nanoseconds));
        let shared = deadline.map_or(0, |at| nanoseconds(at).max(1));
        self.if_rare(|rare| rare.context.as_ref().map(|context| context.shared.set_deadline(shared)));
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let nanoseconds = self.deadline.get();
        (nanoseconds != NO_DEADLINE).then_some(Duration::from_nanos(nanoseconds))
    }

    /// Time since it began.
    pub(crate) fn age(&self) -> Duration {
        self.hub.now.get().saturating_sub(Duration::from_nanos(self.began.get()))
    }
}

/// Adds to a list that mostly stays at one: room for four, the smallest that `Vec` takes by itself, would be kept by
/// each parked request.
pub(crate) fn push_first<T>(list: &mut Vec<T>, value: T) {
    if list.capacity() == 0 {
        list.reserve_exact(1);
    }
    list.push(value);
}

const NO_DEADLINE: u64 = u64::MAX;

/// A time of the shard's clock as one word: 584 years, less the moment that says "none".
fn nanoseconds(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).min(NO_DEADLINE - 1)
}

// A hundred thousand parked ones are a usual case: what is rarely there is on the heap.
const _: () = assert!(size_of::<Core>() + 2 * size_of::<usize>() <= 344 && size_of::<Rare>() <= 88);

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("key", &self.key.get())
            .field("phase", &self.state.get().phase)
            .finish()
    }
}
