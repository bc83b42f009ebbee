//! Results in files: the HdrHistogram interval log, version 2 (`.hlog`, `.hdr`), which every HdrHistogram tool
//! reads. Response times are untagged, the other histograms carry their name as tag; what only this tool knows
//! (the load, counters, the verdict) stands in comment lines, which the other tools skip.
//!
//! Written as a stream, one interval after the other, and read in the same way: no file needs to fit memory.

use std::{
    io::{self, BufRead, Read, Write},
    time::{Duration, SystemTime},
};

use base64::Engine;
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer, V2DeflateSerializer,
        interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag},
    },
};
use serde::{Deserialize, Serialize};

use super::{
    health::Health,
    intervals::Intervals,
    record::{CLASS_NAMES, Counters, Measure, Recorder},
    result::{RunMeta, RunResult},
    sweep::SweepPoint,
};
use crate::metrics::histogram::LatencyHistogram;

#[cfg(test)]
mod tests;

/// The longest line taken from a file; a three-digit histogram of an hour needs less than a tenth.
const LINE_BYTES_MAX: usize = 4 * 1_048_576;
const META: &str = "#[Shardlet: ";
const INTERVAL: &str = "#[Interval: ";
const END: &str = "#[End: ";

#[derive(Debug, Serialize, Deserialize)]
struct IntervalLine {
    start_s: f64,
    length_s: f64,
    counters: Counters,
}

#[derive(Debug, Serialize, Deserialize)]
struct EndLine {
    elapsed_s: f64,
    #[serde(default)]
    cut_short_s: Option<f64>,
    health: Option<Health>,
    #[serde(default)]
    sweep: Vec<SweepPoint>,
}

/// What is known only at the end of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogEnd<'a> {
    /// From the start of the measured part to the last answer.
    pub elapsed: Duration,
    /// How long the measured part was, in seconds, if the run was interrupted.
    pub cut_short_s: Option<f64>,
    /// The generator's verdict.
    pub health: Option<&'a Health>,
    /// Points of a sweep.
    pub sweep: &'a [SweepPoint],
}

/// Writes one result.
pub struct LogWriter<W: Write> {
    out: W,
    serializer: V2DeflateSerializer,
    line: Vec<u8>,
}

impl<W: Write> std::fmt::Debug for LogWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogWriter")
    }
}

