//! Joins two streams: what one side sends the other gets, both ways at once, with half-close and back-pressure.

use super::Stream;
use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
};

/// How one direction of a relay ended.
#[derive(Debug)]
pub enum RelayEnd {
    /// The sender finished and the receiver was told (half-close).
    Finished,
    /// Reading or writing failed.
    Failed(io::Error),
}

/// What a relay moved.
#[derive(Debug)]
pub struct Relayed {
    /// Bytes from the first stream to the second.
    pub forth: u64,
    /// Bytes from the second stream to the first.
    pub back: u64,
    /// How the direction from the first to the second ended.
    pub forth_end: RelayEnd,
    /// How the direction from the second to the first ended.
    pub back_end: RelayEnd,
}

/// Moves bytes both ways until both directions have ended. A direction that finishes closes the receiver's half
/// and lets the other go on; a direction that fails ends both. What is held is bounded: one write and the stream's
/// short queue a direction.
pub async fn relay(a: &Stream, b: &Stream) -> Relayed {
    let mut forth = Direction::new(a, b);
    let mut back = Direction::new(b, a);
    std::future::poll_fn(|context| {
        forth.step(context);
        back.step(context);
        let failed = forth.failed() || back.failed();
        match forth.end.is_some() && back.end.is_some() || failed {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    Relayed {
        forth: forth.bytes(),
        back: back.bytes(),
        forth_end: forth.into_end(),
        back_end: back.into_end(),
    }
}

struct Direction<'a> {
    copy: Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>,
    moved: std::rc::Rc<std::cell::Cell<u64>>,
    end: Option<RelayEnd>,
}

impl<'a> Direction<'a> {
    fn new(from: &'a Stream, to: &'a Stream) -> Self {
        let moved = std::rc::Rc::new(std::cell::Cell::new(0));
        Direction { copy: Box::pin(copy(from, to, moved.clone())), moved, end: None }
    }

    fn step(&mut self, context: &mut Context<'_>) {
        if self.end.is_some() {
            return;
        }
        if let Poll::Ready(result) = pin!(&mut self.copy).poll(context) {
            self.end = Some(match result {
                Ok(()) => RelayEnd::Finished,
                Err(error) => RelayEnd::Failed(error),
            });
        }
    }

    fn failed(&self) -> bool {
        matches!(self.end, Some(RelayEnd::Failed(_)))
    }

    fn bytes(&self) -> u64 {
        self.moved.get()
    }

    fn into_end(self) -> RelayEnd {
        let cut = || {
            RelayEnd::Failed(io::Error::new(io::ErrorKind::ConnectionAborted, "the other direction failed"))
        };
        self.end.unwrap_or_else(cut)
    }
}

async fn copy(from: &Stream, to: &Stream, moved: std::rc::Rc<std::cell::Cell<u64>>) -> io::Result<()> {
    while let Some(lease) = from.read().await? {
        let bytes = lease.into_bytes();
        let count = bytes.len() as u64;
        to.write_bytes(bytes).await?;
        moved.set(moved.get() + count);
    }
    to.finish()
}
