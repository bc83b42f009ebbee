//! `Exchange`: what a callback holds in its hand. All that changes a request's state goes through it (L-2).

use super::{
    AsyncContext, CancelToken, Chunk, Outcome, Read, ReadListener, Request, Response, SlowClient, Wait,
    WaterMarks, WriteListener,
    core::{Core, push_first},
    counters::up,
    life::{Event, Phase},
    listeners::{Guardian, Listeners},
    output::ByteCounts,
    request::HeadHolder,
    table::ExchangeId,
};
use crate::{
    error::{EndReason, Error, Result},
    http1::Head,
};
use bytes::Bytes;
use std::{
    any::{Any, TypeId},
    fmt::{self, Write as _},
    net::SocketAddr,
    rc::Rc,
    time::Duration,
};

/// A request and its response, in the hand of a callback: `!Send`, not `Clone`, lent as `&mut Exchange`.
///
/// What ends a cycle (`complete`, `redispatch`, `service`) takes effect when the callback returns (L-7).
///
/// It cannot leave its shard (L-2); other threads use an [`AsyncContext`]:
///
/// ```compile_fail,E0277
/// fn handler(x: &mut shardlet::exchange::Exchange) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| x.complete());
///     });
/// }
/// ```
///
/// ```
/// fn handler(x: &mut shardlet::exchange::Exchange) {
///     let executor = x.start_async().executor();
///     std::thread::spawn(move || executor.execute(|x: &mut shardlet::exchange::Exchange| x.complete()));
/// }
/// ```
pub struct Exchange {
    pub(crate) head: HeadHolder,
    pub(crate) core: Rc<Core>,
}

/// The values of a route pattern's names.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathParameters(Vec<(String, String)>);

impl PathParameters {
    pub(crate) fn new(values: Vec<(String, String)>) -> Self {
        PathParameters(values)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Exchange {
    pub(crate) fn new(core: Rc<Core>, head: HeadHolder) -> Self {
        Exchange { head, core }
    }

    /// The name of this exchange; it changes with every reuse of the slot.
    pub fn id(&self) -> ExchangeId {
        ExchangeId { shard: self.core.hub.shard, key: self.core.key.get() }
    }

    /// The request's head.
    pub fn request(&self) -> Head<'_> {
        self.head.view().expect("whoever lends an exchange lends its head")
    }

    /// The request's head as a snapshot that any thread may keep.
    pub fn owned_request(&self) -> Request {
        self.core.snapshot(&self.head)
    }

    /// The client's address, asked of the kernel: the other end of the connection, which may be a proxy. `None` for a
    /// Unix socket and when the client has gone.
    pub fn peer(&self) -> Option<SocketAddr> {
        (self.core.hub.peer)(self.core.owner.get())
    }

    /// The response: status and fields.
    pub fn response(&mut self) -> Response<'_> {
        Response::new(&self.core)
    }

    /// How the exchange ended, if its end is decided; the failure under way, if there is one.
    pub fn reason(&self) -> Option<EndReason> {
        self.core.state().reason
    }

    /// The error or panic message that a callback of this exchange ended with, for the error handler.
    pub fn take_fault(&mut self) -> Option<Error> {
        self.core.if_rare(|rare| rare.if_seldom()?.fault.take())
    }

    // ---- the life cycle -------------------------------------------------------------------------------------

    /// The response is complete after what has been written.
    ///
    /// # Errors
    /// `Ended` when the end is decided already: this attempt is suppressed and counted (L-11).
    pub fn complete(&mut self) -> Result<()> {
        self.core.check_may_end()?;
        self.core.intend(|intents| intents.complete = true);
        Ok(())
    }

    /// Gives the exchange up: the connection or stream is cut.
    ///
    /// # Errors
    /// As [`Exchange::complete`].
    pub fn abort(&mut self) -> Result<()> {
        self.core.check_may_end()?;
        self.core.intend(|intents| intents.abort = true);
        Ok(())
    }

    /// Begins another cycle of this exchange with `target` in place of the request's own target.
    ///
    /// # Errors
    /// `Ended` as [`Exchange::complete`]; `Misuse` when the handler's part is over.
    pub fn redispatch(&mut self, target: &str) -> Result<()> {
        if self.core.state().phase == Phase::Responding {
            return Err(Error::Misuse(
                "redispatch() belongs to the handler, before its response is complete",
            ));
        }
        self.core.check_may_end()?;
        self.core.with_rare(|rare| rare.seldom().redispatch_target = Some(target.into()));
        self.core.intend(|intents| intents.redispatch = true);
        Ok(())
    }

