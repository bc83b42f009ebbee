//! The way into a shard from anywhere: [`ShardHandle`] is `Send + Sync + Clone`, everything else is not.

use crate::{
    error::{Error, Result},
    inbox::{Parcel, RejectReason, Rejected, Sender},
    shard::Shard,
    stats::Heartbeat,
    sync::{Arc, AtomicUsize, Ordering},
    tasks::panic_message,
};
use std::{
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::Mutex,
    task::{Context, Poll, Wake, Waker},
    thread,
};

/// Which shard of a process (or of a simulation) it is: counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub(crate) u16);

impl ShardId {
    /// The number, for arrays with one place per shard.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Hands work to a shard from any thread.
#[derive(Clone)]
pub struct ShardHandle {
    shared: Arc<HandleShared>,
}

pub(crate) struct HandleShared {
    pub(crate) id: ShardId,
    pub(crate) sender: Sender,
    pub(crate) heartbeat: Heartbeat,
    connections: AtomicUsize,
}

/// A task that a shard did not take, handed back with the reason.
pub struct Undelivered<F> {
    /// The task, not run.
    pub task: F,
    /// Why it was not taken.
    pub reason: DeliveryError,
}

impl<F> fmt::Debug for Undelivered<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Undelivered({:?})", self.reason)
    }
}

/// Why a shard did not take a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryError {
    /// The inbox holds as many tasks as it may: try later, or shed load.
    Full,
    /// The shard is stopping or gone.
    Stopping,
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeliveryError::Full => "the shard's inbox is full",
            DeliveryError::Stopping => "the shard is stopping",
        })
    }
}

impl std::error::Error for DeliveryError {}

impl From<DeliveryError> for Error {
    fn from(error: DeliveryError) -> Self {
        match error {
            DeliveryError::Full => Error::LimitReached { limit: "inbox_messages_max" },
            DeliveryError::Stopping => Error::Stopping,
        }
    }
}

impl ShardHandle {
    pub(crate) fn new(id: ShardId, sender: Sender) -> Self {
        ShardHandle {
            shared: Arc::new(HandleShared {
                id,
                sender,
                heartbeat: Heartbeat::default(),
                connections: AtomicUsize::new(0),
            }),
        }
    }

    /// Which shard this is.
    pub fn id(&self) -> ShardId {
        self.shared.id
    }

    /// Whether the caller is on this shard's thread, inside its loop.
    pub fn is_current(&self) -> bool {
        Shard::try_current().is_some_and(|shard| shard.handle_ref().is_same(self))
    }

    /// Whether both name the same shard.
    pub fn is_same(&self, other: &ShardHandle) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Queues a task; it runs on the shard, first in first out per sender. Never blocks and never runs it here.
    ///
    /// # Errors
    /// The task back, with `Full` or `Stopping`.
    pub fn execute<F>(&self, task: F) -> std::result::Result<(), Undelivered<F>>
    where
        F: FnOnce(&Shard) + Send + 'static,
    {
        self.post(task, Sender::post)
    }

    /// Like [`ShardHandle::execute`], but runs the task at once when the caller is on the shard already and
    /// nothing that was queued before would be overtaken.
    ///
    /// # Errors
    /// The task back, with `Full` or `Stopping`.
    pub fn dispatch<F>(&self, task: F) -> std::result::Result<(), Undelivered<F>>
    where
        F: FnOnce(&Shard) + Send + 'static,
    {
        match Shard::try_current() {
            Some(shard) if shard.handle_ref().is_same(self) && shard.may_run_inline() => {
                shard.run_inline(task);
                Ok(())
            }
            _ => self.execute(task),
        }
    }

    /// Sends a value that comes back whole when it is not taken; `run` gets it on the shard.
    ///
    /// # Errors
    /// The value back, with `Full` or `Stopping`.
    pub fn send<T: Send + 'static>(
        &self,
        value: T,
        run: fn(&Shard, T),
    ) -> std::result::Result<(), Undelivered<T>> {
        let posted = self.shared.sender.post(Package { value, run });
        posted.map_err(Package::back)
    }

    /// As [`ShardHandle::send`] without the bound of the inbox: only for answers to work that is bounded itself.
    ///
    /// # Errors
    /// The value back, with `Stopping`.
    pub fn send_reply<T: Send + 'static>(
        &self,
        value: T,
        run: fn(&Shard, T),
    ) -> std::result::Result<(), Undelivered<T>> {
        let posted = self.shared.sender.post_reply(Package { value, run });
        posted.map_err(Package::back)
    }

    /// Like `execute` without the bound, for answers to work that is itself bounded.
    ///
    /// # Errors
    /// The task back, with `Stopping`.
    pub fn reply<F>(&self, task: F) -> std::result::Result<(), Undelivered<F>>
    where
        F: FnOnce(&Shard) + Send + 'static,
    {
        self.post(task, Sender::post_reply)
    }

    fn post<F>(
        &self,
        task: F,
        how: impl FnOnce(&Sender, OnShard<F>) -> std::result::Result<(), Rejected<OnShard<F>>>,
    ) -> std::result::Result<(), Undelivered<F>>
    where
        F: FnOnce(&Shard) + Send + 'static,
    {
        how(&self.shared.sender, OnShard(task))
            .map_err(|rejected| Undelivered { task: rejected.task.0, reason: rejected.reason.into() })
    }

    /// Runs `f` on the shard and resolves to what it gives. May be awaited anywhere: on a shard, on another
    /// runtime, or with a blocking executor. The result may be `Full` or `Stopping` as with
    /// [`ShardHandle::execute`], or [`Error::Panicked`] if `f` panicked.
    pub fn submit_to<F, T>(&self, f: F) -> Submitted<T>
    where
        F: FnOnce(&Shard) -> T + Send + 'static,
        T: Send + 'static,
    {
        let answer =
            Arc::new(Answer { slot: Mutex::new(AnswerSlot { state: AnswerState::Waiting, waker: None }) });
        let guard = AnswerGuard { answer: Some(answer.clone()) };
        let sent = self.execute(move |shard: &Shard| match catch_unwind(AssertUnwindSafe(|| f(shard))) {
            Ok(value) => guard.settle(AnswerState::Done(value)),
            Err(panic) => {
                guard.settle(AnswerState::Failed(Error::Panicked { message: panic_message(&*panic) }));
                // The shard counts it and says so, as of every message.
                resume_unwind(panic);
            }
        });
        if let Err(undelivered) = sent {
            answer.settle(AnswerState::Failed(undelivered.reason.into()));
        }
        Submitted { answer }
    }

    /// Asks the shard's root task to end: [`Shard::stopped`] resolves.
    pub fn stop(&self) {
        // A shard that is already gone needs no telling.
        let _ = self.reply(|shard: &Shard| shard.note_stop_asked());
    }

    /// Whether the shard takes no more work: it has torn down, or is about to.
    pub fn is_stopped(&self) -> bool {
        self.shared.sender.is_closed()
    }

    /// Live connections of the shard.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn count_connection(&self, up: bool) {
        match up {
            true => self.shared.connections.fetch_add(1, Ordering::Relaxed),
            false => self.shared.connections.fetch_sub(1, Ordering::Relaxed),
        };
    }

    pub(crate) fn shared(&self) -> &HandleShared {
        &self.shared
    }
}

