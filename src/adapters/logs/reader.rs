//! Reads the log of one container to its end, or follows it across rotated files and into the files of later instances
//! when the container restarts.

use super::files::{self, Identity};
use super::print::{Joiner, Printer, Stop};
use super::tail;
use crate::foreign::{self, Links, Refused};
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// An open log file. It stays readable when it is renamed or removed.
struct LogFile {
    path: PathBuf,
    identity: Identity,
    content: LogContent,
    /// The number of lines to skip first, for a compressed file, which cannot seek.
    skip: u64,
}

enum LogContent {
    /// `left`: how many of the bytes that the file had when it was opened remain to be printed. `u64::MAX` if the file
    /// is followed.
    Plain {
        file: BufReader<File>,
        left: u64,
    },
    Compressed(Box<BufReader<MultiGzDecoder<BufReader<File>>>>),
}

pub struct LogReader {
    directory: PathBuf,
    instance: u32,
    /// The files that are still to be read, the oldest first. The last one may grow.
    parts: VecDeque<LogFile>,
    /// The start of a line in the first part. The newline of this line has not been read yet.
    pending: Vec<u8>,
    joiner: Joiner,
    budget: Budget,
}

/// How much one call of the reader reads.
#[derive(Clone, Copy, Debug)]
enum Budget {
    Unlimited,
    /// The budget in bytes, and the part of it that the current call has used.
    Bytes(usize, usize),
}

/// The result of `LogReader::follow` and `LogReader::print`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// The end of the log is reached for now.
    End,
    /// The budget of a call is used up (`LogReader::limit`).
    Paused,
    /// The log directory is gone, and all open files have been read.
    Gone,
}

impl LogReader {
    /// Opens the log of an instance: all of it, or the last `lines` lines, without files last written before `since`.
    ///
    /// # Errors
    /// There is no log, or it cannot be read. The error names the file.
    pub fn open(
        directory: &Path,
        instance: u32,
        lines: Option<u64>,
        since: Option<Timestamp>,
    ) -> Result<LogReader, String> {
        let mut parts = VecDeque::new();
        let mut wanted = lines;
        let all = files::of_instance(directory, instance);
        if all.is_empty() {
            let path = directory.join(format!("{instance}.log"));
            return Err(format!("{}: there is no log", path.display()));
        }
        for path in all.into_iter().rev() {
            // The newest file is always opened, because it may grow.
            if wanted == Some(0) && !parts.is_empty() {
                break;
            }
            let wrong = |e: io::Error| format!("{}: {e}", path.display());
            let (mut part, changed) = match LogFile::open(&path) {
                // The file was rotated or removed a moment ago.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(wrong)?,
            };
            if !parts.is_empty() && since.is_some_and(|since| changed < since) {
                break;
            }
            if let Some(wanted) = &mut wanted {
                let found = part.keep_last(*wanted).map_err(wrong)?;
                *wanted -= found;
            }
            parts.push_front(part);
        }
        let (pending, joiner) = (Vec::new(), Joiner::default());
        Ok(LogReader { directory: directory.to_owned(), instance, parts, pending, joiner, budget: Budget::Unlimited })
    }

    /// Limits each further call to about this number of bytes, for a caller that must not be blocked for long.
    pub fn limit(&mut self, bytes: usize) {
        self.budget = Budget::Bytes(bytes, 0);
    }

    fn begin_call(&mut self) {
        if let Budget::Bytes(_, used) = &mut self.budget {
            *used = 0;
        }
    }

    /// Counts bytes. Reports whether the call has used up its budget.
    fn is_used_up(&mut self, bytes: usize) -> bool {
        match &mut self.budget {
            Budget::Unlimited => false,
            Budget::Bytes(limit, used) => {
                *used += bytes;
                used >= limit
            }
        }
    }

    /// Prints the log up to the end that it had at the time of `open`. The last N lines are therefore N lines even if
    /// the container writes more. After a `follow`, prints up to the current end.
    ///
    /// # Errors
    /// `Stop`: the output failed, a log cannot be read, or the requested number of bytes has been printed.
    pub fn print(&mut self, printer: &mut Printer<'_>) -> Result<ReadProgress, Stop> {
        self.begin_call();
        while !self.parts.is_empty() {
            if self.print_first(printer)? == ReadProgress::Paused {
                return Ok(ReadProgress::Paused);
            }
            self.leave_first(printer)?;
        }
        self.joiner.flush(printer)?;
        Ok(ReadProgress::End)
    }

