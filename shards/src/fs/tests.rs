//! Real files in a temporary folder: what is opened, what is refused, and that nothing waits.

use super::*;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    os::unix::net::UnixListener,
    sync::mpsc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// `DIR/secret` outside, `DIR/www` the root with `file`, `sub/inner`, links, a FIFO and a socket.
fn tree() -> (TempDir, std::path::PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let www = outer.path().join("www");
    fs::create_dir_all(www.join("sub")).unwrap();
    fs::write(outer.path().join("secret"), b"SECRET").unwrap();
    fs::write(www.join("file"), b"0123456789").unwrap();
    fs::write(www.join("sub/inner"), b"inner").unwrap();
    symlink("../secret", www.join("out")).unwrap();
    symlink(outer.path().join("secret"), www.join("absolute")).unwrap();
    symlink("..", www.join("up")).unwrap();
    symlink("sub", www.join("folder")).unwrap();
    symlink("sub/inner", www.join("inside")).unwrap();
    symlink("loop", www.join("loop")).unwrap();
    symlink("/proc/self/root", www.join("magic")).unwrap();
    (outer, www)
}

fn both(www: &Path) -> [Root; 2] {
    [Root::open(www).unwrap(), Root::open(www).unwrap().without_openat2()]
}

fn content(file: &OpenFile) -> Vec<u8> {
    let mut buffer = vec![0; 64];
    let read = file.read_blocking(&mut buffer, 0).unwrap();
    buffer.truncate(read);
    buffer
}

fn refused(root: &Root, name: &str, follow: Follow) -> Refused {
    Refused::from_error(&root.open_blocking(Path::new(name), follow).unwrap_err())
}

#[test]
fn opens_what_is_beneath_with_its_metadata() {
    let (_outer, www) = tree();
    for root in both(&www) {
        let file = root.open_blocking(Path::new("file"), Follow::No).unwrap();
        assert_eq!(content(&file), b"0123456789");
        assert_eq!((file.metadata().len, file.metadata().kind), (10, Kind::File));
        let inner = root.open_blocking(Path::new("sub/inner"), Follow::No).unwrap();
        assert_eq!(content(&inner), b"inner");
        assert_ne!(inner.metadata().inode, file.metadata().inode);
        let sub = root.open_blocking(Path::new("sub"), Follow::No).unwrap();
        assert_eq!(sub.metadata().kind, Kind::Directory);
        let itself = root.open_blocking(Path::new(""), Follow::No).unwrap();
        assert_eq!(itself.metadata().kind, Kind::Directory);
    }
}

#[test]
fn refuses_links_by_default_and_what_leads_outside_always() {
    let (_outer, www) = tree();
    for root in both(&www) {
        for name in ["out", "absolute", "inside", "folder", "loop", "up", "magic"] {
            assert_eq!(refused(&root, name, Follow::No), Refused::Denied, "{name}");
        }
        for name in ["up/secret", "folder/inner", "magic/etc/hostname"] {
            assert!(root.open_blocking(Path::new(name), Follow::No).is_err(), "{name}");
        }
        for name in
            ["out", "absolute", "up", "up/secret", "up/www/file", "magic", "magic/etc/hostname", "loop"]
        {
            assert!(root.open_blocking(Path::new(name), Follow::Beneath).is_err(), "{name}");
        }
    }
    let root = Root::open(&www).unwrap();
    if root.resolver == Resolver::Kernel {
        let inside = root.open_blocking(Path::new("inside"), Follow::Beneath).unwrap();
        assert_eq!(content(&inside), b"inner");
        assert!(root.open_blocking(Path::new("folder/inner"), Follow::Beneath).is_ok());
    }
}

