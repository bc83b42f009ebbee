//! `--metrics ADDRESS`: the figures of the run under way in the text format of Prometheus, for long runs. A thread of
//! its own answers with what `run` has put up last, once an interval; the generator's shards do not know of it.
//! It answers every request with the same page and looks at nothing in it.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::record::{ErrorKind, Measure, Recorder};

/// Upper bounds of the buckets of the response times, in microseconds.
const BUCKETS: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];
/// How long a reader may take for its request, and for the page.
const PATIENCE: Duration = Duration::from_secs(1);
/// As much of a request is read.
const REQUEST_BYTES_MAX: usize = 4_096;

/// The page.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<String>>);

impl Board {
    /// Answers at this address from now on, until the program ends. Gives the address too: port 0 means any.
    ///
    /// # Errors
    /// When nothing can be bound there.
    pub fn listen(address: SocketAddr) -> io::Result<(Board, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        let board = Board::default();
        board.put_up(&Recorder::new());
        let page = board.clone();
        thread::Builder::new().name("metrics".into()).spawn(move || {
            for stream in listener.incoming() {
                // One reader at a time, each for a bounded time. One that went away is no error.
                let Ok(stream) = stream else {
                    // The run may have taken all descriptors: asking at once would take its core too.
                    thread::sleep(PATIENCE);
                    continue;
                };
                let _ = page.answer(stream);
            }
        })?;
        Ok((board, bound))
    }

    /// Shows these sums from now on.
    pub fn put_up(&self, totals: &Recorder) {
        let text = page(totals);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let begun = Instant::now();
        let (mut request, mut have) = ([0; REQUEST_BYTES_MAX], 0);
        while have < request.len() && !request[..have].windows(4).any(|end| end == b"\r\n\r\n") {
            let left = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
            stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
            match stream.read(&mut request[have..])? {
                0 => return Ok(()),
                read => have += read,
            }
        }
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n";
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
    }
}

/// Prometheus text format, version 0.0.4.
fn page(totals: &Recorder) -> String {
    let (counters, mut text) = (totals.counters(), String::new());
    // Writing to a string does not fail.
    let _ = writeln!(text, "# TYPE shardlet_bench_answers_total counter");
    let _ = writeln!(text, "shardlet_bench_answers_total {}", counters.answered);
    let _ = writeln!(text, "# TYPE shardlet_bench_errors_total counter");
    for kind in ErrorKind::ALL {
        let (name, count) = (kind.name(), counters.errors_of(kind));
        let _ = writeln!(text, "shardlet_bench_errors_total{{kind=\"{name}\"}} {count}");
    }
    for (name, measure) in [("response", Measure::Response), ("lateness", Measure::Lateness)] {
        histogram(&mut text, name, totals, measure);
    }
    text
}

fn histogram(text: &mut String, name: &str, totals: &Recorder, measure: Measure) {
    let latencies = totals.measure(measure);
    let name = format!("shardlet_bench_{name}_seconds");
    let bounds = BUCKETS.map(Duration::from_micros);
    let _ = writeln!(text, "# TYPE {name} histogram");
    for (bound, count) in bounds.iter().zip(latencies.cumulative(&bounds)) {
        let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", bound.as_secs_f64());
    }
    let count = latencies.count();
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum {}", latencies.mean().as_secs_f64() * count as f64);
    let _ = writeln!(text, "{name}_count {count}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing;

    fn scrape(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).expect("answers");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").expect("takes it");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("is text");
        text
    }

    #[test]
    fn the_page_shows_what_was_put_up_last() {
        let (board, address) = Board::listen("127.0.0.1:0".parse().expect("an address")).expect("binds");
        assert!(scrape(address).contains("shardlet_bench_answers_total 0\n"));
        let result = testing::result(200.0, 3, |_| Duration::from_micros(700));
        board.put_up(&result.totals);
        let text = scrape(address);
        for line in [
            "shardlet_bench_answers_total 600\n",
            "shardlet_bench_errors_total{kind=\"timeout\"} 0\n",
            "shardlet_bench_response_seconds_bucket{le=\"0.0005\"} 0\n",
            "shardlet_bench_response_seconds_bucket{le=\"0.001\"} 600\n",
            "shardlet_bench_response_seconds_bucket{le=\"+Inf\"} 600\n",
            "shardlet_bench_response_seconds_count 600\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        let length: usize = text
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
            .expect("a length");
        assert_eq!(text.split_once("\r\n\r\n").map(|(_, body)| body.len()), Some(length));
    }

    #[test]
    fn a_reader_that_dawdles_does_not_keep_others_out() {
        let (_board, address) = Board::listen("127.0.0.1:0".parse().expect("an address")).expect("binds");
        let mut slow = TcpStream::connect(address).expect("is accepted");
        let dawdle = thread::spawn(move || {
            let begun = Instant::now();
            while slow.write_all(b"G").is_ok() {
                assert!(begun.elapsed() < PATIENCE * 10, "it is heard for ever");
                thread::sleep(PATIENCE / 10);
            }
        });
        assert!(scrape(address).starts_with("HTTP/1.1 200 OK\r\n"));
        dawdle.join().expect("it was cut");
    }
}