    /// The target of this cycle, where a redispatch has replaced the request's own.
    pub fn redispatch_target(&self) -> Option<String> {
        self.core.if_rare(|rare| rare.if_seldom()?.redispatch_target.as_deref().map(str::to_owned))
    }

    /// How many cycles came before this one.
    pub fn cycle(&self) -> u32 {
        self.core.cycle.get()
    }

    /// From a coordinator: choose the handler and run it. Also from its timeout, if it has not done so before.
    ///
    /// # Errors
    /// `Misuse` when the handler has been chosen already; `Ended`.
    pub fn service(&mut self) -> Result<()> {
        self.core.check_live()?;
        if !self.core.state().may_serve() || self.core.intents.get().service {
            return Err(Error::Misuse("service() belongs to the coordinator, once, before the handler"));
        }
        self.core.intend(|intents| intents.service = true);
        Ok(())
    }

    /// The handler that `service` starts waits for this much of the body (L-18).
    pub fn wait_for_body(&mut self, wait: Wait) {
        if wait == Wait::WholeBody {
            self.core.input.borrow_mut().widen();
        }
        self.core.intend(|intents| intents.wait = wait);
    }

    /// Asks for the whole body, at most `limit` bytes, before the handler starts.
    pub fn buffer_body(&mut self, limit: u64) {
        self.core.input.borrow_mut().set_limit(limit);
        self.wait_for_body(Wait::WholeBody);
    }

    /// Lets the handler start with the first content.
    pub fn after_first_content(&mut self) {
        self.wait_for_body(Wait::FirstContent);
    }

    /// Tells the client to send its body. True if that was news: twice is a counted no-op, and there is none for
    /// a request that does not expect it (L-17).
    pub fn send_continue(&mut self) -> bool {
        let committed = self.core.state().committed;
        let news = !committed && self.core.check_live().is_ok() && self.core.expects_continue.replace(false);
        if news {
            self.core.intend(|intents| intents.send_continue = true);
            self.core.hub.counters.update(|c| up(&mut c.continues_sent));
        } else {
            self.core.hub.counters.update(|c| up(&mut c.continues_ignored));
        }
        news
    }

    /// Whether the client waits for `100 Continue`.
    pub fn expects_continue(&self) -> bool {
        self.core.expects_continue.get()
    }

    /// Makes the exchange asynchronous: it stays open after the handler returns. On a chain that cannot
    /// (L-21) the callback fails with `AsyncNotSupported` when it returns; `try_start_async` says so at once.
    pub fn start_async(&mut self) -> AsyncContext {
        if let Err(error) = self.allow_async() {
            self.core.with_rare(|rare| rare.seldom().fault = Some(error));
        }
        self.core.intend(|intents| intents.start_async = true);
        self.context()
    }

    /// As [`Exchange::start_async`].
    ///
    /// # Errors
    /// `AsyncNotSupported` with the part's name; `Ended`.
    pub fn try_start_async(&mut self) -> Result<AsyncContext> {
        self.allow_async()?;
        Ok(self.start_async())
    }

    fn allow_async(&self) -> Result<()> {
        self.core.check_live()?;
        match self.core.sync_only.get() {
            Some(part) => Err(Error::AsyncNotSupported { part: part.to_owned() }),
            None => Ok(()),
        }
    }

    /// What other threads may hold of this exchange, without making it asynchronous.
    pub fn context(&mut self) -> AsyncContext {
        AsyncContext::new(self.core.context(&self.head), Some(self.core.cycle.get()))
    }

    /// Tells when the exchange ends.
    pub fn cancel_token(&mut self) -> CancelToken {
        self.context().cancel_token()
    }

    // ---- time -----------------------------------------------------------------------------------------------

    /// Sets the timeout, counted from now, while the exchange may wait.
    pub fn set_timeout(&mut self, timeout: Duration) {
        if self.core.state().end_decided().is_none() {
            self.core.set_deadline(Some(self.core.hub.now.get().saturating_add(timeout)));
            self.core.intend(|intents| {
                intents.timeout_set = true;
                intents.timeout_cleared = false;
            });
        }
    }

    /// From `on_timeout`: wait this much longer instead of ending (L-12).
    pub fn extend(&mut self, by: Duration) {
        self.set_timeout(by);
    }

    /// No timeout.
    pub fn clear_timeout(&mut self) {
        self.core.set_deadline(None);
        self.core.intend(|intents| {
            intents.timeout_set = false;
            intents.timeout_cleared = true;
        });
    }

