//! What an application has asked to be told, per exchange. Each listener is taken out for the time of its call, so
//! that it may replace itself, and nothing is borrowed while user code runs.

use super::{Exchange, Outcome};
use crate::error::{EndReason, Error, Result};
use std::{fmt, rc::Rc};

/// Hears of request body bytes (L-18).
pub trait ReadListener {
    /// Bytes can be read; called again only after `is_ready` has said no.
    ///
    /// # Errors
    /// An error fails the exchange with `HandlerFailed`.
    fn on_data_available(&mut self, x: &mut Exchange) -> Result<()>;

    /// The body is over and has been read; called once.
    ///
    /// # Errors
    /// As above.
    fn on_all_data_read(&mut self, x: &mut Exchange) -> Result<()> {
        let _ = x;
        Ok(())
    }

    /// The body will not come, or this listener failed. Comes before the exchange's own `on_error` (L-10).
    fn on_error(&mut self, x: &mut Exchange, reason: EndReason) {
        let _ = (x, reason);
    }
}

/// Hears that a slow client takes bytes again (L-19).
pub trait WriteListener {
    /// Called once after readiness had turned false.
    ///
    /// # Errors
    /// An error fails the exchange with `HandlerFailed`.
    fn on_write_possible(&mut self, x: &mut Exchange) -> Result<()>;

    /// The answer cannot be delivered, or this listener failed. Comes before the exchange's own `on_error`.
    fn on_error(&mut self, x: &mut Exchange, reason: EndReason) {
        let _ = (x, reason);
    }
}

impl<F, O> WriteListener for F
where
    F: FnMut(&mut Exchange) -> O,
    O: Outcome,
{
    fn on_write_possible(&mut self, x: &mut Exchange) -> Result<()> {
        self(x).into_result()
    }
}

pub(crate) type TimeoutHook = Box<dyn FnMut(&mut Exchange) -> Result<(), Error>>;
pub(crate) type ErrorHook = Box<dyn FnOnce(&mut Exchange, EndReason) -> Result<(), Error>>;
pub(crate) type CompleteHook = Box<dyn FnOnce(&mut Exchange, EndReason) -> Result<(), Error>>;

/// What watches over a whole exchange from outside its handler: the router's coordinator. It hears of an event behind
/// the handler's own listeners, and replaces none of them.
pub(crate) trait Guardian {
    fn do_response(&self, x: &mut Exchange) -> Result<()>;
    fn on_content(&self, x: &mut Exchange) -> Result<()>;
    fn on_writable(&self, x: &mut Exchange) -> Result<()>;
    fn on_timeout(&self, x: &mut Exchange) -> Result<()>;
    fn on_error(&self, x: &mut Exchange, reason: EndReason) -> Result<()>;
    fn on_complete(&self, x: &mut Exchange, reason: EndReason);
}

/// The listeners of one exchange: those that nearly every parked request has, and the others further away.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) on_timeout: Option<TimeoutHook>,
    pub(crate) on_complete: Option<CompleteHook>,
    more: Option<Box<MoreListeners>>,
}

/// The listeners that most exchanges do without.
#[derive(Default)]
pub(crate) struct MoreListeners {
    pub(crate) on_error: Option<ErrorHook>,
    /// The router's coordinator, behind all of these.
    pub(crate) guardian: Option<Rc<dyn Guardian>>,
    pub(crate) read: Option<Box<dyn ReadListener>>,
    pub(crate) write: Option<Box<dyn WriteListener>>,
}

impl Listeners {
    /// Whether somebody is told after the end is decided.
    pub(crate) fn wants_the_end(&self) -> bool {
        let more = self.more.as_ref();
        self.on_complete.is_some()
            || more.is_some_and(|more| more.on_error.is_some() || more.guardian.is_some())
    }

    pub(crate) fn more(&mut self) -> &mut MoreListeners {
        self.more.get_or_insert_default()
    }

    pub(crate) fn if_more(&mut self) -> Option<&mut MoreListeners> {
        self.more.as_deref_mut()
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners")
            .field("on_timeout", &self.on_timeout.is_some())
            .field("on_complete", &self.on_complete.is_some())
            .field("more", &self.more.is_some())
            .finish()
    }
}
