//! Reads paths that Wherry does not own: files of the operator, of the host, or of containers. Such a path can be
//! anything (a FIFO, a device, a terabyte-sized file), and its file system can hang, for example an NFS mount whose
//! server is gone.
//!
//! `open` and `read` refuse everything except a regular file before they open it. No flag of open(2) avoids a hang of
//! the file system, so they must run where blocking is harmless: the agent uses a helper thread, a command uses
//! `start` or `within`.

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

/// Why a file was not read.
#[derive(Debug)]
pub enum Refused {
    /// The path is not a regular file.
    Kind(FileType),
    /// The file is larger than the limit. Both values are in bytes.
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
            Refused::Size { size, limit } => write!(f, "{size} bytes, larger than the limit of {limit}"),
            Refused::Failed(e) => e.fmt(f),
        }
    }
}

impl From<rustix::io::Errno> for Refused {
    fn from(e: rustix::io::Errno) -> Refused {
        Refused::Failed(e.into())
    }
}

/// Opens a regular file for reading. Opening a FIFO or a device can have side effects (a FIFO's writer loses its data).
/// Therefore, the type is checked before the open, and again afterwards in case the path has changed in between.
///
/// # Errors
/// `Refused::Kind` if the path is not a regular file, otherwise the error of stat(2) or open(2).
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

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// The errors of `open`, `Refused::Size` if the file is larger, or a read error.
pub fn read(path: &Path, links: Links, limit: u64) -> Result<Vec<u8>, Refused> {
    let file = open(path, links)?;
    let size = file.metadata().map_err(Refused::Failed)?.len();
    if size > limit {
        return Err(Refused::Size { size, limit });
    }
    read_up_to(file, limit)
}

/// Reads a source of at most `limit` bytes to its end.
///
/// # Errors
/// `Refused::Size` (with a size of `limit + 1`) if the source is longer, or a read error.
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

/// Returns the name of a file type with its article, for messages.
pub fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "a file of an unknown type",
    }
}

/// Why work in a separate thread has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// There was no result within this time. The thread is left behind: a thread that hangs in the kernel ends only
    /// with the process.
    Late(Duration),
    NoThread(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Late(waited) => write!(f, "no response for {} s: the file system hangs", waited.as_secs()),
            NoAnswer::NoThread(why) => write!(f, "failed to run a helper thread: {why}"),
        }
    }
}

/// Work that runs in a thread of its own.
pub struct Running<T> {
    began: Instant,
    answer: Result<Receiver<T>, NoAnswer>,
}

/// Starts the work in a separate thread. For commands, and for the agent before its loop runs.
pub fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
    let (send, answer) = channel();
    let spawned = thread::Builder::new().name("question".to_owned()).spawn(move || {
        // If this fails, the caller has stopped waiting.
        let _ = send.send(work());
    });
    Running { began: Instant::now(), answer: spawned.map(|_| answer).map_err(|e| NoAnswer::NoThread(e.to_string())) }
}

/// Runs the work in a separate thread and waits at most `patience` for its result.
///
/// # Errors
/// No result in time, or the thread failed.
pub fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoAnswer> {
    start(work).answer(patience)
}

impl<T> Running<T> {
    /// Waits for the result until `patience` after the call of `start`. Several pieces of work run in parallel, so
    /// each can have the same `patience`.
    ///
    /// # Errors
    /// No result in time, or the thread failed.
    pub fn answer(self, patience: Duration) -> Result<T, NoAnswer> {
        let answer = self.answer?;
        answer.recv_timeout(patience.saturating_sub(self.began.elapsed())).map_err(|e| match e {
            RecvTimeoutError::Timeout => NoAnswer::Late(patience),
            RecvTimeoutError::Disconnected => NoAnswer::NoThread("it ended without a response".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::os::unix::net::UnixListener;

    const LIMIT: u64 = 10;

    fn error_of(path: &Path, links: Links) -> String {
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
        assert_eq!(error_of(&at("link"), Links::Refuse), "a symbolic link, not a regular file");
        assert_eq!(error_of(&at("long"), Links::Follow), "11 bytes, larger than the limit of 10");
        for (name, kind) in [("fifo", "a FIFO"), ("socket", "a socket"), ("to-device", "a device"), ("", "a directory")]
        {
            assert_eq!(error_of(&at(name), Links::Follow), format!("{kind}, not a regular file"));
        }
        assert!(read(&at("none"), Links::Follow, LIMIT).unwrap_err().is_missing());
        // Files in /proc report a size of 0.
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
        // The writer blocks in open(2) until a reader opens the FIFO. If it has not started yet, no data can be lost.
        thread::sleep(Duration::from_millis(200));
        for _ in 0..3 {
            assert!(matches!(read(&fifo, Links::Follow, LIMIT), Err(Refused::Kind(FileType::Fifo))));
        }
        let reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        writer.join().unwrap().expect("the writer's data is read");
        assert_eq!(read_up_to(File::from(reader), LIMIT).unwrap(), b"kept");
    }

    #[test]
    fn a_call_without_an_answer_times_out_and_does_not_delay_others() {
        let (release, hang) = channel::<()>();
        let began = Instant::now();
        let hung = start(move || {
            let _ = hang.recv();
        });
        assert_eq!(within(Duration::from_secs(60), || 7), Ok(7));
        assert_eq!(hung.answer(Duration::from_millis(50)), Err(NoAnswer::Late(Duration::from_millis(50))));
        assert!(began.elapsed() < Duration::from_secs(60));
        drop(release);
    }
}
