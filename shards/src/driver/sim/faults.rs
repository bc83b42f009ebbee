//! What may go wrong in the simulated network, and the one source of chance that decides when.
//! A run is a function of its seed: nothing else in the simulator is random.

use std::time::Duration;

/// Which faults are injected and how often (probabilities between 0 and 1), and how the network behaves.
/// The default injects nothing; it still has latency and cuts data into segments.
#[derive(Debug, Clone)]
pub struct SimFaults {
    /// A send takes only a part of what it was given.
    pub short_send: f64,
    /// A completion reaches its owner later, by up to [`SimFaults::late_by`].
    pub late_completion: f64,
    /// Most that a late completion, cancel or wake is late.
    pub late_by: Duration,
    /// A cancel takes its time: the operation may complete (more than once) before `ECANCELED` comes.
    pub late_cancel: f64,
    /// A receive or send ends with `ECANCELED` although nobody asked.
    pub spurious_cancel: f64,
    /// A receive finds no buffer for a while.
    pub out_of_buffers: f64,
    /// An accept fails with `EMFILE` and ends.
    pub accept_error: f64,
    /// A receive fails with `ECONNRESET`, a send with `EPIPE`; the peer sees a reset.
    pub connection_error: f64,
    /// A completion comes a second time, under the generation that the slot had before.
    pub duplicate_completion: f64,
    /// A completion overtakes those of other operations.
    pub reorder: f64,
    /// A wait for a deadline ends late, see `SimNet::wake_delay`.
    pub late_wake: f64,
    /// Least time a segment is on its way.
    pub latency_min: Duration,
    /// Most time a segment is on its way, unless one before it is slower.
    pub latency_max: Duration,
    /// Most bytes of a segment; each cut is at a random point up to it.
    pub segment_bytes_max: usize,
}

impl Default for SimFaults {
    fn default() -> Self {
        SimFaults {
            short_send: 0.0,
            late_completion: 0.0,
            late_by: Duration::from_millis(5),
            late_cancel: 0.0,
            spurious_cancel: 0.0,
            out_of_buffers: 0.0,
            accept_error: 0.0,
            connection_error: 0.0,
            duplicate_completion: 0.0,
            reorder: 0.0,
            late_wake: 0.0,
            latency_min: Duration::from_micros(10),
            latency_max: Duration::from_micros(200),
            segment_bytes_max: 4096,
        }
    }
}

/// splitmix64 (Steele, Lea, Flood 2014): small, seedable, good enough to choose faults.
#[derive(Debug)]
pub(crate) struct Chance {
    state: u64,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance { state: seed }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Whether a thing of this probability happens. Probability 0 uses up no randomness.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64 / (1u64 << 53) as f64) < probability
    }

    /// A time between the two, ends included.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(self.next() % (span + 1))
    }
}
