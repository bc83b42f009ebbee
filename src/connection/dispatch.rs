//! What an exchange asks for is carried out here: callbacks that need the router, and everything about the wire.

use super::{Closing, Connection, Service, pipeline::Sequel};
use crate::{
    error::{EndReason, Result},
    exchange::{
        Callback, DispatchType, Exchange,
        seam::{HeadHolder, Next},
    },
    http1::{Actions, Head, Method, TargetForm},
    routing::{self, CoordinatorSlot, Found, Handler, Route},
};
use http::StatusCode;
use shards::Key;
use std::rc::Rc;

/// Who answers a dispatch.
#[derive(Clone)]
pub(super) enum Target {
    Handler(Rc<Route>, Rc<dyn Handler>),
    /// Nobody does: the server's own answer.
    Own(OwnAnswer),
}

/// What the server answers by itself.
#[derive(Clone)]
pub(super) enum OwnAnswer {
    /// The path has no handler for the method.
    Method(Rc<Route>),
    /// A method that this server does not know (RFC 9110 §9.1).
    Unknown,
    Nothing,
    /// `OPTIONS *` (RFC 9110 §9.3.7).
    WholeServer,
    /// A CONNECT (RFC 9110 §9.3.6) where no tunnels are made.
    Tunnel,
}

/// The methods that routes can have, for an `Allow` that speaks of no route.
const ALL_METHODS: &str = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";

impl Target {
    pub(super) fn route(&self) -> Option<&Rc<Route>> {
        match self {
            Target::Handler(route, _) | Target::Own(OwnAnswer::Method(route)) => Some(route),
            Target::Own(
                OwnAnswer::Unknown | OwnAnswer::Nothing | OwnAnswer::WholeServer | OwnAnswer::Tunnel,
            ) => None,
        }
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.route() {
            Some(route) => write!(f, "Target({})", route.pattern()),
            None => f.write_str("Target(no route)"),
        }
    }
}

impl Service {
    /// Carries out what the exchange wants, until it wants nothing.
    pub(super) fn drive(&self, connection: &mut Connection, exchange: Key) {
        self.drive_lending(connection, exchange, HeadHolder::Gone);
    }

    /// The same, with the head on loan for callbacks that run now. The loan comes back.
    #[inline]
    pub(super) fn drive_lending(
        &self,
        connection: &mut Connection,
        exchange: Key,
        mut head: HeadHolder,
    ) -> HeadHolder {
        while let Some(next) = self.exchanges.next_action(exchange) {
            let released;
            (head, released) = self.carry_out(connection, exchange, next, head);
            if released {
                return head;
            }
        }
        self.exchanges.keep_head(exchange, &head);
        head
    }

    /// Carries out one thing. Gives the loan back, and whether the exchange is over with it.
    pub(super) fn carry_out(
        &self,
        connection: &mut Connection,
        exchange: Key,
        next: Next,
        head: HeadHolder,
    ) -> (HeadHolder, bool) {
        match next {
            Next::Run(callback) => return (self.run(connection, exchange, callback, head), false),
            Next::ErrorDispatch(status) => {
                return (self.run_error_dispatch(connection, exchange, status, head), false);
            }
            Next::SendContinue => {
                let sequence = connection.pipeline.find(exchange).map(|entry| entry.sequence);
                if sequence.is_some_and(|sequence| connection.cycle.take_continue(sequence)) {
                    mark(connection, exchange, |entry| entry.owes_continue = true);
                }
            }
            Next::Flush => mark(connection, exchange, |entry| entry.flush = true),
            Next::FinishResponse => {
                mark(connection, exchange, |entry| entry.finished = true);
                self.encode(connection);
            }
            // What is left of the content is the cycle's to throw away: for the exchange it is over.
            Next::DiscardInput => self.exchanges.input_ended(exchange),
            Next::AbortConnection => self.give_up(connection, exchange),
            Next::Timer => self.arm_exchange_timer(connection, exchange),
            Next::Released => {
                self.drop_entry(connection, exchange);
                return (head, true);
            }
        }
        (head, false)
    }

    /// An answer that cannot be given, or not to its end, ends its connection; but the answers to the requests before
    /// it leave first, as long as nothing of it is on its way.
    fn give_up(&self, connection: &mut Connection, exchange: Key) {
        let mut is_owed = connection.output.is_sending() || !connection.output.is_empty();
        if let Some(before) = connection.pipeline.before(exchange) {
            is_owed = true;
            if before.sequel == Sequel::Open {
                before.sequel = Sequel::Last;
            }
        }
        match connection.pipeline.find(exchange) {
            Some(entry) if entry.frame.is_none() && is_owed => {
                entry.sequel = Sequel::GivenUp;
                let actions = connection.cycle.begin_shutdown(true);
                self.perform(connection, actions);
            }
            _ => connection.closing = Closing::Reset,
        }
        self.drop_entry(connection, exchange);
    }