    /// Prints the lines written since the last call, and continues in the next file when there is one.
    ///
    /// # Errors
    /// `Stop`: the output failed, a log cannot be read, or the requested number of bytes has been printed.
    pub fn follow(&mut self, printer: &mut Printer<'_>) -> Result<ReadProgress, Stop> {
        self.begin_call();
        loop {
            self.parts.iter_mut().for_each(LogFile::follow);
            if self.print_first(printer)? == ReadProgress::Paused {
                return Ok(ReadProgress::Paused);
            }
            if self.parts.len() > 1 {
                self.leave_first(printer)?;
                continue;
            }
            let Some((next, instance)) = self.successor() else {
                return Ok(if self.directory.is_dir() { ReadProgress::End } else { ReadProgress::Gone });
            };
            // The runtime wrote these lines to the old file before it opened the new one.
            if self.print_first(printer)? == ReadProgress::Paused {
                return Ok(ReadProgress::Paused);
            }
            let part = match LogFile::open(&next) {
                Ok((part, _)) => part,
                // The new file is already gone. A later file causes another change.
                Err(_) => return Ok(ReadProgress::End),
            };
            self.leave_first(printer)?;
            if instance != self.instance {
                self.joiner.flush(printer)?;
                self.instance = instance;
            }
            self.parts.push_back(part);
        }
    }

    /// Prints the rest of a log that no longer grows.
    ///
    /// # Errors
    /// `Stop`: the output failed, a log cannot be read, or the requested number of bytes has been printed.
    pub fn finish(&mut self, printer: &mut Printer<'_>) -> Result<ReadProgress, Stop> {
        match self.follow(printer)? {
            ReadProgress::Paused => Ok(ReadProgress::Paused),
            ReadProgress::End | ReadProgress::Gone => self.print(printer),
        }
    }

    /// Prints the lines of the first part, to its end or until the budget is used up.
    fn print_first(&mut self, printer: &mut Printer<'_>) -> Result<ReadProgress, Stop> {
        loop {
            if self.is_used_up(0) {
                return Ok(ReadProgress::Paused);
            }
            let Some(part) = self.parts.front_mut() else { return Ok(ReadProgress::End) };
            let wrong = |e: io::Error| Stop::Log(format!("{}: {e}", part.path.display()));
            let before = self.pending.len();
            let more = match &mut part.content {
                LogContent::Plain { file, left } => {
                    let more = tail::read_line(&mut file.take(*left), &mut self.pending);
                    *left = left.saturating_sub((self.pending.len() - before) as u64);
                    more
                }
                LogContent::Compressed(r) => tail::read_line(r, &mut self.pending),
            };
            if !more.map_err(wrong)? {
                return Ok(ReadProgress::End);
            }
            let read = self.pending.len() - before;
            self.is_used_up(read);
            let Some(part) = self.parts.front_mut() else { return Ok(ReadProgress::End) };
            let whole = self.pending.last() == Some(&b'\n');
            // A line that is longer than any runtime writes is printed in pieces.
            if !whole && self.pending.len() < 1 << 20 {
                continue;
            }
            let line = self.pending.strip_suffix(b"\n").unwrap_or(&self.pending);
            if part.skip > 0 {
                let partial = crate::api::log_line::parse(line).is_some_and(|l| l.partial);
                part.skip -= u64::from(!partial);
            } else {
                self.joiner.line(line, printer)?;
            }
            self.pending.clear();
        }
    }

    /// Removes the first part after it has been read to its end and no longer grows.
    fn leave_first(&mut self, printer: &mut Printer<'_>) -> Result<(), Stop> {
        self.parts.pop_front();
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() { Ok(()) } else { self.joiner.line(&rest, printer) }
    }

