//! The one way into a shard: a push list that any thread may add to and only the shard takes from.
//!
//! Neighbours: `inbox/wake.rs` (the eventfd), the drivers (they read the eventfd), `shard.rs` (drains and parks),
//! `tasks` and `offload` (post replies). It will not say what a message does, and it asks nobody for the time.
//!
//! # The word
//!
//! Everything that threads agree on is in one atomic pointer, `head`:
//!
//! | value | meaning | who may put it there |
//! |---|---|---|
//! | null | the shard is awake, no mail | the shard |
//! | `ASLEEP` | the shard is asleep or about to sleep, no mail | the shard, in place of null |
//! | `CLOSED` | the end: no mail is taken any more | the shard, for ever |
//! | a message | the newest message; each points to the one before it | a sender, in place of anything but `CLOSED` |
//!
//! A sender that replaces `ASLEEP`, and only that one, writes the eventfd: one write per sleep at most. The shard
//! sleeps only if it replaced null by `ASLEEP`, so mail that came earlier makes it stay awake, and mail that comes
//! later meets `ASLEEP`. All of this is one location, where threads always agree on the order of changes: a lost
//! wake is impossible whatever the memory model, and no `SeqCst` is needed.
//!
//! # Who may touch a message when
//!
//! Until the compare-and-swap that publishes it succeeds, a message belongs to its sender alone (`next` is written
//! then). Release on that swap and Acquire on the shard's swap hand it over; as every change of `head` is a
//! read-modify-write, one Acquire covers all messages of the list. From then on it belongs to the shard alone.
//! Nobody takes a single message out of the shared list, so a recycled address (ABA) does no harm.
#![allow(unsafe_code, reason = "an intrusive list shared between threads, model-checked by loom")]

// The path is spelt out because `tests/loom.rs` builds this file as a module of its own.
#[path = "inbox/wake.rs"]
mod wake;

use crate::sync::{Arc, AtomicPtr, AtomicUsize, Ordering};
use std::{
    any::Any,
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};
pub(crate) use wake::WakeFd;

/// What a panic carried.
pub(crate) type PanicPayload = Box<dyn Any + Send>;

/// What travels to a shard. A closure is one; a type of its own is where the task must come back as it was.
pub(crate) trait Parcel: Send + 'static {
    /// Runs on the shard.
    fn run(self);
}

impl<F: FnOnce() + Send + 'static> Parcel for F {
    fn run(self) {
        self();
    }
}

/// A task that was not taken, given back.
pub(crate) struct Rejected<F> {
    /// The task, as it was.
    pub(crate) task: F,
    /// Why it was not taken.
    pub(crate) reason: RejectReason,
}

/// Why a task was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// The queue holds as many as it may. Later it may take more.
    Full,
    /// The receiver is stopping. It will take no more.
    Stopping,
}

impl<F> fmt::Debug for Rejected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", &self.reason).finish_non_exhaustive()
    }
}

/// An inbox for at most `capacity` posted messages (replies are not counted), whose sleeping owner `wake` wakes.
pub(crate) fn channel(capacity: usize, wake: Arc<WakeFd>) -> (Sender, Inbox) {
    let shared = Arc::new(Shared {
        head: AtomicPtr::new(ptr::null_mut()),
        posted: AtomicUsize::new(0),
        replies: AtomicUsize::new(0),
        rejected: AtomicUsize::new(0),
        capacity,
        wake,
        #[cfg(inbox_mutant = "separate_flag")]
        asleep: AtomicUsize::new(0),
    });
    let inbox = Inbox {
        shared: Arc::clone(&shared),
        first: Cell::new(ptr::null_mut()),
        closed: Cell::new(false),
        sleeps: Cell::new(0),
        high_water: Cell::new(0),
    };
    (Sender { shared }, inbox)
}

