//! The pods from the perspective of a shutdown: with which group a pod is stopped, and whether it has terminated.

use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::priority;
use crate::api::shutdown::Groups;
use crate::api::time::Boot;
use crate::engine::pleg::Pleg;
use crate::engine::pod::worker::Worker;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The minimum grace period (W4).
pub const LEAST: Duration = Duration::from_secs(1);

pub struct Pods<'a> {
    pub workers: &'a BTreeMap<Uid, Box<Worker>>,
    pub pleg: &'a Pleg,
    pub now: Boot,
}

impl Pods<'_> {
    /// Returns true if nothing of the pod runs any longer, according to the runtime or to the pidfds of everything
    /// that the runtime still shows running. The pidfds are needed because the runtime may be a second late if many
    /// containers terminate at the same time.
    pub fn has_ended(&self, uid: &Uid) -> bool {
        let (Some(worker), Some(entry)) = (self.workers.get(uid), self.pleg.cache.get(uid)) else { return true };
        let processes_ended = || self.pleg.all_processes_ended(uid);
        let sure = || {
            worker.state.is_terminating() && !worker.ops().is_active() && entry.usable() && !entry.in_doubt(self.now)
        };
        worker.state.is_quiet() || sure() && processes_ended()
    }

    /// Returns the pods that the shutdown stops with this group.
    pub fn of_group(&self, groups: &Groups, group: usize) -> BTreeSet<Uid> {
        self.workers.values().filter(|w| is_stopped_with(w, groups, group)).map(|w| w.uid.clone()).collect_set()
    }

    /// Returns the names of the first pods, for messages.
    pub fn names(&self, uids: &[&Uid]) -> String {
        let name = |uid: &&Uid| self.workers.get(*uid).map(|w| w.name.to_string());
        let mut names: Vec<String> = uids.iter().take(5).filter_map(name).collect();
        if uids.len() > names.len() {
            names.push(format!("and {} more", uids.len() - names.len()));
        }
        names.join(", ")
    }
}

/// Returns true if something of the pod may run and the pod belongs to this group.
pub fn is_stopped_with(worker: &Worker, groups: &Groups, group: usize) -> bool {
    !worker.state.is_over() && !worker.never_began() && groups.index_of(priority_of(worker)) == group
}

/// Returns the priority of the pod. A pod that only the runtime knows has priority 0.
pub fn priority_of(worker: &Worker) -> i32 {
    worker.pod.as_ref().map_or(0, |pod| priority::of(pod.spec()))
}

pub fn pods_in_words(n: usize) -> String {
    if n == 1 { "1 pod".into() } else { format!("{n} pods") }
}
