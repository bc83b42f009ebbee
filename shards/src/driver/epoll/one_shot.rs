//! Operations that begin with a call of their own and are mostly over with it: connect, and reads of files.

use super::{
    super::{Address, Descriptor, Outcome, descriptors::socket_address},
    EpollDriver, FileRead, FileReadDone,
};
use crate::table::Key;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{self, IoSliceMut};

impl EpollDriver {
    pub(super) fn start_connect(&mut self, fd: Descriptor, address: &Address, key: Key) {
        let result = self
            .set_nonblocking(fd)
            .and_then(|()| self.descriptors.socket_ref(fd)?.connect(&socket_address(address)?));
        // connect(2): interrupted, it goes on like one in progress.
        let in_progress = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            errno == Some(Errno::INPROGRESS) || errno == Some(Errno::INTR)
        };
        match result {
            Err(error) if in_progress(&error) => match self.register(fd) {
                Ok(_) => self.sockets[fd.0 as usize].writer = Some(key),
                Err(error) => self.finish(key, Outcome::Connected(Err(error))),
            },
            result => self.finish(key, Outcome::Connected(result)),
        }
    }

    /// Reads what the page cache has; what it has not is read by a thread.
    pub(super) fn start_read(
        &mut self,
        key: Key,
        fd: Descriptor,
        offset: u64,
        (mut buffer, len): (Vec<u8>, usize),
    ) {
        buffer.resize(len, 0);
        let file = match self.descriptors.get(fd) {
            Ok(file) => file,
            Err(error) => return self.finish_read(FileReadDone { key, result: Err(error), buffer }),
        };
        let mut into = [IoSliceMut::new(&mut buffer)];
        match rustix::io::preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT) {
            // Not in the cache, or a file system that cannot tell.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) => {}
            result => {
                buffer.truncate(result.unwrap_or(0));
                return self.finish_read(FileReadDone {
                    key,
                    result: result.map_err(io::Error::from),
                    buffer,
                });
            }
        }
        let started = match file.try_clone_to_owned() {
            Ok(file) => self.file_reads.start(FileRead { key, file, offset, buffer, len }),
            Err(error) => Err(FileReadDone { key, result: Err(error), buffer }),
        };
        if let Err(done) = started {
            self.finish_read(done);
        }
    }

    pub(super) fn finish_read(&mut self, done: FileReadDone) {
        self.finish(done.key, Outcome::Read { result: done.result, buffer: done.buffer });
    }
}
