//! Watches for changes: with inotify, the directory, every step of its path and every step of the links in it; with
//! poll, the mount table.
//!
//! inotify watches inodes, not paths. Every directory in which a step of a path could change (`walk`) therefore has a
//! watch. Helper threads add the watches during an inspection, because adding a watch blocks too if the file system
//! hangs. The event loop learns of a watch from the result of the inspection. An event may arrive before that result,
//! so events are kept while inspections run, and the kept events of a new watch are handled once the watch is known. An
//! unneeded watch is removed only while no inspection runs, because an inspection may have added it again.

use super::walk::PathStep;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of buffers that one call of `read` processes.
const TURN: usize = 16;
/// Maximum number of events kept while inspections run. Beyond that the directory is read again.
const KEPT: usize = 1024;
/// Maximum number of watches. Links beyond this are inspected every `fileCheckFrequency`.
const MAX_WATCHES: usize = 1024;

/// The events for a name in the directory, or for a step of the link with that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    /// Whether the content is complete: its writer closed it, or it was renamed into place.
    pub(super) complete: bool,
    /// Whether the owner, mode or link count changed, or the watched inode is gone.
    pub(super) attributes: bool,
    /// Whether a step of the link was created or removed. If so, the target may be incomplete.
    pub(super) step: bool,
    /// Whether the last event for the name itself was its removal.
    pub(super) gone: Option<bool>,
}

impl Touch {
    pub(super) fn and(self, later: Touch) -> Touch {
        Touch {
            complete: self.complete || later.complete,
            attributes: self.attributes || later.attributes,
            step: self.step || later.step,
            gone: later.gone.or(self.gone),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// The events of each file name, including names that are not read as manifests.
    pub(super) files: BTreeMap<OsString, Touch>,
    /// Whether the directory or a step of its path changed.
    pub(super) directory: bool,
    /// Whether the kernel dropped events.
    pub(super) overflow: bool,
    /// Whether more events can be read now.
    pub(super) more: bool,
}

/// The purpose of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Role {
    Directory,
    /// This name in the watched directory is a step of the manifest directory's path.
    Way(OsString),
    /// The name `step` in the watched directory is a step of the link `file`.
    Step {
        file: OsString,
        step: OsString,
    },
    /// The target of the link with this name.
    Target(OsString),
}

impl Role {
    /// Returns the file that the watch belongs to; None for the directory.
    fn file(&self) -> Option<&OsStr> {
        match self {
            Role::Directory | Role::Way(_) => None,
            Role::Step { file, .. } | Role::Target(file) => Some(file),
        }
    }

    fn mask(&self) -> WatchFlags {
        let way = WatchFlags::CREATE | WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::ITSELF;
        match self {
            Role::Directory => way | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB,
            Role::Way(_) | Role::Step { .. } => way,
            Role::Target(_) => WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB | WatchFlags::ITSELF,
        }
    }
}

trait Itself {
    const ITSELF: Self;
}

impl Itself for WatchFlags {
    const ITSELF: WatchFlags = WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF);
}

/// The watches that an inspection added, and why adding one failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watched {
    pub(super) roles: BTreeSet<(i32, Role)>,
    pub(super) failed: Option<String>,
}

impl Watched {
    /// Watches the directory of each step.
    pub(super) fn steps(&mut self, inotify: Option<impl AsFd>, steps: &[PathStep], role: impl Fn(OsString) -> Role) {
        for step in steps {
            self.add(inotify.as_ref(), Path::new(&step.directory), role(step.name.clone()));
        }
    }

    pub(super) fn add(&mut self, inotify: Option<impl AsFd>, path: &Path, role: Role) {
        let Some(inotify) = inotify else {
            self.failed = Some("inotify: not open".to_owned());
            return;
        };
        // Two paths may lead to one inode, which has one watch. MASK_ADD keeps the events of the other path.
        match inotify::add_watch(inotify, path, role.mask() | WatchFlags::MASK_ADD) {
            Ok(id) => {
                self.roles.insert((id, role));
            }
            // The path was removed in the meantime. It is handled as if it had never existed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => self.failed = Some(format!("inotify on {}: {}", path.display(), std::io::Error::from(errno))),
        }
    }
}

struct InotifyEvent {
    id: i32,
    mask: ReadFlags,
    name: Option<OsString>,
}

pub(super) struct Watcher {
    registry: Option<Registry>,
    token: Token,
    mounts_token: Token,
    inotify: Option<Arc<OwnedFd>>,
    roles: BTreeMap<i32, BTreeSet<Role>>,
    /// Events that arrived while inspections were running. Their watch may be unknown as yet or get another role.
    kept: Vec<InotifyEvent>,
    mounts: Option<File>,
}

impl Watcher {
    pub(super) fn new(registry: &Registry, token: Token, mounts_token: Token) -> Watcher {
        let (registry, roles) = (registry.try_clone().ok(), BTreeMap::new());
        Watcher { registry, token, mounts_token, inotify: None, roles, kept: Vec::new(), mounts: None }
    }

    /// Returns a watcher that cannot watch anything, as after EMFILE.
    #[cfg(test)]
    pub(super) fn blind() -> Watcher {
        let (token, roles) = (Token(0), BTreeMap::new());
        Watcher { registry: None, token, mounts_token: token, inotify: None, roles, kept: Vec::new(), mounts: None }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.roles.len()
    }