struct Shared {
    head: AtomicPtr<Header>,
    /// Posted messages that have not started.
    posted: AtomicUsize,
    /// Replies that have not started.
    replies: AtomicUsize,
    rejected: AtomicUsize,
    capacity: usize,
    wake: Arc<WakeFd>,
    #[cfg(inbox_mutant = "separate_flag")]
    asleep: AtomicUsize,
}

/// No message has this address, nor the next: messages are aligned.
const ASLEEP: *mut Header = ptr::without_provenance_mut(1);
const CLOSED: *mut Header = ptr::without_provenance_mut(2);

fn is_message(head: *mut Header) -> bool {
    !head.is_null() && head != ASLEEP && head != CLOSED
}

#[cfg(not(inbox_mutant = "relaxed_push"))]
const PUBLISH: Ordering = Ordering::Release;
#[cfg(inbox_mutant = "relaxed_push")]
const PUBLISH: Ordering = Ordering::Relaxed;

/// The front of every message.
#[repr(C, align(8))]
struct Header {
    /// The message posted before this one, or null.
    next: *mut Header,
    /// Runs or drops the message and frees it.
    finish: unsafe fn(*mut Header, Finish),
    class: Class,
}

#[derive(Clone, Copy)]
enum Finish {
    Run,
    Drop,
}

#[derive(Clone, Copy)]
enum Class {
    Posted,
    Reply,
}

/// One allocation: the header, then the task. `repr(C)`: a pointer to the header is a pointer to the message.
#[repr(C)]
struct Message<F> {
    header: Header,
    task: F,
}

/// Runs or drops the task of a message; its memory is free before the task starts.
///
/// # Safety
/// `message` came from `Box::into_raw` of a `Box<Message<F>>` and nobody uses it any more.
unsafe fn finish<F: Parcel>(message: *mut Header, how: Finish) {
    // SAFETY: the caller's promise; `repr(C)` puts the header at the message's own address.
    let message = unsafe { Box::from_raw(message.cast::<Message<F>>()) };
    let Message { task, .. } = *message;
    match how {
        Finish::Run => task.run(),
        Finish::Drop => drop(task),
    }
}

/// The sending end, for any thread.
#[derive(Clone)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
}

impl Sender {
    /// Queues `task` to run on the shard. Messages of one sender run in the order in which they were posted.
    pub(crate) fn post<F: Parcel>(&self, task: F) -> Result<(), Rejected<F>> {
        let shared = &*self.shared;
        if shared.posted.fetch_add(1, Ordering::Relaxed) >= shared.capacity {
            let reason = self.take_back(Class::Posted, RejectReason::Full);
            return Err(Rejected { task, reason });
        }
        self.push(task, Class::Posted)
    }

    /// Queues an answer to work that is itself bounded: never [`RejectReason::Full`].
    pub(crate) fn post_reply<F: Parcel>(&self, task: F) -> Result<(), Rejected<F>> {
        self.shared.replies.fetch_add(1, Ordering::Relaxed);
        self.push(task, Class::Reply)
    }

    /// Messages waiting, of both classes; a moment's view.
    pub(crate) fn queued(&self) -> usize {
        self.shared.queued()
    }

