//! From what the kernel wrote to what the owner reads: one completion at a time, when it is asked for.
//!
//! Here slots end, and nowhere else but by their terminal completion; here receives that the kernel stopped are
//! started again, and what nobody waits for is released.

#![allow(unsafe_code, reason = "descriptors and bytes that only the kernel vouches for")]

use super::{
    super::{
        Completion, Outcome, Owner,
        slots::{Kind, Load, Place, decode},
    },
    Raw, UringDriver,
};
use crate::table::Key;
use io_uring::cqueue;
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

impl UringDriver {
    #[inline]
    pub(super) fn decode(&mut self, (data, result, flags): Raw) -> Option<Completion> {
        // Whatever else the completion says: a buffer that it names is not the kernel's any more.
        let buffer = cqueue::buffer_select(flags).and_then(|id| self.buffers.take(id));
        let more = cqueue::more(flags);
        let Some((kind, key)) = decode(data) else { return self.ignore(result, None, buffer) };
        match kind {
            Kind::Wake => return self.on_wake(more),
            Kind::Cancel => return self.on_cancel(key, result),
            _ => {}
        }
        match self.slots.get(key) {
            Some(slot) if slot.kind == kind => {}
            _ => return self.ignore(result, Some(kind), buffer),
        }
        match kind {
            Kind::Receive => self.on_receive(key, result, flags, buffer),
            Kind::Accept => self.on_accept(key, result, more),
            _ => self.on_result(key, result),
        }
    }

    fn on_receive(
        &mut self,
        key: Key,
        result: i32,
        flags: u32,
        buffer: Option<Vec<u8>>,
    ) -> Option<Completion> {
        let more = cqueue::more(flags);
        let slot = self.slots.get_mut(key)?;
        let owner = slot.owner;
        match (result, buffer) {
            (1.., Some(buffer)) => {
                slot.fed = true;
                let lease = self.pool.lease(buffer, result as usize);
                if !more && self.starved.is_empty() {
                    self.go_on(key, !cqueue::sock_nonempty(flags));
                } else if !more {
                    // It has had its buffer: others wait for theirs.
                    self.starve(key);
                }
                let outcome = Outcome::Received(lease);
                return (owner != Owner::Nobody).then_some(Completion { key, owner, outcome, more: true });
            }
            (_, Some(buffer)) => self.pool.return_loan(buffer),
            (1.., None) => panic!("the kernel received {result} bytes into no buffer of ours"),
            (_, None) => {}
        }
        if more {
            return None;
        }
        match -result {
            libc::ENOBUFS => {
                self.counts.buffer_shortages += 1;
                self.starve(key);
                None
            }
            libc::EINTR | libc::EAGAIN => {
                self.go_on(key, true);
                None
            }
            0 => self.finish(key, |_| Outcome::EndOfStream),
            _ => self.finish(key, |_| Outcome::Failed(errno(result))),
        }
    }

    fn starve(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.cancelling {
            return self.end(key);
        }
        slot.place = Place::Starved;
        // A flood fails last and would be armed first, to take every buffer again: it waits behind the unfed.
        if slot.fed {
            self.starved.push_back(key);
        } else {
            self.starved.push_front(key);
        }
    }

    fn on_accept(&mut self, key: Key, result: i32, more: bool) -> Option<Completion> {
        let owner = self.slots.get(key)?.owner;
        if result < 0 {
            return if more { None } else { self.finish(key, |_| Outcome::Failed(errno(result))) };
        }
        let accepted = owned(result);
        if !more {
            self.go_on(key, true);
        }
        if owner == Owner::Nobody {
            return None;
        }
        let outcome = Outcome::Accepted(self.descriptors.adopt(accepted));
        Some(Completion { key, owner, outcome, more: true })
    }

    /// Send, Connect, Read: one completion, the last.
    fn on_result(&mut self, key: Key, result: i32) -> Option<Completion> {
        let outcome = if result < 0 { Err(errno(result)) } else { Ok(result as usize) };
        self.finish(key, |load| match load {
            Some(Load::Send { mut buffer, .. }) => {
                buffer.sent += *outcome.as_ref().unwrap_or(&0);
                Outcome::Sent { result: outcome, buffer }
            }
            Some(Load::Read { mut buffer, len, .. }) => {
                let filled = *outcome.as_ref().unwrap_or(&0);
                assert!(
                    filled <= len && filled <= buffer.capacity(),
                    "the kernel read more than was asked for"
                );
                // SAFETY: the kernel wrote `filled` bytes from the start of the buffer, which has that capacity.
                unsafe { buffer.set_len(filled) };
                Outcome::Read { result: outcome, buffer }
            }
            _ => Outcome::Connected(outcome.map(drop)),
        })
    }

    /// The terminal completion: frees the slot and its load.
    #[inline]
    fn finish(&mut self, key: Key, outcome: impl FnOnce(Option<Load>) -> Outcome) -> Option<Completion> {
        let slot = self.slots.remove(key)?;
        #[cfg(debug_assertions)]
        self.in_flight.remove(slot.fd);
        let mut load = self.loads.remove(slot.load);
        if let Some(Load::Send { message, .. }) = &mut load
            && let Some(message) = message.take()
            && self.spare_messages.len() < SPARE_MESSAGES_MAX
        {
            self.spare_messages.push(message);
        }
        let outcome = outcome(load);
        (slot.owner != Owner::Nobody).then_some(Completion { key, owner: slot.owner, outcome, more: false })
    }

    fn on_wake(&mut self, more: bool) -> Option<Completion> {
        self.wake_armed &= more;
        if !self.wake_armed && !self.stopping {
            self.arm_wake();
        }
        None
    }

    /// A cancel that found nothing: its target is over, or was between two states. Nothing is freed here.
    fn on_cancel(&mut self, target: Key, result: i32) -> Option<Completion> {
        let slot = self.slots.get(target)?;
        let goes_on_by_itself = matches!(slot.kind, Kind::Accept | Kind::Receive);
        if matches!(-result, libc::ENOENT | libc::EALREADY)
            && slot.place == Place::Kernel
            && goes_on_by_itself
        {
            self.cancel_again.push(target);
        }
        None
    }

    /// A completion of nobody's. What it brings is released.
    #[cold]
    fn ignore(&mut self, result: i32, kind: Option<Kind>, buffer: Option<Vec<u8>>) -> Option<Completion> {
        self.counts.stale_completions += 1;
        if kind == Some(Kind::Accept) && result >= 0 {
            drop(owned(result));
        }
        if let Some(buffer) = buffer {
            self.pool.return_loan(buffer);
        }
        None
    }
}

fn errno(result: i32) -> io::Error {
    io::Error::from_raw_os_error(-result)
}

/// A descriptor that a completion brought.
fn owned(number: i32) -> OwnedFd {
    // SAFETY: the kernel has just installed it for this completion, which is read once; nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Message headers kept for the next vectored send: 1.1 KiB each.
const SPARE_MESSAGES_MAX: usize = 64;
