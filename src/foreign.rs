//! Paths that Wherry does not own: files of the operator, of the host, of containers. What is at such a path is unknown (a
//! FIFO, a device, a file of a terabyte), and its file system may hang, as an NFS mount whose server is gone.
//!
//! `open` and `read` refuse everything but a regular file before they open it. No flag of open(2) makes a hung file system
//! answer, so the caller must be able to wait: a helper thread of the agent, or, in a command, a thread of `ask`.

use rustix::fs::{FileType, Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Whether a symbolic link at the end of the path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Follow,
    Refuse,
}

/// Why nothing was read.
#[derive(Debug)]
pub enum Refused {
    /// It is not a regular file, and was not opened.
    Kind(FileType),
    /// Longer than the limit; both in bytes.
    Size {
        size: u64,
        limit: u64,
    },
    Failed(io::Error),
}

impl Refused {
    pub fn is_missing(&self) -> bool {
        matches!(self, Refused::Failed(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Kind(kind) => write!(f, "{}, not a regular file", name_of(*kind)),
            Refused::Size { size, limit } => write!(f, "{size} bytes, and at most {limit} are read"),
            Refused::Failed(e) => e.fmt(f),
        }
    }
}

impl From<rustix::io::Errno> for Refused {
    fn from(e: rustix::io::Errno) -> Refused {
        Refused::Failed(e.into())
    }
}

/// Opens a regular file for reading. To open a FIFO or a device can have effects (a FIFO's writer loses what it writes), so
/// the type is looked at before, and once more after, in case that the path has changed in between.
pub fn open(path: &Path, links: Links) -> Result<File, Refused> {
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let stat = match links {
        Links::Follow => rustix::fs::stat(path)?,
        Links::Refuse => {
            flags |= OFlags::NOFOLLOW;
            rustix::fs::lstat(path)?
        }
    };
    regular(stat.st_mode)?;
    let fd = rustix::fs::open(path, flags, Mode::empty())?;
    regular(rustix::fs::fstat(&fd)?.st_mode)?;
    Ok(File::from(fd))
}

/// The content of a regular file of at most `limit` bytes.
pub fn read(path: &Path, links: Links, limit: u64) -> Result<Vec<u8>, Refused> {
    let file = open(path, links)?;
    let size = file.metadata().map_err(Refused::Failed)?.len();
    if size > limit {
        return Err(Refused::Size { size, limit });
    }
    read_up_to(file, limit)
}

/// What a source gives until its end, at most `limit` bytes.
pub fn read_up_to(source: impl Read, limit: u64) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    source.take(limit + 1).read_to_end(&mut bytes).map_err(Refused::Failed)?;
    let size = bytes.len() as u64;
    if size > limit { Err(Refused::Size { size, limit }) } else { Ok(bytes) }
}

fn regular(mode: u32) -> Result<(), Refused> {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(()),
        kind => Err(Refused::Kind(kind)),
    }
}

/// The type of a file, for people.
pub fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown type",
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// None came in time. The thread is left behind: nothing can end one that hangs in the kernel but the process's end.
    Late(Duration),
    NoThread(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Late(waited) => write!(f, "no answer for {} s: the file system hangs", waited.as_secs()),
            NoAnswer::NoThread(why) => write!(f, "start a thread to look at it: {why}"),
        }
    }
}

/// A question that a thread works on.
pub struct Asked<T> {
    began: Instant,
    answer: Result<Receiver<T>, String>,
}

/// Does the work in a thread of its own. For commands, and for the agent before its loop runs.
pub fn ask<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
    let (send, answer) = channel();
    let spawned = thread::Builder::new().name("question".to_owned()).spawn(move || {
        // (Nobody waits any more if this fails.)
        let _ = send.send(work());
    });
    Asked { began: Instant::now(), answer: spawned.map(|_| answer).map_err(|e| e.to_string()) }
}

/// The work's result, if it comes within `patience`.
pub fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoAnswer> {
    ask(work).answer(patience)
}

impl<T> Asked<T> {
    /// Waits until `patience` after the question. Of several questions each can be given the same patience: they are
    /// worked on side by side.
    pub fn answer(self, patience: Duration) -> Result<T, NoAnswer> {
        let answer = self.answer.map_err(NoAnswer::NoThread)?;
        answer.recv_timeout(patience.saturating_sub(self.began.elapsed())).map_err(|e| match e {
            RecvTimeoutError::Timeout => NoAnswer::Late(patience),
            RecvTimeoutError::Disconnected => NoAnswer::NoThread("it ended without an answer".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::os::unix::net::UnixListener;

    const LIMIT: u64 = 10;

    fn said(path: &Path, links: Links) -> String {
        read(path, links, LIMIT).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_are_opened_and_read_up_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "0123456789").unwrap();
        std::fs::write(at("long"), "0123456789x").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("to-device")).unwrap();
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        assert_eq!(read(&at("file"), Links::Refuse, LIMIT).unwrap(), b"0123456789");
        assert_eq!(read(&at("link"), Links::Follow, LIMIT).unwrap(), b"0123456789");
        assert_eq!(said(&at("link"), Links::Refuse), "a symbolic link, not a regular file");
        assert_eq!(said(&at("long"), Links::Follow), "11 bytes, and at most 10 are read");
        for (name, kind) in [("fifo", "a FIFO"), ("socket", "a socket"), ("to-device", "a device"), ("", "a directory")]
        {
            assert_eq!(said(&at(name), Links::Follow), format!("{kind}, not a regular file"));
        }
        assert!(read(&at("none"), Links::Follow, LIMIT).unwrap_err().is_missing());
        // (Files of /proc say that they are empty.)
        assert!(matches!(read(Path::new("/proc/self/status"), Links::Follow, LIMIT), Err(Refused::Size { .. })));
    }

    #[test]
    fn a_fifo_keeps_its_writer_and_what_it_writes() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let writer = thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::write(fifo, "kept")
        });
        // It waits in open(2) for a reader. (If it is slow to begin, there is nothing to lose yet.)
        thread::sleep(Duration::from_millis(200));
        for _ in 0..3 {
            assert!(matches!(read(&fifo, Links::Follow, LIMIT), Err(Refused::Kind(FileType::Fifo))));
        }
        let reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        writer.join().unwrap().expect("the writer has found a reader that reads");
        assert_eq!(read_up_to(File::from(reader), LIMIT).unwrap(), b"kept");
    }

    #[test]
    fn a_question_without_an_answer_ends_and_others_are_answered_beside_it() {
        let (release, hang) = channel::<()>();
        let began = Instant::now();
        let hung = ask(move || {
            let _ = hang.recv();
        });
        assert_eq!(within(Duration::from_secs(60), || 7), Ok(7));
        assert_eq!(hung.answer(Duration::from_millis(50)), Err(NoAnswer::Late(Duration::from_millis(50))));
        assert!(began.elapsed() < Duration::from_secs(60));
        drop(release);
    }
}
