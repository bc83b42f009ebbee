//! Notices a shard whose turn does not end: a callback that blocks. It runs on a thread of its own, reads one
//! word per shard, and only warns.

use crate::{clock::Start, handle::ShardHandle};
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
            let mut reported = vec![None; handles.len()];
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                look(&handles, clock.elapsed(), &mut reported);
            }
        };
        let thread = thread::Builder::new().name("watchdog".into()).spawn(watch).ok();
        Watchdog { end: Some(end), thread }
    }
}

fn look(handles: &[ShardHandle], now: Duration, reported: &mut [Option<Duration>]) {
    for (handle, reported) in handles.iter().zip(reported) {
        let Some(since) = handle.shared().heartbeat.running_since() else { continue };
        let running = now.saturating_sub(since);
        if running >= STUCK_AFTER && *reported != Some(since) {
            *reported = Some(since);
            handle.shared().heartbeat.note_stuck();
            tracing::warn!(
                shard = %handle.id(),
                "stuck for {} ms in one turn: a callback blocks this shard and every connection on it",
                running.as_millis()
            );
        }
    }
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
