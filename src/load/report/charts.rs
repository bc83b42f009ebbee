//! The pictures of a result: percentile spectrum, the run over time, heat map, sweep curve. Each is a drawing of
//! fixed height that can stand alone or be stacked (`stand_alone`); how lines are drawn is `svg`'s business.

use std::time::Duration;

use super::svg::{self, COLOURS, Canvas, Frame, Scale, WIDTH};
use crate::{
    load::{intervals::Interval, record::Measure, result::RunResult, units},
    metrics::histogram::LatencyHistogram,
};

const LEFT: f64 = 78.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 44.0;
/// Rows of the heat map.
const HEAT_ROWS: usize = 36;

/// A picture and its height.
#[derive(Debug)]
pub struct Chart {
    /// What it shows, in words.
    pub title: &'static str,
    /// Height in CSS pixels.
    pub height: f64,
    canvas: Canvas,
}

impl Chart {
    fn new(title: &'static str, height: f64, note: &str) -> Self {
        let mut canvas = Canvas::new();
        canvas.text((LEFT, 20.0), "h", title);
        canvas.text((LEFT, 36.0), "m", note);
        Self { title, height, canvas }
    }

    /// The picture as an `svg` element for a page.
    pub fn into_element(self) -> String {
        svg::element(self.title, self.height, &[self.canvas.into_group(0.0)])
    }
}

/// The pictures that a result has data for.
pub fn of_result(result: &RunResult) -> Vec<Chart> {
    let mut charts = Vec::new();
    if !result.sweep.is_empty() {
        charts.push(sweep(result));
    }
    let response = result.totals.measure(Measure::Response);
    if response.is_empty() {
        return charts;
    }
    let service = result.totals.measure(Measure::Service);
    charts.push(spectrum(&[("response", response), ("service", service)], SPECTRUM_NOTE));
    if result.sweep.is_empty() && result.intervals.rows().len() > 1 {
        charts.push(over_time(result.intervals.rows()));
        charts.push(heat_map(result.intervals.rows()));
    }
    charts
}

const SPECTRUM_NOTE: &str = "response counts from when a request was due, service from when it was sent";

/// Pictures one below the other, as an SVG file.
pub fn stand_alone(title: &str, charts: Vec<Chart>) -> String {
    let mut heading = Canvas::new();
    heading.text((LEFT, 26.0), "h", title);
    let (mut top, mut groups) = (40.0, vec![heading.into_group(0.0)]);
    for chart in charts {
        groups.push(chart.canvas.into_group(top));
        top += chart.height;
    }
    svg::document(title, top, &groups)
}

/// Latency by percentile; each further mark to the right is a tenth of the requests.
pub fn spectrum(series: &[(&str, &LatencyHistogram)], note: &str) -> Chart {
    let mut chart = Chart::new("Latency by percentile", 330.0, note);
    let shown: Vec<_> = series.iter().filter(|(_, histogram)| !histogram.is_empty()).collect();
    let most = shown.iter().map(|(_, histogram)| histogram.count()).max().unwrap_or(1) as f64;
    let high = shown.iter().map(|(_, histogram)| histogram.max()).max().unwrap_or_default();
    let low = shown.iter().map(|(_, histogram)| histogram.min()).min().unwrap_or_default();
    let frame = Frame {
        x: Scale::logarithmic((1.0, most.max(100.0)), (LEFT, RIGHT)),
        y: latency_scale(low, high, (290.0, TOP + 4.0)),
    };
    chart.canvas.axes(&frame, percentile_label, latency_label);
    let mut names = Vec::new();
    for (at, (name, histogram)) in shown.iter().enumerate() {
        let classes = colour(at);
        chart.canvas.curve(&frame, &spectrum_points(histogram), &classes);
        names.push((*name, classes));
    }
    chart.canvas.legend(RIGHT, 20.0, &names);
    chart
}

/// Percentiles and throughput over the time of the run.
pub fn over_time(rows: &[Interval]) -> Chart {
    let mut chart =
        Chart::new("Over time", 430.0, "response time by percentile above, answers per second below");
    let (start, end) = time_range(rows);
    let high = rows.iter().map(Interval::max).max().unwrap_or_default();
    let low = rows.iter().filter(|row| row.counters.answered > 0).map(|row| row.quantile(0.5)).min();
    let x = Scale::linear((start, end), (LEFT, RIGHT));
    let frame = Frame { x, y: latency_scale(low.unwrap_or_default(), high, (250.0, TOP + 4.0)) };
    chart.canvas.axes(&frame, |_| String::new(), latency_label);
    let mut names = Vec::new();
    for (at, (name, quantile)) in
        [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)].into_iter().enumerate()
    {
        let point = |row: &Interval| (middle(row), row.quantile(quantile).as_secs_f64());
        let classes = colour(at);
        // A row without answers is a gap in the line, not a zero.
        for stretch in rows.split(|row| row.counters.answered == 0) {
            let points: Vec<(f64, f64)> = stretch.iter().map(point).collect();
            chart.canvas.curve(&frame, &points, &classes);
        }
        names.push((name, classes));
    }
    chart.canvas.legend(RIGHT, 20.0, &names);
    throughput(&mut chart.canvas, rows, x);
    chart
}

