//! Watches the directories of the bus's sockets with inotify while there is no connection (S7). If a directory does not
//! exist, its nearest existing ancestor is watched.

use inotify::{Inotify, WatchMask};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Maximum number of buffers that one call reads. The next call reads the rest.
const READS: usize = 16;

pub(super) struct SocketWatch {
    paths: Vec<PathBuf>,
    inotify: Option<Inotify>,
    /// The relevant names in the directory of each watch descriptor.
    names: BTreeMap<i32, Vec<OsString>>,
}

impl SocketWatch {
    pub(super) fn new(paths: Vec<PathBuf>) -> SocketWatch {
        SocketWatch { paths, inotify: None, names: BTreeMap::new() }
    }

    /// Watches the directories that exist now. Best effort: without inotify, `retry` finds the bus a little later.
    pub(super) fn arm(&mut self, registry: &Registry, token: Token) {
        if self.paths.is_empty() {
            return;
        }
        if self.inotify.is_none() {
            let Ok(inotify) = Inotify::init() else { return };
            if registry.register(&mut SourceFd(&inotify.as_raw_fd()), token, Interest::READABLE).is_err() {
                return;
            }
            self.inotify = Some(inotify);
        }
        let Some(inotify) = &self.inotify else { return };
        self.names.clear();
        for path in &self.paths {
            let Some((directory, name)) = nearest(path) else { continue };
            let mask = WatchMask::CREATE | WatchMask::MOVED_TO | WatchMask::ATTRIB | WatchMask::DELETE_SELF;
            if let Ok(descriptor) = inotify.watches().add(directory, mask | WatchMask::MASK_ADD) {
                self.names.entry(descriptor.get_watch_descriptor_id()).or_default().push(name);
            }
        }
    }

    pub(super) fn disarm(&mut self) {
        // Closing the descriptor removes it from the poll.
        self.inotify = None;
        self.names.clear();
    }

    /// Returns true if a relevant name was created or changed since the last call.
    pub(super) fn changed(&mut self) -> bool {
        let Some(inotify) = &mut self.inotify else { return false };
        let mut changed = false;
        let mut buffer = [0; 4096];
        for _ in 0..READS {
            let Ok(events) = inotify.read_events(&mut buffer) else { return changed };
            for event in events {
                let names = self.names.get(&event.wd.get_watch_descriptor_id());
                let matters = |name: &std::ffi::OsStr| names.is_some_and(|names| names.iter().any(|n| n == name));
                // An event without a name concerns the directory itself or reports lost events.
                changed |= event.name.is_none_or(matters);
            }
        }
        // Too many events for one call: report a change and read the rest next time.
        true
    }
}

/// Returns the nearest existing directory above `path`, and the next component of `path` below it.
fn nearest(path: &Path) -> Option<(&Path, OsString)> {
    let mut here = path;
    while let (Some(parent), Some(name)) = (here.parent(), here.file_name()) {
        if parent.is_dir() {
            return Some((parent, name.to_owned()));
        }
        here = parent;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::time::Duration;

    fn told(poll: &mut Poll, watch: &mut SocketWatch) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_millis(20))).unwrap();
        !events.is_empty() && watch.changed()
    }

    #[test]
    fn s7_a_new_socket_is_detected_even_if_its_directory_is_created_later() {
        let mut poll = Poll::new().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("run/dbus/socket");
        let mut watch = SocketWatch::new(vec![socket.clone()]);
        for step in ["run", "run/dbus", "run/dbus/socket"] {
            watch.arm(poll.registry(), Token(3));
            std::fs::write(dir.path().join(step).with_file_name("other"), "").unwrap();
            assert!(!told(&mut poll, &mut watch), "another file next to {step}");
            std::fs::create_dir(dir.path().join(step)).unwrap();
            assert!(told(&mut poll, &mut watch), "{step}");
            assert!(!told(&mut poll, &mut watch));
        }
        watch.disarm();
        std::fs::remove_dir(&socket).unwrap();
        std::fs::create_dir(&socket).unwrap();
        assert!(!told(&mut poll, &mut watch));
    }
}
