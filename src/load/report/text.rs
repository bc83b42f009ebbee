//! The result on one screen of 80 × 24: what was measured, whether it may be believed, the figures, and the next
//! useful command. Text only; colours are left to the terminal.

use std::fmt::Write;

use crate::load::{
    health::Health,
    record::{CLASS_NAMES, Counters, ErrorKind, Measure},
    result::{RunResult, SHOWN_QUANTILES},
    sweep::SweepPoint,
    threshold::Judged,
    units,
};

/// The screen.
pub const WIDTH: usize = 80;
/// Its lines; one is left for the prompt.
pub const LINES: usize = 23;

/// Writes the screen. `saved` names the file that holds the result, for the next command.
pub fn screen(result: &RunResult, judged: &[Judged], saved: Option<&str>) -> String {
    let (mut lines, mut tail) = (Vec::with_capacity(LINES), Vec::new());
    head(&mut lines, result);
    verdict(&mut lines, result.health.as_ref());
    lines.push(String::new());
    counts(&mut tail, result);
    rules(&mut tail, judged);
    tail.push(String::new());
    next_command(&mut tail, result, saved);
    match result.sweep.is_empty() {
        true => latencies(&mut lines, result),
        false => {
            let room = LINES - lines.len() - tail.len();
            sweep(&mut lines, &result.sweep, room);
        }
    }
    lines.append(&mut tail);
    let mut screen = String::new();
    for line in lines {
        let _ = writeln!(screen, "{}", cut(&line, WIDTH));
    }
    screen
}

fn head(lines: &mut Vec<String>, result: &RunResult) {
    let meta = &result.meta;
    lines.push(format!("{} {}", meta.method, meta.target));
    let pace = match (meta.open_loop, meta.rate) {
        (true, Some(rate)) if result.sweep.is_empty() => format!("open loop at {}", units::rate(rate)),
        (true, _) => "open loop".to_owned(),
        (false, _) => "CLOSED loop (hides the server's pauses)".to_owned(),
    };
    let connections = plural(u64::from(meta.connections), "connection");
    let mut line = format!("{pace}, {connections}");
    if meta.pipeline > 1 {
        let _ = write!(line, " × {} in flight", meta.pipeline);
    }
    let _ = write!(line, ", {} s", meta.time_s);
    if meta.warm_up_s > 0.0 {
        let _ = write!(line, " after {} s of warm-up", meta.warm_up_s);
    }
    lines.push(line);
    if let Some(seconds) = meta.cut_short_s {
        lines.push(format!("PARTIAL: interrupted after {seconds:.1} s; the figures are of that time"));
    }
}

fn verdict(lines: &mut Vec<String>, health: Option<&Health>) {
    let Some(health) = health else {
        lines.push("generator   no verdict in the file".to_owned());
        return;
    };
    let [p50, p99, max] = health.lateness_ns.map(nanoseconds);
    let cpu: Vec<String> = health.cpu_shares.iter().map(|share| format!("{:.0} %", share * 100.0)).collect();
    let lateness = format!("sent late by {p50} (p50), {p99} (p99), {max} (max); CPU {}", cpu.join(" "));
    let clock = nanoseconds(health.clock.resolution_ns);
    if health.valid {
        lines.push(format!("generator   valid: it kept up, the figures speak of the server (clock {clock})"));
    } else {
        lines.push(format!("generator   NOT VALID: what was sent is not what was asked for (clock {clock})"));
        lines.extend(health.reasons.iter().take(1).map(|reason| format!("            {reason}")));
        lines.push(format!("            {}", health.advice));
    }
    lines.push(format!("            {lateness}"));
}

