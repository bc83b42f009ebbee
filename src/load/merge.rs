//! Several generators, one result: the sum of their histograms, interval by interval, aligned by the wall clock. The
//! inputs are read side by side as streams, so results of any length merge in constant memory.

use std::{
    io::{self, BufRead, Write},
    time::Duration,
};

use super::{
    health::Health,
    interval_log::{LogEnd, LogReader, LogWriter, SavedInterval},
    record::Recorder,
    result::RunMeta,
};

/// One input, with the interval read ahead.
#[derive(Debug)]
struct Input<R: BufRead> {
    reader: LogReader<R>,
    head: Option<SavedInterval>,
    started: f64,
}

impl<R: BufRead> Input<R> {
    fn head_start(&self) -> Option<f64> {
        self.head.as_ref().map(|head| self.started + head.start.as_secs_f64())
    }
}

/// Adds results up and writes the sum.
///
/// # Errors
/// What reading or writing answers; `InvalidData` when an input is no result or there is none.
pub fn merge<R: BufRead, W: Write>(inputs: Vec<R>, out: W) -> io::Result<W> {
    let mut inputs = inputs.into_iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let started = inputs.iter().map(|input| input.started).reduce(f64::min);
    let started = started.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "nothing to merge"))?;
    let metas: Vec<RunMeta> = inputs.iter().map(|input| input.reader.meta()).collect();
    let width = inputs
        .iter()
        .filter_map(|input| input.head.as_ref())
        .map(|head| head.length)
        .max()
        .unwrap_or_default();
    let mut log = LogWriter::begin(out, &sum_of_metas(&metas, started))?;
    let (mut sum, mut end) = (Recorder::new(), Duration::ZERO);
    while let Some(first) = inputs.iter().filter_map(Input::head_start).reduce(f64::min) {
        sum.clear();
        let window_end = first + width.as_secs_f64();
        for input in &mut inputs {
            take_window(input, window_end, &mut sum)?;
        }
        let start = Duration::try_from_secs_f64(first - started).unwrap_or_default();
        log.interval(start, width, &sum)?;
        end = end.max(start + width);
    }
    let (mut health, mut cut_short_s) = (None, None);
    for input in inputs {
        let part = input.reader.end();
        let offset = Duration::try_from_secs_f64(input.started - started).unwrap_or_default();
        end = end.max(part.elapsed + offset);
        health = worse_of(health, part.health);
        // A sum with a part that was cut short is partial too.
        cut_short_s = part.cut_short_s.or(cut_short_s);
    }
    cut_short_s = cut_short_s.map(|_: f64| end.as_secs_f64());
    log.end(&LogEnd { elapsed: end, cut_short_s, health: health.as_ref(), sweep: &[] })
}

fn open<R: BufRead>(input: R) -> io::Result<Input<R>> {
    let mut reader = LogReader::new(input);
    let head = reader.next_interval()?;
    if head.is_none() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a result without an interval"));
    }
    let started = reader.meta().started_unix_s;
    Ok(Input { reader, head, started })
}

/// Adds all intervals of one input whose middle lies before the window's end.
fn take_window<R: BufRead>(input: &mut Input<R>, window_end: f64, sum: &mut Recorder) -> io::Result<()> {
    while let Some(head) = input.head.take() {
        if input.started + (head.start + head.length / 2).as_secs_f64() >= window_end {
            input.head = Some(head);
            break;
        }
        sum.add(&head.recorder);
        input.head = input.reader.next_interval()?;
    }
    Ok(())
}

/// The load of all together. What differs between them stays empty rather than wrong.
fn sum_of_metas(metas: &[RunMeta], started: f64) -> RunMeta {
    let first = &metas[0];
    let same = |field: fn(&RunMeta) -> &String| match metas.iter().all(|meta| field(meta) == field(first)) {
        true => field(first).clone(),
        false => "mixed".to_owned(),
    };
    RunMeta {
        version: first.version.clone(),
        target: same(|meta| &meta.target),
        method: same(|meta| &meta.method),
        open_loop: metas.iter().all(|meta| meta.open_loop),
        rate: metas.iter().map(|meta| meta.rate).sum(),
        connections: metas.iter().map(|meta| meta.connections).sum(),
        pipeline: metas.iter().map(|meta| meta.pipeline).max().unwrap_or(1),
        keep_alive: metas.iter().all(|meta| meta.keep_alive),
        shards: metas.iter().map(|meta| meta.shards).sum(),
        driver: same(|meta| &meta.driver),
        warm_up_s: metas.iter().map(|meta| meta.warm_up_s).fold(0.0, f64::max),
        time_s: metas.iter().map(|meta| meta.time_s).fold(0.0, f64::max),
        cut_short_s: None,
        started_unix_s: started,
        host: same(|meta| &meta.host),
        label: format!("{} results merged", metas.len()),
    }
}

