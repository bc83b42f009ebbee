//! The content of larger files that is sent from memory: counted for as long as anybody holds it.
//!
//! What the cache lets go may still be on its way to slow clients. So the bound is on what lives, not on what is kept:
//! beyond it files are streamed. A shard is a thread, and its contents never leave it.

use bytes::Bytes;
use std::cell::Cell;

/// Whether so much more may live, given the bound of the cache.
pub(super) fn has_room(len: u64, cache_bytes: usize) -> bool {
    len <= LEN_MAX && ALIVE.get() + len <= cache_bytes as u64 / 2
}

/// Content that is counted until its last part is gone.
pub(super) fn counted(content: Vec<u8>) -> Bytes {
    ALIVE.set(ALIVE.get() + content.len() as u64);
    Bytes::from_owner(Counted(content))
}

struct Counted(Vec<u8>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // At the end of the thread the counter may be gone already.
        let _ = ALIVE.try_with(|alive| alive.set(alive.get().saturating_sub(self.0.len() as u64)));
    }
}

thread_local! {
    static ALIVE: Cell<u64> = const { Cell::new(0) };
}

/// Reading more at once would hold up the shard.
const LEN_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_still_being_sent_counts() {
        let bound = 4000;
        assert!(has_room(2000, bound) && !has_room(2001, bound) && !has_room(LEN_MAX + 1, usize::MAX));
        let kept = counted(vec![b'x'; 1500]);
        let sent = kept.slice(1000..);
        drop(kept);
        assert!(!has_room(501, bound) && has_room(500, bound));
        drop(sent);
        assert!(has_room(2000, bound));
    }
}
