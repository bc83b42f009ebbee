//! Patterns to routes. Exact segments, `{name}` for one segment, `/*` at the end for the rest.

use super::{
    coordinator::Coordinator,
    filter::Filter,
    handler::{Endpoint, Handler, IntoEndpoint},
    names,
    path::normalised,
};
use crate::{
    exchange::{DispatchType, Exchange, PathParameters, Wait},
    http1::Head,
};
use std::{borrow::Cow, cell::Cell, fmt, rc::Rc};

/// What a client's FIN means while its request is being worked on (L-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HalfClose {
    /// The client is gone: a parked exchange ends with `ClientClosed`. The default.
    #[default]
    Abort,
    /// It has only finished sending: the answer is still written.
    Tolerate,
}

type MakeCoordinator = dyn Fn() -> Box<dyn Coordinator>;

/// One pattern with its handlers and what is particular to it.
pub struct Route {
    pattern: String,
    /// What its handlers are called where callbacks are measured (L-27).
    handler_name: &'static str,
    pub(crate) endpoint: Endpoint,
    pub(crate) filters: Vec<Filter>,
    pub(crate) make_coordinator: Option<Rc<MakeCoordinator>>,
    pub(crate) wait: Wait,
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) half_close: HalfClose,
    /// No `on_error` is called when the client leaves.
    pub(crate) hush_client_gone: bool,
    /// A refused CONNECT leaves the connection open.
    pub(crate) keep_refused: bool,
    /// The first part of the chain behind which no exchange may become asynchronous.
    pub(crate) sync_only: Option<&'static str>,
    /// The same for the dispatches of a redispatch.
    pub(crate) sync_only_again: Option<&'static str>,
    has_parameters: bool,
    /// The one path that matches is the pattern itself, octet by octet.
    is_literal: bool,
    needs_async: bool,
}

/// A mistake in the routes, found before anything is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteError {
    /// The pattern is malformed, or says the same as another.
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A handler that needs async stands behind a part that does not support it (L-21).
    AsyncNotSupported {
        /// The route's pattern.
        pattern: String,
        /// The part's name.
        part: &'static str,
    },
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteError::Pattern { pattern, problem } => write!(f, "route {pattern}: {problem}"),
            RouteError::AsyncNotSupported { pattern, part } => write!(
                f,
                "route {pattern}: its handler is asynchronous, but {part} before it does not support async; \
                 say async_supported(true) there or take it out of the chain"
            ),
        }
    }
}

impl std::error::Error for RouteError {}

impl Route {
    fn new(pattern: &str) -> Self {
        Route {
            pattern: pattern.to_owned(),
            handler_name: names::name(format!("handler {pattern}")),
            endpoint: Endpoint::default(),
            filters: Vec::new(),
            make_coordinator: None,
            wait: Wait::Nothing,
            body_bytes_max: None,
            half_close: HalfClose::Abort,
            hush_client_gone: false,
            keep_refused: false,
            sync_only: None,
            sync_only_again: None,
            has_parameters: pattern.contains('{') || pattern.ends_with('*'),
            is_literal: !pattern.contains(['{', '}', '*']) && normalised(pattern) == pattern,
            needs_async: false,
        }
    }

    /// The pattern: the label of metrics, one per route however many paths match it.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The handler starts when the whole body is there, at most `limit` bytes of it: it then does no IO.
    pub fn buffer_body(&mut self, limit: u64) -> &mut Self {
        self.wait = Wait::WholeBody;
        self.body_bytes_max = Some(limit);
        self
    }

    /// The handler starts with the first content.
    pub fn after_first_content(&mut self) -> &mut Self {
        self.wait = Wait::FirstContent;
        self
    }

    /// Most bytes a request body may have here, in place of the server's limit.
    pub fn body_limit(&mut self, bytes: u64) -> &mut Self {
        self.body_bytes_max = Some(bytes);
        self
    }

    /// What a client's FIN means while its request is worked on.
    pub fn half_close(&mut self, policy: HalfClose) -> &mut Self {
        self.half_close = policy;
        self
    }

    /// Whether `on_error` is called when the client leaves (default: yes). Without it the exchange ends all the same:
    /// its token fires, its future is dropped, `on_complete` is called with the reason.
    pub fn notify_client_gone(&mut self, notify: bool) -> &mut Self {
        self.hush_client_gone = !notify;
        self
    }

    /// Whether a connection goes on after a CONNECT that its handler has refused (default: no). A client may have sent
    /// what another one told it to send, in the belief that the tunnel is there: the next bytes would be that one's
    /// requests under this client's name (RFC 9931). With authentication by several steps (NTLM, Negotiate) the client
    /// needs its connection: say true where all clients wait for the answer. Bytes that came before the
    /// answer end the connection all the same.
    pub fn keep_refused(&mut self, keep: bool) -> &mut Self {
        self.keep_refused = keep;
        self
    }

