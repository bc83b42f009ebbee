//! Notices a shard whose turn does not end: a callback that blocks. It runs on a thread of its own, reads one
//! word per shard, and only warns.

use crate::{clock::Start, handle::ShardHandle, thread_times::ThreadTimes};
use std::{
    fmt,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// How often the words are read.
const PERIOD: Duration = Duration::from_millis(250);

/// A turn that runs longer than this is reported while it still runs.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// The watching thread; dropping this ends it.
pub(crate) struct Watchdog {
    end: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to watch. Without a thread to be had there is no watchdog, and that is all.
    pub(crate) fn start(handles: Vec<ShardHandle>, clock: Start) -> Self {
        let (end, ended) = mpsc::channel();
        let watch = move || {
            let mut sights = vec![Sight::default(); handles.len()];
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                look(&handles, clock.elapsed(), &mut sights);
            }
        };
        let thread = thread::Builder::new().name("watchdog".into()).spawn(watch).ok();
        Watchdog { end: Some(end), thread }
    }
}

/// A turn that was seen running.
#[derive(Debug, Clone, Default)]
struct Sight {
    /// When the turn began.
    turn: Option<Duration>,
    /// When it was first seen, and where its thread's time had gone by then.
    first: Duration,
    times: Option<ThreadTimes>,
    is_reported: bool,
}

fn look(handles: &[ShardHandle], now: Duration, sights: &mut [Sight]) {
    for (handle, sight) in handles.iter().zip(sights) {
        let heartbeat = &handle.shared().heartbeat;
        let Some(since) = heartbeat.running_since() else { continue };
        let running = now.saturating_sub(since);
        if sight.turn != Some(since) {
            let times = ThreadTimes::of(heartbeat.thread());
            *sight = Sight { turn: Some(since), first: now, times, is_reported: false };
        }
        if running >= STUCK_AFTER && !sight.is_reported {
            sight.is_reported = true;
            heartbeat.note_stuck();
            let seen = now.saturating_sub(sight.first);
            let went = sight.times.zip(ThreadTimes::of(heartbeat.thread()));
            let went = went.map(|(before, after)| after.since(before, seen));
            tracing::warn!(shard = %handle.id(), "{}", stuck(running, seen, went));
        }
    }
}

/// The line about a turn that does not end; `seen` is the part of it during which its thread was looked at.
fn stuck(running: Duration, seen: Duration, went: Option<ThreadTimes>) -> String {
    let line = format!("stuck for {} ms in one turn", running.as_millis());
    let blame = "a callback blocks this shard and every connection on it";
    let Some(went) = went.filter(|_| !seen.is_zero()) else { return format!("{line}: {blame}") };
    let cause = if went.is_starved(seen) { "other work has this shard's core" } else { blame };
    let (on_core, waited, seen) = (went.on_core.as_millis(), went.waited.as_millis(), seen.as_millis());
    format!("{line} (of the last {seen} ms {on_core} on the core, {waited} waiting for it): {cause}")
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It holds no lock and runs no callback: it cannot have panicked.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watchdog")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_turn_is_blamed_on_who_has_the_core() {
        let milliseconds = Duration::from_millis;
        let went =
            |on_core, waited| ThreadTimes { on_core: milliseconds(on_core), waited: milliseconds(waited) };
        let told = |went| stuck(milliseconds(600), milliseconds(250), went);
        assert_eq!(
            told(Some(went(249, 0))),
            "stuck for 600 ms in one turn (of the last 250 ms 249 on the core, 0 waiting for it): \
             a callback blocks this shard and every connection on it"
        );
        assert!(told(Some(went(5, 240))).ends_with(": other work has this shard's core"));
        assert!(told(Some(went(0, 0))).contains(": a callback blocks"), "it sleeps");
        assert!(told(None).starts_with("stuck for 600 ms in one turn: a callback"));
    }
}
