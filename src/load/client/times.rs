//! What the generator's thread has cost so far, for the verdict (`health`). Its neighbour `client` asks at each tick.

use std::{fs::File, io::Read, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// How long this thread has run, and how long it was ready to run and had no core (proc(5), schedstat; zero where the
/// kernel does not count it).
pub(super) fn thread_times() -> [Duration; 2] {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let mut text = [0; 64];
    let read = File::open("/proc/thread-self/schedstat").and_then(|mut file| file.read(&mut text));
    let fields = std::str::from_utf8(&text[..read.unwrap_or(0)]).unwrap_or("");
    let waited = fields.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    [Duration::new(time.tv_sec as u64, time.tv_nsec as u32), Duration::from_nanos(waited)]
}
