//! Coordinators: one per exchange, asked before a handler is chosen and after it has answered (L-17).
//!
//! Waiting inside a handler is the most expensive place to wait. A coordinator waits outside: in `do_request`
//! nothing has been chosen and nothing is held, in `do_response` the handler has done its part.

use crate::{
    error::{EndReason, Result},
    exchange::{Exchange, seam::Guardian},
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

    /// Content has arrived, or its end, while no handler has been chosen: `read` takes it, or it waits for the
    /// handler. Called again only after `is_read_ready` or `read` has said that there is nothing.
    ///
    /// # Errors
    /// As a handler's.
    fn on_content(&mut self, x: &mut Exchange) -> Result<()> {
        let _ = x;
        Ok(())
    }

    /// The client takes bytes again while this coordinator holds the response open. Called once after
    /// `is_write_ready` turned false.
    ///
    /// # Errors
    /// As a handler's.
    fn on_writable(&mut self, x: &mut Exchange) -> Result<()> {
        let _ = x;
        Ok(())
    }

    /// The exchange's timeout came first, and the handler's own `on_timeout`, if there is one, has not answered it.
    /// Complete, redispatch, extend, or choose the handler with `service()` if that has not been done; otherwise the
    /// client gets 503.
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

/// The coordinator of one exchange. Its hooks stand behind the handler's own listeners.
pub(crate) struct CoordinatorSlot(RefCell<Box<dyn Coordinator>>);

impl CoordinatorSlot {
    /// Lets a coordinator watch over the exchange, and asks it what to do with the request.
    pub(crate) fn begin(coordinator: Box<dyn Coordinator>, x: &mut Exchange) -> Result<()> {
        let slot = Rc::new(CoordinatorSlot(RefCell::new(coordinator)));
        x.set_guardian(slot.clone());
        slot.0.borrow_mut().do_request(x)
    }
}

/// Callbacks are never nested (L-1): the borrows cannot meet.
impl Guardian for CoordinatorSlot {
    fn do_response(&self, x: &mut Exchange) -> Result<()> {
        self.0.borrow_mut().do_response(x)
    }

    fn on_content(&self, x: &mut Exchange) -> Result<()> {
        self.0.borrow_mut().on_content(x)
    }

    fn on_writable(&self, x: &mut Exchange) -> Result<()> {
        self.0.borrow_mut().on_writable(x)
    }

    fn on_timeout(&self, x: &mut Exchange) -> Result<()> {
        self.0.borrow_mut().on_timeout(x)
    }

    fn on_error(&self, x: &mut Exchange, reason: EndReason) -> Result<()> {
        self.0.borrow_mut().on_error(x, reason)
    }

    fn on_complete(&self, x: &mut Exchange, reason: EndReason) {
        self.0.borrow_mut().on_complete(x, reason);
    }
}

impl fmt::Debug for CoordinatorSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CoordinatorSlot")
    }
}
