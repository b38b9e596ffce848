//! The inspections that are wanted, running or hung.
//!
//! At most one inspection of a path (the directory or one of its files) runs at a time, and only a few run in
//! parallel. An inspection that hangs is abandoned and repeated with a back-off, so it does not block the other files.
//! Each inspection gets a list of mounts to avoid, so that no two inspections of a path hang on the same mount. A
//! mount that hangs therefore blocks a bounded number of threads and processes.

use super::file::Stamp;
use super::inspection::Question;
use super::inspection_job::Inspection;
use super::unfinished::Unfinished;
use super::walk::Avoid;
use super::watch::Touch;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Maximum number of inspections that run in parallel.
const RUNNING: usize = 2;
/// Once this many threads or processes hang on a mount, no other file on that mount is inspected.
const PER_MOUNT: usize = 3;
/// Once this many threads or processes hang in total, files on foreign file systems are not inspected.
const ALL_MOUNTS: usize = 6;
/// The back-off after an inspection that hangs.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// How long the report of a change waits for inspections that were requested with it, so that files that changed
/// together cause one update.
const TOGETHER: Duration = Duration::from_millis(200);
/// The time limit of a helper process.
const LIMIT: Duration = Duration::from_secs(5);

/// The name of a file, or None for the directory.
pub(super) type FileKey = Option<OsString>;

/// Why a file is inspected. Not used for the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A scan found the file.
    Listed,
    /// The file had this stamp a moment ago.
    Settling(Option<Stamp>),
    /// The file was missing a moment ago.
    Gone,
    /// An event for the file occurred.
    Touched(Touch),
}

impl Why {
    fn and(self, later: Why) -> Why {
        match (self, later) {
            (Why::Touched(touch), Why::Touched(later)) => Why::Touched(touch.and(later)),
            (touched @ Why::Touched(_), _) => touched,
            (why, Why::Listed) => why,
            (_, later) => later,
        }
    }
}

#[derive(Debug)]
struct RunningInspection {
    key: FileKey,
    why: Why,
    since: Boot,
    /// The directory without links, as passed to the inspection.
    base: Option<PathBuf>,
    /// Whether the inspection of the directory includes the stamps of the files.
    stamps: bool,
    at: Arc<AtomicU64>,
    alive: Arc<()>,
}

/// An inspection that ended.
#[derive(Debug)]
pub(super) struct EndedInspection {
    pub(super) key: FileKey,
    pub(super) why: Why,
    pub(super) base: Option<PathBuf>,
    pub(super) stamps: bool,
    /// The id of the mount accessed last; 0 if there was none.
    pub(super) at: u64,
    pub(super) alive: Arc<()>,
}

#[derive(Debug)]
struct Hung {
    /// The id of the mount on which the inspection hangs; None if unknown.
    mount: Option<u64>,
    retry_at: Boot,
    delay: Duration,
}

/// A thread or process that hangs.
#[derive(Debug)]
struct Left {
    /// The inspected path; None if the inspection included the stamps of all files.
    key: Option<FileKey>,
    mount: Option<u64>,
    unfinished: Unfinished,
}

#[derive(Debug, Default)]
pub(super) struct Inspections {
    wanted: BTreeMap<FileKey, (Boot, Why)>,
    running: BTreeMap<u64, RunningInspection>,
    hung: BTreeMap<FileKey, Hung>,
    left: Vec<Left>,
    next_ticket: u64,
}

/// The resources that an inspection uses.
pub(super) struct Means {
    pub(super) inotify: Option<Arc<OwnedFd>>,
    pub(super) reader: Option<PathBuf>,
}

impl Inspections {
    pub(super) fn want(&mut self, key: FileKey, why: Why, now: Boot) {
        let (since, wanted) = self.wanted.get(&key).copied().unwrap_or((now, why));
        self.wanted.insert(key, (since, wanted.and(why)));
    }

    /// Cancels a wanted inspection.
    pub(super) fn forget(&mut self, key: &FileKey) {
        self.wanted.remove(key);
    }