/// A sum is as valid as its worst part.
fn worse_of(sum: Option<Health>, one: Option<Health>) -> Option<Health> {
    let (Some(mut sum), Some(one)) = (sum.clone(), one.clone()) else { return sum.or(one) };
    sum.valid &= one.valid;
    sum.reasons.extend(one.reasons);
    if sum.advice.is_empty() {
        sum.advice = one.advice;
    }
    sum.lateness_ns = std::array::from_fn(|at| sum.lateness_ns[at].max(one.lateness_ns[at]));
    sum.cpu_shares.extend(one.cpu_shares);
    sum.cpu_per_request_ns = sum.cpu_per_request_ns.max(one.cpu_per_request_ns);
    sum.offered_share = sum.offered_share.min(one.offered_share);
    sum.clock.resolution_ns = sum.clock.resolution_ns.max(one.clock.resolution_ns);
    sum.clock.reading_ns = sum.clock.reading_ns.max(one.clock.reading_ns);
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{record::Measure, testing};

    fn saved(started: f64, seconds: u64, micros: u64, valid: bool) -> Vec<u8> {
        let meta = RunMeta { started_unix_s: started, ..testing::meta(100.0, seconds) };
        let mut log = LogWriter::begin(Vec::new(), &meta).expect("a Vec takes all");
        let run = testing::seconds(100.0, seconds, |_| Duration::from_micros(micros));
        for (at, recorder) in run.recorders.iter().enumerate() {
            log.interval(Duration::from_secs(at as u64), Duration::from_secs(1), recorder)
                .expect("a Vec takes all");
        }
        let mut health = testing::result(100.0, 1, |_| Duration::ZERO).health.expect("made with one");
        health.valid = valid;
        let elapsed = Duration::from_secs(seconds);
        log.end(&LogEnd { elapsed, health: Some(&health), ..LogEnd::default() }).expect("a Vec takes all")
    }

    #[test]
    fn sums_are_whole_and_intervals_meet_by_the_wall_clock() {
        // The second generator starts two seconds (and a little) later.
        let (first, second) = (saved(1_000.0, 5, 100, true), saved(1_002.1, 5, 900, true));
        let merged = merge(vec![first.as_slice(), second.as_slice()], Vec::new()).expect("two results");
        let result = LogReader::new(merged.as_slice()).into_result().expect("our own file");
        assert_eq!(result.totals.counters().answered, 1_000);
        assert_eq!(result.totals.measure(Measure::Response).count(), 1_000);
        assert_eq!(result.meta.rate, Some(200.0));
        assert_eq!(result.meta.connections, 128);
        let counts: Vec<u64> = result.intervals.rows().iter().map(|row| row.counters.answered).collect();
        assert_eq!(counts, [100, 100, 200, 200, 200, 100, 100]);
        assert_eq!(result.elapsed, Duration::from_secs_f64(7.1));
    }

    #[test]
    fn one_invalid_part_makes_the_sum_invalid() {
        let parts = [saved(1_000.0, 1, 100, true), saved(1_000.0, 1, 100, false)];
        let merged = merge(parts.iter().map(Vec::as_slice).collect(), Vec::new()).expect("two results");
        let result = LogReader::new(merged.as_slice()).into_result().expect("our own file");
        assert!(!result.health.expect("both had one").valid);
    }

    #[test]
    fn nothing_to_merge_is_an_error() {
        assert!(merge(Vec::<&[u8]>::new(), Vec::new()).is_err());
        assert!(merge(vec![&b""[..]], Vec::new()).is_err());
    }
}
