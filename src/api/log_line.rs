//! One line of a container log in the CRI format: `<time> <stream> <tags> <text>`.

/// One line of the log file, without its newline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// RFC 3339, without trailing zeros in the fraction of a second. Not parsed here.
    pub time: &'a [u8],
    pub stream: Stream,
    /// True if the message continues in the next line of the same stream.
    pub partial: bool,
    pub text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// All fields except the text are sure to end within this many bytes from the start of a line.
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

/// Appends a time with nine fractional digits, as a kubelet prints it. Text that is not a time is appended unchanged.
pub fn push_time(time: &[u8], to: &mut Vec<u8>) {
    const SECONDS: usize = "2006-01-02T15:04:05".len();
    const DIGITS: usize = 9;
    let digits = |text: &[u8]| text.iter().take_while(|b| b.is_ascii_digit()).count();
    let split = time.split_at_checked(SECONDS).and_then(|(seconds, rest)| match rest.strip_prefix(b".") {
        Some(rest) => rest.split_at_checked(digits(rest)).map(|(fraction, zone)| (seconds, fraction, zone)),
        None => Some((seconds, &[][..], rest)),
    });
    match split {
        Some((seconds, fraction, zone))
            if fraction.len() < DIGITS && matches!(zone.first(), Some(b'Z' | b'+' | b'-')) =>
        {
            to.extend_from_slice(seconds);
            to.push(b'.');
            to.extend_from_slice(fraction);
            to.extend(std::iter::repeat_n(b'0', DIGITS - fraction.len()));
            to.extend_from_slice(zone);
        }
        _ => to.extend_from_slice(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l5_a_time_has_nine_digits() {
        for (time, shown) in [
            ("2026-11-20T14:46:39.123456789Z", "2026-11-20T14:46:39.123456789Z"),
            ("2026-11-20T14:46:39.1234Z", "2026-11-20T14:46:39.123400000Z"),
            ("2026-11-20T14:46:39Z", "2026-11-20T14:46:39.000000000Z"),
            ("2026-11-20T14:46:39.5+02:00", "2026-11-20T14:46:39.500000000+02:00"),
            ("2026-11-20T14:46:39-02:00", "2026-11-20T14:46:39.000000000-02:00"),
            ("2026-11-20T14:46:39.x", "2026-11-20T14:46:39.x"),
            ("2026-11-20T14:46:39", "2026-11-20T14:46:39"),
            ("yesterday", "yesterday"),
            ("", ""),
        ] {
            let mut out = b"> ".to_vec();
            push_time(time.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("> {shown}"));
        }
    }

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
