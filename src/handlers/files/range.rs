//! The `Range` field of RFC 9110 §14.2: which parts of a representation are wanted, within bounds.
//!
//! Neighbours: [`super::conditional`] has decided whether it applies, [`super::multipart`] frames several parts.
//! Integers saturate, the count is bounded, and no set of ranges asks for more than the whole.

use super::fields::{Lines, trim};

/// A part: first and last octet, both included, inside the representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first octet.
    pub first: u64,
    /// Offset of the last octet, not before the first.
    pub last: u64,
}

impl ByteRange {
    /// Octets, at least 1.
    #[must_use]
    pub fn count(self) -> u64 {
        self.last - self.first + 1
    }

    fn overlaps(self, other: ByteRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// What the field asks of a representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The whole: no range, one we do not understand, or one that asks too much (§14.2: a server MAY ignore it).
    Whole,
    /// These parts, at least one, none overlapping another, in the order asked for.
    Parts(Vec<ByteRange>),
    /// 416: understood, and none of it lies inside.
    Unsatisfiable,
}

/// Reads the field against a representation of `len` octets.
#[must_use]
pub fn wanted(lines: &Lines<'_>, len: u64) -> Wanted {
    // Not a list field: two lines are no valid value.
    let Some(value) = lines.single() else { return Wanted::Whole };
    let Some(equals) = value.iter().position(|octet| *octet == b'=') else { return Wanted::Whole };
    // Unit names are case-insensitive (§14.1); other units are ignored (§14.2).
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return Wanted::Whole;
    }
    let mut parts = Vec::new();
    let mut specs = 0;
    let mut total: u64 = 0;
    for element in value[equals + 1..].split(|octet| *octet == b',') {
        let element = trim(element);
        if element.is_empty() {
            continue;
        }
        specs += 1;
        // One wrong spec makes the whole set invalid (§14.1.1).
        let Some(spec) = parse_spec(element) else { return Wanted::Whole };
        if specs > RANGES_MAX {
            return Wanted::Whole;
        }
        match spec.within(len) {
            Within::Part(part) => {
                total = total.saturating_add(part.count());
                add(&mut parts, part);
            }
            Within::Everything => return Wanted::Whole,
            Within::Nothing => {}
        }
    }
    match (specs, parts.is_empty()) {
        (0, _) => Wanted::Whole,
        (_, true) => Wanted::Unsatisfiable,
        // Overlapping ranges that add up to more than the whole are an attack or a mistake (§17.15).
        _ if total > len => Wanted::Whole,
        _ => Wanted::Parts(parts),
    }
}

/// Adds a part; those that overlap it become one, in the place of the earliest (§15.3.7.2 allows it).
fn add(parts: &mut Vec<ByteRange>, mut part: ByteRange) {
    let mut place = parts.len();
    while let Some(index) = parts.iter().position(|other| other.overlaps(part)) {
        let other = parts.remove(index);
        part = ByteRange { first: part.first.min(other.first), last: part.last.max(other.last) };
        place = place.min(index);
    }
    parts.insert(place.min(parts.len()), part);
}

/// One range-spec (§14.1.2).
#[derive(Debug, Clone, Copy)]
enum Spec {
    From { first: u64, last: Option<u64> },
    Suffix(u64),
}

enum Within {
    Part(ByteRange),
    /// A suffix of an empty representation: satisfiable, but there is no Content-Range for no octets.
    Everything,
    Nothing,
}

impl Spec {
    fn within(self, len: u64) -> Within {
        match self {
            Spec::Suffix(0) => Within::Nothing,
            Spec::Suffix(_) if len == 0 => Within::Everything,
            Spec::Suffix(count) => {
                Within::Part(ByteRange { first: len.saturating_sub(count), last: len - 1 })
            }
            Spec::From { first, .. } if first >= len => Within::Nothing,
            Spec::From { first, last } => {
                Within::Part(ByteRange { first, last: last.map_or(len - 1, |last| last.min(len - 1)) })
            }
        }
    }
}

fn parse_spec(element: &[u8]) -> Option<Spec> {
    let dash = element.iter().position(|octet| *octet == b'-')?;
    let (first, last) = (&element[..dash], &element[dash + 1..]);
    if first.is_empty() {
        return number(last).map(Spec::Suffix);
    }
    let first = number(first)?;
    if last.is_empty() {
        return Some(Spec::From { first, last: None });
    }
    // "invalid if the last-pos value is present and less than first-pos"
    let last = number(last).filter(|last| *last >= first)?;
    Some(Spec::From { first, last: Some(last) })
}

/// `1*DIGIT`, saturating.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let step = |value: u64, digit: &u8| value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, step))
}

