//! Sends: all that a turn has brought are made one behind the other at the start of the next. The peers' thread is
//! then woken for the first and still awake for the others; made in between the work they would each wake it.

use super::{
    super::{Descriptor, Outcome, Owner, SendBuffer},
    EpollDriver, Waiting,
    calls::send_once,
};
use crate::table::Key;
use rustix::io::Errno;
use std::io;

impl EpollDriver {
    #[inline]
    pub(super) fn submit_send(&mut self, fd: Descriptor, buffer: SendBuffer, owner: Owner) -> Key {
        let key = self.completions.insert(Waiting::Send(fd, None), owner);
        self.to_send.push((key, fd, buffer));
        key
    }

    pub(super) fn send_all(&mut self) {
        // Taken out and put back, so that its memory is kept.
        let mut to_send = std::mem::take(&mut self.to_send);
        for (key, fd, buffer) in to_send.drain(..) {
            self.start_send(key, fd, buffer);
        }
        self.to_send = to_send;
    }

    #[inline]
    fn start_send(&mut self, key: Key, fd: Descriptor, mut buffer: SendBuffer) {
        match self.try_send(fd, &mut buffer) {
            Some(result) => self.finish(key, Outcome::Sent { result, buffer }),
            None => self.wait_to_send(fd, key, Box::new(buffer)),
        }
    }

    /// The cancel of a send that no turn has made yet: what was submitted before it is done first, as far as the
    /// socket takes it now.
    pub(super) fn send_at_last(&mut self, key: Key) {
        let Some(at) = self.to_send.iter().position(|(other, ..)| *other == key) else { return };
        let (key, fd, buffer) = self.to_send.remove(at);
        self.start_send(key, fd, buffer);
        self.cancel(key);
    }

    /// Sends what the socket takes now. `None` if it takes nothing: an edge will tell when it does.
    #[inline]
    fn try_send(&mut self, fd: Descriptor, buffer: &mut SendBuffer) -> Option<io::Result<usize>> {
        match send_once(&self.descriptors, fd, buffer) {
            Ok(count) => {
                buffer.sent += count;
                Some(Ok(count))
            }
            Err(Errno::AGAIN) => self.register(fd).err().map(Err),
            Err(error) => Some(Err(error.into())),
        }
    }

    fn wait_to_send(&mut self, fd: Descriptor, key: Key, buffer: Box<SendBuffer>) {
        if let Some(Waiting::Send(_, place)) = self.completions.get_mut(key) {
            *place = Some(buffer);
        }
        self.sockets[fd.0 as usize].writer = Some(key);
    }

    pub(super) fn handle_writable(&mut self, fd: Descriptor, key: Key) {
        self.sockets[fd.0 as usize].writer = None;
        match self.completions.get_mut(key) {
            Some(Waiting::Send(_, place)) => {
                let mut buffer = place.take().expect("a waiting send holds its buffer");
                match self.try_send(fd, &mut buffer) {
                    Some(result) => self.finish(key, Outcome::Sent { result, buffer: *buffer }),
                    None => self.wait_to_send(fd, key, buffer),
                }
            }
            Some(Waiting::Connect(_)) => {
                // connect(2): writability tells that it is over, SO_ERROR how.
                let error = self.descriptors.socket_ref(fd).and_then(|socket| socket.take_error());
                let result = error.and_then(|error| error.map_or(Ok(()), Err));
                self.finish(key, Outcome::Connected(result));
            }
            _ => {}
        }
    }
}
