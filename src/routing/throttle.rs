//! Admission tied to what is behind: so many requests of a route at a time, a bounded queue with priorities in front,
//! and an answer for those who waited too long (L-25).
//!
//! A throttle is a coordinator: it waits before a handler has been chosen, when a request holds nothing but its head.
//! Its state belongs to one shard, without locks: each shard's router makes its own, so the limit of a server is the
//! limit here times its shards. A permit is a guard that the exchange holds: however it ends, the permit comes back,
//! and goes to the next in the queue before anybody else can take it.

use super::Coordinator;
use crate::{
    error::{EndReason, Result},
    exchange::{AsyncContext, Exchange},
};
use http::StatusCode;
use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::BTreeMap,
    fmt,
    rc::Rc,
    time::Duration,
};

/// A limit on the requests that are worked on at a time, for one shard. Clones are handles on the same limit.
///
/// ```
/// # use shardlet::{Exchange, Router, Throttle};
/// # use std::time::Duration;
/// # fn search(x: &mut Exchange) {}
/// let throttle = Throttle::new(8).queue(100).max_wait(Duration::from_secs(2));
/// let router = Router::new().route("/search", search).coordinate("/search", throttle.coordinator());
/// ```
#[derive(Clone)]
pub struct Throttle {
    inner: Rc<Inner>,
}

/// What a throttle has seen. Always: `arrived = admitted + rejected_full + rejected_expired + left + cut + queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThrottleCounters {
    /// Permits that are out.
    pub active: usize,
    /// Requests that wait.
    pub queued: usize,
    /// The most that ever waited at once.
    pub high_water: usize,
    /// Requests that came.
    pub arrived: u64,
    /// Requests that got a permit, those that waited for it included.
    pub admitted: u64,
    /// Requests that got a permit after a wait.
    pub waited: u64,
    /// Answered 503: the queue was full.
    pub rejected_full: u64,
    /// Answered 503: they had waited as long as they may.
    pub rejected_expired: u64,
    /// Clients that left the queue.
    pub left: u64,
    /// Requests that were ended while they waited for another reason: shutdown, a broken body.
    pub cut: u64,
}

type Priority = dyn Fn(&Exchange) -> i32;

struct Inner {
    limit: usize,
    queue_max: Cell<usize>,
    max_wait: Cell<Duration>,
    retry_after: Cell<Option<Duration>>,
    priority: RefCell<Option<Rc<Priority>>>,
    counters: Cell<ThrottleCounters>,
    queue: RefCell<Queue>,
}

/// The highest priority first, among equals the one that came first.
type Turn = (Reverse<i32>, u64);

#[derive(Default)]
struct Queue {
    waiting: BTreeMap<Turn, Waiter>,
    next: u64,
}

struct Waiter {
    context: AsyncContext,
    ticket: Rc<Ticket>,
}

/// Where a request stands.
enum Place {
    /// It has not asked, was refused, or is done.
    Outside,
    Queued(Turn),
    /// It has its permit and will be told.
    Granted(Permit),
    Inside(Permit),
}

struct Ticket(Cell<Place>);

/// Comes back when it is dropped.
struct Permit(Option<Rc<Inner>>);

impl Throttle {
    /// At most `limit` requests at a time, at least one; a queue of 128, ten seconds of waiting.
    pub fn new(limit: usize) -> Self {
        let inner = Inner {
            limit: limit.max(1),
            queue_max: Cell::new(128),
            max_wait: Cell::new(Duration::from_secs(10)),
            retry_after: Cell::new(None),
            priority: RefCell::new(None),
            counters: Cell::default(),
            queue: RefCell::default(),
        };
        Throttle { inner: Rc::new(inner) }
    }

    /// Requests that may wait; with 0 nobody does.
    #[must_use]
    pub fn queue(self, requests: usize) -> Self {
        self.inner.queue_max.set(requests);
        self
    }

    /// How long a request may wait.
    #[must_use]
    pub fn max_wait(self, time: Duration) -> Self {
        self.inner.max_wait.set(time);
        self
    }

    /// What `Retry-After` says, in whole seconds, at least one; as long as `max_wait` unless it is set.
    #[must_use]
    pub fn retry_after(self, time: Duration) -> Self {
        self.inner.retry_after.set(Some(time));
        self
    }

    /// Higher goes first; without it all are equal. Asked once for each request that has to wait.
    #[must_use]
    pub fn priority(self, priority: impl Fn(&Exchange) -> i32 + 'static) -> Self {
        *self.inner.priority.borrow_mut() = Some(Rc::new(priority));
        self
    }

    /// What `Router::coordinate` takes: makes the coordinator of each exchange.
    pub fn coordinator(&self) -> impl Fn() -> Throttled + use<> {
        let throttle = self.clone();
        move || Throttled {
            inner: throttle.inner.clone(),
            ticket: Rc::new(Ticket(Cell::new(Place::Outside))),
        }
    }

    /// The counters now.
    pub fn counters(&self) -> ThrottleCounters {
        self.inner.counters.get()
    }
}

/// The coordinator of one exchange under a [`Throttle`].
pub struct Throttled {
    inner: Rc<Inner>,
    ticket: Rc<Ticket>,
}

