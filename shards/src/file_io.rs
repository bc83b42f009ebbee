//! Reading open files through the driver: futures, no thread of ours blocked.
//!
//! A file's entry stays until its last read has come back, as with sockets: dropping the future or the file at
//! any time is fine.

use crate::{
    driver::{Completion, Descriptor, Op, Outcome, Owner},
    shard::Shard,
    table::{Key, Table},
};
use std::{
    cell::RefCell,
    fmt,
    future::Future,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// The open files of a shard and the reads under way.
#[derive(Default)]
pub(crate) struct Files {
    open: RefCell<Table<Entry>>,
    reads: RefCell<Table<Read>>,
}

struct Entry {
    fd: Descriptor,
    reads: u32,
    closing: bool,
}

struct Read {
    file: Key,
    waker: Option<Waker>,
    outcome: Option<(io::Result<usize>, Vec<u8>)>,
    abandoned: bool,
}

/// An open regular file on this shard. Dropping it closes it once its reads are over.
pub struct File {
    shard: Shard,
    key: Key,
}

impl File {
    /// Takes over an open file, on the current shard.
    pub fn new(shard: &Shard, fd: OwnedFd) -> Self {
        let fd = shard.driver().adopt(fd);
        let key = shard.files().open.borrow_mut().insert(Entry { fd, reads: 0, closing: false });
        File { shard: shard.clone(), key }
    }

    /// Reads up to `len` bytes at `offset` into `buffer`, which is emptied first and given back filled with what
    /// was read: less than `len` is possible, nothing means the end of the file.
    pub fn read_at(&self, offset: u64, buffer: Vec<u8>, len: usize) -> ReadAt {
        let read = Read { file: self.key, waker: None, outcome: None, abandoned: false };
        let read = self.shard.files().reads.borrow_mut().insert(read);
        let file = {
            let mut open = self.shard.files().open.borrow_mut();
            let entry = open.get_mut(self.key).expect("an entry lives as long as its file");
            entry.reads += 1;
            entry.fd
        };
        let operation =
            self.shard.driver().submit(Op::Read { file, offset, buffer, len }, Owner::Waiter(read));
        ReadAt { shard: self.shard.clone(), read, operation }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(entry) = self.shard.files().open.borrow_mut().get_mut(self.key) {
            entry.closing = true;
        }
        close_if_quiet(&self.shard, self.key);
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "File({:?})", self.key)
    }
}

/// A read under way; resolves to the buffer and how it went.
#[must_use = "the read is under way, but its bytes are lost unless awaited"]
pub struct ReadAt {
    shard: Shard,
    read: Key,
    operation: Key,
}

impl Future for ReadAt {
    type Output = (io::Result<usize>, Vec<u8>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waker = context.waker().clone();
        let mut reads = self.shard.files().reads.borrow_mut();
        let read = reads.get_mut(self.read).expect("polled after it was ready");
        match read.outcome.take() {
            Some(outcome) => {
                let over = reads.remove(self.read);
                drop(reads);
                drop(over);
                Poll::Ready(outcome)
            }
            None => {
                let before = read.waker.replace(waker);
                drop(reads);
                drop(before);
                Poll::Pending
            }
        }
    }
}

impl Drop for ReadAt {
    fn drop(&mut self) {
        let mut reads = self.shard.files().reads.borrow_mut();
        match reads.get_mut(self.read) {
            Some(read) if read.outcome.is_none() => read.abandoned = true,
            _ => {
                let over = reads.remove(self.read);
                drop(reads);
                drop(over);
                return;
            }
        }
        drop(reads);
        self.shard.driver().cancel(self.operation);
    }
}

impl fmt::Debug for ReadAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadAt({:?})", self.read)
    }
}

pub(crate) fn deliver(shard: &Shard, key: Key, completion: Completion) -> bool {
    let Outcome::Read { result, buffer } = completion.outcome else {
        unreachable!("a read cannot end with {:?}", completion.outcome)
    };
    let (file, waker) = {
        let mut reads = shard.files().reads.borrow_mut();
        let Some(read) = reads.get_mut(key) else { return false };
        let told = (read.file, read.waker.take());
        match read.abandoned {
            true => drop(reads.remove(key)),
            false => read.outcome = Some((result, buffer)),
        }
        told
    };
    if let Some(entry) = shard.files().open.borrow_mut().get_mut(file) {
        entry.reads -= 1;
    }
    close_if_quiet(shard, file);
    waker.into_iter().for_each(Waker::wake);
    true
}

fn close_if_quiet(shard: &Shard, key: Key) {
    let mut open = shard.files().open.borrow_mut();
    let fd = match open.get(key) {
        Some(entry) if entry.closing && entry.reads == 0 => entry.fd,
        _ => return,
    };
    open.remove(key);
    drop(open);
    shard.driver().close(fd);
}

impl Files {
    /// Whether every file is closed.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Lets every file go, whoever holds it: the shard is going down.
    pub(crate) fn close_all(shard: &Shard) {
        let keys = shard.files().open.borrow().keys();
        for key in keys {
            if let Some(entry) = shard.files().open.borrow_mut().get_mut(key) {
                entry.closing = true;
            }
            close_if_quiet(shard, key);
        }
    }
}
