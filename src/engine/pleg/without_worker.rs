//! UIDs without a worker: what the last list shows under them, and what may still appear (W2, W21).

use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::time::Boot;
use crate::engine::pleg::cache::Generation;
use crate::engine::pleg::relist::{ByPod, ListedPod};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// W21: the grace period of an orphan without one in its annotations.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// One of our pods that a list shows and that has no worker. The name and the grace period come from its annotations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unclaimed {
    pub name: FullName,
    pub grace: Duration,
    /// Something of the pod runs.
    pub runs: bool,
}

impl Unclaimed {
    fn of(shown: &ListedPod<'_>) -> Option<Unclaimed> {
        let name = match (shown.sandboxes.first(), shown.containers.first()) {
            (Some(s), _) => s.name.clone(),
            (None, c) => c?.pod_name.clone(),
        };
        let grace = shown.grace_seconds().map_or(ORPHAN_GRACE, Duration::from_secs);
        Some(Unclaimed { name, grace, runs: shown.runs() })
    }
}

/// A pod in a list that the node has to adopt.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The pod has a worker, and was started by a previous process of Wherry.
    Running(Uid, Unclaimed),
    /// W21: the pod has no worker.
    Orphan(Uid, Unclaimed),
}

#[derive(Debug, Default, Serialize)]
pub struct WithoutWorker {
    /// Our pods in the last list, as long as it is not known whether they are desired.
    pub unclaimed: BTreeMap<Uid, Unclaimed>,
    /// UIDs that other owners use, according to the last list.
    shared: BTreeSet<Uid>,
    /// Workers dropped since the list in flight started: the list is out of date for them.
    forgotten: BTreeMap<Uid, Generation>,
    /// W2: sandboxes that may still appear although their worker was dropped: the attempt, and until when.
    lost: BTreeMap<Uid, (u32, Boot)>,
}

impl WithoutWorker {
    /// Finds the pods that the node has to adopt, in the order of their UIDs. `is_orphan`: a pod with this name and
    /// without a worker is not desired (D1, C3), or another one has its name (W8). Until this is known, the pod stays
    /// unclaimed.
    pub fn find(
        &mut self,
        pods: &ByPod<'_>,
        (began, is_first): (Generation, bool),
        has_worker: impl Fn(&Uid) -> bool,
        is_orphan: impl Fn(&FullName) -> bool,
    ) -> Vec<Found> {
        if !pods.shared().eq(&self.shared) {
            self.shared = pods.shared().cloned().collect_set();
        }
        self.unclaimed.clear();
        let mut found = Vec::new();
        for (uid, shown) in pods.pods() {
            if has_worker(uid) {
                // The pod was started by a previous process, whatever its record says.
                let running = Unclaimed::of(&shown).filter(|shown| is_first && shown.runs);
                found.extend(running.map(|shown| Found::Running(uid.clone(), shown)));
            } else if let Some(unclaimed) = Unclaimed::of(&shown) {
                if !is_orphan(&unclaimed.name) {
                    self.unclaimed.insert(uid.clone(), unclaimed);
                } else if self.forgotten.get(uid).is_none_or(|generation| *generation < began) {
                    found.push(Found::Orphan(uid.clone(), unclaimed));
                }
            }
        }
        found
    }

    /// Forgets the entries that become obsolete once a list has been compared.
    pub fn compared(&mut self, now: Boot) {
        self.forgotten.clear();
        self.lost.retain(|_, (_, until)| *until > now);
    }

    /// Notes that a worker was dropped while a relist is in flight, so that the list is out of date for its pod.
    pub fn forgotten(&mut self, uid: &Uid, generation: Generation) {
        self.forgotten.insert(uid.clone(), generation);
    }

    /// Notes that the outcome of a RunPodSandbox call of this attempt is unknown. The call takes effect before
    /// `until` or never.
    pub fn lost(&mut self, uid: &Uid, attempt: u32, until: Boot) {
        self.lost.insert(uid.clone(), (attempt, until));
    }

