//! A shard whose root dies: the others hear of it at once, and the join tells which one it was. On both drivers.

use shards::{DriverChoice, Shard, ShardFailure, Shards};
use std::{sync::mpsc, thread, time::Duration};

const LONG: Duration = Duration::from_secs(20);

/// Three shards, of which the middle one runs `fail`; gives how each ended.
fn ends_of(driver: DriverChoice, fail: fn()) -> Vec<Result<&'static str, ShardFailure>> {
    let root = move |shard: Shard| async move {
        if shard.id().index() == 1 {
            fail();
        }
        shard.stopped().await;
        "stopped"
    };
    let shards = Shards::builder().shards(3).driver(driver).start(root).expect("the shards start");
    let (tell, told) = mpsc::channel();
    // Nobody calls `stop`: the join ends because of the failure, or never.
    thread::spawn(move || tell.send(shards.join()));
    let ends = told.recv_timeout(LONG).expect("the other shards were told of the failure");
    ends.into_iter().map(|end| end.result).collect()
}

#[test]
fn a_shard_that_fails_ends_the_others() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let ends = ends_of(driver, || panic!("on purpose"));
        assert!(matches!(ends[0], Ok("stopped")) && matches!(ends[2], Ok("stopped")), "{ends:?}");
        assert!(matches!(&ends[1], Err(ShardFailure::Panicked(text)) if text == "on purpose"), "{ends:?}");
    }
}
