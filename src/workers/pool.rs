//! The threads of the pool and its end. The queue is bounded and a full one refuses: the sender gets the job back at
//! once, and the exchange behind it ends with `Overload` (L-24). It never blocks a sender.

use super::job::{Figures, Job, Message, PoolSnapshot};
use crate::exchange::{WorkerJob, Workers};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How a pool is made.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Threads; at least one.
    pub threads: usize,
    /// Jobs that may wait; at least one.
    pub queue_max: usize,
    /// Threads are called `NAME-0`, `NAME-1`, …; Linux shows the first 15 bytes.
    pub name: String,
}

impl Default for PoolOptions {
    /// Four threads for each core, as jobs are there to wait; sixteen waiting jobs for each thread.
    fn default() -> Self {
        let threads = 4 * thread::available_parallelism().map_or(1, usize::from);
        PoolOptions { threads, queue_max: 16 * threads, name: "worker".to_owned() }
    }
}

/// What [`WorkerPool::close`] found at the end of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Jobs that still ran: their threads end when the jobs do.
    pub not_ended: usize,
    /// Jobs that were still waiting and will never run.
    pub dropped: usize,
}

/// A bounded, observable pool of threads for work that blocks. Clones are handles on the same pool; when the last is
/// dropped the waiting jobs are run and the threads end.
#[derive(Clone)]
pub struct WorkerPool {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    sender: Sender<Message>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Hears nothing, and is disconnected when the last worker has ended.
    ended: Receiver<()>,
}

/// What workers hold: not the sending half, so that a pool without handles ends.
struct Shared {
    figures: Figures,
    receiver: Receiver<Message>,
}

impl WorkerPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// What the system answers when a thread cannot be had.
    pub fn new(options: &PoolOptions) -> io::Result<Self> {
        let (count, queue_max) = (options.threads.max(1), options.queue_max.max(1));
        // Room for every job with a place, and for the end of each thread: a send never fails for lack of room.
        let (sender, receiver) = crossbeam_channel::bounded(queue_max + count);
        let (alive, ended) = crossbeam_channel::bounded(0);
        let shared = Arc::new(Shared { figures: Figures::new(queue_max), receiver });
        let pool = WorkerPool { inner: Arc::new(Inner { shared, sender, threads: Mutex::default(), ended }) };
        for number in 0..count {
            let (shared, alive) = (pool.inner.shared.clone(), alive.clone());
            let body = move || work(&shared, &alive);
            // On failure the pool is dropped here, and with it the threads that were started.
            let thread = thread::Builder::new().name(format!("{}-{number}", options.name)).spawn(body)?;
            pool.inner.shared.figures.threads.fetch_add(1, Ordering::AcqRel);
            pool.inner.threads().push(thread);
        }
        Ok(pool)
    }

    /// The figures now.
    pub fn snapshot(&self) -> PoolSnapshot {
        self.inner.shared.figures.snapshot()
    }

    /// Takes no more jobs, runs those that wait, and ends the threads; at most for `within`. What has not begun by
    /// then is dropped, what runs is left alone: a thread cannot be ended from outside. Not to be called from a job.
    pub fn close(&self, within: Duration) -> Drained {
        let deadline = Instant::now() + within;
        self.inner.begin_closing();
        let in_time = self.inner.ended.recv_deadline(deadline) == Err(RecvTimeoutError::Disconnected);
        let drained = if in_time { Drained::default() } else { self.inner.give_up() };
        for thread in self.inner.threads().drain(..) {
            if in_time || thread.is_finished() {
                // A worker ends without a panic: jobs are fenced.
                let _ = thread.join();
            }
        }
        drained
    }
}

#[cfg(test)]
impl WorkerPool {
    /// Tells, by being disconnected, that all threads have ended.
    pub(super) fn inner_ended(&self) -> Receiver<()> {
        self.inner.ended.clone()
    }
}

impl Workers for WorkerPool {
    fn start(&self, run: WorkerJob) -> Result<(), WorkerJob> {
        if !self.inner.shared.figures.reserve() {
            return Err(run);
        }
        let message = Message::Job(Job { run, queued_at: Instant::now() });
        match self.inner.sender.try_send(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                unreachable!("a place was taken, and the pool holds the other end")
            }
        }
    }
}

impl Inner {
    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes no more jobs, and lets each thread know, behind all jobs that wait.
    fn begin_closing(&self) {
        let figures = &self.shared.figures;
        if !figures.close() {
            return;
        }
        // A sender that had its place before the gate closed is between taking it and sending: a few instructions.
        // Asked in this order, as many messages as places mean that nobody is.
        let nobody_sends = || {
            let queued = figures.queued();
            self.sender.len() >= queued
        };
        while !nobody_sends() {
            thread::yield_now();
        }
        self.send_ends(figures.threads.load(Ordering::Acquire));
    }

    fn send_ends(&self, count: usize) {
        for _ in 0..count {
            // There is room: it was kept for this.
            let _ = self.sender.try_send(Message::End);
        }
    }

    /// Drops the jobs that wait and counts those that run.
    fn give_up(&self) -> Drained {
        let figures = &self.shared.figures;
        let (mut dropped, mut ends) = (0, 0);
        while let Ok(message) = self.shared.receiver.try_recv() {
            match message {
                Message::Job(job) => {
                    figures.release();
                    figures.dropped.fetch_add(1, Ordering::Relaxed);
                    dropped += 1;
                    drop_fenced(job);
                }
                Message::End => ends += 1,
            }
        }
        self.send_ends(ends);
        // A job that has left the queue and is not counted as running yet still has its place.
        let not_ended = (figures.active() + figures.queued()).min(figures.threads.load(Ordering::Acquire));
        Drained { not_ended, dropped }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.begin_closing();
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = &self.inner.shared.figures;
        f.debug_struct("WorkerPool")
            .field("active", &figures.active())
            .field("queued", &figures.queued())
            .finish_non_exhaustive()
    }
}

/// The life of a worker: it ends when it is told to, or when nobody can start a job any more.
fn work(shared: &Shared, _alive: &Sender<()>) {
    while let Ok(Message::Job(job)) = shared.receiver.recv() {
        run(shared, job);
    }
    shared.figures.threads.fetch_sub(1, Ordering::AcqRel);
}

/// Runs one job inside a fence: a panic ends the job and not the thread.
fn run(shared: &Shared, job: Job) {
    // In this order there is no moment at which the job is counted nowhere.
    let _active = shared.figures.begin(job.queued_at.elapsed());
    shared.figures.release();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(job.run)) {
        shared.figures.count_panic();
        tracing::error!(thread = thread::current().name(), "a job panicked; its thread goes on");
        drop_fenced(panic);
    }
}

/// Drops what a user made; a panic in its `drop` ends here.
fn drop_fenced<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