impl<W: Write> LogWriter<W> {
    /// Writes the head of the file.
    ///
    /// # Errors
    /// What `out` answers.
    pub fn begin(mut out: W, meta: &RunMeta) -> io::Result<Self> {
        writeln!(out, "#[Logged with shardlet bench {}]", meta.version)?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[Values in nanoseconds; Interval_Max in milliseconds]")?;
        writeln!(out, "{META}{}]", serde_json::to_string(meta)?)?;
        writeln!(out, "#[StartTime: {:.3} (seconds since epoch)]", meta.started_unix_s)?;
        writeln!(out, r#""StartTimestamp","Interval_Length","Interval_Max","Interval_CompressedHistogram""#)?;
        Ok(Self { out, serializer: V2DeflateSerializer::new(), line: Vec::new() })
    }

    /// Writes what was counted from `start` (after the start of the measured part) on for `length`.
    ///
    /// # Errors
    /// What `out` answers.
    pub fn interval(&mut self, start: Duration, length: Duration, recorder: &Recorder) -> io::Result<()> {
        // The response comes always, even empty, so that a reader sees the gap.
        self.histogram(None, start, length, recorder.measure(Measure::Response))?;
        for measure in Measure::ALL.into_iter().skip(1) {
            let histogram = recorder.measure(measure);
            if !histogram.is_empty() {
                self.histogram(Some(measure.name()), start, length, histogram)?;
            }
        }
        for (class, name) in CLASS_NAMES.into_iter().enumerate() {
            if let Some(histogram) = recorder.class(class) {
                self.histogram(Some(name), start, length, histogram)?;
            }
        }
        let line = IntervalLine {
            start_s: start.as_secs_f64(),
            length_s: length.as_secs_f64(),
            counters: *recorder.counters(),
        };
        writeln!(self.out, "{INTERVAL}{}]", serde_json::to_string(&line)?)
    }

    /// Writes what is known only at the end, and hands back the file.
    ///
    /// # Errors
    /// What `out` answers.
    pub fn end(mut self, end: &LogEnd<'_>) -> io::Result<W> {
        let line = EndLine {
            elapsed_s: end.elapsed.as_secs_f64(),
            cut_short_s: end.cut_short_s,
            health: end.health.cloned(),
            sweep: end.sweep.to_vec(),
        };
        writeln!(self.out, "{END}{}]", serde_json::to_string(&line)?)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn histogram(
        &mut self,
        tag: Option<&str>,
        start: Duration,
        length: Duration,
        histogram: &LatencyHistogram,
    ) -> io::Result<()> {
        self.line.clear();
        IntervalLogWriterBuilder::new()
            .with_max_value_divisor(1e6)
            .begin_log_with(&mut self.line, &mut self.serializer)?
            .write_histogram(histogram.as_hdr(), start, length, tag.and_then(Tag::new))
            .map_err(|error| io::Error::other(error.to_string()))?;
        // Each log begins with a comment on the divisor; the head of this file says it once.
        let entry = self.line.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.out.write_all(&self.line[entry..])
    }
}

/// What stood at the end of a file; empty if it has no end.
#[derive(Debug, Default)]
pub struct SavedEnd {
    /// From the start of the measured part to the last answer.
    pub elapsed: Duration,
    /// How long the measured part was, in seconds, if the run was interrupted.
    pub cut_short_s: Option<f64>,
    /// The generator's verdict.
    pub health: Option<Health>,
}

/// One interval from a file.
#[derive(Debug)]
pub struct SavedInterval {
    /// Counted from the start of the measured part.
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What was counted.
    pub recorder: Recorder,
}

/// Reads one result, interval by interval. Also takes logs of other tools (in nanoseconds): every untagged line is
/// then an interval.
pub struct LogReader<R: BufRead> {
    input: R,
    line: Vec<u8>,
    line_number: u64,
    meta: Option<RunMeta>,
    started: Option<f64>,
    pending: Option<SavedInterval>,
    end: Option<EndLine>,
}

impl<R: BufRead> std::fmt::Debug for LogReader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogReader at line {}", self.line_number)
    }
}

impl<R: BufRead> LogReader<R> {
    /// A reader at the start of a file.
    pub fn new(input: R) -> Self {
        let line = Vec::new();
        Self { input, line, line_number: 0, meta: None, started: None, pending: None, end: None }
    }

    /// What was asked of the run, as far as the lines read until now tell.
    pub fn meta(&self) -> RunMeta {
        let mut meta = self.meta.clone().unwrap_or_default();
        if self.meta.is_none() {
            meta.open_loop = true;
            meta.started_unix_s = self.started.unwrap_or(0.0);
        }
        meta
    }

    /// The next interval; none at the end of the file.
    ///
    /// # Errors
    /// What the file answers, or `InvalidData` with the number of the line that is no interval log.
    pub fn next_interval(&mut self) -> io::Result<Option<SavedInterval>> {
        while self.read_line()? {
            let line = std::mem::take(&mut self.line);
            let done = self.take_line(&line);
            self.line = line;
            if let Some(interval) = done.map_err(|why| self.wrong(&why))? {
                return Ok(Some(interval));
            }
        }
        Ok(self.pending.take())
    }

    /// Reads all the rest into one result, folded to bounded size.
    ///
    /// # Errors
    /// As [`LogReader::next_interval`]; also when there is no interval at all.
    pub fn into_result(mut self) -> io::Result<RunResult> {
        let (mut totals, mut intervals, mut elapsed) = (Recorder::new(), Intervals::new(), Duration::ZERO);
        while let Some(interval) = self.next_interval()? {
            totals.add(&interval.recorder);
            intervals.push(interval.start, interval.length, &interval.recorder);
            elapsed = elapsed.max(interval.start + interval.length);
        }
        if intervals.rows().is_empty() {
            return Err(self.wrong("no histogram in it"));
        }
        let mut meta = self.meta();
        let (mut health, mut sweep) = (None, Vec::new());
        if let Some(end) = self.end {
            elapsed = Duration::try_from_secs_f64(end.elapsed_s).unwrap_or(elapsed);
            meta.cut_short_s = end.cut_short_s;
            (health, sweep) = (end.health, end.sweep);
        }
        Ok(RunResult { meta, elapsed, totals, intervals, health, sweep })
    }