/// Most ranges in one request that are not ignored.
pub const RANGES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(value: &str, len: u64) -> Option<Vec<(u64, u64)>> {
        match wanted(&Lines::One(value.as_bytes()), len) {
            Wanted::Parts(parts) => Some(parts.iter().map(|part| (part.first, part.last)).collect()),
            _ => None,
        }
    }

    #[test]
    fn satisfiable_sets() {
        let table: [(&str, &[(u64, u64)]); 20] = [
            ("bytes=0-0", &[(0, 0)]),
            ("bytes=100-199", &[(100, 199)]),
            ("bytes=-5", &[(1995, 1999)]),
            ("bytes=-5000", &[(0, 1999)]),
            ("bytes=0-", &[(0, 1999)]),
            ("bytes=1990-99999", &[(1990, 1999)]),
            ("bytes=5-18446744073709551615", &[(5, 1999)]),
            ("bytes=5-99999999999999999999999999", &[(5, 1999)]),
            ("bytes=-99999999999999999999999999", &[(0, 1999)]),
            ("bytes=007-009", &[(7, 9)]),
            ("Bytes=0-4", &[(0, 4)]),
            ("bytes=0-4 ", &[(0, 4)]),
            ("bytes=0-9,1000-1009", &[(0, 9), (1000, 1009)]),
            ("bytes=1000-1009 , 0-9", &[(1000, 1009), (0, 9)]),
            ("bytes=,0-9,,20-29,", &[(0, 9), (20, 29)]),
            ("bytes=0-9,9000-", &[(0, 9)]),
            ("bytes=0-9,-0", &[(0, 9)]),
            ("bytes=0-9,5-14", &[(0, 14)]),
            ("bytes=0-9,10-19", &[(0, 9), (10, 19)]),
            ("bytes=50-59,0-9,20-29,5-55", &[(0, 59)]),
        ];
        for (value, wanted) in table {
            assert_eq!(parts(value, 2000).as_deref(), Some(wanted), "{value}");
        }
    }

    #[test]
    fn what_is_ignored_and_what_is_unsatisfiable() {
        let many = format!("bytes={}", vec!["0-0"; 17].join(","));
        let flood = format!("bytes={}", vec!["0-"; 10_000].join(","));
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=5-2",
            "bytes=1-2-3",
            "bytes=0x1-2",
            "bytes=1,2",
            "bytes=+1-2",
            "=0-1",
            "bytes=0-1;x",
            "items=0-5",
            "bytes =0-1",
            "bytes=0 -1",
            "bytes=--1",
            "bytes=-",
            "bytes=0-9,x",
            "bytes=0-,0-",
            "bytes=a-b",
            "bytes=9999-1",
            &many,
            &flood,
        ] {
            assert_eq!(wanted(&Lines::One(value.as_bytes()), 2000), Wanted::Whole, "{value:.40}");
        }
        for value in ["bytes=2000-", "bytes=-0", "bytes=3000-3001,4000-", "bytes=99999999999999999999-"] {
            assert_eq!(wanted(&Lines::One(value.as_bytes()), 2000), Wanted::Unsatisfiable, "{value}");
        }
        assert_eq!(wanted(&Lines::Absent, 2000), Wanted::Whole);
        let twice: Lines<'_> = [&b"bytes=0-1"[..], b"bytes=5-6"].into_iter().collect();
        assert_eq!(wanted(&twice, 2000), Wanted::Whole);
        assert_eq!(wanted(&Lines::One(b"bytes=0-"), 0), Wanted::Unsatisfiable);
        assert_eq!(wanted(&Lines::One(b"bytes=-5"), 0), Wanted::Whole);
    }

    fn value() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            (0_u64..70).prop_map(|number| number.to_string()),
            Just(String::new()),
            Just("18446744073709551616".to_owned()),
            Just("x".to_owned()),
        ];
        let spec = (number.clone(), number).prop_map(|(first, last)| format!("{first}-{last}"));
        prop::collection::vec(spec, 0..20).prop_map(|specs| format!("bytes={}", specs.join(",")))
    }

    proptest! {
        /// Parts are inside, disjoint, at most 16, and together not more than the whole; and they cover exactly
        /// the octets that a plain reading of each spec covers.
        #[test]
        fn parts_cover_exactly_what_was_asked(value in value(), len in 0_u64..64) {
            let Some(found) = parts(&value, len) else { return Ok(()) };
            prop_assert!(!found.is_empty() && found.len() <= RANGES_MAX);
            let mut covered = vec![0; 64];
            for (first, last) in &found {
                prop_assert!(first <= last && *last < len);
                (*first..=*last).for_each(|octet| covered[usize::try_from(octet).unwrap()] += 1);
            }
            let mut model = vec![0; 64];
            for spec in value["bytes=".len()..].split(',') {
                let (first, last) = spec.split_once('-').unwrap();
                let read = |text: &str| text.parse::<u128>().ok();
                let (from, to) = match (read(first), read(last)) {
                    (None, Some(count)) => (u128::from(len).saturating_sub(count), u128::MAX),
                    (Some(first), last) => (first, last.unwrap_or(u128::MAX)),
                    (None, None) => unreachable!("an invalid set was accepted"),
                };
                (0..len).filter(|octet| (from..=to).contains(&u128::from(*octet)))
                    .for_each(|octet| model[usize::try_from(octet).unwrap()] = 1);
            }
            prop_assert_eq!(covered, model);
        }

        #[test]
        fn no_value_makes_it_panic(value in prop::collection::vec(any::<u8>(), 0..60), len: u64) {
            let _ = wanted(&Lines::One(&value), len);
        }
    }
}
