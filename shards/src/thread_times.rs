//! Where a thread's time went, as the kernel's scheduler counts it: on a core, or ready and waiting for one. What is
//! left of a stretch of time the thread slept or waited for something. Says nothing where /proc does not (then a
//! message names no cause).

use std::{fs, os::unix::fs::FileExt, time::Duration};

/// Times of a thread since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ThreadTimes {
    /// It ran.
    pub(crate) on_core: Duration,
    /// It could have run, but others had the core.
    pub(crate) waited: Duration,
}

impl ThreadTimes {
    /// How much of `stretch` went where, between an earlier reading and this one.
    pub(crate) fn since(self, before: ThreadTimes, stretch: Duration) -> ThreadTimes {
        ThreadTimes {
            on_core: self.on_core.saturating_sub(before.on_core).min(stretch),
            waited: self.waited.saturating_sub(before.waited).min(stretch),
        }
    }

    /// Others had the core for at least half of it: no code of this program is to blame.
    pub(crate) fn is_starved(self, stretch: Duration) -> bool {
        self.waited * 2 >= stretch
    }

    /// proc_pid_schedstat(5): nanoseconds on a core, nanoseconds on a run queue, slices. All zero where the kernel
    /// does not count.
    fn parse(text: &str) -> Option<ThreadTimes> {
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().map(Duration::from_nanos));
        let (on_core, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (!on_core.is_zero()).then_some(ThreadTimes { on_core, waited })
    }

    /// Those of another thread of this process.
    pub(crate) fn of(thread: usize) -> Option<ThreadTimes> {
        ThreadTimes::parse(&fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?)
    }
}

/// The number of the calling thread; zero if nobody knows.
pub(crate) fn this_thread() -> usize {
    let link = fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// The calling thread's own, kept open: a reading costs one call.
#[derive(Debug, Default)]
pub(crate) struct OwnTimes {
    file: Option<fs::File>,
}

impl OwnTimes {
    /// Of the thread that calls this.
    pub(crate) fn open() -> OwnTimes {
        OwnTimes { file: fs::File::open("/proc/thread-self/schedstat").ok() }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn read(&self) -> Option<ThreadTimes> {
        let mut text = [0; 96];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        ThreadTimes::parse(std::str::from_utf8(&text[..length]).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Instant};

    #[test]
    fn a_stretch_is_told_apart() {
        let times = |on_core, waited| ThreadTimes {
            on_core: Duration::from_millis(on_core),
            waited: Duration::from_millis(waited),
        };
        let stretch = Duration::from_millis(100);
        assert_eq!(times(50, 7).since(times(20, 7), stretch), times(30, 0));
        assert_eq!(times(500, 3).since(times(20, 1), stretch), times(100, 2), "never more than the stretch");
        assert!(times(40, 60).is_starved(stretch) && !times(60, 40).is_starved(stretch));
        assert!(!times(0, 0).is_starved(stretch), "it slept");
        assert_eq!(ThreadTimes::parse("0 0 0\n"), None, "a kernel that does not count");
    }

    #[test]
    fn work_and_sleep_of_a_real_thread() {
        let own = OwnTimes::open();
        let Some(before) = own.read() else { return println!("left out: the kernel does not count") };
        let begun = Instant::now();
        let worked = |before: ThreadTimes, own: &OwnTimes| {
            own.read().expect("as before").since(before, Duration::from_secs(60)).on_core
        };
        while worked(before, &own) < Duration::from_millis(20) {
            assert!(begun.elapsed() < Duration::from_secs(20), "work is not counted");
        }
        let before = own.read().expect("as before");
        thread::sleep(Duration::from_millis(50));
        assert!(worked(before, &own) < Duration::from_millis(40), "sleep counts as work");
        assert!(ThreadTimes::of(this_thread()).expect("it is this one").on_core >= before.on_core);
    }
}
