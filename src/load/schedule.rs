//! When each request is to be sent, and on which connection: sans-IO, `now` in, tickets out. Its neighbours
//! are `client`, which sends, and `record`, which counts. It never looks at a clock and never sleeps.
//!
//! **Open loop**: request number *k* of the whole run is due at `k / rate`, whatever became of the ones before
//! it. Requests that are due while every connection is busy wait here, as a number, not as a list; they are
//! sent as soon as a connection is free, and their latency counts from the moment they were *due*. A server that
//! stops for a second is therefore charged with every request that would have come in that second.
//!
//! **Closed loop**: a connection that is free sends at once. The server sets the pace, so its pauses hide the
//! requests that were never sent; results of this mode are labelled as such everywhere.

use std::{collections::VecDeque, time::Duration};

#[cfg(test)]
mod tests;

/// Who sets the pace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// The clock: `rate` requests per second over all shards.
    Open {
        /// Requests per second.
        rate: f64,
    },
    /// The server: a free connection sends.
    Closed,
}

/// What one generator shard is to do. Times count from the start of the run.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleOptions {
    /// Who sets the pace.
    pub pace: Pace,
    /// Connections of this shard, numbered from 0.
    pub connections: u32,
    /// Requests in flight on one connection at most.
    pub pipeline: u32,
    /// Requests due in this first part are sent, and not measured.
    pub warm_up: Duration,
    /// The measured part, after the warm-up.
    pub time: Duration,
    /// This shard's number and how many there are; they take the requests of an open loop in turn.
    pub shard: (u32, u32),
}

/// One request to send now. It comes back through [`Schedule::finished`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ticket {
    /// Number of the request in the whole run, over all shards (open loop) or in this shard (closed loop).
    pub number: u64,
    /// The connection to send it on.
    pub connection: u32,
    /// When it was due. Response time counts from here.
    pub intended: Duration,
    /// When it could have been sent at the earliest: due, and a connection free. Lateness counts from here.
    pub ready: Duration,
    /// False for a request of the warm-up.
    pub measured: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// Send this request now, then ask again.
    Send(Ticket),
    /// Nothing is due before this time.
    WaitUntil(Duration),
    /// Requests are due (how many) and no connection is free.
    WaitForConnection {
        /// Requests due and not sent.
        backlog: u64,
    },
    /// All requests were handed out.
    Finished,
}

/// The schedule of one shard.
#[derive(Debug)]
pub struct Schedule {
    options: ScheduleOptions,
    /// Free slots in the order they became free. One entry a slot, so at most connections × pipeline.
    free: VecDeque<FreeSlot>,
    connections: Vec<ConnectionSlots>,
    /// Requests of this shard handed out.
    issued: u64,
    /// Requests handed out and not finished.
    in_flight: u64,
    /// Requests of this shard in all, and the first measured one, as numbers of this shard. Open loop only.
    total: u64,
    first_measured: u64,
    abandoned: bool,
}

#[derive(Debug, Clone, Copy)]
struct FreeSlot {
    connection: u32,
    since: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct ConnectionSlots {
    is_up: bool,
    up_since: Duration,
    /// Entries of `Schedule::free` that name this connection.
    queued: u32,
    in_flight: u32,
}

impl Schedule {
    /// A schedule with all connections down; see [`Schedule::connection_up`].
    pub fn new(options: ScheduleOptions) -> Self {
        assert!(options.connections > 0 && options.pipeline > 0, "a shard without a slot can send nothing");
        assert!(options.shard.0 < options.shard.1, "shards are numbered from 0");
        let (total, first_measured) = match options.pace {
            Pace::Open { rate } => {
                let all = requests_within(rate, options.warm_up + options.time);
                (
                    share_of(all, options.shard),
                    share_of(requests_within(rate, options.warm_up), options.shard),
                )
            }
            Pace::Closed => (u64::MAX, 0),
        };
        Self {
            options,
            free: VecDeque::with_capacity((options.connections * options.pipeline) as usize),
            connections: vec![ConnectionSlots::default(); options.connections as usize],
            issued: 0,
            in_flight: 0,
            total,
            first_measured,
            abandoned: false,
        }
    }

    /// The connection can send from `now` on.
    pub fn connection_up(&mut self, connection: u32, now: Duration) {
        let slots = &mut self.connections[connection as usize];
        slots.is_up = true;
        slots.up_since = now;
        // In flight requests of a former life of the connection are finished by the client, one by one, before.
        let missing = self.options.pipeline.saturating_sub(slots.queued + slots.in_flight);
        slots.queued += missing;
        self.free.extend((0..missing).map(|_| FreeSlot { connection, since: now }));
    }

    /// The connection cannot send. Requests in flight on it are still to be reported as finished.
    pub fn connection_down(&mut self, connection: u32) {
        self.connections[connection as usize].is_up = false;
    }

