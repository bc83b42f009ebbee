//! Coordinators: one per exchange, asked before a handler is chosen and after it has answered (L-17).
//!
//! Waiting inside a handler is the most expensive place to wait. A coordinator waits outside: in `do_request`
//! nothing has been chosen and nothing is held, in `do_response` the handler has done its part.

use crate::{
    error::{EndReason, Result},
    exchange::Exchange,
};
use std::{cell::RefCell, fmt, rc::Rc};

/// The events of one exchange's coordination. The defaults are the default coordinator.
pub trait Coordinator {
    /// The request's head is there. Go on with `service()`, now or in a later callback; answer 100-continue or
    /// not; or refuse with a status and `complete()`.
    ///
    /// # Errors
    /// As a handler's.
    fn do_request(&mut self, x: &mut Exchange) -> Result<()> {
        if x.expects_continue() {
            x.send_continue();
        }
        x.service()
    }

    /// The handler's part is complete. End with `complete()`, now or in a later callback.
    ///
    /// # Errors
    /// As a handler's.
    fn do_response(&mut self, x: &mut Exchange) -> Result<()> {
        x.complete()
    }

    /// The exchange's timeout came first. Complete, redispatch or extend; otherwise the client gets 503.
    ///
    /// # Errors
    /// As a handler's.
    fn on_timeout(&mut self, x: &mut Exchange) -> Result<()> {
        let _ = x;
        Ok(())
    }

    /// The exchange fails.
    ///
    /// # Errors
    /// As a handler's.
    fn on_error(&mut self, x: &mut Exchange, reason: EndReason) -> Result<()> {
        let _ = (x, reason);
        Ok(())
    }

    /// The exchange is over; nothing can be sent any more.
    fn on_complete(&mut self, x: &mut Exchange, reason: EndReason) {
        let _ = (x, reason);
    }
}

/// The coordinator of one exchange, kept among its attributes.
#[derive(Clone)]
pub(crate) struct CoordinatorSlot(pub(crate) Rc<RefCell<Box<dyn Coordinator>>>);

impl CoordinatorSlot {
    pub(crate) fn new(coordinator: Box<dyn Coordinator>) -> Self {
        CoordinatorSlot(Rc::new(RefCell::new(coordinator)))
    }

    /// Lets the coordinator's other hooks be called as the exchange's listeners.
    pub(crate) fn listen(&self, x: &mut Exchange) {
        let (timeout, error, complete) = (self.0.clone(), self.0.clone(), self.0.clone());
        x.on_timeout(move |x: &mut Exchange| timeout.borrow_mut().on_timeout(x));
        x.on_error(move |x: &mut Exchange, reason| error.borrow_mut().on_error(x, reason));
        x.on_complete(move |x: &mut Exchange, reason| complete.borrow_mut().on_complete(x, reason));
    }
}

impl fmt::Debug for CoordinatorSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoordinatorSlot")
    }
}
