//! The result as one page: verdict, figures and pictures, nothing fetched from elsewhere and no script, so that it
//! opens from a mail or an archive and under any content policy. Legible on light and dark screens.

use std::fmt::Write;

use super::{
    charts::{self, Chart},
    svg, text,
};
use crate::load::{
    record::{CLASS_NAMES, Measure},
    result::{RunResult, SHOWN_QUANTILES},
    threshold::Judged,
    units,
};

pub use svg::escape;

const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;max-width:900px;\
margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}h1{font-size:1.3rem;overflow-wrap:anywhere}\
svg{max-width:100%;height:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:1rem 0}\
td,th{padding:.25rem .8rem;text-align:right;border-bottom:1px solid #d1d9e0}th:first-child,td:first-child{text-align:left}\
.ok,.bad{padding:.6rem .9rem;border-left:4px solid #1a7f37;background:#1a7f3714}.bad{border-color:#cf222e;background:#cf222e14}\
.note{color:#59636e}div.wide{overflow-x:auto}\
@media(prefers-color-scheme:dark){body{color:#f0f6fc;background:#0d1117}td,th{border-color:#30363d}.note{color:#9198a1}\
.ok{border-color:#3fb950;background:#3fb95022}.bad{border-color:#ff7b72;background:#ff7b7222}}";

/// A page about one result.
pub fn page(result: &RunResult, judged: &[Judged]) -> String {
    let mut body = String::new();
    let meta = &result.meta;
    let _ = write!(body, "<h1>{} {}</h1>", escape(&meta.method), escape(&meta.target));
    let _ = write!(body, "<p class=\"note\">{}</p>", escape(&load_line(result)));
    body.push_str(&verdict(result));
    body.push_str(&latency_table(result));
    body.push_str(&counts_table(result));
    body.push_str(&rules_table(judged));
    for chart in charts::of_result(result) {
        body.push_str(&figure(chart));
    }
    let _ = write!(body, "<p class=\"note\">{}</p>", escape(&machine_line(result)));
    around(&format!("shardlet bench: {}", meta.target), &body)
}

/// The frame of a page; `body` is HTML.
pub fn around(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )
}

/// A picture in its page.
pub fn figure(chart: Chart) -> String {
    format!("<figure style=\"margin:1.5rem 0\">{}</figure>", chart.into_element())
}

/// A table; the cells are escaped here.
pub fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"wide\"><table><tr>");
    header.iter().for_each(|cell| out.extend(["<th>", &escape(cell), "</th>"]));
    out.push_str("</tr>");
    for row in rows {
        out.push_str("<tr>");
        row.iter().for_each(|cell| out.extend(["<td>", &escape(cell), "</td>"]));
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
    out
}

fn load_line(result: &RunResult) -> String {
    let meta = &result.meta;
    let pace = match (meta.open_loop, meta.rate) {
        (true, Some(rate)) => format!("open loop at {}", units::rate(rate)),
        (true, None) => "open loop".to_owned(),
        (false, _) => "CLOSED loop: the server sets the pace, its pauses are hidden".to_owned(),
    };
    let keep = if meta.keep_alive { "" } else { ", a new one for each request" };
    let partial = meta.cut_short_s.map(|seconds| format!("; PARTIAL: interrupted after {seconds:.1} s"));
    format!(
        "{pace}; {} connections{keep}; {} s after {} s of warm-up{}",
        meta.connections,
        meta.time_s,
        meta.warm_up_s,
        partial.unwrap_or_default()
    )
}

fn machine_line(result: &RunResult) -> String {
    let meta = &result.meta;
    let mut line = format!(
        "shardlet {} on {}, driver {}, generator shards: {}",
        meta.version, meta.host, meta.driver, meta.shards
    );
    if let Some(health) = &result.health {
        let _ = write!(
            line,
            "; clock resolution {} ns, {} ns a reading; {} of processor time a request",
            health.clock.resolution_ns,
            health.clock.reading_ns,
            units::duration(std::time::Duration::from_nanos(health.cpu_per_request_ns))
        );
    }
    line
}

fn verdict(result: &RunResult) -> String {
    let Some(health) = &result.health else {
        return "<p class=\"bad\">No verdict on the generator in the file.</p>".to_owned();
    };
    let [p50, p99, max] =
        health.lateness_ns.map(|late| units::duration(std::time::Duration::from_nanos(late)));
    let lateness = format!("It sent late by {p50} (p50), {p99} (p99), {max} (max).");
    match health.valid {
        true => format!("<p class=\"ok\"><b>Valid.</b> The generator kept up. {lateness}</p>"),
        false => format!(
            "<p class=\"bad\"><b>Not valid: the load that was sent is not the load asked for.</b> {}; {}. {lateness}</p>",
            escape(&health.reasons.join("; ")),
            escape(&health.advice)
        ),
    }
}

fn latency_table(result: &RunResult) -> String {
    let names = [
        ("response", Measure::Response),
        ("service", Measure::Service),
        ("first byte", Measure::FirstByte),
        ("connect", Measure::Connect),
        ("lateness", Measure::Lateness),
    ];
    let measures = names.into_iter().map(|(name, measure)| (name.to_owned(), result.totals.measure(measure)));
    let classes = (CLASS_NAMES.into_iter().enumerate())
        .filter_map(|(class, name)| Some((format!("response {name}"), result.totals.class(class)?)));
    let rows: Vec<Vec<String>> = (measures.chain(classes))
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(name, histogram)| {
            let values =
                SHOWN_QUANTILES.iter().map(|quantile| units::duration(histogram.quantile(*quantile)));
            let tail = [units::duration(histogram.mean()), units::thousands(histogram.count())];
            [name].into_iter().chain(values).chain(tail).collect()
        })
        .collect();
    let mut header = vec![String::new()];
    header.extend(SHOWN_QUANTILES.iter().map(|quantile| units::quantile_name(*quantile)));
    header.extend(["mean".to_owned(), "count".to_owned()]);
    table(&header, &rows)
        + "<p class=\"note\">Response time counts from when a request was due: what a user waits. Service time counts \
           from when it was sent, and hides the wait of requests that a slow server kept from being sent.</p>"
}

fn counts_table(result: &RunResult) -> String {
    let counters = result.totals.counters();
    let mut rows = vec![
        vec!["answered".to_owned(), units::thousands(counters.answered)],
        vec!["answers per second".to_owned(), units::rate(result.rate())],
        vec!["received".to_owned(), units::bytes(counters.bytes)],
    ];
    for (name, count) in CLASS_NAMES.iter().zip(counters.classes).filter(|(_, count)| *count > 0) {
        rows.push(vec![format!("status {name}"), units::thousands(count)]);
    }
    rows.push(vec!["errors".to_owned(), text::errors(counters)]);
    table(&["requests".to_owned(), String::new()], &rows)
}

fn rules_table(judged: &[Judged]) -> String {
    if judged.is_empty() {
        return String::new();
    }
    let row = |rule: &Judged| {
        let mark = if rule.failed { "failed" } else { "passed" };
        vec![rule.rule.clone(), rule.actual.clone(), mark.to_owned()]
    };
    let rows: Vec<Vec<String>> = judged.iter().map(row).collect();
    table(&["fails if".to_owned(), "seen".to_owned(), String::new()], &rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::testing;

    #[test]
    fn the_page_is_whole_escaped_and_fetches_nothing() {
        let mut result = testing::result(500.0, 3, |n| Duration::from_micros(50 + n % 100));
        result.meta.target = "http://x/<script>alert(1)</script>".to_owned();
        let page = page(&result, &[]);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"));
        assert!(page.ends_with("</body></html>\n"));
        assert_eq!(page.matches("<svg").count(), 3);
        for outside in ["src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        for open in ["<table", "<figure", "<p", "<div"] {
            let close = format!("</{}>", &open[1..]);
            let opened =
                page.matches(&format!("{open}>")).count() + page.matches(&format!("{open} ")).count();
            assert_eq!(opened, page.matches(&close).count(), "{open}");
        }
    }
}