fn throughput(canvas: &mut Canvas, rows: &[Interval], x: Scale) {
    let top_rate = rows.iter().map(Interval::rate).fold(0.0, f64::max);
    let frame = Frame { x, y: Scale::linear((0.0, top_rate * 1.05), (390.0, 290.0)) };
    canvas.axes(&frame, seconds_label, |rate| units::thousands(rate as u64));
    for row in rows {
        let (left, right) = (x.at(row.start.as_secs_f64()), x.at((row.start + row.length).as_secs_f64()));
        let width = (right - left - 1.0).max(0.5);
        let top = frame.y.at(row.rate());
        canvas.cell((left, top), (width, 390.0 - top), "f0", 0.55);
        let failed = row.counters.errors_total() as f64 / row.length.as_secs_f64().max(1e-9);
        if failed > 0.0 {
            let top = frame.y.at(failed).min(388.0);
            canvas.cell((left, top), (width, 390.0 - top), "fe", 0.9);
        }
    }
    if rows.iter().any(|row| row.counters.errors_total() > 0) {
        canvas.text((RIGHT, 284.0), "m e", "failures in red");
    }
}

/// How many requests took how long, when. Darker is more; the scale of the shade is logarithmic.
pub fn heat_map(rows: &[Interval]) -> Chart {
    let mut chart = Chart::new(
        "Heat map",
        330.0,
        "each cell: how many requests took so long at that time; more is stronger",
    );
    let (start, end) = time_range(rows);
    let high = rows.iter().map(Interval::max).max().unwrap_or_default().as_secs_f64();
    let low = lowest(rows).as_secs_f64().clamp(1e-9, high.max(2e-9) / 2.0);
    let frame = Frame {
        x: Scale::linear((start, end), (LEFT, RIGHT)),
        y: Scale::logarithmic((low, high), (290.0, TOP + 4.0)),
    };
    chart.canvas.axes(&frame, seconds_label, latency_label);
    let columns: Vec<[u64; HEAT_ROWS]> = rows.iter().map(|row| heat_column(row, low, high)).collect();
    let most = columns.iter().flatten().copied().max().unwrap_or(1).max(2) as f64;
    let cell_height = (290.0 - TOP - 4.0) / HEAT_ROWS as f64;
    for (row, column) in rows.iter().zip(&columns) {
        let left = frame.x.at(row.start.as_secs_f64());
        let width = frame.x.at((row.start + row.length).as_secs_f64()) - left;
        for (at, count) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
            let shade = 0.12 + 0.88 * (*count as f64).ln_1p() / most.ln_1p();
            let top = 290.0 - cell_height * (at + 1) as f64;
            chart.canvas.cell((left, top), (width.max(0.5), cell_height), "f0", shade);
        }
    }
    chart
}

/// Latency against the load offered.
pub fn sweep(result: &RunResult) -> Chart {
    let mut chart = Chart::new(
        "Latency against offered load",
        330.0,
        "red: the goal was broken, or the load was not carried",
    );
    let points = &result.sweep;
    let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
    let high = points.iter().map(|point| point.latency_ns[3]).max().unwrap_or(1);
    let low = points.iter().map(|point| point.latency_ns[0]).min().unwrap_or(1);
    let rate_max = points.iter().map(|point| point.rate).fold(1.0, f64::max);
    let frame = Frame {
        x: Scale::linear((0.0, rate_max * 1.03), (LEFT, RIGHT)),
        y: latency_scale(Duration::from_nanos(low), Duration::from_nanos(high), (290.0, TOP + 4.0)),
    };
    chart.canvas.axes(&frame, |rate| units::thousands(rate as u64), latency_label);
    chart.canvas.text((RIGHT, 326.0), "m e", "requests per second offered");
    let mut names = Vec::new();
    for (at, (name, index)) in [("p50", 0), ("p90", 1), ("p99", 2), ("p99.9", 3)].into_iter().enumerate() {
        let classes = colour(at);
        let curve: Vec<(f64, f64)> = points.iter().map(|p| (p.rate, seconds(p.latency_ns[index]))).collect();
        chart.canvas.curve(&frame, &curve, &classes);
        for (point, (x, y)) in points.iter().zip(&curve) {
            let fill = if point.kept { format!("f{at}") } else { "fe".to_owned() };
            chart.canvas.dot((frame.x.at(*x), frame.y.at(*y)), &fill);
        }
        names.push((name, classes));
    }
    chart.canvas.legend(RIGHT, 20.0, &names);
    chart
}

