//! Files beneath a root: opened so that nothing outside is ever reached and nothing ever blocks a shard.
//!
//! A [`Root`] holds a directory open. Names are resolved from it by `openat2(2)` with `RESOLVE_BENEATH`, so the
//! kernel keeps the promise while names, links and mounts change under it; no check of strings is trusted.
//! Where `openat2` is missing, `walk` opens one component after the other and follows no link at all.
//!
//! Every call here is a system call that returns at once (`try_*`) or one that may wait for a disk (`*_blocking`,
//! for the offload pool). Waiting, buffers and the ring are the caller's. It never writes, creates or removes.

mod walk;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags};
use std::{
    ffi::OsString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::ffi::OsStringExt,
    path::{Component, Path},
};

/// A directory, held open, beneath which files are opened. `Send` and `Sync`: a pool thread may use it too.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    resolver: Resolver,
}

/// How names are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolver {
    /// `openat2(2)`, Linux 5.6 and later.
    Kernel,
    /// `openat(2)` per component: an older kernel, or a seccomp filter that does not know `openat2`.
    Walk,
}

/// What happens to symbolic links on the way and at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// A link anywhere in the name is refused.
    #[default]
    No,
    /// Links are followed as long as every step stays beneath the root. Refused like [`Follow::No`] where the
    /// kernel has no `openat2`.
    Beneath,
}

impl Root {
    /// Opens the directory at `path`; links in `path` itself are followed, it is the operator's own word.
    ///
    /// # Errors
    /// What `open(2)` says, `NotADirectory` among it.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path.as_ref(), flags, Mode::empty())?;
        let probe = rustix::fs::openat2(&directory, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
        // Only a kernel or a filter that does not know the call answers so (openat2(2), seccomp(2)).
        let missing = matches!(probe, Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP));
        let resolver = if missing { Resolver::Walk } else { Resolver::Kernel };
        Ok(Root { directory, resolver })
    }

    /// The same root without `openat2`, as on a kernel that lacks it.
    #[must_use]
    pub fn without_openat2(mut self) -> Root {
        self.resolver = Resolver::Walk;
        self
    }

    /// A second handle on the same directory, for another shard.
    ///
    /// # Errors
    /// Descriptor exhaustion.
    pub fn try_clone(&self) -> io::Result<Root> {
        Ok(Root { directory: self.directory.try_clone()?, resolver: self.resolver })
    }

    /// Opens from the kernel's cache of names alone: never waits for a disk, so a shard may call it.
    ///
    /// # Errors
    /// `WouldBlock`: not decidable without waiting; call [`Root::open_blocking`] on the offload pool.
    /// Else as there.
    pub fn try_open_cached(&self, relative: &Path, follow: Follow) -> io::Result<OpenFile> {
        if self.resolver == Resolver::Walk {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let name = checked(relative)?;
        match self.openat2(name, follow, ResolveFlags::CACHED) {
            Ok(fd) => OpenFile::new(fd),
            // EINVAL: RESOLVE_CACHED is younger (5.12) than openat2; ENOSYS: a filter came later than the root.
            Err(Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens a file or directory for reading. May wait for a disk, never for a peer: a FIFO or device does not
    /// block (`O_NONBLOCK`), is no terminal of ours (`O_NOCTTY`) and shows in [`Metadata::kind`].
    ///
    /// `relative` has plain components only; empty means the root itself.
    ///
    /// # Errors
    /// `InvalidInput` for an absolute name, `..` or NUL; otherwise the kernel's answer, sorted by
    /// [`Refused::from_error`]. `WouldBlock` here means that another process holds a lease on the file.
    pub fn open_blocking(&self, relative: &Path, follow: Follow) -> io::Result<OpenFile> {
        let name = checked(relative)?;
        if self.resolver == Resolver::Walk {
            return OpenFile::new(walk::open(&self.directory, name, open_flags())?);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.openat2(name, follow, ResolveFlags::empty()) {
                Ok(fd) => return OpenFile::new(fd),
                Err(Errno::NOSYS) => return OpenFile::new(walk::open(&self.directory, name, open_flags())?),
                // A rename raced with a `..` inside a followed link: openat2(2) asks to try again.
                Err(Errno::AGAIN | Errno::INTR) if tries < RACE_TRIES_MAX => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn openat2(&self, name: &Path, follow: Follow, more: ResolveFlags) -> Result<OwnedFd, Errno> {
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
        let (flags, resolve) = match follow {
            Follow::No => (open_flags(), beneath | ResolveFlags::NO_SYMLINKS),
            Follow::Beneath => (open_flags() - OFlags::NOFOLLOW, beneath),
        };
        rustix::fs::openat2(&self.directory, name, flags, Mode::empty(), resolve)
    }
}

/// A file or directory that is open for reading, and what it was when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    metadata: Metadata,
}

impl OpenFile {
    fn new(fd: OwnedFd) -> io::Result<OpenFile> {
        let metadata = Metadata::from_stat(&rustix::fs::fstat(&fd)?);
        Ok(OpenFile { fd, metadata })
    }

    /// What the file was when it was opened.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// What the file is now: to see that it shrank, grew or was written while being sent.
    ///
    /// # Errors
    /// What `fstat(2)` says.
    pub fn metadata_now(&self) -> io::Result<Metadata> {
        Ok(Metadata::from_stat(&rustix::fs::fstat(&self.fd)?))
    }

    /// Reads at `offset` from the page cache alone; never waits for a disk. May be short; 0 is the end.
    ///
    /// # Errors
    /// `WouldBlock`: not in memory, or the file system cannot tell.
    pub fn try_read_cached(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut parts = [io::IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.fd, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads at `offset`; may wait for a disk. May be short; 0 is the end.
    ///
    /// # Errors
    /// What `pread(2)` says.
    pub fn read_blocking(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pread(&self.fd, &mut *buffer, offset))?)
    }

    /// The entries of a directory in the order of the file system, at most `entries_max`; links and special
    /// files keep their kind and are not followed. May wait for a disk.
    ///
    /// # Errors
    /// `NotADirectory`, or what `getdents(2)` says. An entry that vanishes meanwhile is left out.
    pub fn entries_blocking(&self, entries_max: usize) -> io::Result<Entries> {
        let mut list = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if list.len() >= entries_max {
                return Ok(Entries { list, truncated: true });
            }
            if let Ok(stat) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                let name = OsString::from_vec(name.to_bytes().to_vec());
                list.push(Entry { name, metadata: Metadata::from_stat(&stat) });
            }
        }
        Ok(Entries { list, truncated: false })
    }

    /// The descriptor, for a driver or another system call.
    ///
    /// # Errors
    /// What `fcntl(2)` says.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        if self.metadata.kind == Kind::File {
            // O_NONBLOCK has done its work. Left on, a ring read may answer EAGAIN on file systems without nowait
            // support instead of going to a worker. Our own reads do not care, so small files are spared the call.
            rustix::fs::fcntl_setfl(&self.fd, OFlags::empty())?;
        }
        Ok(self.fd)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What `fstat(2)` tells of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes.
    pub len: u64,
    /// Last modification in seconds since 1970, negative before.
    pub modified_s: i64,
    /// Nanoseconds on top, 0 to 999,999,999.
    pub modified_ns: u32,
    /// Number on its device.
    pub inode: u64,
    /// Device it lives on.
    pub device: u64,
    /// What it is.
    pub kind: Kind,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (only in [`Entries`]).
    Link,
    /// A FIFO, socket or device: never served.
    Special,
}

impl Metadata {
    fn from_stat(stat: &Stat) -> Metadata {
        Metadata {
            len: u64::try_from(stat.st_size).unwrap_or(0),
            modified_s: stat.st_mtime,
            modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            inode: stat.st_ino,
            device: stat.st_dev,
            kind: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink => Kind::Link,
                _ => Kind::Special,
            },
        }
    }
}

/// Entries of a directory.
#[derive(Debug, Clone)]
pub struct Entries {
    /// In the order of the file system.
    pub list: Vec<Entry>,
    /// There were more than asked for.
    pub truncated: bool,
}

/// One entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name: one component, any bytes but `/` and NUL.
    pub name: OsString,
    /// What it is; of a link the link itself.
    pub metadata: Metadata,
}