    fn drop_entry(&self, connection: &mut Connection, exchange: Key) {
        let Some(entry) = connection.pipeline.find(exchange) else { return };
        entry.released = true;
        if let Some(timer) = entry.timer() {
            entry.set_timer(None);
            self.shard.cancel_timer(timer);
        }
    }

    fn arm_exchange_timer(&self, connection: &mut Connection, exchange: Key) {
        let Some(entry) = connection.pipeline.find(exchange) else { return };
        match (self.exchanges.next_wake(exchange), entry.timer()) {
            (Some(at), Some(timer)) if self.shard.reset_timer(timer, at) => {}
            (Some(at), _) => entry.set_timer(Some(self.set_exchange_timer(at, exchange))),
            (None, Some(timer)) => {
                self.shard.cancel_timer(timer);
                entry.set_timer(None);
            }
            (None, None) => {}
        }
    }

    fn run(
        &self,
        connection: &mut Connection,
        exchange: Key,
        callback: Callback,
        head: HeadHolder,
    ) -> HeadHolder {
        match callback {
            Callback::Handler(dispatch) => {
                let Some(entry) = connection.pipeline.find(exchange) else { return head };
                let target = &mut entry.target;
                self.enter(exchange, head, |x: &mut Exchange| self.dispatch(x, dispatch, target))
            }
            Callback::DoRequest => {
                let route =
                    connection.pipeline.find(exchange).and_then(|entry| entry.target.route().cloned());
                self.shard.name_callback("do_request");
                self.enter(exchange, head, move |x: &mut Exchange| do_request(x, route))
            }
            Callback::DoResponse => {
                self.shard.name_callback("do_response");
                self.enter(exchange, head, do_response)
            }
            other => unreachable!("{other:?} is run by the exchange itself"),
        }
    }

    #[inline]
    fn enter(
        &self,
        exchange: Key,
        head: HeadHolder,
        callback: impl FnOnce(&mut Exchange) -> Result<()>,
    ) -> HeadHolder {
        match head {
            HeadHolder::Gone => {
                self.exchanges.enter_parked(exchange, callback);
                HeadHolder::Gone
            }
            head => self.exchanges.enter(exchange, head, callback),
        }
    }

    /// Filters and handler of the target, as a callback.
    fn dispatch(&self, x: &mut Exchange, dispatch: DispatchType, target: &mut Target) -> Result<()> {
        let redirected = match dispatch {
            DispatchType::Request => None,
            _ => x.redispatch_target(),
        };
        if redirected.is_some() {
            *target = self.target(x.request(), redirected.as_deref());
        }
        match target {
            Target::Handler(route, handler) => {
                self.shard.name_callback(route.handler_name());
                if route.has_parameters() {
                    let path = redirected.as_deref().map_or_else(|| x.request().path().to_owned(), path_of);
                    self.router.set_parameters(route, &path, x);
                }
                if dispatch == DispatchType::Async {
                    x.set_sync_only(route.sync_only_again);
                }
                if route.filters.is_empty() {
                    return handler.handle(x);
                }
                routing::Next::new(&route.filters, dispatch, &|x: &mut Exchange| handler.handle(x)).run(x)
            }
            Target::Own(OwnAnswer::Method(route)) => self.refuse_method(x, route),
            Target::Own(OwnAnswer::Unknown) => self.answer_error(x, StatusCode::NOT_IMPLEMENTED),
            Target::Own(OwnAnswer::Nothing) => self.answer_error(x, StatusCode::NOT_FOUND),
            Target::Own(OwnAnswer::WholeServer) => {
                x.response().set_status(StatusCode::NO_CONTENT);
                x.response().set_header("Allow", ALL_METHODS)?;
                Ok(())
            }
            Target::Own(OwnAnswer::Tunnel) => {
                x.response().set_header("Allow", ALL_METHODS)?;
                self.answer_error(x, StatusCode::METHOD_NOT_ALLOWED)
            }
        }
    }

    #[inline]
    pub(super) fn target(&self, head: Head<'_>, redirected: Option<&str>) -> Target {
        match head.target_form() {
            TargetForm::Asterisk => return Target::Own(OwnAnswer::WholeServer),
            // RFC 9112 §3.2.4: what its last proxy would have made an asterisk of.
            TargetForm::Absolute if redirected.is_none() && head.path_bytes() == b"*" => {
                return Target::Own(OwnAnswer::WholeServer);
            }
            // Its target is no path; a redispatch gives it one, which then has no such method.
            TargetForm::Authority if redirected.is_none() => {
                return match self.router.find_connect() {
                    Some((route, handler)) => Target::Handler(route.clone(), handler.clone()),
                    None => Target::Own(OwnAnswer::Tunnel),
                };
            }
            TargetForm::Authority | TargetForm::Origin | TargetForm::Absolute => {}
        }
        let found = match redirected {
            None => self.router.find(head),
            Some(target) => self.router.find_path(head, &path_of(target)),
        };
        match found {
            Found::Route(route, handler) => match head.method_kind() {
                Method::Trace | Method::Connect => Target::Own(OwnAnswer::Method(route)),
                Method::Other if !route.lists(head.method()) => Target::Own(OwnAnswer::Unknown),
                _ => Target::Handler(route, handler),
            },
            Found::Method(_) | Found::Nothing if head.method_kind() == Method::Other => {
                Target::Own(OwnAnswer::Unknown)
            }
            Found::Method(route) => Target::Own(OwnAnswer::Method(route)),
            Found::Nothing => Target::Own(OwnAnswer::Nothing),
        }
    }

