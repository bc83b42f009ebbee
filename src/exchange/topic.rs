//! Topics: a value published from any thread reaches parked exchanges on every shard, with one message a shard.
//!
//! A topic keeps its last values under a lock that no request waits for: publishers and shards take it for a few
//! moves. Each shard with subscribers has a [`Local`]: a message makes it copy what is new and queue one task for
//! each of its subscribers. While a message is on its way to a shard no second one is sent: it will find all values.
//! A subscription is held by its exchange and goes with it.

use super::{
    AsyncContext, Exchange, Outcome, Parcel, Refusal,
    async_context::{Content, Gateway},
    core::push_first,
    counters::up,
    registry,
};
use crate::error::{Error, Result};
use shards::{Key, Table};
use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    fmt,
    rc::{Rc, Weak},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A stream of values to whoever waits for them: `Send + Sync`; clones are handles on the same topic.
pub struct Topic<T> {
    shared: Arc<Shared<T>>,
}

/// A published value. Ids count from 1 without a gap.
#[derive(Debug)]
pub struct Item<T> {
    /// Its number.
    pub id: u64,
    /// The value.
    pub value: Arc<T>,
}

/// What is new for one reader.
#[derive(Debug)]
pub struct Delivery<T> {
    /// The values, oldest first.
    pub items: Vec<Item<T>>,
    /// Values between the reader's last one and the first of `items` that are not retained any more.
    pub missed: u64,
}

/// What became of a published value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its id.
    pub id: u64,
    /// Shards with subscribers that were told, or are being told already.
    pub shards: usize,
}

/// Some shards could not be told. The value is retained and the others have been told: do not publish it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishError {
    /// What was done all the same.
    pub published: Published,
    /// Shards whose inbox was full: their subscribers see the value with the next one.
    pub full: usize,
    /// Shards that are stopping: they end their subscribers by themselves.
    pub stopping: usize,
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PublishError { published, full, stopping } = self;
        write!(f, "value {} did not reach {full} full and {stopping} stopping shards", published.id)
    }
}

impl std::error::Error for PublishError {}

/// The name of a subscription, to end it before its exchange ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription(u64);

struct Shared<T> {
    id: u64,
    retain: usize,
    /// Subscriptions that each shard may have.
    subscribers_max: usize,
    log: Mutex<Log<T>>,
}

struct Log<T> {
    kept: Kept<T>,
    members: Vec<Member>,
}

/// The last values.
struct Kept<T> {
    newest: u64,
    items: VecDeque<Item<T>>,
}

/// A shard that has subscribers, or that a message is on its way to.
struct Member {
    table_id: u64,
    gateway: Arc<Gateway>,
    /// A message is on its way.
    told: bool,
    /// The number of the last message, sent or refused.
    message: u64,
}

/// Subscriptions that a topic may have on each shard unless it is made with another bound. Each is a waiting request
/// with a connection of its own: more than a shard's share of the connections a machine can hold.
pub const SUBSCRIBERS_MAX: usize = 1 << 17;

/// The name of that bound.
pub(crate) const SUBSCRIBERS_LIMIT: &str = "topic_subscribers_max";

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

