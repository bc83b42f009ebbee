//! One value from any thread to an asynchronous handler: a `Send` sender and an awaitable receiver.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    /// One of the two ends is gone.
    closed: bool,
}

struct Place<T>(Mutex<Slot<T>>);

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, Slot<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        let waker = {
            let mut slot = self.lock();
            slot.closed = true;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A pair for one value. The receiver dies with the future that awaits it, and so with the exchange.
pub fn handoff<T>() -> (HandoffSender<T>, Handoff<T>) {
    let place = Arc::new(Place(Mutex::new(Slot { value: None, waker: None, closed: false })));
    (HandoffSender { place: place.clone() }, Handoff { place })
}

/// Gives the value, from any thread.
pub struct HandoffSender<T> {
    place: Arc<Place<T>>,
}

impl<T> HandoffSender<T> {
    /// Gives the value over.
    ///
    /// # Errors
    /// The value, when nobody waits for it any more.
    pub fn send(self, value: T) -> Result<(), T> {
        let waker = {
            let mut slot = self.place.lock();
            if slot.closed {
                return Err(value);
            }
            slot.value = Some(value);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Whether nobody waits for the value any more.
    pub fn is_closed(&self) -> bool {
        self.place.lock().closed
    }
}

impl<T> Drop for HandoffSender<T> {
    fn drop(&mut self) {
        self.place.close();
    }
}

impl<T> fmt::Debug for HandoffSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandoffSender")
    }
}

/// Waits for the value: `Some`, or `None` when the sender was dropped without giving one.
#[must_use = "futures do nothing unless awaited"]
pub struct Handoff<T> {
    place: Arc<Place<T>>,
}

impl<T> Future for Handoff<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.place.lock();
        match slot.value.take() {
            Some(value) => Poll::Ready(Some(value)),
            None if slot.closed => Poll::Ready(None),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Handoff<T> {
    fn drop(&mut self) {
        self.place.close();
    }
}

impl<T> fmt::Debug for Handoff<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handoff")
    }
}
