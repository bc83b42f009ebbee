//! Waiting as futures: on the shard's wheel, one millisecond fine, late at times and never early.

use crate::{
    error::{Error, Result},
    shard::Shard,
    table::Key,
    timers::TimerTarget,
};
use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

/// Resolves after `duration`, on the current shard.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Shard::current().exact_now().saturating_add(duration))
}

/// Resolves at a time on [`Shard::now`]'s scale.
pub fn sleep_until(at: Duration) -> Sleep {
    Sleep { shard: Shard::current(), at, timer: None }
}

/// Waits for `future`, but no longer than `within`.
///
/// # Errors
/// [`Error::TimedOut`]; the future is dropped then.
pub async fn timeout<F: Future>(within: Duration, future: F) -> Result<F::Output> {
    let mut future = pin!(future);
    let mut sleep = pin!(sleep(within));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(context).map(|()| Err(Error::TimedOut))
    })
    .await
}

/// Ticks every `period`, the first time one period from now. A tick that is late does not shift those after it;
/// ticks that were missed altogether are skipped.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval has a period");
    Interval { next: Shard::current().exact_now().saturating_add(period), period }
}

/// See [`interval`].
#[derive(Debug)]
pub struct Interval {
    next: Duration,
    period: Duration,
}

impl Interval {
    /// Resolves at the next tick.
    pub async fn tick(&mut self) {
        sleep_until(self.next).await;
        let now = Shard::current().now();
        let late_by = now.saturating_sub(self.next).as_nanos() % self.period.as_nanos();
        let on_the_beat = now.saturating_sub(Duration::from_nanos(late_by as u64)).max(self.next);
        self.next = on_the_beat.saturating_add(self.period);
    }
}

/// See [`sleep`].
#[must_use = "a sleep does nothing unless awaited"]
pub struct Sleep {
    shard: Shard,
    at: Duration,
    timer: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.disarm();
        if self.shard.now() >= self.at {
            return Poll::Ready(());
        }
        let timer = self.shard.timers().insert(self.at, TimerTarget::Waker(context.waker().clone()));
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl Sleep {
    fn disarm(&mut self) {
        // The waker is dropped after the wheel is let go: its destructor may be anybody's code.
        let target = self.timer.take().and_then(|timer| self.shard.timers().remove(timer));
        drop(target);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep(until {:?})", self.at)
    }
}
