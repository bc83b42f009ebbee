//! Tests of awaited answers: wakers that call in while they are dropped.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// A waker whose end looks whether the answer's lock is free.
struct LooksAtTheEnd {
    answer: Arc<Answer<u32>>,
    free: std::sync::Arc<AtomicBool>,
}

impl Wake for LooksAtTheEnd {
    fn wake(self: std::sync::Arc<Self>) {}
}

impl Drop for LooksAtTheEnd {
    fn drop(&mut self) {
        self.free.store(self.answer.slot.try_lock().is_ok(), Ordering::Relaxed);
    }
}

#[test]
fn a_waker_that_is_replaced_is_dropped_outside_the_lock() {
    let slot = Mutex::new(AnswerSlot { state: AnswerState::Waiting, waker: None });
    let answer = Arc::new(Answer { slot });
    let mut submitted = Submitted { answer: answer.clone() };
    let free = std::sync::Arc::new(AtomicBool::new(false));
    let looks = LooksAtTheEnd { answer: answer.clone(), free: free.clone() };
    let waker = Waker::from(std::sync::Arc::new(looks));
    assert!(Pin::new(&mut submitted).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(Pin::new(&mut submitted).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(free.load(Ordering::Relaxed), "its drop found the lock taken");
    answer.settle(AnswerState::Done(7));
    let polled = Pin::new(&mut submitted).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(7))));
}
