//! The callbacks that need no router: listeners, tasks, the future's polls; and the clean-up at the end.
//! A listener is taken out of the exchange for the time of its call and put back unless it has replaced itself.

use super::{
    Exchange, Exchanges, Outcome,
    async_context::{Queued, Work},
    core::{Core, LocalFuture},
    counters::{down, up},
    life::{self, Callback, Event, Intents, Phase},
    listeners::{ErrorHook, Guardian},
    table::owned_head,
};
use crate::error::{EndReason, Error, Result};
use shards::Key;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    task::{Context, Poll, Waker},
};

impl Exchanges {
    /// Runs a callback that is not the connection's to run.
    pub(crate) fn run_internal(&self, core: &Rc<Core>, callback: Callback) {
        let reason = core.state().reason.unwrap_or(EndReason::Aborted);
        let hushed =
            core.hush_client_gone.get() && matches!(reason, EndReason::ClientClosed | EndReason::ClientReset);
        match callback {
            Callback::ListenerError | Callback::Error if hushed => nothing_to_run(core),
            Callback::DoRequest | Callback::Handler(_) | Callback::DoResponse => {
                unreachable!("{callback:?} is the connection's to run")
            }
            Callback::Task => self.run_task(core),
            Callback::Poll => self.run_poll(core),
            Callback::DataAvailable | Callback::AllDataRead => self.run_read(core, callback),
            Callback::WritePossible => self.run_write(core),
            Callback::Timeout => self.run_timeout(core),
            Callback::ListenerError => self.run_listener_error(core, reason),
            Callback::Error => {
                let hook = core.if_rare(|rare| rare.listeners.if_more()?.on_error.take());
                self.run_error(core, hook, reason);
            }
            Callback::Complete => self.run_complete(core, reason),
        }
    }

    /// L-10: the exchange's own listener, then the coordinator's, whatever the first one did.
    fn run_error(&self, core: &Rc<Core>, hook: Option<ErrorHook>, reason: EndReason) {
        let guardian = guardian_of(core);
        if hook.is_none() && guardian.is_none() {
            return nothing_to_run(core);
        }
        self.run_named("on_error", core, |x| {
            let own = hook.map(|hook| catch_unwind(AssertUnwindSafe(|| hook(x, reason))));
            let outer = guardian.map_or(Ok(()), |guardian| guardian.on_error(x, reason));
            joined(own, outer)
        });
    }

    /// L-10: exactly once, and the coordinator's behind the application's even if that one panics.
    fn run_complete(&self, core: &Rc<Core>, reason: EndReason) {
        let own = core.if_rare(|rare| rare.listeners.on_complete.take());
        let guardian = guardian_of(core);
        if own.is_none() && guardian.is_none() {
            return nothing_to_run(core);
        }
        self.run_named("on_complete", core, |x| {
            let own = own.map(|hook| catch_unwind(AssertUnwindSafe(|| hook(x, reason))));
            if let Some(guardian) = guardian {
                guardian.on_complete(x, reason);
            }
            joined(own, Ok(()))
        });
    }

    /// A callback of this kind, named for what measures it.
    fn run_named<O: Outcome>(
        &self,
        kind: &'static str,
        core: &Rc<Core>,
        callback: impl FnOnce(&mut Exchange) -> O,
    ) {
        (self.name_callback)(kind);
        self.run_fenced(core, owned_head(core), callback);
    }

    fn run_timeout(&self, core: &Rc<Core>) {
        let mut hook = core.if_rare(|rare| rare.listeners.on_timeout.take());
        let guardian = guardian_of(core);
        if hook.is_none() && guardian.is_none() {
            return nothing_to_run(core);
        }
        self.run_named("on_timeout", core, |x| {
            if let Some(hook) = &mut hook {
                hook(x)?;
            }
            let intents = x.core.intents.get();
            match guardian {
                // The first answer counts.
                Some(guardian) if !intents.ends_cycle() && !intents.timeout_set => guardian.on_timeout(x),
                _ => Ok(()),
            }
        });
        if let Some(hook) = hook {
            let left = core.with_rare(|rare| put_back(&mut rare.listeners.on_timeout, hook));
            drop_left(self, left);
        }
    }

    fn run_read(&self, core: &Rc<Core>, callback: Callback) {
        if has_future(core) {
            core.feed(Event::FutureWoken);
        }
        let Some(mut listener) = core.if_rare(|rare| rare.listeners.if_more()?.read.take()) else {
            let decides = core.state().phase == Phase::Deciding;
            return self.run_guardian(core, decides, |guardian, x| guardian.on_content(x));
        };
        self.run_named("read listener", core, |x| match callback {
            Callback::AllDataRead => listener.on_all_data_read(x),
            _ => listener.on_data_available(x),
        });
        let left = core.with_rare(|rare| put_back(&mut rare.listeners.more().read, listener));
        drop_left(self, left);
    }

