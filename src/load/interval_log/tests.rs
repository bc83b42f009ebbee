//! Files written and read back, whole, cut short and broken.

use super::*;
use crate::load::testing;

fn written(seconds: u64) -> Vec<u8> {
    let mut log = LogWriter::begin(Vec::new(), &testing::meta(500.0, seconds)).expect("a Vec takes all");
    let run = testing::seconds(500.0, seconds, |n| Duration::from_micros(100 + n % 400));
    for (at, recorder) in run.recorders.iter().enumerate() {
        log.interval(Duration::from_secs(at as u64), Duration::from_secs(1), recorder)
            .expect("a Vec takes all");
    }
    let health = testing::result(500.0, seconds, |_| Duration::from_micros(100)).health;
    let elapsed = Duration::from_millis(seconds * 1_000 + 7);
    log.end(&LogEnd { elapsed, health: health.as_ref(), ..LogEnd::default() }).expect("a Vec takes all")
}

#[test]
fn what_was_written_is_read_back() {
    let result = LogReader::new(written(5).as_slice()).into_result().expect("our own file");
    let made = testing::result(500.0, 5, |n| Duration::from_micros(100 + n % 400));
    assert_eq!(result.meta, testing::meta(500.0, 5));
    assert_eq!(result.totals.counters(), made.totals.counters());
    for measure in [Measure::Response, Measure::Service, Measure::Lateness] {
        let (read, own) = (result.totals.measure(measure), made.totals.measure(measure));
        assert_eq!(read.count(), own.count());
        assert_eq!([0.5, 0.99, 1.0].map(|q| read.quantile(q)), [0.5, 0.99, 1.0].map(|q| own.quantile(q)));
    }
    assert_eq!(result.totals.class(1).map(LatencyHistogram::count), Some(2_500));
    assert_eq!(result.intervals.rows().len(), 5);
    assert_eq!(result.elapsed, Duration::from_millis(5_007));
    assert!(result.health.expect("saved").valid);
}

#[test]
fn a_file_cut_short_gives_what_was_whole() {
    let file = written(5);
    let text = String::from_utf8(file).expect("text");
    let third = text.match_indices(INTERVAL).nth(2).expect("five intervals").0;
    let result = LogReader::new(&text.as_bytes()[..third]).into_result().expect("two whole intervals");
    assert!(result.health.is_none());
    assert_eq!(result.totals.counters().answered, 1_000);
}

#[test]
fn a_log_of_another_tool_is_read() {
    let foreign: String = String::from_utf8(written(3))
        .expect("text")
        .lines()
        .filter(|line| !line.starts_with("#[") && !line.starts_with("Tag="))
        .map(|line| format!("{line}\n"))
        .collect();
    let result = LogReader::new(foreign.as_bytes()).into_result().expect("a plain log");
    assert_eq!(result.totals.counters().answered, 1_500);
    assert_eq!(result.totals.measure(Measure::Response).count(), 1_500);
    assert_eq!(result.intervals.rows().len(), 3);
}

#[test]
fn garbage_is_an_error_with_its_line() {
    let refused = |bytes: &[u8]| LogReader::new(bytes).into_result().expect_err("no log").to_string();
    assert!(refused(b"").contains("no histogram"));
    assert!(refused(b"#[x]\n0.0,1.0,2.0,!!!!\n").starts_with("line 2"));
    assert!(refused(b"0.0,1.0,2.0,AAAA\n").starts_with("line 1"));
    assert!(refused(&[0xff, 0xfe, b'\n']).contains("not text"));
    assert!(refused(b"#[Shardlet: {]\n").starts_with("line 1"));
    assert!(refused(b"#[Interval: {\"start_s\":0,\"length_s\":1}]\n").starts_with("line 1"));
}

#[test]
fn every_cut_and_every_broken_byte_is_an_error_or_a_result() {
    let file = written(2);
    for end in (0..file.len()).step_by(7) {
        let _ = LogReader::new(&file[..end]).into_result();
    }
    let lines_end = file.len();
    for at in (0..lines_end).step_by(97) {
        let mut broken = file.clone();
        broken[at] ^= 0x15;
        let _ = LogReader::new(broken.as_slice()).into_result();
    }
}
