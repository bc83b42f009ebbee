//! Random clients against random faults. Whatever happens, answers are well-formed, whole and in order or visibly
//! cut, no byte of one is in another, and nothing is left behind.
//!
//! Replay: `CONNECTION_SEED=N cargo test -p shardlet connection::tests::random`; more of them with
//! `CONNECTION_SEEDS=10000`.

use super::{BIG, PORT, STREAMED, World, marked, reply};
use crate::limits::Limits;
use shards::testing::{End, SimClient, SimFaults};
use std::{env, panic, time::Duration};

struct Dice(u64);

impl Dice {
    /// splitmix64
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// A request and what its whole answer must hold.
struct Asked {
    bytes: Vec<u8>,
    content: Vec<u8>,
    /// Its answer may be another: a deadline or a refused body.
    parks: bool,
}

fn request(dice: &mut Dice, id: &str) -> Asked {
    let wait = dice.below(400);
    let last = if dice.one_in(12) { "Connection: close\r\n" } else { "" };
    let get = |path: &str| format!("GET /{path}?{id}&{wait} HTTP/1.1\r\nHost: t\r\n{last}\r\n").into_bytes();
    let content = marked(id, 20);
    let asked = |bytes, content, parks| Asked { bytes, content, parks };
    match dice.below(10) {
        0 | 1 => asked(get("plain"), content, false),
        2 => asked(get("big"), marked(id, BIG), false),
        3 | 4 => asked(get("park"), content, true),
        5 => asked(get("stay"), content, true),
        6 => asked(get("race"), content, true),
        7 => asked(get("stream"), marked(id, 1000).repeat(STREAMED), true),
        path => {
            let body = marked(id, dice.below(9000) as usize);
            let (path, content) = if path == 8 { ("echo", body.clone()) } else { ("deaf", content) };
            let mut bytes = format!("POST /{path}?{id} HTTP/1.1\r\nHost: t\r\n{last}").into_bytes();
            if dice.one_in(2) {
                bytes.extend(format!("Content-Length: {}\r\n\r\n", body.len()).bytes());
                bytes.extend(body);
            } else {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                for piece in body.chunks(1 + dice.below(3000) as usize) {
                    bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
                    bytes.extend(piece);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
            }
            asked(bytes, content, true)
        }
    }
}

struct Talk {
    client: SimClient,
    asked: Vec<Asked>,
    bytes: Vec<u8>,
    written: usize,
    /// It says FIN, RST or nothing at its end, or is cut off in the middle.
    end: u64,
}

impl Talk {
    fn begin(world: &World, dice: &mut Dice, number: u64) -> Talk {
        let client = world.simulation.connect(PORT);
        let most = if dice.one_in(8) { 40 } else { 5 };
        let count = 1 + dice.below(most);
        let asked: Vec<_> = (0..count).map(|at| request(dice, &format!("c{number}r{at}"))).collect();
        let mut bytes: Vec<u8> = asked.iter().flat_map(|asked| asked.bytes.iter().copied()).collect();
        if dice.one_in(5) {
            bytes.truncate(dice.below(bytes.len() as u64) as usize);
        }
        Talk { client, asked, bytes, written: 0, end: dice.below(6) }
    }

    fn step(&mut self, dice: &mut Dice) -> bool {
        if self.written == self.bytes.len() {
            return false;
        }
        let left = (self.bytes.len() - self.written) as u64;
        let count = if dice.one_in(3) { left } else { 1 + dice.below(left.min(600)) } as usize;
        self.client.write(&self.bytes[self.written..self.written + count]);
        self.written += count;
        if self.written == self.bytes.len() {
            match self.end {
                0 | 1 => self.client.finish(),
                2 => self.client.reset(),
                _ => {}
            }
        }
        true
    }

    /// Answers are those to the requests in order, or the connection has ended.
    fn check(&self, faultless: bool) {
        let replies = reply::parse(&self.client.received());
        let complete =
            self.end > 2 && self.written == self.asked.iter().map(|a| a.bytes.len()).sum::<usize>();
        let mut closed = false;
        for (at, (reply, asked)) in replies.whole.iter().zip(&self.asked).enumerate() {
            assert!(!closed, "an answer behind the last one");
            closed = reply.closes;
            if reply.status == 200 {
                assert!(reply.body == asked.content, "answer {at} is not that to request {at}");
            } else {
                assert!(!complete || !faultless, "status {} to sound request {at}", reply.status);
                assert!(reply.closes || asked.parks, "status {} and open", reply.status);
            }
        }
        assert!(replies.whole.len() <= self.asked.len() + 1, "more answers than requests");
        let end = self.client.end();
        // A request that is not all there keeps its answer waiting.
        let waits = self.end > 2 && !complete;
        assert!(
            replies.rest == 0 || end.is_some() || self.end == 2 || waits,
            "a part of an answer and no end"
        );
        if complete && faultless {
            let last = replies.whole.last().is_some_and(|reply| reply.closes);
            assert!(replies.whole.len() == self.asked.len() || last, "{} answers", replies.whole.len());
            assert!(replies.rest == 0 && end != Some(End::Rst), "cut: {end:?}");
        }
    }
}

fn faults(dice: &mut Dice) -> SimFaults {
    let mut faults = SimFaults::default();
    let mut chance = |most: f64| if dice.one_in(3) { most * dice.below(100) as f64 / 100.0 } else { 0.0 };
    faults.short_send = chance(0.6);
    faults.late_completion = chance(0.4);
    faults.late_cancel = chance(0.8);
    faults.spurious_cancel = chance(0.1);
    faults.out_of_buffers = chance(0.3);
    faults.connection_error = chance(0.03);
    faults.duplicate_completion = chance(0.3);
    faults.reorder = chance(0.3);
    faults.late_wake = chance(0.3);
    faults
}

fn run(seed: u64) {
    let mut dice = Dice(seed);
    let faultless = dice.one_in(3);
    let faults = if faultless { SimFaults::default() } else { faults(&mut dice) };
    let limits = Limits { idle_timeout_ms: 20_000, ..Limits::DEFAULT };
    let world = World::new(seed, limits, faults);
    let clients = 1 + dice.below(4);
    let mut talks: Vec<_> = (0..clients).map(|number| Talk::begin(&world, &mut dice, number)).collect();
    loop {
        let mut busy = false;
        for talk in &mut talks {
            busy |= dice.one_in(2) || talk.step(&mut dice);
            if dice.one_in(40) {
                talk.client.set_receive_window(dice.below(20_000) as usize);
            } else if dice.one_in(4) {
                talk.client.read();
            }
        }
        world.simulation.run_for(Duration::from_micros(dice.below(20_000)));
        if !busy {
            break;
        }
    }
    let drains = dice.one_in(6);
    if drains {
        world.drain();
    }
    for talk in &talks {
        talk.client.set_receive_window(1 << 20);
    }
    for _ in 0..100 {
        talks.iter().for_each(|talk| drop(talk.client.read()));
        world.simulation.run_for(Duration::from_millis(100));
    }
    talks.iter().for_each(|talk| talk.check(faultless && !drains));
    world.simulation.set_faults(|faults| *faults = SimFaults::default());
    drop(talks);
    world.simulation.run_for(Duration::from_secs(130));
    world.expect_nothing_left("at the end");
}

#[test]
fn random_clients_and_faults() {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("CONNECTION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CONNECTION_SEEDS").unwrap_or(if cfg!(debug_assertions) { 150 } else { 2000 }),
    };
    for seed in seeds {
        if let Err(problem) = panic::catch_unwind(|| run(seed)) {
            eprintln!("replay: CONNECTION_SEED={seed} cargo test -p shardlet connection::tests::random");
            panic::resume_unwind(problem);
        }
    }
}