fn latencies(lines: &mut Vec<String>, result: &RunResult) {
    let mut header = format!("{:<11}", "");
    for quantile in SHOWN_QUANTILES {
        let _ = write!(header, "{:>11}", units::quantile_name(quantile));
    }
    lines.push(header);
    let rows = [
        ("response", Measure::Response),
        ("service", Measure::Service),
        ("first byte", Measure::FirstByte),
        ("connect", Measure::Connect),
    ];
    for (name, measure) in rows {
        let histogram = result.totals.measure(measure);
        if histogram.is_empty() {
            continue;
        }
        let mut row = format!("{name:<11}");
        for quantile in SHOWN_QUANTILES {
            let _ = write!(row, "{:>11}", units::duration(histogram.quantile(quantile)));
        }
        lines.push(row);
    }
    lines.push(match result.meta.open_loop {
        true => "response counts from when a request was due, service from when it was sent.".to_owned(),
        false => "closed loop: a request is due when a connection is free, so both are the same.".to_owned(),
    });
    lines.push(String::new());
}

/// The rows around the knee, as many as there is room for beside the header, the answer and a blank line.
fn sweep(lines: &mut Vec<String>, points: &[SweepPoint], room: usize) {
    let rows = room.saturating_sub(3).max(1);
    lines.push(format!(
        "{:>12}{:>12}{:>11}{:>11}{:>11}{:>9}  ",
        "offered", "achieved", "p50", "p99", "p99.9", "errors"
    ));
    let knee = points.iter().position(|point| !point.kept).unwrap_or(points.len());
    let first = (knee + 2).saturating_sub(rows).min(points.len().saturating_sub(rows));
    for point in points.iter().skip(first).take(rows) {
        let [p50, _, p99, p999, _] = point.latency_ns.map(nanoseconds);
        let end = match (point.kept, point.valid) {
            (true, _) => "",
            (false, true) => "broken",
            (false, false) => "generator",
        };
        let (offered, achieved) = (units::rate(point.rate), units::rate(point.achieved));
        let errors = format!("{:.2} %", point.error_share * 100.0);
        lines.push(format!("{offered:>12}{achieved:>12}{p50:>11}{p99:>11}{p999:>11}{errors:>9}  {end}"));
    }
    let best = points[..knee].iter().map(|point| point.rate).reduce(f64::max);
    lines.push(match best {
        Some(rate) => format!("highest rate that held: {}", units::rate(rate)),
        None => "no rate held: start lower (--rate) or allow more".to_owned(),
    });
    lines.push(String::new());
}

fn counts(lines: &mut Vec<String>, result: &RunResult) {
    let counters = result.totals.counters();
    let rate = units::rate(result.rate());
    let (answered, bytes) = (units::thousands(counters.answered), units::bytes(counters.bytes));
    let elapsed = units::duration(result.elapsed);
    lines.push(format!("requests    {answered} answered in {elapsed}, {rate}, {bytes}"));
    let classes: Vec<String> = (CLASS_NAMES.iter().zip(counters.classes))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", units::thousands(count)))
        .collect();
    if !classes.is_empty() {
        lines.push(format!("status      {}", classes.join(", ")));
    }
    lines.push(format!("errors      {}", errors(counters)));
}

/// `none`, or the kinds with their counts and the share of all.
pub fn errors(counters: &Counters) -> String {
    let kinds: Vec<String> = (ErrorKind::ALL.into_iter())
        .filter(|kind| counters.errors_of(*kind) > 0)
        .map(|kind| format!("{} {}", kind.name(), units::thousands(counters.errors_of(kind))))
        .collect();
    match kinds.is_empty() {
        true => "none".to_owned(),
        false => format!("{:.3} % of requests: {}", counters.error_share() * 100.0, kinds.join(", ")),
    }
}

fn rules(lines: &mut Vec<String>, judged: &[Judged]) {
    const ROWS_MAX: usize = 2;
    // Those that failed first: they are why somebody reads this.
    let failed = judged.iter().filter(|rule| rule.failed);
    let passed = judged.iter().filter(|rule| !rule.failed);
    for rule in failed.chain(passed).take(ROWS_MAX) {
        let mark = if rule.failed { "FAILED" } else { "passed" };
        lines.push(format!("rule        {mark}: {} (seen {})", rule.rule, rule.actual));
    }
    if judged.len() > ROWS_MAX {
        let failed = judged.iter().filter(|rule| rule.failed).count();
        lines.push(format!("            {} rules in all, {failed} failed", judged.len()));
    }
}

