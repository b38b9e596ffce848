//! Which looks are wanted, which are running, and which hang.
//!
//! One look at a subject (the directory, or a file in it) runs at a time, and few run together, so that a file that hangs leaves room
//! for the others. What hangs is tried again with a back-off, and never twice at once on the same mount: a look is told which
//! mounts to avoid. So a hung mount costs a bounded number of threads or processes, and none of its files a second
//! one.

use super::file::Stamp;
use super::foreign::Unfinished;
use super::look::{Look, Question};
use super::walk::Avoid;
use super::watch::Touch;
use crate::api::time::Boot;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Looks that run at the same time.
const RUNNING: usize = 2;
/// Threads or processes that hang on one mount before nothing else on it is looked at.
const PER_MOUNT: usize = 3;
/// The same for all mounts, before no foreign file system is looked at that was not looked at before.
const ALL_MOUNTS: usize = 6;
/// The back-off of what hangs.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// How long a change waits for looks that began with it, so that files that changed together are one change.
const TOGETHER: Duration = Duration::from_millis(200);
/// How long a process may take to look at a foreign file system.
const LIMIT: Duration = Duration::from_secs(5);

/// The name of a file, or None for the directory.
pub(super) type Key = Option<OsString>;

/// Why a file is looked at. Of the directory nobody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The directory was listed.
    Listed,
    /// It had this stamp a moment ago.
    Settling(Option<Stamp>),
    /// It was gone a moment ago.
    Gone,
    /// Something happened to it.
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
struct Running {
    key: Key,
    why: Why,
    since: Boot,
    /// The directory without links, as the look was told.
    base: Option<PathBuf>,
    /// The directory's look includes the files'.
    stamps: bool,
    at: Arc<AtomicU64>,
    alive: Arc<()>,
}

/// A look that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) why: Why,
    pub(super) base: Option<PathBuf>,
    pub(super) stamps: bool,
    /// The number of the mount that it touched last; 0 if it touched none.
    pub(super) at: u64,
    pub(super) alive: Arc<()>,
}

#[derive(Debug)]
struct Hung {
    /// None if it is not known.
    mount: Option<u64>,
    retry_at: Boot,
    delay: Duration,
}

/// A thread or process that hangs.
#[derive(Debug)]
struct Left {
    /// What it looked at; None if that was more than one thing.
    key: Option<Key>,
    mount: Option<u64>,
    unfinished: Unfinished,
}

#[derive(Debug, Default)]
pub(super) struct Looks {
    wanted: BTreeMap<Key, (Boot, Why)>,
    running: BTreeMap<u64, Running>,
    hung: BTreeMap<Key, Hung>,
    left: Vec<Left>,
    next_ticket: u64,
}

/// What a look needs besides its question.
pub(super) struct Means {
    pub(super) inotify: Option<Arc<OwnedFd>>,
    pub(super) reader: Option<PathBuf>,
}

impl Looks {
    pub(super) fn want(&mut self, key: Key, why: Why, now: Boot) {
        let (since, wanted) = self.wanted.get(&key).copied().unwrap_or((now, why));
        self.wanted.insert(key, (since, wanted.and(why)));
    }

    /// What was to be looked at there is not any more.
    pub(super) fn forget(&mut self, key: &Key) {
        self.wanted.remove(key);
    }

    /// The directory cannot be used.
    pub(super) fn forget_files(&mut self) {
        self.wanted.retain(|key, _| key.is_none());
        self.hung.retain(|key, _| key.is_none());
    }

    pub(super) fn is_running(&self, key: &Key) -> bool {
        self.running.values().any(|running| running.key == *key)
    }

    /// The files that are looked at now.
    pub(super) fn running_files(&self) -> Vec<OsString> {
        self.running.values().filter_map(|running| running.key.clone()).collect()
    }

    pub(super) fn is_wanted(&self, key: &Key) -> bool {
        self.wanted.contains_key(key)
    }

    pub(super) fn is_hung(&self, key: &Key) -> bool {
        self.hung.contains_key(key)
    }

    pub(super) fn any_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Nothing hangs, or did and was not looked at since.
    pub(super) fn none_hung(&self) -> bool {
        self.hung.is_empty() && self.left.is_empty()
    }

    /// Until when a change waits for looks that are under way; None: for none.
    pub(super) fn together_until(&self, now: Boot) -> Option<Boot> {
        let running = self.running.values().map(|running| running.since);
        let since = self.wanted.values().map(|(since, _)| *since).chain(running);
        since.map(|since| since + TOGETHER).filter(|until| *until > now).max()
    }

    /// The next subject to look at, if a look may begin.
    pub(super) fn next(&self) -> Option<(Key, Why)> {
        if self.running.len() >= RUNNING {
            return None;
        }
        let free = self.wanted.iter().filter(|(key, _)| !self.is_running(key));
        // The directory first, then what has waited longest: files that hang do not keep the others from their turn.
        free.min_by_key(|(key, (since, _))| (key.is_some(), *since)).map(|(key, (_, why))| (key.clone(), *why))
    }

