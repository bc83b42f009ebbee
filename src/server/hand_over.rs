//! From one process to the next: the listening sockets of a server as values, and its end behind them. How they get to
//! the other process is the program's business.
//!
//! A socket that two processes hold loses nobody: its queue stays when one of them closes it. A second socket on the same
//! port (SO_REUSEPORT) has a queue of its own, and those who wait in the first one are reset when it closes.

use super::{begin_shutdown, running_on};
use crate::shutdown::ShutdownPlan;
use shards::{Shard, ShardHandle, net::SocketAddress};
use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    rc::Weak,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// Sockets that listen at one address: one for all shards of a server, or one for each.
#[derive(Debug)]
pub struct ListeningSockets {
    /// Where.
    pub address: SocketAddress,
    /// In the order of the shards.
    pub sockets: Vec<OwnedFd>,
}

/// Second descriptors of all sockets on which a server listens, for a process that goes on with them
/// ([`Builder::take_over`](crate::server::Builder::take_over)), in the order of its addresses. The server goes on as before.
///
/// # Errors
/// The kernel's: no descriptor is left; or a shard is ending already.
pub fn listening_sockets(handles: &[ShardHandle]) -> io::Result<Vec<ListeningSockets>> {
    let mut all: Vec<ListeningSockets> = Vec::new();
    for handle in handles {
        let of_shard = handle.submit_to(sockets_of).wait();
        let of_shard = of_shard.map_err(|_| io::Error::other("a shard is ending"))??;
        for (place, (address, socket)) in of_shard.into_iter().enumerate() {
            if place == all.len() {
                all.push(ListeningSockets { address, sockets: Vec::new() });
            }
            all[place].sockets.extend(socket);
        }
    }
    Ok(all)
}

/// Begins the end of a server whose sockets another process has taken over: no address is listened on from now on,
/// and the plan is that of [`begin_shutdown`].
pub fn begin_hand_over(handles: &[ShardHandle], plan: ShutdownPlan) {
    for handle in handles {
        let _ = handle.execute(|shard: &Shard| {
            if let Some(running) = running_on(shard) {
                running.listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.stop());
                // Whoever asks there wants to hear of the process that has taken over.
                for service in &running.services[1..] {
                    service.begin_drain();
                    service.connection_keys().into_iter().for_each(|key| service.drain(key));
                }
            }
        });
    }
    begin_shutdown(handles, plan);
}

/// Waits until none of a server's listeners accepts any more; given up after 10 s.
pub fn wait_until_stopped(handles: &[ShardHandle]) {
    let stopped = |shard: &Shard| {
        let listeners = running_on(shard).map_or_else(Vec::new, |running| {
            running.listeners.iter().filter_map(Weak::upgrade).collect::<Vec<_>>()
        });
        listeners.iter().all(|listener| listener.has_stopped())
    };
    // A shard that takes no message is gone.
    let all_stopped = || handles.iter().all(|handle| handle.submit_to(stopped).wait().unwrap_or(true));
    let mut rounds = 0..STOP_WITHIN.as_millis() / LOOK.as_millis();
    while !all_stopped() && rounds.next().is_some() {
        thread::sleep(LOOK);
    }
}

/// Makes every listener look at its queue anew: the process before has stopped, and may have been woken for connections
/// that it left there.
pub fn look_again(handles: &[ShardHandle]) {
    for handle in handles {
        let _ = handle.execute(|shard: &Shard| {
            if let Some(running) = running_on(shard) {
                running.listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.look_again());
            }
        });
    }
}

/// How long listeners may take to stop: a turn of each shard, unless one is blocked.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(2);

type ShardSockets = io::Result<Vec<(SocketAddress, Option<OwnedFd>)>>;

fn sockets_of(shard: &Shard) -> ShardSockets {
    let running = running_on(shard).ok_or_else(|| io::Error::other("the shard is ending"))?;
    let listeners = running.listeners.iter().map(|listener| {
        let listener = listener.upgrade().ok_or_else(|| io::Error::other("the server is ending"))?;
        Ok((listener.address().clone(), listener.duplicate()?))
    });
    listeners.collect()
}

/// Sockets of the process before that have not been asked for. Shared by the clones of a builder: they are there once.
#[derive(Clone, Default)]
pub(super) struct Inherited(Arc<Mutex<VecDeque<ListeningSockets>>>);

impl Inherited {
    pub(super) fn extend(&self, sockets: Vec<ListeningSockets>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(sockets);
    }

    /// The next sockets, which must be those of this address.
    pub(super) fn next_for(&self, address: &SocketAddress) -> shards::Result<Option<Vec<OwnedFd>>> {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(ListeningSockets { address: has, sockets }) = next else { return Ok(None) };
        let any_port = address
            .tcp()
            .zip(has.tcp())
            .is_some_and(|(asked, has)| asked.port() == 0 && asked.ip() == has.ip());
        if *address != has && !any_port {
            return Err(shards::Error::Misuse {
                advice: "listen where whoever hands its sockets over listens",
            });
        }
        Ok(Some(sockets))
    }
}