    /// Returns the file after the current one, and its instance; None until the runtime writes to that file.
    fn successor(&self) -> Option<(PathBuf, u32)> {
        let mine = self.parts.front().map(|p| p.identity);
        let known = |path: &Path| std::fs::symlink_metadata(path).ok().map(|m| (Identity::of(&m), m.len()));
        let files = files::of_instance(&self.directory, self.instance);
        let at = files.iter().position(|path| known(path).map(|(id, _)| id) == mine);
        // If the current file is missing, it was compressed or removed. Files that are not compressed are newer.
        let mut rest: Vec<(PathBuf, u32)> = match at {
            Some(at) => files.into_iter().skip(at + 1).map(|p| (p, self.instance)).collect(),
            None => files.into_iter().filter(|p| !files::is_compressed(p)).map(|p| (p, self.instance)).collect(),
        };
        let later = files::instances(&self.directory).into_iter().filter(|i| *i > self.instance);
        rest.extend(later.flat_map(|i| files::of_instance(&self.directory, i).into_iter().map(move |p| (p, i))));
        let only = rest.len() == 1;
        let (path, instance) = rest.into_iter().next()?;
        // After a rename, the runtime writes to the old file until it opens the new one. The old file is complete if
        // the instance has ended or a further file exists.
        let written = instance != self.instance || !only || known(&path).is_some_and(|(_, length)| length > 0);
        written.then_some((path, instance))
    }
}

impl LogFile {
    /// Opens a log file. Also returns the time of its last change.
    fn open(path: &Path) -> io::Result<(LogFile, Timestamp)> {
        // L6: a runtime's log is a regular file. A FIFO in its place would block the reader, and a link could show any
        // file of the host to a user who may read logs.
        let file = foreign::open(path, Links::Refuse).map_err(|e| match e {
            Refused::Failed(e) => e,
            refused => io::Error::other(refused.to_string()),
        })?;
        let metadata = file.metadata()?;
        let changed = Timestamp::try_from(metadata.modified()?).unwrap_or(Timestamp::MAX);
        let identity = Identity::of(&metadata);
        let content = content(path, file, metadata.len());
        Ok((LogFile { path: path.to_owned(), identity, content, skip: 0 }, changed))
    }

    /// Makes further calls print the lines that are appended to the file from now on.
    fn follow(&mut self) {
        if let LogContent::Plain { left, .. } = &mut self.content {
            *left = u64::MAX;
        }
    }

    /// Skips all but the last `lines` lines. Returns the number of lines kept.
    fn keep_last(&mut self, lines: u64) -> io::Result<u64> {
        match &mut self.content {
            LogContent::Plain { file, left: length } => {
                let (start, found) = tail::start_of_last(file.get_mut(), *length, lines)?;
                file.seek(SeekFrom::Start(start))?;
                *length -= start;
                Ok(found)
            }
            // A compressed file can only be read forwards: once to count the lines, once to print them.
            LogContent::Compressed(reader) => {
                let all = tail::count(reader)?;
                let found = all.min(lines);
                let mut file = reader.get_ref().get_ref().get_ref().try_clone()?;
                file.rewind()?;
                self.content = content(&self.path, file, 0);
                self.skip = all - found;
                Ok(found)
            }
        }
    }
}

