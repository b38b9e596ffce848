//! The manifest directory: what its files say is the desired set of pods (D1 to D5), with the priorities that the classes
//! beside them give (A5).
//!
//! A change is read when it is complete (its writer closed the file, or renamed it into place). What is only *seen* (by
//! a full read, or as a new name) is read once it has not changed for a second. A file that is gone is believed to be gone
//! 10 ms later, since some editors rename a file away and write it anew. Only then, and only from a directory that
//! can be read and is the right one, a pod becomes undesired; whatever else is wrong, the last good version stays
//! (`contents`), over a restart too (`store`).
//!
//! Nothing here ticks: with inotify (`watch`) all is read again each 10 minutes as a safety net, without it, or while a file
//! cannot be read, each `fileCheckFrequency`.

mod contents;
mod file;
mod mount;
mod standing;
mod store;
mod watch;

pub use standing::Standing;
pub use store::Write;

use crate::api::document::{self, Context, Document, Object};
use crate::api::pod::Pod;
use crate::api::priority::{Classes, PriorityClass};
use crate::api::problem::Problem;
use crate::api::time::{Boot, Now};
use crate::api::uid;
use contents::Held;
use file::{Found, Stamp, Unread};
use standing::{Kind, StandingProblems};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use store::{Change, RecordedDocument, Store};
use watch::{Touch, Watcher};

/// How long a file must not have changed before it is read unasked (D2).
const SETTLE: Duration = Duration::from_secs(1);
/// How long a file must be gone: longer than an editor's rename and new file, and than most of an `rm -r`.
const GONE: Duration = Duration::from_millis(10);
/// The safety net, with a working inotify (D2).
const NET: Duration = Duration::from_secs(600);
/// When a record that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// The length of most mount tables, in bytes; a longer one takes more reads.
const MOUNTS: usize = 16 << 10;
/// Records that are written together.
const BATCH: usize = 16;

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
}

impl Settings {
    pub fn new(directory: &Path, root: &Path, node_name: &str, check_frequency: Duration) -> Settings {
        Settings {
            directory: directory.to_owned(),
            records: root.join("manifests"),
            node_name: node_name.to_owned(),
            check_frequency,
            mountinfo: "/proc/self/mountinfo".into(),
        }
    }
}

/// What one file says.
#[derive(Debug, Default)]
struct Source {
    held: Vec<Held>,
    /// Of the text that was read last, to see that nothing changed without taking it apart.
    text: Option<String>,
    stamp: Option<Stamp>,
    link: bool,
    /// It could not be read at all, the last time.
    unreadable: bool,
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

pub struct Manifests {
    settings: Settings,
    watcher: Watcher,
    store: Store,
    sources: BTreeMap<OsString, Source>,
    waits: BTreeMap<OsString, (Boot, Wait)>,
    standing: StandingProblems,
    /// The directory that was read last; None before, and while it is missing.
    identity: Option<Stamp>,
    /// Nothing was read yet.
    fresh: bool,
    changed: bool,
    /// Files were read or went: what classes there are, and what pods have of them, is to be looked at (A5).
    unsettled: bool,
    next_full: Boot,
    /// Events are left over from the last turn.
    more: bool,
    /// Files whose records may differ from what they say.
    dirty: BTreeSet<OsString>,
    /// The directory's mount point is to be recorded.
    mount_point: Option<PathBuf>,
    /// Records of files that are gone are still to be looked for.
    sweep: bool,
    /// What is being written, in case that its writer is never heard of again.
    writing: Option<Write>,
    no_write_before: Boot,
}

impl Manifests {
    /// Reads nothing yet: `next_deadline` is now, and the first `due` gives the first desired set (D1). The caller's poll
    /// says with `token` that `ready` is to be called.
    pub fn open(settings: Settings, registry: &mio::Registry, token: mio::Token) -> Manifests {
        Manifests {
            watcher: Watcher::new(registry, token),
            store: Store::new(settings.records.clone()),
            settings,
            sources: BTreeMap::new(),
            waits: BTreeMap::new(),
            standing: StandingProblems::default(),
            identity: None,
            fresh: true,
            changed: false,
            unsettled: false,
            next_full: Boot(0),
            more: false,
            dirty: BTreeSet::new(),
            mount_point: None,
            sweep: false,
            writing: None,
            no_write_before: Boot(0),
        }
    }

