//! Handlers that await. The future owns its handle on the exchange, is polled as a callback of the exchange on its
//! shard, and is dropped there when the end is decided (L-16). Correctness never depends on its being polled.

use super::{
    Exchange, Outcome, Read,
    core::{Core, LocalFuture},
    counters::up,
    executor, handoff,
    life::Phase,
    run::finish_future,
};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Makes a handler of an asynchronous function.
pub fn asynchronous<F, O>(handler: F) -> Asynchronous<F>
where
    F: AsyncFn(&mut Exchange) -> O + 'static,
    O: Outcome + 'static,
{
    Asynchronous(Rc::new(handler))
}

/// A handler made of an asynchronous function: see [`asynchronous`].
pub struct Asynchronous<F>(Rc<F>);

impl<F, O> Asynchronous<F>
where
    F: AsyncFn(&mut Exchange) -> O + 'static,
    O: Outcome + 'static,
{
    /// Starts the function for an exchange, from a callback of it.
    ///
    /// # Errors
    /// `AsyncNotSupported`, `Ended`, or what the function ended with at once.
    pub fn run(&self, x: &mut Exchange) -> Result<()> {
        x.try_start_async()?;
        let handler = self.0.clone();
        let mut handle = x.second_handle();
        run_first(x, Box::pin(async move { handler(&mut handle).await.into_result() }))
    }
}

impl<F> fmt::Debug for Asynchronous<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Asynchronous")
    }
}

/// The first poll happens inside the handler's callback: what is ready at once is answered at once.
fn run_first(x: &mut Exchange, mut future: LocalFuture) -> Result<()> {
    let waker = Waker::from(x.core.context(&x.head));
    match future.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(result) => finish_future(x, result),
        Poll::Pending => {
            x.core.with_rare(|rare| rare.future = Some(future));
            Ok(())
        }
    }
}

impl Exchange {
    /// The handle that a future owns. It reads the head from the snapshot.
    fn second_handle(&mut self) -> Exchange {
        let head = super::request::HeadHolder::Owned(self.core.snapshot(&self.head));
        Exchange::new(self.core.clone(), head)
    }

    /// Waits on the shard's timer. An exchange may wait for many at once (the first of several futures, say), up to
    /// `exchange_sleeps_max`; one that is dropped makes room.
    ///
    /// # Errors
    /// `LimitReached` beyond that; `Stale` if it is awaited after its exchange has ended.
    pub fn sleep(&mut self, time: Duration) -> impl Future<Output = Result<()>> + use<> {
        let until = self.core.hub.now.get() + time;
        Sleep { core: self.core.clone(), until, is_listed: false }
    }

    /// Runs `work` on the worker pool and waits for its result; the wait is dropped with the exchange.
    ///
    /// # Errors
    /// `LimitReached` when the pool refuses the job; `HandlerFailed` when the job panics.
    pub fn blocking<R, W>(&mut self, work: W) -> impl Future<Output = Result<R>> + use<R, W>
    where
        R: Send + 'static,
        W: FnOnce() -> R + Send + 'static,
    {
        let (sender, receiver) = handoff();
        let context = self.core.context(&self.head);
        let started = executor::start_job(
            &context,
            Box::new(move || {
                // Nobody waits any more when the exchange is over: then the result has no use.
                let _ = sender.send(work());
            }),
        );
        async move {
            started?;
            receiver.await.ok_or_else(|| Error::handler("the blocking job ended without a result"))
        }
    }

    /// The next bytes of the body, or `None` at its end. For asynchronous handlers.
    ///
    /// # Errors
    /// As [`Exchange::read`].
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|_| match self.read() {
            Ok(Read::Data(bytes)) => Poll::Ready(Ok(Some(bytes))),
            Ok(Read::End) => Poll::Ready(Ok(None)),
            Ok(Read::NotReady) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        })
        .await
    }

    /// Waits until the output is below its low water mark, or at once if it never was above the high one.
    ///
    /// # Errors
    /// `Ended` when the exchange is over.
    pub async fn write_ready(&mut self) -> Result<()> {
        let _ = self.flush();
        poll_fn(|_| match self.core.check_live() {
            Err(error) => Poll::Ready(Err(error)),
            Ok(()) if self.is_write_ready() => Poll::Ready(Ok(())),
            Ok(()) => Poll::Pending,
        })
        .await
    }
}

/// A moment that the future of an exchange waits for.
struct Sleep {
    /// No other exchange gets it while this holds it.
    core: Rc<Core>,
    until: Duration,
    /// The exchange's timer knows of it.
    is_listed: bool,
}

impl Future for Sleep {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        let core = &self.core;
        if core.state().phase == Phase::Vacant {
            return Poll::Ready(Err(Error::Stale));
        }
        if core.hub.now.get() >= self.until {
            return Poll::Ready(Ok(()));
        }
        if !self.is_listed {
            if !core.with_rare(|rare| rare.push_sleep(self.until, core.hub.sleeps_max)) {
                core.hub.counters.update(|c| up(&mut c.sleeps_refused));
                tracing::debug!(reason = SLEEPS_LIMIT, "sleep refused");
                return Poll::Ready(Err(Error::LimitReached { limit: SLEEPS_LIMIT }));
            }
            core.timer_dirty.set(true);
            self.is_listed = true;
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if self.is_listed {
            self.core.if_rare(|rare| {
                rare.drop_sleep(self.until);
                Some(())
            });
        }
    }
}

/// The name of the bound on an exchange's sleeps.
const SLEEPS_LIMIT: &str = "exchange_sleeps_max";