impl Coordinator for Throttled {
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        self.inner.count(|c| c.arrived += 1);
        if let Some(permit) = self.inner.try_enter() {
            self.ticket.0.set(Place::Inside(permit));
            return admit(x);
        }
        if self.inner.queue_max.get() <= self.inner.counters.get().queued {
            self.inner.count(|c| c.rejected_full += 1);
            return self.inner.refuse(x);
        }
        // The application's code runs before anything has changed: it may panic.
        let priority = self.inner.priority.borrow().clone().map_or(0, |priority| priority(x));
        let turn = self.inner.wait(priority, Waiter { context: x.context(), ticket: self.ticket.clone() });
        self.ticket.0.set(Place::Queued(turn));
        x.set_timeout(self.inner.max_wait.get());
        Ok(())
    }

    fn do_response(&mut self, x: &mut Exchange) -> Result<()> {
        // What is behind has done its part: a client that reads slowly keeps nobody waiting.
        self.ticket.leave();
        x.complete()
    }

    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        match self.ticket.0.replace(Place::Outside) {
            Place::Queued(turn) => self.inner.forget(turn, |c| &mut c.rejected_expired),
            // Its permit came in the same moment: it goes to the next.
            Place::Granted(permit) => {
                self.inner.count(|c| {
                    c.admitted -= 1;
                    c.waited -= 1;
                    c.rejected_expired += 1;
                });
                drop(permit);
            }
            // The handler's own timeout.
            place @ (Place::Inside(_) | Place::Outside) => {
                self.ticket.0.set(place);
                return Ok(());
            }
        }
        self.inner.refuse(x)
    }

    fn on_error(&mut self, _: &mut Exchange, reason: EndReason) -> Result<()> {
        self.end(reason);
        Ok(())
    }

    fn on_complete(&mut self, _: &mut Exchange, reason: EndReason) {
        self.end(reason);
    }
}

impl Throttled {
    fn end(&self, reason: EndReason) {
        match self.ticket.0.replace(Place::Outside) {
            Place::Queued(turn) if reason.is_client_gone() => self.inner.forget(turn, |c| &mut c.left),
            Place::Queued(turn) => self.inner.forget(turn, |c| &mut c.cut),
            Place::Granted(permit) | Place::Inside(permit) => drop(permit),
            Place::Outside => {}
        }
    }
}

/// Where no callback has said it, the end of the exchange's memory does.
impl Drop for Throttled {
    fn drop(&mut self) {
        self.end(EndReason::Aborted);
    }
}

/// The default coordinator's way on.
fn admit(x: &mut Exchange) -> Result<()> {
    if x.expects_continue() {
        x.send_continue();
    }
    x.service()
}

impl Ticket {
    /// Gives the permit back, if there is one.
    fn leave(&self) {
        match self.0.replace(Place::Outside) {
            Place::Granted(permit) | Place::Inside(permit) => drop(permit),
            place @ (Place::Queued(_) | Place::Outside) => self.0.set(place),
        }
    }

    /// As a task of the exchange: its turn has come, unless it has left in the meantime.
    fn enter(&self, x: &mut Exchange) -> Result<()> {
        match self.0.replace(Place::Outside) {
            Place::Granted(permit) => {
                self.0.set(Place::Inside(permit));
                x.clear_timeout();
                admit(x)
            }
            place @ (Place::Queued(_) | Place::Inside(_) | Place::Outside) => {
                self.0.set(place);
                Ok(())
            }
        }
    }
}

impl Inner {
    fn count(&self, change: impl FnOnce(&mut ThrottleCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// A permit, if one is free. Nobody waits then: a permit that comes back goes to the queue first.
    fn try_enter(self: &Rc<Self>) -> Option<Permit> {
        if self.counters.get().active >= self.limit {
            return None;
        }
        self.count(|c| {
            c.active += 1;
            c.admitted += 1;
        });
        Some(Permit(Some(self.clone())))
    }

    fn wait(&self, priority: i32, waiter: Waiter) -> Turn {
        let mut queue = self.queue.borrow_mut();
        let turn = (Reverse(priority), queue.next);
        queue.next += 1;
        queue.waiting.insert(turn, waiter);
        self.count(|c| {
            c.queued += 1;
            c.high_water = c.high_water.max(c.queued);
        });
        turn
    }

    /// Takes one out of the queue who will not get a permit.
    fn forget(&self, turn: Turn, reason: impl FnOnce(&mut ThrottleCounters) -> &mut u64) {
        let waiter = self.queue.borrow_mut().waiting.remove(&turn);
        assert!(waiter.is_some(), "whoever stands in the queue is in it");
        self.count(|c| {
            c.queued -= 1;
            *reason(c) += 1;
        });
    }

    /// A permit came back: it goes to the next who can take it.
    fn hand_on(self: &Rc<Self>) {
        loop {
            let next = self.queue.borrow_mut().waiting.pop_first();
            let Some((_, Waiter { context, ticket })) = next else { break };
            self.count(|c| c.queued -= 1);
            ticket.0.set(Place::Granted(Permit(Some(self.clone()))));
            let told = ticket.clone();
            if context.queue_here(move |x| told.enter(x)).is_ok() {
                return self.count(|c| {
                    c.admitted += 1;
                    c.waited += 1;
                });
            }
            // It is ending, and was about to leave the queue.
            if let Place::Granted(mut permit) = ticket.0.replace(Place::Outside) {
                permit.0 = None;
            }
            self.count(|c| c.cut += 1);
        }
        let active = self.counters.get().active;
        assert!(active > 0, "a permit came back twice");
        self.count(|c| c.active -= 1);
    }

    /// RFC 9110 §15.6.4 and §10.2.3.
    fn refuse(&self, x: &mut Exchange) -> Result<()> {
        let wait = self.retry_after.get().unwrap_or_else(|| self.max_wait.get());
        let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
        x.response().set_status(StatusCode::SERVICE_UNAVAILABLE);
        x.response().set_header("Retry-After", seconds.to_string())?;
        x.response().set_content_type("text/plain; charset=utf-8")?;
        x.write("503 Service Unavailable\n")?;
        x.complete()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            inner.hand_on();
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle").field("limit", &self.inner.limit).field("now", &self.counters()).finish()
    }
}

impl fmt::Debug for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Throttled")
    }
}
