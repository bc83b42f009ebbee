//! Random schedules of the whole life cycle: many exchanges at once on one paper shard, whatever may happen to them
//! in whatever order. A failure prints its seed; `SHARDLET_SEED=n cargo test -p shardlet random_schedules` replays it,
//! `SHARDLET_SEEDS=n` runs n of them.

use super::*;
use crate::exchange::{
    AsyncContext, HandoffSender, Read, ReadListener, SlowClient, WaterMarks, asynchronous, handoff,
};
use bytes::Bytes;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// xorshift64*: small, and the same everywhere.
#[derive(Clone)]
struct Random(Rc<std::cell::Cell<u64>>);

impl Random {
    fn new(seed: u64) -> Random {
        Random(Rc::new(std::cell::Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn pick<T: Clone>(&self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.below(of.len() as u64) as usize].clone())
    }
}

/// What is kept outside the exchanges, each with the number of its exchange.
#[derive(Default)]
struct Tally {
    completes: Mutex<HashMap<u64, u32>>,
    /// Hooks of cancel tokens that were taken and have not run.
    hooks: AtomicI64,
    contexts: Mutex<Vec<(u64, AsyncContext)>>,
    senders: Mutex<Vec<HandoffSender<u64>>>,
    /// Calls of `with` that ran.
    calls: AtomicU64,
}

/// What any callback may do. The body of an exchange is only ever its own number.
fn act(random: &Random, x: &mut Exchange, number: u64, tally: &Arc<Tally>) -> Result<()> {
    assert!(!tally.completes.lock().unwrap().contains_key(&number), "a callback behind on_complete");
    match random.below(22) {
        0 | 1 => write!(x, "{number};")?,
        2 => write!(x, "{number};").and_then(|()| x.flush())?,
        3 | 4 => x.complete()?,
        5 => x.redispatch("/again")?,
        6 => x.set_timeout(Duration::from_millis(random.below(20))),
        7 => x.clear_timeout(),
        8 => {
            x.send_continue();
        }
        9 => {
            x.read()?;
        }
        10 => std::panic::resume_unwind(Box::new("asked for by the schedule")),
        11 => return Err(crate::error::Error::handler("asked for by the schedule")),
        12 => x.set_slow_client(SlowClient::DropOldest),
        13 => {
            x.start_async();
        }
        14 => {
            let context = x.context();
            send(&context, number, random.below(1 << 20));
            tally.contexts.lock().unwrap().push((number, context));
        }
        _ => return listen(random, x, number, tally),
    }
    Ok(())
}

/// The rest of it: what hears of something later.
fn listen(random: &Random, x: &mut Exchange, number: u64, tally: &Arc<Tally>) -> Result<()> {
    let (r, t) = (random.clone(), tally.clone());
    match random.below(6) {
        0 => x.set_read_listener(Reader { random: r, number, tally: t }),
        1 => x.set_write_listener(move |x: &mut Exchange| act(&r, x, number, &t)),
        2 => x.extend(Duration::from_millis(random.below(20))),
        3 => {
            let choice = random.below(1 << 20);
            // Refused when the pool is full: the exchange hears of it by `Overload`.
            let _ = x.start_async().start(move |context| send(&context, number, choice));
        }
        4 => {
            t.hooks.fetch_add(1, Relaxed);
            x.cancel_token().on_cancel(move |_| {
                t.hooks.fetch_sub(1, Relaxed);
            })?;
        }
        _ => tally.contexts.lock().unwrap().push((number, x.context().whole_exchange())),
    }
    Ok(())
}

/// Reads on, or stops reading, as the schedule says.
struct Reader {
    random: Random,
    number: u64,
    tally: Arc<Tally>,
}

impl ReadListener for Reader {
    fn on_data_available(&mut self, x: &mut Exchange) -> Result<()> {
        while self.random.below(4) > 0 && matches!(x.read()?, Read::Data(_)) {}
        act(&self.random, x, self.number, &self.tally)
    }

