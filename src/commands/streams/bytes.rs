//! The output of a session as a blocking reader, and its input as a blocking writer, for `wherry cp`.

use super::session::{End, Output, Session};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Maximum length of stderr that is kept, in bytes.
const MAX_STDERR: usize = 4096;
/// Maximum length of the input that has not been sent yet, in bytes.
const MAX_QUEUED: usize = 256 * 1024;
/// Maximum amount of output that is dropped while waiting for the end of the process, in bytes. Some extra output is
/// normal: tar pads the last record of its archive to 10 kB.
const MAX_DROPPED: usize = 4 << 20;

/// Maximum time from the end of the output to the result. The limit is needed because containerd 1.6 never reports the
/// result of a command that ends while more input is unread than fits into a pipe (64 kB).
const RESULT: Duration = Duration::from_secs(5);

/// A session whose output is read, or whose input is written.
pub struct Bytes {
    session: Session,
    stdout: Vec<u8>,
    /// The number of bytes of `stdout` that were read.
    at: usize,
    stderr: Vec<u8>,
    /// The number of bytes of output that were dropped (see `MAX_DROPPED`).
    dropped: usize,
}

impl Bytes {
    pub fn new(session: Session) -> Bytes {
        Bytes { session, stdout: Vec::new(), at: 0, stderr: Vec::new(), dropped: 0 }
    }

    /// Reports whether the process has ended, or has at least closed its output.
    pub fn has_ended(&self) -> bool {
        self.session.end().is_some() || self.session.has_no_output()
    }

    /// Waits for the end of the process. Returns its result (None if the runtime does not report it) and the
    /// beginning of its stderr. The rest of its output is dropped.
    ///
    /// # Errors
    /// The connection is lost, or the process keeps writing.
    pub fn finish(mut self) -> io::Result<(Option<End>, String)> {
        self.session.close_stdin();
        let mut deadline = None;
        loop {
            let now = Instant::now();
            if self.session.has_no_output() {
                deadline.get_or_insert(now + RESULT);
            }
            let late = deadline.is_some_and(|deadline| deadline <= now);
            if let (true, _) | (_, Some(_)) = (late, self.session.end()) {
                return Ok((self.session.end().cloned(), String::from_utf8_lossy(&self.stderr).trim().to_owned()));
            }
            self.wait(deadline.map(|deadline| deadline.saturating_duration_since(now)))?;
            self.drive(false)?;
            if self.dropped > MAX_DROPPED {
                return Err(io::Error::other(
                    "the program in the container keeps writing after the end of the archive",
                ));
            }
        }
    }

    fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() });
        match poll(&mut [PollFd::new(&self.session, self.session.interest())], limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn drive(&mut self, keep: bool) -> io::Result<()> {
        let (stdout, stderr, dropped) = (&mut self.stdout, &mut self.stderr, &mut self.dropped);
        let mut on = |output, bytes: &[u8]| match output {
            Output::Stdout if keep => stdout.extend_from_slice(bytes),
            Output::Stdout => *dropped += bytes.len(),
            Output::Stderr => {
                let kept = bytes.len().min(MAX_STDERR - stderr.len());
                stderr.extend_from_slice(&bytes[..kept]);
                *dropped += bytes.len() - kept;
            }
        };
        // The number of iterations is limited, so that the caller can check the number of dropped bytes.
        for _ in 0..64 {
            if !self.session.drive(&mut on).map_err(io::Error::other)? || keep {
                break;
            }
        }
        Ok(())
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.stdout.len() {
            self.stdout.clear();
            self.at = 0;
            if self.has_ended() {
                return Ok(0);
            }
            self.drive(true)?;
            if self.stdout.is_empty() && !self.has_ended() {
                self.wait(None)?;
            }
        }
        let n = (&self.stdout[self.at..]).read(buffer)?;
        self.at += n;
        Ok(n)
    }
}

impl Write for Bytes {
    /// Fails with `BrokenPipe` after the end of the process, or of its output.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.session.queued() > MAX_QUEUED && !self.has_ended() {
            self.wait(None)?;
            self.drive(false)?;
        }
        if self.has_ended() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let n = bytes.len().min(MAX_QUEUED);
        self.session.send_stdin(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
