//! Handlers that await. The future owns its handle on the exchange, is polled as a callback of the exchange on its
//! shard, and is dropped there when the end is decided (L-16). Correctness never depends on its being polled.

use super::{Exchange, Outcome, Read, core::LocalFuture, executor, handoff, run::finish_future};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::{
    fmt,
    future::{Future, poll_fn},
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

    /// Waits on the shard's timer.
    pub fn sleep(&mut self, time: Duration) -> impl Future<Output = ()> + use<> {
        let core = self.core.clone();
        let until = core.hub.now.get() + time;
        let mut asked = false;
        poll_fn(move |_| {
            if core.hub.now.get() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut asked, true) {
                core.with_rare(|rare| rare.push_sleep(until));
                core.timer_dirty.set(true);
            }
            Poll::Pending
        })
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