    /// Cancels the wanted inspections of all files, because the directory cannot be used.
    pub(super) fn forget_files(&mut self) {
        self.wanted.retain(|key, _| key.is_none());
        self.hung.retain(|key, _| key.is_none());
    }

    pub(super) fn is_running(&self, key: &FileKey) -> bool {
        self.running.values().any(|running| running.key == *key)
    }

    /// Returns the files that are being inspected.
    pub(super) fn running_files(&self) -> Vec<OsString> {
        self.running.values().filter_map(|running| running.key.clone()).collect()
    }

    pub(super) fn is_wanted(&self, key: &FileKey) -> bool {
        self.wanted.contains_key(key)
    }

    pub(super) fn is_hung(&self, key: &FileKey) -> bool {
        self.hung.contains_key(key)
    }

    pub(super) fn any_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Reports whether nothing hangs and no path waits for its retry.
    pub(super) fn none_hung(&self) -> bool {
        self.hung.is_empty() && self.left.is_empty()
    }

    /// Returns the time until which the report of a change waits for inspections of the same moment; None if it need
    /// not wait.
    pub(super) fn together_until(&self, now: Boot) -> Option<Boot> {
        let running = self.running.values().map(|running| running.since);
        let since = self.wanted.values().map(|(since, _)| *since).chain(running);
        since.map(|since| since + TOGETHER).filter(|until| *until > now).max()
    }

    /// Returns the next path to inspect, if an inspection may start.
    pub(super) fn next(&self) -> Option<(FileKey, Why)> {
        if self.running.len() >= RUNNING {
            return None;
        }
        let free = self.wanted.iter().filter(|(key, _)| !self.is_running(key));
        // The directory comes first, then the longest-waiting file, so that files that hang cannot starve the others.
        free.min_by_key(|(key, (since, _))| (key.is_some(), *since)).map(|(key, (_, why))| (key.clone(), *why))
    }

    /// Starts the inspection of the path that `next` returned.
    pub(super) fn begin(
        &mut self,
        key: FileKey,
        mut question: Question,
        base: Option<PathBuf>,
        stamps: bool,
        means: Means,
        now: Boot,
    ) -> Inspection {
        let (since, why) = self.wanted.remove(&key).unwrap_or((now, Why::Listed));
        question.avoid = self.avoid(&key);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let running = RunningInspection { key, why, since, base, stamps, at: Arc::default(), alive: Arc::default() };
        let (at, alive) = (running.at.clone(), running.alive.clone());
        self.running.insert(ticket, running);
        Inspection { ticket, question, inotify: means.inotify, at, _alive: alive, reader: means.reader, limit: LIMIT }
    }

    /// Removes an inspection that ended or was abandoned.
    pub(super) fn end(&mut self, ticket: u64) -> Option<EndedInspection> {
        let RunningInspection { key, why, base, stamps, at, alive, .. } = self.running.remove(&ticket)?;
        Some(EndedInspection { key, why, base, stamps, at: at.load(Ordering::Relaxed), alive })
    }

    /// Ends the back-off of a path, because its file system responds.
    pub(super) fn answered(&mut self, key: &FileKey) {
        self.hung.remove(key);
    }

    /// Schedules a retry, because the file system does not respond, or was avoided because it did not respond earlier.
    pub(super) fn hangs(&mut self, key: FileKey, mount: Option<u64>, now: Boot) {
        let delay = self.hung.get(&key).map_or(FIRST_RETRY, |hung| (hung.delay * 2).min(LAST_RETRY));
        self.hung.insert(key, Hung { mount, retry_at: now + delay, delay });
    }

    /// Records a thread or process that an inspection left behind. `key`: None if the inspection included the stamps
    /// of all files.
    pub(super) fn leave(&mut self, key: Option<FileKey>, mount: Option<u64>, unfinished: Unfinished) {
        // No thread or process is left. The exit of a killed process does not show that its file system responds
        // again.
        if matches!(unfinished, Unfinished::Over) {
            return;
        }
        self.left.push(Left { key, mount, unfinished });
    }

