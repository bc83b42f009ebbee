//! The tasks of one shard.

use super::join::JoinHandle;
use crate::inbox::Sender;
use std::{future::Future, rc::Rc};

/// The tasks of one shard.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    remote: Sender,
}

impl TaskQueue {
    /// `remote` reaches this shard from other threads.
    pub(crate) fn new(remote: Sender) -> Rc<TaskQueue> {
        Rc::new(TaskQueue { remote })
    }
    pub(crate) fn spawn<F: Future + 'static>(&self, _future: F) -> JoinHandle<F::Output> {
        unimplemented!("{:?}", self.remote)
    }
    /// Polls up to `budget` tasks that are ready; gives how many.
    pub(crate) fn run(&self, _budget: usize) -> usize {
        unimplemented!()
    }
    /// Whether no task is ready.
    pub(crate) fn is_idle(&self) -> bool {
        unimplemented!()
    }
    /// Tasks that are not over.
    pub(crate) fn live(&self) -> usize {
        unimplemented!()
    }
    /// How many tasks panicked, ever.
    pub(crate) fn panics(&self) -> u64 {
        unimplemented!()
    }
    /// The end: drops every future, here; what is spawned later is dropped at once.
    pub(crate) fn clear(&self) {
        unimplemented!()
    }
}
