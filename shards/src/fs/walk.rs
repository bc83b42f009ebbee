//! The way beneath a root for kernels without `openat2`: one component after the other, no link followed.
//!
//! Each directory is held open while the next name is looked up in it, so a rename cannot lead outside, and
//! `O_NOFOLLOW` refuses a link at every step. It costs a system call per component and may wait for a disk.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

/// Opens `name`, which has plain components only (or is `.`), beneath `root` with `flags`.
pub(super) fn open(root: &OwnedFd, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut held: Option<OwnedFd> = None;
    let mut parts = name.components().peekable();
    while let Some(part) = parts.next() {
        let directory = held.as_ref().unwrap_or(root).as_fd();
        let flags = if parts.peek().is_some() { on_the_way } else { flags | OFlags::NOFOLLOW };
        let next = rustix::fs::openat(directory, part.as_os_str(), flags, Mode::empty())?;
        if parts.peek().is_none() {
            return Ok(next);
        }
        held = Some(next);
    }
    Err(Errno::NOENT)
}