    /// The handler does not ask for the values of the pattern's names: they are not taken out of the path.
    pub fn without_parameters(&mut self) -> &mut Self {
        self.has_parameters = false;
        self
    }

    /// The handler will call `start_async`: the start refuses the route if a part of its chain cannot have that.
    pub fn needs_async(&mut self) -> &mut Self {
        self.needs_async = true;
        self
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("pattern", &self.pattern).field("endpoint", &self.endpoint).finish()
    }
}

/// The routes of an application on one shard.
#[derive(Default)]
pub struct Router {
    routes: Vec<Rc<Route>>,
    filters: Vec<(String, Filter)>,
    coordinators: Vec<(String, Rc<MakeCoordinator>)>,
    table: matchit::Router<usize>,
    /// The route that was found last: most requests of a busy shard ask for what the one before asked for.
    found_last: Cell<usize>,
    error_handler: Option<Rc<dyn Handler>>,
    connect: Option<(Rc<Route>, Rc<dyn Handler>)>,
    problems: Vec<RouteError>,
}

/// What the router found for a head.
pub(crate) enum Found {
    /// Route and handler.
    Route(Rc<Route>, Rc<dyn Handler>),
    /// The path is known, the method is not among its methods: 405 with this `Allow`, or the answer to OPTIONS.
    Method(Rc<Route>),
    /// No route.
    Nothing,
}

impl Router {
    /// No routes yet.
    pub fn new() -> Self {
        Router::default()
    }

    /// Adds a route: a handler for every method, or an endpoint such as `get(read).post(write)`.
    #[must_use]
    pub fn route(self, pattern: &str, endpoint: impl IntoEndpoint) -> Self {
        self.route_with(pattern, endpoint, |_| {})
    }

    /// Adds a route and says what is particular to it.
    #[must_use]
    pub fn route_with(
        mut self,
        pattern: &str,
        endpoint: impl IntoEndpoint,
        set: impl FnOnce(&mut Route),
    ) -> Self {
        let mut route = Route::new(pattern);
        route.endpoint = endpoint.into_endpoint();
        set(&mut route);
        let index = self.routes.len();
        for form in table_forms(pattern) {
            if let Err(problem) = self.table.insert(form, index) {
                self.problem(pattern, &problem.to_string());
            }
        }
        if !pattern.starts_with('/') {
            self.problem(pattern, "a pattern starts with /");
        }
        self.routes.push(Rc::new(route));
        self
    }

    /// Lets clients ask for tunnels: CONNECT, which is refused with 405 without this. The handler sees where the client
    /// wants to go as [`Head::target`](crate::http1::Head::target), always `host:port`; it decides, and calls
    /// [`Exchange::open_tunnel`] or answers with the status of its refusal. It should know whom it lets go where: an
    /// open proxy reaches whatever the server reaches. Filters and coordinators belong to paths and see no CONNECT.
    #[must_use]
    pub fn connect(self, handler: impl Handler + 'static) -> Self {
        self.connect_with(handler, |_| {})
    }

    /// As [`Router::connect`], and says what is particular to it.
    #[must_use]
    pub fn connect_with(mut self, handler: impl Handler + 'static, set: impl FnOnce(&mut Route)) -> Self {
        let mut route = Route::new(CONNECT_LABEL);
        set(&mut route);
        self.connect = Some((Rc::new(route), Rc::new(handler)));
        self
    }

