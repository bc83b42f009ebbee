//! Tasks for an exchange from its own shard. They need not be `Send` and do not pass the inbox, so that a full inbox
//! cannot lose a permit or a message that has arrived already. Whoever uses this queues a bounded number of them.

use super::{
    AsyncContext, Exchange, Exchanges,
    async_context::{Queued, Work},
    counters::up,
    life::Event,
    registry,
};
use crate::error::{Error, Result};

impl AsyncContext {
    /// Queues a task, last in line. It runs when whoever drives the exchanges comes to it (`Exchanges::kick`), and
    /// is dropped unrun, here on the shard, when the exchange or the context's cycle ends before.
    ///
    /// # Errors
    /// `Ended` when the exchange takes no tasks any more, `Stale` when this is not its shard: the task is dropped.
    pub(crate) fn queue_here(&self, task: impl FnOnce(&mut Exchange) -> Result<()> + 'static) -> Result<()> {
        if let Some(reason) = self.core.shared.ended() {
            return Err(Error::Ended(reason));
        }
        let task = Queued { cycle: self.cycle, sent: None, work: Work::Local(Box::new(task)) };
        let queue = |exchanges: &std::rc::Rc<Exchanges>| exchanges.queue_local(self, task);
        registry::with(self.core.gateway.table_id, queue).unwrap_or(Err(Error::Stale))
    }
}

impl Exchanges {
    fn queue_local(&self, context: &AsyncContext, task: Queued) -> Result<()> {
        let core = self.core(context.core.id.key).ok_or(Error::Stale)?;
        let state = core.state();
        if !state.takes_tasks() {
            return Err(state.end_decided().map_or(Error::Stale, Error::Ended));
        }
        core.with_rare(|rare| rare.push_task(task));
        self.hub.counters.update(|c| {
            up(&mut c.executor_queued);
            c.executor_high_water = c.executor_high_water.max(c.executor_queued);
        });
        core.feed(Event::TaskArrived);
        core.make_ready();
        Ok(())
    }
}
