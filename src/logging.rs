//! The log on standard error, written by a thread of its own: a slow terminal or a full pipe costs lines, never a
//! shard's time. What may be logged is decided by the `RUST_LOG` variable; the default is `info`. It knows nothing of
//! access logs.

use crate::cli::LogFormat;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Lines that wait to be written. More are dropped and counted.
const LINES_WAITING_MAX: usize = 4096;
/// Bytes of a line; the rest is cut. Client data may be in it.
const LINE_BYTES_MAX: usize = 4096;
const CUT_MARK: &[u8] = b" (cut)\n";

enum Message {
    Line(Vec<u8>),
    Flush(Sender<()>),
}

/// Where loggers put their lines.
#[derive(Clone)]
pub(crate) struct Log {
    sender: Sender<Message>,
    dropped: Arc<AtomicU64>,
}

/// Makes the log of the process. Call once.
pub(crate) fn start(format: LogFormat) -> io::Result<Log> {
    let log = Log::to(io::stderr())?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(log.clone());
    let installed = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(io::Error::other)?;
    Ok(log)
}

impl Log {
    fn to(out: impl Write + Send + 'static) -> io::Result<Log> {
        let (sender, receiver) = bounded(LINES_WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        thread::Builder::new().name("log".into()).spawn(move || write_lines(&receiver, out, &counter))?;
        Ok(Log { sender, dropped })
    }

    /// Waits until what was logged before is written, or for so long.
    pub(crate) fn flush(&self, within: Duration) {
        let (done, written) = bounded(1);
        if self.sender.send_timeout(Message::Flush(done), within).is_ok() {
            let _too_late_is_no_error = written.recv_timeout(within);
        }
    }
}

/// Ends when the last [`Log`] is gone.
fn write_lines(lines: &Receiver<Message>, mut out: impl Write, dropped: &AtomicU64) {
    for message in lines {
        match message {
            // A log that cannot be written has nobody to tell; the line counts as dropped.
            Message::Line(line) if out.write_all(&line).is_err() => {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
            Message::Line(_) => say_dropped(&mut out, dropped),
            Message::Flush(done) => {
                let _ = out.flush();
                let _nobody_waits_any_more = done.try_send(());
            }
        }
    }
}

fn say_dropped(out: &mut impl Write, dropped: &AtomicU64) {
    let count = dropped.swap(0, Ordering::Relaxed);
    if count > 0 && writeln!(out, "{count} log lines were dropped before this one").is_err() {
        dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// One line while it is put together; handed over when it is dropped.
pub(crate) struct Line<'a> {
    log: &'a Log,
    bytes: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE_BYTES_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.len() == LINE_BYTES_MAX {
            bytes.truncate(LINE_BYTES_MAX - CUT_MARK.len());
            bytes.extend_from_slice(CUT_MARK);
        }
        if self.log.sender.try_send(Message::Line(bytes)).is_err() {
            self.log.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { log: self, bytes: Vec::with_capacity(256) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const LONG: Duration = Duration::from_secs(20);

    /// A file in memory whose writer waits while the gate is locked.
    #[derive(Clone, Default)]
    struct Slow {
        gate: Arc<Mutex<()>>,
        text: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock().expect("gate");
            self.text.lock().expect("text").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Slow {
        fn text(&self) -> String {
            String::from_utf8(self.text.lock().expect("text").clone()).expect("UTF-8")
        }
    }

    #[test]
    fn a_stuck_output_costs_lines_and_never_time() {
        let slow = Slow::default();
        let log = Log::to(slow.clone()).expect("a log");
        let stuck = slow.gate.lock().expect("gate");
        for number in 0..LINES_WAITING_MAX * 2 {
            writeln!(log.make_writer(), "line {number}").expect("never fails");
        }
        assert!(log.dropped.load(Ordering::Relaxed) >= LINES_WAITING_MAX as u64 - 1);
        drop(stuck);
        log.flush(LONG);
        let text = slow.text();
        assert!(text.starts_with("line 0\n") && text.contains("log lines were dropped"), "{}", &text[..100]);
        assert_eq!(log.dropped.load(Ordering::Relaxed), 0, "what was told is not told again");
    }

    #[test]
    fn long_lines_are_cut() {
        let slow = Slow::default();
        let log = Log::to(slow.clone()).expect("a log");
        writeln!(log.make_writer(), "{}", "x".repeat(LINE_BYTES_MAX * 3)).expect("never fails");
        log.flush(LONG);
        let text = slow.text();
        assert_eq!(text.len(), LINE_BYTES_MAX);
        assert!(text.ends_with("x (cut)\n"));
    }
}