    /// Something moved. Gives the whole desired set in the order of paths, if it changed.
    pub fn ready(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        self.events(now);
        if self.fresh { self.due(now) } else { self.desired(now) }
    }

    /// What was due by now. Gives the whole desired set if it changed, and the first time.
    pub fn due(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        if self.more {
            self.events(now);
        }
        if self.no_write_before <= now.boot {
            self.no_write_before = Boot(0);
        }
        let due: Vec<OsString> =
            self.waits.iter().filter(|(_, (at, _))| *at <= now.boot).map(|(name, _)| name.clone()).collect();
        let mut all = self.next_full <= now.boot;
        for name in due {
            let Some((_, wait)) = self.waits.remove(&name) else { continue };
            let found = file::look(&self.path(&name));
            match (wait, found) {
                (Wait::Gone, Found::Nothing) if self.is_the_same_directory() => self.remove(&name, now),
                (Wait::Gone, Found::Nothing) => all = true,
                (Wait::Settle(_), Found::Nothing) => self.wait(&name, GONE, Wait::Gone, now),
                (Wait::Settle(before), Found::Entry { stamp, .. }) if stamp == before => self.take(&name, now),
                (_, Found::Entry { link: true, .. }) => self.take(&name, now),
                (_, Found::Entry { stamp, .. }) => self.wait(&name, SETTLE, Wait::Settle(stamp), now),
            }
        }
        if all {
            self.read_all(now);
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
        let retry = Some(self.no_write_before).filter(|at| *at > Boot(0));
        waits.chain(retry).fold(self.next_full, Boot::min)
    }

    /// SIGHUP: all is read again. Gives the whole desired set if it changed.
    pub fn reload(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        self.read_all(now);
        self.desired(now)
    }

    /// What is wrong at present, by path.
    pub fn problems(&self) -> impl Iterator<Item = &Standing> {
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

    /// Records to write, when there is nothing more urgent; one batch at a time. Run it, here or on a helper thread, and
    /// tell `written` how it ended.
    pub fn take_write(&mut self, now: Now) -> Option<Write> {
        if self.writing.is_some() || now.boot < self.no_write_before {
            return None;
        }
        let changes: Vec<Change> = std::iter::from_fn(|| self.next_change()).take(BATCH).collect();
        self.writing = (!changes.is_empty()).then_some(Write { changes });
        self.writing.clone()
    }

    /// How the writing of a record ended.
    pub fn written(&mut self, result: Result<(), String>, now: Now) {
        let Some(write) = self.writing.take() else { return };
        let path = self.settings.directory.to_string_lossy().into_owned();
        match result {
            Ok(()) => {
                self.no_write_before = Boot(0);
                self.standing.set(&path, Kind::Record, Vec::new(), now);
            }
            Err(why) => {
                self.no_write_before = now.boot + RETRY;
                let message = format!("its last good version cannot be kept on disk: {why}");
                self.standing.set(&path, Kind::Record, vec![Problem::of_file(&path, message)], now);
                // Those that are on disk by now are seen to be there.
                write.changes.iter().for_each(|change| self.put_back(change, now));
            }
        }
    }

    /// Writes all records that are due, here and now.
    pub fn flush(&mut self, now: Now) {
        while let Some(write) = self.take_write(now) {
            self.written(write.run(), now);
        }
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

    fn is_the_same_directory(&self) -> bool {
        let there = file::stamp(&self.settings.directory);
        matches!((self.identity, there), (Some(old), Some(new)) if old.same_inode(&new))
    }

    /// Takes the events that there are, up to a turn's worth.
    fn events(&mut self, now: Now) {
        let mounts = self.watcher.watches_mounts();
        let moved = self.watcher.read().unwrap_or_else(|why| {
            log::warn!("manifests: events are lost, looking now and then instead error={why:?}");
            watch::Moved { overflow: true, ..watch::Moved::default() }
        });
        self.more = moved.more;
        if self.fresh {
            // All is about to be read.
            return;
        }
        if self.identity.is_some() {
            for (name, touch) in &moved.files {
                self.touched(name, *touch, now);
            }
        }
        // Of all mounts on the machine only one on the directory matters, and none once there are files.
        let still_empty = self.sources.is_empty() && self.is_the_same_directory();
        if moved.directory || moved.overflow || (mounts && !still_empty) {
            self.read_all(now);
        }
        if moved.overflow {
            self.full_within(self.settings.check_frequency, now);
        }
    }

    /// What an event of a name in the directory means. The file is looked at: it may have changed again.
    fn touched(&mut self, name: &OsStr, touch: Touch, now: Now) {
        if !file::counts(name) {
            // A link may lead through it (`..data`, as volumes of ConfigMaps have it).
            let moved = |(name, source): (&OsString, &Source)| {
                (source.link && file::stamp(&self.path(name)) != source.stamp).then(|| name.clone())
            };
            for name in self.sources.iter().filter_map(moved).collect::<Vec<_>>() {
                self.take(&name, now);
            }
            return;
        }
        let known = self.sources.get(name);
        match file::look(&self.path(name)) {
            Found::Nothing if known.is_some() || self.waits.contains_key(name) => {
                self.wait(name, GONE, Wait::Gone, now);
            }
            Found::Nothing => {}
            Found::Entry { link, hard_links, stamp } => {
                let unreadable = known.is_some_and(|source| source.unreadable);
                let same = known.is_some_and(|source| source.stamp == stamp && stamp.is_some());
                if touch.complete || (touch.attributes && unreadable) {
                    self.take(name, now);
                } else if same {
                    self.waits.remove(name);
                } else if link || hard_links {
                    // Made in one step, so it is complete.
                    self.take(name, now);
                } else if !touch.attributes || known.is_none() {
                    self.wait(name, SETTLE, Wait::Settle(stamp), now);
                }
            }
        }
    }

    /// Looks at the directory as a whole.
    fn read_all(&mut self, now: Now) {
        let first = std::mem::replace(&mut self.fresh, false);
        self.changed |= first;
        // Watched first, then read: nothing can happen in between unseen.
        let links = self.sources.iter().filter(|(_, source)| source.link).map(|(name, _)| name.as_os_str());
        let mut watched = self.watcher.arm(&self.settings.directory, links);
        let mut names = list(&self.settings.directory);
        let uncertain = |names: &Result<BTreeSet<OsString>, String>| names.as_ref().map_or(true, BTreeSet::is_empty);
        if uncertain(&names) && !self.watcher.watches_mounts() {
            watched = watched.and(self.watcher.watch_mounts(true, &self.settings.mountinfo));
            names = list(&self.settings.directory);
        }
        if !uncertain(&names) {
            // Nothing to fail when it is not wanted.
            let _ = self.watcher.watch_mounts(false, &self.settings.mountinfo);
        }
        if let Err(why) = &watched
            && first
        {
            log::warn!("manifests: cannot be watched, looking now and then instead error={why:?}");
        }
        self.next_full = now.boot + if watched.is_ok() { NET } else { self.settings.check_frequency };

        let path = self.settings.directory.to_string_lossy().into_owned();
        match names.and_then(|names| self.not_another_mount(&names).map(|()| names)) {
            Ok(names) => {
                self.standing.set(&path, Kind::Content, Vec::new(), now);
                self.read_names(&names, first, now);
            }
            Err(why) => {
                let message = format!("{why}; the pods that it last named go on");
                self.standing.set(&path, Kind::Content, vec![Problem::of_file(&path, message)], now);
                self.waits.clear();
                if first {
                    self.restore_all(now);
                }
                self.identity = None;
                self.full_within(self.settings.check_frequency, now);
            }
        }
    }

    /// An empty directory on another mount than the recorded one is missing (D2). One with files tells which is the
    /// right one.
    fn not_another_mount(&mut self, names: &BTreeSet<OsString>) -> Result<(), String> {
        let directory = &self.settings.directory;
        let real = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.clone());
        // Of a file of /proc nobody knows the length: with room for it, it is read at once.
        let mut text = String::with_capacity(MOUNTS);
        let read = std::fs::File::open(&self.settings.mountinfo).and_then(|mut file| file.read_to_string(&mut text));
        if read.is_err() {
            text.clear();
        }
        let Some(point) = mount::point_of(&text, &real) else { return Ok(()) };
        let recorded = self.store.mount_point(directory);
        if names.is_empty() {
            return match recorded {
                Some(recorded) if recorded != point => {
                    Err(format!("it is empty, and its file system ({}) is not mounted", recorded.display()))
                }
                _ => Ok(()),
            };
        }
        if recorded.as_ref() != Some(&point) {
            self.mount_point = Some(point);
        }
        Ok(())
    }

    fn read_names(&mut self, names: &BTreeSet<OsString>, first: bool, now: Now) {
        let same = self.is_the_same_directory();
        self.identity = file::stamp(&self.settings.directory);
        self.sweep |= first;
        for name in names {
            let Found::Entry { stamp, .. } = file::look(&self.path(name)) else { continue };
            let known = self.sources.get(name);
            let settled = |s: Stamp| s.latest().saturating_add(SETTLE.as_nanos() as i64) <= now.wall.0;
            match stamp {
                Some(stamp) if known.is_some_and(|source| source.stamp == Some(stamp) && !source.unreadable) => {
                    self.waits.remove(name);
                }
                Some(stamp) if !settled(stamp) => {
                    // Perhaps half-written. At the start that matters only if it could take pods away.
                    if first && !self.restore(name, now) {
                        self.take(name, now);
                    } else if !self.waits.contains_key(name) {
                        self.wait(name, SETTLE, Wait::Settle(Some(stamp)), now);
                    }
                }
                _ => self.take(name, now),
            }
        }
        // A directory that was made anew is perhaps still being filled.
        let delay = if same || first { GONE } else { SETTLE };
        let gone: Vec<OsString> = self.sources.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            if !self.waits.contains_key(&name) {
                self.wait(&name, delay, Wait::Gone, now);
            }
        }
    }

    /// Reads one file now.
    fn take(&mut self, name: &OsStr, now: Now) {
        let path = self.path(name);
        let shown = self.shown(name);
        self.waits.remove(name);
        let link = matches!(file::look(&path), Found::Entry { link: true, .. });
        if link {
            // A failure leaves the safety net.
            let _ = self.watcher.add_link(&self.settings.directory, name);
        }
        let (text, stamp) = match file::read(&path) {
            Ok(read) => read,
            Err(Unread::Gone) => return self.wait(name, GONE, Wait::Gone, now),
            Err(Unread::Changing) => {
                return self.wait(name, SETTLE, Wait::Settle(file::stamp(&path)), now);
            }
            Err(Unread::Broken { why, passing }) => {
                self.keep(name, vec![Problem::of_file(&shown, why)], now);
                let source = self.sources.entry(name.to_owned()).or_default();
                source.link = link;
                source.unreadable = true;
                source.stamp = None;
                if passing {
                    self.full_within(self.settings.check_frequency, now);
                }
                return;
            }
        };
        let digest = uid::digest_of_bytes(&text);
        let unchanged =
            |source: &&mut Source| !source.unreadable && source.text.as_ref().is_some_and(|old| *old == digest);
        if let Some(source) = self.sources.get_mut(name).filter(unchanged) {
            source.stamp = Some(stamp);
            source.link = link;
            return;
        }
        match document::parse(&text, &shown) {
            Err(problem) => self.keep(name, vec![problem], now),
            Ok(documents) => self.accept(name, &text, documents, now),
        }
        let source = self.sources.entry(name.to_owned()).or_default();
        (source.text, source.stamp, source.link, source.unreadable) = (Some(digest), Some(stamp), link, false);
    }

    /// A file that could be taken apart: its documents are in force, each for itself.
    fn accept(&mut self, name: &OsStr, text: &[u8], documents: Vec<Document>, now: Now) {
        let shown = self.shown(name);
        let seen = seen(now);
        let node_name = self.settings.node_name.clone();
        let context = Context { node_name: &node_name, seen: &seen };
        let make = |document: &Document| document.object(&shown, Some(text), context);
        let old = self.sources.get_mut(name).map(|source| std::mem::take(&mut source.held));
        let unknown = old.is_none();
        let before: Vec<Rc<Pod>> = old.iter().flatten().filter_map(Held::pod).cloned().collect();
        let (held, problems) = contents::merge(old, || self.recall(name, now).unwrap_or_default(), documents, make);
        self.changed |= !same_pods(&held, &before);
        self.unsettled = true;
        let source = self.sources.entry(name.to_owned()).or_default();
        source.held = held;
        source.unrecalled |= unknown;
        self.dirty.insert(name.to_owned());
        self.standing.set(&shown, Kind::Content, problems, now);
    }

    /// A file that is there but broken keeps what it last said (D2).
    fn keep(&mut self, name: &OsStr, problems: Vec<Problem>, now: Now) {
        if !self.sources.contains_key(name) {
            self.restore(name, now);
        }
        let shown = self.shown(name);
        self.standing.set(&shown, Kind::Content, problems, now);
    }

    fn remove(&mut self, name: &OsStr, now: Now) {
        let shown = self.shown(name);
        if let Some(source) = self.sources.remove(name) {
            self.changed |= source.held.iter().any(|held| held.pod().is_some());
            self.unsettled = true;
            self.dirty.insert(name.to_owned());
        }
        self.standing.set(&shown, Kind::Content, Vec::new(), now);
        self.standing.set(&shown, Kind::Class, Vec::new(), now);
        if self.sources.is_empty() {
            // An empty directory is watched in another way.
            self.next_full = now.boot;
        }
    }

    /// Puts in force what the record of a file says. False if there is none.
    fn restore(&mut self, name: &OsStr, now: Now) -> bool {
        let Some(held) = self.recall(name, now) else { return false };
        self.changed |= held.iter().any(|held| held.pod().is_some());
        self.unsettled = true;
        self.sources.insert(name.to_owned(), Source { held, ..Source::default() });
        true
    }

    /// What a file said when it was last good, as far as it would be accepted now; None if nothing is recorded.
    fn recall(&self, name: &OsStr, now: Now) -> Option<Vec<Held>> {
        let shown = self.shown(name);
        let record = self.store.load(&shown)?;
        let seen = seen(now);
        let context = Context { node_name: &self.settings.node_name, seen: &seen };
        let mut held = Vec::new();
        for RecordedDocument { number, content, priority, .. } in record.documents {
            match Document::from_content(number, content).object(&shown, None, context) {
                Ok(object) => held.push(Held::accepted(object, priority)),
                Err(problems) => {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    log::warn!("manifests: what was accepted before is not any more path={shown:?} error={problems:?}");
                }
            }
        }
        Some(held)
    }

    fn restore_all(&mut self, now: Now) {
        for record in self.store.load_all() {
            let path = PathBuf::from(record.path);
            if let Some(name) = path.file_name().filter(|_| path.parent() == Some(&self.settings.directory)) {
                self.restore(name, now);
            }
        }
    }

    /// A5: pods get their priority when all that is known of classes was read, so the order of files does not matter.
    fn settle(&mut self, now: Now) {
        // A class in a file that was just renamed is not there twice.
        let (going, staying): (Vec<_>, Vec<_>) =
            self.sources.iter().partition(|(name, _)| matches!(self.waits.get(*name), Some((_, Wait::Gone))));
        let classes = |sources: &[(&OsString, &Source)]| -> Vec<PriorityClass> {
            sources.iter().flat_map(|(_, source)| &source.held).filter_map(Held::class).cloned().collect()
        };
        let (going, staying) = (classes(&going), classes(&staying));
        let moved = going.iter().filter(|class| !staying.iter().any(|other| other.name == class.name));
        let (classes, mut wrong) = Classes::collect(staying.iter().chain(moved));
        for name in self.sources.keys().cloned().collect::<Vec<_>>() {
            self.settle_file(&name, &classes, &mut wrong, now);
        }
    }

    fn settle_file(&mut self, name: &OsStr, classes: &Classes, wrong: &mut Vec<Problem>, now: Now) {
        let shown = self.shown(name);
        let Some(source) = self.sources.get_mut(name) else { return };
        let mut held = std::mem::take(&mut source.held);
        let unrecalled = std::mem::take(&mut source.unrecalled);
        let mut new = held.iter_mut().map(|held| usize::from(held.decide(classes))).sum::<usize>();
        if unrecalled && held.iter().any(Held::is_lost) {
            let recorded = self.recall(name, now).unwrap_or_default();
            let lost = held.iter_mut().filter(|held| held.is_lost());
            new += lost.map(|held| usize::from(held.recall(&recorded))).sum::<usize>();
        }
        if new > 0 {
            self.changed = true;
            self.dirty.insert(name.to_owned());
        }
        let mut problems: Vec<Problem> = wrong.extract_if(.., |problem| problem.path == shown).collect();
        problems.extend(held.iter().filter_map(|held| held.problem(classes)));
        problems.sort_by_key(|problem| problem.document);
        self.standing.set(&shown, Kind::Class, problems, now);
        if let Some(source) = self.sources.get_mut(name) {
            source.held = held;
        }
    }

    /// The desired set, if it changed. Two pods of one name are both in it: who runs is the engine's to say (D4).
    fn desired(&mut self, now: Now) -> Option<Vec<Rc<Pod>>> {
        if !self.fresh && std::mem::take(&mut self.unsettled) {
            self.settle(now);
        }
        if self.fresh || !self.changed || self.is_being_renamed() {
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

    /// The next change of the records that is not on disk yet.
    fn next_change(&mut self) -> Option<Change> {
        if let Some(point) = self.mount_point.take() {
            return Some(self.store.put_mount_point(&self.settings.directory, &point));
        }
        if std::mem::take(&mut self.sweep) {
            // Files that went while nobody looked.
            for record in self.store.load_all() {
                let path = PathBuf::from(record.path);
                if let Some(name) = path.file_name().filter(|_| path.parent() == Some(&self.settings.directory))
                    && !self.sources.contains_key(name)
                {
                    self.dirty.insert(name.to_owned());
                }
            }
        }
        while let Some(name) = self.dirty.pop_first() {
            let path = self.shown(&name);
            let mut old = self.store.load(&path);
            let has_one = |source: &&mut Source| source.held.iter().any(|held| held.in_force().is_some());
            let Some(source) = self.sources.get_mut(&name).filter(has_one) else {
                if old.is_some() {
                    return Some(self.store.delete(&path));
                }
                continue;
            };
            let recorded = old.iter().flat_map(|record| &record.documents);
            let recorded = recorded.map(|d| (d.digest.as_str(), d.priority.as_ref()));
            let in_force = source.held.iter().filter_map(Held::in_force);
            if recorded.eq(in_force.map(|held| (held.digest(), held.given()))) {
                source.held.iter_mut().filter_map(Held::in_force_mut).for_each(|held| held.content = None);
                continue;
            }
            let mut documents = Vec::new();
            for held in source.held.iter_mut().filter_map(Held::in_force_mut) {
                let digest = held.digest().to_owned();
                let priority = held.given().cloned();
                let mut old = old.iter_mut().flat_map(|record| &mut record.documents);
                let content = held
                    .content
                    .take()
                    .and_then(|text| serde_json::from_str(&text).ok())
                    .or_else(|| old.find(|d| d.digest == digest).map(|d| std::mem::take(&mut d.content)));
                if let Some(content) = content {
                    documents.push(RecordedDocument { number: held.number(), digest, content, priority });
                }
            }
            return Some(self.store.put(&path, documents));
        }
        None
    }

    /// A record that could not be written is to be written again.
    fn put_back(&mut self, change: &Change, now: Now) {
        let Some(record) = change.record() else {
            // A removal, or the directory's own: found again by looking.
            self.sweep = true;
            return self.full_within(RETRY, now);
        };
        let path = PathBuf::from(&record.path);
        let Some(name) = path.file_name() else { return };
        self.dirty.insert(name.to_owned());
        for document in record.documents {
            let held = self.sources.get_mut(name).into_iter().flat_map(|source| &mut source.held);
            for held in held.filter_map(Held::in_force_mut).filter(|held| held.digest() == document.digest) {
                held.content.get_or_insert_with(|| document.content.to_string().into());
            }
        }
    }
}

/// All good objects in the text of a file, as a node of that name reads it, and everything that is wrong with the others: for
/// `wherry check FILE`.
pub fn check_text(path: &str, text: &[u8], node_name: &str) -> (Vec<Object>, Vec<Problem>) {
    document::read_objects(text, path, Context { node_name, seen: "" })
}

/// The manifests of a directory, in order, by the names that count: for `wherry check` without a file.
///
/// # Errors
/// Why the directory cannot be read.
pub fn files_in(directory: &Path) -> Result<Vec<PathBuf>, String> {
    list(directory).map(|names| names.into_iter().map(|name| directory.join(name)).collect())
}

/// The names that count, if the whole directory could be read. Sub-directories are no manifests, and do not count.
fn list(directory: &Path) -> Result<BTreeSet<OsString>, String> {
    let failed = |e: std::io::Error| format!("cannot be read: {e}");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if file::counts(&entry.file_name()) {
            names.insert(entry.file_name());
        }
    }
    Ok(names)
}

/// The time for `config.seen`.
fn seen(now: Now) -> String {
    now.wall.timestamp().map(|time| time.to_string()).unwrap_or_default()
}

/// Whether these are the very same pods: what is equal and made anew is not.
fn same_pods(held: &[Held], before: &[Rc<Pod>]) -> bool {
    let now: Vec<&Rc<Pod>> = held.iter().filter_map(Held::pod).collect();
    now.len() == before.len() && now.iter().zip(before).all(|(now, pod)| Rc::ptr_eq(now, pod))
}

#[cfg(test)]
mod tests;
