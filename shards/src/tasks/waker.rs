//! Wakers: the half of a task that any thread may hold, for as long as it likes.
//!
//! It finds its queue through a list that is local to the thread. It never touches a future.

use super::queue::TaskQueue;
use crate::{
    inbox::Sender,
    sync::{AtomicUsize, Ordering},
    table::Key,
};
use std::{
    cell::RefCell,
    rc::{Rc, Weak},
    sync::Arc,
    task::Wake,
};

/// The name of a queue in this process; no two queues ever have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueId(usize);

impl QueueId {
    pub(super) fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        QueueId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

thread_local! {
    /// The queues of this thread: one, or a few under simulation.
    static QUEUES: RefCell<Vec<(QueueId, Weak<TaskQueue>)>> = const { RefCell::new(Vec::new()) };
}

/// Makes a queue findable from its own thread.
pub(super) fn register(id: QueueId, queue: &Weak<TaskQueue>) {
    QUEUES.with_borrow_mut(|queues| queues.push((id, Weak::clone(queue))));
}

/// The reverse of [`register`]. At the end of the thread the list may be gone already.
pub(super) fn unregister(id: QueueId) {
    let _ = QUEUES.try_with(|queues| queues.borrow_mut().retain(|(its, _)| *its != id));
}

fn local_queue(id: QueueId) -> Option<Rc<TaskQueue>> {
    let find = |queues: &RefCell<Vec<(QueueId, Weak<TaskQueue>)>>| {
        queues.borrow().iter().find(|(its, _)| *its == id).and_then(|(_, queue)| queue.upgrade())
    };
    QUEUES.try_with(find).ok().flatten()
}

/// What is behind a `Waker`.
pub(super) struct TaskWaker {
    pub(super) queue: QueueId,
    pub(super) key: Key,
    pub(super) remote: Sender,
    /// 1 while a message of this waker is on its way. Both sides swap: the shard's swap follows the swap of every
    /// thread that found 1 and relied on the message, so the poll sees what that thread did before its wake.
    under_way: AtomicUsize,
}

impl TaskWaker {
    pub(super) fn new(queue: QueueId, key: Key, remote: Sender) -> Self {
        TaskWaker { queue, key, remote, under_way: AtomicUsize::new(0) }
    }

    /// Wakes, if this is the thread of the task's queue.
    fn wake_here(&self) -> bool {
        match local_queue(self.queue) {
            Some(queue) => {
                queue.make_ready(self.key);
                true
            }
            None => false,
        }
    }

    fn wake_there(self: Arc<Self>) {
        if self.under_way.swap(1, Ordering::AcqRel) == 0 {
            let remote = self.remote.clone();
            // Refused only when the shard stops, and then its tasks are gone or about to go.
            let _ = remote.post_reply(move || {
                self.under_way.swap(0, Ordering::AcqRel);
                self.wake_here();
            });
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.wake_here() {
            self.wake_there();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.wake_here() {
            Arc::clone(self).wake_there();
        }
    }
}
