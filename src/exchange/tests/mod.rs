//! A container of paper for the exchanges: scripted handlers, a wire that is a vector, simulated time.

mod bodies;
mod coordinators;
mod effects;
mod fault_rows;
mod faults;
mod foreign;
mod grid;
mod inside;
mod random;
mod rules;
mod throttle;
mod topic;
mod transitions;

use super::{
    Callback, DispatchType, Exchange, Exchanges, LifeCycleCounters, Outcome, Parcel, Post, Refusal,
    TableOptions, WorkerJob, Workers,
    request::{HeadHolder, Loan, Received},
    table::{Begin, Next},
};
use crate::{
    error::{EndReason, Result},
    http1::{HeadIndex, Parsed, parse},
    limits::Limits,
    routing::Handler,
};
use shards::Key;
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::{Arc, Mutex},
    thread::{self, ThreadId},
    time::Duration,
};

/// The inbox of the paper shard.
pub(super) struct Mailbox {
    home: ThreadId,
    parcels: Mutex<VecDeque<Parcel>>,
    refuse: Mutex<Option<Refusal>>,
}

impl Post for Mailbox {
    fn post(&self, parcel: Parcel) -> Result<(), (Parcel, Refusal)> {
        if let Some(refusal) = *self.refuse.lock().unwrap() {
            return Err((parcel, refusal));
        }
        self.parcels.lock().unwrap().push_back(parcel);
        Ok(())
    }

    fn is_current(&self) -> bool {
        thread::current().id() == self.home
    }
}

/// A pool whose jobs run when the test says so.
#[derive(Default)]
pub(super) struct Jobs {
    queue: Mutex<VecDeque<WorkerJob>>,
    full: Mutex<bool>,
}

impl Workers for Jobs {
    fn start(&self, job: WorkerJob) -> std::result::Result<(), WorkerJob> {
        if *self.full.lock().unwrap() {
            return Err(job);
        }
        self.queue.lock().unwrap().push_back(job);
        Ok(())
    }
}

impl Jobs {
    /// Runs all jobs on another thread.
    pub(super) fn run(&self) {
        let jobs: Vec<_> = self.queue.lock().unwrap().drain(..).collect();
        if jobs.is_empty() {
            return;
        }
        thread::spawn(move || jobs.into_iter().for_each(|job| job())).join().unwrap();
    }
}

/// What left for the client of one exchange.
#[derive(Debug, Default, Clone)]
pub(super) struct Wire {
    pub(super) heads: u32,
    pub(super) continues: u32,
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) finished: bool,
    pub(super) aborted: bool,
    pub(super) released: bool,
}

type Script = Rc<dyn Fn(&mut Exchange, Callback) -> Result<()>>;

pub(super) struct World {
    pub(super) exchanges: Rc<Exchanges>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) jobs: Arc<Jobs>,
    inner: Rc<Inner>,
}

#[derive(Default)]
struct Inner {
    now: Cell<Duration>,
    scripts: RefCell<HashMap<Key, Script>>,
    wires: RefCell<HashMap<Key, Wire>>,
    blocked: Cell<bool>,
    finishing: RefCell<Vec<Key>>,
    fresh: RefCell<HashMap<Key, HeadHolder>>,
    /// Callbacks that the exchanges have named.
    callbacks: Rc<RefCell<Vec<&'static str>>>,
}

pub(super) const TASKS_MAX: u32 = 4;

impl World {
    pub(super) fn new() -> World {
        World::with_post(None)
    }

    /// A world whose parcels come another way than through the mailbox.
    pub(super) fn with_post(post: Option<Arc<dyn Post>>) -> World {
        let mailbox = Arc::new(Mailbox {
            home: thread::current().id(),
            parcels: Mutex::default(),
            refuse: Mutex::default(),
        });
        let jobs = Arc::new(Jobs::default());
        let inner = Rc::new(Inner::default());
        let (driver, names) = (inner.clone(), inner.callbacks.clone());
        let exchanges = Exchanges::new(TableOptions {
            shard: 0,
            post: post.unwrap_or_else(|| mailbox.clone()),
            workers: Some(jobs.clone()),
            tasks_max: TASKS_MAX,
            sleeps_max: 8,
            marks: Default::default(),
            input_window: 64 * 1024,
            unacknowledged: Box::new(|_| None),
            peer: Box::new(|_| None),
            on_ready: Box::new(move |exchanges| driver.drive_ready(exchanges)),
            name_callback: Box::new(move |name| names.borrow_mut().push(name)),
        });
        World { exchanges, mailbox, jobs, inner }
    }

