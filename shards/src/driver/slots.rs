//! Operation slots of the uring driver: who asked, what for, and everything the kernel may touch meanwhile.
//!
//! Whatever an entry of the ring points at is owned by the slot's load, on the heap, and its address is taken after
//! both are in their tables (runtime rule 1). They leave by the terminal completion and in no other way (rule 2); a
//! generation in the `user_data` tells a late completion from one of the next tenant (rule 4).
//!
//! Most operations of a server are receives on idle sockets, which own nothing: so loads have a table of their own,
//! and a slot is 32 bytes.

use super::{Descriptor, Owner, SendBuffer};
use crate::table::{GENERATION_MASK, Key, bytes_in_table};
use socket2::SockAddr;

/// What a `user_data` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Accept = 1,
    Receive = 2,
    Send = 3,
    Connect = 4,
    Read = 5,
    /// The wake's poll; no slot.
    Wake = 0xf0,
    /// A cancel; the key is that of its target.
    Cancel = 0xf1,
}

impl Kind {
    #[inline]
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Accept,
            2 => Kind::Receive,
            3 => Kind::Send,
            4 => Kind::Connect,
            5 => Kind::Read,
            0xf0 => Kind::Wake,
            0xf1 => Kind::Cancel,
            _ => return None,
        })
    }
}

/// `kind(8) | generation(24) | slot(32)`.
#[inline]
pub(super) fn user_data(kind: Kind, key: Key) -> u64 {
    (kind as u64) << 56 | u64::from(key.generation & GENERATION_MASK) << 32 | u64::from(key.slot)
}

/// The reverse of [`user_data`]; `None` for a word that this driver never made.
#[inline]
pub(super) fn decode(user_data: u64) -> Option<(Kind, Key)> {
    Some((Kind::from_byte((user_data >> 56) as u8)?, Key::from_u64(user_data)))
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) owner: Owner,
    pub(super) fd: Descriptor,
    /// In the table of loads; [`Key::NONE`] for accepts and receives.
    pub(super) load: Key,
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// Its end was asked for: it is not armed again.
    pub(super) cancelling: bool,
    /// A receive that was given a buffer since it last had to wait for one: others go first when it waits again.
    pub(super) fed: bool,
}

/// Part of what an idle connection costs: see `net/mod.rs`.
const _: () = assert!(bytes_in_table::<Slot>() <= 32);

impl Slot {
    #[inline]
    pub(super) fn new(kind: Kind, fd: Descriptor, owner: Owner, load: Key) -> Self {
        Slot { owner, fd, load, kind, place: Place::Kernel, cancelling: false, fed: false }
    }
}

/// Where an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the submission queue or with the kernel: a completion will come.
    Kernel,
    /// Waits for a receive buffer; the kernel knows nothing of it.
    Starved,
    /// Over; its last completion is made by the driver itself.
    Ending,
}

/// What an operation owns until it ends.
#[derive(Debug)]
pub(super) enum Load {
    Send {
        buffer: SendBuffer,
        /// For a vectored send.
        message: Option<Box<Message>>,
    },
    Connect {
        /// `None` if it could not be written down for the kernel.
        address: Option<Box<SockAddr>>,
    },
    Read {
        buffer: Vec<u8>,
        offset: u64,
        len: usize,
    },
}

/// What sendmsg(2) reads: the header and the pieces that it points at.
pub(super) struct Message {
    pub(super) header: libc::msghdr,
    pub(super) pieces: [libc::iovec; super::SEND_PARTS_MAX],
}

impl Message {
    /// Points the message at the rest of a buffer. Its address must not change from now on.
    pub(super) fn point_at(&mut self, buffer: &SendBuffer) {
        let mut count = 0;
        for (piece, slice) in self.pieces.iter_mut().zip(buffer.slices()) {
            *piece = libc::iovec { iov_base: slice.as_ptr().cast_mut().cast(), iov_len: slice.len() };
            count += 1;
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = count as _;
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({} pieces)", self.header.msg_iovlen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_carries_kind_generation_and_slot() {
        for kind in
            [Kind::Accept, Kind::Receive, Kind::Send, Kind::Connect, Kind::Read, Kind::Wake, Kind::Cancel]
        {
            for key in [Key { slot: 7, generation: 0 }, Key { slot: u32::MAX, generation: GENERATION_MASK }] {
                assert_eq!(decode(user_data(kind, key)), Some((kind, key)));
            }
        }
        assert_eq!(decode(0), None);
        assert_eq!(decode(u64::MAX), None);
    }
}
