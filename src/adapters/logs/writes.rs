//! Reports the first write to a log. The inotify watches are one-shot, so that a log that is written all the time
//! causes only one report.

use crate::api::names::ContainerId;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// The size of the buffer in bytes. It holds many events, because the events of these watches have no names.
const BUFFER: usize = 1024;

/// The watched logs. The descriptor exists from the first watch on.
#[derive(Debug, Default)]
pub struct LogWrites {
    inotify: Option<(OwnedFd, Token)>,
    ids: BTreeMap<i32, ContainerId>,
}

impl LogWrites {
    /// Watches for the next write. `token` returns a token that was never used before.
    ///
    /// # Errors
    /// The file does not exist, or the kernel has no watch left.
    pub fn watch(
        &mut self,
        registry: &Registry,
        token: impl FnOnce() -> Token,
        id: ContainerId,
        path: &str,
    ) -> Result<(), Errno> {
        if self.inotify.is_none() {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let token = token();
            let registered = registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE);
            registered.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
            self.inotify = Some((fd, token));
        }
        let Some((fd, _)) = &self.inotify else { return Err(Errno::BADF) };
        let flags = WatchFlags::MODIFY | WatchFlags::ONESHOT | WatchFlags::DONT_FOLLOW;
        let watch = inotify::add_watch(fd, path, flags)?;
        self.ids.insert(watch, id);
        Ok(())
    }

    pub fn unwatch(&mut self, id: &ContainerId) {
        let Some(watch) = self.ids.iter().find(|(_, other)| *other == id).map(|(watch, _)| *watch) else { return };
        self.ids.remove(&watch);
        if let Some((fd, _)) = &self.inotify {
            // The file may be gone, and the watch with it.
            let _ = inotify::remove_watch(fd, watch);
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        self.inotify.as_ref().is_some_and(|(_, own)| *own == token)
    }

    /// Returns the number of watches.
    pub fn watched(&self) -> usize {
        self.ids.len()
    }

    /// Returns the containers whose logs were written since they were watched. Each report ends its watch.
    pub fn take(&mut self) -> Vec<ContainerId> {
        let Some((fd, _)) = &self.inotify else { return Vec::new() };
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(fd, &mut buffer);
        let mut written = Vec::new();
        // An error means that there are no more events.
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                written.extend(std::mem::take(&mut self.ids).into_values());
            }
            written.extend(self.ids.remove(&event.wd()));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;
    use std::time::Duration;

    fn append(path: &Path) {
        OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(b"line\n").unwrap();
    }

    #[test]
    fn l1_the_first_write_is_reported_once_until_the_log_is_watched_again() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a.log", "b.log"].map(|name| dir.path().join(name));
        let mut poll = Poll::new().unwrap();
        let mut writes = LogWrites::default();
        let (id, other): (ContainerId, ContainerId) = ("a".into(), "b".into());
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        assert_eq!(writes.watch(poll.registry(), || Token(7), id.clone(), &text(&a)), Err(Errno::NOENT));
        append(&a);
        append(&b);
        writes.watch(poll.registry(), || Token(8), id.clone(), &text(&a)).unwrap();
        writes.watch(poll.registry(), || Token(9), other.clone(), &text(&b)).unwrap();
        assert_eq!((writes.take(), writes.owns(Token(7))), (vec![], true));
        append(&a);
        append(&a);
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
        assert!(events.iter().all(|event| event.token() == Token(7)));
        assert_eq!(writes.take(), std::slice::from_ref(&id));
        append(&a);
        assert_eq!((writes.take(), writes.watched()), (vec![], 1));
        writes.unwatch(&other);
        append(&b);
        assert_eq!((writes.take(), writes.watched()), (vec![], 0));
        writes.watch(poll.registry(), || Token(8), id.clone(), &text(&a)).unwrap();
        append(&a);
        assert_eq!(writes.take(), [id]);
    }
}