    /// What stood at the end of the file. Ask after the last interval.
    pub fn end(self) -> SavedEnd {
        let Some(end) = self.end else { return SavedEnd::default() };
        let elapsed = Duration::try_from_secs_f64(end.elapsed_s).unwrap_or_default();
        SavedEnd { elapsed, cut_short_s: end.cut_short_s, health: end.health }
    }

    fn take_line(&mut self, line: &[u8]) -> Result<Option<SavedInterval>, String> {
        let text = std::str::from_utf8(line).map_err(|_| "not text".to_owned())?.trim_end();
        if let Some(json) = comment(text, META) {
            self.meta = Some(from_json(json)?);
        } else if let Some(json) = comment(text, END) {
            self.end = Some(from_json(json)?);
        } else if let Some(json) = comment(text, INTERVAL) {
            return self.close_interval(&from_json(json)?).map(Some);
        } else if let Some(rest) = text.strip_prefix("#[StartTime: ") {
            self.started = rest.split(' ').next().and_then(|seconds| seconds.parse().ok());
        } else if !text.is_empty() && !text.starts_with(['#', '"']) {
            return self.take_histogram(text);
        }
        Ok(None)
    }

    /// Our own files say where an interval ends; in others it ends where the next untagged line begins.
    fn take_histogram(&mut self, text: &str) -> Result<Option<SavedInterval>, String> {
        let line = format!("{text}\n");
        let mut entries = IntervalLogIterator::new(line.as_bytes());
        let Some(Ok(LogEntry::Interval(entry))) = entries.next() else {
            return Err("not a line of an interval log".to_owned());
        };
        let histogram = decode(entry.encoded_histogram())?;
        let tag = entry.tag().map(|tag| tag.as_str());
        let starts_next = self.meta.is_none() && tag.is_none();
        let finished = if starts_next { self.pending.take() } else { None };
        let pending = self.pending.get_or_insert_with(|| SavedInterval {
            start: entry.start_timestamp(),
            length: entry.duration(),
            recorder: Recorder::new(),
        });
        if starts_next {
            let answered = histogram.count();
            pending.recorder.add_counters(&Counters { answered, ..Counters::default() });
        }
        if let Some(target) = histogram_for(&mut pending.recorder, tag) {
            target.add(&histogram);
        }
        Ok(finished)
    }

    fn close_interval(&mut self, line: &IntervalLine) -> Result<SavedInterval, String> {
        let mut interval = self.pending.take().ok_or("an interval without a histogram")?;
        let seconds = |s| Duration::try_from_secs_f64(s).map_err(|error| error.to_string());
        interval.start = seconds(line.start_s)?;
        interval.length = seconds(line.length_s)?;
        interval.recorder.add_counters(&line.counters);
        Ok(interval)
    }

    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.line_number += 1;
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut self.line)?;
        if read == LINE_BYTES_MAX {
            return Err(self.wrong("a line longer than 4 MiB"));
        }
        Ok(read > 0)
    }

    fn wrong(&self, why: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("line {}: {why}", self.line_number))
    }
}

/// Reads a saved result.
///
/// # Errors
/// What the file answers, or `InvalidData` with the number of the line that is no interval log.
pub fn read_result(path: &std::path::Path) -> io::Result<RunResult> {
    let mut result = LogReader::new(io::BufReader::new(std::fs::File::open(path)?)).into_result()?;
    if result.meta.target.is_empty() {
        result.meta.target = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    }
    Ok(result)
}

/// Seconds since 1970 of a wall clock time.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn histogram_for<'a>(recorder: &'a mut Recorder, tag: Option<&str>) -> Option<&'a mut LatencyHistogram> {
    let Some(tag) = tag else { return Some(recorder.measure_mut(Measure::Response)) };
    if let Some(measure) = Measure::ALL.into_iter().find(|measure| measure.name() == tag) {
        return Some(recorder.measure_mut(measure));
    }
    CLASS_NAMES.iter().position(|name| *name == tag).map(|class| recorder.class_mut(class))
}

fn decode(encoded: &str) -> Result<LatencyHistogram, String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|error| format!("no base64: {error}"))?;
    let histogram: Histogram<u64> = Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| format!("no histogram: {error}"))?;
    Ok(LatencyHistogram::from_hdr(&histogram))
}

fn comment<'a>(text: &'a str, head: &str) -> Option<&'a str> {
    text.strip_prefix(head)?.strip_suffix(']')
}

fn from_json<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}
