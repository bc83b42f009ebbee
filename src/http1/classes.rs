//! Runs of octets of one class, eight at a time: how the parser gets over names, values, paths and hosts.
//!
//! A class here is the frequent part of one of `grammar.rs`: the octets that it marks are looked at there. A mark is
//! the top bit of its octet in a little-endian word. No octet before the first mark is outside its class.

use super::grammar::{is_host_octet, is_target_octet, is_tchar, is_value_octet};

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const TOPS: u64 = ONES * 0x80;
const WORD: usize = 8;

/// The offset of the first octet from `start` on that is no tchar (RFC 9110 §5.6.2).
#[inline]
pub(super) fn name_end(bytes: &[u8], start: usize) -> usize {
    run_end(bytes, start, not_in_names, is_tchar)
}

/// The offset of the first octet from `start` on that a field value may not hold (RFC 9110 §5.5).
#[inline]
pub(super) fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while bytes[at..].first_chunk::<32>().is_some_and(|block| !holds_control(block)) {
        at += 32;
    }
    run_end(bytes, at, not_in_values, is_value_octet)
}

/// The offset of the first octet from `start` on that neither a path nor a query holds as it is: `%` and `?` too.
#[inline]
pub(super) fn path_end(bytes: &[u8], start: usize) -> usize {
    run_end(bytes, start, not_in_paths, is_target_octet)
}

/// The offset of the first octet from `start` on that is none of a reg-name: `%` too, and the comma.
#[inline]
pub(super) fn host_end(bytes: &[u8], start: usize) -> usize {
    // RFC 9110 §5.3: two Host fields joined by a proxy make a list; no name of the DNS holds a comma.
    run_end(bytes, start, not_in_hosts, |octet| is_host_octet(octet) && octet != b',')
}

/// Whether all octets are tchars.
#[inline]
pub(super) fn is_name(octets: &[u8]) -> bool {
    is_run(octets, not_in_names, is_tchar)
}

/// Whether a field value may hold all octets.
#[inline]
pub(super) fn is_value(octets: &[u8]) -> bool {
    is_run(octets, not_in_values, is_value_octet)
}

/// The offset of the first octet from `start` on that is no member.
#[inline]
fn run_end(bytes: &[u8], start: usize, others: fn(u64) -> u64, is_member: fn(u8) -> bool) -> usize {
    let mut at = start;
    while let Some(word) = bytes[at..].first_chunk() {
        let marks = others(u64::from_le_bytes(*word));
        if marks == 0 {
            at += WORD;
            continue;
        }
        at += marks.trailing_zeros() as usize / 8;
        if !is_member(bytes[at]) {
            return at;
        }
        at += 1;
    }
    while at < bytes.len() && is_member(bytes[at]) {
        at += 1;
    }
    at
}

/// Whether all octets are members. The last word overlaps the one before it.
#[inline]
fn is_run(octets: &[u8], others: fn(u64) -> u64, is_member: fn(u8) -> bool) -> bool {
    if let Some(last) = octets.last_chunk() {
        let (words, _) = octets.as_chunks();
        let marks = words.iter().fold(0, |marks, word| marks | others(u64::from_le_bytes(*word)));
        if marks | others(u64::from_le_bytes(*last)) == 0 {
            return true;
        }
    }
    octets.iter().all(|&octet| is_member(octet))
}

/// Neither letter nor hyphen.
#[inline]
const fn not_in_names(word: u64) -> u64 {
    others(word, letters(word) | between(word, b'-', b'-'))
}

/// Neither letter, digit, hyphen, dot nor slash.
#[inline]
const fn not_in_paths(word: u64) -> u64 {
    others(word, letters(word) | between(word, b'-', b'9'))
}

/// Neither letter, digit, hyphen nor dot.
#[inline]
const fn not_in_hosts(word: u64) -> u64 {
    let slash = word ^ (ONES * b'/' as u64);
    others(word, letters(word) | between(word, b'-', b'9') & ((slash & !TOPS) + ONES * 0x7f))
}

/// Below 0x20, HTAB among them, or 0x7f. Marks behind the first may be wrong: a borrow runs into the octets behind a
/// mark, never before it.
#[inline]
const fn not_in_values(word: u64) -> u64 {
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = word ^ (ONES * 0x7f);
    let is_delete = delete.wrapping_sub(ONES) & !delete;
    (below_space | is_delete) & TOPS
}

/// As `not_in_values`, of many at once. A loop of this shape becomes vector instructions.
#[inline]
fn holds_control(block: &[u8; 32]) -> bool {
    block.iter().fold(false, |found, &octet| found | (octet < 0x20) | (octet == 0x7f))
}

#[inline]
const fn letters(word: u64) -> u64 {
    between(word | (ONES * 0x20), b'a', b'z')
}

/// Marks the octets whose lower seven bits are in this range. No sum of two of the octets carries.
#[inline]
const fn between(word: u64, low: u8, high: u8) -> u64 {
    let octets = word & !TOPS;
    let at_least_low = octets + ONES * (0x80 - low as u64);
    let above_high = octets + ONES * (0x7f - high as u64);
    at_least_low & !above_high
}

/// Marks what is beyond ASCII or not marked in `members`.
#[inline]
const fn others(word: u64, members: u64) -> u64 {
    (word | !members) & TOPS
}

#[cfg(test)]
mod tests {
    use super::*;

    type RunEnd = fn(&[u8], usize) -> usize;
    type IsMember = fn(u8) -> bool;

    const CLASSES: [(RunEnd, IsMember); 4] = [
        (name_end, is_tchar),
        (value_end, is_value_octet),
        (path_end, is_target_octet),
        (host_end, |octet| is_host_octet(octet) && octet != b','),
    ];

    /// Every octet, at every kind of place, with every kind of neighbour.
    #[test]
    fn a_run_ends_at_the_first_octet_of_another_class() {
        for (run_end, is_member) in CLASSES {
            for octet in 0..=255u8 {
                for filler in [b'a', b'Z', b'-', b'0', b'~', b'.', b'/', b' ', b'\t', 0x80, 0xff] {
                    for place in [0, 1, 7, 8, 15, 16, 31, 32, 39, 45] {
                        let mut run = [filler; 46];
                        run[place] = octet;
                        let expected = run.iter().position(|&octet| !is_member(octet)).unwrap_or(46);
                        assert_eq!(run_end(&run, 0), expected, "{octet:#x} at {place} among {filler:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_length_and_no_start_changes_where_a_run_ends() {
        for (run_end, _) in CLASSES {
            for len in 0..40 {
                for place in 0..=len {
                    let mut run = vec![b'a'; len];
                    run.iter_mut().skip(place).step_by(3).for_each(|octet| *octet = b'\r');
                    for start in 0..=len {
                        let behind = run[start..].iter().position(|&octet| octet == b'\r');
                        let expected = behind.map_or(len, |at| start + at);
                        assert_eq!(run_end(&run, start), expected, "{start} of {len}, first {place}");
                    }
                }
            }
        }
    }

    /// RFC 9110 §5.5, §5.6.2: of every length.
    #[test]
    fn whole_names_and_values_are_checked() {
        for len in 0..40 {
            let mut octets = vec![b'a'; len];
            assert!(is_name(&octets) && is_value(&octets));
            for place in 0..len {
                octets[place] = b'\n';
                assert!(!is_name(&octets) && !is_value(&octets), "{place} of {len}");
                octets[place] = b'a';
            }
        }
    }
}