    /// Maps a coordinator to a pattern (`/path`, `/path/*`, `/*`); one instance per exchange.
    #[must_use]
    pub fn coordinate<C: Coordinator + 'static>(
        mut self,
        pattern: &str,
        make: impl Fn() -> C + 'static,
    ) -> Self {
        self.coordinators.push((pattern.to_owned(), Rc::new(move || Box::new(make()))));
        self
    }

    /// Puts a filter before the handlers of a pattern (`/path`, `/path/*`, `/*`), behind those added before.
    #[must_use]
    pub fn filter(mut self, pattern: &str, filter: Filter) -> Self {
        self.filters.push((pattern.to_owned(), filter));
        self
    }

    /// Answers what failed before anything was sent, and what the router refuses (404, 405 with `Allow`, 501); the
    /// status is set already (L-13). If it fails itself the client gets a built-in line of text.
    #[must_use]
    pub fn error_handler(mut self, handler: impl Handler + 'static) -> Self {
        self.error_handler = Some(Rc::new(handler));
        self
    }

    /// Joins routes, filters and coordinators, and checks them (L-21).
    ///
    /// # Errors
    /// The first mistake.
    pub(crate) fn finish(mut self) -> Result<Self, RouteError> {
        if let Some(problem) = self.problems.pop() {
            return Err(problem);
        }
        for route in &mut self.routes {
            let route = Rc::get_mut(route).expect("nobody has the routes before they are finished");
            let covers = |pattern: &str| covers(pattern, &route.pattern);
            let filters = self.filters.iter().filter(|(pattern, _)| covers(pattern));
            route.filters = filters.map(|(_, filter)| filter.clone()).collect();
            let coordinators = self.coordinators.iter().rev().find(|(pattern, _)| covers(pattern));
            route.make_coordinator = coordinators.map(|(_, make)| make.clone());
            let refuses =
                |dispatch| route.filters.iter().find(|f| f.refuses_async(dispatch)).map(Filter::name);
            (route.sync_only, route.sync_only_again) =
                (refuses(DispatchType::Request), refuses(DispatchType::Async));
            let needs_async = route.needs_async || route.endpoint.needs_async();
            if let (true, Some(part)) = (needs_async, route.sync_only.or(route.sync_only_again)) {
                return Err(RouteError::AsyncNotSupported { pattern: route.pattern.clone(), part });
            }
        }
        Ok(self)
    }

    /// Who answers CONNECT.
    pub(crate) fn find_connect(&self) -> Option<&(Rc<Route>, Rc<dyn Handler>)> {
        self.connect.as_ref()
    }

    pub(crate) fn failed_answer(&self) -> Option<&Rc<dyn Handler>> {
        self.error_handler.as_ref()
    }

    /// Finds the route for the path of a head and the handler for its method.
    #[inline]
    pub(crate) fn find(&self, head: Head<'_>) -> Found {
        match self.routes.get(self.found_last.get()) {
            Some(route) if route.is_literal && route.pattern.as_bytes() == head.path_bytes() => {
                handler_of(route, head)
            }
            _ => self.find_path(head, head.path()),
        }
    }

    /// As `find`, for another path than the head's.
    pub(crate) fn find_path(&self, head: Head<'_>, path: &str) -> Found {
        let path = normalised(path);
        let Ok(matched) = self.table.at(&path) else { return Found::Nothing };
        self.found_last.set(*matched.value);
        handler_of(&self.routes[*matched.value], head)
    }

    /// The values of the pattern's names for this path, put where the handler finds them.
    pub(crate) fn set_parameters(&self, route: &Route, path: &str, x: &mut Exchange) {
        if !route.has_parameters {
            return;
        }
        let path: Cow<'_, str> = normalised(path);
        let Ok(matched) = self.table.at(&path) else { return };
        let values = matched.params.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        x.set_attribute(PathParameters::new(values.collect()));
    }

    fn problem(&mut self, pattern: &str, problem: &str) {
        self.problems.push(RouteError::Pattern { pattern: pattern.to_owned(), problem: problem.to_owned() });
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.routes).finish()
    }
}

#[inline]
fn handler_of(route: &Rc<Route>, head: Head<'_>) -> Found {
    match route.endpoint.find(head) {
        Some(handler) => Found::Route(route.clone(), handler.clone()),
        None => Found::Method(route.clone()),
    }
}

/// `/files/*` matches `/files/` and all below it.
fn table_forms(pattern: &str) -> Vec<String> {
    match pattern.strip_suffix("/*") {
        Some(prefix) => vec![format!("{prefix}/"), format!("{prefix}/{{*{REST}}}")],
        None => vec![pattern.to_owned()],
    }
}

/// Whether a filter's or coordinator's pattern covers a route's.
fn covers(pattern: &str, route: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(prefix) => {
            route.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        None => pattern == route,
    }
}

/// The label of CONNECT in metrics, where others have their pattern.
const CONNECT_LABEL: &str = "CONNECT";

/// The name under which a handler finds what a `*` stood for.
const REST: &str = "rest";

impl Route {
    /// Whether a handler is all there is to the route.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.filters.is_empty() && self.make_coordinator.is_none() && !self.has_parameters
    }

    pub(crate) fn handler_name(&self) -> &'static str {
        self.handler_name
    }

    pub(crate) fn has_parameters(&self) -> bool {
        self.has_parameters
    }

    /// Whether a handler was registered for this method by name.
    pub(crate) fn lists(&self, method: &str) -> bool {
        self.endpoint.lists(method)
    }

    /// `Allow` of this route.
    pub(crate) fn allow(&self) -> &str {
        self.endpoint.allow()
    }
}
