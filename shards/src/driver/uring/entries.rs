//! Submission queue entries, one function an operation. Pure: an entry is a description, nothing is handed to the
//! kernel here.

use super::super::{
    ring_buffers::GROUP,
    slots::{Kind, Load, Slot, user_data},
};
use crate::table::Key;
use io_uring::{
    opcode,
    squeue::{Entry, Flags},
    types::{CancelBuilder, Fd},
};

/// How a receive is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveMode {
    /// One entry for many completions.
    Multishot,
    /// One entry for one.
    Once,
    /// One entry for one, and no buffer is looked for before the socket is ready. The others fail on an idle socket
    /// when there is none.
    OnceWhenReady,
}

/// The entry that starts, or starts again, an accept or a receive.
#[inline]
pub(super) fn standing_entry(slot: &Slot, key: Key, receive: ReceiveMode, buffer_bytes: u32) -> Entry {
    let fd = Fd(slot.fd.0);
    let entry = match slot.kind {
        Kind::Accept => opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build(),
        _ => receive_entry(fd, receive, buffer_bytes),
    };
    entry.user_data(user_data(slot.kind, key))
}

/// The entry that starts an operation with a load. It points into the load.
#[inline]
pub(super) fn loaded_entry(slot: &Slot, key: Key, load: &mut Load) -> Entry {
    let fd = Fd(slot.fd.0);
    let entry = match load {
        Load::Send { buffer, message: Some(message) } => {
            message.point_at(buffer);
            opcode::SendMsg::new(fd, &raw const message.header).flags(SEND_FLAGS as u32).build()
        }
        Load::Send { buffer, message: None } => {
            let rest = buffer.slices().next().unwrap_or_default();
            let len = rest.len().min(TRANSFER_BYTES_MAX) as u32;
            opcode::Send::new(fd, rest.as_ptr(), len).flags(SEND_FLAGS).build()
        }
        Load::Connect { address } => {
            let (pointer, len) = match address {
                Some(address) => (address.as_ptr().cast(), address.len()),
                None => (std::ptr::null(), 0),
            };
            opcode::Connect::new(fd, pointer, len).build()
        }
        Load::Read { buffer, offset, len } => {
            let len = (*len).min(TRANSFER_BYTES_MAX) as u32;
            opcode::Read::new(fd, buffer.as_mut_ptr(), len).offset(*offset).build()
        }
    };
    entry.user_data(user_data(slot.kind, key))
}

#[inline]
fn receive_entry(fd: Fd, mode: ReceiveMode, buffer_bytes: u32) -> Entry {
    let (ioprio, len) = match mode {
        // A multishot receive takes its length from the buffers; older kernels insist on 0.
        ReceiveMode::Multishot => (RECV_MULTISHOT, 0),
        ReceiveMode::Once => (0, buffer_bytes),
        ReceiveMode::OnceWhenReady => (RECVSEND_POLL_FIRST, buffer_bytes),
    };
    let entry = opcode::Recv::new(fd, std::ptr::null_mut(), len).ioprio(ioprio).buf_group(GROUP);
    entry.build().flags(Flags::BUFFER_SELECT)
}

/// Asks that an operation end. Its own completion only says whether it was found.
pub(super) fn cancel_entry(kind: Kind, key: Key) -> Entry {
    let target = CancelBuilder::user_data(user_data(kind, key));
    opcode::AsyncCancel2::new(target).build().user_data(user_data(Kind::Cancel, key))
}

/// Asks that everything end.
pub(super) fn cancel_all_entry() -> Entry {
    opcode::AsyncCancel2::new(CancelBuilder::any().all())
        .build()
        .user_data(user_data(Kind::Cancel, Key::NONE))
}

/// Watches the wake descriptor. It is never read: each write to an eventfd wakes whoever polls it.
pub(super) fn wake_entry(fd: i32) -> Entry {
    opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32)
        .multi(true)
        .build()
        .user_data(user_data(Kind::Wake, Key::NONE))
}

/// WAITALL: the kernel goes on after a short send by itself. NOSIGNAL: a gone peer is an error, not a SIGPIPE.
const SEND_FLAGS: i32 = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;

/// MAX_RW_COUNT of the kernel on 4 KiB pages: what one call moves at most.
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

// linux/io_uring.h
const RECVSEND_POLL_FIRST: u16 = 1 << 0;
const RECV_MULTISHOT: u16 = 1 << 1;
