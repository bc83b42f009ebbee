//! The invariant of the fuzz target `multipart`, stated there; `tests/corpus.rs` runs it on the stored corpus.

use shardlet::exchange::{MultipartDecoder, MultipartEvent, PartHead};
use shardlet::limits::MultipartLimits;

/// Short, so that random bytes meet it.
const BOUNDARY: &str = "b-";
const LIMITS: MultipartLimits = MultipartLimits { parts_max: 8, header_bytes_max: 256, margin_bytes_max: 32 };

#[derive(Debug, Default, PartialEq)]
struct Seen {
    parts: Vec<(PartHead, Vec<u8>)>,
    whole_parts: usize,
    ended: bool,
    refusal: Option<String>,
}

/// The decoder of forms.
pub(crate) fn multipart(data: &[u8]) {
    let whole = decoded(data, usize::MAX);
    for piece in [1, 2, 7, 2 + usize::from(data.first().copied().unwrap_or(0)) % 61] {
        assert_eq!(decoded(data, piece), whole);
    }
    let delimiter = format!("\r\n--{BOUNDARY}");
    assert!(whole.parts.iter().map(|(_, content)| content.len()).sum::<usize>() <= data.len());
    for (_, content) in &whole.parts {
        assert!(!content.windows(delimiter.len()).any(|window| window == delimiter.as_bytes()));
    }
    if whole.refusal.is_none() {
        assert!(whole.ended && whole.whole_parts == whole.parts.len());
    }
    // The boundary of a `Content-Type` of these bytes is taken or refused, never more.
    let content_type = [b"multipart/form-data; boundary=", data].concat();
    let _ = MultipartDecoder::for_content_type(&content_type, LIMITS);
}

fn decoded(data: &[u8], piece: usize) -> Seen {
    let mut decoder = MultipartDecoder::new(BOUNDARY, LIMITS).expect("a boundary");
    let mut seen = Seen::default();
    for chunk in data.chunks(piece.min(data.len().max(1))) {
        let mut input = chunk.to_vec().into();
        loop {
            match decoder.decode(&mut input) {
                Ok(MultipartEvent::Part(head)) => seen.parts.push((head, Vec::new())),
                Ok(MultipartEvent::Data(bytes)) => {
                    assert!(!bytes.is_empty());
                    seen.parts.last_mut().expect("content has a part").1.extend_from_slice(&bytes);
                }
                Ok(MultipartEvent::PartEnd) => seen.whole_parts += 1,
                Ok(MultipartEvent::End) => seen.ended = true,
                Ok(MultipartEvent::NeedMore) => break,
                Err(error) => {
                    assert!(decoder.finish().is_err());
                    seen.refusal = Some(error.to_string());
                    return seen;
                }
            }
        }
        assert!(input.is_empty());
    }
    seen.refusal = decoder.finish().err().map(|error| error.to_string());
    seen
}
