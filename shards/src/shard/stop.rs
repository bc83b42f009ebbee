//! Waiting for the word to stop. A future that is dropped leaves nothing behind: a server may wait for it once per
//! connection, for years.

use super::Shard;
use crate::table::{Key, Table};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

#[derive(Default)]
pub(super) struct Stop {
    pub(super) asked: bool,
    pub(super) waiting: Table<Waker>,
}

/// See [`Shard::stopped`].
#[must_use = "a future does nothing unless awaited"]
pub struct Stopped {
    pub(super) shard: Shard,
    pub(super) place: Option<Key>,
}

impl Stopped {
    fn leave(&mut self) {
        let place = self.place.take();
        let waker = place.and_then(|place| self.shard.inner.stop.borrow_mut().waiting.remove(place));
        drop(waker);
    }
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.leave();
        let waker = context.waker().clone();
        let place = {
            let mut stop = self.shard.inner.stop.borrow_mut();
            if stop.asked {
                return Poll::Ready(());
            }
            stop.waiting.insert(waker)
        };
        self.place = Some(place);
        Poll::Pending
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopped")
    }
}