    /// When the timeout will fire, on the shard's clock.
    pub fn deadline(&self) -> Option<Duration> {
        self.core.deadline()
    }

    /// The shard's clock, as of this turn.
    pub fn now(&self) -> Duration {
        self.core.hub.now.get()
    }

    // ---- listeners ------------------------------------------------------------------------------------------

    fn listen<T>(&self, replace: impl FnOnce(&mut Listeners) -> Option<T>) {
        let former = self.core.with_rare(|rare| replace(&mut rare.listeners));
        // The application's destructors, where nothing is borrowed.
        drop(former);
    }

    /// Runs when the timeout comes first; it may complete, redispatch or `extend` (L-12).
    pub fn on_timeout<O: Outcome>(&mut self, mut hook: impl FnMut(&mut Exchange) -> O + 'static) {
        self.listen(|l| l.on_timeout.replace(Box::new(move |x| hook(x).into_result())));
    }

    /// Runs once when the exchange fails; before commit it may answer and complete (L-10, L-13).
    pub fn on_error<O: Outcome>(&mut self, hook: impl FnOnce(&mut Exchange, EndReason) -> O + 'static) {
        self.listen(|l| l.more().on_error.replace(Box::new(move |x, reason| hook(x, reason).into_result())));
    }

    /// Runs exactly once, after the terminal transition.
    pub fn on_complete<O: Outcome>(&mut self, hook: impl FnOnce(&mut Exchange, EndReason) -> O + 'static) {
        self.listen(|l| l.on_complete.replace(Box::new(move |x, reason| hook(x, reason).into_result())));
    }

    /// Sets what watches over this exchange.
    pub(crate) fn set_guardian(&mut self, guardian: Rc<dyn Guardian>) {
        self.listen(|l| l.more().guardian.replace(guardian));
    }

    /// What watches over this exchange.
    pub(crate) fn guardian(&self) -> Option<Rc<dyn Guardian>> {
        self.core.if_rare(|rare| rare.listeners.if_more()?.guardian.clone())
    }

    /// From the router: the first part of this dispatch's chain that does not support async (L-21).
    pub(crate) fn set_sync_only(&mut self, part: Option<&'static str>) {
        self.core.sync_only.set(part);
    }

