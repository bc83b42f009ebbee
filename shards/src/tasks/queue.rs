//! The tasks of one shard: which there are, which are ready, and whose turn it is.
//!
//! Neighbours: `join.rs` (what is polled), `waker.rs` (who calls [`TaskQueue::make_ready`]). No cell is borrowed
//! while a user's code runs, be it a poll or a destructor, so that code may spawn, wake and cancel as it likes.

use super::{
    join::{Ended, JoinHandle, Outcome, Supervise, supervise},
    waker::{QueueId, TaskWaker, register, unregister},
};
use crate::{
    inbox::Sender,
    table::{Key, Table},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
};

/// The tasks of one shard. Its memory is bounded by the tasks alive and those spawned since the last run.
pub(crate) struct TaskQueue {
    id: QueueId,
    this: Weak<TaskQueue>,
    remote: Sender,
    tasks: RefCell<Table<Task>>,
    /// A task is in here at most once; keys of tasks that are over may be left, and find nothing.
    ready: RefCell<VecDeque<Key>>,
    panics: Cell<u64>,
    stopped: Cell<bool>,
}

struct Task {
    /// `None` while it is polled.
    body: Option<Body>,
    state: State,
}

/// What a poll needs. It moves out of the table for the poll.
struct Body {
    future: Box<dyn Supervise>,
    waker: Waker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for a wake.
    Waiting,
    /// In the ready queue.
    Ready,
    /// Being polled.
    Running,
    /// Woken while it is polled: ready for the next run.
    RunningWoken,
    /// Cancelled while it is polled: to be dropped after the poll.
    RunningCancelled,
}

impl TaskQueue {
    /// A queue for this thread; `remote` leads into this shard's inbox, for wakes from other threads.
    pub(crate) fn new(remote: Sender) -> Rc<TaskQueue> {
        let id = QueueId::next();
        let queue = Rc::new_cyclic(|this| TaskQueue {
            id,
            this: Weak::clone(this),
            remote,
            tasks: RefCell::default(),
            ready: RefCell::default(),
            panics: Cell::new(0),
            stopped: Cell::new(false),
        });
        register(id, &queue.this);
        queue
    }

    /// Starts a task; its first poll is in a coming [`TaskQueue::run`]. After [`TaskQueue::clear`] the future is
    /// dropped at once and the handle says "cancelled".
    pub(crate) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let outcome = Outcome::new();
        let future = supervise(future, Rc::clone(&outcome));
        if self.stopped.get() {
            self.discard(future);
            return JoinHandle { outcome, queue: Weak::new(), key: Key::NONE };
        }
        let key = self.tasks.borrow_mut().insert_with(|key| {
            let waker = Waker::from(Arc::new(TaskWaker::new(self.id, key, self.remote.clone())));
            Task { body: Some(Body { future, waker }), state: State::Ready }
        });
        self.ready.borrow_mut().push_back(key);
        JoinHandle { outcome, queue: Weak::clone(&self.this), key }
    }

    /// Polls up to `budget` ready tasks, first in, first out; gives how many. A task that woke itself has to wait for
    /// the next run.
    pub(crate) fn run(&self, budget: usize) -> usize {
        let mut woke_themselves = Vec::new();
        let mut ran = 0;
        while ran < budget {
            let Some(key) = self.ready.borrow_mut().pop_front() else { break };
            let Some(body) = self.begin(key) else { continue };
            ran += 1;
            if self.poll(key, body) {
                woke_themselves.push(key);
            }
        }
        self.ready.borrow_mut().extend(woke_themselves);
        ran
    }

    /// Whether no task is ready: the shard may sleep.
    pub(crate) fn is_idle(&self) -> bool {
        self.ready.borrow().is_empty()
    }

    /// Tasks that are not over.
    pub(crate) fn live(&self) -> usize {
        self.tasks.borrow().len()
    }

    /// How many tasks ended in a panic, ever.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// The end: drops every future, here and now (one that is being polled right after its poll).
    pub(crate) fn clear(&self) {
        self.stopped.set(true);
        let keys = self.tasks.borrow().keys();
        for key in keys {
            self.cancel(key);
        }
        self.ready.borrow_mut().clear();
    }

    /// A wake: queues the task unless it is queued already, or over.
    pub(super) fn make_ready(&self, key: Key) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(key) else { return };
        match task.state {
            State::Waiting => {
                task.state = State::Ready;
                self.ready.borrow_mut().push_back(key);
            }
            State::Running => task.state = State::RunningWoken,
            State::Ready | State::RunningWoken | State::RunningCancelled => {}
        }
    }

    pub(super) fn cancel(&self, key: Key) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(key) else { return };
        match task.state {
            State::Waiting | State::Ready => {
                let task = tasks.remove(key);
                drop(tasks);
                self.discard(task);
            }
            State::Running | State::RunningWoken | State::RunningCancelled => {
                task.state = State::RunningCancelled;
            }
        }
    }

    /// Drops what a user's destructor may be in: its panic must not end the shard.
    fn discard<T>(&self, value: T) {
        if catch_unwind(AssertUnwindSafe(|| drop(value))).is_err() {
            self.panics.set(self.panics.get() + 1);
        }
    }

    fn begin(&self, key: Key) -> Option<Body> {
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.get_mut(key)?;
        task.state = State::Running;
        task.body.take()
    }

    /// Polls a task whose body was taken out. True if it woke itself.
    fn poll(&self, key: Key, mut body: Body) -> bool {
        let mut context = Context::from_waker(&body.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| body.future.poll(&mut context)));
        let polled = polled.unwrap_or(Poll::Ready(Ended::Panicked));
        if polled == Poll::Ready(Ended::Panicked) {
            self.panics.set(self.panics.get() + 1);
        }
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(key) else { unreachable!("a running task stays in the table") };
        if polled.is_ready() || task.state == State::RunningCancelled {
            let task = tasks.remove(key);
            drop(tasks);
            self.discard((task, body));
            return false;
        }
        let woken = task.state == State::RunningWoken;
        task.state = if woken { State::Ready } else { State::Waiting };
        task.body = Some(body);
        woken
    }
}

impl Drop for TaskQueue {
    fn drop(&mut self) {
        self.clear();
        unregister(self.id);
    }
}

impl fmt::Debug for TaskQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskQueue").field("live", &self.live()).field("idle", &self.is_idle()).finish()
    }
}