    /// Returns the first attempt of a new pod with this UID. A sandbox of an earlier attempt that appears late does
    /// not belong to the new pod.
    pub fn first_attempt(&self, uid: &Uid) -> u32 {
        self.lost.get(uid).map_or(0, |(attempt, _)| attempt.saturating_add(1))
    }

    /// Returns true if nothing is shown, and nothing can appear, under a UID without a worker.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.unclaimed.is_empty()
    }

    /// Returns true if the last list shows one of our pods under this UID, without a worker.
    pub fn shows(&self, uid: &Uid) -> bool {
        self.unclaimed.contains_key(uid)
    }

    /// Removes the pods that have a worker now.
    pub fn claimed(&mut self, has_worker: impl Fn(&Uid) -> bool) {
        self.unclaimed.retain(|uid, _| !has_worker(uid));
    }

    /// Returns true if the last list showed a pod of another owner with this UID (W21).
    pub fn shares(&self, uid: &Uid) -> bool {
        self.shared.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::facts::{Listed, ListedSandbox};
    use crate::api::time::Wall;
    use crate::engine::pleg::relist::by_pod;

    fn list(uids: &[(&str, &str)]) -> Listed {
        let sandbox = |(uid, owner): &(&str, &str)| ListedSandbox {
            user_namespace: None,
            id: format!("s-{uid}").into(),
            uid: (*uid).into(),
            name: FullName::new("default", uid),
            attempt: 0,
            ready: true,
            owner: Some((*owner).into()),
            grace_seconds: None,
            created_at: Wall(1),
        };
        Listed { sandboxes: uids.iter().map(sandbox).collect(), containers: Vec::new() }
    }

    fn find(others: &mut WithoutWorker, uids: &[(&str, &str)], is_first: bool, desired_known: bool) -> Vec<String> {
        let listed = list(uids);
        let found =
            others.find(&by_pod(&listed, "me"), (5, is_first), |uid| uid.as_str() == "worker", |_| desired_known);
        let name = |found: &Found| match found {
            Found::Running(uid, _) => format!("runs {uid}"),
            Found::Orphan(uid, _) => format!("orphan {uid}"),
        };
        found.iter().map(name).collect()
    }

    #[test]
    fn w21_a_pod_without_a_worker_is_an_orphan_once_the_desired_pods_are_known() {
        let mut others = WithoutWorker::default();
        let shown = [("a", "me"), ("b", "you"), ("worker", "me")];
        assert_eq!(find(&mut others, &shown, true, false), ["runs worker"]);
        assert!(others.unclaimed.contains_key(&Uid::from("a")) && !others.is_empty());
        assert!(others.shares(&"b".into()) && !others.shares(&"a".into()));
        assert_eq!(find(&mut others, &shown, false, true), ["orphan a"]);
        assert!(others.is_empty());
    }

    #[test]
    fn w21_a_list_from_before_a_worker_was_dropped_shows_no_orphan() {
        let mut others = WithoutWorker::default();
        others.forgotten(&"a".into(), 5);
        others.forgotten(&"b".into(), 4);
        assert_eq!(find(&mut others, &[("a", "me"), ("b", "me")], false, true), ["orphan b"]);
        others.compared(Boot(0));
        assert_eq!(find(&mut others, &[("a", "me")], false, true), ["orphan a"]);
    }

    #[test]
    fn w2_a_new_pod_uses_attempts_above_a_sandbox_that_may_still_appear() {
        let mut others = WithoutWorker::default();
        others.lost(&"a".into(), 2, Boot(9));
        assert_eq!((others.first_attempt(&"a".into()), others.first_attempt(&"b".into())), (3, 0));
        others.compared(Boot(9));
        assert_eq!(others.first_attempt(&"a".into()), 0);
    }
}
