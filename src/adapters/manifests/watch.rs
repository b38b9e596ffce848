//! What moves: inotify on the directory, on what leads to it, and on files that are only linked into it.
//!
//! inotify watches inodes, not paths. So besides the directory itself every directory is watched in which a step of its
//! path could be changed: the parent, the parent of what a symbolic link leads to, or, where something is missing, the
//! nearest directory above that is there. A mount is no change of a directory; while the directory is missing or
//! empty /proc/self/mountinfo is polled too (the kernel says when it changes).

use inotify::{EventMask, Inotify, WatchDescriptor, WatchMask};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Buffers read in one turn; what is left waits for the next.
const TURN: usize = 16;
/// As many links are followed as the kernel does.
const MAX_LINKS: usize = 40;

/// What happened to one name in the directory, or to the target of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    /// It is complete: its writer closed it, or it was renamed into place.
    pub(super) complete: bool,
    /// Its owner, mode or link count changed, or what it was watched by is gone.
    pub(super) attributes: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// By file name; those that do not count are here too.
    pub(super) files: BTreeMap<OsString, Touch>,
    /// The directory, or something on the way to it, changed.
    pub(super) directory: bool,
    /// The kernel dropped events.
    pub(super) overflow: bool,
    /// There is more to read, now.
    pub(super) more: bool,
}

#[derive(Debug)]
enum Role {
    Directory,
    /// Something of this name in it is a step on the way to the directory.
    Way(OsString),
    /// This name in the directory is a link to it.
    Target(OsString),
}

pub(super) struct Watcher {
    registry: Option<Registry>,
    token: Token,
    inotify: Option<Inotify>,
    roles: BTreeMap<i32, (WatchDescriptor, Vec<Role>)>,
    mounts: Option<File>,
}

impl Watcher {
    pub(super) fn new(registry: &Registry, token: Token) -> Watcher {
        Watcher { registry: registry.try_clone().ok(), token, inotify: None, roles: BTreeMap::new(), mounts: None }
    }

    /// One that can watch nothing, as after EMFILE.
    #[cfg(test)]
    pub(super) fn blind() -> Watcher {
        Watcher { registry: None, token: Token(0), inotify: None, roles: BTreeMap::new(), mounts: None }
    }

