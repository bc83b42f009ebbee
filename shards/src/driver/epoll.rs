//! Skeleton: filled in by the next commits.

use super::{
    Address, Completion, Descriptor, DriverAccount, DriverOptions, ListenOptions, Op, Owner, SendProgress,
    Shutdown, SocketOption, TurnResult, Wait,
};
use crate::{buffers::Pool, error::Result, inbox::WakeFd, sync::Arc, table::Key};
use std::{io, net::SocketAddr, os::fd::OwnedFd, rc::Rc, time::Duration};

#[derive(Debug)]
pub(crate) struct EpollDriver;

impl EpollDriver {
    pub(crate) fn new(_options: &DriverOptions, _pool: Rc<Pool>, _wake: Arc<WakeFd>) -> Result<Self> {
        unreachable!()
    }
    pub(crate) fn submit(&mut self, _op: Op, _owner: Owner) -> Key {
        unreachable!()
    }
    pub(crate) fn cancel(&mut self, _key: Key) {
        unreachable!()
    }
    pub(crate) fn orphan(&mut self, _key: Key) {
        unreachable!()
    }
    pub(crate) fn turn(&mut self, _wait: Wait) -> TurnResult {
        unreachable!()
    }
    pub(crate) fn next(&mut self) -> Option<Completion> {
        unreachable!()
    }
    pub(crate) fn has_work(&self) -> bool {
        unreachable!()
    }
    pub(crate) fn listen(&mut self, _at: &Address, _options: ListenOptions) -> Result<(Descriptor, Address)> {
        unreachable!()
    }
    pub(crate) fn socket(&mut self, _to: &Address) -> Result<Descriptor> {
        unreachable!()
    }
    pub(crate) fn adopt(&mut self, _fd: OwnedFd) -> Descriptor {
        unreachable!()
    }
    pub(crate) fn release(&mut self, _fd: Descriptor) -> Option<OwnedFd> {
        unreachable!()
    }
    pub(crate) fn close(&mut self, _fd: Descriptor) {
        unreachable!()
    }
    pub(crate) fn shutdown(&mut self, _fd: Descriptor, _how: Shutdown) -> io::Result<()> {
        unreachable!()
    }
    pub(crate) fn peer(&self, _fd: Descriptor) -> io::Result<Option<SocketAddr>> {
        unreachable!()
    }
    pub(crate) fn set_option(&mut self, _fd: Descriptor, _option: SocketOption) -> io::Result<()> {
        unreachable!()
    }
    pub(crate) fn send_progress(&self, _fd: Descriptor) -> io::Result<SendProgress> {
        unreachable!()
    }
    pub(crate) fn account(&self) -> DriverAccount {
        unreachable!()
    }
    pub(crate) fn stop(self: Box<Self>, _within: Duration) -> usize {
        unreachable!()
    }
}