    /// Handles a change to the mount table: an inspection that hung on an unknown mount, or on one that no longer
    /// exists, is retried immediately.
    pub(super) fn mounted(&mut self, is_there: impl Fn(u64) -> bool, now: Boot) {
        for hung in self.hung.values_mut().filter(|hung| !hung.mount.is_some_and(&is_there)) {
            hung.retry_at = now;
        }
        self.retry(now);
    }

    /// Requests the inspections whose retry is due. All are due once a thread or process that hung has ended.
    pub(super) fn retry(&mut self, now: Boot) {
        let left = self.left.len();
        self.left.retain_mut(|left| !left.unfinished.is_over());
        if self.left.len() < left {
            self.hung.values_mut().for_each(|hung| hung.retry_at = now);
        }
        let due: Vec<FileKey> =
            self.hung.iter().filter(|(_, h)| h.retry_at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(hung) = self.hung.get_mut(&key) {
                hung.retry_at = now + LAST_RETRY;
            }
            self.want(key, Why::Touched(Touch { attributes: true, ..Touch::default() }), now);
        }
    }

    /// Returns the time of the next call of `retry`.
    pub(super) fn next_retry(&self) -> Option<Boot> {
        // A thread wakes the event loop when it ends, so retry at once. A process does not, so its retry is scheduled
        // as usual.
        if self.left.iter().any(|left| left.unfinished.has_come_back()) {
            return Some(Boot(0));
        }
        self.hung.values().map(|hung| hung.retry_at).min()
    }