    fn on_all_data_read(&mut self, x: &mut Exchange) -> Result<()> {
        act(&self.random, x, self.number, &self.tally)
    }
}

/// A handler that waits: for a time, for a value from elsewhere, for a job of the pool, or for content.
async fn wait(random: Random, x: &mut Exchange, number: u64, tally: Arc<Tally>) -> Result<()> {
    match random.below(4) {
        0 => x.sleep(Duration::from_millis(random.below(10))).await?,
        1 => {
            let (sender, value) = handoff();
            tally.senders.lock().unwrap().push(sender);
            if let Some(value) = value.await {
                assert_eq!(value, VALUE, "what was sent");
            }
        }
        2 => {
            assert_eq!(x.blocking(|| VALUE).await?, VALUE, "what the job gave");
        }
        _ => while x.next_chunk().await?.is_some() {},
    }
    act(&random, x, number, &tally)?;
    write!(x, "{number};")
}

/// What jobs and hand-overs give.
const VALUE: u64 = 42;

/// A task whose further choices come from its own number: it may run on whatever turn.
fn send(context: &AsyncContext, number: u64, choice: u64) {
    let task = move |x: &mut Exchange| match choice % 4 {
        0 => x.complete(),
        1 => std::panic::resume_unwind(Box::new("asked for by the schedule")),
        2 => x.redispatch("/task"),
        _ => write!(x, "{number};"),
    };
    if choice.is_multiple_of(3) {
        let _ = context.dispatch(task);
    } else {
        let _ = context.executor().execute(task);
    }
}

fn script(
    random: &Random,
    number: u64,
    tally: &Arc<Tally>,
) -> impl Fn(&mut Exchange, Callback) -> Result<()> + use<> {
    let (random, tally) = (random.clone(), tally.clone());
    let told = std::cell::Cell::new(false);
    move |x, callback| {
        if !told.replace(true) {
            let told = tally.clone();
            x.on_complete(move |x, _| {
                assert!(x.complete().is_err(), "the end is over");
                *told.completes.lock().unwrap().entry(number).or_default() += 1;
            });
            x.set_water_marks(WaterMarks { high: 6, low: 2, limit: 1000 });
            let (r, t) = (random.clone(), tally.clone());
            x.on_timeout(move |x| act(&r, x, number, &t));
        }
        if x.cycle() > 3 || (callback == Callback::DoResponse && random.below(2) == 0) {
            return x.complete();
        }
        if matches!(callback, Callback::Handler(DispatchType::Request)) && random.below(3) == 0 {
            let (r, t) = (random.clone(), tally.clone());
            return asynchronous(async move |x: &mut Exchange| wait(r.clone(), x, number, t.clone()).await)
                .run(x);
        }
        if callback == Callback::DoRequest && random.below(2) == 0 {
            return x.service();
        }
        act(&random, x, number, &tally)
    }
}

fn happen(random: &Random, world: &World, key: Key, tally: &Arc<Tally>) {
    match random.below(20) {
        0 | 1 => world.turn(),
        2 => world.advance(random.below(10)),
        3 => world.event(key, |e| {
            let _ = e.input(key, Bytes::from("xyz"));
        }),
        4 => world.event(key, |e| e.input_ended(key)),
        5 => world.event(key, |e| e.input_failed(key, EndReason::BodyTimeout)),
        6 => world.event(key, |e| e.peer_finished(key)),
        7 => world.event(key, |e| e.peer_reset(key)),
        8 => world.set_blocked(true),
        9 => world.set_blocked(false),
        10 => world.event(key, |e| e.overloaded(key)),
        11 => world.event(key, |e| e.timer_fired(key)),
        12 => world.event(key, |e| e.output_failed(key, EndReason::WriteTimeout)),
        13 => world.event(key, |e| e.shutdown_forced(key, EndReason::Shutdown)),
        14 => world.jobs.run(),
        15 => *world.jobs.full.lock().unwrap() = random.below(2) == 0,
        16 => hand_over(random, world, tally),
        17 => call(random, world, tally),
        _ => {
            // The lock is not held while what is sent may run.
            let picked = random.pick(&tally.contexts.lock().unwrap());
            if let Some((number, context)) = picked {
                send(&context, number, random.below(1 << 20));
            }
        }
    }
}

/// A sender gives its value, or is dropped without.
fn hand_over(random: &Random, world: &World, tally: &Tally) {
    let sender = tally.senders.lock().unwrap().pop();
    let Some(sender) = sender else { return };
    if random.below(3) > 0 {
        let closed = sender.is_closed();
        assert_eq!(sender.send(VALUE).is_err(), closed, "it says what became of the value");
    }
    world.turn();
}

/// Code of the shard outside any callback: `with` runs its call at once and once, or says why not.
fn call(random: &Random, world: &World, tally: &Arc<Tally>) {
    let picked = random.pick(&tally.contexts.lock().unwrap());
    let Some((number, context)) = picked else { return };
    let ran = Rc::new(Cell::new(0));
    let (count, panics) = (ran.clone(), random.below(8) == 0);
    let result = context.with(move |x| {
        count.set(count.get() + 1);
        if panics {
            std::panic::resume_unwind(Box::new("asked for by the schedule"));
        }
        write!(x, "{number};").is_ok()
    });
    assert!(
        ran.get() == usize::from(result.is_ok()) || (panics && ran.get() == 1),
        "{result:?}, ran {}",
        ran.get()
    );
    tally.calls.fetch_add(ran.get() as u64, Relaxed);
    world.turn();
}

/// Runs a seed and gives the counters at its end, and how many calls of `with` ran.
fn run(seed: u64) -> (LifeCycleCounters, u64) {
    let what = format!("SHARDLET_SEED={seed}");
    let random = Random::new(seed);
    let world = World::new();
    let tally = Arc::new(Tally::default());
    let mut keys = Vec::new();
    for number in 0..20 {
        let begin = Begin {
            coordinated: random.below(3) == 0,
            has_body: random.below(2) == 0,
            expects_continue: random.below(4) == 0,
            ..Begin::default()
        };
        keys.push(world.start(begin, script(&random, number, &tally)));
        for _ in 0..random.below(8) {
            let key = keys[random.below(keys.len() as u64) as usize];
            happen(&random, &world, key, &tally);
            let c = world.counters();
            assert_eq!(c.ended_total() + c.live, c.started, "{what}");
        }
    }
    world.set_blocked(false);
    world.jobs.run();
    world.turn();
    for (key, _) in world.exchanges.keys() {
        world.event(key, |e| e.shutdown_forced(key, EndReason::Shutdown));
        world.event(key, |e| e.input_ended(key));
    }
    world.turn();
    world.assert_at_rest(&what);
    let completes = tally.completes.lock().unwrap();
    assert!(completes.values().all(|count| *count == 1), "{what}: on_complete {completes:?}");
    assert_eq!(completes.len(), 20, "{what}: each was told of its end");
    assert_eq!(tally.hooks.load(Relaxed), 0, "{what}: each hook of a token runs once");
    for sender in tally.senders.lock().unwrap().drain(..) {
        assert!(sender.send(VALUE).is_err(), "{what}: nobody waits any more");
    }
    for (number, key) in keys.iter().enumerate() {
        // Its own number, or the line that stands for an answer where nobody gave one.
        let (body, line) = (world.body(*key).replace(&format!("{number};"), ""), world.wire(*key).status);
        assert!(body.is_empty() || body == format!("{line}\n"), "{what}: {body:?} in the answer of {number}");
    }
    (world.counters(), tally.calls.load(Relaxed))
}

#[test]
fn random_schedules() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("SHARDLET_SEED") {
        Some(seed) => drop(run(seed)),
        None => run_seeds(number("SHARDLET_SEEDS").unwrap_or(2_000)),
    }
}

fn run_seeds(count: u64) {
    let (mut sum, mut calls) = (LifeCycleCounters::default(), 0);
    for seed in 1..=count {
        let caught = std::panic::catch_unwind(|| run(seed));
        let (counters, ran) = caught.unwrap_or_else(|_| panic!("replay with SHARDLET_SEED={seed}"));
        sum.merge(&counters);
        calls += ran;
    }
    // The schedules are worth something only if they end in every way they can.
    for reason in EndReason::ALL {
        let possible = !matches!(
            reason,
            EndReason::ProtocolError | EndReason::SlowClient | EndReason::Reload | EndReason::Aborted
        );
        assert!(!possible || sum.ended(reason) > 0, "no schedule ended with {reason}");
    }
    assert!(sum.stale_tasks_dropped > 0 && sum.double_terminal_suppressed > 0 && sum.panics > 0, "{sum:?}");
    assert!(calls > 0, "no call of with() ever ran");
}