    /// Begins an exchange without running anything.
    pub(super) fn begin<O: Outcome>(
        &self,
        begin: Begin,
        script: impl Fn(&mut Exchange, Callback) -> O + 'static,
    ) -> Key {
        let key = self.exchanges.begin(begin);
        let script: Script = Rc::new(move |x, callback| script(x, callback).into_result());
        self.inner.scripts.borrow_mut().insert(key, script);
        self.inner.wires.borrow_mut().insert(key, Wire::default());
        self.inner.fresh.borrow_mut().insert(key, head());
        key
    }

    /// Begins an exchange and runs it as far as it goes.
    pub(super) fn start<O: Outcome>(
        &self,
        begin: Begin,
        script: impl Fn(&mut Exchange, Callback) -> O + 'static,
    ) -> Key {
        let key = self.begin(begin, script);
        self.drive(key);
        key
    }

    /// A plain request to a handler.
    pub(super) fn get<O: Outcome>(&self, handler: impl Fn(&mut Exchange) -> O + 'static) -> Key {
        self.get_with(handler)
    }

    /// The same for any kind of handler.
    pub(super) fn get_with(&self, handler: impl Handler + 'static) -> Key {
        self.start(Begin::default(), move |x, callback| match callback {
            Callback::Handler(DispatchType::Error) => write!(x, "error").into_result(),
            _ => handler.handle(x),
        })
    }

    pub(super) fn drive(&self, key: Key) {
        self.inner.drive(&self.exchanges, key);
        self.inner.drive_ready(&self.exchanges);
    }

    /// One turn of the shard: inbox, then timers (L-8).
    pub(super) fn turn(&self) {
        loop {
            let parcel = self.mailbox.parcels.lock().unwrap().pop_front();
            let Some(parcel) = parcel else { break };
            parcel.open();
        }
        self.inner.drive_ready(&self.exchanges);
        let now = self.inner.now.get();
        for (key, _) in self.exchanges.keys() {
            if self.exchanges.next_wake(key).is_some_and(|at| at <= now) {
                self.exchanges.timer_fired(key);
                self.drive(key);
            }
        }
    }

    pub(super) fn advance(&self, milliseconds: u64) {
        let now = self.inner.now.get() + Duration::from_millis(milliseconds);
        self.inner.now.set(now);
        self.exchanges.set_now(now);
    }

    /// Reports something to the exchange and drives it.
    pub(super) fn event(&self, key: Key, report: impl FnOnce(&Exchanges)) {
        report(&self.exchanges);
        self.drive(key);
    }

    /// The client takes no bytes, or takes them again.
    pub(super) fn set_blocked(&self, blocked: bool) {
        self.inner.blocked.set(blocked);
        if !blocked {
            for (key, _) in self.exchanges.keys() {
                self.inner.pump(&self.exchanges, key);
                self.drive(key);
            }
        }
    }

    /// The blocked client takes this many bytes of the body.
    pub(super) fn drain(&self, key: Key, bytes: usize) {
        let mut taken = Vec::new();
        while taken.len() < bytes {
            let rest = bytes - taken.len();
            let chunk = self.exchanges.with_output(key, |_, output| output.take_chunk(rest)).unwrap();
            taken.extend_from_slice(chunk.expect("so many bytes wait").as_slice());
        }
        let mut wires = self.inner.wires.borrow_mut();
        let wire = wires.get_mut(&key).unwrap();
        wire.body.extend_from_slice(&taken);
        let first = wire.heads == 0;
        wire.heads = 1;
        drop(wires);
        if first {
            self.exchanges.head_committed(key);
        }
        self.event(key, |e| e.accepted(key, bytes as u64));
    }

    /// For long runs: what left for exchanges that are over is not kept.
    pub(super) fn forget_wires(&self) {
        self.inner.wires.borrow_mut().retain(|_, wire| !wire.released);
    }

    pub(super) fn wire(&self, key: Key) -> Wire {
        self.inner.wires.borrow()[&key].clone()
    }

    pub(super) fn body(&self, key: Key) -> String {
        String::from_utf8(self.wire(key).body).unwrap()
    }

    pub(super) fn counters(&self) -> LifeCycleCounters {
        self.exchanges.counters()
    }

    pub(super) fn ended(&self, reason: EndReason) -> u64 {
        self.counters().ended(reason)
    }