fn colour(at: usize) -> String {
    let dashed = if at >= COLOURS { " d" } else { "" };
    format!("s{}{dashed}", at % COLOURS)
}

fn spectrum_points(histogram: &LatencyHistogram) -> Vec<(f64, f64)> {
    const STEPS_PER_DECADE: f64 = 40.0;
    let most = histogram.count() as f64;
    let steps = (most.log10() * STEPS_PER_DECADE).ceil() as u32;
    (0..=steps)
        .map(|step| 10f64.powf(f64::from(step) / STEPS_PER_DECADE).min(most))
        .map(|one_in| (one_in, histogram.quantile(1.0 - 1.0 / one_in).as_secs_f64()))
        .collect()
}

/// From zero where the values lie close together, by factors where they span more than two decades.
fn latency_scale(low: Duration, high: Duration, pixels: (f64, f64)) -> Scale {
    let (low, high) = (low.as_secs_f64().max(1e-9), high.as_secs_f64().max(2e-9));
    match high / low > 30.0 {
        true => Scale::logarithmic((low, high * 1.1), pixels),
        false => Scale::linear((0.0, high * 1.05), pixels),
    }
}

fn heat_column(row: &Interval, low: f64, high: f64) -> [u64; HEAT_ROWS] {
    let mut column = [0; HEAT_ROWS];
    let span = (high / low).ln().max(1e-9);
    for step in row.response().iter_recorded() {
        let share = (step.value_iterated_to() as f64 / 1e9 / low).ln() / span;
        let at = (share.clamp(0.0, 1.0) * HEAT_ROWS as f64) as usize;
        column[at.min(HEAT_ROWS - 1)] += u64::from(step.count_at_value());
    }
    column
}

fn lowest(rows: &[Interval]) -> Duration {
    let answered = rows.iter().filter(|row| !row.response().is_empty());
    answered.map(|row| Duration::from_nanos(row.response().min())).min().unwrap_or_default()
}

fn time_range(rows: &[Interval]) -> (f64, f64) {
    let start = rows.first().map_or(0.0, |row| row.start.as_secs_f64());
    let end = rows.last().map_or(1.0, |row| (row.start + row.length).as_secs_f64());
    (start, end)
}

fn middle(row: &Interval) -> f64 {
    (row.start + row.length / 2).as_secs_f64()
}

fn seconds_label(seconds: f64) -> String {
    format!("{} s", (seconds * 100.0).round() / 100.0)
}

fn latency_label(seconds: f64) -> String {
    match seconds > 0.0 {
        true => units::duration(Duration::from_secs_f64(seconds)).replace(".00 ", " ").replace(".0 ", " "),
        false => "0".to_owned(),
    }
}

/// 1 in 1 is p0, 1 in 10 is p90, 1 in 1,000 is p99.9.
fn percentile_label(one_in: f64) -> String {
    let decimals = (one_in.log10().ceil() as usize).saturating_sub(2);
    format!("{:.decimals$} %", 100.0 * (1.0 - 1.0 / one_in))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing;

    #[test]
    fn marks_have_their_usual_names() {
        assert_eq!(
            [1.0, 10.0, 100.0, 1e3, 1e5].map(percentile_label),
            ["0 %", "90 %", "99 %", "99.9 %", "99.999 %"]
        );
        assert_eq!([20.0, 50.0, 200.0].map(percentile_label), ["95 %", "98 %", "99.5 %"]);
        assert_eq!(latency_label(0.001), "1 ms");
        assert_eq!(latency_label(0.0), "0");
        assert_eq!(seconds_label(0.30000000000000004), "0.3 s");
    }

    #[test]
    fn every_result_has_its_pictures_and_no_number_is_lost() {
        let result = testing::result(500.0, 4, |n| Duration::from_micros(100 + (n % 97) * 900));
        let svg = stand_alone("a <title> & more", of_result(&result));
        for part in ["Latency by percentile", "Over time", "Heat map", "a &lt;title&gt; &amp; more"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "a coordinate is no number");
    }

    #[test]
    fn a_result_without_answers_draws_nothing_and_does_not_fail() {
        let result = testing::result(500.0, 0, |_| Duration::ZERO);
        assert!(of_result(&result).is_empty());
        let svg =
            stand_alone("empty", vec![over_time(result.intervals.rows()), heat_map(result.intervals.rows())]);
        assert!(!svg.contains("NaN"));
    }
}
