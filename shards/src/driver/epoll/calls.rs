//! The system calls of the epoll driver that are tried until the kernel answers: EINTR never leaves this file.

use super::super::{Descriptor, SEND_PARTS_MAX, SendBuffer, SendParts, descriptors::Descriptors};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags},
};
use std::io::IoSlice;

/// One receive, without waiting. `Ok(0)` is the end of the stream.
pub(super) fn receive_once(
    descriptors: &Descriptors,
    fd: Descriptor,
    buffer: &mut [u8],
) -> rustix::io::Result<usize> {
    let socket = descriptors.get(fd).map_err(|_| Errno::BADF)?;
    loop {
        #[cfg(test)]
        CALLS.set(CALLS.get() + 1);
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return result.map(|(len, _)| len),
        }
    }
}

/// One send of all that is left. MSG_NOSIGNAL: a peer that is gone must not raise SIGPIPE in the process.
pub(super) fn send_once(
    descriptors: &Descriptors,
    fd: Descriptor,
    buffer: &SendBuffer,
) -> rustix::io::Result<usize> {
    let socket = descriptors.get(fd).map_err(|_| Errno::BADF)?;
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        #[cfg(test)]
        CALLS.set(CALLS.get() + 1);
        let result = match &buffer.parts {
            SendParts::Vec(bytes) => rustix::net::send(socket, &bytes[buffer.sent..], flags),
            SendParts::Bytes(bytes) => rustix::net::send(socket, &bytes[buffer.sent..], flags),
            SendParts::Vectored(_) => {
                let mut slices = [IoSlice::new(&[]); SEND_PARTS_MAX];
                let mut count = 0;
                for (place, slice) in slices.iter_mut().zip(buffer.slices()) {
                    *place = IoSlice::new(slice);
                    count += 1;
                }
                rustix::net::sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags)
            }
        };
        if result != Err(Errno::INTR) {
            return result;
        }
    }
}

/// Errors of accept(2) that belong to a connection which is already gone, not to the listener: the next one is
/// tried. ECONNABORTED, and what Linux passes on from the network ("should be treated like EAGAIN by retrying").
pub(super) fn is_of_the_connection(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::TIMEDOUT
            | Errno::PERM
    )
}

#[cfg(test)]
thread_local! {
    /// System calls made in this file by this thread: what a request costs is a promise, and tested.
    pub(super) static CALLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
