//! Entity tags: made from what the file system says, compared as RFC 9110 §8.8.3 asks.
//!
//! Neighbours: [`super::conditional`] asks for comparisons, [`mod@super::plan`] sends the tag. No content is hashed.

use super::{fields::Lines, plan::FileFacts};
use std::fmt;

/// An entity tag that we send: without quotes and prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityTag {
    weak: bool,
    opaque: String,
}

/// The two comparisons of RFC 9110 §8.8.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Both strong and equal: what ranges and `If-Match` need.
    Strong,
    /// Equal, weak or not: what `If-None-Match` needs.
    Weak,
}

impl EntityTag {
    /// The tag of a stored representation; `variant` sets codings of one resource apart (RFC 9110 §8.8.3.3).
    ///
    /// Weak while the file may still change within the same tick of its clock: a second write there would not
    /// show (RFC 9110 §8.8.1). A file without a usable time (all of a reproducible image bear 0 or 1) is told by
    /// its inode instead, because length alone says too little.
    #[must_use]
    pub fn of_file(facts: &FileFacts, variant: &str, now_s: i64) -> EntityTag {
        let mut opaque = format!("{:x}-{:x}.{:x}", facts.len, facts.modified_s, facts.modified_ns);
        if !facts.has_time() {
            opaque = format!("{:x}-{:x}-{:x}", facts.len, facts.device, facts.inode);
        }
        opaque.push_str(variant);
        EntityTag { weak: facts.modified_s >= now_s - 1, opaque }
    }

    /// The weak tag of a body made for this request (FNV-1a, 64 bits: told apart, not proven equal).
    #[must_use]
    pub fn of_bytes(body: &[u8]) -> EntityTag {
        let step = |hash: u64, octet: &u8| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
        let hash = body.iter().fold(0xcbf2_9ce4_8422_2325, step);
        EntityTag { weak: true, opaque: format!("{:x}-{hash:x}", body.len()) }
    }

    /// The same tag, weak: for a coding made on the fly, whose octets need not repeat.
    #[must_use]
    pub fn into_weak(self) -> EntityTag {
        EntityTag { weak: true, ..self }
    }

    /// Whether only weak comparison may use it.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// Compares with a tag as it came.
    fn equals(&self, other: &Received<'_>, comparison: Comparison) -> bool {
        let allowed = comparison == Comparison::Weak || !(self.weak || other.weak);
        allowed && self.opaque.as_bytes() == other.opaque
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.opaque)
    }
}

/// A tag of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Received<'a> {
    weak: bool,
    opaque: &'a [u8],
}

/// Does `If-Match` or `If-None-Match` name the current representation? `*` names any (RFC 9110 §13.1.1, §13.1.2).
/// A value that is no list of tags names none.
#[must_use]
pub fn names(lines: &Lines<'_>, current: Option<&EntityTag>, comparison: Comparison) -> bool {
    if lines.single() == Some(b"*") {
        return true;
    }
    let mut found = false;
    for line in lines.iter() {
        let mut rest = line;
        loop {
            while let [b',' | b' ' | b'\t', after @ ..] = rest {
                rest = after;
            }
            if rest.is_empty() {
                break;
            }
            let Some((tag, after)) = take_tag(rest) else { return false };
            found |= current.is_some_and(|current| current.equals(&tag, comparison));
            rest = super::fields::trim(after);
            if !matches!(rest, [] | [b',', ..]) {
                return false;
            }
        }
    }
    found
}

/// Is this one value the current tag, strongly compared? For `If-Range`. `None` if it is no entity tag.
#[must_use]
pub fn is_current(value: &[u8], current: Option<&EntityTag>) -> Option<bool> {
    let (tag, rest) = take_tag(value)?;
    rest.is_empty().then(|| current.is_some_and(|current| current.equals(&tag, Comparison::Strong)))
}

