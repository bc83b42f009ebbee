//! Threads for work that blocks, shared by all shards of a process, and the way back to the shard that waits.
//!
//! Neighbours: `inbox` carries the result home, `shard.rs` wraps [`offload`] and [`resolve`] with its own inbox.
//!
//! ```text
//!   shard: offload() ──job──▶ pool thread: work() ──reply──▶ shard's inbox: result to its place, task woken
//! ```
//!
//! A waiting future has a place in a table that is local to the shard's thread; the reply names the place by a key
//! with a generation. So nothing is shared and nothing locked, and who drops what is plain: if the future is gone
//! when the reply runs, the result is dropped on the shard; if the shard takes no more mail, it is dropped on the
//! pool thread. Work that was queued runs even if nobody waits for it any more.

use crate::{
    error::{Error, Result},
    inbox::{RejectReason, Rejected, Sender},
    table::{Key, Table},
    tasks::panic_message,
};
use crossbeam_channel::{Receiver, TrySendError, bounded};
use std::{
    any::Any,
    cell::RefCell,
    fmt,
    future::Future,
    io,
    marker::PhantomData,
    net::{SocketAddr, ToSocketAddrs},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    thread,
};

type Job = Box<dyn FnOnce() + Send>;

/// A bounded queue of jobs and the threads that run them. Share it in an `Arc`. Dropping it runs what is queued and
/// joins the threads, so it waits for the longest job; the last holder should be the thread that started the shards.
pub(crate) struct OffloadPool {
    /// `None` only while the pool is dropped.
    jobs: Option<crossbeam_channel::Sender<Job>>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl OffloadPool {
    /// Starts `threads` threads (at least one) with a queue of at most `queue` jobs that wait for one of them. With
    /// a queue of 0 a job is taken only if a thread is idle.
    pub(crate) fn new(threads: usize, queue: usize) -> io::Result<Self> {
        let (jobs, queued) = bounded::<Job>(queue);
        let mut pool = OffloadPool { jobs: Some(jobs), threads: Vec::new() };
        for number in 0..threads.max(1) {
            let queued = queued.clone();
            // Linux shows the first 15 bytes of a thread's name.
            let thread = thread::Builder::new().name(format!("offload-{number}"));
            pool.threads.push(thread.spawn(move || run_jobs(&queued))?);
        }
        Ok(pool)
    }

    /// Queues a job. One that panics ends; its thread goes on.
    pub(crate) fn submit<F: FnOnce() + Send + 'static>(
        &self,
        job: F,
    ) -> std::result::Result<(), Rejected<Box<dyn FnOnce() + Send>>> {
        let job: Job = Box::new(job);
        let Some(jobs) = &self.jobs else {
            return Err(Rejected { task: job, reason: RejectReason::Stopping });
        };
        jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(task) => Rejected { task, reason: RejectReason::Full },
            TrySendError::Disconnected(task) => Rejected { task, reason: RejectReason::Stopping },
        })
    }

    /// Jobs that wait for a thread; a moment's view.
    pub(crate) fn queued(&self) -> usize {
        self.jobs.as_ref().map_or(0, crossbeam_channel::Sender::len)
    }
}

fn run_jobs(queued: &Receiver<Job>) {
    for job in queued {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
            tracing::error!(message = panic_message(&*panic), "an offloaded job panicked");
        }
    }
}

impl Drop for OffloadPool {
    fn drop(&mut self) {
        self.jobs = None;
        let own = thread::current().id();
        for thread in self.threads.drain(..) {
            // A job may hold the pool's last handle; a thread cannot wait for itself and ends by itself.
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!("an offload thread ended in a panic");
            }
        }
    }
}

impl fmt::Debug for OffloadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OffloadPool")
            .field("threads", &self.threads.len())
            .field("queued", &self.queued())
            .finish()
    }
}

/// Queues `work` on the pool now, and gives a future of its result for this thread, whose inbox is `home`. The
/// result may be [`Error::LimitReached`] (the queue is full), [`Error::Stopping`] or [`Error::Panicked`].
pub(crate) fn offload<T: Send + 'static>(
    pool: &OffloadPool,
    home: &Sender,
    work: impl FnOnce() -> T + Send + 'static,
) -> Offload<T> {
    let key = PLACES.with_borrow_mut(|places| places.insert(Place::Waiting(None)));
    let offload = Offload { key, result: PhantomData };
    let home = home.clone();
    let job = move || {
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = result.map_err(|panic| Error::Panicked { message: panic_message(&*panic) });
        // Refused by a shard that stops: the result comes back with the refusal, and is dropped here.
        let _ = home.post_reply(move || deliver(key, result));
    };
    if let Err(rejected) = pool.submit(job) {
        let error = match rejected.reason {
            RejectReason::Full => Error::LimitReached { limit: "offload queue" },
            RejectReason::Stopping => Error::Stopping,
        };
        deliver::<T>(key, Err(error));
    }
    offload
}

/// Looks a host up (getaddrinfo(3)) on the pool, so that a resolver that hangs holds up one pool thread and no
/// shard. An address in digits is answered the same way.
pub(crate) async fn resolve(
    pool: &OffloadPool,
    home: &Sender,
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>> {
    let name = host.to_owned();
    let looked_up = offload(pool, home, move || (name.as_str(), port).to_socket_addrs().map(Vec::from_iter));
    looked_up.await?.map_err(|error| Error::kernel(format!("resolve {host}"), error))
}

/// Where a result is waited for.
enum Place {
    Waiting(Option<Waker>),
    Done(Box<dyn Any>),
}

thread_local! {
    static PLACES: RefCell<Table<Place>> = const { RefCell::new(Table::new()) };
}

/// Puts a result into its place, if somebody still waits there. Runs on the shard.
fn deliver<T: 'static>(key: Key, result: Result<T>) {
    let mut result = Place::Done(Box::new(result));
    // Swapped, so that a result that nobody waits for any more is dropped with nothing borrowed: its destructor may
    // offload again.
    PLACES.with_borrow_mut(|places| {
        if let Some(place) = places.get_mut(key) {
            std::mem::swap(place, &mut result);
        }
    });
    if let Place::Waiting(Some(waker)) = result {
        waker.wake();
    }
}

/// The result of offloaded work, to be awaited on the thread that asked for it.
#[derive(Debug)]
#[must_use = "the result is dropped if nobody waits for it"]
pub(crate) struct Offload<T> {
    key: Key,
    /// Bound to its thread: the place is there.
    result: PhantomData<Rc<T>>,
}

impl<T: 'static> Future for Offload<T> {
    type Output = Result<T>;

    /// # Panics
    /// If it is polled again after it gave the result.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let waker = context.waker().clone();
        // What was in the place comes out, so that the waker before this one is dropped with nothing borrowed.
        let before = PLACES.with_borrow_mut(|places| {
            match places.get_mut(self.key).expect("an Offload is not polled after its result") {
                place @ Place::Waiting(_) => Some(std::mem::replace(place, Place::Waiting(Some(waker)))),
                Place::Done(_) => places.remove(self.key),
            }
        });
        match before {
            Some(Place::Done(result)) => {
                Poll::Ready(*result.downcast().expect("the place of a result holds that result"))
            }
            _ => Poll::Pending,
        }
    }
}

impl<T> Drop for Offload<T> {
    fn drop(&mut self) {
        // Taken out first and dropped after: a result's destructor may offload again. At the end of the thread the
        // table may be gone already.
        let place = PLACES.try_with(|places| places.borrow_mut().remove(self.key));
        drop(place);
    }
}

#[cfg(test)]
#[path = "offload_tests.rs"]
mod tests;
