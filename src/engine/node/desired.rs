//! Compares the desired pods (`engine/desired`) with the workers (W20, W22, W23), and restores pods from their records
//! (W25).

use super::Engine;
use crate::api::manifest_report::ManifestReport;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::resize;
use crate::api::sealing::StoredRecord;
use crate::api::time::Now;
use crate::engine::cluster::member;
use crate::engine::config::EngineConfig;
use crate::engine::cordon;
use crate::engine::desired::precedence;
use crate::engine::desired::source::Setting;
use crate::engine::images::seen;
use crate::engine::op::OpError;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::kill::TerminationSource;
use crate::engine::pod::record::Record;
use crate::engine::pod::worker::Worker;
use crate::engine::shutdown;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

impl Engine {
    pub(super) fn take_records(&mut self, records: Vec<StoredRecord>) {
        let (of_cluster, others): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| member::is_key(&record.key));
        // Only records of the cluster are sealed, so all the others can be read.
        let records: Vec<(String, String)> = others.into_iter().filter_map(StoredRecord::opened).collect();
        let of_shutdown = records.iter().find(|(key, _)| key == shutdown::record::KEY);
        let text = of_shutdown.map(|(_, value)| value.as_str());
        self.with_shutdown(|shutdown, _, ctx| shutdown.record_found(text, ctx));
        if records.iter().any(|(key, _)| key == cordon::KEY) {
            self.cordon.record_found();
        }
        if let Some((_, text)) = records.iter().find(|(key, _)| key == seen::KEY) {
            self.reclaim.images.record_found(text, &mut self.outbox);
        }
        let all = records.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        self.workloads.records_found(all.clone(), &mut self.outbox);
        self.shared.claims.records_found(all.clone(), &mut self.outbox);
        self.shared.services.records_found(all, self.now.boot, &mut self.outbox);
        self.desired.records_found(records, &mut self.outbox);
        self.take_cluster_records(&of_cluster);
    }

    /// Handles a report: the manifest directory has changed, or has been read for the first time (D1).
    pub(super) fn manifests_reported(&mut self, report: ManifestReport) {
        let workers = &self.workers;
        let resized = |new: &Pod| {
            let continues = |w: &&Worker| {
                let current = w.pod.as_ref().filter(|pod| !pod.is_from_api_server());
                current.is_some_and(|current| resize::continues(current, new, w.can_be_resized()))
            };
            let mut all = workers.values().map(|w| &**w).filter(continues);
            if workers.contains_key(&new.uid) { None } else { all.next().and_then(|w| w.pod.as_ref()) }
        };
        let setting = setting(&self.config, self.now);
        if self.desired.update(report, &setting, resized, &mut self.outbox) {
            self.workloads_changed();
            self.shared.claims.touch();
            self.shared.services.touch();
            self.compare();
        }
    }

    pub(super) fn manifests_recorded(&mut self, result: Result<(), OpError>) {
        let result = result.map_err(|e| e.message().to_owned());
        let setting = setting(&self.config, self.now);
        self.desired.files.records_written(result, &setting, &mut self.outbox);
    }

    /// Compares the desired pods with the workers, because the pods of a source have changed.
    pub(super) fn compare(&mut self) {
        if !self.desired.has_manifests() {
            return;
        }
        let others: Vec<Rc<Pod>> = self.workloads.pods().cloned().chain(self.cluster_pods()).collect();
        let workers = &self.workers;
        // An outdated pod still runs, but the document of its successor is in force, perhaps under another UID.
        let is_current = |w: &Worker| w.demand.desired && (!w.state.is_outdated() || w.demand.successor.is_some());
        let desired = workers.iter().filter(|(_, w)| is_current(w));
        let as_pods = desired.filter_map(|(uid, w)| Some((uid, w.demand.successor.as_ref().or(w.pod.as_ref())?)));
        let of_workers = as_pods.collect_map();
        let is_listed = |uid: &Uid| self.pleg.without_worker.shows(uid);
        let chosen = self.desired.choose(&others, &of_workers, is_listed, &mut self.outbox);
        let (recorded, early) = self.desired.sources_read(&chosen);
        if !recorded.is_empty() {
            self.revive(recorded);
        }
        self.end_as_at_server();
        self.claim(&chosen);
        self.compare_with_workers(chosen);
        self.shorten_deletions();
        // The last run may have ended after the end of the cordon, but before it recorded that the evicted pods start
        // again.
        self.release_evicted();
        self.pleg.without_worker.claimed(|uid| self.workers.contains_key(uid));
        self.data_changed();
        self.handle_early(early);
    }

    /// W9: lets the pods that wait for a ConfigMap or a Secret try again as soon as the object changes.
    fn data_changed(&mut self) {
        let changed = self.desired.take_changed_data();
        if changed.is_empty() {
            return;
        }
        for (uid, worker) in &mut self.workers {
            if worker.data_changed(&changed, self.now.boot) {
                self.steps.touch(uid.clone());
            }
        }
    }

    /// W25: creates the workers of the recorded pods. They take their names before new pods do.
    fn revive(&mut self, recorded: Vec<Record>) {
        for record in recorded {
            let (uid, name) = (record.pod.uid.clone(), record.pod.name.clone());
            if !self.workers.contains_key(&uid) {
                self.admission.victims.restore(&record, self.now);
                self.shared.devices.restore(&uid, &record.history.devices);
                let worker = Worker::revive(record, self.now, &self.config.fixed.boot_id);
                if worker.is_from_api_server() && worker.ending.end.is_terminal() {
                    // C2: the last run may not have reported that the pod has ended, so its status is published
                    // again.
                    self.outbox.publish(&uid, &name);
                }
                self.insert_worker(&uid, Entry::default(), worker);
                self.queue_for_name(&uid, name);
            }
        }
    }

    /// W21: adopts the pods without a worker that a list showed before the sources were read. They take their names
    /// before new pods do.
    fn claim(&mut self, chosen: &BTreeMap<Uid, Rc<Pod>>) {
        for (uid, unclaimed) in self.pleg.without_worker.unclaimed.clone() {
            if self.workers.contains_key(&uid) {
                match unclaimed.runs {
                    true => self.adopt(&uid),
                    false => self.put_first(&uid),
                }
            } else if !chosen.contains_key(&uid) && (self.were_listed() || self.is_wanted(&unclaimed.name, chosen)) {
                self.adopt_orphan(&uid, unclaimed);
            }
        }
    }

    /// Returns true if another pod has this name, so that the pod that runs under it has to stop (W8).
    fn is_wanted(&self, name: &FullName, chosen: &BTreeMap<Uid, Rc<Pod>>) -> bool {
        self.desired.names().is_taken(name) || chosen.values().any(|pod| pod.name == *name)
    }

    /// Stops the undesired pods, replaces the edited ones, and adds the new ones.
    fn compare_with_workers(&mut self, chosen: BTreeMap<Uid, Rc<Pod>>) {
        let drained = self.drained_names();
        let undesired: Vec<Uid> = self.workers.keys().filter(|uid| !chosen.contains_key(*uid)).cloned().collect();
        // A pod of the API server is not another version of a manifest's pod with the same name, so the two are kept
        // apart.
        let names: BTreeSet<(&FullName, bool)> =
            chosen.values().map(|pod| (&pod.name, pod.is_from_api_server())).collect_set();
        let is_edited = |w: &Worker| names.contains(&(&w.name, w.is_from_api_server()));
        let (edited, removed): (Vec<_>, Vec<_>) =
            undesired.into_iter().partition(|uid| self.workers.get(uid).is_some_and(|w| is_edited(w)));
        for uid in removed {
            self.undesire(&uid);
        }
        for uid in edited {
            if self.outdate(&uid) {
                if let Some(worker) = self.workers.get_mut(&uid) {
                    worker.demand.successor = None;
                }
            } else {
                self.undesire(&uid);
            }
        }
        let (known, mut new): (Vec<_>, Vec<_>) =
            chosen.into_values().partition(|pod| self.workers.contains_key(&pod.uid));
        for pod in known {
            self.desire_again(&pod.uid.clone(), pod);
        }
        precedence::sort_new(&mut new);
        for pod in new {
            let (uid, holds) = (pod.uid.clone(), drained.contains(&pod.name));
            self.add_worker(pod, None);
            if holds {
                self.hold_successor(&uid, TerminationSource::Drain);
            }
        }
    }

    pub(super) fn undesire(&mut self, uid: &Uid) {
        self.desired.not_outdated(uid);
        let deletion = self.deletion_grace(uid);
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let (name, grace) = (worker.name.clone(), deletion.unwrap_or(worker.grace_period()));
        worker.demand.successor = None;
        if std::mem::take(&mut worker.demand.desired) {
            self.with_worker(uid, |worker, entry, ctx| worker.replace(Some(grace), entry, ctx));
            self.outbox.publish(uid, &name);
            self.steps.touch(uid.clone());
        }
    }

    fn desire_again(&mut self, uid: &Uid, pod: Rc<Pod>) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        if worker.is_up_to_date_again(&pod) {
            self.desired.not_outdated(uid);
            self.admission.room_changed();
        }
        if pod.is_from_api_server() && self.workers.get(uid).is_some_and(|worker| worker.differs_in_place(&pod)) {
            self.with_worker(uid, |worker, _, ctx| worker.follow_in_place(&pod, ctx));
            self.steps.touch(uid.clone());
        }
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let wanted_before = worker.is_resize_wanted();
        worker.want_resize(&pod);
        if worker.is_resize_wanted() || wanted_before {
            self.steps.touch(uid.clone());
        }
        if worker.is_resize_wanted() {
            return;
        }
        let name = worker.name.clone();
        // The pod is desired again while it terminates (W6), or it changed under a fixed UID (D3).
        if worker.is_other_than(&pod) {
            let another = name != pod.name;
            worker.demand.successor = Some(pod);
            worker.demand.desired = true;
            self.with_worker(uid, |worker, _, ctx| {
                // A9 applies only to the pod that was preempted.
                if another {
                    worker.release(TerminationSource::Preemption, ctx);
                }
            });
            if !self.outdate(uid) {
                self.with_worker(uid, |worker, entry, ctx| worker.replace(None, entry, ctx));
            }
            self.outbox.publish(uid, &name);
            self.steps.touch(uid.clone());
        } else if worker.pod.as_ref().is_some_and(|p| p.source != pod.source) {
            // The same pod is now defined in another file.
            worker.continue_as(pod);
        }
    }

    /// W22: adds a worker, which queues behind the pods with the same full name (W8). `place` is the place in the
    /// admission order of the worker that it replaces under its UID (A1).
    pub(super) fn add_worker(&mut self, pod: Rc<Pod>, place: Option<u64>) {
        let (uid, name) = (pod.uid.clone(), pod.name.clone());
        // W29: a pod that starts again has no ephemeral containers.
        let pod = if pod.ephemeral.is_empty() { pod } else { Rc::new(pod.with_ephemeral(Vec::new())) };
        // The runtime has nothing of a new pod, so no status read has to precede its start. A UID from a manifest is
        // an exception: another owner may have used it since the last list (W21). An API server uses each UID only
        // once.
        let may_be_shared = pod.has_own_uid() && !pod.is_from_api_server();
        let nothing = self.pleg.knows_nothing_of(&uid) && !may_be_shared;
        let entry = if nothing { Entry::empty(self.generation) } else { Entry::default() };
        let (start, first_attempt) = (self.now.wall, self.pleg.without_worker.first_attempt(&uid));
        let mut worker = Worker::new(pod, start, self.now);
        worker.history.bind(self.follows_bound(&worker));
        self.insert_worker(&uid, entry, worker);
        let refused = !self.may_begin(&uid);
        if let Some(worker) = self.workers.get_mut(&uid) {
            worker.sandbox.first_attempt = first_attempt;
            worker.admission.place = place.unwrap_or(worker.admission.place);
            // A pod that runs without a record counts as admitted.
            if self.pleg.without_worker.unclaimed.get(&uid).is_some_and(|shown| shown.runs) {
                worker.admit();
            }
        }
        if refused {
            self.with_worker(&uid, |worker, _, ctx| worker.reject(Cause::node_shutdown(), ctx));
        }
        self.queue_for_name(&uid, name);
        self.admission.added(uid);
    }

    /// S4: returns true if the pod may start. During a shutdown only pods that may already be running start.
    pub(super) fn may_begin(&self, uid: &Uid) -> bool {
        // During a shutdown only pods that were found running are admitted.
        let runs = || self.workers.get(uid).is_some_and(|w| !w.history.waiting || w.admission.is_admitted());
        !self.shutdown.is_on() || runs() || !self.pleg.knows_nothing_of(uid)
    }

    /// W8: queues the pod for its full name, first come, first served.
    pub(super) fn queue_for_name(&mut self, uid: &Uid, name: FullName) {
        if self.desired.names_mut().add(name, uid.clone()) {
            self.begin(uid);
        }
        self.admission.room_changed();
        self.steps.touch(uid.clone());
    }

    pub(super) fn add_orphan(&mut self, uid: &Uid, name: FullName, grace: Duration) {
        let worker = Worker::orphan(uid.clone(), name.clone(), grace, self.now);
        self.insert_worker(uid, Entry::default(), worker);
        self.desired.names_mut().add(name, uid.clone());
        self.put_first(uid);
        self.steps.touch(uid.clone());
    }

    /// W8: gives a running pod its name before a pod that has not started.
    pub(super) fn put_first(&mut self, uid: &Uid) {
        let Some(name) = self.workers.get(uid).map(|w| w.name.clone()) else { return };
        let first = self.desired.names().first(&name).cloned();
        let Some(first) = first.filter(|first| first != uid) else { return };
        let begins = self.wait_again(&first);
        self.desired.names_mut().put_first(&name, uid, !begins);
        if begins && let Some(worker) = self.workers.get_mut(uid) {
            // A running pod counts as admitted.
            worker.admit();
            worker.begin();
            self.steps.touch(uid.clone());
        }
        self.admission.room_changed();
    }

    /// Sends a worker that has started nothing back to `Waiting`. Returns false if it has started something.
    fn wait_again(&mut self, uid: &Uid) -> bool {
        let nothing = self.pleg.cache.get(uid).is_none_or(|e| e.facts().sandboxes.is_empty());
        self.workers.get_mut(uid).is_some_and(|w| nothing && w.wait_again())
    }

    pub(super) fn insert_worker(&mut self, uid: &Uid, entry: Entry, mut worker: Worker) {
        if let Some(leftover) = self.leftovers.orphaned_directories.take(uid) {
            leftover.hand_over(&mut worker);
        }
        worker.admission.place = self.admission.place_of(&worker, self.desired.names(), &self.workers);
        self.workers.insert(uid.clone(), Box::new(worker));
        self.shared.claims.touch();
        self.pleg.add(uid.clone(), entry);
    }

    /// A10: returns true if the version before this one is bound to the node, and neither drained nor evicted. Then
    /// the new version is bound too.
    fn follows_bound(&self, worker: &Worker) -> bool {
        let before = self.desired.names().pods(&worker.name).filter_map(|uid| self.workers.get(uid));
        let mut before = before.filter(|w| w.pod.is_some() && w.history.is_bound());
        before.any(|w| !w.demand.is_drained() && !w.demand.is_evicted_through_api())
    }

    /// W8: frees the name of this pod, so that the next pod with the name may start.
    pub(super) fn free_name(&mut self, name: &FullName, uid: &Uid) {
        if let Some(next) = self.desired.names_mut().leave(name, uid) {
            self.begin(&next);
        }
    }
}

fn setting(config: &EngineConfig, now: Now) -> Setting<'_> {
    let (directory, node_name) = (config.fixed.manifests.as_str(), config.node.name.as_str());
    let (refuse_open_secrets, network_policies) = (config.fixed.refuse_open_secrets, config.fixed.network_policies);
    Setting { directory, node_name, refuse_open_secrets, network_policies, now }
}
