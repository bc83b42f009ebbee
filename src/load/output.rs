//! Where results go: files and the terminal, and the live line while a run lasts. Neighbours: `report` makes the
//! text, `command` and `run` call this.

use std::{
    fs,
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
    time::Duration,
};

pub use super::args::OutputArgs as Output;
use super::{
    error::LoadError,
    interval_log,
    record::{Measure, Recorder},
    report::{charts, html, json, text},
    result::RunResult,
    threshold::Judged,
    units,
};

/// Writes all that was asked for and prints the screen. Answers the exit code: 1 when a rule failed, when rules stand
/// on figures of a generator that was the bottleneck, or when nothing at all was answered.
///
/// # Errors
/// A file that cannot be written.
pub fn present(result: &RunResult, output: &Output) -> Result<u8, LoadError> {
    let judged: Vec<Judged> = output.fail_if.iter().map(|rule| rule.judge(result)).collect();
    let to_stdout = output.json.as_deref() == Some(Path::new("-"));
    if let Some(file) = &output.json {
        let document =
            json::document(result, &judged).map_err(|error| LoadError::run_time(error.to_string()))?;
        match to_stdout {
            true => print(&document)?,
            false => write(file, document.as_bytes())?,
        }
    }
    if let Some(file) = &output.html {
        write(file, html::page(result, &judged).as_bytes())?;
    }
    if let Some(file) = &output.svg {
        let title = format!("{} {}", result.meta.method, result.meta.target);
        write(file, charts::stand_alone(&title, charts::of_result(result)).as_bytes())?;
    }
    if let Some(file) = &output.hgrm {
        let mut spectrum = Vec::new();
        let written = result.totals.measure(Measure::Response).write_spectrum(&mut spectrum);
        written.map_err(|error| failed("write", file, &error))?;
        write(file, &spectrum)?;
    }
    if !output.quiet && !to_stdout {
        let saved = output.save.as_ref().map(|file| file.display().to_string());
        print(&text::screen(result, &judged, saved.as_deref()))?;
    }
    let invalid = !judged.is_empty() && result.health.as_ref().is_some_and(|health| !health.valid);
    let nothing = result.totals.counters().answered == 0;
    Ok(u8::from(invalid || nothing || judged.iter().any(|rule| rule.failed)))
}

/// Makes sure that the files that were asked for can be written, before a run whose result would be lost otherwise. What
/// they hold stays until the result is there.
///
/// # Errors
/// The first one that cannot be written.
pub fn check(output: &Output) -> Result<(), LoadError> {
    let files = [&output.json, &output.html, &output.svg, &output.hgrm].into_iter().flatten();
    for file in files.filter(|file| file.as_path() != Path::new("-")) {
        let opened = fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|error| failed("create", file, &error))?;
    }
    Ok(())
}

/// Reads a saved result.
///
/// # Errors
/// A file that is not there (usage) or is no result.
pub fn read(file: &Path) -> Result<RunResult, LoadError> {
    interval_log::read_result(file).map_err(|error| LoadError::usage(format!("{}: {error}", file.display())))
}

/// Prints to standard output. A reader that went away (`| head`) is no error.
///
/// # Errors
/// Any other failure.
pub fn print(text: &str) -> Result<(), LoadError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(LoadError::run_time(format!("print: {error}")))
        }
        _ => Ok(()),
    }
}

/// Opens the file for the interval log.
///
/// # Errors
/// When it cannot be made.
pub fn create(file: &Path) -> Result<BufWriter<fs::File>, LoadError> {
    fs::File::create(file).map(BufWriter::new).map_err(|error| failed("create", file, &error))
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), LoadError> {
    fs::write(file, bytes).map_err(|error| failed("write", file, &error))
}

fn failed(what: &str, file: &Path, error: &io::Error) -> LoadError {
    LoadError::run_time(format!("{what} {}: {error}", file.display()))
}

/// One line on standard error that shows how the run goes; nothing where nobody looks.
#[derive(Debug)]
pub struct LiveLine {
    on: bool,
    shown: bool,
}

impl LiveLine {
    /// Off with `--quiet` and when standard error is no terminal.
    pub fn new(quiet: bool) -> Self {
        Self { on: !quiet && io::stderr().is_terminal(), shown: false }
    }

    /// Shows the last interval.
    pub fn show(&mut self, done: Duration, of: Duration, length: Duration, last: &Recorder) {
        if !self.on {
            return;
        }
        self.shown = true;
        let line = live_text(done, of, length, last);
        // A terminal that cannot be written to is not a reason to stop measuring.
        let _ = write!(io::stderr(), "\r\x1b[K{line}");
    }

    /// Takes the line away.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn live_text(done: Duration, of: Duration, length: Duration, last: &Recorder) -> String {
    let (response, counters) = (last.measure(Measure::Response), last.counters());
    let rate = counters.answered as f64 / length.as_secs_f64().max(1e-9);
    format!(
        "{:>5.1} s of {:.1} s  {:>11}  p50 {:>8}  p99 {:>8}  errors {}",
        done.as_secs_f64(),
        of.as_secs_f64(),
        units::rate(rate.round()),
        units::duration(response.quantile(0.5)),
        units::duration(response.quantile(0.99)),
        units::thousands(counters.errors_total())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{testing, threshold::Threshold};

    fn quiet() -> Output {
        Output { quiet: true, ..Output::default() }
    }

    #[test]
    fn every_file_asked_for_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| Some(folder.path().join(name));
        let output = Output {
            json: file("a.json"),
            html: file("a.html"),
            svg: file("a.svg"),
            hgrm: file("a.hgrm"),
            ..quiet()
        };
        let result = testing::result(200.0, 3, |n| Duration::from_micros(100 + n));
        assert_eq!(present(&result, &output).expect("writes"), 0);
        for (name, part) in
            [("a.json", "\"schema\""), ("a.html", "</html>"), ("a.svg", "</svg>"), ("a.hgrm", "#[Max")]
        {
            let text = fs::read_to_string(folder.path().join(name)).expect("was written");
            assert!(text.contains(part), "{name}");
        }
    }

    #[test]
    fn the_exit_code_follows_rules_verdict_and_silence() {
        let mut result = testing::result(200.0, 2, |_| Duration::from_millis(2));
        let rules = |text: &str| Output { fail_if: vec![Threshold::parse(text).expect("a rule")], ..quiet() };
        assert_eq!(present(&result, &rules("p99>10ms")), Ok(0));
        assert_eq!(present(&result, &rules("p99>1ms")), Ok(1));
        result.health.as_mut().expect("made with one").valid = false;
        assert_eq!(present(&result, &rules("p99>10ms")), Ok(1));
        assert_eq!(present(&result, &quiet()), Ok(0));
        let silent = testing::result(200.0, 0, |_| Duration::ZERO);
        assert_eq!(present(&silent, &quiet()), Ok(1));
    }

    #[test]
    fn the_live_line_fits_a_terminal() {
        let recorder = &testing::seconds(900.0, 1, |_| Duration::from_micros(85)).recorders[0];
        let second = Duration::from_secs(1);
        let line = live_text(second * 600, second * 600, second, recorder);
        assert!(line.len() < 79, "{line}");
        assert!(line.contains("900/s") && line.contains("p99"));
    }
}