    /// Returns the mounts that an inspection must not access: those on which an earlier inspection of the same path
    /// hangs, and those on which many inspections hang.
    fn avoid(&self, key: &FileKey) -> Avoid {
        let many = self.left.len() >= ALL_MOUNTS;
        let on = |mount| self.left.iter().filter(|left| left.mount == Some(mount)).count();
        let hung = |left: &Left| {
            let mount = left.mount?;
            (many || left.key.as_ref() == Some(key) || on(mount) >= PER_MOUNT).then_some(mount)
        };
        Avoid { mounts: self.left.iter().filter_map(hung).collect_set(), foreign: many && key.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::manifests::inspection::InspectionSubject;

    const NOW: Boot = Boot(1_000_000_000);

    fn begin(inspections: &mut Inspections) -> Inspection {
        let (key, _) = inspections.next().unwrap();
        let question = Question {
            directory: "/m".into(),
            subject: InspectionSubject::Directory { stamps: false },
            mountinfo: "/none".into(),
            avoid: Avoid::default(),
        };
        inspections.begin(key, question, None, false, Means { inotify: None, reader: None }, NOW)
    }

    fn key(name: &str) -> FileKey {
        Some(name.into())
    }

    /// Makes a thread hang while it inspects `name` on a mount. Dropping the result ends the thread.
    fn hang(inspections: &mut Inspections, name: &str, mount: u64) -> Arc<()> {
        inspections.want(key(name), Why::Listed, NOW);
        let inspection = begin(inspections);
        inspection.at.store(mount, Ordering::Relaxed);
        let ended = inspections.end(inspection.ticket).unwrap();
        assert_eq!((&ended.key, ended.at), (&key(name), mount));
        inspections.leave(Some(key(name)), Some(mount), Unfinished::Thread(ended.alive));
        inspections.hangs(key(name), Some(mount), NOW);
        inspection._alive
    }

    #[test]
    fn a_hung_inspection_is_retried_with_a_back_off_unless_its_mount_still_hangs() {
        let mut inspections = Inspections::default();
        let thread = hang(&mut inspections, "a", 7);
        let mut delays = Vec::new();
        let mut now = NOW;
        for _ in 0..6 {
            let at = inspections.next_retry().unwrap();
            delays.push(at.since(now).as_secs());
            now = at;
            inspections.retry(now);
            let inspection = begin(&mut inspections);
            assert_eq!(inspection.question.avoid.mounts, [7].into());
            inspections.end(inspection.ticket).unwrap();
            inspections.hangs(key("a"), Some(7), now);
        }
        assert_eq!(delays, [5, 10, 20, 40, 60, 60]);
        // Another file on that mount is inspected.
        inspections.want(key("b"), Why::Listed, now);
        let inspection = begin(&mut inspections);
        assert_eq!(inspection.question.avoid, Avoid::default());
        inspections.end(inspection.ticket).unwrap();
        // The thread ends: the path is retried at once, with no mount to avoid.
        drop(thread);
        assert_eq!(inspections.next_retry(), Some(Boot(0)));
        inspections.retry(now);
        assert_eq!(inspections.next(), Some((key("a"), Why::Touched(Touch { attributes: true, ..Touch::default() }))));
        assert_eq!(begin(&mut inspections).question.avoid, Avoid::default());
        inspections.answered(&key("a"));
        assert!(inspections.none_hung());
    }

    #[test]
    fn a_mount_on_which_many_hang_is_not_touched_by_the_others() {
        let mut inspections = Inspections::default();
        let mut threads =
            vec![hang(&mut inspections, "a", 7), hang(&mut inspections, "b", 7), hang(&mut inspections, "c", 8)];
        let avoid = |inspections: &mut Inspections| {
            inspections.want(key("x"), Why::Listed, NOW);
            let inspection = begin(inspections);
            inspections.end(inspection.ticket).unwrap();
            inspection.question.avoid
        };
        assert_eq!(avoid(&mut inspections), Avoid::default());
        threads.push(hang(&mut inspections, "d", 7));
        assert_eq!(avoid(&mut inspections), Avoid { mounts: [7].into(), foreign: false });
        threads.extend([hang(&mut inspections, "e", 8), hang(&mut inspections, "f", 9)]);
        assert_eq!(avoid(&mut inspections), Avoid { mounts: [7, 8, 9].into(), foreign: true });
        inspections.want(None, Why::Listed, NOW);
        let inspection = begin(&mut inspections);
        assert_eq!(inspection.question.avoid, Avoid { mounts: [7, 8, 9].into(), foreign: false }, "the directory");
    }

    #[test]
    fn files_that_hang_do_not_starve_other_files() {
        let mut inspections = Inspections::default();
        let second = Duration::from_secs(1);
        for name in ["a", "b", "c"] {
            inspections.want(key(name), Why::Listed, NOW);
            let inspection = begin(&mut inspections);
            inspections.end(inspection.ticket).unwrap();
            inspections.leave(Some(key(name)), Some(7), Unfinished::Over);
            inspections.hangs(key(name), Some(7), NOW);
        }
        // The mount table changes; all mounts still exist.
        inspections.mounted(|_| true, NOW + second);
        assert_eq!(inspections.next(), None, "each waits for its back-off");
        inspections.want(key("d"), Why::Listed, NOW + second);
        // All three are due, but they come after the file that has waited longer.
        inspections.retry(NOW + FIRST_RETRY);
        inspections.want(None, Why::Listed, NOW + FIRST_RETRY + second);
        let order: Vec<FileKey> = (0..5)
            .map(|_| {
                let inspection = begin(&mut inspections);
                inspections.end(inspection.ticket).unwrap().key
            })
            .collect();
        assert_eq!(order, [None, key("d"), key("a"), key("b"), key("c")]);
    }

    #[test]
    fn parallel_inspections_are_limited_in_total_and_to_one_per_subject() {
        let mut inspections = Inspections::default();
        for name in ["a", "b", "c"] {
            inspections.want(key(name), Why::Listed, NOW);
        }
        let (a, _b) = (begin(&mut inspections), begin(&mut inspections));
        assert_eq!(inspections.next(), None);
        inspections.want(key("a"), Why::Gone, NOW);
        inspections.end(a.ticket).unwrap();
        assert_eq!(inspections.next(), Some((key("a"), Why::Gone)));
        assert!(inspections.end(a.ticket).is_none(), "the inspection ended before");
    }
}
