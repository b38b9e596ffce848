//! One line of a container log in the CRI format: `<time> <stream> <tags> <text>`.

/// One line of the log file, without its newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// RFC 3339 with nanoseconds. Not parsed here.
    pub time: &'a [u8],
    pub stream: Stream,
    /// The message continues in the next line of the same stream.
    pub partial: bool,
    pub text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// A prefix of a line that contains all fields except the text, in bytes.
pub const HEAD: usize = 64;

/// Parses a line; None if it does not have this format.
pub fn parse(line: &[u8]) -> Option<LogLine<'_>> {
    let mut parts = line.splitn(4, |b| *b == b' ');
    let time = parts.next()?;
    let stream = match parts.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    // Further tags may follow after a colon.
    let partial = parts.next()?.split(|b| *b == b':').next() == Some(b"P".as_slice());
    Some(LogLine { time, stream, partial, text: parts.next().unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = parse(b"2026-11-20T14:46:39.123456789Z stderr P:x a  b ").unwrap();
        assert_eq!(line.time, b"2026-11-20T14:46:39.123456789Z");
        assert_eq!((line.stream, line.partial, line.text), (Stream::Stderr, true, &b"a  b "[..]));
        let line = parse(b"t stdout F ").unwrap();
        assert_eq!((line.stream, line.partial, line.text), (Stream::Stdout, false, &b""[..]));
        assert!(parse(b"t stdout F").is_some(), "an editor may have removed the trailing blank");
        for other in [&b""[..], b"hello", b"hello stdout", b"a b c d", b"\xff\xff"] {
            assert_eq!(parse(other), None);
        }
    }
}