    fn run_write(&self, core: &Rc<Core>) {
        if has_future(core) {
            core.feed(Event::FutureWoken);
        }
        let Some(mut listener) = core.if_rare(|rare| rare.listeners.if_more()?.write.take()) else {
            let holds = core.state().phase == Phase::Responding;
            return self.run_guardian(core, holds, |guardian, x| guardian.on_writable(x));
        };
        self.run_named("write listener", core, |x| listener.on_write_possible(x));
        let left = core.with_rare(|rare| put_back(&mut rare.listeners.more().write, listener));
        drop_left(self, left);
    }

    /// The coordinator hears of content and room while the exchange is in its hands, not in the handler's.
    fn run_guardian(
        &self,
        core: &Rc<Core>,
        is_in_charge: bool,
        call: impl FnOnce(Rc<dyn Guardian>, &mut Exchange) -> Result<()>,
    ) {
        match guardian_of(core).filter(|_| is_in_charge) {
            Some(guardian) => {
                self.run_named("coordinator", core, |x| call(guardian, x));
            }
            None => nothing_to_run(core),
        }
    }

    /// L-10: the listeners' own `on_error` come before the exchange's.
    fn run_listener_error(&self, core: &Rc<Core>, reason: EndReason) {
        let listeners = core.if_rare(|rare| {
            let more = rare.listeners.if_more()?;
            Some((more.read.take(), more.write.take()))
        });
        let Some((read, write)) = listeners.filter(|(read, write)| read.is_some() || write.is_some()) else {
            return nothing_to_run(core);
        };
        self.run_named("on_error of a body listener", core, |x| {
            if let Some(mut read) = read {
                read.on_error(x, reason);
            }
            if let Some(mut write) = write {
                write.on_error(x, reason);
            }
        });
    }

    // ---- tasks ----------------------------------------------------------------------------------------------

    /// One task, the first that may still run; stale ones before it are dropped here, on their shard (L-5).
    fn run_task(&self, core: &Rc<Core>) {
        let task = loop {
            let Some(task) = core.if_rare(|rare| rare.pop_task()) else { break None };
            self.hub.counters.update(|c| down(&mut c.executor_queued));
            if task.cycle.is_none_or(|cycle| cycle == core.cycle.get()) {
                break Some(task);
            }
            self.drop_stale(task);
        };
        let more = core.has_tasks();
        if more {
            core.feed(Event::TaskArrived);
        }
        let Some(task) = task else { return nothing_to_run(core) };
        if let Some(sent) = task.sent {
            self.hub.latencies.borrow_mut().handed_over(sent.elapsed());
        }
        self.hub.counters.update(|c| up(&mut c.executor_active));
        self.run_named("task", core, |x| match task.work {
            Work::Local(run) => run(x),
            Work::Sent(job, context) => {
                context.shared.release();
                job.run(x)
            }
        });
        self.hub.counters.update(|c| down(&mut c.executor_active));
    }

    fn drop_stale(&self, task: Queued) {
        self.hub.counters.update(|c| up(&mut c.stale_tasks_dropped));
        if let Work::Sent(job, context) = task.work {
            context.shared.release();
            drop_quietly(self, job);
        }
    }

    /// A parcel has brought a task.
    pub(crate) fn accept_task(&self, task: Queued) {
        if let Work::Sent(_, context) = &task.work {
            match self.core(context.id.key).filter(|core| core.state().takes_tasks()) {
                Some(core) => self.queue_task(&core, task),
                None => self.drop_stale(task),
            }
        }
    }

    fn queue_task(&self, core: &Rc<Core>, task: Queued) {
        core.with_rare(|rare| rare.push_task(task));
        self.hub.counters.update(|c| {
            up(&mut c.executor_queued);
            c.executor_high_water = c.executor_high_water.max(c.executor_queued);
        });
        core.feed(Event::TaskArrived);
        core.make_ready();
        self.kick();
    }

    /// Whether a task for this exchange would run at once (L-3).
    pub(crate) fn may_run_now(&self, key: Key) -> bool {
        self.hub.depth.get() == 0
            && self.core(key).is_some_and(|core| {
                core.state().is_parked() && core.actions.borrow().is_empty() && !core.has_tasks()
            })
    }

    /// Runs a task now, or says why not.
    pub(crate) fn run_now(&self, key: Key, task: Queued) -> Result<()> {
        let Some(core) = self.core(key) else { return Err(Error::Stale) };
        if task.cycle.is_some_and(|cycle| cycle != core.cycle.get()) {
            return Err(Error::Stale);
        }
        if let Some(reason) = core.state().end_decided() {
            return Err(Error::Ended(reason));
        }
        if !self.may_run_now(key) {
            return Err(Error::Misuse("with() runs outside callbacks, with nothing queued; use dispatch()"));
        }
        core.with_rare(|rare| rare.push_task(task));
        self.hub.counters.update(|c| up(&mut c.executor_queued));
        core.feed(Event::TaskArrived);
        let action = core.actions.borrow_mut().pop();
        assert_eq!(action, Some(life::Action::Run(Callback::Task)), "a parked exchange runs a task at once");
        self.run_task(&core);
        core.make_ready();
        self.kick();
        Ok(())
    }

