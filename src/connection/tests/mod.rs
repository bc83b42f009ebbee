//! Connections on a simulated shard: no socket, no clock, every fault from a seed.

mod connect;
mod errors;
mod extras;
mod leaving;
mod order;
mod panics;
mod random;
mod reply;

use super::{Service, ServiceOptions};
use crate::{
    error::Result,
    exchange::{AsyncContext, Exchange, asynchronous},
    limits::Limits,
    routing::{HalfClose, Router, get, post},
};
use shards::{
    Shard,
    net::Listener,
    testing::{SimFaults, Simulation},
    time,
};
use std::{cell::RefCell, rc::Rc, time::Duration};

/// A service on a simulated shard.
pub(super) struct World {
    pub(super) simulation: Simulation,
    pub(super) service: Rc<Service>,
    _listener: Listener,
}

const PORT: u16 = 80;

impl World {
    pub(super) fn new(seed: u64, limits: Limits, faults: SimFaults) -> Self {
        World::with(seed, options(limits), faults)
    }

    pub(super) fn with(seed: u64, options: ServiceOptions, faults: SimFaults) -> Self {
        let simulation = Simulation::with(seed, 1, faults);
        let (service, listener) = simulation.on(0, |shard| {
            let service = Service::new(shard, options);
            let at = format!("127.0.0.1:{PORT}").parse().expect("an address");
            let listener = Listener::bind(shard, &at, service.clone()).expect("the simulation listens");
            (service, listener)
        });
        World { simulation, service, _listener: listener }
    }

    /// The first phase of an end.
    pub(super) fn drain(&self) {
        self.simulation.on(0, |_| {
            self.service.begin_drain();
            self.service.connection_keys().into_iter().for_each(|key| self.service.drain(key));
        });
    }

    /// Panics unless nothing is left of what happened.
    pub(super) fn expect_nothing_left(&self, what: &str) {
        assert_eq!(self.service.connection_count(), 0, "{what}: connections left");
        let counters = self.service.exchanges.counters();
        assert_eq!(counters.live, 0, "{what}: exchanges live");
        assert_eq!((counters.sync_active, counters.async_active), (0, 0), "{what}: gauges");
        let ends: u64 = crate::EndReason::ALL.iter().map(|reason| counters.ended(*reason)).sum();
        assert_eq!(ends, counters.started, "{what}: every exchange ends once");
        let stats = self.simulation.on(0, |shard| shard.stats());
        assert_eq!((stats.buffers.1, stats.buffers.2), (0, 0), "{what}: buffers lent out");
        assert_eq!(stats.panics, 0, "{what}: panics");
        assert_eq!(stats.descriptors, 1, "{what}: the listener alone");
    }
}

fn options(limits: Limits) -> ServiceOptions {
    ServiceOptions {
        limits,
        router: router().finish().expect("sound routes"),
        server_name: String::new(),
        common_fields: Vec::new(),
        workers: None,
        connections_max: usize::MAX,
        connections_per_address_max: None,
        access_log: None,
    }
}

/// Content that only the request of this id may have.
pub(super) fn marked(id: &str, bytes: usize) -> Vec<u8> {
    id.bytes().chain(std::iter::once(b'.')).cycle().take(bytes).collect()
}

fn id_of(x: &Exchange) -> String {
    x.request().query().unwrap_or_default().split('&').next().unwrap_or_default().to_owned()
}

fn wait_of(x: &Exchange) -> Duration {
    let wait = x.request().query().and_then(|query| query.split('&').nth(1)?.parse().ok());
    Duration::from_millis(wait.unwrap_or(0))
}

fn router() -> Router {
    Router::new()
        .route("/plain", get(plain))
        .route("/big", get(big))
        .route("/park", get(park))
        .route_with("/stay", get(park), |route| {
            route.half_close(HalfClose::Tolerate);
        })
        .route("/join", get(join))
        .route("/tell", get(tell))
        .route("/race", get(race))
        .route("/stream", get(stream()))
        .route("/echo", post(echo()))
        .route("/deaf", post(plain))
        .route("/bomb", get(panics::bomb))
}

fn plain(x: &mut Exchange) -> Result<()> {
    let content = marked(&id_of(x), 20);
    x.write(content)
}

fn big(x: &mut Exchange) -> Result<()> {
    let content = marked(&id_of(x), BIG);
    x.write(content)
}

pub(super) const BIG: usize = 150_000;

/// Answered by its timeout.
fn park(x: &mut Exchange) -> Result<()> {
    x.start_async();
    x.set_timeout(wait_of(x));
    x.on_timeout(|x: &mut Exchange| -> Result<()> {
        plain(x)?;
        x.complete()
    });
    Ok(())
}

#[derive(Default)]
struct Joined(RefCell<Vec<AsyncContext>>);

fn join(x: &mut Exchange) -> Result<()> {
    let context = x.start_async();
    Shard::current().local(Joined::default).0.borrow_mut().push(context);
    Ok(())
}

/// Ends all that have joined, from within one callback.
fn tell(x: &mut Exchange) -> Result<()> {
    for context in Shard::current().local(Joined::default).0.take() {
        let _ = context.dispatch(|x: &mut Exchange| -> Result<()> {
            plain(x)?;
            x.complete()
        });
    }
    plain(x)
}

/// A task against the timeout.
fn race(x: &mut Exchange) -> Result<()> {
    let wait = wait_of(x);
    park(x)?;
    let context = x.context();
    Shard::current().spawn(async move {
        time::sleep(wait).await;
        let _ = context.dispatch(|x: &mut Exchange| -> Result<()> {
            plain(x)?;
            x.complete()
        });
    });
    Ok(())
}

fn stream() -> impl crate::routing::Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        let (id, wait) = (id_of(x), wait_of(x));
        for _ in 0..STREAMED {
            x.write(marked(&id, 1000))?;
            x.flush()?;
            x.sleep(wait).await?;
            x.write_ready().await?;
        }
        Ok(())
    })
}

pub(super) const STREAMED: usize = 5;

fn echo() -> impl crate::routing::Handler {
    asynchronous(async |x: &mut Exchange| -> Result<()> {
        while let Some(chunk) = x.next_chunk().await? {
            x.write(chunk)?;
            x.write_ready().await?;
        }
        Ok(())
    })
}
