//! Content codings made on the fly. Runs on the offload pool alone; how many at a time is the handler's bound.

use super::negotiate::Coding;
use flate2::{Compression, write::GzEncoder};
use std::io::Write;

/// Whether this build makes the coding.
pub(super) fn is_made(coding: Coding) -> bool {
    coding == Coding::Gzip
}

/// The bytes in this coding, which [`is_made`]. The same bytes give the same result: no time and no name is in it.
pub(super) fn encode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    debug_assert!(is_made(coding), "the plan chooses among what is made");
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), LEVEL);
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect("writing into memory does not fail")
}

/// Of 1 to 9: what servers use for content that is made while somebody waits.
const LEVEL: Compression = Compression::new(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn gzip_comes_back() {
        let text = "shards ".repeat(10_000);
        let coded = encode(Coding::Gzip, text.as_bytes());
        assert!(coded.starts_with(Coding::Gzip.magic()) && coded.len() < text.len() / 50);
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&coded[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, text);
    }
}