fn next_command(lines: &mut Vec<String>, result: &RunResult, saved: Option<&str>) {
    let target = &result.meta.target;
    if result.health.as_ref().is_some_and(|health| !health.valid) {
        let rate = result.meta.rate.unwrap_or(1_000.0) * 0.8;
        lines.push("next: a rate that the generator can keep".to_owned());
        lines.push(format!("  shardlet bench {target} --rate {rate:.0}"));
    } else if let Some(file) = saved {
        lines.push("next: compare with another run (exit code 1 when it is worse beyond noise)".to_owned());
        lines.push(format!("  shardlet bench compare {file} OTHER.hlog"));
    } else if result.sweep.is_empty() {
        lines.push("next: the highest rate that keeps p99 below 5 ms, as a curve".to_owned());
        lines.push(format!("  shardlet bench {target} --sweep 'p99<5ms' --html report.html"));
    } else {
        lines.push("next: keep a result at one rate, to compare others with".to_owned());
        let rate =
            result.sweep.iter().filter(|point| point.kept).map(|point| point.rate).fold(100.0, f64::max);
        lines.push(format!("  shardlet bench {target} --rate {:.0} --save a.hlog", rate * 0.7));
    }
}

fn nanoseconds(value: u64) -> String {
    units::duration(std::time::Duration::from_nanos(value))
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", units::thousands(count), if count == 1 { "" } else { "s" })
}

/// At most `width` characters; what is cut is marked. A command to copy is the exception: it must stay whole.
fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width || line.starts_with("  shardlet ") {
        return line.to_owned();
    }
    line.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::{record::ErrorKind, testing};

    fn fits(screen: &str) {
        assert!(screen.lines().count() <= LINES, "{} lines:\n{screen}", screen.lines().count());
        for line in screen.lines().filter(|line| !line.starts_with("  shardlet ")) {
            assert!(line.chars().count() <= WIDTH, "too wide: {line}");
        }
    }

    #[test]
    fn a_result_fits_one_screen_and_names_the_next_command() {
        let result = testing::result(1_000.0, 5, |n| Duration::from_micros(80 + n % 50));
        let screen = screen(&result, &[], None);
        fits(&screen);
        for part in
            ["GET http://", "open loop at 1,000/s", "valid", "p99.9", "service", "5,000 answered", "--sweep"]
        {
            assert!(screen.contains(part), "{part} in:\n{screen}");
        }
    }

    #[test]
    fn the_fullest_screen_fits_too() {
        let mut result = testing::result(1_000.0, 5, |n| Duration::from_micros(80 + n % 50));
        ErrorKind::ALL.into_iter().for_each(|kind| result.totals.failed_without_ticket(kind, 1_234_567));
        result.meta.target.push_str(&"x".repeat(100));
        let health = result.health.as_mut().expect("made with one");
        health.valid = false;
        health.cpu_shares = vec![0.99; 16];
        health.reasons = vec!["too late".to_owned(); 5];
        let rule = |failed| Judged { rule: "p99>1ms".to_owned(), actual: "2 ms".to_owned(), failed };
        let judged: Vec<Judged> = (0..9).map(|n| rule(n == 8)).collect();
        let full = screen(&result, &judged, Some("a.hlog"));
        fits(&full);
        assert!(full.contains("NOT VALID") && full.contains("rule        FAILED"), "{full}");
        result.sweep = (1..=40).map(|n| point(f64::from(n) * 1_000.0, n < 20)).collect();
        let curve = screen(&result, &judged, None);
        fits(&curve);
        assert!(curve.contains("highest rate that held: 19,000/s"), "{curve}");
    }

    #[test]
    fn a_closed_loop_is_labelled() {
        let mut result = testing::result(1_000.0, 2, |_| Duration::from_micros(80));
        result.meta.open_loop = false;
        assert!(screen(&result, &[], None).contains("CLOSED loop"));
    }

    fn point(rate: f64, kept: bool) -> SweepPoint {
        SweepPoint {
            rate,
            achieved: rate,
            latency_ns: [1_000_000; 5],
            goal_ns: 1_000_000,
            error_share: 0.0,
            valid: true,
            kept,
        }
    }
}
