//! The invariants of the fuzz targets `path` and `range`: names beneath a root, and answers made of parts and
//! conditions, each against a second reading of the RFC that is slower and shorter.

use percent_encoding::percent_decode_str;
use shardlet::handlers::files::conditional::parse_date;
use shardlet::handlers::files::fields::Lines;
use shardlet::handlers::files::path::{is_servable, safe_path};
use shardlet::handlers::files::plan::FoundFile;
use shardlet::handlers::files::{
    Body, FileFacts, FilesOptions, Found, Method, Piece, Plan, RequestFacts, plan,
};
use std::path::{Component, Path};

/// From a request path to a name.
pub(crate) fn path(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let Ok(found) = safe_path(raw, false) else { return };
    let name = found.relative();
    // Decoded exactly once, by a decoder that is not ours.
    let decoded = percent_decode_str(raw).decode_utf8().expect("accepted octets are UTF-8");
    assert_eq!(decoded.trim_matches('/'), name);
    assert_eq!(found.ends_with_slash(), raw.ends_with('/'));
    assert!(Path::new(name).components().all(|part| matches!(part, Component::Normal(_))), "{name:?}");
    assert!(!name.contains("//") && !name.contains('\\') && !name.contains(char::is_control), "{name:?}");
    for (depth, segment) in name.split('/').enumerate().filter(|_| !name.is_empty()) {
        assert!(segment.len() <= 255 && !segment.is_empty());
        let is_well_known = depth == 0 && segment == ".well-known";
        assert!(is_well_known || is_servable(segment, false) && !segment.starts_with('.'), "{segment:?}");
    }
    // Whoever may see more sees this too, and another spelling of it is the same name.
    assert_eq!(safe_path(raw, true).as_ref(), Ok(&found));
    let spell = |octet: u8| if octet == b'/' { "/".to_owned() } else { format!("%{octet:02X}") };
    let end = if name.is_empty() || !found.ends_with_slash() { "" } else { "/" };
    let spelled: String = format!("/{name}{end}").bytes().map(spell).collect();
    if spelled.len() <= 4096 {
        assert_eq!(safe_path(&spelled, false).as_ref(), Ok(&found));
    }
}

const NOW_S: i64 = 1_700_000_000;
const NAME: &str = "a.bin";

/// A request for a file of `data[0]` octets; `data[1]` says its age; then lines: Range, If-Range, If-Match,
/// If-None-Match, If-Modified-Since, If-Unmodified-Since; an empty line is an absent field, and `@` its own tag.
pub(crate) fn range(data: &[u8]) {
    let [len, age, lines @ ..] = data else { return };
    let facts = FileFacts {
        len: u64::from(*len % 65),
        modified_s: NOW_S - i64::from(*age % 8),
        modified_ns: 5,
        inode: 1,
        device: 1,
    };
    let answer = |request: &RequestFacts<'_>| -> Plan {
        let file = FoundFile { name: NAME, facts, coding: None, status: 200, is_fallback: false };
        plan(request, Found::File(file), &FilesOptions::default())
    };
    let mut request = RequestFacts { now_s: NOW_S, random: 7, ..RequestFacts::get("/a.bin") };
    let plain = answer(&request);
    let tag = plain.field("ETag").expect("a tag").to_owned();
    let lines: Vec<Vec<u8>> = lines.split(|octet| *octet == b'\n').map(|line| with_tag(line, &tag)).collect();
    let line = |at: usize| {
        lines.get(at).filter(|line| !line.is_empty()).map_or(Lines::Absent, |line| Lines::One(line))
    };
    request.range = line(0);
    request.if_range = line(1);
    request.preconditions.if_match = line(2);
    request.preconditions.if_none_match = line(3);
    request.preconditions.if_modified_since = line(4);
    request.preconditions.if_unmodified_since = line(5);
    let got = answer(&request);
    whole_and_parts(&got, facts.len);
    let verdict = verdict(&request, &tag, facts.modified_s);
    assert!(verdict.is_none_or(|status| got.status == status), "{} instead of {verdict:?}", got.status);
    if got.status == 206 {
        assert_eq!(covered(&got), asked(&request.range, facts.len).expect("a set of ranges that is valid"));
        assert!(!request.if_range.is_present() || may_resume(&request.if_range, &tag, facts.modified_s));
    }
    request.method = Method::Head;
    let head = answer(&request);
    assert!(head.body == Body::None && matches!(head.status, 200 | 304 | 412));
    assert!(head.status == got.status || matches!((head.status, got.status), (200, 206 | 416)));
}

fn with_tag(line: &[u8], tag: &str) -> Vec<u8> {
    line.iter()
        .flat_map(|octet| if *octet == b'@' { tag.as_bytes().to_vec() } else { vec![*octet] })
        .collect()
}

