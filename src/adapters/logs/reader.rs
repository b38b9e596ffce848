//! The log of one container, from where one wants it to its end, or on and on: into the files that rotation makes, and
//! into those of the next instances when the container is started again.

use super::files::{self, Identity};
use super::print::{Joiner, Printer, Stop};
use super::tail;
use crate::foreign::{self, Links, Refused};
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// One file to be read, open, so that it can be renamed and removed meanwhile.
struct Part {
    path: PathBuf,
    identity: Identity,
    content: Content,
    /// Lines to be left out first (where one cannot seek).
    skip: u64,
}

enum Content {
    Plain(BufReader<File>),
    Compressed(Box<BufReader<MultiGzDecoder<BufReader<File>>>>),
}

pub struct Reader {
    directory: PathBuf,
    instance: u32,
    /// To be read, the oldest first; the last one may grow.
    parts: VecDeque<Part>,
    /// Of the first part, read and without its newline yet.
    pending: Vec<u8>,
    joiner: Joiner,
}

/// How far a reader got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing more is there now.
    End,
    /// The directory with its logs is gone, and all that was open is read.
    Gone,
}

impl Reader {
    /// The log of an instance: all of it, or its last lines, without files that were last written before `since`.
    ///
    /// # Errors
    /// If there is none, or it cannot be read: which file, and why.
    pub fn open(
        directory: &Path,
        instance: u32,
        lines: Option<u64>,
        since: Option<Timestamp>,
    ) -> Result<Reader, String> {
        let mut parts = VecDeque::new();
        let mut wanted = lines;
        let all = files::of_instance(directory, instance);
        if all.is_empty() {
            let path = directory.join(format!("{instance}.log"));
            return Err(format!("{}: there is no log", path.display()));
        }
        for path in all.into_iter().rev() {
            // The newest is opened whatever was asked for: more may come.
            if wanted == Some(0) && !parts.is_empty() {
                break;
            }
            let wrong = |e: io::Error| format!("{}: {e}", path.display());
            let (mut part, changed) = match Part::open(&path) {
                // It was rotated or removed a moment ago.
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
        Ok(Reader { directory: directory.to_owned(), instance, parts, pending: Vec::new(), joiner: Joiner::default() })
    }

    /// Prints what there is, to its end.
    pub fn print(&mut self, printer: &mut Printer<'_>) -> Result<(), Stop> {
        while !self.parts.is_empty() {
            self.print_first(printer)?;
            self.leave_first(printer)?;
        }
        self.joiner.flush(printer)
    }

    /// Prints what has come since, going on to the next file once there is one.
    pub fn follow(&mut self, printer: &mut Printer<'_>) -> Result<Progress, Stop> {
        loop {
            self.print_first(printer)?;
            if self.parts.len() > 1 {
                self.leave_first(printer)?;
                continue;
            }
            let Some((next, instance)) = self.successor() else {
                return Ok(if self.directory.is_dir() { Progress::End } else { Progress::Gone });
            };
            // What was written to the old one until the runtime turned to the new one.
            self.print_first(printer)?;
            let part = match Part::open(&next) {
                Ok((part, _)) => part,
                // Gone again: whatever comes then is a change too.
                Err(_) => return Ok(Progress::End),
            };
            self.leave_first(printer)?;
            if instance != self.instance {
                self.joiner.flush(printer)?;
                self.instance = instance;
            }
            self.parts.push_back(part);
        }
    }

    /// Nothing more will come.
    pub fn finish(&mut self, printer: &mut Printer<'_>) -> Result<(), Stop> {
        self.follow(printer)?;
        self.print(printer)
    }

    /// The lines of the first part, as far as it goes now.
    fn print_first(&mut self, printer: &mut Printer<'_>) -> Result<(), Stop> {
        let Some(part) = self.parts.front_mut() else { return Ok(()) };
        let wrong = |e: io::Error| Stop::Log(format!("{}: {e}", part.path.display()));
        loop {
            let more = match &mut part.content {
                Content::Plain(r) => tail::read_line(r, &mut self.pending),
                Content::Compressed(r) => tail::read_line(r, &mut self.pending),
            };
            if !more.map_err(wrong)? {
                return Ok(());
            }
            let whole = self.pending.last() == Some(&b'\n');
            // (A line too long for any runtime is printed in pieces.)
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

    /// The first part is read to its end, and does not grow.
    fn leave_first(&mut self, printer: &mut Printer<'_>) -> Result<(), Stop> {
        self.parts.pop_front();
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() { Ok(()) } else { self.joiner.line(&rest, printer) }
    }

    /// The file after the one that is being read, once the runtime writes to it, and its instance.
    fn successor(&self) -> Option<(PathBuf, u32)> {
        let mine = self.parts.front().map(|p| p.identity);
        let known = |path: &Path| std::fs::metadata(path).ok().map(|m| (Identity::of(&m), m.len()));
        let files = files::of_instance(&self.directory, self.instance);
        let at = files.iter().position(|path| known(path).map(|(id, _)| id) == mine);
        // One that is no longer there was compressed or removed; what is not compressed is newer.
        let mut rest: Vec<(PathBuf, u32)> = match at {
            Some(at) => files.into_iter().skip(at + 1).map(|p| (p, self.instance)).collect(),
            None => files.into_iter().filter(|p| !files::is_compressed(p)).map(|p| (p, self.instance)).collect(),
        };
        let later = files::instances(&self.directory).into_iter().filter(|i| *i > self.instance);
        rest.extend(later.flat_map(|i| files::of_instance(&self.directory, i).into_iter().map(move |p| (p, i))));
        let only = rest.len() == 1;
        let (path, instance) = rest.into_iter().next()?;
        // After a rename the runtime goes on writing to the old file until it has opened the new one; not so where the
        // instance is over, or one more file has come since.
        let written = instance != self.instance || !only || known(&path).is_some_and(|(_, length)| length > 0);
        written.then_some((path, instance))
    }
}

impl Part {
    /// With the time of its last change.
    fn open(path: &Path) -> io::Result<(Part, Timestamp)> {
        // (A runtime's log is a regular file; a FIFO in its place would have the command wait.)
        let file = foreign::open(path, Links::Follow).map_err(|e| match e {
            Refused::Failed(e) => e,
            refused => io::Error::other(refused.to_string()),
        })?;
        let metadata = file.metadata()?;
        let changed = Timestamp::try_from(metadata.modified()?).unwrap_or(Timestamp::MAX);
        let identity = Identity::of(&metadata);
        let content = content(path, file);
        Ok((Part { path: path.to_owned(), identity, content, skip: 0 }, changed))
    }

    /// Leaves out all but the last lines; how many there are.
    fn keep_last(&mut self, lines: u64) -> io::Result<u64> {
        match &mut self.content {
            Content::Plain(reader) => {
                let end = reader.seek(SeekFrom::End(0))?;
                let (start, found) = tail::start_of_last(reader.get_mut(), end, lines)?;
                reader.seek(SeekFrom::Start(start))?;
                Ok(found)
            }
            // It can only be read forwards: once to count, once to show.
            Content::Compressed(reader) => {
                let all = tail::count(reader)?;
                let found = all.min(lines);
                let mut file = reader.get_ref().get_ref().get_ref().try_clone()?;
                file.rewind()?;
                self.content = content(&self.path, file);
                self.skip = all - found;
                Ok(found)
            }
        }
    }
}

fn content(path: &Path, file: File) -> Content {
    let reader = BufReader::new(file);
    if files::is_compressed(path) {
        Content::Compressed(Box::new(BufReader::new(MultiGzDecoder::new(reader))))
    } else {
        Content::Plain(reader)
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

        /// The numbers of the lines printed.
        fn print(&self, instance: u32, tail: Option<u64>, since: Option<&str>) -> Vec<u32> {
            let since = since.map(|s| s.parse().unwrap());
            let mut out = Vec::new();
            let mut printer = Printer { out: &mut out, since, timestamps: false, left: None };
            Reader::open(self.dir.path(), instance, tail, since).unwrap().print(&mut printer).unwrap();
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
    fn a_time_goes_back_through_rotated_files_too() {
        let log = rotated();
        assert_eq!(log.print(1, None, Some("2026-11-20T14:02:30Z")), (150..300).collect::<Vec<_>>());
        assert_eq!(log.print(1, None, Some("2026-11-20T14:01:00Z")), (60..300).collect::<Vec<_>>());
        // The tail first, as a kubelet does.
        assert_eq!(log.print(1, Some(10), Some("2026-11-20T14:01:00Z")), (290..300).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_there_is_told() {
        let log = Log::new();
        let Err(e) = Reader::open(log.dir.path(), 3, None, None) else { panic!("opened") };
        assert!(e.ends_with("3.log: there is no log"), "{e}");
    }

    /// Follows, and says which lines came at each look.
    struct Following {
        reader: Reader,
    }

    impl Following {
        fn look(&mut self) -> (Vec<u32>, Progress) {
            let mut out = Vec::new();
            let mut printer = Printer { out: &mut out, since: None, timestamps: false, left: None };
            let progress = self.reader.follow(&mut printer).unwrap();
            (numbers(&out), progress)
        }

        fn lines(&mut self) -> Vec<u32> {
            self.look().0
        }
    }

    fn follow(log: &Log, instance: u32, tail: u64) -> Following {
        Following { reader: Reader::open(log.dir.path(), instance, Some(tail), None).unwrap() }
    }

    #[test]
    fn what_is_written_comes_when_its_line_is_whole() {
        let log = Log::new();
        log.append("0.log", &lines(0, 5));
        let mut following = follow(&log, 0, 2);
        assert_eq!(following.look(), (vec![3, 4], Progress::End));
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
    fn several_rotations_and_restarts_between_two_looks_lose_nothing() {
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
        assert_eq!(following.look(), (vec![5], Progress::Gone));
    }

    #[test]
    fn a_last_line_without_its_end_is_shown_once_nothing_more_comes() {
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
}
