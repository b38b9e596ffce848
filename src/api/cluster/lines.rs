//! Splits a stream of bytes into lines: a watch has one JSON document in each line.

/// A line is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Holds at most one incomplete line.
#[derive(Debug)]
pub struct Lines {
    /// The maximum length of a line in bytes.
    limit: usize,
    partial: Vec<u8>,
}

impl Lines {
    pub fn new(limit: usize) -> Lines {
        Lines { limit, partial: Vec::new() }
    }

    /// Calls `line` for each complete line, without the line terminator. Empty lines are skipped.
    ///
    /// # Errors
    /// A line is too long. `self` cannot be used any more.
    pub fn push(&mut self, mut bytes: &[u8], line: &mut impl FnMut(Vec<u8>)) -> Result<(), TooLong> {
        while let Some(at) = bytes.iter().position(|b| *b == b'\n') {
            let (head, rest) = bytes.split_at(at);
            self.extend(head)?;
            let mut complete = std::mem::take(&mut self.partial);
            if complete.last() == Some(&b'\r') {
                complete.pop();
            }
            if !complete.is_empty() {
                line(complete);
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.extend(bytes)
    }

    /// Reports whether an incomplete line is left at the end.
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.partial.len() + bytes.len() > self.limit {
            return Err(TooLong);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]], limit: usize) -> Result<(Vec<String>, bool), TooLong> {
        let mut lines = Lines::new(limit);
        let mut out = Vec::new();
        for piece in pieces {
            lines.push(piece, &mut |line| out.push(String::from_utf8(line).unwrap()))?;
        }
        Ok((out, lines.is_partial()))
    }

    #[test]
    fn lines_are_found_at_every_split() {
        let text = b"{\"a\":1}\n\n{\"b\":\"x\\ny\"}\r\n{}\npart";
        let expected = vec!["{\"a\":1}".to_owned(), "{\"b\":\"x\\ny\"}".to_owned(), "{}".to_owned()];
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let pieces = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(split(&pieces, 20), Ok((expected.clone(), true)), "{first} {second}");
            }
        }
        assert_eq!(split(&[b"a\n"], 20), Ok((vec!["a".to_owned()], false)));
        assert_eq!(split(&[], 20), Ok((vec![], false)));
    }

    #[test]
    fn a_long_line_is_an_error_whether_it_is_complete_or_not() {
        assert!(split(&[b"12345\n12345"], 5).is_ok());
        assert_eq!(split(&[b"123456\n"], 5), Err(TooLong));
        assert_eq!(split(&[b"123", b"456"], 5), Err(TooLong));
        assert_eq!(split(&[b"1\n123", b"456\n"], 5), Err(TooLong));
    }
}