    /// Begins the look that `next` gave.
    pub(super) fn begin(
        &mut self,
        key: Key,
        mut question: Question,
        base: Option<PathBuf>,
        stamps: bool,
        means: Means,
        now: Boot,
    ) -> Look {
        let (since, why) = self.wanted.remove(&key).unwrap_or((now, Why::Listed));
        question.avoid = self.avoid(&key);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let running = Running { key, why, since, base, stamps, at: Arc::default(), alive: Arc::default() };
        let (at, alive) = (running.at.clone(), running.alive.clone());
        self.running.insert(ticket, running);
        Look { ticket, question, inotify: means.inotify, at, _alive: alive, reader: means.reader, limit: LIMIT }
    }

    /// The look of this ticket ended, or was given up.
    pub(super) fn end(&mut self, ticket: u64) -> Option<Ended> {
        let Running { key, why, base, stamps, at, alive, .. } = self.running.remove(&ticket)?;
        Some(Ended { key, why, base, stamps, at: at.load(Ordering::Relaxed), alive })
    }

    /// Its file system answers.
    pub(super) fn answered(&mut self, key: &Key) {
        self.hung.remove(key);
    }

    /// Its file system does not answer, or was not asked for that reason: it is tried again later.
    pub(super) fn hangs(&mut self, key: Key, mount: Option<u64>, now: Boot) {
        let delay = self.hung.get(&key).map_or(FIRST_RETRY, |hung| (hung.delay * 2).min(LAST_RETRY));
        self.hung.insert(key, Hung { mount, retry_at: now + delay, delay });
    }

    /// A look leaves this behind. `key`: None if it looked at more than one thing.
    pub(super) fn leave(&mut self, key: Option<Key>, mount: Option<u64>, unfinished: Unfinished) {
        // A process that ended because it was killed does not show that its file system answers again.
        if matches!(unfinished, Unfinished::Over) {
            return;
        }
        self.left.push(Left { key, mount, unfinished });
    }

    /// The mount table changed: what hangs on a mount that is gone is tried again at once.
    pub(super) fn mounted(&mut self, is_there: impl Fn(u64) -> bool, now: Boot) {
        for hung in self.hung.values_mut().filter(|hung| !hung.mount.is_some_and(&is_there)) {
            hung.retry_at = now;
        }
        self.retry(now);
    }

    /// Wants what is to be tried again by now.
    pub(super) fn retry(&mut self, now: Boot) {
        let left = self.left.len();
        self.left.retain_mut(|left| !left.unfinished.is_over());
        if self.left.len() < left {
            self.hung.values_mut().for_each(|hung| hung.retry_at = now);
        }
        let due: Vec<Key> = self.hung.iter().filter(|(_, h)| h.retry_at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            if let Some(hung) = self.hung.get_mut(&key) {
                hung.retry_at = now + LAST_RETRY;
            }
            self.want(key, Why::Touched(Touch { attributes: true, ..Touch::default() }), now);
        }
    }

    /// When `retry` has something to do.
    pub(super) fn next_retry(&self) -> Option<Boot> {
        // A thread that comes back wakes the loop. A process does not.
        if self.left.iter().any(|left| left.unfinished.has_come_back()) {
            return Some(Boot(0));
        }
        self.hung.values().map(|hung| hung.retry_at).min()
    }

