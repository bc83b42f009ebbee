//! The business logic of the race: a thread that is no shard, works for as long as it is told, and then calls back.
//! One thread works on many requests at once, as a database client's would.

use crate::error::{Error, Result};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

type Callback = Box<dyn FnOnce() + Send>;

struct Work {
    due: Instant,
    /// Keeps the order of arrival among equals.
    number: u64,
    callback: Callback,
}

impl PartialEq for Work {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Work {}

impl PartialOrd for Work {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Work {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Work {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

/// Calls `callback` on the business thread after `work`.
///
/// # Errors
/// `LimitReached` when the thread has more to do than it may.
pub(super) fn after(work: Duration, callback: impl FnOnce() + Send + 'static) -> Result<()> {
    static BUSINESS: OnceLock<Sender<(Instant, Callback)>> = OnceLock::new();
    let business = BUSINESS.get_or_init(start);
    business.try_send((Instant::now() + work, Box::new(callback))).map_err(|error| match error {
        TrySendError::Full(_) => Error::LimitReached { limit: "business_queue_max" },
        TrySendError::Disconnected(_) => Error::ShuttingDown,
    })
}

fn start() -> Sender<(Instant, Callback)> {
    let (sender, receiver) = bounded(QUEUE_MAX);
    let thread = thread::Builder::new().name("business".into());
    if let Err(error) = thread.spawn(move || run(&receiver)) {
        // The receiver is gone with the closure: every request is told `ShuttingDown`.
        tracing::error!("the demo's business thread could not be started: {error}");
    }
    sender
}

fn run(receiver: &Receiver<(Instant, Callback)>) {
    let mut heap = BinaryHeap::new();
    let mut number = 0;
    loop {
        let left = heap
            .peek()
            .map_or(IDLE, |Reverse(work): &Reverse<Work>| work.due.saturating_duration_since(Instant::now()));
        let received = if heap.len() < QUEUE_MAX { receiver.recv_timeout(left) } else { wait(left) };
        match received {
            Ok((due, callback)) => {
                number += 1;
                heap.push(Reverse(Work { due, number, callback }));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        while heap.peek().is_some_and(|Reverse(work)| work.due <= now) {
            let Reverse(work) = heap.pop().expect("it was there");
            (work.callback)();
        }
    }
}

/// Full: nothing is received until something is due.
fn wait(left: Duration) -> std::result::Result<(Instant, Callback), RecvTimeoutError> {
    thread::sleep(left);
    Err(RecvTimeoutError::Timeout)
}

const IDLE: Duration = Duration::from_secs(3600);

/// Most work at a time, in the queue and again in the thread.
const QUEUE_MAX: usize = 65_536;
