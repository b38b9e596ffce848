//! The log: one line per event on stderr, in the form `what happened key=value ...`.
//!
//! Under systemd, a line starts with the journal's priority (`<4>`), otherwise with the time and the level. A write
//! to stderr never blocks or ends the daemon, even if stderr is a full pipe, a stopped terminal or closed. A line
//! that cannot be written immediately is dropped and counted, and the count is written before the next line.

use crate::api::printable;
use crate::api::time::Boot;
use crate::engine::op::OpError;
use crate::event_loop::JobError;
use log::{Level, LevelFilter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A pipe or socket that is ready accepts this number of bytes at once (PIPE_BUF).
const MAX_LINE: usize = 4096;
/// A persistent error is logged again after this time.
const LOG_AGAIN: Duration = Duration::from_secs(60);
/// Maximum number of persistent errors remembered.
const MAX_KEYS: usize = 256;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Starts logging. A second call in the process does nothing.
pub fn init(verbosity: u32) {
    let journal = stderr_is_the_journal();
    let started = env_logger::Builder::new()
        .filter_level(LevelFilter::Warn)
        .filter_module("wherry", LevelFilter::Trace)
        .target(env_logger::Target::Pipe(Box::new(LineWriter { out: io::stderr(), untold: 0 })))
        .format(move |out, record| {
            let time = (!journal).then(jiff::Timestamp::now);
            let line = format_line(time, record.level(), record.target(), &record.args().to_string());
            out.write_all(line.as_bytes())
        })
        .try_init();
    if started.is_ok() {
        set_verbosity(verbosity);
    }
}

/// Sets the level from the kubelet's verbosity: 0 to 3 is info, 4 and 5 debug, 6 and more trace.
pub fn set_verbosity(verbosity: u32) {
    log::set_max_level(match verbosity {
        0..=3 => LevelFilter::Info,
        4..=5 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    });
}

/// Returns the number of lines dropped since the start.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Reports whether stderr is the journal's socket, which `JOURNAL_STREAM` identifies. stderr may have been redirected
/// since systemd set the variable.
fn stderr_is_the_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    let Ok(stat) = rustix::fs::fstat(io::stderr()) else { return false };
    stream.to_str() == Some(&format!("{}:{}", stat.st_dev, stat.st_ino))
}

fn format_line(time: Option<jiff::Timestamp>, level: Level, target: &str, message: &str) -> String {
    let mut line = String::with_capacity(64 + message.len());
    // Writing to a string does not fail.
    let _ = match (time, level) {
        (Some(time), level) => write!(line, "{time:.3} {level:<5} "),
        (None, Level::Error) => line.write_str("<3>"),
        (None, Level::Warn) => line.write_str("<4>"),
        (None, Level::Info) => line.write_str("<6>"),
        (None, Level::Debug | Level::Trace) => line.write_str("<7>"),
    };
    let _ = write!(line, "{}: ", room(target));
    for c in message.trim_end().chars() {
        // Text from outside (a manifest, a runtime's message) must not look like a log line of Wherry.
        match c {
            '\t' => line.push(' '),
            c if printable::is_plain(c) => line.push(c),
            c => printable::push_escaped(&mut line, c),
        }
    }
    line.push('\n');
    line
}

/// Shortens `wherry::adapters::server::listener` to `server`.
fn room(target: &str) -> &str {
    let inner = target.strip_prefix("wherry::").unwrap_or(target);
    let inner = inner.strip_prefix("adapters::").unwrap_or(inner);
    inner.split("::").next().unwrap_or(inner)
}

/// Accepts one whole line per write and never blocks.
struct LineWriter<F> {
    out: F,
    /// Lines dropped since the last notice.
    untold: u64,
}

impl<F: AsFd> LineWriter<F> {
    /// Returns true if at least the start of the line was written.
    fn put(&self, line: &[u8]) -> bool {
        let mut fds = [PollFd::new(&self.out, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut fds, Some(&now)), Ok(1)) || !fds[0].revents().contains(PollFlags::OUT) {
            return false;
        }
        matches!(rustix::io::write(&self.out, line), Ok(n) if n > 0)
    }

