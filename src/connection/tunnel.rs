//! Joins an exchange whose connection is a tunnel with a stream of the runtime: the other half of a CONNECT. It
//! decides nothing about who may go where, and it opens neither side.

use crate::{
    error::{Error, Result},
    exchange::{Exchange, Read},
};
use bytes::Bytes;
use shards::net::Stream;
use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    task::{Context, Poll},
};

/// Bytes that a tunnel has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Relayed {
    /// From the client.
    pub forth: u64,
    /// To the client.
    pub back: u64,
}

type Write<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

/// One tunnel and how far each of its directions has come.
struct Joint<'a> {
    x: &'a mut Exchange,
    upstream: &'a Stream,
    /// What is on its way to the upstream.
    writing: Option<Write<'a>>,
    client_finished: bool,
    moved: Relayed,
}

/// Carries bytes between the client of an exchange, after [`Exchange::open_tunnel`] or [`Exchange::upgrade`], and
/// `upstream`, with back-pressure both ways. The client's FIN is passed on, and what the upstream still says comes back;
/// the upstream's end is the end, once all that it has sent is in the exchange's output (RFC 9110 §9.3.6). Await it as the
/// last thing of an asynchronous handler.
///
/// # Errors
/// `Ended` when the exchange is over, `HandlerFailed` when the upstream's connection breaks.
pub async fn relay(x: &mut Exchange, upstream: &Stream) -> Result<Relayed> {
    let mut joint = Joint { x, upstream, writing: None, client_finished: false, moved: Relayed::default() };
    poll_fn(|context| joint.step(context)).await?;
    Ok(joint.moved)
}

impl Joint<'_> {
    fn step(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let forth = self.forward(context)?;
            match self.give_back(context)? {
                Step::Ended => return Poll::Ready(Ok(())),
                Step::Waits if !forth => return Poll::Pending,
                Step::Waits | Step::Moved => {}
            }
        }
    }

    /// Client to upstream. Whether something has moved.
    fn forward(&mut self, context: &mut Context<'_>) -> Result<bool> {
        if let Some(writing) = &mut self.writing {
            match writing.as_mut().poll(context) {
                Poll::Pending => return Ok(false),
                Poll::Ready(result) => result.map_err(Error::handler)?,
            }
            self.writing = None;
        }
        if self.client_finished {
            return Ok(false);
        }
        match self.x.read()? {
            Read::Data(bytes) => self.begin_write(bytes),
            Read::NotReady => return Ok(false),
            Read::End => {
                self.client_finished = true;
                self.upstream.finish().map_err(Error::handler)?;
            }
        }
        Ok(true)
    }

    fn begin_write(&mut self, bytes: Bytes) {
        self.moved.forth += bytes.len() as u64;
        self.writing = Some(Box::pin(self.upstream.write_bytes(bytes)));
    }

    /// Upstream to client, as long as the client takes it.
    fn give_back(&mut self, context: &mut Context<'_>) -> Result<Step> {
        if !self.x.is_write_ready() {
            return Ok(Step::Waits);
        }
        match self.upstream.poll_read(context) {
            Poll::Pending => Ok(Step::Waits),
            Poll::Ready(Err(error)) => Err(Error::handler(error)),
            Poll::Ready(Ok(None)) => Ok(Step::Ended),
            Poll::Ready(Ok(Some(lease))) => {
                self.moved.back += lease.len() as u64;
                self.x.write(lease.into_bytes())?;
                self.x.flush()?;
                Ok(Step::Moved)
            }
        }
    }
}

enum Step {
    Moved,
    Waits,
    Ended,
}
