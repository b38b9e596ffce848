//! The node's side of PLEG: adopts the pods that a list shows (W21), steps the workers of changed pods, and passes
//! runtime events on (P8).

use super::Engine;
use crate::api::names::{FullName, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::reason::Reason;
use crate::engine::effect::{Measure, Severity};
use crate::engine::event::{Answer, Kind, PlegEvent};
use crate::engine::op::{OpError, OpId};
use crate::engine::pleg::relist;
use crate::engine::pleg::without_worker::{Found, Unclaimed};
use crate::engine::pod::worker::Worker;

impl Engine {
    pub(super) fn relist(&mut self) {
        let step = (self.generation, self.now.boot);
        self.pleg.schedule.relist(self.runtime.is_up(), step, self.config.request_timeout, &mut self.outbox);
    }

    pub(super) fn listed(&mut self, result: Result<Answer, OpError>) {
        let Some(list) = self.pleg.schedule.ended(result, self.now.boot, &mut self.outbox) else { return };
        if list.is_first {
            self.admission.room_changed();
        }
        self.shared.user_namespaces.listed(list.listed.sandboxes.iter().filter_map(|s| s.user_namespace).collect_set());
        let pods = relist::by_pod(&list.listed, &self.config.fixed.owner);
        let has_worker = |uid: &Uid| self.workers.contains_key(uid);
        let (is_known, listed) = (self.desired.is_known(), self.were_listed());
        let names = self.desired.names();
        let is_orphan = |name: &FullName| is_known && (listed || names.is_taken(name));
        for found in self.pleg.without_worker.find(&pods, (list.began.0, list.is_first), has_worker, is_orphan) {
            match found {
                Found::Running(uid, shown) if self.end_former(&uid, &shown) => {}
                Found::Running(uid, _) => self.adopt(&uid),
                Found::Orphan(uid, orphan) => self.adopt_orphan(&uid, orphan),
            }
        }
        self.steps.touch_all(self.pleg.compare(&pods, list.began, self.now.boot));
        if list.is_first {
            self.sweep_cgroups(&list.listed);
        }
        self.container_ends.retain(|uid| self.workers.contains_key(uid) || pods.shows(uid));
    }

    /// C3: returns true if the server's pods are known, so that each pod without a worker is an orphan. The records
    /// alone do not show that: the record of a running pod may be missing because the disk was full.
    pub(super) fn were_listed(&self) -> bool {
        self.cluster.member().is_none_or(|member| member.pods.were_listed())
    }

    /// W21: adopts one of Wherry's own pods that has no worker, to stop and remove it.
    pub(super) fn adopt_orphan(&mut self, uid: &Uid, orphan: Unclaimed) {
        let Unclaimed { name, grace, .. } = orphan;
        self.outbox.measure(Measure::OrphanedPod);
        let source =
            if self.cluster.member().is_some() { "manifest and is not bound to this node" } else { "manifest" };
        let message = format!("pod {name} (uid {uid}) is running but has no {source}; stopping and removing it");
        self.outbox.emit_node_event(Severity::Warning, Reason::OrphanedPod, message);
        self.add_orphan(uid, name, grace);
    }

    /// W8: ends a pod that the runtime shows under a former name, because it was renamed under its own UID while
    /// Wherry was not running, and its record was lost. The pod holds the former name until it has ended. Returns
    /// false if the name is the same, or if the pod's worker stops it anyway.
    fn end_former(&mut self, uid: &Uid, shown: &Unclaimed) -> bool {
        let is_former = |worker: &Worker| worker.pod.is_some() && worker.name != shown.name;
        if !self.workers.get_mut(uid).is_some_and(|worker| is_former(worker) && worker.wait_again()) {
            return false;
        }
        let Some(worker) = self.remove_worker(uid) else { return false };
        let (former, name) = (&shown.name, &worker.name);
        let message =
            format!("pod {former} (uid {uid}) is running, but its manifest has the name {name}; replacing it");
        self.outbox.emit_node_event(Severity::Warning, Reason::OrphanedPod, message);
        self.add_orphan(uid, shown.name.clone(), shown.grace);
        if let Some(former) = self.workers.get_mut(uid) {
            former.demand = worker.demand;
            former.demand.successor = former.demand.successor.take().or(worker.pod);
        }
        true
    }

    pub(super) fn begin_reads(&mut self) {
        if self.runtime.is_up() {
            let has_begun = |uid: &Uid| self.workers.get(uid).is_some_and(|w| w.state.has_begun());
            let step = (self.generation, self.now.boot);
            self.pleg.begin_reads(has_begun, step, self.config.request_timeout, &mut self.outbox);
        }
    }

    pub(super) fn pod_read(&mut self, op: OpId, uid: &Uid, result: Result<Answer, OpError>) {
        if self.pleg.pod_read(op, uid, result, &self.config.fixed.owner, self.now.boot, &mut self.outbox) {
            self.recheck_waiting_events(uid);
            self.steps.touch(uid.clone());
        }
    }

    pub(super) fn process_ended(&mut self, uid: &Uid, id: &str) {
        let stopping = self.workers.get(uid).is_some_and(|w| w.ops().is_stopping_object(id));
        self.pleg.process_ended(uid, id, stopping, self.now.boot);
    }

    pub(super) fn runtime_event(&mut self, uid: Option<Uid>, event: PlegEvent) {
        let known = uid.and_then(|uid| self.workers.get(&uid).map(|worker| (uid, worker)));
        match known {
            Some((uid, worker)) => {
                let will_report = will_report(worker, &event);
                self.pleg.event(&uid, event, will_report);
            }
            None => self.pleg.event_of_unknown_pod(&event),
        }
    }

    /// Evaluates the events that waited for a status read of the pod, or until a call of its worker has ended.
    pub(super) fn recheck_waiting_events(&mut self, uid: &Uid) {
        for event in self.pleg.waiting_events.take(uid) {
            self.runtime_event(Some(uid.clone()), event);
        }
    }
}

/// Returns true if the worker has a call in flight whose answer will show the same change as the event.
fn will_report(worker: &Worker, event: &PlegEvent) -> bool {
    match event.kind {
        Kind::ContainerDied => worker.ops().is_stopping_object(&event.id),
        _ => worker.ops().is_changing(),
    }
}
