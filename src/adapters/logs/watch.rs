//! Waits for a change in log directories, or for an event of another descriptor, without periodic checks. If the
//! kernel has no inotify instance or watch left, a timer replaces inotify (L6).

use inotify::{EventMask, Inotify, WatchMask};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The period of the timer.
const PERIOD: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

pub struct LogWatch {
    source: WatchSource,
}

enum WatchSource {
    Inotify(Inotify),
    /// Fires once in each period.
    Timer {
        timer: OwnedFd,
        why: String,
    },
}

impl LogWatch {
    /// Creates a watch without directories.
    ///
    /// # Errors
    /// Neither an inotify instance (128 for each user by default) nor a timer is available.
    pub fn new() -> io::Result<LogWatch> {
        LogWatch::or_timer(Inotify::init())
    }

    fn or_timer(inotify: io::Result<Inotify>) -> io::Result<LogWatch> {
        let source = match inotify {
            Ok(inotify) => WatchSource::Inotify(inotify),
            Err(e) => timer(&e)?,
        };
        Ok(LogWatch { source })
    }

    /// Watches a directory.
    ///
    /// # Errors
    /// The directory does not exist.
    pub fn add(&mut self, directory: &Path) -> io::Result<()> {
        let WatchSource::Inotify(inotify) = &self.source else { return directory.metadata().map(drop) };
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        match inotify.watches().add(directory, mask) {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                self.source = timer(&e)?;
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Returns why a timer replaces inotify, with the remedy; None if inotify is used.
    pub fn without_inotify(&self) -> Option<&str> {
        match &self.source {
            WatchSource::Inotify(_) => None,
            WatchSource::Timer { why, .. } => Some(why),
        }
    }

    /// Waits until a watched directory may have changed, one of `others` is readable, or the reader of `out` is gone.
    /// Returns true if the reader is gone.
    ///
    /// # Errors
    /// poll(2) failed, or the inotify events cannot be read.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>], out: BorrowedFd<'_>) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(out, PollFlags::empty()),
        ];
        fds.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let gone = fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        let changed = fds[0].revents().contains(PollFlags::IN);
        drop(fds);
        if changed {
            self.drain()?;
        }
        Ok(gone)
    }

    /// Discards the events. The caller checks all directories after each change.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        let inotify = match &mut self.source {
            WatchSource::Inotify(inotify) => inotify,
            WatchSource::Timer { timer, .. } => {
                return match rustix::io::read(timer, &mut buffer[..8]) {
                    Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
                    Err(e) => Err(e.into()),
                };
            }
        };
        loop {
            match inotify.read_events(&mut buffer) {
                Ok(events) => {
                    if events.into_iter().any(|e| e.mask.contains(EventMask::Q_OVERFLOW)) {
                        continue;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Returns a timer that replaces inotify, which failed for this reason.
fn timer(reason: &io::Error) -> io::Result<WatchSource> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let times = Itimerspec { it_interval: PERIOD, it_value: PERIOD };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
    let why = format!(
        "inotify is not available ({reason}), so the log is polled every second; raise \
         fs.inotify.max_user_instances or max_user_watches"
    );
    Ok(WatchSource::Timer { timer, why })
}

impl AsFd for LogWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            WatchSource::Inotify(inotify) => inotify.as_fd(),
            WatchSource::Timer { timer, .. } => timer.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_write_a_rename_another_descriptor_and_a_lost_reader_end_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let (out, reader) = UnixStream::pair().unwrap();
        let (other, far) = UnixStream::pair().unwrap();
        let mut watch = LogWatch::new().unwrap();
        watch.add(dir.path()).unwrap();
        std::fs::write(dir.path().join("0.log"), "x").unwrap();
        assert!(!watch.wait(&[other.as_fd()], out.as_fd()).unwrap());
        std::fs::rename(dir.path().join("0.log"), dir.path().join("0.log.1")).unwrap();
        assert!(!watch.wait(&[other.as_fd()], out.as_fd()).unwrap());
        drop(far);
        assert!(!watch.wait(&[other.as_fd()], out.as_fd()).unwrap());
        std::fs::remove_dir_all(dir.path()).unwrap();
        assert!(!watch.wait(&[], out.as_fd()).unwrap());
        drop(reader);
        assert!(watch.wait(&[], out.as_fd()).unwrap());
        assert!(watch.add(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn l6_without_inotify_a_timer_ends_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let (out, reader) = UnixStream::pair().unwrap();
        let full = || Err(io::Error::from_raw_os_error(Errno::MFILE.raw_os_error()));
        let mut watch = LogWatch::or_timer(full()).unwrap();
        watch.add(dir.path()).unwrap();
        assert!(watch.add(Path::new("/nowhere")).is_err());
        let why = watch.without_inotify().unwrap();
        assert!(why.contains("(Too many open files") && why.contains("fs.inotify.max_user_instances"), "{why}");
        // Nothing changes, but each wait ends.
        for _ in 0..2 {
            assert!(!watch.wait(&[], out.as_fd()).unwrap());
        }
        drop(reader);
        assert!(watch.wait(&[], out.as_fd()).unwrap());
        assert!(LogWatch::new().unwrap().without_inotify().is_none());
    }
}
