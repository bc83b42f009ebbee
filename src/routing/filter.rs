//! Filters: code around handlers, by path and by dispatch type (L-21, L-22).

use crate::{
    error::Result,
    exchange::{DispatchType, Exchange},
};
use std::{fmt, rc::Rc};

type FilterFn = dyn Fn(&mut Exchange, Next<'_>) -> Result<()>;

/// A part of the chain before a handler. It runs in the dispatches it is registered for: `Request` unless said
/// otherwise with [`Filter::on`].
#[derive(Clone)]
pub struct Filter {
    name: &'static str,
    run: Rc<FilterFn>,
    dispatches: Vec<DispatchType>,
    async_supported: bool,
}

impl Filter {
    /// A filter from a function that calls [`Next::run`] or answers itself. It does not support async until it
    /// says so.
    pub fn new(run: impl Fn(&mut Exchange, Next<'_>) -> Result<()> + 'static) -> Self {
        Filter {
            name: "filter",
            run: Rc::new(run),
            dispatches: vec![DispatchType::Request],
            async_supported: false,
        }
    }

    /// How messages call it.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The dispatches in which it runs.
    #[must_use]
    pub fn on(mut self, dispatches: impl IntoIterator<Item = DispatchType>) -> Self {
        self.dispatches = dispatches.into_iter().collect();
        self
    }

    /// Whether an exchange may become asynchronous behind it: it must not rely on code after [`Next::run`].
    #[must_use]
    pub fn async_supported(mut self, supported: bool) -> Self {
        self.async_supported = supported;
        self
    }

    /// Whether it stands in the way of `start_async` in this dispatch.
    pub(super) fn refuses_async(&self, dispatch: DispatchType) -> bool {
        !self.async_supported && self.dispatches.contains(&dispatch)
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("name", &self.name)
            .field("on", &self.dispatches)
            .finish_non_exhaustive()
    }
}

/// The rest of the chain.
pub struct Next<'a> {
    filters: &'a [Filter],
    dispatch: DispatchType,
    handler: &'a dyn Fn(&mut Exchange) -> Result<()>,
}

impl<'a> Next<'a> {
    pub(crate) fn new(
        filters: &'a [Filter],
        dispatch: DispatchType,
        handler: &'a dyn Fn(&mut Exchange) -> Result<()>,
    ) -> Self {
        Next { filters, dispatch, handler }
    }

    /// Runs the rest: the next filter of this dispatch type, at last the handler.
    ///
    /// # Errors
    /// What the rest gives.
    pub fn run(self, x: &mut Exchange) -> Result<()> {
        let Some((first, rest)) = self.filters.split_first() else { return (self.handler)(x) };
        let next = Next { filters: rest, ..self };
        match first.dispatches.contains(&self.dispatch) {
            true => (first.run)(x, next),
            false => next.run(x),
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Next({} filters)", self.filters.len())
    }
}
