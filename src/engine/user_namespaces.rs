//! The id ranges of pods with user namespaces: no two pods have the same range (W28).
//!
//! An annotation of the sandbox contains its range, so nothing has to be stored.

use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::user_namespace::IdRange;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, Serialize)]
pub struct UserNamespaces {
    held: BTreeMap<Uid, IdRange>,
    /// The ranges of all sandboxes in the last list, of any owner.
    listed: BTreeSet<IdRange>,
}

impl UserNamespaces {
    /// Returns the range for a new sandbox of the pod. A pod keeps its range until `release`.
    pub fn take(&mut self, uid: &Uid) -> IdRange {
        if let Some(range) = self.held.get(uid) {
            return *range;
        }
        let taken: BTreeSet<IdRange> = self.held.values().chain(&self.listed).copied().collect_set();
        let mut range = IdRange::preferred(uid);
        // The loop ends because there are many more ranges than pods.
        while taken.contains(&range) {
            range = range.next();
        }
        self.held.insert(uid.clone(), range);
        range
    }

    pub fn listed(&mut self, ranges: BTreeSet<IdRange>) {
        self.listed = ranges;
    }

    /// Releases the pod's range, because nothing of the pod runs any more. Its sandbox may still be listed.
    pub fn release(&mut self, uid: &Uid) {
        self.held.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w28_each_pod_has_a_range_of_its_own_and_keeps_it() {
        let mut all = UserNamespaces::default();
        let [a, b]: [Uid; 2] = ["a".into(), "b".into()];
        let first = IdRange::preferred(&b);
        // The preferred range of b belongs to a sandbox in the list, the next one to a.
        all.listed([first].into());
        all.held.insert(a.clone(), first.next());
        assert_eq!(all.take(&a), first.next());
        assert_eq!(all.take(&b), first.next().next());
        all.listed(BTreeSet::new());
        assert_eq!(all.take(&b), first.next().next());
        all.release(&b);
        assert_eq!(all.take(&b), first);
    }
}
