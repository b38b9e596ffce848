//! Connects the state machines of the cluster (`engine/cluster`) with the workers: takes the API server's pods as
//! desired pods, reports their statuses, and confirms the deletion of a pod when nothing of it is left.

use super::Engine;
use crate::api::cluster::event_queue::{Entry, Subject};
use crate::api::cluster::expectation::Expectation;
use crate::api::cluster::mirror;
use crate::api::cluster::node::{self, Condition, NodeInfo, NodeReport, Pressure, RuntimeHandler, may_set_label};
use crate::api::cluster::pod_object::Rejection;
use crate::api::cluster::pod_status;
use crate::api::cluster::request::{ApiError, ApiResponse};
use crate::api::devices::is_device_resource;
use crate::api::eviction;
use crate::api::k8s;
use crate::api::names::Uid;
use crate::api::node_facts::NodeFacts;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::resources::PODS;
use crate::api::runtime_features::HandlerFeatures;
use crate::api::sealing::StoredRecord;
use crate::api::time::{Boot, Now, Wall};
use crate::engine::cluster::Cluster;
use crate::engine::cluster::certificates::Certificates;
use crate::engine::cluster::connection::Connection;
use crate::engine::cluster::member::Member;
use crate::engine::cluster::own_status::Health;
use crate::engine::cluster::pods::{Bound, Seen};
use crate::engine::cluster::reflector::Step;
use crate::engine::effect::{Effect, Notice, RecordChange, Severity};
use crate::engine::event::{Answer, ApiEvent};
use crate::engine::op::{OpError, OpId};
use crate::engine::owner::Owner;
use crate::engine::pod::kill::Cause;
use crate::engine::pod::status;
use crate::engine::pod::worker::Worker;
use std::borrow::Cow;
use std::rc::Rc;

/// Returns the facts of this machine. In a cluster they have the labels and taints of its object on the API server.
pub(super) fn with_own<'n>(node: &'n NodeFacts, cluster: &Cluster) -> Cow<'n, NodeFacts> {
    cluster.member().map_or(Cow::Borrowed(node), |member| member.own.with_own(node))
}

impl Engine {
    pub(super) fn with_member<T>(&mut self, f: impl FnOnce(&mut Member, &mut Step<'_>) -> T) -> Option<T> {
        let Engine { cluster, config, now, rng, outbox, .. } = self;
        let member = cluster.member_mut()?;
        let (traffic, protection) = (config.traffic(), member.sealing.protection());
        let (Now { boot, wall }, most_pods) = (*now, most_pods(&config.node));
        Some(f(member, &mut Step { now: boot, wall, resume: boot, traffic, most_pods, protection, rng, outbox }))
    }

    pub(super) fn api_event(&mut self, event: ApiEvent) {
        match event {
            ApiEvent::Item { op, json } => {
                self.with_member(|member, step| member.item(op, &json, step));
            }
            ApiEvent::Line { op, json } => {
                let seen = self.with_member(|member, step| member.line(op, &json, step)).unwrap_or_default();
                self.pods_seen(seen, false);
            }
            ApiEvent::Done { op, result } => self.api_answered(op, &result),
            ApiEvent::Certificate(signer, in_use) => {
                self.with_member(|member, step| {
                    member.certificates.of(signer).map(|certificate| certificate.observed(in_use, step.rng))
                });
            }
        }
        if self.with_member(|member, _| member.take_change_for_admission()) == Some(true) {
            self.admission.room_changed();
            self.workloads.node_changed();
        }
    }

    fn api_answered(&mut self, op: OpId, result: &Result<ApiResponse, ApiError>) {
        // A request that was cancelled earlier is no longer known.
        if self.outbox.ops.end(op).is_none() {
            return;
        }
        if let Some((seen, listed)) = self.with_member(|member, step| member.answered(op, result, step)) {
            self.pods_seen(seen, listed);
            self.cluster_data_changed();
            self.answer_reviews();
        }
    }

    fn pods_seen(&mut self, seen: Vec<Seen>, listed: bool) {
        self.show_in_mirrors(&seen);
        // The answers to Wherry's own reports change nothing here.
        if listed || seen.iter().any(|one| !matches!(one, Seen::Status(..))) {
            self.with_member(|member, step| member.follow(step.outbox));
            self.reject_unsupported();
            self.publish_gated();
            self.compare();
        }
    }

    /// Handles the end of writing a cluster record.
    pub(super) fn cluster_recorded(&mut self, op: OpId, result: Result<(), OpError>) {
        self.with_member(|member, step| member.recorded(op, &result, step));
        self.cluster_data_changed();
    }

    /// Returns the number of mirror pods on the API server.
    pub fn mirrors(&self) -> usize {
        self.cluster.member().map_or(0, |member| member.pods.mirrors.count())
    }

    /// Returns what will happen to a pod of the API server while the server is unavailable. None for a pod of a
    /// manifest, and for a pod whose end the server knows.
    pub fn expectation(&self, pod: &Pod) -> Option<Expectation> {
        let member = self.cluster.member().filter(|_| pod.source.is_api())?;
        // A pod that has ended on the server keeps no objects (C4), so it would seem to wait for them.
        if member.pods.get(&pod.uid).is_some_and(|bound| bound.ended) {
            return None;
        }
        Some(member.expectation(pod, self.now.boot))
    }

    /// C15: returns the reason why Secrets or tokens are not on the disk or cannot be read from it, with a remedy.
    pub fn sealing_problem(&self) -> Option<String> {
        self.cluster.member()?.sealing.problem().map(|problem| problem.to_string())
    }

    /// Returns the state of the connection to the API server; None outside a cluster.
    pub fn connection(&self, now: Boot) -> Option<Connection<'_>> {
        self.cluster.member().map(|member| member.connection(now))
    }

