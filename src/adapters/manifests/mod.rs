//! The manifest directory: what its files say is the desired set of pods (D1 to D5), with the priorities that the classes
//! beside them give (A5).
//!
//! A change is read when it is complete (its writer closed the file, or renamed it into place). What is only *seen* (by
//! a scan, or as a new name) is read once it has not changed for a second. A file that is gone is believed to be gone
//! 10 ms later, since some editors rename a file away and write it anew. Only then, and only from a directory that
//! can be read and is the right one, a pod becomes undesired; whatever else is wrong, the last good version stays
//! (`contents`), over a restart too (`store`).
//!
//! Nothing here touches the directory or a file in it. The loop keeps what is known, and says what to look at (`looks`); a
//! helper thread looks (`look`), and the loop compares (`scan`, `files`). A file system that does not answer holds up only the looks at
//! it.
//!
//! Nothing here ticks: with inotify (`watch`) all is looked at again each 10 minutes as a safety net. It is each
//! `fileCheckFrequency` without inotify, while a file cannot be read, and where inotify does not report what other machines
//! change (NFS, virtiofs, FUSE and their kind).

mod asked;
mod check;
mod contents;
mod file;
mod files;
mod foreign;
mod look;
mod looks;
mod mount;
mod moved;
mod open_problems;
mod records;
mod scan;
mod settle;
mod store;
mod walk;
mod watch;

pub use check::{check_text, files_in};
pub use foreign::{COMMAND as LOOK_COMMAND, answer as answer_look, may_hang};
pub use look::{Look, Seen};
pub use open_problems::OpenProblem;
pub use store::Write;

use crate::api::pod::Pod;
use crate::api::time::{Boot, Now};
use contents::Held;
use file::Stamp;
use looks::{Looks, Why};
use open_problems::OpenProblems;
use scan::{Directory, Scan};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use store::{Place, Store};
use walk::Step;
use watch::Watcher;

/// How long a file must not have changed before it is read unasked (D2).
const SETTLE: Duration = Duration::from_secs(1);
/// How long a file must be gone: longer than an editor's rename and new file, and than most of an `rm -r`.
const GONE: Duration = Duration::from_millis(10);
/// The safety net, with a working inotify (D2).
const NET: Duration = Duration::from_secs(600);

/// What to watch, and for whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Absolute: it is part of the pods' identity (D3).
    pub directory: PathBuf,
    /// `manifests` in the root directory: not among the engine's records, whose form is another.
    pub records: PathBuf,
    pub node_name: String,
    /// `fileCheckFrequency`: how often to look while inotify cannot be had.
    pub check_frequency: Duration,
    /// `/proc/self/mountinfo`, but for a test.
    pub mountinfo: PathBuf,
    /// The program that looks at file systems that may hang, called with `LOOK_COMMAND` and a question. None: they are looked at
    /// like all others.
    pub reader: Option<PathBuf>,
}

impl Settings {
    pub fn new(directory: &Path, root: &Path, node_name: &str, check_frequency: Duration) -> Settings {
        Settings {
            directory: directory.to_owned(),
            records: root.join("manifests"),
            node_name: node_name.to_owned(),
            check_frequency,
            mountinfo: mount::TABLE.into(),
            reader: None,
        }
    }
}

/// Why a look has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSeen {
    /// It began, and was not done at its deadline. Its thread hangs.
    Stuck,
    /// It did not begin.
    NotBegun(String),
}

/// What one file says.
#[derive(Debug, Default)]
struct Source {
    held: Vec<Held>,
    /// Of the text that was read last, to see that nothing changed without taking it apart.
    text: Option<String>,
    stamp: Option<Stamp>,
    link: bool,
    /// What its link leads through.
    steps: Vec<Step>,
    /// inotify does not report all its changes.
    unwatched: bool,
    /// It could not be read at all, the last time.
    unreadable: bool,
    /// What was read last is a manifest, if a wrong one perhaps: this is the right directory.
    has_documents: bool,
    /// Its record was not asked yet about pods whose class is not there.
    unrecalled: bool,
}

