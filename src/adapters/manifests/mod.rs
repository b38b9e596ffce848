//! Reads the manifest directory (D1, D2), reports what has changed in it, and stores the records of manifests. The
//! engine decides which version of each document is in force (`engine/desired/source`).
//!
//! A file is read as soon as a change is complete: the writer has closed the file or renamed it into place. A file
//! found by a scan, or a new name, is read once it has not changed for 1 s. A missing file is considered removed after
//! 10 ms, because some editors rename a file away and write a new one, and only if the directory is readable and is
//! the right one.
//!
//! This module never accesses the directory or its files on the event loop. The loop keeps the state and decides which
//! paths to inspect (`inspections`), a helper thread inspects them (`inspection_job`, `inspection`), and the loop
//! evaluates the results (`scan`, `files`). A file system that does not respond delays only the inspections of its own
//! files.
//!
//! No frequent timer runs: with inotify (`watch`), a full scan runs every 10 minutes as a safety net. The period is
//! `fileCheckFrequency` without inotify, while a file cannot be read, and on file systems where inotify does not
//! report changes made by other machines (NFS, virtiofs, FUSE and similar).

mod check;
pub mod edit;
mod file;
mod files;
mod foreign;
mod inspection;
mod inspection_job;
mod inspections;
mod moved;
mod records;
mod results;
mod scan;
mod scan_progress;
mod service_credentials;
mod store;
mod unfinished;
mod walk;
mod watch;

use crate::api::ordered::CollectOrdered;
pub use check::{check_text, files_in};
pub use file::is_open;
pub use foreign::{COMMAND as INSPECT_COMMAND, answer as answer_inspection, may_hang};
pub use inspection_job::{Inspected, Inspection};
pub use service_credentials::ServiceCredentials;
pub use store::Write;

use crate::api::manifest_report::{DirectoryState, FileReport, ManifestReport};
use crate::api::time::{Boot, Now};
use file::Stamp;
use inspections::{Inspections, Why};
use scan_progress::{Scan, ScanStage, ScannedDirectory};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{MountPlace, Store};
use walk::PathStep;
use watch::Watcher;

/// A file that changed without a completion event is read after this time without a further change (D2).
const SETTLE: Duration = Duration::from_secs(1);
/// Time after which a missing file is considered removed. It is longer than an editor needs for a rename and a
/// rewrite, and longer than most runs of `rm -r`.
const GONE: Duration = Duration::from_millis(10);
/// Minimum time between two reads of the mount table while no inspection runs. Each start of a container changes the
/// table several times, and the kernel needs about a millisecond to generate a table of a few hundred mounts.
const MOUNTS: Duration = Duration::from_secs(1);
/// Period of the full scan while inotify works (D2).
const NET: Duration = Duration::from_secs(600);

/// The directory to watch, and how.
#[derive(Clone, Debug)]
pub struct ManifestSettings {
    /// The absolute path of the manifest directory, which is part of the pods' identity (D3).
    pub directory: PathBuf,
    /// `manifests` in the root directory. The engine's records are elsewhere because their format differs.
    pub records: PathBuf,
    /// `fileCheckFrequency`: the scan period while inotify is not available.
    pub check_frequency: Duration,
    /// `/proc/self/mountinfo`, except in tests.
    pub mountinfo: PathBuf,
    /// The program that inspects foreign file systems, run with the arguments `INSPECT_COMMAND` and a request. If it
    /// is not set, the agent inspects them itself.
    pub reader: Option<PathBuf>,
    pub credentials: ServiceCredentials,
}

impl ManifestSettings {
    pub fn new(directory: &Path, root: &Path, check_frequency: Duration) -> ManifestSettings {
        ManifestSettings {
            directory: directory.to_owned(),
            records: root.join("manifests"),
            check_frequency,
            mountinfo: crate::adapters::mount_table::TABLE.into(),
            reader: None,
            credentials: ServiceCredentials::default(),
        }
    }
}

