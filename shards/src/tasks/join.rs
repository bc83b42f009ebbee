//! The end of a task, for whoever waits for it: result, cancellation, panic.
//!
//! Neighbour: `queue.rs`, which polls what [`supervise`] gives. Nothing here leaves the shard's thread.

use super::queue::TaskQueue;
use crate::table::Key;
use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::{Rc, Weak},
    task::{Context, Poll, Waker},
};

/// Why a task has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinError {
    /// It was cancelled, or its shard stopped, before its end.
    Cancelled,
    /// It panicked; the message of the panic.
    Panicked(String),
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JoinError::Cancelled => f.write_str("the task was cancelled"),
            JoinError::Panicked(message) => write!(f, "the task panicked: {message}"),
        }
    }
}

impl std::error::Error for JoinError {}

/// Waits for the end of a task: a future of its result. Dropping the handle lets the task run on.
pub struct JoinHandle<T> {
    pub(super) outcome: Rc<Outcome<T>>,
    pub(super) queue: Weak<TaskQueue>,
    pub(super) key: Key,
}

impl<T> JoinHandle<T> {
    /// Drops the task's future: now, or right after the poll if the task is the one that runs. What is over stays
    /// as it is.
    pub fn cancel(&self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.cancel(self.key);
        }
    }

    /// Whether the task is over: returned, panicked or cancelled.
    pub fn is_finished(&self) -> bool {
        self.outcome.finished.get()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    /// If it is polled again after it gave the result.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.outcome.result.take() {
            return Poll::Ready(result);
        }
        assert!(!self.is_finished(), "a JoinHandle was polled after it gave its result");
        let mut waiter = self.outcome.waiter.borrow_mut();
        match &mut *waiter {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waiter = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.key).field("finished", &self.is_finished()).finish()
    }
}

/// Where the result goes.
pub(super) struct Outcome<T> {
    result: Cell<Option<Result<T, JoinError>>>,
    waiter: RefCell<Option<Waker>>,
    finished: Cell<bool>,
}

impl<T> Outcome<T> {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Outcome { result: Cell::new(None), waiter: RefCell::new(None), finished: Cell::new(false) })
    }

    fn finish(&self, result: Result<T, JoinError>) {
        if !self.finished.replace(true) {
            self.result.set(Some(result));
            let waiter = self.waiter.take();
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
    }
}

/// A user's future and where its result goes. The future is dropped before the result is given, so whoever waits
/// finds everything released that the future held. Dropping it unfinished is a cancellation.
pub(super) struct Supervised<F: Future> {
    future: Option<Pin<Box<F>>>,
    outcome: Rc<Outcome<F::Output>>,
}

/// What the queue knows of a task.
pub(super) trait Supervise {
    /// Polls; gives whether the task is over, and how.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended>;
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Returned,
    Panicked,
}

pub(super) fn supervise<F: Future + 'static>(
    future: F,
    outcome: Rc<Outcome<F::Output>>,
) -> Box<dyn Supervise> {
    Box::new(Supervised { future: Some(Box::pin(future)), outcome })
}

impl<F: Future> Supervise for Supervised<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        let Some(future) = &mut self.future else { return Poll::Ready(Ended::Returned) };
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        let result = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(value)) => self.release().map(|()| value),
            // A second panic, of a destructor, has nothing to add to the first.
            Err(panic) => self.release().and(Err(panic)),
        };
        let (result, ended) = match result {
            Ok(value) => (Ok(value), Ended::Returned),
            Err(panic) => (Err(JoinError::Panicked(panic_message(&*panic))), Ended::Panicked),
        };
        self.outcome.finish(result);
        Poll::Ready(ended)
    }
}

impl<F: Future> Supervised<F> {
    fn release(&mut self) -> Result<(), Box<dyn Any + Send>> {
        let future = self.future.take();
        catch_unwind(AssertUnwindSafe(|| drop(future)))
    }
}

impl<F: Future> Drop for Supervised<F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            let result = match self.release() {
                Ok(()) => JoinError::Cancelled,
                Err(panic) => JoinError::Panicked(panic_message(&*panic)),
            };
            self.outcome.finish(Err(result));
        }
    }
}

/// The text of a panic, if it had one.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a message".to_owned(),
    }
}