    pub(crate) fn refuse_tasks(&self, core: &Core) {
        while let Some(task) = core.if_rare(|rare| rare.pop_task()) {
            self.hub.counters.update(|c| down(&mut c.executor_queued));
            self.drop_stale(task);
        }
    }

    // ---- the future -----------------------------------------------------------------------------------------

    pub(crate) fn accept_wake(&self, key: Key) {
        if let Some(core) = self.core(key) {
            core.feed(Event::FutureWoken);
            core.make_ready();
            self.kick();
        }
    }

    pub(crate) fn accept_overload(&self, key: Key) {
        if let Some(core) = self.core(key) {
            core.feed(Event::Overloaded);
            core.make_ready();
            self.kick();
        }
    }

    fn run_poll(&self, core: &Rc<Core>) {
        let Some(mut future) = core.if_rare(|rare| rare.future.take()) else { return nothing_to_run(core) };
        let context = core.context(&owned_head(core));
        let waker = Waker::from(context);
        let mut kept = None;
        self.run_named("poll of a handler", core, |x| {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => finish_future(x, result),
                Poll::Pending => {
                    kept = Some(());
                    Ok(())
                }
            }
        });
        self.keep_future(core, kept.map(|()| future));
    }

    /// Keeps a pending future, unless the callback that polled it has decided the end.
    fn keep_future(&self, core: &Rc<Core>, future: Option<LocalFuture>) {
        let Some(future) = future else { return };
        if core.state().end_decided().is_none() && core.state().phase != Phase::Handling {
            core.with_rare(|rare| rare.future = Some(future));
        } else {
            drop_quietly(self, future);
        }
    }

    // ---- the end --------------------------------------------------------------------------------------------

    pub(crate) fn drop_future(&self, core: &Core) {
        if let Some(future) = core.if_rare(|rare| rare.future.take()) {
            drop_quietly(self, future);
        }
        core.if_rare(|rare| {
            rare.forget_sleeps();
            Some(())
        });
    }

    pub(crate) fn fire_cancel_token(&self, core: &Core) {
        let reason = core.state().reason.unwrap_or(EndReason::Aborted);
        if let Some(context) = core.if_rare(|rare| rare.context.clone()) {
            quietly(self, || context.shared.end(reason));
        }
    }

    pub(crate) fn next_cycle(&self, core: &Core) {
        core.cycle.set(core.cycle.get() + 1);
        core.set_deadline(None);
        let former = core.if_rare(|rare| {
            if let Some(context) = &rare.context {
                context.shared.set_cycle(core.cycle.get());
            }
            let listeners = &mut rare.listeners;
            let body = listeners.if_more().map(|more| (more.read.take(), more.write.take()));
            Some((body, listeners.on_timeout.take()))
        });
        drop_quietly(self, former);
        self.count_async(core, false);
    }
}

/// What a handler's future ended with, as if the callback that polled it had ended so.
pub(crate) fn finish_future(x: &mut Exchange, result: Result<()>) -> Result<()> {
    result?;
    if x.core.check_live().is_ok() && x.core.state().phase != Phase::Responding {
        x.complete()?;
    }
    Ok(())
}

fn guardian_of(core: &Core) -> Option<Rc<dyn Guardian>> {
    core.if_rare(|rare| rare.listeners.if_more()?.guardian.clone())
}

/// The outcome of a hook behind which another one has run: a panic goes on, the first error counts.
fn joined(first: Option<std::thread::Result<Result<()>>>, second: Result<()>) -> Result<()> {
    match first {
        None => second,
        Some(Ok(result)) => result.and(second),
        Some(Err(panic)) => std::panic::resume_unwind(panic),
    }
}

fn has_future(core: &Core) -> bool {
    core.if_rare(|rare| rare.future.as_ref().map(|_| ())).is_some()
}

fn nothing_to_run(core: &Core) {
    core.feed(Event::CallbackReturned { outcome: life::Outcome::Returned, intents: Intents::default() });
}

/// Gives the listener again if it has replaced itself: to be dropped where nothing is borrowed.
fn put_back<T: ?Sized>(place: &mut Option<Box<T>>, listener: Box<T>) -> Option<Box<T>> {
    if place.is_some() {
        return Some(listener);
    }
    *place = Some(listener);
    None
}

fn drop_left<T: ?Sized>(exchanges: &Exchanges, left: Option<Box<T>>) {
    if left.is_some() {
        drop_quietly(exchanges, left);
    }
}

/// Drops user values; a panic in their `drop` ends here (L-14).
pub(crate) fn drop_quietly<T>(exchanges: &Exchanges, value: T) {
    quietly(exchanges, || drop(value));
}

fn quietly(exchanges: &Exchanges, run: impl FnOnce()) {
    let depth = exchanges.hub.depth.replace(1);
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        exchanges.hub.counters.update(|c| up(&mut c.panics));
    }
    exchanges.hub.depth.set(depth);
}
