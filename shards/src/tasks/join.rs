//! The end of a task, for whoever waits for it.

use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

/// Why a task has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinError {
    /// It was cancelled before its end.
    Cancelled,
    /// It panicked; the message of the panic.
    Panicked(String),
}

/// The end of a task. Dropping the handle lets the task run on.
#[derive(Debug)]
pub struct JoinHandle<T>(PhantomData<Rc<T>>);

impl<T> JoinHandle<T> {
    /// Drops the task's future.
    pub fn cancel(&self) {
        unimplemented!()
    }
    /// Whether the task is over.
    pub fn is_finished(&self) -> bool {
        unimplemented!()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}