/// Returns the content of an open log file. `length`: the size of a file that is not compressed, in bytes.
fn content(path: &Path, file: File, length: u64) -> LogContent {
    let reader = BufReader::new(file);
    if files::is_compressed(path) {
        LogContent::Compressed(Box::new(BufReader::new(MultiGzDecoder::new(reader))))
    } else {
        LogContent::Plain { file: reader, left: length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    struct Log {
        dir: tempfile::TempDir,
    }

    fn lines(from: u32, to: u32) -> String {
        (from..to).map(|i| format!("2026-11-20T14:{:02}:{:02}.5Z stdout F line {i}\n", i / 60, i % 60)).collect()
    }

    impl Log {
        fn new() -> Log {
            Log { dir: tempfile::tempdir().unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn append(&self, name: &str, text: &str) {
            let mut file = File::options().create(true).append(true).open(self.path(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn compress(&self, name: &str, text: &str) {
            let file = File::create(self.path(name)).unwrap();
            let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            gz.write_all(text.as_bytes()).unwrap();
            gz.finish().unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            std::fs::rename(self.path(from), self.path(to)).unwrap();
        }

        /// Prints the log, and returns the numbers of the printed lines.
        fn print(&self, instance: u32, tail: Option<u64>, since: Option<&str>) -> Vec<u32> {
            let since = since.map(|s| s.parse().unwrap());
            let mut out = Vec::new();
            let mut printer = Printer { out: &mut out, since, timestamps: false, left: None };
            LogReader::open(self.dir.path(), instance, tail, since).unwrap().print(&mut printer).unwrap();
            numbers(&out)
        }
    }

    fn numbers(out: &[u8]) -> Vec<u32> {
        let text = std::str::from_utf8(out).unwrap();
        text.lines().map(|l| l.strip_prefix("line ").unwrap_or_else(|| panic!("{l:?}")).parse().unwrap()).collect()
    }

    fn rotated() -> Log {
        let log = Log::new();
        log.compress("1.log.20261120-140000.gz", &lines(0, 100));
        log.append("1.log.20261120-150000", &lines(100, 200));
        log.append("1.log", &lines(200, 300));
        log.append("0.log", &lines(900, 901));
        log
    }

    #[test]
    fn a_log_is_read_through_its_rotated_files() {
        let log = rotated();
        assert_eq!(log.print(1, None, None), (0..300).collect::<Vec<_>>());
        assert_eq!(log.print(0, None, None), [900]);
        for tail in [0, 1, 99, 100, 101, 200, 250, 299, 300, 1000] {
            let first = 300 - u32::try_from(tail).unwrap().min(300);
            assert_eq!(log.print(1, Some(tail), None), (first..300).collect::<Vec<_>>(), "{tail}");
        }
    }

    #[test]
    fn lines_written_after_the_opening_are_printed_only_to_a_follower() {
        let log = rotated();
        for (tail, expected) in [(Some(3), 297..300), (None, 0..300)] {
            let mut out = Vec::new();
            let mut printer = Printer { out: &mut out, since: None, timestamps: false, left: None };
            let mut reader = LogReader::open(log.dir.path(), 1, tail, None).unwrap();
            let before = std::fs::read(log.path("1.log")).unwrap();
            log.append("1.log", &lines(300, 302));
            reader.print(&mut printer).unwrap();
            assert_eq!(numbers(&out), expected.collect::<Vec<_>>());
            std::fs::write(log.path("1.log"), before).unwrap();
        }
        let mut out = Vec::new();
        let mut printer = Printer { out: &mut out, since: None, timestamps: false, left: None };
        let mut reader = LogReader::open(log.dir.path(), 1, Some(3), None).unwrap();
        log.append("1.log", &lines(300, 302));
        assert_eq!(reader.follow(&mut printer).unwrap(), ReadProgress::End);
        assert_eq!(numbers(&out), (297..302).collect::<Vec<_>>());
    }

    #[test]
    fn since_includes_rotated_files() {
        let log = rotated();
        assert_eq!(log.print(1, None, Some("2026-11-20T14:02:30Z")), (150..300).collect::<Vec<_>>());
        assert_eq!(log.print(1, None, Some("2026-11-20T14:01:00Z")), (60..300).collect::<Vec<_>>());
        // The tail applies first, as in a kubelet.
        assert_eq!(log.print(1, Some(10), Some("2026-11-20T14:01:00Z")), (290..300).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_log_is_reported() {
        let log = Log::new();
        let Err(e) = LogReader::open(log.dir.path(), 3, None, None) else { panic!("opened") };
        assert!(e.ends_with("3.log: there is no log"), "{e}");
    }

    /// Follows a log and returns the numbers of the new lines.
    struct Following {
        reader: LogReader,
    }

    impl Following {
        fn read_on(&mut self) -> (Vec<u32>, ReadProgress) {
            let mut out = Vec::new();
            let mut printer = Printer { out: &mut out, since: None, timestamps: false, left: None };
            let progress = self.reader.follow(&mut printer).unwrap();
            (numbers(&out), progress)
        }

        fn lines(&mut self) -> Vec<u32> {
            self.read_on().0
        }
    }

    fn follow(log: &Log, instance: u32, tail: u64) -> Following {
        Following { reader: LogReader::open(log.dir.path(), instance, Some(tail), None).unwrap() }
    }

    #[test]
    fn a_line_is_printed_when_it_is_complete() {
        let log = Log::new();
        log.append("0.log", &lines(0, 5));
        let mut following = follow(&log, 0, 2);
        assert_eq!(following.read_on(), (vec![3, 4], ReadProgress::End));
        assert!(following.lines().is_empty());
        let line = lines(5, 6);
        log.append("0.log", &line[..20]);
        assert!(following.lines().is_empty());
        log.append("0.log", &line[20..]);
        assert_eq!(following.lines(), [5]);
    }

    #[test]
    fn a_rotation_loses_nothing_though_the_old_file_is_still_written_to() {
        let log = Log::new();
        log.append("0.log", &lines(0, 2));
        let mut following = follow(&log, 0, 9);
        assert_eq!(following.lines(), [0, 1]);
        log.rename("0.log", "0.log.20261120-150000");
        assert!(following.lines().is_empty());
        log.append("0.log.20261120-150000", &lines(2, 3));
        log.append("0.log", "");
        assert_eq!(following.lines(), [2]);
        log.append("0.log.20261120-150000", &lines(3, 4));
        log.append("0.log", &lines(4, 5));
        assert_eq!(following.lines(), [3, 4]);
        log.append("0.log", &lines(5, 6));
        assert_eq!(following.lines(), [5]);
    }

    #[test]
    fn several_rotations_and_restarts_between_two_reads_lose_nothing() {
        let log = Log::new();
        log.append("0.log", &lines(0, 2));
        let mut following = follow(&log, 0, 9);
        assert_eq!(following.lines(), [0, 1]);
        log.append("0.log", &lines(2, 3));
        log.rename("0.log", "0.log.20261120-150000");
        log.append("0.log", &lines(3, 4));
        log.rename("0.log", "0.log.20261120-160000");
        log.append("0.log", "");
        log.append("1.log.20261120-170000", &lines(4, 5));
        log.append("1.log", &lines(5, 6));
        log.append("3.log", "");
        assert_eq!(following.lines(), [2, 3, 4, 5]);
        log.append("3.log", &lines(6, 7));
        assert_eq!(following.lines(), [6]);
    }

    #[test]
    fn a_file_that_was_compressed_or_removed_meanwhile_is_read_to_its_end() {
        let log = Log::new();
        log.append("0.log", &lines(0, 2));
        let mut following = follow(&log, 0, 9);
        assert_eq!(following.lines(), [0, 1]);
        log.append("0.log", &lines(2, 3));
        std::fs::remove_file(log.path("0.log")).unwrap();
        log.compress("0.log.20261120-150000.gz", &lines(0, 3));
        log.append("0.log.20261120-160000", &lines(3, 4));
        log.append("0.log", &lines(4, 5));
        assert_eq!(following.lines(), [2, 3, 4]);
        log.append("0.log", &lines(5, 6));
        std::fs::remove_dir_all(log.dir.path()).unwrap();
        assert_eq!(following.read_on(), (vec![5], ReadProgress::Gone));
    }

    #[test]
    fn an_incomplete_last_line_is_printed_when_the_log_has_ended() {
        let log = Log::new();
        log.append("0.log", &format!("{}2026-11-20T14:46:39Z stdout F line 7", lines(0, 1)));
        let mut following = follow(&log, 0, 9);
        assert_eq!(following.lines(), [0]);
        log.append("1.log", &lines(8, 9));
        assert_eq!(following.lines(), [7, 8]);
        log.append("1.log", "2026-11-20T14:46:39Z stdout P line 9");
        assert!(following.lines().is_empty());
        let mut out = Vec::new();
        let mut printer = Printer { out: &mut out, since: None, timestamps: false, left: None };
        following.reader.finish(&mut printer).unwrap();
        assert_eq!(numbers(&out), [9]);
    }

    #[test]
    fn l6_a_log_that_is_replaced_by_something_else_is_not_read() {
        let make: [fn(&Path); 3] = [
            |path| std::os::unix::fs::symlink("/etc/hostname", path).unwrap(),
            |path| rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap(),
            |path| std::fs::create_dir(path).unwrap(),
        ];
        for make in make {
            let log = Log::new();
            make(&log.path("0.log"));
            let Err(why) = LogReader::open(log.dir.path(), 0, None, None) else { panic!("it is opened") };
            assert!(why.contains("0.log: ") && why.ends_with(", not a regular file"), "{why}");
            // The file is replaced while the log is followed.
            let log = Log::new();
            log.append("0.log", &lines(0, 1));
            let mut reader = LogReader::open(log.dir.path(), 0, None, None).unwrap();
            let mut out = Vec::new();
            let mut printer = Printer { out: &mut out, since: None, timestamps: false, left: None };
            assert_eq!(reader.follow(&mut printer).unwrap(), ReadProgress::End);
            std::fs::remove_file(log.path("0.log")).unwrap();
            make(&log.path("0.log"));
            make(&log.path("1.log"));
            assert_eq!(reader.follow(&mut printer).unwrap(), ReadProgress::End);
            assert_eq!(String::from_utf8(out).unwrap(), "line 0\n");
        }
    }
}
