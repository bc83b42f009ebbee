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
        // A waker is code of somebody else: cloned before the lock is taken, the one before it dropped (as
        // locals are, in reverse) after the lock is given back.
        let waker = context.waker().clone();
        let _before;
        let mut slot = self.place.lock();
        match slot.value.take() {
            Some(value) => Poll::Ready(Some(value)),
            None if slot.closed => Poll::Ready(None),
            None => {
                _before = slot.waker.replace(waker);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        task::Wake,
    };

    /// A waker whose end looks whether the lock of the pair is free.
    struct LooksAtTheEnd {
        place: Arc<Place<u32>>,
        free: Arc<AtomicBool>,
    }

    impl Wake for LooksAtTheEnd {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for LooksAtTheEnd {
        fn drop(&mut self) {
            self.free.store(self.place.0.try_lock().is_ok(), Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waker_that_is_replaced_is_dropped_outside_the_lock() {
        let (sender, mut receiver) = handoff::<u32>();
        let free = Arc::new(AtomicBool::new(false));
        let looks = LooksAtTheEnd { place: receiver.place.clone(), free: free.clone() };
        let waker = Waker::from(Arc::new(looks));
        assert!(Pin::new(&mut receiver).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut receiver).poll(&mut context).is_pending());
        assert!(free.load(Ordering::Relaxed), "its drop found the lock taken");
        assert_eq!(sender.send(7), Ok(()));
        assert_eq!(Pin::new(&mut receiver).poll(&mut context), Poll::Ready(Some(7)));
    }
}
