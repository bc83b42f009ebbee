//! Reads of files that would wait for a disk, on threads of the epoll driver's own: readiness knows nothing of disks.
//! The pool of the application's blocking work is another one; a full queue there must not stop file answers.
//! Neighbours: `epoll.rs` tries `RWF_NOWAIT` first and comes here with what the page cache does not have.

use crate::{inbox::WakeFd, sync::Arc, table::Key};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rustix::io::Errno;
use std::{collections::VecDeque, io, os::fd::OwnedFd, thread};

/// A read that waits for a disk. It owns what it needs, so nothing depends on when it ends.
#[derive(Debug)]
pub(super) struct FileRead {
    pub(super) key: Key,
    /// A duplicate: the shard's own descriptor is not lent to another thread.
    pub(super) file: OwnedFd,
    pub(super) offset: u64,
    pub(super) buffer: Vec<u8>,
    pub(super) len: usize,
}

/// A read that is over.
#[derive(Debug)]
pub(super) struct FileReadDone {
    pub(super) key: Key,
    pub(super) result: io::Result<usize>,
    pub(super) buffer: Vec<u8>,
}

/// The reading threads of one driver, started with the first read that needs them.
#[derive(Debug)]
pub(super) struct FileReads {
    wake: Arc<WakeFd>,
    threads: Option<Threads>,
    /// Reads that found the queue full, in order; bounded by the driver's operations.
    waiting: VecDeque<FileRead>,
}

#[derive(Debug)]
struct Threads {
    reads: Sender<FileRead>,
    done: Receiver<FileReadDone>,
}

/// Reading threads of a driver: enough to keep a disk busy while one read is slow.
const THREADS: usize = 2;
/// Reads handed to the threads ahead of their turn.
const QUEUE: usize = 64;

impl FileReads {
    pub(super) fn new(wake: Arc<WakeFd>) -> Self {
        FileReads { wake, threads: None, waiting: VecDeque::new() }
    }

    /// Starts a read; an error says that no thread could be started, and gives the buffer back.
    pub(super) fn start(&mut self, read: FileRead) -> Result<(), FileReadDone> {
        if self.threads.is_none() {
            match Threads::start(&self.wake) {
                Ok(threads) => self.threads = Some(threads),
                Err(error) => {
                    return Err(FileReadDone { key: read.key, result: Err(error), buffer: read.buffer });
                }
            }
        }
        self.waiting.push_back(read);
        self.feed();
        Ok(())
    }

    /// Takes back a read that no thread has seen.
    pub(super) fn cancel(&mut self, key: Key) -> Option<Vec<u8>> {
        let at = self.waiting.iter().position(|read| read.key == key)?;
        self.waiting.remove(at).map(|read| read.buffer)
    }

    /// The next read that is over.
    pub(super) fn next_done(&mut self) -> Option<FileReadDone> {
        let done = self.threads.as_ref()?.done.try_recv().ok()?;
        self.feed();
        Some(done)
    }

    fn feed(&mut self) {
        let Some(threads) = &self.threads else { return };
        while let Some(read) = self.waiting.pop_front() {
            if let Err(TrySendError::Full(read) | TrySendError::Disconnected(read)) =
                threads.reads.try_send(read)
            {
                self.waiting.push_front(read);
                return;
            }
        }
    }
}

impl Threads {
    fn start(wake: &Arc<WakeFd>) -> io::Result<Threads> {
        let (reads, queue) = bounded::<FileRead>(QUEUE);
        let (results, done) = bounded(QUEUE + THREADS);
        for _ in 0..THREADS {
            let (queue, results, wake) = (queue.clone(), results.clone(), wake.clone());
            thread::Builder::new().name("shard-file-read".to_owned()).spawn(move || {
                // Both ends close when the driver is gone: the thread ends after the read it is in.
                for read in queue {
                    if results.send(read.run()).is_err() {
                        return;
                    }
                    wake.wake();
                }
            })?;
        }
        Ok(Threads { reads, done })
    }
}

impl FileRead {
    fn run(mut self) -> FileReadDone {
        self.buffer.resize(self.len, 0);
        let result = loop {
            match rustix::io::pread(&self.file, &mut self.buffer[..], self.offset) {
                Err(Errno::INTR) => {}
                result => break result.map_err(io::Error::from),
            }
        };
        self.buffer.truncate(*result.as_ref().unwrap_or(&0));
        FileReadDone { key: self.key, result, buffer: self.buffer }
    }
}
