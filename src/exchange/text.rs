//! UTF-8 out of chunks that end anywhere: half a character waits for its other half (L-18).

use crate::error::{Error, Result};

/// Keeps at most three bytes of an unfinished character between two chunks.
#[derive(Debug, Default, Clone)]
pub struct Utf8Decoder {
    carry: [u8; 4],
    carried: usize,
}

impl Utf8Decoder {
    /// A decoder at the start of a body.
    pub fn new() -> Self {
        Utf8Decoder::default()
    }

    /// Appends the whole characters of `bytes` to `text`.
    ///
    /// # Errors
    /// `InvalidBody` at the first sequence that no continuation can make valid; `text` holds what came before.
    pub fn decode(&mut self, mut bytes: &[u8], text: &mut String) -> Result<()> {
        while self.carried > 0 {
            let Some((first, rest)) = bytes.split_first() else { return Ok(()) };
            self.carry[self.carried] = *first;
            self.carried += 1;
            bytes = rest;
            match std::str::from_utf8(&self.carry[..self.carried]) {
                Ok(character) => {
                    text.push_str(character);
                    self.carried = 0;
                }
                Err(error) if error.error_len().is_some() => return Err(INVALID),
                Err(_) => {}
            }
        }
        match std::str::from_utf8(bytes) {
            Ok(whole) => text.push_str(whole),
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                if error.error_len().is_some() {
                    return Err(INVALID);
                }
                self.carry[..rest.len()].copy_from_slice(rest);
                self.carried = rest.len();
            }
        }
        Ok(())
    }

    /// The body is over.
    ///
    /// # Errors
    /// `InvalidBody` when it ended inside a character.
    pub fn finish(&self) -> Result<()> {
        if self.carried == 0 { Ok(()) } else { Err(INVALID) }
    }
}

const INVALID: Error = Error::InvalidBody("not UTF-8");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l_18_every_way_to_cut_a_text_gives_the_same_text() {
        let whole = "aä€😀z";
        for first in 0..=whole.len() {
            for second in first..=whole.len() {
                let (mut decoder, mut text) = (Utf8Decoder::new(), String::new());
                decoder.decode(b"", &mut text).unwrap();
                decoder.decode(&whole.as_bytes()[..first], &mut text).unwrap();
                decoder.decode(&whole.as_bytes()[first..second], &mut text).unwrap();
                decoder.decode(&whole.as_bytes()[second..], &mut text).unwrap();
                decoder.finish().unwrap();
                assert_eq!(text, whole);
            }
        }
    }

    #[test]
    fn what_cannot_become_valid_is_refused() {
        let mut text = String::new();
        assert!(Utf8Decoder::new().decode(b"ok\xff", &mut text).is_err());
        assert_eq!(text, "ok");
        let mut decoder = Utf8Decoder::new();
        decoder.decode(b"\xe2\x82", &mut text).unwrap();
        assert!(decoder.finish().is_err());
        assert!(decoder.decode(b"x", &mut text).is_err());
    }
}