    /// Returns the node's certificates; None outside a cluster.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.cluster.member().map(|member| &member.certificates)
    }

    /// Returns the node's addresses, the preferred one first. The list is empty outside a cluster.
    pub fn addresses(&self) -> &[String] {
        self.cluster.member().map_or(&[], |member| member.addresses.known())
    }

    /// Takes over the addresses that the machine has now. If they have changed, every status that contains them is
    /// reported again.
    pub(super) fn addresses_found(&mut self, found: Vec<String>) {
        let Engine { cluster, config, workers, outbox, shared, .. } = self;
        shared.services.addresses_found(&found);
        let have_changed = cluster.member_mut().is_some_and(|member| member.addresses_found(&config.node.name, found));
        if !have_changed {
            return;
        }
        outbox.push(Effect::AddressesChanged);
        // The status of a pod that has ended keeps the old addresses.
        for worker in workers.values().filter(|worker| worker.is_shown() && !has_ended(worker)) {
            outbox.publish(&worker.uid, &worker.name);
        }
    }

    /// Handles the end of an operation on the files of a node certificate (C7).
    pub(super) fn identity_done(&mut self, op: OpId, result: &Result<Answer, OpError>) {
        self.with_member(|member, step| member.certificates.iter_mut().any(|c| c.done(op, result, step)));
    }

    /// W9: lets the pods that wait for a ConfigMap, a Secret or a token continue, and updates the files in volumes.
    fn cluster_data_changed(&mut self) {
        let Engine { cluster, workers, steps, now, .. } = self;
        let Some(member) = cluster.member_mut() else { return };
        let (objects, tokens, lists) =
            (member.data.take_changed(), member.tokens.take_changed(), member.lists.take_changed());
        if objects.is_empty() && tokens.is_empty() && !lists {
            return;
        }
        for (uid, worker) in workers.iter_mut().filter(|(_, worker)| worker.is_from_api_server()) {
            if worker.data_changed(&objects, now.boot) {
                steps.touch(uid.clone());
            }
            if tokens.contains(uid) {
                worker.volumes.outdated();
                steps.touch(uid.clone());
            }
        }
        self.compare();
    }

    /// Takes over the records of the API server's pods and of their objects, which were found at the start.
    pub(super) fn take_cluster_records(&mut self, records: &[StoredRecord]) {
        let Engine { cluster, desired, outbox, now, rng, .. } = self;
        let Some(member) = cluster.member_mut() else {
            // The node has left its cluster, so the Secrets and tokens of its pods must not stay on the disk.
            for StoredRecord { key, .. } in records {
                outbox.record(Owner::Cluster, RecordChange::Delete { key: key.clone() });
            }
            return;
        };
        for record in desired.records().filter(|record| record.pod.is_from_api_server()) {
            member.pods.recorded(&record.pod, record.deletion());
        }
        member.records_found(records, *now, outbox);
        if member.own.is_recorded() {
            member.starts_again(now.boot, rng);
        }
    }

    /// Returns the API server's pods that are desired on this node now.
    pub(super) fn cluster_pods(&self) -> Vec<Rc<Pod>> {
        let Some(member) = self.cluster.member() else { return Vec::new() };
        let desired = member.pods.iter().filter(|(_, bound)| bound.deletion.is_none());
        let desired = desired.filter_map(|(uid, bound)| {
            let pod = bound.pod.as_ref().ok()?;
            // A worker without a pod only stops and removes an orphan.
            let exists = bound.recorded || self.workers.get(uid).is_some_and(|w| w.pod.is_some() || !bound.ended);
            // A pod starts only when everything that it needs is known (C4), and never again after its end. It may
            // already run although its record is missing.
            let may_run = || !bound.ended && (member.has_all_for(pod) || self.pleg.without_worker.shows(uid));
            (exists || may_run()).then(|| pod.clone())
        });
        desired.collect()
    }

    /// Returns the grace period with which the API server deletes the pod; None if it does not delete the pod.
    pub(super) fn deletion_grace(&self, uid: &Uid) -> Option<std::time::Duration> {
        self.cluster.member()?.pods.get(uid)?.deletion
    }

    /// Applies the grace periods of the API server's deletions, because a client may have shortened one.
    pub(super) fn shorten_deletions(&mut self) {
        let Some(member) = self.cluster.member() else { return };
        let deleted: Vec<_> = member.pods.iter().filter_map(|(uid, b)| Some((uid.clone(), b.deletion?))).collect();
        for (uid, grace) in deleted {
            self.with_worker(&uid, |worker, entry, ctx| worker.shorten(grace, entry, ctx));
        }
    }

    /// Reports the last status of a deleted pod. Its worker is forgotten, because nothing of the pod is left.
    pub(super) fn deleted_pod_is_gone(&mut self, worker: &Worker) {
        let Some(member) = self.cluster.member_mut() else { return };
        if let Some(bound) = member.pods.get(&worker.uid).filter(|bound| bound.deletion.is_some()) {
            let last = status_for_server(worker, Some(bound), member, self.now.wall);
            member.reports.ended(&worker.uid, &worker.name, Some(last));
        }
    }

    /// Reports what this step has changed, and starts the requests that are due.
    pub(super) fn step_cluster(&mut self) {
        if self.cluster.member().is_none() {
            return;
        }
        self.with_member(|member, step| member.expire(step));
        self.publish_to_cluster();
        self.confirm_deletions();
        let now = self.now;
        self.record_resources();
        let health = self.health();
        let cordoned = self.cordon.is_on();
        self.with_member(|member, _| {
            member.status.health = health;
            member.cordon.wanted = cordoned;
        });
        let wants = self.cluster.member().is_some_and(|member| member.wants_report(now.boot));
        let report = wants.then(|| self.node_report());
        let name = self.config.node.name.clone();
        let of_manifests = self.workers.values().filter(|worker| !worker.is_from_api_server() && worker.is_shown());
        let statics: Vec<Rc<Pod>> = of_manifests.filter_map(|worker| worker.pod.clone()).collect();
        self.with_member(|member, step| member.step(report.as_ref(), &name, &statics, step));
    }

    fn publish_to_cluster(&mut self) {
        let Engine { cluster, outbox, workers, config, now, .. } = self;
        let Some(member) = cluster.member_mut() else { return };
        for (uid, name) in outbox.published() {
            let worker = workers.get(uid).filter(|w| w.is_shown() && !w.demand.keeps_phase(w.is_from_api_server()));
            if let Some(worker) = worker.filter(|worker| !worker.is_from_api_server()) {
                let status = complete(worker, None, member.addresses.known());
                member.publish_mirror(uid, status);
            } else if let Some(worker) = worker {
                let status = status_for_server(worker, member.pods.get(uid), member, now.wall);
                member.publish(uid, name, status);
            }
        }
        let posts: Vec<_> = outbox.notices().iter().map(|notice| entry(notice, &config.node.name, now.wall)).collect();
        for entry in posts {
            member.post(entry, now.boot, outbox);
        }
    }

    /// Publishes a failed status for each pod that Wherry cannot run.
    fn reject_unsupported(&mut self) {
        let Some(member) = self.cluster.member_mut() else { return };
        let rejected = member.pods.iter().filter(|(_, bound)| !bound.ended);
        let rejected = rejected.filter_map(|(uid, bound)| Some((uid, &bound.name, bound.pod.as_ref().err()?)));
        let rejected: Vec<_> = rejected.map(|(uid, name, why)| (uid.clone(), name.clone(), status_of(why))).collect();
        for (uid, name, status) in rejected {
            member.publish(&uid, &name, status);
        }
    }

    /// Ends pods that have ended on the API server but not on this node: the record of their end was lost, or another
    /// client of the server has set the phase.
    pub(super) fn end_as_at_server(&mut self) {
        let Some(member) = self.cluster.member() else { return };
        let here = |uid: &&Uid| {
            self.workers.get(*uid).is_some_and(|worker| !has_ended(worker) || worker.demand.is_held_back())
        };
        let ended_there = member.pods.iter().filter(|(_, bound)| bound.ended).map(|(uid, _)| uid);
        for uid in ended_there.filter(here).cloned().collect::<Vec<_>>() {
            self.with_worker(&uid, |worker, entry, ctx| worker.end_as_at_server(entry, ctx));
            self.steps.touch(uid);
        }
    }

    /// Publishes the status of each pod whose mirror has appeared or changed.
    fn show_in_mirrors(&mut self, seen: &[Seen]) {
        for one in seen {
            let Seen::Mirror(uid, _) = one else { continue };
            let mirror = self.cluster.member().and_then(|member| member.pods.mirrors.get(uid));
            if let Some(worker) = mirror.and_then(|mirror| self.workers.get(&mirror.of)) {
                self.outbox.publish(&worker.uid, &worker.name);
            }
        }
    }

    /// Publishes the pods with readiness gates, because the conditions of the gates may have changed.
    fn publish_gated(&mut self) {
        let gated = self.cluster.member().into_iter().flat_map(|member| member.pods.iter());
        let gated = gated.filter(|(_, bound)| bound.pod.as_ref().is_ok_and(|pod| pod.spec().readiness_gates.is_some()));
        let gated: Vec<_> = gated.map(|(uid, bound)| (uid.clone(), bound.name.clone())).collect();
        for (uid, name) in gated {
            self.outbox.publish(&uid, &name);
        }
    }

    /// Confirms the deletion of pods that have no worker: once the runtime's pods are known, nothing of them can be
    /// left on this node.
    fn confirm_deletions(&mut self) {
        if !self.desired.is_known() || !self.pleg.was_compared() {
            return;
        }
        let Engine { cluster, workers, pleg, .. } = self;
        let Some(member) = cluster.member_mut() else { return };
        let without: Vec<_> = member
            .pods
            .iter()
            .filter(|(uid, bound)| {
                bound.deletion.is_some()
                    && !workers.contains_key(*uid)
                    && pleg.knows_nothing_of(uid)
                    && !member.reports.is_ended(uid)
            })
            .map(|(uid, bound)| (uid.clone(), bound.name.clone()))
            .collect();
        for (uid, name) in without {
            member.reports.ended(&uid, &name, None);
        }
        let excess =
            member.pods.excess.deleted().filter(|uid| !workers.contains_key(*uid) && pleg.knows_nothing_of(uid));
        for uid in excess.cloned().collect::<Vec<_>>() {
            member.pods.excess.may_be_confirmed(&uid);
        }
    }

    /// G4: writes the names of the extended resources to the disk before they are reported to the server.
    fn record_resources(&mut self) {
        let Engine { cluster, config, shared, outbox, now, .. } = self;
        let Some(member) = cluster.member_mut() else { return };
        let configured = config.node.capacity.iter().map(|(name, _)| name).filter(|name| is_device_resource(name));
        member.own.record_resources(shared.devices.resources().chain(configured), now.boot, outbox);
    }

    fn health(&self) -> Health {
        let member = self.cluster.member();
        Health {
            port: member.map_or(0, |member| member.status.port),
            devices: member.map(|member| member.own.reported(&self.shared.devices.amounts())).unwrap_or_default(),
            runtime: self.runtime.name_and_version(),
            why_not: self.not_ready(self.now.boot).map(|(_, message)| message),
            pressures: self.reclaim.eviction.pressure().conditions().collect(),
        }
    }

    /// Returns the report about the node for the API server.
    fn node_report(&self) -> NodeReport {
        let node = &self.config.node;
        let cluster = self.config.cluster.clone().unwrap_or_default();
        let Health { runtime, why_not, pressures, devices, port } =
            self.cluster.member().map(|member| member.status.health.clone()).unwrap_or_default();
        let pressure = |of, condition| Condition::pressure(of, pressures.contains(&condition));
        let addresses = self.cluster.member().map(|member| member.addresses.reported(&node.name)).unwrap_or_default();
        let info = NodeInfo { container_runtime_version: runtime, ..cluster.info };
        NodeReport {
            name: node.name.clone(),
            labels: node
                .labels
                .iter()
                .filter(|(key, _)| may_set_label(key))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect_map(),
            addresses,
            capacity: node.capacity.clone(),
            allocatable: node.allocatable.clone(),
            devices,
            conditions: vec![
                pressure(Pressure::Memory, eviction::Condition::MemoryPressure),
                pressure(Pressure::Disk, eviction::Condition::DiskPressure),
                pressure(Pressure::Pid, eviction::Condition::PidPressure),
                Condition::ready(why_not.as_deref()),
            ],
            info,
            taints: cluster.taints,
            provider_id: cluster.provider_id,
            images: self.cluster.member().map(|member| member.status.images.clone()).unwrap_or_default(),
            supplemental_groups_policy: self.runtime.features().supplemental_groups_policy,
            runtime_handlers: self.runtime.features().handlers.iter().map(handler).collect(),
            port,
            ..NodeReport::default()
        }
    }
}