/// Why an inspection returned no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSeen {
    /// The inspection started and missed its deadline. Its thread hangs.
    Stuck,
    /// The inspection did not start, for this reason.
    NotBegun(String),
}

/// A file that was reported.
#[derive(Debug, Default)]
struct ReportedFile {
    /// Digest of the text that was read last. A text with the same digest is not reported again.
    text: Option<String>,
    stamp: Option<Stamp>,
    link: bool,
    /// The steps of its symbolic links.
    steps: Vec<PathStep>,
    /// Whether inotify misses changes to the file.
    unwatched: bool,
    /// Why the last attempt to read the file failed, if it did.
    unreadable: Option<String>,
    /// Whether the text that was read last contains a manifest, valid or not. If so, the directory is the right one.
    has_documents: bool,
    /// Whether the text that was read last contains a Secret.
    has_secret: bool,
    /// Whether every user of the machine could read the file when it was read last.
    open: bool,
}

/// Why a file is inspected again later.
#[derive(Debug)]
enum Wait {
    /// The file is read if its stamp is unchanged by then.
    Settle(Option<Stamp>),
    /// The file is considered removed if it is still missing by then.
    Gone,
}

pub struct Manifests {
    settings: ManifestSettings,
    watcher: Watcher,
    store: Store,
    inspections: Inspections,
    sources: BTreeMap<OsString, ReportedFile>,
    waits: BTreeMap<OsString, (Boot, Wait)>,
    stage: ScanStage,
    /// The directory at the last scan. None before the first scan, and while the directory is missing.
    directory: Option<ScannedDirectory>,
    /// The steps of the directory's path.
    steps: Vec<PathStep>,
    scan: Option<Scan>,
    /// Whether the last scan that included the stamps of the files hung. If so, the next scan reads only the names.
    one_by_one: bool,
    /// Whether some paths cannot be watched.
    unwatched: bool,
    directory_state: DirectoryState,
    /// The changes of files since the last report.
    changes: Vec<FileReport>,
    /// The last report, without its files. None before the first report.
    reported: Option<ManifestReport>,
    /// The report waits until this time for more changes of the same moment.
    more_until: Option<Boot>,
    next_full: Boot,
    /// Whether the last call of `events` left events unread.
    more: bool,
    /// When the mount table was last read because of a change.
    mounts_read: Option<Boot>,
    /// The mount table has changed since that read, and is read again at this time.
    mounts_due: Option<Boot>,
    /// The recorded mount of the directory. The outer None means that the record has not been read yet.
    recorded: Option<Option<MountPlace>>,
    /// A mount of the directory that is not recorded yet.
    new_place: Option<MountPlace>,
    /// Whether the record of the mount is being written.
    writing: bool,
}

impl Manifests {
    /// Returns an instance that has read nothing yet. `next_deadline` is immediate, and the inspections that `due`
    /// requests lead to the first desired pods (D1). The caller calls `ready` when its poll returns `token`, and
    /// `mounted` for `mounts`.
    pub fn open(
        settings: ManifestSettings,
        registry: &mio::Registry,
        token: mio::Token,
        mounts: mio::Token,
    ) -> Manifests {
        Manifests {
            watcher: Watcher::new(registry, token, mounts),
            store: Store::open(settings.records.clone()),
            inspections: Inspections::default(),
            settings,
            sources: BTreeMap::new(),
            waits: BTreeMap::new(),
            stage: ScanStage::New,
            directory: None,
            steps: Vec::new(),
            scan: None,
            one_by_one: false,
            unwatched: false,
            directory_state: DirectoryState::default(),
            changes: Vec::new(),
            reported: None,
            more_until: None,
            next_full: Boot(0),
            more: false,
            mounts_read: None,
            mounts_due: None,
            recorded: None,
            new_place: None,
            writing: false,
        }
    }

    /// Handles inotify events. Returns a report if something changed.
    pub fn ready(&mut self, now: Now) -> Option<ManifestReport> {
        self.events(now);
        self.take_report(now)
    }