    /// The request was answered or failed; its slot is free again if its connection is up.
    pub fn finished(&mut self, ticket: &Ticket, now: Duration) {
        let slots = &mut self.connections[ticket.connection as usize];
        assert!(slots.in_flight > 0 && self.in_flight > 0, "a ticket finishes once");
        slots.in_flight -= 1;
        self.in_flight -= 1;
        if slots.is_up && slots.queued + slots.in_flight < self.options.pipeline {
            slots.queued += 1;
            self.free.push_back(FreeSlot { connection: ticket.connection, since: now });
        }
    }

    /// What to do at `now`. Call until it answers something other than [`Next::Send`].
    pub fn next(&mut self, now: Duration) -> Next {
        if self.is_over(now) {
            return Next::Finished;
        }
        let due = self.due_at(self.issued);
        if due > now {
            return Next::WaitUntil(due);
        }
        let Some(slot) = self.take_free_slot() else {
            return Next::WaitForConnection { backlog: self.backlog(now) };
        };
        Next::Send(self.issue(slot, due, now))
    }

    /// Requests due at `now` and not handed out (open loop; 0 in a closed one).
    pub fn backlog(&self, now: Duration) -> u64 {
        let Pace::Open { rate } = self.options.pace else { return 0 };
        if self.abandoned {
            return 0;
        }
        let due = share_of(requests_within(rate, now), self.options.shard).min(self.total);
        due.saturating_sub(self.issued)
    }

    /// Requests handed out and not finished.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Whether everything was handed out and came back.
    pub fn is_drained(&self, now: Duration) -> bool {
        self.in_flight == 0 && self.is_over(now)
    }

    /// Gives up on what was not handed out yet, and answers how many measured requests that were.
    pub fn abandon(&mut self) -> u64 {
        if self.abandoned || self.options.pace == Pace::Closed {
            self.abandoned = true;
            return 0;
        }
        self.abandoned = true;
        self.total - self.issued.max(self.first_measured).min(self.total)
    }

    /// Nothing is due any more after `now`: the measured part ends here, if it has not ended before. Answers how long it
    /// was.
    pub fn cut_short(&mut self, now: Duration) -> Duration {
        let measured = now.saturating_sub(self.options.warm_up).min(self.options.time);
        self.options.time = measured;
        if let Pace::Open { rate } = self.options.pace {
            let due = share_of(requests_within(rate, now), self.options.shard);
            self.total = self.total.min(due.max(self.issued));
        }
        measured
    }

    /// The measured part begins and ends here.
    pub fn measured(&self) -> std::ops::Range<Duration> {
        self.options.warm_up..self.options.warm_up + self.options.time
    }

    fn is_over(&self, now: Duration) -> bool {
        match self.options.pace {
            _ if self.abandoned => true,
            Pace::Open { .. } => self.issued >= self.total,
            Pace::Closed => now >= self.measured().end,
        }
    }

    fn issue(&mut self, slot: FreeSlot, due: Duration, now: Duration) -> Ticket {
        let slots = &mut self.connections[slot.connection as usize];
        slots.in_flight += 1;
        self.in_flight += 1;
        let free_since = slot.since.max(slots.up_since);
        let (intended, ready, measured) = match self.options.pace {
            Pace::Open { .. } => (due, due.max(free_since), self.issued >= self.first_measured),
            Pace::Closed => (now, free_since.min(now), now >= self.options.warm_up),
        };
        let (shard, shards) = self.options.shard;
        let number = match self.options.pace {
            Pace::Open { .. } => self.issued * u64::from(shards) + u64::from(shard),
            Pace::Closed => self.issued,
        };
        self.issued += 1;
        Ticket { number, connection: slot.connection, intended, ready, measured }
    }

    /// The slot free for the longest time, so that load spreads over all connections.
    fn take_free_slot(&mut self) -> Option<FreeSlot> {
        while let Some(slot) = self.free.pop_front() {
            let slots = &mut self.connections[slot.connection as usize];
            slots.queued -= 1;
            if slots.is_up && slots.in_flight < self.options.pipeline {
                return Some(slot);
            }
        }
        None
    }

    /// Computed from the number, not by adding up, so that no rounding gathers over a long run.
    fn due_at(&self, issued: u64) -> Duration {
        let Pace::Open { rate } = self.options.pace else { return Duration::ZERO };
        let (shard, shards) = self.options.shard;
        let number = issued * u64::from(shards) + u64::from(shard);
        Duration::from_secs_f64(number as f64 / rate)
    }
}

/// How many requests of the whole run are due before `time`: numbers 0, 1, … with `number / rate < time`.
fn requests_within(rate: f64, time: Duration) -> u64 {
    let exact = rate * time.as_secs_f64();
    // `rate × time` of round figures is meant as round: 0.1 s × 30/s is 3, not 3.0000000000000004.
    let whole = exact.round();
    if (exact - whole).abs() < 1e-6 { whole as u64 } else { exact.ceil() as u64 }
}

/// How many of the numbers 0..all fall to this shard.
fn share_of(all: u64, (shard, shards): (u32, u32)) -> u64 {
    let (shard, shards) = (u64::from(shard), u64::from(shards));
    all / shards + u64::from(all % shards > shard)
}