impl<T: Send + Sync + 'static> Topic<T> {
    /// A topic that retains its last `retain` values, at least one, and has up to [`SUBSCRIBERS_MAX`] subscriptions
    /// on each shard.
    pub fn new(retain: usize) -> Self {
        Topic::with_subscribers_max(retain, SUBSCRIBERS_MAX)
    }

    /// The same with another bound for the subscriptions on each shard.
    pub fn with_subscribers_max(retain: usize, subscribers_max: usize) -> Self {
        let kept = Kept { newest: 0, items: VecDeque::new() };
        let log = Mutex::new(Log { kept, members: Vec::new() });
        let retain = retain.max(1);
        Topic { shared: Arc::new(Shared { id: next_id(), retain, subscribers_max, log }) }
    }

    /// Publishes a value, from any thread. Never blocks on a shard.
    ///
    /// # Errors
    /// When shards could not be told; the value is published to the others.
    pub fn publish(&self, value: T) -> Result<Published, PublishError> {
        let mut log = self.shared.lock();
        let evicted = log.kept.push(value, self.shared.retain);
        let mut error =
            PublishError { published: Published { id: log.kept.newest, shards: 0 }, full: 0, stopping: 0 };
        let mut refused = Vec::new();
        log.members.retain_mut(|member| match self.shared.tell(member) {
            Ok(()) => {
                error.published.shards += 1;
                true
            }
            Err((parcel, refusal)) => {
                refused.push(parcel);
                let is_full = refusal == Refusal::Full;
                *if is_full { &mut error.full } else { &mut error.stopping } += 1;
                is_full
            }
        });
        drop(log);
        // Dropped with nothing locked: values and messages may lead back here.
        drop((evicted, refused));
        if error.full + error.stopping == 0 { Ok(error.published) } else { Err(error) }
    }

    /// The newest id; 0 before the first value.
    pub fn newest(&self) -> u64 {
        self.shared.lock().kept.newest
    }

    /// The retained values behind `after`, from any thread.
    pub fn since(&self, after: u64) -> Delivery<T> {
        self.shared.lock().kept.since(after)
    }

    /// Shards that a value would be sent to now.
    pub fn shards(&self) -> usize {
        self.shared.lock().members.len()
    }

    /// Has `deliver` called, as a task of the exchange on its shard, with every value whose id is above `after`: at
    /// once with those that are retained, later with those to come, several at a time when they come fast. For a
    /// long poll `after` is the last id that the client has seen, and `deliver` answers; an id that was never given
    /// out (the client is older than this process) counts as [`Topic::newest`].
    ///
    /// The exchange must wait (`start_async`, or a coordinator's `do_request`). The subscription ends with it.
    ///
    /// # Errors
    /// `LimitReached` when the shard has as many subscriptions to the topic as it may: returned from a callback, it
    /// is answered with 503.
    pub fn subscribe<O: Outcome>(
        &self,
        x: &mut Exchange,
        after: u64,
        mut deliver: impl FnMut(&mut Exchange, Delivery<T>) -> O + 'static,
    ) -> Result<Subscription> {
        let context = x.context();
        let local = Local::of(&self.shared, &context);
        if local.subscribers.borrow().len() >= self.shared.subscribers_max {
            x.core.hub.counters.update(|c| up(&mut c.subscriptions_refused));
            tracing::debug!(reason = SUBSCRIBERS_LIMIT, "subscription refused");
            return Err(Error::LimitReached { limit: SUBSCRIBERS_LIMIT });
        }
        local.refresh(|_| ());
        let subscriber = Rc::new(Subscriber {
            context,
            seen: Cell::new(after.min(local.kept.borrow().newest)),
            is_due: Cell::new(false),
            deliver: RefCell::new(Some(Box::new(move |x: &mut Exchange, delivery| {
                deliver(x, delivery).into_result()
            }))),
        });
        let key = local.subscribers.borrow_mut().insert(subscriber.clone());
        local.tell(&subscriber);
        let subscription = Subscription(next_id());
        let mut seats = x.take_attribute::<Seats>().unwrap_or_default();
        push_first(&mut seats.0, (subscription, Box::new(Seat { local, key })));
        x.set_attribute(seats);
        Ok(subscription)
    }
}

impl Subscription {
    /// Ends the subscription; false if this exchange does not have it.
    pub fn cancel(self, x: &mut Exchange) -> bool {
        let Some(mut seats) = x.take_attribute::<Seats>() else { return false };
        let at = seats.0.iter().position(|(subscription, _)| *subscription == self);
        let seat = at.map(|at| seats.0.swap_remove(at));
        if !seats.0.is_empty() {
            x.set_attribute(seats);
        }
        seat.is_some()
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Log<T>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Sends the one message, unless one is on its way.
    fn tell(self: &Arc<Self>, member: &mut Member) -> Result<(), (Parcel, Refusal)> {
        if !member.told {
            member.message += 1;
            let (shared, table_id, message) = (self.clone(), member.table_id, member.message);
            let notice = Notice { shared, table_id, message, is_open: false };
            member.gateway.post.post(Parcel(Content::Notice(Box::new(notice))))?;
            member.told = true;
        }
        Ok(())
    }
}

impl<T> Kept<T> {
    fn push(&mut self, value: T, retain: usize) -> Option<Item<T>> {
        self.newest += 1;
        let evicted = if self.items.len() == retain { self.items.pop_front() } else { None };
        self.items.push_back(Item { id: self.newest, value: Arc::new(value) });
        evicted
    }

