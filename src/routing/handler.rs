//! Handlers, and which of a route's handlers answers which method.

use crate::{
    error::Result,
    exchange::{Asynchronous, Exchange, Outcome},
    http1::{Head, Method},
};
use std::rc::Rc;

/// What answers a request: any `Fn(&mut Exchange)` that gives `()` or a `Result`. It runs on the exchange's shard
/// and may hold `!Send` state.
pub trait Handler {
    /// Runs as a callback of the exchange.
    ///
    /// # Errors
    /// What the error handler will see.
    fn handle(&self, x: &mut Exchange) -> Result<()>;

    /// Whether it always calls `start_async`: a route behind a part that does not support it is then refused at the
    /// start (L-21).
    fn needs_async(&self) -> bool {
        false
    }
}

impl<F, O> Handler for Asynchronous<F>
where
    F: AsyncFn(&mut Exchange) -> O + 'static,
    O: Outcome + 'static,
{
    fn handle(&self, x: &mut Exchange) -> Result<()> {
        self.run(x)
    }

    fn needs_async(&self) -> bool {
        true
    }
}

impl<F, O> Handler for F
where
    F: Fn(&mut Exchange) -> O,
    O: Outcome,
{
    fn handle(&self, x: &mut Exchange) -> Result<()> {
        self(x).into_result()
    }
}

/// The handlers of one route, by method.
#[derive(Default, Clone)]
pub struct Endpoint {
    by_method: Vec<ByMethod>,
    otherwise: Option<Rc<dyn Handler>>,
    /// `Allow` for a method that has no handler.
    allow: String,
}

#[derive(Clone)]
struct ByMethod {
    kind: Method,
    name: &'static str,
    handler: Rc<dyn Handler>,
}

/// What [`super::Router::route`] takes: a handler for every method, or an [`Endpoint`].
pub trait IntoEndpoint {
    /// Turns it into an endpoint.
    fn into_endpoint(self) -> Endpoint;
}

impl IntoEndpoint for Endpoint {
    fn into_endpoint(self) -> Endpoint {
        self
    }
}

impl<H: Handler + 'static> IntoEndpoint for H {
    fn into_endpoint(self) -> Endpoint {
        any(self)
    }
}

/// Answers every known method.
pub fn any(handler: impl Handler + 'static) -> Endpoint {
    let allow = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS".to_owned();
    Endpoint { by_method: Vec::new(), otherwise: Some(Rc::new(handler)), allow }
}

macro_rules! method_functions {
    ($($name:ident $text:literal),*) => {$(
        #[doc = concat!("Answers `", $text, "` and nothing else; other methods can be chained.")]
        pub fn $name(handler: impl Handler + 'static) -> Endpoint {
            Endpoint::default().method($text, handler)
        }
    )*

    impl Endpoint {$(
        #[doc = concat!("Adds the handler for `", $text, "`.")]
        #[must_use]
        pub fn $name(self, handler: impl Handler + 'static) -> Self {
            self.method($text, handler)
        }
    )*}};
}

method_functions!(get "GET", post "POST", put "PUT", delete "DELETE", patch "PATCH");

impl Endpoint {
    /// Adds the handler for a method by name.
    #[must_use]
    pub fn method(mut self, method: &'static str, handler: impl Handler + 'static) -> Self {
        let kind = Method::from_bytes(method.as_bytes());
        self.by_method.push(ByMethod { kind, name: method, handler: Rc::new(handler) });
        self.allow = self.allow_list();
        self
    }

    fn allow_list(&self) -> String {
        let mut methods: Vec<_> = self.by_method.iter().map(|entry| entry.name).collect();
        if methods.contains(&"GET") && !methods.contains(&"HEAD") {
            methods.push("HEAD");
        }
        if !methods.contains(&"OPTIONS") {
            methods.push("OPTIONS");
        }
        methods.join(", ")
    }

    /// The handler for a request's method. HEAD is answered by GET's (RFC 9110 §9.3.2).
    #[inline]
    pub(super) fn find(&self, head: Head<'_>) -> Option<&Rc<dyn Handler>> {
        let kind = head.method_kind();
        let is_it =
            |entry: &&ByMethod| entry.kind == kind && (kind != Method::Other || entry.name == head.method());
        let found = self.by_method.iter().find(is_it);
        let found = match kind {
            Method::Head => found.or_else(|| self.by_method.iter().find(|entry| entry.kind == Method::Get)),
            _ => found,
        };
        found.map(|entry| &entry.handler).or(self.otherwise.as_ref())
    }

    /// Whether one of the handlers cannot do without `start_async`.
    pub(super) fn needs_async(&self) -> bool {
        let mut handlers = self.by_method.iter().map(|entry| &entry.handler).chain(&self.otherwise);
        handlers.any(|handler| handler.needs_async())
    }

    pub(super) fn lists(&self, method: &str) -> bool {
        self.by_method.iter().any(|entry| entry.name == method)
    }

    /// The methods that have a handler, as `Allow` lists them.
    pub(super) fn allow(&self) -> &str {
        &self.allow
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint({})", if self.otherwise.is_some() { "any method" } else { &self.allow })
    }
}
