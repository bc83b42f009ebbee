//! Servers of the library in this process, on the driver that a test names, and what their callbacks have noted.
//! `common` starts the program itself; this file starts no process.

use super::{DEADLINE, client::Client, for_each_driver, wait_for};
use shardlet::{
    EndReason, Exchange, Limits, Router, Server, ShutdownPlan, exchange::LifeCycleCounters, server,
};
use shards::{DriverChoice, ShardHandle};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// Runs the test on both drivers; io_uring is left out, aloud, only where it cannot work.
pub fn each_driver(test: impl Fn(DriverChoice)) {
    for_each_driver(|driver| {
        println!("driver {driver}");
        test(if driver == "uring" { DriverChoice::Uring } else { DriverChoice::Epoll });
    });
}

/// A server with one shard; dropping it cuts everything.
pub struct Local {
    server: Option<Server>,
    address: SocketAddr,
}

impl Local {
    /// With the default limits.
    pub fn start<F>(driver: DriverChoice, routes: F) -> Local
    where
        F: Fn(&shards::Shard) -> Router + Send + Sync + 'static,
    {
        Local::with_limits(driver, Limits::DEFAULT, routes)
    }

    /// With these limits.
    pub fn with_limits<F>(driver: DriverChoice, limits: Limits, routes: F) -> Local
    where
        F: Fn(&shards::Shard) -> Router + Send + Sync + 'static,
    {
        let any_port: SocketAddr = ([127, 0, 0, 1], 0).into();
        // The two fields would show in whatever carries the fields of an answer.
        let builder = Server::builder().listen(any_port).shards(1).driver(driver).limits(limits);
        let server = builder.shard_field("X-Shard").start(routes).expect("the server starts");
        let address = server.address().tcp().expect("a TCP address");
        Local { server: Some(server), address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server itself.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Its one shard.
    pub fn shard(&self) -> &ShardHandle {
        &self.server().handles()[0]
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// What its exchanges have been counted as.
    pub fn counters(&self) -> LifeCycleCounters {
        let asked = self.shard().submit_to(server::snapshot);
        asked.wait().expect("the shard answers").expect("the service runs").life_cycle
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        let asked = self.shard().submit_to(server::snapshot);
        asked.wait().expect("the shard answers").expect("the service runs").connections()
    }

    /// Waits until every connection has gone: every exchange has ended once and no callback has panicked.
    pub fn expect_rest(&self) {
        let rest = wait_for(DEADLINE, || self.connections() == 0 && self.counters().live == 0);
        let counters = self.counters();
        assert!(rest, "{} connections left, {counters:?}", self.connections());
        assert_eq!(counters.ended_total(), counters.started);
        assert_eq!((counters.panics, counters.async_active, counters.executor_queued), (0, 0, 0));
    }

    /// Ends it by a plan and waits for the end.
    pub fn end(mut self, plan: ShutdownPlan) {
        let server = self.server.take().expect("it runs");
        assert!(server.shutdown(plan).iter().all(|shard| shard.result.is_ok()));
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown(ShutdownPlan::now());
        }
    }
}

/// What the callbacks of a server have noted, in their order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Notes it.
    pub fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// Everything so far.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Everything so far, and begins anew.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    /// How often it was noted.
    pub fn count(&self, what: &str) -> usize {
        self.all().iter().filter(|noted| *noted == what).count()
    }

    /// Waits until it has been noted so often.
    pub fn await_count(&self, what: &str, count: usize) {
        let reached = wait_for(DEADLINE, || self.count(what) >= count);
        assert!(reached, "{what} came {} times of {count}: {:?}", self.count(what), self.all());
    }

    /// Notes how the exchange ends.
    pub fn watch(&self, x: &mut Exchange) {
        let (error, complete) = (self.clone(), self.clone());
        x.on_error(move |_, reason: EndReason| error.note(format!("error {reason}")));
        x.on_complete(move |_, reason: EndReason| complete.note(format!("complete {reason}")));
    }
}