/// A file to look at again.
#[derive(Debug)]
enum Wait {
    /// It is read if this is its stamp still.
    Settle(Option<Stamp>),
    /// Its pods go if it is gone still.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was looked at yet.
    New,
    /// The first scan is under way.
    First,
    /// The desired set is known (D1).
    Read,
}

pub struct Manifests {
    settings: Settings,
    watcher: Watcher,
    store: Store,
    looks: Looks,
    sources: BTreeMap<OsString, Source>,
    waits: BTreeMap<OsString, (Boot, Wait)>,
    standing: OpenProblems,
    stage: Stage,
    /// None before it was read, and while it is missing.
    directory: Option<Directory>,
    /// On the way to the directory.
    steps: Vec<Step>,
    scan: Option<Scan>,
    /// Together with its files' stamps the directory did not answer: it is looked at without them.
    one_by_one: bool,
    /// Something cannot be watched.
    unwatched: bool,
    changed: bool,
    /// Files were read or went: what classes there are, and what pods have of them, is to be looked at (A5).
    unsettled: bool,
    /// A change waits for others that came with it.
    held_until: Option<Boot>,
    next_full: Boot,
    /// Events are left over from the last turn.
    more: bool,
    /// Files whose records may differ from what they say.
    dirty: BTreeSet<OsString>,
    /// Records that several files shared: removed when each has one of its own.
    shared: BTreeSet<PathBuf>,
    /// The directory's mount as it is recorded. The outer None: the record was not read yet.
    recorded: Option<Option<Place>>,
    /// The same, to be recorded.
    new_place: Option<Place>,
    /// Records of files that are gone are still to be looked for.
    sweep: bool,
    /// What is being written, in case that its writer is never heard of again.
    writing: Option<Write>,
    no_write_before: Boot,
}

impl Manifests {
    /// Looks at nothing yet: `next_deadline` is now, and the looks that `due` asks for give the first desired set (D1). The caller's
    /// poll says with `token` that `ready` is to be called.
    pub fn open(settings: Settings, registry: &mio::Registry, token: mio::Token, mounts: mio::Token) -> Manifests {
        Manifests {
            watcher: Watcher::new(registry, token, mounts),
            store: Store::open(settings.records.clone()),
            looks: Looks::default(),
            settings,
            sources: BTreeMap::new(),
            waits: BTreeMap::new(),
            standing: OpenProblems::default(),
            stage: Stage::New,
            directory: None,
            steps: Vec::new(),
            scan: None,
            one_by_one: false,
            unwatched: false,
            changed: false,
            unsettled: false,
            held_until: None,
            next_full: Boot(0),
            more: false,
            dirty: BTreeSet::new(),
            shared: BTreeSet::new(),
            recorded: None,
            new_place: None,
            sweep: false,
            writing: None,
            no_write_before: Boot(0),
        }
    }

    /// Something moved. Gives the whole desired set in the order of paths, if it changed.
    pub fn ready(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        self.events(now);
        self.desired(now)
    }

    /// What was due by now. Gives the whole desired set if it changed.
    pub fn due(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        if self.more {
            self.events(now);
        }
        if self.no_write_before <= now.boot {
            self.no_write_before = Boot(0);
        }
        let due: Vec<OsString> =
            self.waits.iter().filter(|(_, (at, _))| *at <= now.boot).map(|(name, _)| name.clone()).collect();
        for name in due {
            let Some((_, wait)) = self.waits.remove(&name) else { continue };
            let why = match wait {
                Wait::Gone => Why::Gone,
                Wait::Settle(stamp) => Why::Settling(stamp),
            };
            self.looks.want(Some(name), why, now.boot);
        }
        self.looks.retry(now.boot);
        if self.next_full <= now.boot {
            self.look_at_all(now);
        }
        self.desired(now)
    }

