//! The provided-buffer ring of the uring driver: the kernel takes a buffer when bytes arrive, not before, so an
//! idle stream holds none.
//!
//! A buffer that the kernel filled is moved out as a `Vec` and goes on as a lease of the pool; another one takes
//! its place before the next enter. `filled + leased == total` holds whenever no completion waits to be decoded.

#![allow(unsafe_code, reason = "memory shared with the kernel")]

use crate::{
    buffers::Pool,
    sync::kernel::{AtomicU16, Ordering},
};
use io_uring::{Submitter, types::BufRingEntry};
use std::{fmt, io, ptr::NonNull};

/// The one buffer group of a shard.
pub(super) const GROUP: u16 = 0;

/// The ring, and the buffers that are in it.
pub(super) struct RingBuffers {
    /// The entries, mapped for the kernel and us; a power of two of them.
    entries: NonNull<BufRingEntry>,
    mask: u16,
    /// Where the next entry goes. What the kernel sees of it is published once per refill.
    tail: u16,
    /// By buffer id: the buffer, or `None` where the id is vacant. The kernel may write into each of them.
    held: Box<[Option<Vec<u8>>]>,
    vacant: Vec<u16>,
}

impl RingBuffers {
    /// Maps and registers a ring of `count` entries (a power of two, at most 32,768), all vacant.
    pub(super) fn new(submitter: &Submitter<'_>, count: usize) -> io::Result<Self> {
        let count = u16::try_from(count).ok().filter(|count| count.is_power_of_two() && *count <= 1 << 15);
        let count = count.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "buffers must be a power of two, at most 32,768")
        })?;
        let ring = RingBuffers {
            entries: map_entries(count)?,
            mask: count - 1,
            tail: 0,
            held: (0..count).map(|_| None).collect(),
            vacant: (0..count).rev().collect(),
        };
        // SAFETY: the mapping is page aligned, holds `count` entries and is unmapped when this value is dropped:
        // after its ring, by the order of the driver's fields, or never.
        unsafe { submitter.register_buf_ring_with_flags(ring.entries.as_ptr() as u64, count, GROUP, 0) }?;
        Ok(ring)
    }

    /// How many buffers the kernel may fill.
    pub(super) fn filled(&self) -> usize {
        self.held.len() - self.vacant.len()
    }

    /// Takes out the buffer that a completion names. `None` if the kernel names one that it was not given.
    #[inline]
    pub(super) fn take(&mut self, id: u16) -> Option<Vec<u8>> {
        let buffer = self.held.get_mut(usize::from(id))?.take()?;
        self.vacant.push(id);
        Some(buffer)
    }

    /// Puts a buffer of the pool under every vacant id, as far as the pool has some, and shows them to the kernel.
    #[inline]
    pub(super) fn refill(&mut self, pool: &Pool) {
        let before = self.tail;
        while let Some(&id) = self.vacant.last() {
            let Some(buffer) = pool.loan() else { break };
            self.vacant.pop();
            self.put(id, buffer);
        }
        if self.tail != before {
            self.publish();
        }
    }

    /// Gives every buffer back to the pool. Only once the kernel is done with all of them.
    pub(super) fn give_back(&mut self, pool: &Pool) {
        for (id, held) in self.held.iter_mut().enumerate() {
            if let Some(buffer) = held.take() {
                pool.return_loan(buffer);
                self.vacant.push(id as u16);
            }
        }
    }

    /// Leaves the mapping and the buffers in place for ever: the kernel may still write to them.
    pub(super) fn leak(&mut self) {
        Box::leak(std::mem::take(&mut self.held));
        self.entries = NonNull::dangling();
        self.mask = 0;
    }

    fn put(&mut self, id: u16, mut buffer: Vec<u8>) {
        let index = usize::from(self.tail & self.mask);
        // SAFETY: `index` is below the number of entries that are mapped.
        let entry = unsafe { self.entries.add(index) };
        // SAFETY: the kernel reads an entry only after the tail that covers it is published, and this one is not
        // covered: at most as many entries as ids are ahead of the kernel. No other reference to it exists.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(buffer.as_mut_ptr() as u64);
        entry.set_len(buffer.len() as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        self.held[usize::from(id)] = Some(buffer);
    }

    fn publish(&self) {
        // SAFETY: `entries` is the first entry of a registered ring, so its reserved field is the tail.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: aligned, mapped while `self` lives; the kernel only reads it and we only write it, here.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Bytes of the mapping; 0 if it was leaked.
    fn mapped_bytes(&self) -> usize {
        self.held.len() * size_of::<BufRingEntry>()
    }
}

impl Drop for RingBuffers {
    fn drop(&mut self) {
        if self.mapped_bytes() == 0 {
            return;
        }
        // SAFETY: mapped by `map_entries` with this length. The ring is closed by now and no operation is in
        // flight, else this would have been leaked; the kernel holds its own reference to the pages.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), self.mapped_bytes()) };
    }
}

impl fmt::Debug for RingBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingBuffers({} of {} filled)", self.filled(), self.held.len())
    }
}

/// Zeroed, page aligned memory for the entries, not inherited by a fork.
fn map_entries(count: u16) -> io::Result<NonNull<BufRingEntry>> {
    let bytes = usize::from(count) * size_of::<BufRingEntry>();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `memory` is a mapping of `bytes` bytes made above.
    unsafe { libc::madvise(memory, bytes, libc::MADV_DONTFORK) };
    NonNull::new(memory.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}
