//! How often the file handler's cache of answers and its coding on the fly helped, per shard: `handlers/files` counts,
//! `stats` shows.
//!
//! A shard is a thread, so its figures are the thread's: counting costs one addition and takes no handle along.

use std::cell::Cell;

/// What a shard has counted since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesCounters {
    /// Answered from what was kept.
    pub cache_hits: u64,
    /// Could have been, but nothing young enough was kept.
    pub cache_misses: u64,
    /// Coded on the fly.
    pub compressions: u64,
    /// Sent in the plain form because too many were being coded already.
    pub compressions_refused: u64,
}

/// An event to be counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    CacheHit,
    CacheMiss,
    Compression,
    CompressionRefused,
}

impl FilesCounters {
    /// Those of the current thread's shard.
    #[must_use]
    pub fn of_this_shard() -> FilesCounters {
        COUNTERS.get()
    }
}

#[inline]
pub(crate) fn count(event: Count) {
    let mut counters = COUNTERS.get();
    let counter = match event {
        Count::CacheHit => &mut counters.cache_hits,
        Count::CacheMiss => &mut counters.cache_misses,
        Count::Compression => &mut counters.compressions,
        Count::CompressionRefused => &mut counters.compressions_refused,
    };
    *counter += 1;
    COUNTERS.set(counters);
}

thread_local! {
    static COUNTERS: Cell<FilesCounters> = const { Cell::new(FilesCounters {
        cache_hits: 0,
        cache_misses: 0,
        compressions: 0,
        compressions_refused: 0,
    }) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_a_counter_of_its_own() {
        for event in [Count::CacheHit, Count::CacheMiss, Count::Compression, Count::CompressionRefused] {
            count(event);
        }
        count(Count::CacheHit);
        let expected =
            FilesCounters { cache_hits: 2, cache_misses: 1, compressions: 1, compressions_refused: 1 };
        assert_eq!(FilesCounters::of_this_shard(), expected);
        let elsewhere = std::thread::spawn(FilesCounters::of_this_shard).join().expect("a thread");
        assert_eq!(elsewhere, FilesCounters::default());
    }
}