    /// Does the work that is due. Returns a report if something changed.
    pub fn due(&mut self, now: Now) -> Option<ManifestReport> {
        if self.more {
            self.events(now);
        }
        let due: Vec<OsString> =
            self.waits.iter().filter(|(_, (at, _))| *at <= now.boot).map(|(name, _)| name.clone()).collect();
        for name in due {
            let Some((_, wait)) = self.waits.remove(&name) else { continue };
            let why = match wait {
                Wait::Gone => Why::Gone,
                Wait::Settle(stamp) => Why::Settling(stamp),
            };
            self.inspections.want(Some(name), why, now.boot);
        }
        if self.mounts_due.is_some_and(|at| at <= now.boot) {
            self.read_mounts(now);
        }
        self.inspections.retry(now.boot);
        if self.next_full <= now.boot {
            self.start_scan(now);
        }
        self.take_report(now)
    }

    /// Returns the time of the next call of `due`.
    pub fn next_deadline(&self) -> Boot {
        if self.more {
            // Call `due` at once: mio reports only new events, and has already reported these.
            return Boot(0);
        }
        let waits = self.waits.values().map(|(at, _)| *at).chain(self.inspections.next_retry());
        waits.chain(self.more_until).chain(self.mounts_due).fold(self.next_full, Boot::min)
    }

    /// Starts a full scan after SIGHUP.
    pub fn reload(&mut self, now: Now) {
        self.start_scan(now);
    }

    /// Returns the manifest directory.
    pub fn directory(&self) -> &Path {
        &self.settings.directory
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
        self.stage != ScanStage::Read
    }

    fn is_the_directory(&self, there: Option<Stamp>) -> bool {
        let known = self.directory.as_ref().map(|directory| directory.identity);
        matches!((known, there), (Some(old), Some(new)) if old.same_inode(&new))
    }

    /// Starts a scan.
    fn start_scan(&mut self, now: Now) {
        if self.stage == ScanStage::New {
            self.stage = ScanStage::First;
        }
        self.unwatched = false;
        if let Err(why) = self.watcher.open(&self.settings.mountinfo) {
            self.not_watched(why);
        }
        self.next_full = now.boot + if self.unwatched { self.settings.check_frequency } else { NET };
        self.inspections.want(None, Why::Listed, now.boot);
    }

    fn not_watched(&mut self, why: String) {
        if self.is_first() && !self.unwatched {
            log::warn!("manifests: failed to watch the directory; reading it every fileCheckFrequency error={why:?}");
        }
        self.unwatched = true;
    }

    /// Returns a report if something changed. Reports each change immediately, so that its text is not held in memory.
    fn take_report(&mut self, now: Now) -> Option<ManifestReport> {
        let is_gone = |(name, (_, wait)): (&OsString, &(Boot, Wait))| {
            (matches!(wait, Wait::Gone) && self.sources.contains_key(name)).then(|| name.clone())
        };
        let missing = self.waits.iter().filter_map(is_gone).collect_set();
        let directory = self.directory_state.clone();
        let is_news = |state: &ManifestReport| !self.changes.is_empty() || self.reported.as_ref() != Some(state);
        let complete = ManifestReport { files: Vec::new(), missing, directory, more: false };
        let more = self.is_first() || is_news(&complete) && self.awaits_more(now.boot);
        let state = ManifestReport { more, ..complete };
        if !more {
            self.more_until = None;
        }
        if self.changes.is_empty() && (more || self.reported.as_ref() == Some(&state)) {
            return None;
        }
        self.reported = Some(state.clone());
        Some(ManifestReport { files: std::mem::take(&mut self.changes), ..state })
    }

    /// Reports whether more changes of the same moment may follow, because they come into force together. A file
    /// system that does not respond delays them only for a short time.
    fn awaits_more(&mut self, now: Boot) -> bool {
        let Some(until) = self.inspections.together_until(now) else { return false };
        *self.more_until.get_or_insert(until) > now
    }
}

#[cfg(test)]
mod tests;