    /// The mounts that a look must not touch: those on which an earlier look at the same hangs, and those on which many hang.
    fn avoid(&self, key: &Key) -> Avoid {
        let many = self.left.len() >= ALL_MOUNTS;
        let on = |mount| self.left.iter().filter(|left| left.mount == Some(mount)).count();
        let hung = |left: &Left| {
            let mount = left.mount?;
            (many || left.key.as_ref() == Some(key) || on(mount) >= PER_MOUNT).then_some(mount)
        };
        Avoid { mounts: self.left.iter().filter_map(hung).collect(), foreign: many && key.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::manifests::look::Subject;

    const NOW: Boot = Boot(1_000_000_000);

    fn begin(looks: &mut Looks) -> Look {
        let (key, _) = looks.next().unwrap();
        let question = Question {
            directory: "/m".into(),
            subject: Subject::Directory { stamps: false },
            mountinfo: "/none".into(),
            avoid: Avoid::default(),
        };
        looks.begin(key, question, None, false, Means { inotify: None, reader: None }, NOW)
    }

    fn key(name: &str) -> Key {
        Some(name.into())
    }

    /// A thread hangs while it looks at `name`, on a mount. Dropped, it has come back.
    fn hang(looks: &mut Looks, name: &str, mount: u64) -> Arc<()> {
        looks.want(key(name), Why::Listed, NOW);
        let look = begin(looks);
        look.at.store(mount, Ordering::Relaxed);
        let ended = looks.end(look.ticket).unwrap();
        assert_eq!((&ended.key, ended.at), (&key(name), mount));
        looks.leave(Some(key(name)), Some(mount), Unfinished::Thread(ended.alive));
        looks.hangs(key(name), Some(mount), NOW);
        look._alive
    }

    #[test]
    fn what_hangs_is_tried_again_with_a_back_off_but_not_on_the_mount_that_still_hangs() {
        let mut looks = Looks::default();
        let thread = hang(&mut looks, "a", 7);
        let mut delays = Vec::new();
        let mut now = NOW;
        for _ in 0..6 {
            let at = looks.next_retry().unwrap();
            delays.push(at.since(now).as_secs());
            now = at;
            looks.retry(now);
            let look = begin(&mut looks);
            assert_eq!(look.question.avoid.mounts, [7].into());
            looks.end(look.ticket).unwrap();
            looks.hangs(key("a"), Some(7), now);
        }
        assert_eq!(delays, [5, 10, 20, 40, 60, 60]);
        // Another file of that mount is looked at.
        looks.want(key("b"), Why::Listed, now);
        let look = begin(&mut looks);
        assert_eq!(look.question.avoid, Avoid::default());
        looks.end(look.ticket).unwrap();
        // It comes back: tried again at once, and without anything to avoid.
        drop(thread);
        assert_eq!(looks.next_retry(), Some(Boot(0)));
        looks.retry(now);
        assert_eq!(looks.next(), Some((key("a"), Why::Touched(Touch { attributes: true, ..Touch::default() }))));
        assert_eq!(begin(&mut looks).question.avoid, Avoid::default());
        looks.answered(&key("a"));
        assert!(looks.none_hung());
    }

    #[test]
    fn a_mount_on_which_many_hang_is_not_touched_by_the_others() {
        let mut looks = Looks::default();
        let mut threads = vec![hang(&mut looks, "a", 7), hang(&mut looks, "b", 7), hang(&mut looks, "c", 8)];
        let avoid = |looks: &mut Looks| {
            looks.want(key("x"), Why::Listed, NOW);
            let look = begin(looks);
            looks.end(look.ticket).unwrap();
            look.question.avoid
        };
        assert_eq!(avoid(&mut looks), Avoid::default());
        threads.push(hang(&mut looks, "d", 7));
        assert_eq!(avoid(&mut looks), Avoid { mounts: [7].into(), foreign: false });
        threads.extend([hang(&mut looks, "e", 8), hang(&mut looks, "f", 9)]);
        assert_eq!(avoid(&mut looks), Avoid { mounts: [7, 8, 9].into(), foreign: true });
        looks.want(None, Why::Listed, NOW);
        let look = begin(&mut looks);
        assert_eq!(look.question.avoid, Avoid { mounts: [7, 8, 9].into(), foreign: false }, "the directory");
    }

    #[test]
    fn files_whose_processes_are_killed_do_not_keep_the_others_from_their_turn() {
        let mut looks = Looks::default();
        let second = Duration::from_secs(1);
        for name in ["a", "b", "c"] {
            looks.want(key(name), Why::Listed, NOW);
            let look = begin(&mut looks);
            looks.end(look.ticket).unwrap();
            looks.leave(Some(key(name)), Some(7), Unfinished::Over);
            looks.hangs(key(name), Some(7), NOW);
        }
        // The mount table changes, and all mounts are still there.
        looks.mounted(|_| true, NOW + second);
        assert_eq!(looks.next(), None, "each waits for its back-off");
        looks.want(key("d"), Why::Listed, NOW + second);
        // All three are due, and come after the file that has waited longer.
        looks.retry(NOW + FIRST_RETRY);
        looks.want(None, Why::Listed, NOW + FIRST_RETRY + second);
        let order: Vec<Key> = (0..5)
            .map(|_| {
                let look = begin(&mut looks);
                looks.end(look.ticket).unwrap().key
            })
            .collect();
        assert_eq!(order, [None, key("d"), key("a"), key("b"), key("c")]);
    }

    #[test]
    fn few_looks_run_at_a_time_and_one_at_each_subject() {
        let mut looks = Looks::default();
        for name in ["a", "b", "c"] {
            looks.want(key(name), Why::Listed, NOW);
        }
        let (a, _b) = (begin(&mut looks), begin(&mut looks));
        assert_eq!(looks.next(), None);
        looks.want(key("a"), Why::Gone, NOW);
        looks.end(a.ticket).unwrap();
        assert_eq!(looks.next(), Some((key("a"), Why::Gone)));
        assert!(looks.end(a.ticket).is_none(), "it ended");
    }
}