    /// What a name in the route's pattern stands for in this request's path, as sent (not percent-decoded).
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.core.if_rare(|rare| {
            let found = rare
                .if_seldom()?
                .attributes
                .iter()
                .find_map(|(_, value)| value.downcast_ref::<PathParameters>());
            found.and_then(|parameters| parameters.get(name)).map(str::to_owned)
        })
    }

    /// Sets the read listener. It is called at once if there is something to read, and counts as a first read: a
    /// waiting client is told to send (L-17).
    pub fn set_read_listener(&mut self, listener: impl ReadListener + 'static) {
        self.before_read();
        self.listen(|l| l.more().read.replace(Box::new(listener)));
        let mut input = self.core.input.borrow_mut();
        let (ready, consumed) = (input.buffered() > 0, input.is_consumed());
        if !ready {
            input.is_ready();
        }
        drop(input);
        if ready {
            self.core.feed(Event::InputArrived);
        } else if consumed {
            self.core.feed(Event::InputConsumed);
        }
    }

    /// Sets the write listener.
    pub fn set_write_listener(&mut self, listener: impl WriteListener + 'static) {
        self.listen(|l| l.more().write.replace(Box::new(listener)));
    }

    // ---- reading --------------------------------------------------------------------------------------------

    /// Whether `read` has something. A "no" asks for one call of the read listener.
    pub fn is_read_ready(&mut self) -> bool {
        self.before_read();
        self.core.input.borrow_mut().is_ready()
    }

    /// The next bytes of the body. The first read tells a waiting client to send it (L-17).
    ///
    /// # Errors
    /// `Ended` when the body failed or the client left.
    pub fn read(&mut self) -> Result<Read> {
        self.before_read();
        let read = self.core.input.borrow_mut().read();
        self.after_read();
        read
    }

    /// All of the body that has arrived and was not read, in one piece.
    pub fn take_body(&mut self) -> Bytes {
        self.before_read();
        let bytes = self.core.input.borrow_mut().take_all();
        self.after_read();
        bytes
    }

    fn before_read(&mut self) {
        if self.core.expects_continue.get() && !self.core.input.borrow().is_ended() {
            self.send_continue();
        }
    }

    fn after_read(&self) {
        if self.core.input.borrow().is_consumed() {
            self.core.feed(Event::InputConsumed);
        }
        // The window has opened: the connection may read on.
        self.core.make_ready();
    }

    // ---- writing --------------------------------------------------------------------------------------------

    /// Appends to the body. Before the head is on its way nothing leaves until `flush`, the high water mark, or
    /// the end.
    ///
    /// # Errors
    /// `Ended` after the end or when the client left; `LimitReached` at the hard bound of the queue.
    pub fn write(&mut self, chunk: impl Into<Chunk>) -> Result<()> {
        let chunk = chunk.into();
        self.core.write(|output| output.write_chunk(chunk, None))
    }

    /// Appends a copy of borrowed bytes.
    ///
    /// # Errors
    /// As [`Exchange::write`].
    pub fn write_copy(&mut self, bytes: &[u8]) -> Result<()> {
        self.core.write(|output| output.write_copy(bytes))
    }

    /// Appends a message that replaces the waiting one with the same key under `SlowClient::Coalesce` (L-19).
    ///
    /// # Errors
    /// As [`Exchange::write`].
    pub fn write_keyed(&mut self, key: u64, chunk: impl Into<Chunk>) -> Result<()> {
        let chunk = chunk.into();
        self.core.write(|output| output.write_chunk(chunk, Some(key)))
    }

    /// `write!(x, …)` and `writeln!(x, …)`.
    ///
    /// # Errors
    /// As [`Exchange::write`].
    pub fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) -> Result<()> {
        if let Some(text) = arguments.as_str() {
            return self.write_copy(text.as_bytes());
        }
        let mut writer = Writer { x: self, error: None };
        match writer.write_fmt(arguments) {
            Ok(()) => Ok(()),
            Err(error) => Err(writer.error.unwrap_or_else(|| error.into())),
        }
    }

    /// Lets what has been written leave when the callback returns; the head goes first.
    ///
    /// # Errors
    /// As [`Exchange::write`].
    pub fn flush(&mut self) -> Result<()> {
        self.core.check_live()?;
        self.core.intend(|intents| intents.flush = true);
        Ok(())
    }

    /// Whether the output is below its high water mark. After a "no", `on_write_possible` comes once.
    pub fn is_write_ready(&self) -> bool {
        self.core.output.borrow().is_ready()
    }

    /// What to do when the client is slow.
    pub fn set_slow_client(&mut self, policy: SlowClient) {
        self.core.output.borrow_mut().set_policy(policy);
    }

    /// The bounds of the output queue.
    pub fn set_water_marks(&mut self, marks: WaterMarks) {
        self.core.output.borrow_mut().set_marks(marks);
    }

    /// Generated, accepted, acknowledged (L-20). Asks the kernel what the peer has not acknowledged.
    pub fn byte_counts(&self) -> ByteCounts {
        let unacknowledged = (self.core.hub.unacknowledged)(self.core.owner.get());
        let mut output = self.core.output.borrow_mut();
        if let Some(count) = unacknowledged {
            output.note_unacknowledged(count);
        }
        output.counts()
    }

    // ---- attributes -----------------------------------------------------------------------------------------

    /// Keeps a value with the exchange, one of each type; gives the one before back. So there are never more
    /// than the program has types for it.
    pub fn set_attribute<T: Any>(&mut self, value: T) -> Option<T> {
        let before = self.take_attribute();
        let attribute = (TypeId::of::<T>(), Box::new(value) as Box<dyn Any>);
        self.core.with_rare(|rare| push_first(&mut rare.seldom().attributes, attribute));
        before
    }

    /// A copy of the value of this type.
    pub fn attribute<T: Any + Clone>(&self) -> Option<T> {
        self.core.if_rare(|rare| {
            let (_, value) = rare.if_seldom()?.attributes.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
            value.downcast_ref::<T>().cloned()
        })
    }

    /// Takes the value of this type out.
    pub fn take_attribute<T: Any>(&mut self) -> Option<T> {
        let value = self.core.if_rare(|rare| {
            let attributes = &mut rare.if_seldom()?.attributes;
            let at = attributes.iter().position(|(id, _)| *id == TypeId::of::<T>())?;
            Some(attributes.swap_remove(at).1)
        })?;
        value.downcast::<T>().ok().map(|value| *value)
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

struct Writer<'a> {
    x: &'a mut Exchange,
    error: Option<Error>,
}

impl fmt::Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.x.write_copy(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}