/// Why a file could not be opened, sorted by what a server can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such file, or the name is impossible.
    Missing,
    /// It is there but not ours to read, or a link that policy or the root's border refuses.
    Denied,
    /// A socket, or a device without driver.
    Special,
    /// Ask again on the offload pool, or later: a lease or a race.
    WouldBlock,
    /// Descriptors or memory ran out: ours to mend, not the peer's.
    Exhausted,
    /// The disk failed, or an answer without a name here.
    Failed,
}

impl Refused {
    /// Sorts an error of [`Root::try_open_cached`] or [`Root::open_blocking`].
    #[must_use]
    pub fn from_error(error: &io::Error) -> Refused {
        if error.kind() == io::ErrorKind::InvalidInput {
            return Refused::Missing;
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Refused::Missing,
            // XDEV: outside the root (RESOLVE_BENEATH); LOOP: a link (RESOLVE_NO_SYMLINKS, O_NOFOLLOW).
            Some(Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::LOOP) => Refused::Denied,
            Some(Errno::NXIO | Errno::NODEV) => Refused::Special,
            Some(Errno::AGAIN | Errno::BUSY) => Refused::WouldBlock,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Refused::Exhausted,
            None if error.kind() == io::ErrorKind::WouldBlock => Refused::WouldBlock,
            _ => Refused::Failed,
        }
    }
}

/// The name to hand to the kernel: plain components only, `.` for the root itself. A second line of defence, the
/// kernel's flags are the first.
fn checked(relative: &Path) -> io::Result<&Path> {
    if relative.as_os_str().is_empty() {
        return Ok(Path::new("."));
    }
    let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let has_nul = relative.as_os_str().as_encoded_bytes().contains(&0);
    if plain && !has_nul { Ok(relative) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn open_flags() -> OFlags {
    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY
}

/// How often a lookup that lost a race with a rename is repeated before it is an error.
const RACE_TRIES_MAX: u32 = 4;

#[cfg(test)]
mod tests;