    /// Watches what is there now; called again after each change of the directory.
    ///
    /// # Errors
    /// Why some of it cannot be watched: then one has to look from time to time.
    pub(super) fn arm<'f>(&mut self, directory: &Path, links: impl Iterator<Item = &'f OsStr>) -> Result<(), String> {
        if self.inotify.is_none() {
            let inotify = Inotify::init().map_err(|e| format!("inotify: {e}"))?;
            let registry = self.registry.as_ref().ok_or("inotify: no poll to register with")?;
            registry
                .register(&mut SourceFd(&inotify.as_raw_fd()), self.token, Interest::READABLE)
                .map_err(|e| format!("inotify: {e}"))?;
            self.inotify = Some(inotify);
        }
        let mut old = std::mem::take(&mut self.roles);
        let mut result = Ok(());
        for (watched, name) in ways(directory) {
            result = result.and(self.add(&watched, way_mask(), Role::Way(name)));
        }
        // Its absence is the way's matter.
        if directory.is_dir() {
            result = result.and(self.add(directory, directory_mask(), Role::Directory));
        }
        for name in links {
            result = result.and(self.add_link(directory, name));
        }
        old.retain(|id, _| !self.roles.contains_key(id));
        if let Some(inotify) = &self.inotify {
            for (descriptor, _) in old.into_values() {
                // Fails for what the kernel has dropped already.
                let _ = inotify.watches().remove(descriptor);
            }
        }
        result
    }

    /// Watches the file to which a link in the directory leads. A link to nothing is not watched.
    pub(super) fn add_link(&mut self, directory: &Path, name: &OsStr) -> Result<(), String> {
        let mask = WatchMask::CLOSE_WRITE | WatchMask::ATTRIB | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF;
        self.add(&directory.join(name), mask, Role::Target(name.to_owned()))
    }

    fn add(&mut self, path: &Path, mask: WatchMask, role: Role) -> Result<(), String> {
        let Some(inotify) = &self.inotify else { return Err("inotify: not open".to_owned()) };
        // Two paths may lead to one inode, which has one watch: neither must take the other's events away.
        match inotify.watches().add(path, mask | WatchMask::MASK_ADD) {
            Ok(descriptor) => {
                let id = descriptor.get_watch_descriptor_id();
                self.roles.entry(id).or_insert_with(|| (descriptor, Vec::new())).1.push(role);
                Ok(())
            }
            // It went meanwhile, or cannot be read: the same as if it had never been there.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            Err(e) if rustix::io::Errno::from_io_error(&e) == Some(rustix::io::Errno::LOOP) => Ok(()),
            Err(e) => Err(format!("inotify on {}: {e}", path.display())),
        }
    }

    /// Whether changes of the mount table wake us up too.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) fn watch_mounts(&mut self, wanted: bool, mountinfo: &Path) -> Result<(), String> {
        if !wanted {
            // Closed, it leaves the poll by itself.
            self.mounts = None;
        } else if self.mounts.is_none() {
            let failed = |e: io::Error| format!("{}: {e}", mountinfo.display());
            let file = File::open(mountinfo).map_err(failed)?;
            let registry = self.registry.as_ref().ok_or("no poll to register with")?;
            registry.register(&mut SourceFd(&file.as_raw_fd()), self.token, Interest::PRIORITY).map_err(failed)?;
            self.mounts = Some(file);
        }
        Ok(())
    }

    pub(super) fn watches_mounts(&self) -> bool {
        self.mounts.is_some()
    }

    /// Reads what there is, up to a turn's worth.
    ///
    /// # Errors
    /// If inotify is lost.
    pub(super) fn read(&mut self) -> Result<Moved, String> {
        let mut moved = Moved::default();
        let Some(inotify) = &mut self.inotify else { return Ok(moved) };
        let mut buffer = [0; 4096];
        for _ in 0..TURN {
            match inotify.read_events(&mut buffer) {
                Ok(events) => {
                    for event in events {
                        let id = event.wd.get_watch_descriptor_id();
                        let roles = self.roles.get(&id).map_or(&[][..], |(_, roles)| roles);
                        note(&mut moved, event.mask, event.name, roles);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.inotify = None;
                    self.roles.clear();
                    return Err(format!("inotify: {e}"));
                }
            }
        }
        moved.more = true;
        Ok(moved)
    }
}

fn directory_mask() -> WatchMask {
    way_mask() | WatchMask::CLOSE_WRITE | WatchMask::ATTRIB
}

fn way_mask() -> WatchMask {
    WatchMask::CREATE | WatchMask::MOVE | WatchMask::DELETE | WatchMask::DELETE_SELF | WatchMask::MOVE_SELF
}

fn note(moved: &mut Moved, mask: EventMask, name: Option<&OsStr>, roles: &[Role]) {
    if mask.contains(EventMask::Q_OVERFLOW) {
        moved.overflow = true;
        return;
    }
    let itself = EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT | EventMask::IGNORED;
    for role in roles {
        match role {
            Role::Target(link) => {
                let touch = moved.files.entry(link.clone()).or_default();
                touch.complete |= mask.contains(EventMask::CLOSE_WRITE);
                touch.attributes |= !mask.contains(EventMask::CLOSE_WRITE);
            }
            _ if mask.intersects(itself) => moved.directory = true,
            Role::Way(step) => moved.directory |= name == Some(step),
            Role::Directory => match name {
                Some(name) => {
                    let touch = moved.files.entry(name.to_owned()).or_default();
                    touch.complete |= mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO);
                    touch.attributes |= mask.contains(EventMask::ATTRIB);
                }
                // The directory's own mode: it may be readable now.
                None => moved.directory |= mask.contains(EventMask::ATTRIB),
            },
        }
    }
}

/// The directories to watch, each with the name in it that leads on: at each link the directory with the link, and
/// at the end the directory's parent. Where something is missing, the nearest that is there.
fn ways(directory: &Path) -> BTreeSet<(PathBuf, OsString)> {
    let mut ways = BTreeSet::new();
    let mut path = directory.to_owned();
    for _ in 0..MAX_LINKS {
        let mut here = path.as_path();
        while let (Some(parent), Some(name)) = (here.parent(), here.file_name()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            if parent.is_dir() {
                ways.insert((parent.to_owned(), name.to_owned()));
                break;
            }
            here = parent;
        }
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new(".")).join(target);
    }
    ways
}
