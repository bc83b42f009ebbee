//! Handing the listening sockets from a running program to a new one that it starts: USR2. The new program gets them over
//! its standard input, a Unix socket (SCM_RIGHTS, unix(7)), starts, and says so with one byte; only then does the old one
//! end, in its own time. Until that byte the old program has changed nothing: a new one that cannot start costs nobody.
//! Neighbours: `run` calls both ends; the sockets are `server`'s.

use crate::failure::{Exit, Failure};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use shardlet::{
    ShutdownPlan,
    server::{self, ListeningSockets},
};
use shards::ShardHandle;
use std::{
    env,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Set for a program that finds the sockets of the one before on its standard input.
const VARIABLE: &str = "SHARDLET_TAKE_OVER";

/// Most descriptors of one message (unix(7), SCM_MAX_FD).
const SOCKETS_MAX: usize = 253;

/// Most octets of the list of addresses.
const LIST_MAX: usize = 64 * 1024;

/// How long the new program may take to start.
const START_WITHIN: Duration = Duration::from_secs(60);

/// How long requests of the old program may go on: others are served by now. TERM and INT shorten it.
const GRACE: Duration = Duration::from_secs(3600);

/// What was taken over, and the way to say that it is in use.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) sockets: Vec<ListeningSockets>,
    before: UnixStream,
}

impl Taken {
    /// Tells the program before that this one serves; what it leaves in the queues when it stops is looked for.
    pub(crate) fn say_ready(self, handles: &[ShardHandle]) -> io::Result<()> {
        // If it is gone there is nobody to tell, and its end is read at once.
        let _ = (&self.before).write_all(b"r");
        let handles = handles.to_vec();
        let wait = move || {
            let _its_end = (&self.before).read(&mut [0]);
            server::look_again(&handles);
        };
        thread::Builder::new().name("taken-over".into()).spawn(wait).map(drop)
    }
}

/// Takes over what the program before hands over, if there is one.
pub(crate) fn take() -> Result<Option<Taken>, Failure> {
    if env::var_os(VARIABLE).is_none() {
        return Ok(None);
    }
    let failed = |error: io::Error| {
        let what = format!("cannot take over the sockets of the program before: {error}");
        Failure::new(Exit::Environment, what, format!("start it with {VARIABLE} unset"))
    };
    let before = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).map_err(failed)?;
    let sockets = receive(&before).map_err(failed)?;
    Ok(Some(Taken { sockets, before }))
}

/// The program as it was called, so that a new version at the same place is found, and who is already at it.
#[derive(Debug)]
pub(crate) struct HandOver {
    program: io::Result<PathBuf>,
    under_way: AtomicBool,
}

impl HandOver {
    /// Notes the place now: when the file has been replaced the kernel calls the old one deleted.
    pub(crate) fn new() -> HandOver {
        HandOver { program: env::current_exe(), under_way: AtomicBool::new(false) }
    }

    /// Starts a new program and hands over to it, on a thread of its own: signals are heard meanwhile.
    pub(crate) fn begin(this: &std::sync::Arc<HandOver>, handles: &[ShardHandle]) {
        if this.under_way.swap(true, Ordering::AcqRel) {
            return tracing::warn!("a new process is being started already");
        }
        let (hand_over, handles) = (this.clone(), handles.to_vec());
        let work = move || {
            if let Err(error) = hand_over.run(&handles) {
                tracing::error!("no hand-over, this process goes on: {error}");
            }
            hand_over.under_way.store(false, Ordering::Release);
        };
        if let Err(error) = thread::Builder::new().name("hand-over".into()).spawn(work) {
            this.under_way.store(false, Ordering::Release);
            tracing::error!("no hand-over, this process goes on: {error}");
        }
    }

