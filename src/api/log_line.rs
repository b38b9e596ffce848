//! A line of a container's log as the CRI has the runtime write it: `<time> <stream> <tags> <text>`.

/// One line of the file, without its newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// RFC 3339 with nanoseconds; not looked at here.
    pub time: &'a [u8],
    pub stream: Stream,
    /// What was written goes on in the stream's next line.
    pub partial: bool,
    pub text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// So much of a line is enough to know all but its text, in bytes.
pub const HEAD: usize = 64;

/// None if it is not in that format.
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
        assert!(parse(b"t stdout F").is_some(), "an editor may have cut the last blank");
        for other in [&b""[..], b"hello", b"hello stdout", b"a b c d", b"\xff\xff"] {
            assert_eq!(parse(other), None);
        }
    }
}
