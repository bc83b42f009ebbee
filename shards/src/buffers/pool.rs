//! The pool and its leases.
//!
//! A buffer is in exactly one place: `free` in the pool, with the driver (`loaned`: the kernel may write to it),
//! or in a [`Lease`] that a stream's owner holds. Nothing is ever written to a buffer that is leased.
//! A lease that is turned into `Bytes` leaves the pool for good and a fresh buffer takes its place, so the
//! kernel's supply never depends on when an application drops its bytes.

use bytes::Bytes;
use std::{cell::RefCell, fmt, ops::Deref, rc::Rc};

/// Bytes that were received, on loan from the shard's pool. Dropping it gives the buffer back.
pub struct Lease {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// `None` once detached.
    pool: Option<Rc<Pool>>,
}

impl Lease {
    /// Forgets the first `count` bytes: they have been used.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "advance beyond the received bytes");
        self.start += count;
    }

    /// Keeps the bytes beyond the lease: no copy, the buffer leaves the pool and is freed when the last `Bytes`
    /// of it is dropped, on whatever thread.
    pub fn into_bytes(mut self) -> Bytes {
        let (start, end) = (self.start, self.end);
        self.detach();
        let buffer = std::mem::take(&mut self.buffer);
        Bytes::from(buffer).slice(start..end)
    }

    /// Takes the buffer out of the pool, which may make a fresh one in its place: for bytes that may wait long.
    pub(crate) fn detach(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.note_taken();
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.give_back(std::mem::take(&mut self.buffer));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}

/// Where the buffers of a pool are. `free + loaned + leased <= limit`, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PoolAccount {
    /// Waiting in the pool.
    pub(crate) free: usize,
    /// With the driver: the kernel may write to them.
    pub(crate) loaned: usize,
    /// Held by owners of streams.
    pub(crate) leased: usize,
    /// How many left the pool as `Bytes`, ever.
    pub(crate) taken_total: u64,
}

/// A bounded set of buffers of one size.
pub(crate) struct Pool {
    buffer_bytes: usize,
    limit: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    free: Vec<Vec<u8>>,
    account: PoolAccount,
}

impl Pool {
    /// A pool of at most `limit` buffers of `buffer_bytes` bytes; buffers are made when first needed.
    pub(crate) fn new(buffer_bytes: usize, limit: usize) -> Rc<Self> {
        assert!(buffer_bytes > 0 && limit > 0, "a pool has room for at least one byte");
        Rc::new(Pool { buffer_bytes, limit, state: RefCell::default() })
    }

    /// Size of each buffer in bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// A buffer for the driver (length `buffer_bytes`, all of it initialised), or `None` when all are in use.
    pub(crate) fn loan(&self) -> Option<Vec<u8>> {
        let mut state = self.state.borrow_mut();
        let buffer = match state.free.pop() {
            Some(buffer) => {
                state.account.free -= 1;
                buffer
            }
            None if state.account.loaned + state.account.leased < self.limit => vec![0; self.buffer_bytes],
            None => return None,
        };
        state.account.loaned += 1;
        Some(buffer)
    }

    /// The driver returns a buffer that holds nothing.
    pub(crate) fn return_loan(&self, buffer: Vec<u8>) {
        debug_assert_eq!(buffer.len(), self.buffer_bytes);
        let mut state = self.state.borrow_mut();
        state.account.loaned -= 1;
        state.account.free += 1;
        state.free.push(buffer);
    }

    /// The driver hands on a buffer in which `len` bytes were received.
    pub(crate) fn lease(self: &Rc<Self>, buffer: Vec<u8>, len: usize) -> Lease {
        assert!(len <= buffer.len(), "the kernel cannot have written more than the buffer holds");
        let mut state = self.state.borrow_mut();
        state.account.loaned -= 1;
        state.account.leased += 1;
        drop(state);
        Lease { buffer, start: 0, end: len, pool: Some(self.clone()) }
    }

    /// Whether a buffer could be loaned now.
    pub(crate) fn has_room(&self) -> bool {
        let state = self.state.borrow();
        state.account.loaned + state.account.leased < self.limit
    }

    /// Where the buffers are.
    pub(crate) fn account(&self) -> PoolAccount {
        self.state.borrow().account
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut state = self.state.borrow_mut();
        state.account.leased -= 1;
        state.account.free += 1;
        state.free.push(buffer);
    }

    fn note_taken(&self) {
        let mut state = self.state.borrow_mut();
        state.account.leased -= 1;
        state.account.taken_total += 1;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("limit", &self.limit).field("account", &self.account()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_in_one_place_at_a_time() {
        let pool = Pool::new(8, 2);
        let mut first = pool.loan().unwrap();
        first[..3].copy_from_slice(b"abc");
        let second = pool.loan().unwrap();
        assert!(pool.loan().is_none(), "the limit holds");
        let mut lease = pool.lease(first, 3);
        lease.advance(1);
        assert_eq!(&*lease, b"bc");
        pool.return_loan(second);
        drop(lease);
        assert_eq!(pool.account(), PoolAccount { free: 2, ..PoolAccount::default() });
    }

    #[test]
    fn bytes_kept_by_an_application_do_not_starve_the_pool() {
        let pool = Pool::new(8, 1);
        let mut buffer = pool.loan().unwrap();
        buffer[..2].copy_from_slice(b"hi");
        let kept = pool.lease(buffer, 2).into_bytes();
        let fresh = pool.loan().expect("a fresh buffer takes the place of the kept one");
        pool.return_loan(fresh);
        assert_eq!(kept, &b"hi"[..]);
        assert_eq!(pool.account().taken_total, 1);
    }
}