/// The length is that of the pieces, and each piece lies inside the file.
fn whole_and_parts(got: &Plan, len: u64) {
    let inside = |offset: u64, count: u64| {
        assert!(count > 0 && offset.checked_add(count).is_some_and(|end| end <= len));
    };
    let sent = match &got.body {
        Body::None => 0,
        Body::Bytes(bytes) => bytes.len() as u64,
        Body::File { offset, len } => {
            inside(*offset, *len);
            *len
        }
        Body::Pieces(pieces) => {
            for piece in pieces {
                if let Piece::File { offset, len } = piece {
                    inside(*offset, *len);
                }
            }
            pieces.iter().map(Piece::len).sum()
        }
    };
    assert_eq!(got.content_length.unwrap_or(0), sent);
    match got.status {
        200 => assert_eq!(sent, len),
        206 => assert!(sent > 0),
        304 => assert!(got.content_length.is_none()),
        412 => assert!(got.field("Content-Range").is_none()),
        416 => assert_eq!(got.field("Content-Range"), Some(&*format!("bytes */{len}"))),
        other => panic!("{other}"),
    }
}

/// How often each octet of the file is sent.
fn covered(got: &Plan) -> [u8; 64] {
    let mut octets = [0; 64];
    let mut add = |offset: u64, len: u64| (offset..offset + len).for_each(|at| octets[at as usize] += 1);
    match &got.body {
        Body::File { offset, len } => {
            let range = format!("bytes {offset}-{}/", offset + len - 1);
            assert!(got.field("Content-Range").is_some_and(|value| value.starts_with(&range)));
            add(*offset, *len);
        }
        Body::Pieces(pieces) => {
            assert!(got.field("Content-Range").is_none(), "RFC 9110 §15.3.7.2");
            for piece in pieces {
                if let Piece::File { offset, len } = piece {
                    add(*offset, *len);
                }
            }
        }
        other => panic!("206 with {other:?}"),
    }
    octets
}

/// The octets that the field names by a plain reading of RFC 9110 §14.1.2; `None` if it is no valid set.
fn asked(range: &Lines<'_>, len: u64) -> Option<[u8; 64]> {
    let text = std::str::from_utf8(range.single()?).ok()?.to_ascii_lowercase();
    let mut octets = [0; 64];
    for spec in text.strip_prefix("bytes=")?.split(',').map(|spec| spec.trim_matches([' ', '\t'])) {
        if spec.is_empty() {
            continue;
        }
        let (first, last) = spec.split_once('-')?;
        let read = |digits: &str| match digits {
            "" => Some(None),
            _ if digits.bytes().all(|octet| octet.is_ascii_digit()) => {
                Some(Some(digits.parse::<u128>().unwrap_or(u128::MAX)))
            }
            _ => None,
        };
        let (from, to) = match (read(first)?, read(last)?) {
            (None, None) => return None,
            (None, Some(count)) => (u128::from(len).saturating_sub(count), u128::MAX),
            (Some(first), last) => (first, last.unwrap_or(u128::MAX)),
        };
        (0..len).filter(|at| (from..=to).contains(&u128::from(*at))).for_each(|at| octets[at as usize] = 1);
    }
    Some(octets)
}

/// RFC 9110 §13.2.2 where it is beyond doubt: 304, 412, or `None`.
fn verdict(request: &RequestFacts<'_>, tag: &str, modified_s: i64) -> Option<u16> {
    let conditions = &request.preconditions;
    let is_own = |lines: &Lines<'_>| lines.single() == Some(tag.as_bytes());
    let is_any = |lines: &Lines<'_>| lines.single() == Some(b"*");
    let date = |lines: &Lines<'_>| lines.single().and_then(parse_date);
    if conditions.if_match.is_present() {
        let passes = is_any(&conditions.if_match) || is_own(&conditions.if_match) && !tag.starts_with("W/");
        // A list needs the reading that is under test; a tag without its own text cannot pass.
        let bare = tag.trim_start_matches("W/").as_bytes();
        let mentions = conditions
            .if_match
            .single()
            .is_some_and(|value| value.windows(bare.len()).any(|part| part == bare));
        if !passes {
            return (!mentions).then_some(412);
        }
    } else if date(&conditions.if_unmodified_since).is_some_and(|limit| modified_s > limit) {
        return Some(412);
    }
    if conditions.if_none_match.is_present() {
        let known = is_any(&conditions.if_none_match) || is_own(&conditions.if_none_match);
        return known.then_some(304);
    }
    date(&conditions.if_modified_since).is_some_and(|since| modified_s <= since).then_some(304)
}

/// RFC 9110 §13.1.5.
fn may_resume(if_range: &Lines<'_>, tag: &str, modified_s: i64) -> bool {
    let Some(value) = if_range.single() else { return false };
    let is_tag = value == tag.as_bytes() && !tag.starts_with("W/");
    is_tag || parse_date(value) == Some(modified_s) && modified_s < NOW_S
}