    fn run(&self, handles: &[ShardHandle]) -> io::Result<()> {
        let program = self.program.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
        let sockets = server::listening_sockets(handles)?;
        let (ours, theirs) = UnixStream::pair()?;
        send(&ours, &sockets)?;
        drop(sockets);
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).env(VARIABLE, "stdin").stdin(OwnedFd::from(theirs));
        let mut child = command.spawn()?;
        // Only the child holds the other end from now on: its death is an end.
        drop(command);
        ours.set_read_timeout(Some(START_WITHIN))?;
        let answer = (&ours).read(&mut [0]);
        if !matches!(answer, Ok(1)) {
            // It may have ended by itself; either way it is gone behind this.
            let _ = child.kill();
            let status = child.wait()?;
            return Err(io::Error::other(format!("the new process did not start ({status})")));
        }
        // Said first: with nothing under way the process ends at once.
        tracing::info!("process {} has taken over; this one ends", child.id());
        server::begin_hand_over(handles, ShutdownPlan::graceful(GRACE));
        server::wait_until_stopped(handles);
        // The end of this socket tells the new one that it is alone.
        drop(ours);
        Ok(())
    }
}

/// The list of addresses and counts as text, the descriptors beside it.
fn send(to: &UnixStream, sockets: &[ListeningSockets]) -> io::Result<()> {
    let lines = sockets.iter().map(|of| format!("{} {}\n", of.sockets.len(), of.address));
    let list: String = lines.collect();
    let descriptors: Vec<_> = sockets.iter().flat_map(|of| &of.sockets).map(AsFd::as_fd).collect();
    if descriptors.len() > SOCKETS_MAX || list.len() > LIST_MAX {
        return Err(io::Error::other(format!("more than {SOCKETS_MAX} sockets")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fits = beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    debug_assert!(fits, "the space is for the most there may be");
    sendmsg(to, &[IoSlice::new(list.as_bytes())], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(from: &UnixStream) -> io::Result<Vec<ListeningSockets>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut list = vec![0; LIST_MAX];
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut list)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let rights = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut descriptors = rights.flatten();
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let list = std::str::from_utf8(&list[..got.bytes]).map_err(|_| broken())?;
    let sockets = list.lines().map(|line| {
        let (count, address) = line.split_once(' ').ok_or_else(broken)?;
        let count: usize = count.parse().map_err(|_| broken())?;
        let address = address.parse().map_err(|_| broken())?;
        let sockets: Vec<OwnedFd> = descriptors.by_ref().take(count).collect();
        if sockets.len() == count { Ok(ListeningSockets { address, sockets }) } else { Err(broken()) }
    });
    let sockets: Vec<_> = sockets.collect::<io::Result<_>>()?;
    if sockets.is_empty() || descriptors.next().is_some() { Err(broken()) } else { Ok(sockets) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener};

    fn listening(count: usize) -> ListeningSockets {
        let sockets: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("bound")).collect();
        let address: SocketAddr = sockets[0].local_addr().expect("an address");
        ListeningSockets {
            address: address.into(),
            sockets: sockets.into_iter().map(OwnedFd::from).collect(),
        }
    }

    #[test]
    fn sockets_arrive_with_their_addresses() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let sent = [listening(3), listening(1)];
        send(&here, &sent).expect("sent");
        let got = receive(&there).expect("received");
        assert_eq!(got.iter().map(|of| of.sockets.len()).collect::<Vec<_>>(), [3, 1]);
        for (sent, got) in sent.into_iter().zip(got) {
            assert_eq!(sent.address, got.address);
            for (sent, got) in sent.sockets.into_iter().zip(got.sockets) {
                let (sent, got) = (TcpListener::from(sent), TcpListener::from(got));
                assert_eq!(sent.local_addr().expect("open"), got.local_addr().expect("open"));
            }
        }
    }

    #[test]
    fn what_is_no_list_of_sockets_is_refused() {
        for bytes in [&b""[..], b"2 127.0.0.1:1\n", b"x 127.0.0.1:1\n", b"0\n", b"\xff"] {
            let (here, there) = UnixStream::pair().expect("a pair");
            (&here).write_all(bytes).expect("sent");
            drop(here);
            assert!(receive(&there).is_err(), "{bytes:?}");
        }
    }
}
