//! Finds the start of the last lines of a log. Reads block by block from the end, so the tail of a 1 GiB file costs a
//! few KiB.
//!
//! A line is the container's output up to a newline. The runtime may split it into several lines of the file (tagged P,
//! the last one F). A line of the file without that format counts as a complete line.

use crate::api::log_line::{self, HEAD};
use std::io::{self, BufRead, Read, Seek, SeekFrom};

const BLOCK: usize = 4096;

/// Returns the offset at which the last `lines` lines of the first `end` bytes of `file` start, and the number of lines
/// found.
pub fn start_of_last(file: &mut (impl Read + Seek), end: u64, lines: u64) -> io::Result<(u64, u64)> {
    let mut count = 0;
    let mut block = vec![0; BLOCK];
    // The first bytes of the line that extends into the previous block.
    let mut head: Vec<u8> = Vec::new();
    let mut block_end = end;
    // The end of the current line, and whether it is the last line of the file.
    let mut line_end = end;
    let mut last = true;
    while block_end > 0 {
        let begin = block_end.saturating_sub(BLOCK as u64);
        let length = (block_end - begin) as usize;
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut block[..length])?;
        let bytes = &block[..length];
        let mut to = length;
        while let Some(newline) = bytes[..to].iter().rposition(|b| *b == b'\n') {
            let after = begin + newline as u64 + 1;
            // No line starts after a newline at the very end.
            if after < end {
                let mut start = bytes[newline + 1..to].to_vec();
                start.extend_from_slice(&head);
                if ends_a_line(&start, last) {
                    if count == lines {
                        return Ok((line_end, count));
                    }
                    count += 1;
                }
                last = false;
            }
            line_end = after;
            head.clear();
            to = newline;
        }
        let mut start = bytes[..to.min(HEAD)].to_vec();
        start.extend_from_slice(&head);
        start.truncate(HEAD);
        head = start;
        block_end = begin;
    }
    if end > 0 && ends_a_line(&head, last) {
        if count == lines {
            return Ok((line_end, count));
        }
        count += 1;
    }
    Ok((0, count))
}

/// Reports whether this line of the file is the last part of a container's line. The last line of the file always is.
fn ends_a_line(start: &[u8], last: bool) -> bool {
    last || log_line::parse(start).is_none_or(|l| !l.partial)
}

/// Counts the lines to the end of a source that can only be read forwards.
pub fn count(reader: &mut impl BufRead) -> io::Result<u64> {
    let (mut count, mut open) = (0, false);
    let mut line = Vec::new();
    while read_line(reader, &mut line)? {
        open = log_line::parse(line.strip_suffix(b"\n").unwrap_or(&line)).is_some_and(|l| l.partial);
        count += u64::from(!open);
        line.clear();
    }
    Ok(count + u64::from(open))
}

/// Appends to `line` up to and including a newline, or up to the end of the input or a length that no runtime writes.
/// Returns false at the end of the input.
pub fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    const LONGEST: u64 = 1 << 20;
    let room = LONGEST.saturating_sub(line.len() as u64).max(1);
    Ok(reader.by_ref().take(room).read_until(b'\n', line)? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn last(text: &str, lines: u64) -> (String, u64) {
        let (at, count) = start_of_last(&mut Cursor::new(text), text.len() as u64, lines).unwrap();
        (text[at as usize..].to_owned(), count)
    }

    #[test]
    fn the_last_lines_are_found() {
        let text = "t stdout F a\nt stdout F b\nt stdout F c\n";
        assert_eq!(last(text, 1), ("t stdout F c\n".into(), 1));
        assert_eq!(last(text, 2), ("t stdout F b\nt stdout F c\n".into(), 2));
        assert_eq!(last(text, 3), (text.into(), 3));
        assert_eq!(last(text, 100), (text.into(), 3));
        assert_eq!(last(text, 0), (String::new(), 0));
        assert_eq!(last("", 5), (String::new(), 0));
        assert_eq!(last("no format\nno newline", 1), ("no newline".into(), 1));
    }

    #[test]
    fn a_line_split_by_the_runtime_counts_as_one_line() {
        let long = format!("t stdout P {}\n", "x".repeat(9000));
        let text = format!("t stdout F a\n{long}{long}t stdout F end\nt stdout F b\n");
        assert_eq!(last(&text, 1).0, "t stdout F b\n");
        assert_eq!(last(&text, 2), (format!("{long}{long}t stdout F end\nt stdout F b\n"), 2));
        assert_eq!(last(&text, 3), (text.clone(), 3));
        // A line that the runtime is still writing.
        let text = format!("t stdout F a\n{long}{long}");
        assert_eq!(last(&text, 1), (format!("{long}{long}"), 1));
    }

    #[test]
    fn counting_forwards_agrees_at_every_length() {
        let mut text = String::new();
        for i in 0..60 {
            let tag = if i % 7 < 3 { "P" } else { "F" };
            text.push_str(&format!("2026-11-20T14:46:39.123456789Z stderr {tag} {}\n", "y".repeat(i * 13)));
        }
        for end in (0..text.len()).step_by(97).chain([text.len()]) {
            let part = &text[..end];
            let all = count(&mut Cursor::new(part)).unwrap();
            assert_eq!(last(part, u64::MAX).1, all, "{end}");
            for lines in [1, 2, 5] {
                let (tail, found) = last(part, lines);
                assert_eq!(found, all.min(lines));
                assert_eq!(count(&mut Cursor::new(&tail)).unwrap(), found, "{end} {lines}");
            }
        }
    }

    /// 1 GiB of lines of 64 bytes, generated on read.
    struct Huge {
        at: u64,
        read: u64,
    }

    const SIZE: u64 = 1 << 30;

    impl Read for Huge {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let line = format!("{:<63}\n", "2026-11-20T14:46:39.123456789Z stdout F some text").into_bytes();
            let n = buffer.len().min((SIZE - self.at) as usize);
            for (i, b) in buffer[..n].iter_mut().enumerate() {
                *b = line[((self.at + i as u64) % 64) as usize];
            }
            self.at += n as u64;
            self.read += n as u64;
            Ok(n)
        }
    }

    impl Seek for Huge {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            let SeekFrom::Start(at) = to else { panic!("{to:?}") };
            self.at = at;
            Ok(at)
        }
    }

    #[test]
    fn ten_lines_of_a_gigabyte_cost_a_block() {
        let mut huge = Huge { at: 0, read: 0 };
        assert_eq!(start_of_last(&mut huge, SIZE, 10).unwrap(), (SIZE - 640, 10));
        assert_eq!(huge.read, BLOCK as u64);
    }
}