/// Returns the maximum number of the API server's live pods that are kept. The same number applies to pods that have
/// ended. It is twice the number of pods that the node can run, so that admission decides about all pods of a node
/// that is merely full (C17).
fn most_pods(node: &NodeFacts) -> usize {
    const USUAL: u64 = 110;
    let most = Some(node.capacity.get(PODS)).filter(|most| *most > 0).unwrap_or(USUAL);
    usize::try_from(most.saturating_mul(2)).unwrap_or(usize::MAX)
}

fn handler((name, features): (&String, &HandlerFeatures)) -> RuntimeHandler {
    let features = node::HandlerFeatures {
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    };
    RuntimeHandler { name: name.clone(), features }
}

fn status_of(rejection: &Rejection) -> k8s::PodStatus {
    let (reason, message) = (rejection.reason(), rejection.message());
    status::rejected(&Cause { reason, message, by: None })
}

fn has_ended(worker: &Worker) -> bool {
    matches!(worker.shown.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Returns the status to report for one of the API server's pods. Only the server knows the conditions of readiness
/// gates, so the transition time of `Ready` comes from its copy of the status.
fn status_for_server(worker: &Worker, bound: Option<&Bound>, member: &Member, now: Wall) -> k8s::PodStatus {
    let mut status = complete(worker, bound, member.addresses.known());
    if worker.pod.as_ref().is_some_and(|pod| pod.spec().readiness_gates.is_some()) {
        pod_status::keep_transition(&mut status, member.reports.last(&worker.uid), now);
    }
    status
}

/// Returns the complete status for the API server. `addresses` are those of the node.
fn complete(worker: &Worker, bound: Option<&Bound>, addresses: &[String]) -> k8s::PodStatus {
    let host_network = worker.pod.as_ref().is_some_and(|pod| pod.host_network());
    let mut status = worker.shown.status.clone();
    let generation = bound.and_then(|bound| bound.generation);
    let closed_gate = bound.and_then(|bound| bound.closed_gate.clone());
    pod_status::complete(&mut status, addresses, host_network, generation, closed_gate);
    status
}

/// Returns the event in the form in which it is sent to the API server.
fn entry(notice: &Notice, node: &str, now: Wall) -> Entry {
    // The server knows nothing of a Deployment in a manifest, so its events are those of the node there.
    let subject = notice.subject.pod().map(|pod| {
        // kubectl looks for the events of a mirror under the UID of its pod.
        let mirror = (!pod.is_from_api_server()).then(|| mirror::name(&pod.name, node));
        Subject {
            namespace: pod.name.namespace.to_string(),
            name: mirror.as_ref().unwrap_or(&pod.name).name.to_string(),
            uid: pod.uid.to_string(),
            field: notice.container.as_ref().map(|name| pod.field_of(name)),
        }
    });
    Entry::new(subject, notice.severity == Severity::Warning, notice.reason.as_str(), &notice.message, now)
}
