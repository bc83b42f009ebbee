//! Preconditions in the order of RFC 9110 §13.2.2, and `If-Range`.
//!
//! Neighbours: [`super::etag`] compares tags, [`mod@super::plan`] makes an answer of the verdict. For GET and HEAD
//! alone: the file handler has no other method that selects a representation.

use super::{
    etag::{self, Comparison, EntityTag},
    fields::Lines,
};
use std::time::{Duration, UNIX_EPOCH};

/// The conditional fields of a request.
#[derive(Debug, Clone, Default)]
pub struct Preconditions<'a> {
    /// `If-Match`
    pub if_match: Lines<'a>,
    /// `If-None-Match`
    pub if_none_match: Lines<'a>,
    /// `If-Modified-Since`
    pub if_modified_since: Lines<'a>,
    /// `If-Unmodified-Since`
    pub if_unmodified_since: Lines<'a>,
}

/// What the selected representation can be compared by.
#[derive(Debug, Clone)]
pub struct Validators {
    /// Its tag.
    pub etag: Option<EntityTag>,
    /// Its `Last-Modified`, in seconds since 1970, as it is sent.
    pub modified_s: Option<i64>,
    /// Whether that date is a strong validator: the second it names is over (RFC 9110 §8.8.2.2).
    pub date_is_strong: bool,
}

/// What the preconditions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Go on with the request.
    Proceed,
    /// 304: the client has it.
    NotModified,
    /// 412: the client assumed another state.
    Failed,
}

/// Evaluates all preconditions of a GET or HEAD whose answer would otherwise be 200.
#[must_use]
pub fn evaluate(conditions: &Preconditions<'_>, validators: &Validators) -> Verdict {
    let etag = validators.etag.as_ref();
    if conditions.if_match.is_present() {
        // Step 1: strong comparison (§13.1.1).
        if !etag::names(&conditions.if_match, etag, Comparison::Strong) {
            return Verdict::Failed;
        }
    } else if let Some((modified, limit)) = dates(validators, &conditions.if_unmodified_since) {
        // Step 2; a value that is no date is ignored (§13.1.4).
        if modified > limit {
            return Verdict::Failed;
        }
    }
    if conditions.if_none_match.is_present() {
        // Step 3: weak comparison (§13.1.2); then If-Modified-Since is ignored (§13.1.3).
        if etag::names(&conditions.if_none_match, etag, Comparison::Weak) {
            return Verdict::NotModified;
        }
    } else if let Some((modified, since)) = dates(validators, &conditions.if_modified_since) {
        // Step 4; a value that is no date, or more than one, is ignored (§13.1.3).
        if modified <= since {
            return Verdict::NotModified;
        }
    }
    Verdict::Proceed
}

/// Step 5: may `Range` be applied? True without `If-Range`; a tag is compared strongly, a date must be the very
/// date and a strong validator (RFC 9110 §13.1.5).
#[must_use]
pub fn if_range_holds(if_range: &Lines<'_>, validators: &Validators) -> bool {
    if !if_range.is_present() {
        return true;
    }
    let Some(value) = if_range.single() else { return false };
    if let Some(is_current) = etag::is_current(value, validators.etag.as_ref()) {
        return is_current;
    }
    let date = parse_date(value);
    date.is_some() && date == validators.modified_s && validators.date_is_strong
}

fn dates(validators: &Validators, lines: &Lines<'_>) -> Option<(i64, i64)> {
    Some((validators.modified_s?, parse_date(lines.single()?)?))
}

/// An HTTP-date in any of its three forms (RFC 9110 §5.6.7), in seconds since 1970.
#[must_use]
pub fn parse_date(value: &[u8]) -> Option<i64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}

