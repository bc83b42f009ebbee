//! The operations that a shard lives on, done once on small rings of their own. Whatever does not give what the
//! driver relies on is an error that names the step.

use super::super::{
    Completion, Descriptor, DriverOptions, Op, Outcome, Owner, SendBuffer, SendParts, Shutdown, Wait,
    uring::{Extras, UringDriver},
};
use crate::{
    buffers::{Lease, Pool},
    clock::{Clock, Start},
    error::{Error, Result},
    inbox::WakeFd,
    sync::Arc,
    table::Key,
};
use socket2::{Domain, Socket, Type};
use std::{io, time::Duration};

/// Ring, wake, receive into a provided buffer, cancel without loss, half-close and send. Gives the extras in use.
pub(super) fn single_shot(extras: Extras) -> Result<Extras> {
    let mut bench = Bench::new(extras, false, 4)?;
    bench.wakes()?;
    bench.receives()?;
    bench.cancels()?;
    bench.half_closes()?;
    let extras = bench.driver.extras();
    bench.end()?;
    Ok(extras)
}

/// The same for a receive that stays armed; then the two things that early kernels do not do: wait for data without
/// a buffer, and let another socket have its turn.
pub(super) fn multishot(extras: Extras) -> Result<()> {
    let mut bench = Bench::new(extras, true, 4)?;
    bench.receives()?;
    bench.cancels()?;
    bench.half_closes()?;
    bench.sees_an_end_behind_bytes()?;
    bench.end()?;
    let mut bench = Bench::new(extras, true, 1)?;
    bench.waits_without_a_buffer()?;
    bench.end()?;
    let mut bench = Bench::new(extras, true, 256)?;
    bench.is_fair()?;
    bench.end()
}

struct Bench {
    driver: Box<UringDriver>,
    wake: Arc<WakeFd>,
    clock: Clock,
}

impl Bench {
    fn new(extras: Extras, multishot_receive: bool, buffers: usize) -> Result<Bench> {
        let options = DriverOptions {
            submission_entries: 16,
            completion_entries: 512,
            buffers,
            buffer_bytes: BUFFER_BYTES,
            multishot_receive,
        };
        let wake = Arc::new(WakeFd::new().map_err(|source| Error::kernel("eventfd", source))?);
        let pool = Pool::new(options.buffer_bytes, options.buffers);
        let driver = Box::new(UringDriver::with_extras(&options, pool, wake.clone(), extras)?);
        Ok(Bench { driver, wake, clock: Clock::Real(Start::new()) })
    }

    /// Twice: the watch must survive the first.
    fn wakes(&mut self) -> Result<()> {
        for _ in 0..2 {
            self.driver.turn(Wait::No)?;
            let _ = self.driver.next();
            self.wake.wake();
            let before = self.clock.now();
            self.driver.turn(Wait::AtMost(PATIENCE))?;
            let _ = self.driver.next();
            expect(self.clock.now() - before < PATIENCE, "a write to an eventfd did not wake the ring")?;
        }
        Ok(())
    }

    fn receives(&mut self) -> Result<()> {
        let (peer, socket) = self.pair(Type::STREAM)?;
        self.driver.submit(Op::Receive { socket }, ANYBODY);
        for text in [b"first", b"other"] {
            self.driver.turn(Wait::No)?;
            send(&peer, text)?;
            let lease = self.received()?;
            expect(&*lease == text, "a receive gave other bytes than were sent")?;
        }
        drop(peer);
        expect(
            matches!(self.completion()?.outcome, Outcome::EndOfStream),
            "the end of a stream was not seen",
        )?;
        self.driver.close(socket);
        Ok(())
    }

    fn cancels(&mut self) -> Result<()> {
        let (peer, socket) = self.pair(Type::STREAM)?;
        let key = self.driver.submit(Op::Receive { socket }, ANYBODY);
        self.driver.turn(Wait::No)?;
        self.driver.cancel(key);
        send(&peer, b"kept")?;
        let mut bytes = 0;
        // A result that was quicker than the cancel is as good.
        while let Completion { outcome: Outcome::Received(lease), .. } = self.completion()? {
            bytes += lease.len();
        }
        if bytes == 0 {
            self.driver.submit(Op::Receive { socket }, ANYBODY);
            expect(&*self.received()? == b"kept", "a cancel lost bytes")?;
            self.driver
                .shutdown(socket, Shutdown::Both)
                .map_err(|source| Error::kernel("shutdown", source))?;
            let end = self.completion()?;
            expect(!end.more, "a receive outlived its shutdown")?;
        }
        self.driver.close(socket);
        Ok(())
    }

    fn half_closes(&mut self) -> Result<()> {
        let (peer, socket) = self.pair(Type::STREAM)?;
        self.driver.submit(Op::Receive { socket }, ANYBODY);
        self.driver.turn(Wait::No)?;
        peer.shutdown(std::net::Shutdown::Write).map_err(|source| Error::kernel("shutdown", source))?;
        expect(matches!(self.completion()?.outcome, Outcome::EndOfStream), "a half-close was not seen")?;
        let buffer = SendBuffer::new(SendParts::Vec(b"answer".to_vec()));
        self.driver.submit(Op::Send { socket, buffer }, ANYBODY);
        let Outcome::Sent { result: Ok(6), .. } = self.completion()?.outcome else {
            return failed("a half-closed socket could not be sent to");
        };
        self.driver.close(socket);
        Ok(())
    }