#[test]
fn refuses_names_that_are_not_plain_before_the_kernel_sees_them() {
    let (_outer, www) = tree();
    for root in both(&www) {
        for name in ["..", "../secret", "/etc/hostname", "sub/../file", "sub/../../secret", "a\0b", "./file"]
        {
            let error = root.open_blocking(Path::new(name), Follow::Beneath).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
        for name in ["none", "file/x", "sub/none/more", &"n".repeat(300)] {
            assert_eq!(refused(&root, name, Follow::No), Refused::Missing, "{name}");
        }
    }
}

/// P3: the open of a FIFO without writer, of a socket and of a device returns at once.
#[test]
fn special_files_neither_block_nor_pass_for_files() {
    let (_outer, www) = tree();
    let fifo = www.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
    let _socket = UnixListener::bind(www.join("socket")).unwrap();
    let (done, finished) = mpsc::channel();
    let opener = std::thread::spawn(move || {
        for root in both(&www) {
            let fifo = root.open_blocking(Path::new("fifo"), Follow::No).unwrap();
            assert_eq!(fifo.metadata().kind, Kind::Special);
            assert_eq!(refused(&root, "socket", Follow::No), Refused::Special);
        }
        let devices = Root::open("/dev").unwrap();
        assert_eq!(
            devices.open_blocking(Path::new("null"), Follow::No).unwrap().metadata().kind,
            Kind::Special
        );
        done.send(()).unwrap();
    });
    finished.recv_timeout(Duration::from_secs(10)).expect("an open waited");
    opener.join().unwrap();
}

#[test]
fn a_cached_open_answers_or_says_would_block() {
    let (_outer, www) = tree();
    let root = Root::open(&www).unwrap();
    root.open_blocking(Path::new("sub/inner"), Follow::No).unwrap();
    match root.try_open_cached(Path::new("sub/inner"), Follow::No) {
        Ok(file) => assert_eq!(content(&file), b"inner"),
        Err(error) => assert_eq!(Refused::from_error(&error), Refused::WouldBlock),
    }
    let error = root.try_open_cached(Path::new("out"), Follow::No).unwrap_err();
    assert!(matches!(Refused::from_error(&error), Refused::Denied | Refused::WouldBlock), "{error}");
    let walk = root.without_openat2();
    let error = walk.try_open_cached(Path::new("file"), Follow::No).unwrap_err();
    assert_eq!(Refused::from_error(&error), Refused::WouldBlock);
}

#[test]
fn reads_at_offsets_and_sees_a_file_shrink_and_grow() {
    let (_outer, www) = tree();
    let file = Root::open(&www).unwrap().open_blocking(Path::new("file"), Follow::No).unwrap();
    let mut buffer = [0; 4];
    assert_eq!(file.read_blocking(&mut buffer, 8).unwrap(), 2);
    assert_eq!(&buffer[..2], b"89");
    match file.try_read_cached(&mut buffer, 0) {
        Ok(read) => assert_eq!(&buffer[..read], &b"0123"[..read]),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
    }
    fs::write(www.join("file"), b"01").unwrap();
    assert_eq!(file.metadata_now().unwrap().len, 2);
    assert_eq!(file.read_blocking(&mut buffer, 4).unwrap(), 0);
    fs::write(www.join("file"), vec![b'x'; 100]).unwrap();
    assert_eq!((file.metadata_now().unwrap().len, file.metadata().len), (100, 10));
}

#[test]
fn entries_are_capped_and_keep_their_kind() {
    let (_outer, www) = tree();
    let root = Root::open(&www).unwrap().open_blocking(Path::new(""), Follow::No).unwrap();
    let all = root.entries_blocking(100).unwrap();
    assert!(!all.truncated);
    let kind = |name: &str| all.list.iter().find(|entry| entry.name == name).unwrap().metadata.kind;
    assert_eq!((kind("file"), kind("sub"), kind("out")), (Kind::File, Kind::Directory, Kind::Link));
    let few = root.entries_blocking(3).unwrap();
    assert_eq!((few.list.len(), few.truncated), (3, true));
    assert!(!root.entries_blocking(all.list.len()).unwrap().truncated);
    let file = Root::open(&www).unwrap().open_blocking(Path::new("file"), Follow::No).unwrap();
    assert!(file.entries_blocking(3).is_err());
}

#[test]
fn an_unreadable_file_is_denied() {
    let (_outer, www) = tree();
    fs::set_permissions(www.join("file"), fs::Permissions::from_mode(0o0)).unwrap();
    if fs::read(www.join("file")).is_ok() {
        // Root reads everything: nothing to see here.
        return;
    }
    for root in both(&www) {
        assert_eq!(refused(&root, "file", Follow::No), Refused::Denied);
    }
}

/// P2: a name that flips between a file and a link to the outside never gives the outside.
#[test]
fn a_link_swapped_in_during_the_open_never_leaks() {
    let (outer, www) = tree();
    let secret = fs::metadata(outer.path().join("secret")).unwrap();
    let swapper_root = www.clone();
    let (stop, stopped) = mpsc::channel::<()>();
    let swapper = std::thread::spawn(move || {
        let staged = swapper_root.join("staged");
        while matches!(stopped.try_recv(), Err(mpsc::TryRecvError::Empty)) {
            symlink("../secret", &staged).unwrap();
            fs::rename(&staged, swapper_root.join("flip")).unwrap();
            fs::write(&staged, b"public").unwrap();
            fs::rename(&staged, swapper_root.join("flip")).unwrap();
        }
    });
    let (mut opened, mut denied) = (0_u32, 0_u32);
    let end = Instant::now() + Duration::from_millis(400);
    let roots = both(&www);
    while Instant::now() < end {
        for (root, follow) in [(&roots[0], Follow::No), (&roots[0], Follow::Beneath), (&roots[1], Follow::No)]
        {
            match root.open_blocking(Path::new("flip"), follow) {
                Ok(file) => {
                    assert_ne!(file.metadata().inode, std::os::unix::fs::MetadataExt::ino(&secret));
                    opened += 1;
                }
                Err(_) => denied += 1,
            }
        }
    }
    stop.send(()).unwrap();
    swapper.join().unwrap();
    assert!(opened > 0 && denied > 0, "the race was not run: {opened} opened, {denied} refused");
}