/// `[ "W/" ] DQUOTE *etagc DQUOTE`, and what follows. `W` is case-sensitive (RFC 9110 §8.8.3).
fn take_tag(value: &[u8]) -> Option<(Received<'_>, &[u8])> {
    let (weak, value) = match value {
        [b'W', b'/', rest @ ..] => (true, rest),
        _ => (false, value),
    };
    let [b'"', rest @ ..] = value else { return None };
    let end = rest.iter().position(|octet| *octet == b'"')?;
    let is_etagc = |octet: &u8| matches!(octet, 0x21 | 0x23..=0x7e | 0x80..);
    let opaque = &rest[..end];
    opaque.iter().all(is_etagc).then_some((Received { weak, opaque }, &rest[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts(len: u64, modified_s: i64) -> FileFacts {
        FileFacts { len, modified_s, modified_ns: 7, inode: 9, device: 3 }
    }

    fn tag() -> EntityTag {
        EntityTag { weak: false, opaque: "x".into() }
    }

    fn lines(values: &[&'static str]) -> Lines<'static> {
        values.iter().map(|value| value.as_bytes()).collect()
    }

    #[test]
    fn a_tag_follows_length_time_and_coding() {
        let base = EntityTag::of_file(&facts(10, 1000), "", 2000);
        assert!(!base.is_weak());
        for other in [(11, 1000, ""), (10, 1001, ""), (10, 1000, "-br")] {
            assert_ne!(EntityTag::of_file(&facts(other.0, other.1), other.2, 2000), base);
        }
        assert!(EntityTag::of_file(&facts(10, 1999), "", 2000).is_weak());
        assert!(EntityTag::of_file(&facts(10, 9999), "", 2000).is_weak());
        let epoch = |inode| FileFacts { inode, modified_ns: 0, ..facts(10, 1) };
        assert_ne!(EntityTag::of_file(&epoch(1), "", 2000), EntityTag::of_file(&epoch(2), "", 2000));
        assert_ne!(EntityTag::of_bytes(b"a"), EntityTag::of_bytes(b"b"));
    }

    /// RFC 9110 §8.8.3.2, the table of the two comparisons.
    #[test]
    fn strong_and_weak_comparison() {
        let weak = tag().into_weak();
        let table: [(&EntityTag, &'static str, bool, bool); 4] = [
            (&weak, "W/\"x\"", false, true),
            (&weak, "W/\"y\"", false, false),
            (&weak, "\"x\"", false, true),
            (&tag(), "\"x\"", true, true),
        ];
        for (ours, theirs, strong, weakly) in table {
            assert_eq!(names(&lines(&[theirs]), Some(ours), Comparison::Strong), strong, "{theirs}");
            assert_eq!(names(&lines(&[theirs]), Some(ours), Comparison::Weak), weakly, "{theirs}");
        }
    }

    #[test]
    fn lists_as_they_come() {
        let hits: [&[&str]; 8] = [
            &["*"],
            &["\"x\""],
            &["\"a\",\"x\""],
            &["\"x,y\",\"x\""],
            &[" , \"a\" ,, \"x\" ,"],
            &["\"a\"", "\"x\""],
            &["W/\"x\""],
            &["\"x\"\t"],
        ];
        for hit in hits {
            assert!(names(&lines(hit), Some(&tag()), Comparison::Weak), "{hit:?}");
        }
        let misses: [&[&str]; 13] = [
            &[],
            &["\"\""],
            &["x"],
            &[","],
            &[""],
            &["\"x"],
            &["\"x\" \"y\""],
            &["*,\"x\""],
            &["*", "*"],
            &["w/\"x\""],
            &["\"x\"y"],
            &["\"a b\",\"x\""],
            &["other,\"x\""],
        ];
        for miss in misses {
            assert!(!names(&lines(miss), Some(&tag()), Comparison::Weak), "{miss:?}");
        }
        assert_eq!(is_current(b"\"x\"", Some(&tag())), Some(true));
        assert_eq!(is_current(b"W/\"x\"", Some(&tag())), Some(false));
        assert_eq!(is_current(b"\"x\",\"x\"", Some(&tag())), None);
    }

    proptest! {
        #[test]
        fn any_list_that_holds_our_tag_names_it(mut tags in prop::collection::vec("[!#-~]{0,6}", 0..6), at in 0_usize..6) {
            tags.insert(at.min(tags.len()), "x".into());
            let value = tags.iter().map(|tag| format!("\"{tag}\"")).collect::<Vec<_>>().join(", ");
            prop_assert!(names(&Lines::One(value.as_bytes()), Some(&tag()), Comparison::Strong));
        }

        #[test]
        fn no_value_makes_it_panic(value in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = names(&Lines::One(&value), Some(&tag()), Comparison::Weak);
            let _ = is_current(&value, Some(&tag()));
        }
    }
}
