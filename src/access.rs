//! The access log: a line per answer in the combined format, written by a thread of its own. Shards only hand lines
//! over; when the thread cannot keep up, lines are dropped and counted, and no request waits.

use crate::{cli::AccessLog, failure::Failure, startup};
use crossbeam_channel::{Receiver, Sender, bounded};
use shardlet::server::AccessRecord;
use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Lines that wait to be written. More are dropped and counted.
const LINES_WAITING_MAX: usize = 16_384;

/// Bytes of a client's string in a line; the rest is cut.
const STRING_BYTES_MAX: usize = 1024;

/// Lines wait no longer than this in the buffer.
const FLUSH_AFTER: Duration = Duration::from_millis(500);

/// Where lines are handed over.
#[derive(Clone)]
pub(crate) struct Log {
    lines: Sender<String>,
    dropped: Arc<AtomicU64>,
    reopen: Reopen,
}

/// Asks for the file to be opened again by its name, because it was moved away. Holds no [`Log`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Reopen(Arc<AtomicBool>);

impl Reopen {
    /// It is done before the next line is written, or when the log is flushed next.
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Says that the last line is written: it disconnects when the writing thread ends, and that one ends when the last
/// [`Log`] is gone.
pub(crate) type Written = Receiver<()>;

/// Opens the log that was asked for.
pub(crate) fn open(asked: &AccessLog) -> Result<Option<(Log, Written)>, Failure> {
    let opened = match asked {
        AccessLog::Off => return Ok(None),
        AccessLog::StandardOutput => Log::to(|| Ok(io::stdout())),
        AccessLog::File(path) => {
            let path = path.clone();
            // Tried here, so that a place that cannot be written ends the start with its own message.
            open_file(&path).map_err(|error| startup::file_failure("open the access log", &path, &error))?;
            Log::to(move || open_file(&path))
        }
    };
    opened.map(Some).map_err(|error| startup::runtime_failure("start the access log's thread", &error))
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Log {
    fn to<W>(open: impl Fn() -> io::Result<W> + Send + 'static) -> io::Result<(Log, Written)>
    where
        W: Write + Send + 'static,
    {
        let out = open()?;
        let reopen = Reopen::default();
        let asked = reopen.clone();
        let (lines, waiting) = bounded(LINES_WAITING_MAX);
        let (writing, written) = bounded(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = dropped.clone();
        let write = move || {
            write_lines(&waiting, out, &counter, || asked.0.swap(false, Ordering::Relaxed).then(&open));
            drop(writing);
        };
        thread::Builder::new().name("access-log".into()).spawn(write)?;
        Ok((Log { lines, dropped, reopen }, written))
    }

    /// What opens it again.
    pub(crate) fn reopener(&self) -> Reopen {
        self.reopen.clone()
    }

    /// Hands a line over. Never waits.
    pub(crate) fn write(&self, record: &AccessRecord<'_>) {
        if self.lines.try_send(line(record, SystemTime::now())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write_lines<W: Write>(
    lines: &Receiver<String>,
    out: W,
    dropped: &AtomicU64,
    reopened: impl Fn() -> Option<io::Result<W>>,
) {
    let mut out = BufWriter::new(out);
    loop {
        let next = lines.recv_timeout(FLUSH_AFTER);
        match reopened() {
            // Dropping the old one writes what it still holds.
            Some(Ok(file)) => out = BufWriter::new(file),
            Some(Err(error)) => tracing::error!("cannot open the access log again: {error}"),
            None => {}
        }
        match next {
            Ok(line) => {
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    tracing::warn!(
                        "{lost} lines of the access log were dropped: it is not written fast enough"
                    );
                }
                // Room may come back (a full disk): the next line tries again.
                if out.write_all(line.as_bytes()).is_err() {
                    dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(error) => {
                let _ = out.flush();
                if error.is_disconnected() {
                    return;
                }
            }
        }
    }
}

/// The combined format: `peer - - [time] "request" status bytes "referer" "user agent"`, and behind it what the
/// format has no place for: milliseconds, and `cut` for an answer that is not whole.
fn line(record: &AccessRecord<'_>, at: SystemTime) -> String {
    let mut line = String::with_capacity(256);
    match record.peer {
        Some(peer) => {
            let _ = write!(line, "{}", peer.ip());
        }
        None => line.push('-'),
    }
    let _ = write!(line, " - - [{}] \"", clf_time(at));
    escape(&mut line, record.method.as_bytes());
    line.push(' ');
    escape(&mut line, record.target.as_bytes());
    let _ = write!(line, " {}\" {} {} \"", record.version, record.status, record.bytes);
    escape(&mut line, record.referer.unwrap_or(b"-"));
    line.push_str("\" \"");
    escape(&mut line, record.user_agent.unwrap_or(b"-"));
    let cut = if record.whole { "" } else { " cut" };
    let _ = writeln!(line, "\" {:.3}ms{cut}", record.duration.as_secs_f64() * 1000.0);
    line
}

/// A client's bytes, so that no line and no field can be forged: everything but printable ASCII is `\xHH`.
fn escape(line: &mut String, bytes: &[u8]) {
    for &byte in &bytes[..bytes.len().min(STRING_BYTES_MAX)] {
        match byte {
            b'"' | b'\\' => {
                line.push('\\');
                line.push(char::from(byte));
            }
            b' '..=b'~' => line.push(char::from(byte)),
            other => {
                let _ = write!(line, "\\x{other:02X}");
            }
        }
    }
}

/// `30/Nov/2026:21:43:00 +0000`, from the one well-kept formatter of HTTP dates.
fn clf_time(at: SystemTime) -> String {
    let at = at.max(UNIX_EPOCH);
    // Mon, 30 Nov 2026 21:43:00 GMT
    let date = httpdate::fmt_http_date(at);
    format!("{}/{}/{}:{} +0000", &date[5..7], &date[8..11], &date[12..16], &date[17..25])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(target: &'a str, user_agent: &'a [u8]) -> AccessRecord<'a> {
        AccessRecord {
            peer: Some(([127, 0, 0, 1], 4000).into()),
            method: "GET",
            target,
            version: "HTTP/1.1",
            referer: None,
            user_agent: Some(user_agent),
            status: 200,
            bytes: 13,
            duration: Duration::from_micros(1500),
            whole: true,
            shard: 0,
        }
    }

    #[test]
    fn a_line_is_in_the_combined_format() {
        let at = UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(
            line(&record("/plaintext?a=b", b"curl/8"), at),
            "127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /plaintext?a=b HTTP/1.1\" 200 13 \"-\" \"curl/8\" 1.500ms\n"
        );
    }

    #[test]
    fn a_client_cannot_forge_a_line() {
        let line = line(&record("/", b"x\" 200\n127.0.0.1 - - \\ \xff"), UNIX_EPOCH);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains(r#""x\" 200\x0A127.0.0.1 - - \\ \xFF""#), "{line}");
    }

    #[test]
    fn lines_are_dropped_and_counted_when_nobody_writes() {
        let (lines, waiting) = bounded(1);
        let log = Log { lines, dropped: Arc::default(), reopen: Reopen::default() };
        (0..3).for_each(|_| log.write(&record("/", b"x")));
        assert_eq!(log.dropped.load(Ordering::Relaxed), 2);
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn a_file_that_was_moved_away_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let (log, written) = open(&AccessLog::File(path.clone())).expect("opened").expect("asked for");
        log.write(&record("/before", b"x"));
        while !log.lines.is_empty() {
            thread::yield_now();
        }
        std::fs::rename(&path, &moved).expect("moved");
        log.reopener().ask();
        log.write(&record("/after", b"x"));
        drop(log);
        assert!(written.recv_timeout(Duration::from_secs(10)).is_err_and(|end| end.is_disconnected()));
        let read = |path| std::fs::read_to_string(path).expect("readable");
        assert!(read(path).contains("/after"), "the name is not opened again");
        assert!(!read(moved).contains("/after"), "the old file is still written");
    }
}
