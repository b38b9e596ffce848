//! The keys that detach from a session at a terminal, while the process in the container continues.

use std::fmt;

/// Maximum number of keys in a sequence.
const MOST: usize = 16;
/// The default keys of docker and podman.
pub const DEFAULT: &str = "ctrl-p,ctrl-q";

/// The bytes of the keys. Empty if no keys detach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetachKeys(Vec<u8>);

impl DetachKeys {
    /// Parses a list of keys such as `ctrl-p,ctrl-q`.
    ///
    /// # Errors
    /// The text is not a list of keys.
    pub fn parse(text: &str) -> Result<DetachKeys, String> {
        if text.is_empty() {
            return Ok(DetachKeys(Vec::new()));
        }
        let keys: Option<Vec<u8>> = text.split(',').map(key).collect();
        let expected = || {
            format!(
                "expected up to {MOST} keys separated by commas, each a character or ctrl- and one of a-z @ [ \\ ] ^ _"
            )
        };
        keys.filter(|keys| keys.len() <= MOST).map(DetachKeys).ok_or_else(expected)
    }
}

impl fmt::Display for DetachKeys {
    /// Writes the keys in the form that `DetachKeys::parse` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, key) in self.0.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            match key {
                1..=26 => write!(f, "{comma}ctrl-{}", char::from(key - 1 + b'a'))?,
                0..b' ' => write!(f, "{comma}ctrl-{}", char::from(key + b'@'))?,
                _ => write!(f, "{comma}{}", char::from(*key))?,
            }
        }
        Ok(())
    }
}

fn key(text: &str) -> Option<u8> {
    let (name, is_control) = match text.strip_prefix("ctrl-") {
        Some(name) => (name, true),
        None => (text, false),
    };
    match name.as_bytes() {
        [byte @ (b'a'..=b'z')] if is_control => Some(byte - b'a' + 1),
        [byte @ (b'@' | b'['..=b'_')] if is_control => Some(byte - b'@'),
        [byte @ b'!'..=b'~'] if !is_control => Some(*byte),
        _ => None,
    }
}

/// Finds the keys in the input.
#[derive(Debug)]
pub struct Detector<'a> {
    keys: &'a DetachKeys,
    /// The last keys that were typed, if they begin the sequence. They are passed on if the sequence is not
    /// completed.
    held: Vec<u8>,
}

impl<'a> Detector<'a> {
    pub fn new(keys: &'a DetachKeys) -> Detector<'a> {
        Detector { keys, held: Vec::new() }
    }

    /// Appends the input for the process to `out`. Returns true if the sequence is complete; the input after it is
    /// dropped.
    pub fn pass(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        let keys = &self.keys.0;
        if keys.is_empty() {
            out.extend_from_slice(input);
            return false;
        }
        for byte in input {
            self.held.push(*byte);
            if self.held == *keys {
                self.held.clear();
                return true;
            }
            // The end of the input may be the beginning of the sequence.
            while !keys.starts_with(&self.held) {
                out.push(self.held.remove(0));
            }
        }
        false
    }

    /// Appends the keys that were held back, because the input has ended.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what the process gets, and whether the sequence was found. The input arrives in pieces of `piece`
    /// bytes.
    fn typed(keys: &str, input: &str, piece: usize) -> (String, bool) {
        let keys = DetachKeys::parse(keys).unwrap();
        let (mut detector, mut out) = (Detector::new(&keys), Vec::new());
        let found = input.as_bytes().chunks(piece).any(|piece| detector.pass(piece, &mut out));
        detector.finish(&mut out);
        (String::from_utf8(out).unwrap(), found)
    }

    #[test]
    fn the_sequence_ends_the_input_and_everything_else_passes() {
        for piece in [1, 2, 100] {
            for (keys, input, passed, found) in [
                (DEFAULT, "ls\r\x10\x11rest", "ls\r", true),
                (DEFAULT, "\x10\x10\x11", "\x10", true),
                (DEFAULT, "\x10x\x11", "\x10x\x11", false),
                (DEFAULT, "ab\x10", "ab\x10", false),
                ("a,a,b", "aaab", "a", true),
                ("ctrl-a,d", "\x01c\x01d", "\x01c", true),
                ("", "\x10\x11", "\x10\x11", false),
            ] {
                assert_eq!(typed(keys, input, piece), (passed.to_owned(), found), "{keys} {input:?} {piece}");
            }
        }
    }

    #[test]
    fn keys_are_characters_or_control_characters() {
        assert_eq!(DetachKeys::parse("ctrl-a,ctrl-@,ctrl-[,ctrl-_,z"), Ok(DetachKeys(vec![1, 0, 27, 31, b'z'])));
        for text in [DEFAULT, "ctrl-a,ctrl-@,ctrl-[,ctrl-_,z", ""] {
            assert_eq!(DetachKeys::parse(text).unwrap().to_string(), text);
        }
        for text in ["ctrl-", "ctrl-1", "ctrl-A", "ab", "a,", "ä", " ", &"a,".repeat(17)] {
            assert!(DetachKeys::parse(text).unwrap_err().starts_with("expected up to 16 keys"), "{text}");
        }
    }
}
