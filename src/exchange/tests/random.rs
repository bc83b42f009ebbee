//! Random schedules of the whole life cycle: many exchanges at once on one paper shard, whatever may happen to them
//! in whatever order. A failure prints its seed; `SHARDLET_SEED=n cargo test -p shardlet random_schedules` replays it,
//! `SHARDLET_SEEDS=n` runs n of them.

use super::*;
use crate::exchange::{AsyncContext, SlowClient, WaterMarks, asynchronous};
use bytes::Bytes;

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
}

#[derive(Default)]
struct Tally {
    completes: Mutex<HashMap<u64, u32>>,
    contexts: Mutex<Vec<AsyncContext>>,
}

/// What any callback may do. The body of an exchange is only ever its own number.
fn act(random: &Random, x: &mut Exchange, number: u64, tally: &Arc<Tally>) -> Result<()> {
    match random.below(16) {
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
            tally.contexts.lock().unwrap().push(context);
        }
        _ => {}
    }
    Ok(())
}

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
        if matches!(callback, Callback::Handler(DispatchType::Request)) && random.below(4) == 0 {
            let r = random.clone();
            let time = Duration::from_millis(r.below(10));
            return asynchronous(async move |x: &mut Exchange| {
                x.sleep(time).await;
                write!(x, "{number};")
            })
            .run(x);
        }
        if callback == Callback::DoRequest && random.below(2) == 0 {
            return x.service();
        }
        act(&random, x, number, &tally)
    }
}

fn happen(random: &Random, world: &World, key: Key, tally: &Arc<Tally>) {
    match random.below(14) {
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
        _ => {
            let contexts = tally.contexts.lock().unwrap().clone();
            if !contexts.is_empty() {
                let context = contexts[random.below(contexts.len() as u64) as usize].clone();
                send(&context, u64::from(u32::MAX), random.below(1 << 20));
            }
        }
    }
}

/// Runs a seed and gives the counters at its end.
fn run(seed: u64) -> LifeCycleCounters {
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
    world.counters()
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
    let mut sum = LifeCycleCounters::default();
    for seed in 1..=count {
        let caught = std::panic::catch_unwind(|| run(seed));
        sum.merge(&caught.unwrap_or_else(|_| panic!("replay with SHARDLET_SEED={seed}")));
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
}