impl fmt::Debug for ShardHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardHandle({})", self.shared.id)
    }
}

impl From<RejectReason> for DeliveryError {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Full => DeliveryError::Full,
            RejectReason::Stopping => DeliveryError::Stopping,
        }
    }
}

/// A value on its way, with what is to be done with it.
struct Package<T> {
    value: T,
    run: fn(&Shard, T),
}

impl<T> Package<T> {
    fn back(rejected: Rejected<Package<T>>) -> Undelivered<T> {
        Undelivered { task: rejected.task.value, reason: rejected.reason.into() }
    }
}

impl<T: Send + 'static> Parcel for Package<T> {
    fn run(self) {
        let shard = Shard::try_current().expect("messages run inside the shard's loop");
        (self.run)(&shard, self.value);
    }
}

/// A task on its way: it finds the shard when it runs there.
struct OnShard<F>(F);

impl<F: FnOnce(&Shard) + Send + 'static> Parcel for OnShard<F> {
    fn run(self) {
        // The inbox is drained by its own shard's loop and by nothing else.
        let shard = Shard::try_current().expect("messages run inside the shard's loop");
        shard.timed("message", || self.0(&shard));
    }
}

/// What [`ShardHandle::submit_to`] resolves to.
#[must_use = "the work is under way, but its result is lost unless awaited"]
pub struct Submitted<T> {
    answer: Arc<Answer<T>>,
}

struct Answer<T> {
    slot: Mutex<AnswerSlot<T>>,
}

struct AnswerSlot<T> {
    state: AnswerState<T>,
    waker: Option<Waker>,
}

enum AnswerState<T> {
    Waiting,
    Done(T),
    Failed(Error),
    Taken,
}

impl<T> Answer<T> {
    /// The first answer counts: a message that was refused is dropped after its refusal was noted.
    fn settle(&self, state: AnswerState<T>) {
        let waker = {
            let mut slot = self.slot.lock().expect("nobody panics holding it");
            if !matches!(slot.state, AnswerState::Waiting) {
                return;
            }
            slot.state = state;
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Answers `Stopping` if the message is dropped without having run.
struct AnswerGuard<T> {
    answer: Option<Arc<Answer<T>>>,
}

impl<T> AnswerGuard<T> {
    fn settle(mut self, state: AnswerState<T>) {
        if let Some(answer) = self.answer.take() {
            answer.settle(state);
        }
    }
}

impl<T> Drop for AnswerGuard<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            answer.settle(AnswerState::Failed(Error::Stopping));
        }
    }
}

impl<T> Submitted<T> {
    /// Blocks the calling thread until the answer is there. Not for a shard's own thread: it would wait for
    /// itself.
    ///
    /// # Errors
    /// `Full` or `Stopping`, as [`ShardHandle::execute`].
    ///
    /// # Panics
    /// On a shard.
    pub fn wait(self) -> Result<T> {
        assert!(Shard::try_current().is_none(), "await it instead: a shard must not block");
        let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
        let mut answer = std::pin::pin!(self);
        loop {
            match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => thread::park(),
            }
        }
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

impl<T> Future for Submitted<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        // A waker is code of somebody else: cloned before the lock is taken, the one before it dropped (as
        // locals are, in reverse) after the lock is given back.
        let waker = context.waker().clone();
        let _before;
        let mut slot = self.answer.slot.lock().expect("nobody panics holding it");
        match std::mem::replace(&mut slot.state, AnswerState::Taken) {
            AnswerState::Waiting => {
                slot.state = AnswerState::Waiting;
                _before = slot.waker.replace(waker);
                Poll::Pending
            }
            AnswerState::Done(value) => Poll::Ready(Ok(value)),
            AnswerState::Failed(error) => Poll::Ready(Err(error)),
            AnswerState::Taken => panic!("polled after it was ready"),
        }
    }
}

impl<T> fmt::Debug for Submitted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Submitted")
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
