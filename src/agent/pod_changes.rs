//! Numbers the changes of pods while a client of the control socket watches them. A watch is a position: it gets the
//! changes after the last number that it has sent. A slow client therefore gets fewer states, but always the latest
//! one.

use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of removed pods that are remembered. A watch that is further behind ends.
const REMOVED: usize = 256;

#[derive(Debug, Default)]
pub struct PodChanges {
    last: u64,
    pods: BTreeMap<Uid, Numbers>,
    /// The removed pods, in the order of their removal.
    removed: VecDeque<Removed>,
    /// Removals up to this number have been dropped.
    forgotten: u64,
}

/// The numbers of the first and the last change of a pod.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    first: u64,
    last: u64,
}

#[derive(Debug)]
struct Removed {
    uid: Uid,
    name: FullName,
    first: u64,
    number: u64,
}

/// The position of a watch. The default is the position before all changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodPosition {
    /// The number of the last change that was sent.
    sent: u64,
    /// The watch has been sent everything up to this number.
    complete: u64,
}

impl PodPosition {
    /// Notes that the change with this number was sent.
    pub fn advance(&mut self, number: u64) {
        self.sent = number;
    }

    /// Notes that no unsent change is left.
    pub fn is_complete(&mut self) {
        self.complete = self.sent;
    }
}

/// A change after a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodChange<'a> {
    Added(&'a Uid),
    Modified(&'a Uid),
    Deleted(&'a Uid, &'a FullName),
}

/// Removals after the position have been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed;

impl PodChanges {
    /// Starts with the existing pods, in their order.
    pub fn new<'a>(present: impl Iterator<Item = &'a Uid>) -> PodChanges {
        let mut changes = PodChanges::default();
        present.for_each(|uid| changes.changed(uid));
        changes
    }

    pub fn changed(&mut self, uid: &Uid) {
        self.last += 1;
        let last = self.last;
        self.pods.entry(uid.clone()).or_insert(Numbers { first: last, last }).last = last;
    }

    pub fn removed(&mut self, uid: &Uid, name: &FullName) {
        let Some(Numbers { first, .. }) = self.pods.remove(uid) else { return };
        self.last += 1;
        self.removed.push_back(Removed { uid: uid.clone(), name: name.clone(), first, number: self.last });
        if self.removed.len() > REMOVED
            && let Some(oldest) = self.removed.pop_front()
        {
            self.forgotten = oldest.number;
        }
    }

    /// Returns the changes after this position with their numbers, in order.
    ///
    /// # Errors
    /// The watch has missed a removal.
    pub fn after(&self, PodPosition { sent, complete }: PodPosition) -> Result<Vec<(u64, PodChange<'_>)>, Missed> {
        if sent > 0 && sent < self.forgotten {
            return Err(Missed);
        }
        let changed = self.pods.iter().filter(|(_, numbers)| numbers.last > sent).map(|(uid, numbers)| {
            let is_new = numbers.first > complete;
            (numbers.last, if is_new { PodChange::Added(uid) } else { PodChange::Modified(uid) })
        });
        // A pod that was added and removed since was never sent.
        let known = self.removed.iter().filter(|removed| removed.number > sent && removed.first <= sent);
        let removed = known.map(|removed| (removed.number, PodChange::Deleted(&removed.uid, &removed.name)));
        let mut all: Vec<_> = changed.chain(removed).collect();
        all.order_by_key(|(number, _)| *number);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> FullName {
        FullName::new("default", "web")
    }

    fn uids(uids: &[&str]) -> Vec<Uid> {
        uids.iter().map(|uid| Uid::from(*uid)).collect()
    }

    fn shown(change: PodChange<'_>) -> String {
        match change {
            PodChange::Added(uid) => format!("+{uid}"),
            PodChange::Modified(uid) => format!("~{uid}"),
            PodChange::Deleted(uid, _) => format!("-{uid}"),
        }
    }

    /// Returns all changes after a position as text, and the position after them.
    fn read(changes: &PodChanges, mut position: PodPosition) -> (Vec<String>, PodPosition) {
        let mut all = Vec::new();
        for (number, change) in changes.after(position).unwrap() {
            position.advance(number);
            all.push(shown(change));
        }
        position.is_complete();
        (all, position)
    }

    #[test]
    fn a_watch_gets_the_present_pods_and_then_the_last_change_of_each() {
        let mut changes = PodChanges::new(uids(&["b", "a"]).iter());
        let (all, position) = read(&changes, PodPosition::default());
        assert_eq!(all, ["+b", "+a"], "in the order of the node");
        assert!(changes.after(position).unwrap().is_empty());
        for uid in uids(&["a", "c", "b", "a"]) {
            changes.changed(&uid);
        }
        let (all, later) = read(&changes, position);
        assert_eq!(all, ["+c", "~b", "~a"]);
        changes.removed(&"b".into(), &name());
        changes.removed(&"c".into(), &name());
        changes.removed(&"unknown".into(), &name());
        assert_eq!(read(&changes, later).0, ["-b", "-c"]);
        assert_eq!(read(&changes, position).0, ["~a", "-b"], "this watch has never seen c");
        assert_eq!(read(&changes, PodPosition::default()).0, ["+a"]);
    }

    #[test]
    fn a_slow_watch_gets_a_new_pod_as_added_even_if_it_has_changed_since() {
        let mut changes = PodChanges::new(uids(&["a", "b"]).iter());
        let mut position = read(&changes, PodPosition::default()).1;
        for uid in uids(&["c", "a", "c"]) {
            changes.changed(&uid);
        }
        // Only the first change is sent.
        let (number, change) = changes.after(position).unwrap()[0];
        assert_eq!(shown(change), "~a");
        position.advance(number);
        assert_eq!(read(&changes, position).0, ["+c"]);
        changes.removed(&"c".into(), &name());
        position.advance(number + 1);
        assert_eq!(read(&changes, position).0, ["-c"]);
    }

    #[test]
    fn a_pod_that_returns_under_its_uid_is_added_again() {
        let mut changes = PodChanges::new(uids(&["a"]).iter());
        let position = read(&changes, PodPosition::default()).1;
        changes.removed(&"a".into(), &name());
        changes.changed(&"a".into());
        assert_eq!(read(&changes, position).0, ["-a", "+a"]);
    }

    #[test]
    fn a_watch_that_has_missed_a_removal_ends() {
        let mut changes = PodChanges::new(uids(&["a"]).iter());
        let position = read(&changes, PodPosition::default()).1;
        for _ in 0..=REMOVED {
            changes.changed(&"b".into());
            changes.removed(&"b".into(), &name());
        }
        assert_eq!(changes.removed.len(), REMOVED);
        assert_eq!(changes.after(position), Err(Missed));
        assert_eq!(read(&changes, PodPosition::default()).0, ["+a"], "a new watch has missed nothing");
    }
}
