//! Content codings made on the fly. Runs on the offload pool alone; how many at a time is the handler's bound.

use super::negotiate::Coding;
use brotli::enc::{BrotliEncoderParams, backward_references::BrotliEncoderMode};
use flate2::{Compression, write::GzEncoder};
use std::io::{self, Write};

/// The bytes in this coding. The same bytes give the same result: no time and no name is in it.
pub(super) fn encode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let coded = match coding {
        Coding::Brotli => brotli(bytes),
        Coding::Zstd => zstd::bulk::compress(bytes, ZSTD_LEVEL),
        Coding::Gzip => gzip(bytes),
    };
    coded.expect("writing into memory does not fail")
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 3), GZIP_LEVEL);
    encoder.write_all(bytes).and_then(|()| encoder.finish())
}

fn brotli(mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let parameters = BrotliEncoderParams {
        quality: BROTLI_QUALITY,
        lgwin: BROTLI_WINDOW_BITS,
        mode: BrotliEncoderMode::BROTLI_MODE_TEXT,
        size_hint: bytes.len(),
        ..BrotliEncoderParams::default()
    };
    let mut coded = Vec::with_capacity(bytes.len() / 3);
    brotli::BrotliCompress(&mut bytes, &mut coded, &parameters).map(|_| coded)
}

// What servers use for content that is made while somebody waits: the three cost about the same time.
/// Of 1 to 9.
const GZIP_LEVEL: Compression = Compression::new(5);
/// Of 0 to 11.
const BROTLI_QUALITY: i32 = 4;
/// 512 KiB: the memory of an encoder, not the ratio of a file of at most 1 MiB, hangs on it.
const BROTLI_WINDOW_BITS: i32 = 19;
/// Of 1 to 22.
const ZSTD_LEVEL: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn decode(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let read = match coding {
            Coding::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain),
            Coding::Zstd => zstd::Decoder::new(coded).and_then(|mut decoder| decoder.read_to_end(&mut plain)),
            Coding::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut plain),
        };
        read.expect("the coding's own format");
        plain
    }

    #[test]
    fn every_coding_comes_back_and_is_the_same_each_time() {
        let text = "shards ".repeat(10_000);
        for coding in Coding::ALL {
            for plain in [text.as_bytes(), b"", b"x"] {
                let coded = encode(coding, plain);
                assert!(coded.starts_with(coding.magic()));
                assert!(plain.len() < 10 || coded.len() < plain.len() / 50, "{coding:?}: {}", coded.len());
                assert_eq!(decode(coding, &coded), plain, "{coding:?}");
                assert_eq!(encode(coding, plain), coded, "{coding:?}");
            }
        }
    }
}