    /// Bytes and the end of the stream, both there before the kernel looks, are two completions: on some kernels (6.17
    /// on) the second was lost on Unix sockets (liburing#1549).
    fn sees_an_end_behind_bytes(&mut self) -> Result<()> {
        for armed_before in [true, false] {
            let (peer, socket) = self.pair(Type::STREAM)?;
            if armed_before {
                self.driver.submit(Op::Receive { socket }, ANYBODY);
                self.driver.turn(Wait::No)?;
            }
            send(&peer, b"last")?;
            drop(peer);
            if !armed_before {
                self.driver.submit(Op::Receive { socket }, ANYBODY);
            }
            expect(&*self.received()? == b"last", "a receive gave other bytes than were sent")?;
            let end = self.completion()?;
            expect(matches!(end.outcome, Outcome::EndOfStream), "an end behind bytes was not seen")?;
            self.driver.close(socket);
        }
        Ok(())
    }

    /// Armed on an idle socket while the ring holds no buffer, a receive must wait for data (liburing#1275).
    fn waits_without_a_buffer(&mut self) -> Result<()> {
        let (peer, socket) = self.pair(Type::STREAM)?;
        let (idle_peer, idle) = self.pair(Type::STREAM)?;
        self.driver.submit(Op::Receive { socket }, ANYBODY);
        send(&peer, b"held")?;
        let held = self.received()?;
        self.driver.submit(Op::Receive { socket: idle }, ANYBODY);
        self.driver.turn(Wait::No)?;
        self.driver.turn(Wait::AtMost(BRIEFLY))?;
        expect(self.driver.next().is_none(), "a receive on an idle socket completed")?;
        expect(self.driver.account().buffer_shortages == 0, "a receive on an idle socket wants a buffer")?;
        send(&idle_peer, b"late")?;
        self.driver.turn(Wait::AtMost(PATIENCE))?;
        expect(self.driver.next().is_none(), "bytes were received without a buffer")?;
        drop(held);
        expect(&*self.received()? == b"late", "a receive did not go on once there was a buffer")?;
        drop((peer, idle_peer));
        for socket in [socket, idle] {
            expect(
                matches!(self.completion()?.outcome, Outcome::EndOfStream),
                "the end of a stream was not seen",
            )?;
            let _ = socket;
        }
        self.driver.close(socket);
        self.driver.close(idle);
        Ok(())
    }

    /// One socket with much to say must not keep another from its turn (liburing#1043, #758).
    fn is_fair(&mut self) -> Result<()> {
        let (loud_peer, loud) = self.pair(Type::SEQPACKET)?;
        let (quiet_peer, quiet) = self.pair(Type::SEQPACKET)?;
        self.driver.submit(Op::Receive { socket: loud }, ANYBODY);
        let quiet_key = self.driver.submit(Op::Receive { socket: quiet }, ANYBODY);
        self.driver.turn(Wait::No)?;
        for _ in 0..LOUD_MESSAGES {
            send(&loud_peer, b"loud")?;
        }
        send(&quiet_peer, b"quiet")?;
        let mut before = 0;
        while self.completion()?.key != quiet_key {
            before += 1;
        }
        expect(before < LOUD_MESSAGES, "one socket takes all turns")?;
        for _ in before..LOUD_MESSAGES {
            self.received()?;
        }
        drop((loud_peer, quiet_peer));
        for _ in 0..2 {
            expect(!self.completion()?.more, "the end of a stream was not seen")?;
        }
        self.driver.close(loud);
        self.driver.close(quiet);
        Ok(())
    }

    fn end(self) -> Result<()> {
        expect(self.driver.account().in_flight == 0, "an operation did not end")?;
        expect(self.driver.stop(PATIENCE) == 0, "the ring could not be stopped")
    }

    fn pair(&mut self, kind: Type) -> Result<(Socket, Descriptor)> {
        let pair = Socket::pair(Domain::UNIX, kind, None);
        let (peer, ours) = pair.map_err(|source| Error::kernel("socketpair", source))?;
        Ok((peer, self.driver.adopt(ours.into())))
    }

    fn received(&mut self) -> Result<Lease> {
        match self.completion()?.outcome {
            Outcome::Received(lease) => Ok(lease),
            _ => failed("a receive ended without its bytes"),
        }
    }

    fn completion(&mut self) -> Result<Completion> {
        let until = self.clock.now() + PATIENCE;
        loop {
            if let Some(completion) = self.driver.next() {
                return Ok(completion);
            }
            if self.clock.now() >= until {
                return failed("an operation did not complete");
            }
            self.driver.turn(Wait::AtMost(PATIENCE))?;
        }
    }
}

/// A small message to a socket with room for it.
fn send(peer: &Socket, bytes: &[u8]) -> Result<()> {
    peer.send(bytes).map(drop).map_err(|source| Error::kernel("send", source))
}

fn expect(holds: bool, otherwise: &'static str) -> Result<()> {
    if holds { Ok(()) } else { failed(otherwise) }
}

fn failed<T>(step: &'static str) -> Result<T> {
    Err(Error::kernel("self-test", io::Error::other(step)))
}

const ANYBODY: Owner = Owner::Waiter(Key::NONE);
const BUFFER_BYTES: usize = 64;

/// More than a kernel gives one multishot receive in one go (32, since 6.8).
const LOUD_MESSAGES: usize = 100;

/// How long something may take that takes microseconds where it works.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long something is watched that must not happen.
const BRIEFLY: Duration = Duration::from_millis(2);
