//! The objects that create pods: Deployments. Each has a machine (`deployment`), which owns one `replica_set` for each
//! revision. `rolling` is the arithmetic of a roll-out, `progress` has the conditions, `record` what the disk keeps,
//! and `shown` the objects that the API shows.
//!
//! The manifests define the Deployments. The pods that a machine creates are desired like the pods of manifests
//! (`engine/desired`), and their workers know nothing of Deployments.

pub mod deployment;
pub mod progress;
pub mod record;
pub mod replica_set;
pub mod rolling;
pub mod shown;

use crate::api::names::{FullName, Uid};
use crate::api::ordered::OrderSlice;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::api::workload::deployment::Deployment;
use crate::api::workload::replica;
use crate::engine::effect::{RecordChange, Severity};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use deployment::{MAX_PODS, Rollout, RolloutInputs};
use record::StoredDeployment;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(Debug, Default, Serialize)]
pub struct Workloads {
    deployments: BTreeMap<FullName, Rollout>,
    /// The records of Deployments, until the manifests are known.
    #[serde(skip)]
    stored: BTreeMap<FullName, StoredDeployment>,
    /// The Deployments to step: their manifest has changed, or one of their pods.
    touched: BTreeSet<FullName>,
    /// Counts the changes of the set of Deployments.
    version: u64,
    /// The version that was published last.
    published: u64,
}

impl Workloads {
    /// Takes the records that were found at the start. An unusable record is moved aside.
    pub fn records_found<'r>(&mut self, records: impl Iterator<Item = (&'r str, &'r str)>, outbox: &mut Outbox) {
        for (key, value) in records.filter(|(key, _)| record::is_key(key)) {
            match record::read(value) {
                Ok(stored) => {
                    self.stored.insert(stored.full_name(), stored);
                }
                Err(why) => {
                    let message = format!("record {key} is unusable: {why}; moving it aside");
                    outbox.emit_node_event(Severity::Warning, Reason::BadRecord, message);
                    let change = RecordChange::SetAside { key: key.to_owned() };
                    outbox.record(Owner::Worker(Uid::from("")), change);
                }
            }
        }
    }

    /// Takes the Deployments that are in force. All of them are stepped next, because a class that was missing may
    /// exist now.
    pub fn change(&mut self, deployments: &[Rc<Deployment>], now: Now, outbox: &mut Outbox) {
        let mut before = std::mem::take(&mut self.deployments);
        for deployment in deployments {
            let name = &deployment.name;
            // Of two documents with the same name, the first is in force (D6).
            if self.deployments.contains_key(name) {
                continue;
            }
            let rollout = match before.remove(name) {
                Some(mut rollout) => {
                    rollout.change(deployment.clone());
                    rollout
                }
                None => {
                    self.version += 1;
                    Rollout::new(deployment.clone(), self.stored.remove(name), now, outbox)
                }
            };
            self.touched.insert(name.clone());
            self.deployments.insert(name.clone(), rollout);
        }
        self.version += before.values().map(|rollout| rollout.version() + 1).sum::<u64>();
        for name in before.into_keys().chain(std::mem::take(&mut self.stored).into_keys()) {
            outbox.record(Owner::Worker(Uid::from("")), RecordChange::Delete { key: record::key(&name) });
        }
    }

    /// Takes over the pods of earlier runs, in the order of their creation.
    pub fn adopt<'p>(&mut self, recorded: impl Iterator<Item = &'p Rc<Pod>>, now: Now) {
        let mut pods: Vec<&Rc<Pod>> = recorded.collect();
        pods.order_by_key(|pod| replica::created(pod));
        for pod in pods {
            self.deployments.values_mut().any(|rollout| rollout.adopt(pod, now));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.deployments.is_empty()
    }

    /// Notes that the published state of a pod has changed.
    pub fn pod_changed(&mut self, uid: &Uid) {
        let of_pod = self.deployments.iter().find(|(_, rollout)| rollout.has(uid));
        if let Some((name, _)) = of_pod {
            self.touched.insert(name.clone());
        }
    }

    /// Steps the Deployments that need it. Returns true if pods were created or deleted.
    pub fn step(&mut self, inputs: &mut RolloutInputs<'_>) -> bool {
        let is_due = |rollout: &Rollout| rollout.next_deadline().is_some_and(|at| at <= inputs.now.boot);
        // What another Deployment does may make room for a pod.
        let has_events = !self.touched.is_empty();
        let is_due = |rollout: &Rollout| is_due(rollout) || has_events && rollout.lacks_pods();
        self.touched
            .extend(self.deployments.iter().filter(|(_, rollout)| is_due(rollout)).map(|(name, _)| name.clone()));
        let touched = std::mem::take(&mut self.touched);
        let mut changed = false;
        for (_, rollout) in self.deployments.iter_mut().filter(|(name, _)| touched.contains(*name)) {
            changed |= rollout.observe(inputs);
        }
        let mut room = MAX_PODS.saturating_sub(self.deployments.values().map(Rollout::pods_there).sum());
        for (_, rollout) in self.deployments.iter_mut().filter(|(name, _)| touched.contains(*name)) {
            changed |= rollout.step(&mut room, inputs);
        }
        changed
    }

    /// Writes the records that have to be written.
    pub fn write_records(&mut self, now: Boot, outbox: &mut Outbox) {
        for rollout in self.deployments.values_mut() {
            rollout.write_record(now, outbox);
        }
    }

    /// Handles the end of writing the record of a Deployment.
    pub fn recorded(&mut self, name: &FullName, well: bool, now: Boot) {
        if let Some(rollout) = self.deployments.get_mut(name) {
            rollout.recorded(well, now);
        }
    }

    /// Deletes a pod because a user asks for it. Returns false if it belongs to no Deployment.
    pub fn delete(&mut self, uid: &Uid) -> bool {
        let deleted = self.deployments.iter_mut().find_map(|(name, rollout)| rollout.delete(uid).then(|| name.clone()));
        self.touched.extend(deleted.clone());
        deleted.is_some()
    }

    /// Returns the pods that are desired now.
    pub fn pods(&self) -> impl Iterator<Item = &Rc<Pod>> {
        self.deployments.values().flat_map(Rollout::pods)
    }

    pub fn get(&self, name: &FullName) -> Option<&Rollout> {
        self.deployments.get(name)
    }

    pub fn all(&self) -> impl Iterator<Item = &Rollout> {
        self.deployments.values()
    }

    /// Returns true if the API has to show something else than after the last call.
    pub fn take_changed(&mut self) -> bool {
        let version = self.deployments.values().map(Rollout::version).sum::<u64>() + self.version;
        std::mem::replace(&mut self.published, version) != version
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        self.deployments.values().filter_map(Rollout::next_deadline).min()
    }
}