    /// Whether the inbox takes no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.head.load(Ordering::Relaxed) == CLOSED
    }

    fn push<F: Parcel>(&self, task: F, class: Class) -> Result<(), Rejected<F>> {
        let header = Header { next: ptr::null_mut(), finish: finish::<F>, class };
        let message = Box::into_raw(Box::new(Message { header, task }));
        let mut head = self.shared.head.load(Ordering::Relaxed);
        loop {
            if head == CLOSED {
                // SAFETY: `message` is from `into_raw` above and was not published.
                let message = unsafe { Box::from_raw(message) };
                let reason = self.take_back(class, RejectReason::Stopping);
                return Err(Rejected { task: message.task, reason });
            }
            let next = if is_message(head) { head } else { ptr::null_mut() };
            // SAFETY: not published yet, so this thread alone reaches the message.
            unsafe { (*message).header.next = next };
            match self.shared.head.compare_exchange_weak(head, message.cast(), PUBLISH, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.shared.wake_if_asleep(head);
        Ok(())
    }

    fn take_back(&self, class: Class, reason: RejectReason) -> RejectReason {
        self.shared.count_out(class);
        self.shared.rejected.fetch_add(1, Ordering::Relaxed);
        reason
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl Shared {
    fn queued(&self) -> usize {
        self.posted.load(Ordering::Relaxed) + self.replies.load(Ordering::Relaxed)
    }

    fn count_out(&self, class: Class) {
        match class {
            Class::Posted => self.posted.fetch_sub(1, Ordering::Relaxed),
            Class::Reply => self.replies.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// The sender's half of the park word: it replaced `old`.
    #[cfg(not(any(inbox_mutant = "wake_on_null", inbox_mutant = "separate_flag")))]
    fn wake_if_asleep(&self, old: *mut Header) {
        if old == ASLEEP {
            self.wake.wake();
        }
    }

    /// The shard's half: whether it may sleep. Relaxed is enough, as nothing but the word itself is handed over.
    #[cfg(not(inbox_mutant = "separate_flag"))]
    fn fall_asleep(&self) -> bool {
        self.head.compare_exchange(ptr::null_mut(), ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Mutant: the wrong sender writes.
    #[cfg(inbox_mutant = "wake_on_null")]
    fn wake_if_asleep(&self, old: *mut Header) {
        if old.is_null() {
            self.wake.wake();
        }
    }

    /// Mutant: the sleeper is announced in a word of its own, with no fence between the two words.
    #[cfg(inbox_mutant = "separate_flag")]
    fn wake_if_asleep(&self, _old: *mut Header) {
        if self.asleep.load(Ordering::Acquire) == 1 && self.asleep.swap(0, Ordering::AcqRel) == 1 {
            self.wake.wake();
        }
    }

    #[cfg(inbox_mutant = "separate_flag")]
    fn fall_asleep(&self) -> bool {
        self.asleep.store(1, Ordering::Release);
        self.head.load(Ordering::Acquire).is_null()
    }
}

/// The receiving end, owned by the shard. All of it takes `&self`, so that a running message may look at it.
pub(crate) struct Inbox {
    shared: Arc<Shared>,
    /// Messages taken out of the shared list and not yet run, oldest first.
    first: Cell<*mut Header>,
    closed: Cell<bool>,
    sleeps: Cell<u64>,
    high_water: Cell<usize>,
}

// SAFETY: the messages behind `first` are `Send` tasks, and whoever has the inbox alone reaches them.
unsafe impl Send for Inbox {}

impl Inbox {
    /// Runs up to `budget` messages, oldest first, and gives how many ran; what is left runs next time. A panic
    /// ends its own message only; `on_panic` gets it.
    pub(crate) fn drain(&self, budget: usize, on_panic: &mut dyn FnMut(PanicPayload)) -> usize {
        self.high_water.set(self.high_water.get().max(self.shared.queued()));
        let mut ran = 0;
        let mut may_take = true;
        while ran < budget {
            let Some(message) = self.pop() else {
                if !may_take || !self.take_mail() {
                    break;
                }
                may_take = false;
                continue;
            };
            ran += 1;
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| message.finish(Finish::Run))) {
                on_panic(panic);
            }
        }
        ran
    }

    /// Asks to sleep. True: nothing is here, and the next message will write the eventfd (a closed inbox gets none).
    /// False: there is mail.
    #[must_use]
    pub(crate) fn park(&self) -> bool {
        if self.closed.get() {
            return self.first.get().is_null();
        }
        let may_sleep = self.first.get().is_null() && self.shared.fall_asleep();
        if may_sleep {
            self.sleeps.set(self.sleeps.get() + 1);
        }
        may_sleep
    }

    /// Awake again, whatever the reason: from here on no message writes the eventfd.
    pub(crate) fn unpark(&self) {
        // The exchange fails if mail came (the word says "awake" already) or after `close`.
        let _ =
            self.shared.head.compare_exchange(ASLEEP, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether no message waits; a moment's view.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.get().is_null() && !is_message(self.shared.head.load(Ordering::Relaxed))
    }

    /// The end: later posts are rejected with [`RejectReason::Stopping`]. Mail that is inside can still be drained;
    /// dropping the inbox drops it. Close it last: results and wakes from other threads come this way too.
    pub(crate) fn close(&self) {
        if !self.closed.replace(true) {
            let head = self.shared.head.swap(CLOSED, Ordering::Acquire);
            self.append(head);
        }
    }

    /// Drops the mail that is inside, unrun: after [`Inbox::close`], as part of the end.
    pub(crate) fn discard(&self) {
        while let Some(mail) = self.pop() {
            // What a dropped task's destructor panics with has no one to go to; the others are dropped all the same.
            let _ = catch_unwind(AssertUnwindSafe(|| mail.finish(Finish::Drop)));
        }
    }

    /// Messages waiting, of both classes; a moment's view.
    pub(crate) fn queued(&self) -> usize {
        self.shared.queued()
    }

    /// The most messages that were waiting when the shard came to look, those just being rejected included.
    pub(crate) fn high_water(&self) -> usize {
        self.high_water.get()
    }

    /// How often a message was not taken, ever.
    pub(crate) fn rejected(&self) -> usize {
        self.shared.rejected.load(Ordering::Relaxed)
    }

    /// How often [`Inbox::park`] said yes.
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.get()
    }

    /// How often the eventfd was written: never more than [`Inbox::sleeps`], if only the inbox writes it.
    pub(crate) fn wakes(&self) -> u64 {
        self.shared.wake.wakes()
    }

    /// Takes the shared list over. False if there was nothing.
    fn take_mail(&self) -> bool {
        if self.closed.get() || self.shared.head.load(Ordering::Relaxed).is_null() {
            return false;
        }
        let head = self.shared.head.swap(ptr::null_mut(), Ordering::Acquire);
        self.append(head);
        is_message(head)
    }

    /// Puts a list, newest first, behind the messages that were taken earlier.
    fn append(&self, newest: *mut Header) {
        if !is_message(newest) {
            return;
        }
        let (mut oldest_first, mut node) = (ptr::null_mut(), newest);
        while !node.is_null() {
            // SAFETY: taken with Acquire, so the message is whole, live, and this thread's alone.
            let header = unsafe { &mut *node };
            let next = std::mem::replace(&mut header.next, oldest_first);
            oldest_first = node;
            node = next;
        }
        let mut last = self.first.get();
        if last.is_null() {
            return self.first.set(oldest_first);
        }
        loop {
            // SAFETY: messages behind `first` are live and this thread's alone.
            let header = unsafe { &mut *last };
            if header.next.is_null() {
                return header.next = oldest_first;
            }
            last = header.next;
        }
    }

    fn pop(&self) -> Option<Mail> {
        let message = self.first.get();
        if message.is_null() {
            return None;
        }
        // SAFETY: messages behind `first` are live and this thread's alone.
        let header = unsafe { message.as_ref() }?;
        self.first.set(header.next);
        self.shared.count_out(header.class);
        Some(Mail(message))
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.close();
        self.discard();
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("queued", &self.queued()).finish_non_exhaustive()
    }
}

/// One message that was taken out of every list.
struct Mail(*mut Header);

impl Mail {
    fn finish(self, how: Finish) {
        // SAFETY: the message is in no list any more, so it is live and this value is its only owner.
        let finish = unsafe { &*self.0 }.finish;
        // SAFETY: as above; `finish` was made for this message's type, and `self` is used up.
        unsafe { finish(self.0, how) }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "inbox/tests.rs"]
mod tests;