    fn since(&self, after: u64) -> Delivery<T> {
        let missed = self.items.front().map_or(0, |oldest| (oldest.id - 1).saturating_sub(after));
        let new = usize::try_from(self.newest.saturating_sub(after)).unwrap_or(usize::MAX);
        let skip = self.items.len().saturating_sub(new);
        Delivery { items: self.items.iter().skip(skip).cloned().collect(), missed }
    }
}

/// A message to one shard: there is something new.
pub(crate) trait ShardNotice: Send {
    /// On the shard.
    fn open(self: Box<Self>);
}

struct Notice<T> {
    shared: Arc<Shared<T>>,
    table_id: u64,
    message: u64,
    is_open: bool,
}

impl<T: Send + Sync + 'static> ShardNotice for Notice<T> {
    fn open(mut self: Box<Self>) {
        self.is_open = true;
        let Some(local) = Local::find(&self.shared, self.table_id) else {
            return self.shared.leave(self.table_id);
        };
        local.refresh(|log| log.settle(self.table_id, self.message));
        let subscribers: Vec<_> = {
            let subscribers = local.subscribers.borrow();
            subscribers.iter().map(|(_, subscriber)| subscriber.clone()).collect()
        };
        for subscriber in subscribers {
            local.tell(&subscriber);
        }
        registry::with(self.table_id, |exchanges| exchanges.kick());
    }
}

/// Refused, or lost with its inbox: the next value tries again.
impl<T> Drop for Notice<T> {
    fn drop(&mut self) {
        if !self.is_open {
            self.shared.lock().settle(self.table_id, self.message);
        }
    }
}

impl<T> Log<T> {
    /// The message is not on its way any more: what is published from now on needs another one.
    fn settle(&mut self, table_id: u64, message: u64) {
        let mut members = self.members.iter_mut();
        if let Some(member) = members.find(|m| m.table_id == table_id && m.message == message) {
            member.told = false;
        }
    }
}

impl<T> Shared<T> {
    /// The shard has no subscribers any more.
    fn leave(&self, table_id: u64) {
        let mut log = self.lock();
        let at = log.members.iter().position(|member| member.table_id == table_id);
        let left = at.map(|at| log.members.swap_remove(at));
        drop(log);
        drop(left);
    }
}

// ---- on a shard ---------------------------------------------------------------------------------------------------

thread_local! {
    /// By topic and table.
    static LOCALS: RefCell<HashMap<(u64, u64), Weak<dyn Any>>> = RefCell::default();
}

/// One topic on one shard, while it has subscribers there.
struct Local<T: Send + Sync + 'static> {
    shared: Arc<Shared<T>>,
    table_id: u64,
    /// A copy, so that a hundred thousand deliveries take one lock.
    kept: RefCell<Kept<T>>,
    subscribers: RefCell<Table<Rc<Subscriber<T>>>>,
}

type Deliver<T> = Box<dyn FnMut(&mut Exchange, Delivery<T>) -> Result<()>>;

struct Subscriber<T> {
    context: AsyncContext,
    /// The newest id that was delivered.
    seen: Cell<u64>,
    /// A task is in the exchange's queue: one is enough.
    is_due: Cell<bool>,
    deliver: RefCell<Option<Deliver<T>>>,
}

/// The subscriptions of an exchange, among its attributes: what ends with the exchange.
#[derive(Default)]
struct Seats(Vec<(Subscription, Box<dyn Any>)>);

struct Seat<T: Send + Sync + 'static> {
    local: Rc<Local<T>>,
    key: Key,
}

impl<T: Send + Sync + 'static> Drop for Seat<T> {
    fn drop(&mut self) {
        let subscriber = self.local.subscribers.borrow_mut().remove(self.key);
        drop(subscriber);
    }
}

