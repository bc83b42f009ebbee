//! Shards in a simulated world: no thread, no socket, no sleep. Time moves from event to event, everything random
//! comes from one seed, so a failure is replayed by its seed.
//!
//! ```
//! use shards::{net::{Listener, Stream}, testing::Simulation};
//! # use shards::{Shard, net::{AcceptEvents, Socket}};
//! # use std::{rc::Rc, time::Duration};
//! struct Echo;
//! impl AcceptEvents for Echo {
//!     fn on_accepted(&self, shard: &Shard, socket: Socket) {
//!         let stream = Stream::new(socket);
//!         shard.spawn(async move {
//!             while let Ok(Some(lease)) = stream.read().await {
//!                 if stream.write_all(lease.to_vec()).await.is_err() {
//!                     break;
//!                 }
//!             }
//!         });
//!     }
//! }
//! let world = Simulation::new(1);
//! let listener = world.on(0, |shard| Listener::bind(shard, &"127.0.0.1:80".parse().unwrap(), Rc::new(Echo)).unwrap());
//! let client = world.connect(80);
//! client.write(b"ping");
//! assert!(world.run_until(Duration::from_secs(1), || client.received() == b"ping"));
//! # drop(listener);
//! ```

pub use crate::driver::{End, SimClient, SimFaults};
use crate::{
    clock::Clock,
    driver::{Driver, DriverOptions, SimDriver, SimNet},
    handle::{ShardHandle, ShardId},
    inbox::{self, WakeFd},
    shard::{Budgets, Parts, Shard},
    sync::Arc,
};
use std::{fmt, time::Duration};

/// Shards on one simulated network, driven by the test.
pub struct Simulation {
    net: SimNet,
    clock: Clock,
    shards: Vec<Shard>,
}

/// Turns without the clock moving after which the shards are taken to be in an endless loop.
const TURNS_MAX: usize = 1_000_000;

impl Simulation {
    /// One shard, no faults.
    pub fn new(seed: u64) -> Self {
        Simulation::with(seed, 1, SimFaults::default())
    }

    /// Several shards on one thread, and faults.
    pub fn with(seed: u64, shards: usize, faults: SimFaults) -> Self {
        let clock = Clock::simulated();
        let net = SimNet::new(seed, clock.clone(), faults);
        let shards = (0..shards).map(|index| simulated_shard(index, &net, &clock)).collect();
        Simulation { net, clock, shards }
    }

    /// A shard of the world.
    pub fn shard(&self, index: usize) -> &Shard {
        &self.shards[index]
    }

    /// Runs code as if on the shard's thread, outside any callback.
    pub fn on<R>(&self, index: usize, f: impl FnOnce(&Shard) -> R) -> R {
        let shard = &self.shards[index];
        shard.entered(|| f(shard))
    }

    /// A client that connects to a port of the world.
    pub fn connect(&self, port: u16) -> SimClient {
        self.net.connect(port)
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, change: impl FnOnce(&mut SimFaults)) {
        self.net.set_faults(change);
    }

    /// Simulated time since the beginning.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Moves time without running anything: what a shard sees that was busy elsewhere (or suspended) so long.
    pub fn skip(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// One turn of every shard.
    pub fn turn(&self) {
        self.net.pump();
        for shard in &self.shards {
            shard.entered(|| shard.turn(false)).expect("the simulated driver does not fail");
        }
    }

    /// Runs everything that is due, without moving time.
    ///
    /// # Panics
    /// When the shards never come to rest.
    pub fn settle(&self) {
        for _ in 0..TURNS_MAX {
            self.turn();
            let due = self.next_event().is_some_and(|at| at <= self.now());
            if !due && self.shards.iter().all(Shard::is_quiet) {
                return;
            }
        }
        panic!("the shards do not come to rest: something wakes itself for ever");
    }

    /// Runs until `done` holds or `within` of simulated time is over. Gives whether it held.
    pub fn run_until(&self, within: Duration, mut done: impl FnMut() -> bool) -> bool {
        let deadline = self.now() + within;
        loop {
            self.settle();
            if done() {
                return true;
            }
            match self.next_event().filter(|at| *at <= deadline) {
                Some(at) => self.clock.advance(at.saturating_sub(self.now())),
                None => {
                    self.clock.advance(deadline.saturating_sub(self.now()));
                    self.settle();
                    return done();
                }
            }
        }
    }

    /// Runs for this much simulated time.
    pub fn run_for(&self, time: Duration) {
        self.run_until(time, || false);
    }

    /// Sockets that are open on either side.
    pub fn open_sockets(&self) -> usize {
        self.net.open_sockets()
    }

    fn next_event(&self) -> Option<Duration> {
        let timers = self.shards.iter().filter_map(Shard::next_timer);
        timers.map(|at| at + self.net.wake_delay()).chain(self.net.next_event()).min()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Nobody moves time while a shard is torn down: what is late comes now, and nothing else will be late.
        let mut late_by = Duration::ZERO;
        self.net.set_faults(|faults| late_by = std::mem::take(faults).late_by);
        self.clock.advance(late_by);
        for shard in self.shards.drain(..) {
            shard.clone().entered(|| shard.tear_down(Duration::from_secs(1)));
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.now()).field("shards", &self.shards).finish()
    }
}

fn simulated_shard(index: usize, net: &SimNet, clock: &Clock) -> Shard {
    let options = DriverOptions {
        submission_entries: 64,
        completion_entries: 256,
        buffers: 64,
        buffer_bytes: 4096,
        multishot_receive: true,
    };
    // Nothing sleeps here, so nobody writes to it; the inbox wants one all the same.
    let wake = Arc::new(WakeFd::new().expect("an eventfd for a simulated shard"));
    let (sender, inbox) = inbox::channel(1024, wake);
    Shard::new(Parts {
        handle: ShardHandle::new(ShardId(index as u16), sender),
        inbox,
        driver: Driver::Sim(Box::new(SimDriver::new(net, &options))),
        clock: clock.clone(),
        budgets: Budgets::default(),
        offload: None,
        siblings: Arc::default(),
    })
}