    fn drop_line(&mut self) {
        self.untold += 1;
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

impl<F: AsFd> Write for LineWriter<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.untold > 0 {
            let notice = format!("wherry: dropped log lines because stderr was not read count={}\n", self.untold);
            if !self.put(notice.as_bytes()) {
                self.drop_line();
                return Ok(line.len());
            }
            self.untold = 0;
        }
        let written = if line.len() > MAX_LINE {
            let text = String::from_utf8_lossy(line);
            self.put(format!("{}...\n", printable::cut(&text, MAX_LINE - 8)).as_bytes())
        } else {
            self.put(line)
        };
        if !written {
            self.drop_line();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Limits how often a persistent error is logged: when it first occurs, and then at most once a minute.
#[derive(Debug, Default)]
pub struct LogDeduplicator {
    logged: BTreeMap<String, Logged>,
}

#[derive(Debug)]
struct Logged {
    at: Boot,
    last_seen: Boot,
    /// Number of repetitions not logged since `at`.
    kept_back: u64,
}

impl LogDeduplicator {
    pub fn new() -> LogDeduplicator {
        LogDeduplicator::default()
    }

    /// Returns None if the error must not be logged now. Otherwise, the value is the number of repetitions since the
    /// last log line.
    pub fn repetitions(&mut self, key: &str, now: Boot) -> Option<u64> {
        if let Some(last) = self.logged.get_mut(key) {
            last.last_seen = now;
            if now.since(last.at) < LOG_AGAIN {
                last.kept_back += 1;
                return None;
            }
            last.at = now;
            return Some(std::mem::take(&mut last.kept_back));
        }
        if self.logged.len() >= MAX_KEYS {
            let oldest = self.logged.iter().min_by_key(|(_, t)| t.last_seen).map(|(k, _)| k.clone());
            oldest.and_then(|key| self.logged.remove(&key));
        }
        self.logged.insert(key.to_owned(), Logged { at: now, last_seen: now, kept_back: 0 });
        Some(0)
    }

    /// Logs that a helper job ended without a result. Returns the message.
    pub(super) fn job_failed(&mut self, e: &JobError, now: Boot) -> String {
        let why = e.to_string();
        if let Some(repeated) = self.repetitions(&why, now) {
            log::warn!("a helper job failed error={why:?} repeated={repeated}");
        }
        why
    }

    /// Returns the result of an operation's job. If the job has none, logs and returns the error.
    pub(super) fn job_result<T>(&mut self, result: Result<T, JobError>, now: Boot) -> Result<T, OpError> {
        result.map_err(|e| OpError::Unknown(self.job_failed(&e, now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_line_has_time_level_and_room_or_the_journals_priority() {
        let time: jiff::Timestamp = "2026-11-20T14:46:39.1234567Z".parse().unwrap();
        let target = "wherry::adapters::server::listener";
        assert_eq!(
            format_line(Some(time), Level::Warn, target, "cannot accept on=/x"),
            "2026-11-20T14:46:39.123Z WARN  server: cannot accept on=/x\n"
        );
        assert_eq!(format_line(None, Level::Warn, "wherry::agent", "x"), "<4>agent: x\n");
        assert_eq!(format_line(None, Level::Error, "h2::frame", "x"), "<3>h2: x\n");
        assert_eq!(
            format_line(None, Level::Info, "wherry", "a\n<0>b\u{1b}[m\u{9b}\u{202e}\n"),
            "<6>wherry: a\\n<0>b\\x1b[m\\u{9b}\\u{202e}\n"
        );
    }

    #[test]
    fn a_full_pipe_drops_lines_and_reports_their_number_once_it_is_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut writer = LineWriter { out: ours, untold: 0 };
        let before = dropped();
        let line = [b"x".repeat(999), b"\n".to_vec()].concat();
        let mut written = 0;
        while writer.untold < 7 {
            writer.write_all(&line).unwrap();
            written += 1;
            assert!(written < 100_000);
        }
        assert!(dropped() - before >= 7);
        theirs.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut seen = Vec::new();
        let _ = theirs.read_to_end(&mut seen);
        assert_eq!(seen.len(), (written - 7) * 1000);
        writer.write_all(b"again\n").unwrap();
        let mut seen = Vec::new();
        let _ = theirs.read_to_end(&mut seen);
        assert_eq!(
            String::from_utf8(seen).unwrap(),
            "wherry: dropped log lines because stderr was not read count=7\nagain\n"
        );
    }

    #[test]
    fn a_long_line_is_cut_and_a_broken_pipe_is_survived() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut writer = LineWriter { out: ours, untold: 0 };
        for before in ["", "x", "xx"] {
            writer.write_all(format!("{before}{}", "\u{20ac}".repeat(5000)).as_bytes()).unwrap();
            let mut buffer = [0; 8192];
            let n = theirs.read(&mut buffer).unwrap();
            assert!(n <= MAX_LINE && buffer[..n].ends_with(b"...\n"), "{n}");
            assert!(std::str::from_utf8(&buffer[..n]).is_ok());
        }
        drop(theirs);
        writer.write_all(b"lost\n").unwrap();
        writer.write_all(b"lost\n").unwrap();
        assert_eq!(writer.untold, 2);
    }

    #[test]
    fn a_persistent_error_is_logged_at_most_once_a_minute() {
        let mut standing = LogDeduplicator::new();
        let at = |s: u64| Boot(0) + Duration::from_secs(s);
        assert_eq!(standing.repetitions("a", at(0)), Some(0));
        assert_eq!(standing.repetitions("a", at(1)), None);
        assert_eq!(standing.repetitions("b", at(1)), Some(0));
        assert_eq!(standing.repetitions("a", at(59)), None);
        assert_eq!(standing.repetitions("a", at(60)), Some(2));
        assert_eq!(standing.repetitions("a", at(61)), None);
        for i in 0..1000 {
            standing.repetitions(&format!("k{i}"), at(100 + i));
        }
        assert!(standing.logged.len() <= MAX_KEYS);
    }
}