impl<T: Send + Sync + 'static> Local<T> {
    fn find(shared: &Shared<T>, table_id: u64) -> Option<Rc<Local<T>>> {
        let found =
            LOCALS.with_borrow(|locals| locals.get(&(shared.id, table_id)).and_then(Weak::upgrade))?;
        found.downcast().ok()
    }

    fn of(shared: &Arc<Shared<T>>, context: &AsyncContext) -> Rc<Local<T>> {
        let table_id = context.core.gateway.table_id;
        if let Some(local) = Self::find(shared, table_id) {
            return local;
        }
        let kept = RefCell::new(Kept { newest: 0, items: VecDeque::new() });
        let local =
            Rc::new(Local { shared: shared.clone(), table_id, kept, subscribers: RefCell::default() });
        let any: Rc<dyn Any> = local.clone();
        LOCALS.with_borrow_mut(|locals| locals.insert((shared.id, table_id), Rc::downgrade(&any)));
        let mut log = shared.lock();
        if !log.members.iter().any(|member| member.table_id == table_id) {
            log.members.push(Member {
                table_id,
                gateway: context.core.gateway.clone(),
                told: false,
                message: 0,
            });
        }
        drop(log);
        local
    }

    /// Copies what is new; `also` is done under the same lock.
    fn refresh(&self, also: impl FnOnce(&mut Log<T>)) {
        let mut kept = self.kept.borrow_mut();
        let new = {
            let mut log = self.shared.lock();
            also(&mut log);
            log.kept.since(kept.newest).items
        };
        let Some(newest) = new.last().map(|item| item.id) else { return };
        kept.newest = newest;
        kept.items.extend(new);
        let excess = kept.items.len().saturating_sub(self.shared.retain);
        let evicted: Vec<_> = kept.items.drain(..excess).collect();
        drop(kept);
        drop(evicted);
    }

    /// Queues the delivery, if there is something new and none is queued.
    fn tell(self: &Rc<Self>, subscriber: &Rc<Subscriber<T>>) {
        let is_new = subscriber.seen.get() < self.kept.borrow().newest;
        if !is_new || subscriber.is_due.replace(true) {
            return;
        }
        let (local, weak) = (Rc::downgrade(self), Rc::downgrade(subscriber));
        let queued = subscriber.context.queue_here(move |x| match (local.upgrade(), weak.upgrade()) {
            (Some(local), Some(subscriber)) => local.deliver(&subscriber, x),
            _ => Ok(()),
        });
        if queued.is_err() {
            // Its exchange is about to end and takes the subscription with it.
            subscriber.is_due.set(false);
        }
    }

    fn deliver(&self, subscriber: &Subscriber<T>, x: &mut Exchange) -> Result<()> {
        subscriber.is_due.set(false);
        let (delivery, newest) = {
            let kept = self.kept.borrow();
            (kept.since(subscriber.seen.get()), kept.newest)
        };
        subscriber.seen.set(newest);
        let Some(mut deliver) = subscriber.deliver.borrow_mut().take() else { return Ok(()) };
        let result = deliver(x, delivery);
        *subscriber.deliver.borrow_mut() = Some(deliver);
        result
    }
}

impl<T: Send + Sync + 'static> Drop for Local<T> {
    fn drop(&mut self) {
        // At the end of the thread the map may be gone first.
        let _ = LOCALS.try_with(|locals| locals.borrow_mut().remove(&(self.shared.id, self.table_id)));
        let mut log = self.shared.lock();
        // With a message on its way the place is kept, so that never two are; the message gives it up.
        let at = log.members.iter().position(|member| member.table_id == self.table_id && !member.told);
        let left = at.map(|at| log.members.swap_remove(at));
        drop(log);
        drop(left);
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Topic { shared: self.shared.clone() }
    }
}

impl<T> Clone for Item<T> {
    fn clone(&self) -> Self {
        Item { id: self.id, value: self.value.clone() }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.shared.lock();
        f.debug_struct("Topic").field("newest", &log.kept.newest).field("shards", &log.members.len()).finish()
    }
}
