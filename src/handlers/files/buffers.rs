//! Memory for what is read and sent and then forgotten: the spare buffers of a shard.
//!
//! Memory of this size would else be mapped and unmapped, or cleared, for every answer. A buffer goes back to its shard
//! when the kernel has taken its bytes. Neighbours: [`super::send`] reads chunks of large files into them,
//! [`super::answer`] small files that are not kept. What is kept has memory of its own size ([`super::cache`]).

use std::cell::RefCell;

/// A part of a large file: empty memory that a read fills.
pub(super) struct Chunk(pub(super) Vec<u8>);

/// A small file, or several parts of one, read by the shard itself.
pub(super) struct Whole {
    /// Always [`WHOLE_LEN`] octets, of which the first `len` count: what is never shrunk need not be cleared again.
    memory: Vec<u8>,
    len: usize,
}

thread_local! {
    static CHUNKS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static WHOLES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Chunk {
    pub(super) fn empty() -> Vec<u8> {
        let spare = CHUNKS.with_borrow_mut(Vec::pop);
        spare.unwrap_or_else(|| Vec::with_capacity(CHUNK_LEN))
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut memory = std::mem::take(&mut self.0);
        memory.clear();
        if memory.capacity() >= CHUNK_LEN {
            // At the end of the thread the spare ones may be gone already.
            let _ = CHUNKS.try_with(|spare| keep(&mut spare.borrow_mut(), memory, CHUNKS_MAX));
        }
    }
}

impl Whole {
    /// Filled by this call, which gives the error or how much it has filled; `None` unless that is all of `len`.
    pub(super) fn read<E>(
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<Option<usize>, E>,
    ) -> Result<Option<Whole>, E> {
        let spare = WHOLES.with_borrow_mut(Vec::pop);
        let mut whole = Whole { memory: spare.unwrap_or_else(|| vec![0; WHOLE_LEN]), len };
        let filled = fill(&mut whole.memory[..len])?;
        Ok((filled == Some(len)).then_some(whole))
    }
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let _ = WHOLES.try_with(|spare| keep(&mut spare.borrow_mut(), memory, WHOLES_MAX));
    }
}

fn keep(spare: &mut Vec<Vec<u8>>, memory: Vec<u8>, most: usize) {
    if spare.len() < most {
        spare.push(memory);
    }
}

/// Read and queued at once.
pub(super) const CHUNK_LEN: usize = 128 * 1024;

/// Chunks whose memory a shard keeps.
const CHUNKS_MAX: usize = 16;

/// The most that is read as a whole.
pub(super) const WHOLE_LEN: usize = 64 * 1024;

/// Whole files whose memory a shard keeps: as many as are answered in a turn under load.
const WHOLES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn spare() -> usize {
        WHOLES.with_borrow(Vec::len)
    }

    #[test]
    fn memory_comes_back_and_nothing_of_its_last_use_shows() {
        let read = |len: usize, octet: u8| {
            let filled = Whole::read(len, |memory| {
                memory.fill(octet);
                Ok::<_, ()>(Some(memory.len()))
            });
            Bytes::from_owner(filled.unwrap().unwrap())
        };
        let first = read(5, b'a');
        let part = first.slice(1..3);
        drop(first);
        assert_eq!((&part[..], spare()), (&b"aa"[..], 0));
        drop(part);
        assert_eq!(spare(), 1);
        assert_eq!(&read(3, b'b')[..], b"bbb");
        // What could not be filled is no answer, and its memory is not lost either.
        assert!(Whole::read(4, |_| Ok::<_, ()>(Some(3))).unwrap().is_none());
        assert!(Whole::read(4, |_| Err(())).is_err());
        assert_eq!(spare(), 1);
        let many: Vec<_> = (0..2 * WHOLES_MAX).map(|_| read(1, b'c')).collect();
        drop(many);
        assert_eq!(spare(), WHOLES_MAX);
    }
}