/// The IMF-fixdate of a time from 1970 to 9999; what lies outside is moved to the border.
#[must_use]
pub fn format_date(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST_DATE_S);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Fri, 31 Dec 9999 23:59:59 GMT: the year has four digits.
const LAST_DATE_S: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODIFIED_S: i64 = 1_577_934_245;
    const SAME: &str = "Thu, 02 Jan 2020 03:04:05 GMT";
    const EARLIER: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
    const LATER: &str = "Fri, 03 Jan 2020 00:00:00 GMT";

    fn validators() -> Validators {
        let facts = super::super::plan::FileFacts {
            len: 1,
            modified_s: MODIFIED_S,
            modified_ns: 0,
            inode: 1,
            device: 1,
        };
        let etag = Some(EntityTag::of_file(&facts, "", MODIFIED_S + 9));
        Validators { etag, modified_s: Some(MODIFIED_S), date_is_strong: true }
    }

    fn line(value: &str) -> Lines<'_> {
        if value.is_empty() { Lines::Absent } else { Lines::One(value.as_bytes()) }
    }

    fn verdict(match_: &str, none_match: &str, modified: &str, unmodified: &str) -> Verdict {
        let conditions = Preconditions {
            if_match: line(match_),
            if_none_match: line(none_match),
            if_modified_since: line(modified),
            if_unmodified_since: line(unmodified),
        };
        evaluate(&conditions, &validators())
    }

    /// RFC 9110 §13.2.2: every step, and which one keeps which from being asked.
    #[test]
    fn the_order_of_the_steps() {
        use Verdict::{Failed, NotModified, Proceed};
        let tag = validators().etag.unwrap().to_string();
        let weak = format!("W/{tag}");
        let table = [
            ("", "", "", "", Proceed),
            (&tag, "", "", "", Proceed),
            ("*", "", "", "", Proceed),
            (&weak, "", "", "", Failed),
            ("\"other\"", "", "", "", Failed),
            (&tag, "", "", EARLIER, Proceed),
            (&tag, &tag, "", "", NotModified),
            ("\"other\"", &tag, "", "", Failed),
            ("", "", "", EARLIER, Failed),
            ("", "", "", SAME, Proceed),
            ("", "", "", LATER, Proceed),
            ("", "", "", "soon", Proceed),
            ("", &tag, "", EARLIER, Failed),
            ("", &weak, "", "", NotModified),
            ("", "*", "", "", NotModified),
            ("", "\"other\"", SAME, "", Proceed),
            ("", "other", SAME, "", Proceed),
            ("", "", SAME, "", NotModified),
            ("", "", LATER, "", NotModified),
            ("", "", EARLIER, "", Proceed),
            ("", "", "yesterday", "", Proceed),
            ("", "", "Thu Jan  2 03:04:05 2020", "", NotModified),
            ("", "", "Thursday, 02-Jan-20 03:04:05 GMT", "", NotModified),
            ("", "", "2020-01-02T03:04:05Z", "", Proceed),
            ("", "", "Thu, 02 Jan 2020 03:04:05 GMT, Thu, 02 Jan 2020 03:04:05 GMT", "", Proceed),
        ];
        for (match_, none_match, modified, unmodified, wanted) in table {
            let seen = verdict(match_, none_match, modified, unmodified);
            assert_eq!(seen, wanted, "{match_} {none_match} {modified} {unmodified}");
        }
    }

    #[test]
    fn two_dates_are_no_date() {
        let twice: Lines<'_> = [SAME.as_bytes(), SAME.as_bytes()].into_iter().collect();
        let conditions = Preconditions { if_modified_since: twice, ..Preconditions::default() };
        assert_eq!(evaluate(&conditions, &validators()), Verdict::Proceed);
    }

    /// RFC 9110 §13.1.5
    #[test]
    fn if_range() {
        let tag = validators().etag.unwrap().to_string();
        let weak = format!("W/{tag}");
        for holds in ["", &tag, SAME, "Thu Jan  2 03:04:05 2020"] {
            assert!(if_range_holds(&line(holds), &validators()), "{holds}");
        }
        for fails in [&weak, "\"other\"", EARLIER, LATER, "x", "*"] {
            assert!(!if_range_holds(&line(fails), &validators()), "{fails}");
        }
        let young = Validators { date_is_strong: false, ..validators() };
        assert!(!if_range_holds(&line(SAME), &young));
        let twice: Lines<'_> = [tag.as_bytes(), tag.as_bytes()].into_iter().collect();
        assert!(!if_range_holds(&twice, &validators()));
    }

    #[test]
    fn dates_at_the_borders() {
        assert_eq!(format_date(-5), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(format_date(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        for bad in [
            "",
            "Thu, 32 Jan 2020 03:04:05 GMT",
            "Thu, 02 Jan 2020 25:04:05 GMT",
            "Thu, 02 Jan 2020 03:04:05",
        ] {
            assert_eq!(parse_date(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_date_survives_the_round_trip(seconds in 0_i64..253_402_300_799) {
            prop_assert_eq!(parse_date(format_date(seconds).as_bytes()), Some(seconds));
        }

        #[test]
        fn no_value_makes_it_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse_date(&value);
            let _ = if_range_holds(&Lines::One(&value), &validators());
        }
    }
}
