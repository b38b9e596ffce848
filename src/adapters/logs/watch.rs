//! Waits for a change in log directories, or for an event of another descriptor, without periodic checks.

use inotify::{EventMask, Inotify, WatchMask};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;

pub struct Watch {
    inotify: Inotify,
}

impl Watch {
    /// # Errors
    /// The limit of inotify instances is reached (128 for each user by default).
    pub fn new() -> io::Result<Watch> {
        Ok(Watch { inotify: Inotify::init()? })
    }

    /// Watches a directory.
    ///
    /// # Errors
    /// The directory does not exist, or the limit of inotify watches is reached.
    pub fn add(&self, directory: &Path) -> io::Result<()> {
        let mask = WatchMask::CREATE
            | WatchMask::MODIFY
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        self.inotify.watches().add(directory, mask).map(drop)
    }

    /// Waits until a watched directory changes, one of `others` is readable, or the reader of `out` is gone. Returns true if
    /// the reader is gone.
    ///
    /// # Errors
    /// poll(2) or the read of the inotify events failed.
    pub fn wait(&mut self, others: &[BorrowedFd<'_>], out: BorrowedFd<'_>) -> io::Result<bool> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.inotify.as_fd(), PollFlags::IN),
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
    /// The read of the inotify events failed.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match self.inotify.read_events(&mut buffer) {
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

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
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
        let mut watch = Watch::new().unwrap();
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
}