    /// When `due` wants to be called.
    pub fn next_deadline(&self) -> Boot {
        if self.more {
            // mio tells of new events only; these are old.
            return Boot(0);
        }
        let waits = self.waits.values().map(|(at, _)| *at);
        let write = Some(self.no_write_before).filter(|at| *at > Boot(0));
        waits.chain(write).chain(self.looks.next_retry()).chain(self.held_until).fold(self.next_full, Boot::min)
    }

    /// SIGHUP: all is looked at again.
    pub fn reload(&mut self, now: Now) {
        self.look_at_all(now);
    }

    /// What is wrong at present, by path.
    pub fn problems(&self) -> impl Iterator<Item = &OpenProblem> {
        self.standing.iter()
    }

    /// How many files say something.
    pub fn files(&self) -> usize {
        self.sources.len()
    }

    /// The desired set as it was given last, or as it is about to be.
    pub fn pods(&self) -> impl Iterator<Item = &Rc<Pod>> {
        self.sources.values().flat_map(|source| &source.held).filter_map(Held::pod)
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        self.settings.directory.join(name)
    }

    fn shown(&self, name: &OsStr) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    fn wait(&mut self, name: &OsStr, time: Duration, wait: Wait, now: Now) {
        self.waits.insert(name.to_owned(), (now.boot + time, wait));
    }

    fn full_within(&mut self, time: Duration, now: Now) {
        self.next_full = self.next_full.min(now.boot + time);
    }

    fn is_first(&self) -> bool {
        self.stage != Stage::Read
    }

    fn is_the_directory(&self, there: Option<Stamp>) -> bool {
        let known = self.directory.as_ref().map(|directory| directory.identity);
        matches!((known, there), (Some(old), Some(new)) if old.same_inode(&new))
    }

    /// Begins a scan.
    fn look_at_all(&mut self, now: Now) {
        if self.stage == Stage::New {
            self.stage = Stage::First;
        }
        self.unwatched = false;
        if let Err(why) = self.watcher.open(&self.settings.mountinfo) {
            self.not_watched(why);
        }
        self.next_full = now.boot + if self.unwatched { self.settings.check_frequency } else { NET };
        self.looks.want(None, Why::Listed, now.boot);
    }

    fn not_watched(&mut self, why: String) {
        if self.is_first() && !self.unwatched {
            log::warn!("manifests: cannot watch for changes, looking each fileCheckFrequency instead error={why:?}");
        }
        self.unwatched = true;
    }

    /// The desired set, if it changed. Two pods of one name are both in it: who runs is the engine's to say (D4).
    fn desired(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        if self.is_first() || !(self.changed || self.unsettled) {
            self.held_until = None;
            return None;
        }
        // What changed together is one change; but nothing waits long for a file that does not answer.
        if let Some(until) = self.looks.together_until(now.boot)
            && *self.held_until.get_or_insert(until) > now.boot
        {
            return None;
        }
        self.held_until = None;
        if std::mem::take(&mut self.unsettled) {
            self.settle(now);
        }
        if !self.changed || self.is_being_renamed() {
            return None;
        }
        self.changed = false;
        Some(self.pods().cloned().collect())
    }

    /// A file that was just renamed has its pods twice until its old name is believed to be gone: that is no conflict.
    fn is_being_renamed(&self) -> bool {
        let (leaving, staying): (Vec<_>, Vec<_>) = self
            .sources
            .iter()
            .flat_map(|(name, source)| source.held.iter().filter_map(Held::pod).map(move |pod| (name, &pod.name)))
            .partition(|(name, _)| matches!(self.waits.get(*name), Some((_, Wait::Gone))));
        leaving.iter().any(|(_, pod)| staying.iter().any(|(_, other)| other == pod))
    }
}

/// The time for `config.seen`.
fn seen(now: Now) -> String {
    now.wall.timestamp().map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
