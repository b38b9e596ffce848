//! Converts lines of a log file to lines of output: joins lines that the runtime split, omits old lines, prepends
//! times.

use crate::api::log_line::{self, LogLine, Stream};
use jiff::Timestamp;
use std::io::{self, Write};

/// The maximum length of a joined line, in bytes. A longer line is printed in pieces.
const MAX_JOINED: usize = 1 << 20;

/// Why printing ended.
#[derive(Debug)]
pub enum Stop {
    /// The requested number of bytes has been printed.
    Full,
    Output(io::Error),
    /// A log cannot be read: the path and the error.
    Log(String),
}

/// The output of one command, shared by all its logs.
pub struct Printer<'a> {
    pub out: &'a mut dyn Write,
    /// The time before which lines are omitted.
    pub since: Option<Timestamp>,
    /// Whether to prepend the time to each line.
    pub timestamps: bool,
    /// The number of bytes that may still be written; None is unlimited.
    pub left: Option<u64>,
}

impl Printer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let room = self.left.map_or(bytes.len(), |left| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()));
        self.out.write_all(&bytes[..room]).map_err(Stop::Output)?;
        if let Some(left) = &mut self.left {
            *left -= room as u64;
            if *left == 0 {
                return Err(Stop::Full);
            }
        }
        Ok(())
    }

    fn wants(&self, time: &[u8]) -> bool {
        let Some(since) = self.since else { return true };
        // A line without a valid time is printed.
        let time = std::str::from_utf8(time).ok().and_then(|t| t.parse::<Timestamp>().ok());
        time.is_none_or(|t| t >= since)
    }
}

/// The incomplete lines of one container, by stream.
#[derive(Debug, Default)]
pub struct Joiner {
    open: [Open; 2],
}

#[derive(Debug, Default)]
struct Open {
    /// Set while a line is incomplete: whether to print it. Its time has already been printed, or is at the start of
    /// `text`.
    state: Option<bool>,
    text: Vec<u8>,
}

impl Joiner {
    /// Processes a line of the file, without its newline.
    pub fn line(&mut self, line: &[u8], printer: &mut Printer<'_>) -> Result<(), Stop> {
        let Some(LogLine { time, stream, partial, text }) = log_line::parse(line) else {
            printer.put(line)?;
            return printer.put(b"\n");
        };
        let open = &mut self.open[usize::from(stream == Stream::Stderr)];
        let wanted = match open.state {
            Some(wanted) => wanted,
            None => {
                let wanted = printer.wants(time);
                if wanted && printer.timestamps {
                    log_line::push_time(time, &mut open.text);
                    open.text.push(b' ');
                }
                wanted
            }
        };
        open.state = partial.then_some(wanted);
        if !wanted {
            return Ok(());
        }
        open.text.extend_from_slice(text);
        if !partial {
            open.text.push(b'\n');
        }
        if !partial || open.text.len() > MAX_JOINED {
            printer.put(&open.text)?;
            open.text.clear();
        }
        Ok(())
    }

    /// Prints incomplete lines, with a newline. Called at the end of the log.
    pub fn flush(&mut self, printer: &mut Printer<'_>) -> Result<(), Stop> {
        for open in &mut self.open {
            if open.state.take() == Some(true) {
                open.text.push(b'\n');
                printer.put(&open.text)?;
            }
            open.text.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-11-20T14:46:39.000000001Z stdout F one
2026-11-20T14:46:40.000000001Z stdout P tw
2026-11-20T14:46:40.000000001Z stderr P er
2026-11-20T14:46:41.000000001Z stdout F o
2026-11-20T14:46:42.000000001Z stderr F ror
2026-11-20T14:46:43.000000001Z stdout F 
not in the format
2026-11-20T14:46:44.000000001Z stdout P open";

    fn print(since: Option<&str>, timestamps: bool, left: Option<u64>) -> (String, bool) {
        let mut out = Vec::new();
        let since = since.map(|s| s.parse().unwrap());
        let mut printer = Printer { out: &mut out, since, timestamps, left };
        let mut joiner = Joiner::default();
        let mut end = LOG.split('\n').try_for_each(|l| joiner.line(l.as_bytes(), &mut printer));
        if end.is_ok() {
            end = joiner.flush(&mut printer);
        }
        assert!(matches!(end, Ok(()) | Err(Stop::Full)), "{end:?}");
        (String::from_utf8(out).unwrap(), end.is_err())
    }

    #[test]
    fn pieces_are_joined_by_stream() {
        assert_eq!(print(None, false, None).0, "one\ntwo\nerror\n\nnot in the format\nopen\n");
    }

    #[test]
    fn l5_the_time_of_a_line_has_nine_digits() {
        let mut out = Vec::new();
        let mut printer = Printer { out: &mut out, since: None, timestamps: true, left: None };
        Joiner::default().line(b"2026-11-20T14:46:39.12Z stdout F one", &mut printer).unwrap();
        assert_eq!(out, b"2026-11-20T14:46:39.120000000Z one\n");
    }

    #[test]
    fn a_joined_line_has_the_time_of_its_begin() {
        let (text, _) = print(None, true, None);
        assert!(text.contains("2026-11-20T14:46:40.000000001Z two\n2026-11-20T14:46:40.000000001Z error\n"), "{text}");
        // The joined line has the time of its first part, so all of it is omitted.
        assert_eq!(print(Some("2026-11-20T14:46:41Z"), false, None).0, "\nnot in the format\nopen\n");
        assert_eq!(print(Some("2026-11-20T14:46:40Z"), false, None).0, "two\nerror\n\nnot in the format\nopen\n");
    }

    #[test]
    fn no_more_bytes_than_requested_are_written() {
        assert_eq!(print(None, false, Some(6)), ("one\ntw".into(), true));
        assert_eq!(print(None, false, Some(4)), ("one\n".into(), true));
        assert!(!print(None, false, Some(1000)).1);
    }

    #[test]
    fn a_line_without_end_is_not_gathered_without_bound() {
        let mut out = Vec::new();
        let mut printer = Printer { out: &mut out, since: None, timestamps: true, left: None };
        let mut joiner = Joiner::default();
        let piece = format!("2026-11-20T14:46:39Z stdout P {}", "x".repeat(16_000));
        for _ in 0..200 {
            joiner.line(piece.as_bytes(), &mut printer).unwrap();
            assert!(joiner.open[0].text.len() <= MAX_JOINED + 17_000);
        }
        joiner.flush(&mut printer).unwrap();
        assert_eq!(out.len(), 200 * 16_000 + "2026-11-20T14:46:39.000000000Z ".len() + 1, "the time is printed once");
    }
}