    /// The one error dispatch (L-13): the application's error handler, or a line of text. Never another.
    fn run_error_dispatch(
        &self,
        connection: &mut Connection,
        exchange: Key,
        status: u16,
        head: HeadHolder,
    ) -> HeadHolder {
        let status = StatusCode::from_u16(status).unwrap_or_default();
        let route = connection.pipeline.find(exchange).and_then(|entry| entry.target.route().cloned());
        self.enter(exchange, head, move |x: &mut Exchange| {
            let answer = |x: &mut Exchange| self.answer_error(x, status);
            match &route {
                Some(route) => routing::Next::new(&route.filters, DispatchType::Error, &answer).run(x),
                None => answer(x),
            }
        })
    }

    /// The application's error handler with the status set, or the status and a line of text. Errors that the router
    /// finds are answered so too: an application has one place for the look of its errors.
    fn answer_error(&self, x: &mut Exchange, status: StatusCode) -> Result<()> {
        let Some(handler) = self.router.failed_answer() else { return answer_plainly(x, status) };
        self.shard.name_callback("error handler");
        x.response().set_status(status);
        handler.handle(x)
    }

    /// 405 with `Allow` (RFC 9110 §15.5.6), or the answer to OPTIONS (§9.3.7).
    fn refuse_method(&self, x: &mut Exchange, route: &Route) -> Result<()> {
        x.response().set_header("Allow", route.allow())?;
        if x.request().method_kind() == Method::Options {
            x.response().set_status(StatusCode::NO_CONTENT);
            return Ok(());
        }
        self.answer_error(x, StatusCode::METHOD_NOT_ALLOWED)
    }

    /// Ends what is in flight on a connection that is lost.
    pub(super) fn end_exchanges(&self, connection: &mut Connection, reason: EndReason) {
        for exchange in connection.pipeline.live() {
            match reason {
                EndReason::ClientReset => self.exchanges.peer_reset(exchange),
                reason => self.exchanges.output_failed(exchange, reason),
            }
            self.drive(connection, exchange);
        }
    }

    /// Gives up the requests behind an answer that announced the connection's end: they are never answered
    /// (RFC 9112 §9.6), and what their ends would do to the connection is not done, for the answer is still to leave.
    pub(super) fn drop_behind(&self, connection: &mut Connection, sequence: u32) {
        connection.output.forget_refusal();
        let closing = connection.closing;
        for mut entry in connection.pipeline.cut_behind(sequence) {
            if let Some(pending) = entry.take_pending() {
                self.log_answer(connection, &pending, false);
            }
            if let Some(timer) = entry.timer() {
                self.shard.cancel_timer(timer);
            }
            self.exchanges.output_failed(entry.exchange, EndReason::Aborted);
            self.drive(connection, entry.exchange);
        }
        connection.closing = closing;
    }

    /// Does what the connection's cycle asks for.
    pub(super) fn perform(&self, connection: &mut Connection, actions: Actions) {
        if actions.is_empty() {
            return;
        }
        if actions.contains(Actions::ABORT_CONTENT) {
            connection.body = None;
        }
        if actions.contains(Actions::SHUT_WRITE)
            && connection.socket.shut(shards::net::HowToShut::Write).is_err()
        {
            // The peer is gone already: nobody to be polite to.
            connection.closing = Closing::Close;
        }
        if actions.contains(Actions::CLOSE) && connection.closing == Closing::No {
            connection.closing = Closing::Close;
        }
    }
}

fn mark(connection: &mut Connection, exchange: Key, change: impl FnOnce(&mut super::pipeline::InFlight)) {
    if let Some(entry) = connection.pipeline.find(exchange) {
        change(entry);
    }
}

fn path_of(target: &str) -> String {
    target.split(['?', '#']).next().unwrap_or_default().to_owned()
}

fn do_request(x: &mut Exchange, route: Option<Rc<Route>>) -> Result<()> {
    let make = route.and_then(|route| route.make_coordinator.clone());
    let Some(make) = make else { return x.service() };
    CoordinatorSlot::begin(make(), x)
}

fn do_response(x: &mut Exchange) -> Result<()> {
    match x.guardian() {
        Some(coordinator) => coordinator.do_response(x),
        None => x.complete(),
    }
}

/// Status and one line of text.
fn answer_plainly(x: &mut Exchange, status: StatusCode) -> Result<()> {
    x.response().set_status(status);
    x.response().set_content_type("text/plain; charset=utf-8")?;
    x.write(format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or("Error")))
}