    /// Everything is back at its beginning.
    pub(super) fn assert_at_rest(&self, what: &str) {
        let c = self.counters();
        assert_eq!(c.ended_total() + c.live, c.started, "{what}: sum of ends + live = started");
        assert_eq!(c.live, 0, "{what}: live");
        assert_eq!((c.sync_active, c.async_active), (0, 0), "{what}: active");
        assert_eq!((c.executor_active, c.executor_queued), (0, 0), "{what}: executor");
        assert!(self.exchanges.is_empty(), "{what}: a slot leaks");
        assert_eq!(self.exchanges.hub.depth.get(), 0, "{what}: a callback is still on the stack");
        assert!(self.mailbox.parcels.lock().unwrap().is_empty(), "{what}: a parcel waits");
        for core in self.exchanges.pool.borrow().iter() {
            assert_eq!(Rc::strong_count(core), 1, "{what}: somebody holds a pooled core");
        }
        for (key, wire) in self.inner.wires.borrow().iter() {
            assert!(wire.heads <= 1, "{what}: {key:?} has {} heads", wire.heads);
            assert!(wire.released, "{what}: {key:?} was not released");
            assert!(wire.finished != wire.aborted, "{what}: {key:?} {wire:?}");
        }
    }
}

impl Inner {
    fn drive_ready(&self, exchanges: &Exchanges) {
        while let Some((key, _)) = exchanges.next_ready() {
            self.drive(exchanges, key);
        }
    }

    fn drive(&self, exchanges: &Exchanges, key: Key) {
        while let Some(next) = exchanges.next_action(key) {
            match next {
                Next::Run(callback) => self.run(exchanges, key, callback),
                Next::ErrorDispatch(_) => self.run(exchanges, key, Callback::Handler(DispatchType::Error)),
                Next::SendContinue => self.wires.borrow_mut().get_mut(&key).unwrap().continues += 1,
                Next::Flush => self.pump(exchanges, key),
                Next::FinishResponse => {
                    self.finishing.borrow_mut().push(key);
                    self.pump(exchanges, key);
                }
                Next::DiscardInput => exchanges.input_ended(key),
                Next::AbortConnection => self.wires.borrow_mut().get_mut(&key).unwrap().aborted = true,
                Next::Timer => {}
                Next::Released => {
                    self.wires.borrow_mut().get_mut(&key).unwrap().released = true;
                    self.scripts.borrow_mut().remove(&key);
                    self.finishing.borrow_mut().retain(|other| *other != key);
                }
            }
        }
    }

    fn run(&self, exchanges: &Exchanges, key: Key, callback: Callback) {
        let script = self.scripts.borrow()[&key].clone();
        let fresh = self.fresh.borrow_mut().remove(&key);
        match fresh {
            Some(head) => {
                let back = exchanges.enter(key, head, |x| script(x, callback));
                assert!(matches!(back, HeadHolder::Loan(_)), "the loan comes back");
            }
            None => exchanges.enter_parked(key, |x| script(x, callback)),
        }
    }

    /// Moves what has been produced to the wire.
    fn pump(&self, exchanges: &Exchanges, key: Key) {
        if self.blocked.get() {
            return;
        }
        let mut body = Vec::new();
        let status = exchanges.with_output(key, |head, output| {
            while let Some(chunk) = output.take_chunk(1000) {
                body.extend_from_slice(chunk.as_slice());
            }
            head.status.as_u16()
        });
        let Some(status) = status else { return };
        let finished = self.finishing.borrow().contains(&key);
        let mut wires = self.wires.borrow_mut();
        let wire = wires.get_mut(&key).unwrap();
        assert!(!wire.finished && !wire.aborted, "nothing leaves after the end");
        if !exchanges.is_committed(key) {
            wire.heads += 1;
            wire.status = status;
            exchanges.head_committed(key);
        }
        wire.body.extend_from_slice(&body);
        wire.finished = finished;
        drop(wires);
        exchanges.accepted(key, body.len() as u64);
        if finished {
            self.finishing.borrow_mut().retain(|other| *other != key);
            exchanges.output_finished(key);
        }
    }
}

/// The head of a small request, on loan.
pub(super) fn head() -> HeadHolder {
    let bytes = b"POST /answer?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n".to_vec();
    let mut index = HeadIndex::default();
    let Ok(Parsed::Complete { head_len }) = parse(&bytes, &mut index, &Limits::DEFAULT) else {
        panic!("the head parses")
    };
    HeadHolder::Loan(Box::new(Loan { bytes: Received::gathered(bytes), head_len, index }))
}