    /// Opens inotify and the mount table if they are not open.
    ///
    /// # Errors
    /// The reason why one of them is not available. The directory must then be read periodically.
    pub(super) fn open(&mut self, mountinfo: &Path) -> Result<(), String> {
        let registry = self.registry.as_ref().ok_or("inotify: no poll to register with")?;
        if self.inotify.is_none() {
            let failed = |e: std::io::Error| format!("inotify: {e}");
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
            registry.register(&mut SourceFd(&fd.as_raw_fd()), self.token, Interest::READABLE).map_err(failed)?;
            self.inotify = Some(Arc::new(fd));
        }
        if self.mounts.is_none() {
            let failed = |e: std::io::Error| format!("{}: {e}", mountinfo.display());
            let file = File::open(mountinfo).map_err(failed)?;
            registry
                .register(&mut SourceFd(&file.as_raw_fd()), self.mounts_token, Interest::PRIORITY)
                .map_err(failed)?;
            self.mounts = Some(file);
        }
        Ok(())
    }

    /// Returns the descriptor to which inspections add watches.
    pub(super) fn inotify(&self) -> Option<Arc<OwnedFd>> {
        self.inotify.clone()
    }

    /// Reports whether another link may be watched.
    pub(super) fn has_room(&self) -> bool {
        self.roles.len() < MAX_WATCHES
    }

    /// Replaces the watches of `file` (None for the directory). Returns the kept events of the new watches.
    pub(super) fn assign(&mut self, file: Option<&OsStr>, watched: BTreeSet<(i32, Role)>) -> Moved {
        let mut moved = Moved::default();
        for (id, roles) in &mut self.roles {
            roles.retain(|role| role.file() != file || watched.contains(&(*id, role.clone())));
        }
        for (id, role) in watched {
            for event in self.kept.iter().filter(|event| event.id == id) {
                note(&mut moved, event.mask, event.name.as_deref(), std::iter::once(&role));
            }
            self.roles.entry(id).or_default().insert(role);
        }
        moved.directory |= self.kept.len() > KEPT;
        moved
    }

    /// Removes unneeded watches. Called while no inspection runs.
    pub(super) fn rest(&mut self) {
        self.kept = Vec::new();
        let inotify = self.inotify.clone();
        self.roles.retain(|id, roles| {
            if let (true, Some(inotify)) = (roles.is_empty(), &inotify) {
                // This fails if the kernel has already dropped the watch.
                let _ = inotify::remove_watch(inotify, *id);
            }
            !roles.is_empty()
        });
    }

    /// Reads the pending events, up to a limit. If `keep` is set, inspections are running, so the events are kept.
    ///
    /// # Errors
    /// inotify failed and was closed.
    pub(super) fn read(&mut self, keep: bool) -> Result<Moved, String> {
        let mut moved = Moved::default();
        let Some(inotify) = self.inotify.clone() else { return Ok(moved) };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(inotify.as_fd(), &mut buffer);
        let mut buffers = 0;
        loop {
            if reader.is_buffer_empty() {
                if buffers == TURN {
                    moved.more = true;
                    return Ok(moved);
                }
                buffers += 1;
            }
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    let (id, mask) = (event.wd(), event.events());
                    note(&mut moved, mask, name, self.roles.get(&id).into_iter().flatten());
                    if keep && self.kept.len() <= KEPT {
                        self.kept.push(InotifyEvent { id, mask, name: name.map(OsStr::to_owned) });
                    } else if !keep && id > 0 && !self.roles.contains_key(&id) && !mask.contains(ReadFlags::IGNORED) {
                        // The watch was added by an abandoned inspection.
                        let _ = inotify::remove_watch(&inotify, id);
                    }
                }
                Err(Errno::AGAIN) => return Ok(moved),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.inotify = None;
                    self.roles.clear();
                    return Err(format!("inotify: {}", std::io::Error::from(errno)));
                }
            }
        }
    }
}

fn note<'r>(moved: &mut Moved, mask: ReadFlags, name: Option<&OsStr>, roles: impl Iterator<Item = &'r Role>) {
    if mask.contains(ReadFlags::QUEUE_OVERFLOW) {
        moved.overflow = true;
        return;
    }
    let itself = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED;
    let mut touched = |name: &OsStr, touch: Touch| {
        let known = moved.files.entry(name.to_owned()).or_default();
        *known = known.and(touch);
    };
    for role in roles {
        match role {
            Role::Target(link) => {
                let complete = mask.contains(ReadFlags::CLOSE_WRITE);
                touched(link, Touch { complete, attributes: !complete, ..Touch::default() });
            }
            Role::Step { file, .. } if mask.intersects(itself) => {
                touched(file, Touch { step: true, ..Touch::default() });
            }
            Role::Step { file, step } if name == Some(step) => {
                touched(file, Touch { step: true, complete: mask.contains(ReadFlags::MOVED_TO), ..Touch::default() });
            }
            Role::Step { .. } => {}
            Role::Directory | Role::Way(_) if mask.intersects(itself) => moved.directory = true,
            Role::Way(step) => moved.directory |= name == Some(step),
            Role::Directory => match name {
                Some(name) => {
                    let complete = mask.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO);
                    let gone = mask.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
                    let attributes = mask.contains(ReadFlags::ATTRIB);
                    touched(name, Touch { complete, attributes, gone: (!attributes).then_some(gone), step: false });
                }
                // The mode of the directory itself changed: it may be readable now.
                None => moved.directory |= mask.contains(ReadFlags::ATTRIB),
            },
        }
    }
}
