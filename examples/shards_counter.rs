//! State per shard without a lock, and work handed over: between shards, and from a foreign thread.
//!
//! Every shard owns a plain `Cell`. Each sends `ROUNDS` increments to its neighbour, a foreign thread sends as
//! many to every shard, and the sums must come out exact.

use shards::{DeliveryError, Shard, ShardHandle, Shards};
use std::{cell::Cell, error::Error, thread};

const SHARDS: usize = 2;

/// From both senders together fewer than an inbox holds: a shard that sends does not read its own inbox
/// meanwhile, so two shards must not wait for room in each other's.
const ROUNDS: u64 = 5_000;

/// Adds to the one counter of the shard it is called on.
fn count(shard: &Shard) {
    let counter = shard.local(|| Cell::new(0_u64));
    counter.set(counter.get() + 1);
}

/// Hands an increment over; a full inbox is answered at once, so the caller decides to try again.
fn hand_over(to: &ShardHandle) {
    while let Err(undelivered) = to.execute(count) {
        assert_eq!(undelivered.reason, DeliveryError::Full, "nobody stops before the sums are read");
        thread::yield_now();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let shards = Shards::builder().shards(SHARDS).start(|shard| async move { shard.stopped().await })?;
    let handles = shards.handles().to_vec();

    let ring: Vec<_> = (0..SHARDS)
        .map(|index| {
            let neighbour = handles[(index + 1) % SHARDS].clone();
            handles[index].submit_to(move |_shard| (0..ROUNDS).for_each(|_| hand_over(&neighbour)))
        })
        .collect();
    let foreign = thread::spawn({
        let handles = handles.clone();
        move || (0..ROUNDS).for_each(|_| handles.iter().for_each(hand_over))
    });
    foreign.join().expect("the foreign thread only counts");
    ring.into_iter().try_for_each(|sent| sent.wait())?;

    // First in, first out: the answer to a question asked now comes after everything handed over before.
    for handle in &handles {
        let sum = handle.submit_to(|shard| shard.local(|| Cell::new(0_u64)).get()).wait()?;
        println!("shard {} counted {sum}", handle.id());
        assert_eq!(sum, 2 * ROUNDS);
    }
    shards.stop();
    for end in shards.join() {
        end.result?;
    }
    Ok(())
}
