//! The short way of a request that begins, is answered and ends within one callback, as nearly all do: the same
//! life cycle, fed the same events, without a place in the pipeline. Whatever turns out to be more than that
//! goes on the long way from where it is.

use super::{Connection, Service, dispatch::Target, input::is_safe, pipeline::InFlight};
use crate::{
    exchange::{
        Exchange,
        seam::{Begin, Core, HeadHolder, Loan},
    },
    http1::{BodyKind, Content, ContentFrame, Framing, Head, ReplyTo, ResponseHead},
};
use std::rc::Rc;

/// A request that may go the short way.
pub(super) struct Plain {
    pub(super) target: Target,
    pub(super) reply: ReplyTo,
    pub(super) sequence: u32,
}

impl Service {
    /// Whether nothing about the request or the connection asks for the long way.
    #[inline]
    pub(super) fn is_plain(&self, connection: &Connection, target: &Target, framing: Framing) -> bool {
        let routed = match target {
            Target::Handler(route, _) => route.is_plain(),
            _ => false,
        };
        routed
            && framing.body == BodyKind::None
            && self.access_log.is_none()
            && connection.pipeline.is_empty()
            && connection.output.takes_answer(self.limits.output_high_water_bytes)
    }

    pub(super) fn serve_plain(
        &self,
        connection: &mut Connection,
        loan: Box<Loan>,
        plain: Plain,
    ) -> Box<Loan> {
        let Target::Handler(route, handler) = &plain.target else { unreachable!("is_plain saw a handler") };
        let begin = Begin {
            owner: connection.key.to_u64(),
            sync_only: route.sync_only,
            hush_client_gone: route.hush_client_gone,
            ..Begin::default()
        };
        self.shard.name_callback(route.handler_name());
        let run = |x: &mut Exchange| handler.handle(x);
        let (core, head, answered) = self.exchanges.serve_plain(begin, HeadHolder::Loan(loan), run);
        let head = if answered && self.encode_plain(connection, &core, &plain) {
            head
        } else {
            if answered {
                self.exchanges.go_on(&core, &head);
            }
            self.go_on(connection, &core, plain, head)
        };
        let HeadHolder::Loan(loan) = head else { unreachable!("a loan comes back") };
        loan
    }

    /// Encodes an answer that is whole and small, and ends its exchange. False, and nothing done, if it is not.
    #[inline]
    fn encode_plain(&self, connection: &mut Connection, core: &Rc<Core>, plain: &Plain) -> bool {
        let (parts, mut queue) = (core.response.borrow(), core.output.borrow_mut());
        let length = queue.len();
        let is_small = length <= PLAIN_BYTES_MAX && parts.declared_length().is_none();
        if !is_small {
            return false;
        }
        let mut reply = plain.reply;
        reply.persistent = connection.cycle.may_persist(plain.sequence, Some(0));
        let content = Content::Length(length as u64);
        let response = ResponseHead { status: parts.status.as_u16(), fields: &parts.fields, content };
        let output = &mut connection.output;
        self.lend_buffer(output);
        let announced = self.template.borrow().encode_head(&mut output.head, &response, reply);
        match announced.frame {
            ContentFrame::None => queue.clear_body(),
            _ => assert_eq!(queue.take_into(&mut output.head, length), length, "all of it fits"),
        }
        drop((parts, queue));
        self.exchanges.end_answered(core);
        let actions = connection.cycle.answer_ended(announced.persistent);
        if plain.sequence + 1 == connection.cycle.taken() {
            // Bytes behind an Upgrade are requests after all.
            let _ = connection.cycle.hold_next(false);
        }
        self.perform(connection, actions);
        true
    }

    /// The long way, from the handler's return.
    fn go_on(&self, connection: &mut Connection, core: &Core, plain: Plain, head: HeadHolder) -> HeadHolder {
        let exchange = core.key.get();
        let is_safe = head.view().is_some_and(|head: Head<'_>| is_safe(head));
        connection.pipeline.push(InFlight::new(exchange, plain.sequence, plain.reply, is_safe, plain.target));
        self.drive_lending(connection, exchange, head)
    }
}

/// Content up to this size is copied behind its head.
const PLAIN_BYTES_MAX: usize = 16 * 1024;
