//! Workloads and their revisions as objects of the API.

use super::any_controller::AnyController;
use super::controller::Controller;
use super::cron::shown::cron_job;
use super::daemon_set::Daemon;
use super::deployment::Rollout;
use super::job::shown::job as job_object;
use super::progress::{RolloutCondition, whole};
use super::replica_set::Replication;
use super::revision::Revision;
use super::shown_fields::{complete, shown_template, some};
use super::stateful_set::Sequence;
use crate::api::k8s::{
    self, DaemonSetCondition, DaemonSetStatus, DeploymentCondition, DeploymentStatus, LabelSelector, ObjectMeta,
    OwnerReference, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus, StatefulSetCondition, StatefulSetStatus,
};
use crate::api::time::Boot;
use crate::api::workload::head::WorkloadHead;
use crate::api::workload::template::{HASH_LABEL, REVISION_LABEL};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The annotation with the number of a revision, which kubectl reads.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";

/// Returns an object with its status.
pub fn object(of: &AnyController) -> Value {
    match of {
        AnyController::CronJob(of) => json!(cron_job(of)),
        AnyController::Deployment(of) => json!(deployment(of)),
        AnyController::DaemonSet(of) => json!(daemon_set(of)),
        AnyController::Job(of) => json!(job_object(of)),
        AnyController::ReplicaSet(of) => json!(replica_set(of)),
        AnyController::StatefulSet(of) => json!(stateful_set(of)),
    }
}

/// Returns a revision as a ReplicaSet or a ControllerRevision.
pub fn revision(of: &AnyController, revision: &Revision, now: Boot) -> Value {
    match of {
        AnyController::Deployment(of) => json!(revision_of_deployment(of, revision, now)),
        AnyController::CronJob(of) => json!(cron_job(of)),
        AnyController::Job(of) => json!(job_object(of)),
        AnyController::ReplicaSet(of) => json!(replica_set(of)),
        AnyController::DaemonSet(of) => controller_revision(revision, of.head()),
        AnyController::StatefulSet(of) => controller_revision(revision, of.head()),
    }
}

fn deployment(rollout: &Rollout) -> k8s::Deployment {
    let deployment = rollout.deployment();
    let mut object = deployment.object.clone();
    let (metadata, state) = (&mut object.metadata, rollout.state());
    complete(metadata, state);
    metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), state.history.number().to_string());
    if let Some(spec) = &mut object.spec {
        spec.template = shown_template(&deployment.head.template, &[]);
    }
    let counts = rollout.counts();
    let conditions = rollout.conditions().into_iter().map(|(type_, condition)| condition.object(type_)).collect();
    object.status = Some(DeploymentStatus {
        available_replicas: some(counts.available),
        collision_count: None,
        conditions: Some(conditions),
        observed_generation: Some(state.generation),
        ready_replicas: some(counts.ready),
        replicas: some(counts.replicas),
        terminating_replicas: some(counts.terminating),
        unavailable_replicas: some(deployment.replicas().max(counts.replicas).saturating_sub(counts.available)),
        updated_replicas: some(counts.updated),
    });
    object
}

/// Returns a DaemonSet with its status.
fn daemon_set(daemon: &Daemon) -> k8s::DaemonSet {
    let mut object = daemon.daemon_set().object.clone();
    let state = daemon.state();
    complete(&mut object.metadata, state);
    if let Some(spec) = &mut object.spec {
        spec.template = shown_template(&daemon.daemon_set().head.template, &[]);
    }
    let (counts, conditions) = (daemon.counts(), daemon.conditions());
    let conditions = conditions.into_iter().map(|(type_, condition)| of_daemon_set(condition, type_)).collect();
    object.status = Some(DaemonSetStatus {
        collision_count: None,
        conditions: Some(conditions).filter(|all: &Vec<_>| !all.is_empty()),
        current_number_scheduled: i32::from(counts.has_pod && counts.desired),
        desired_number_scheduled: i32::from(counts.desired),
        number_available: some(u32::from(counts.available)),
        number_misscheduled: i32::from(counts.has_pod && !counts.desired),
        number_ready: i32::from(counts.ready),
        number_unavailable: some(u32::from(counts.desired && !counts.available)),
        observed_generation: Some(state.generation),
        updated_number_scheduled: some(u32::from(counts.updated)),
    });
    object
}

/// Returns a revision of a DaemonSet or a StatefulSet as a ControllerRevision. Its data is the patch with which kubectl
/// brings the template back.
fn controller_revision(revision: &Revision, of: &WorkloadHead) -> Value {
    let labels = [(REVISION_LABEL, &*revision.hash)];
    let mut template = json!(shown_template(&revision.template, &[]));
    template["$patch"] = "replace".into();
    let metadata = ObjectMeta {
        labels: Some(labels_of(revision, &labels)),
        annotations: Some(revision.annotations.clone()).filter(|all| !all.is_empty()),
        ..metadata_of(revision, owner(of))
    };
    json!({ "metadata": metadata, "revision": revision.number, "data": { "spec": { "template": template } } })
}

/// Returns a ReplicaSet of a manifest with its status.
fn replica_set(replication: &Replication) -> k8s::ReplicaSet {
    let mut object = replication.replica_set().object.clone();
    let state = replication.state();
    complete(&mut object.metadata, state);
    if let Some(spec) = &mut object.spec {
        spec.template = Some(shown_template(&replication.replica_set().head.template, &[]));
    }
    let (counts, conditions) = (replication.counts(), replication.conditions());
    let conditions = conditions.into_iter().map(|(type_, condition)| of_replica_set(condition, type_)).collect();
    object.status = Some(ReplicaSetStatus {
        available_replicas: some(counts.available),
        conditions: Some(conditions).filter(|all: &Vec<_>| !all.is_empty()),
        fully_labeled_replicas: some(counts.fully_labeled),
        observed_generation: Some(state.generation),
        ready_replicas: some(counts.ready),
        replicas: i32::try_from(counts.replicas).unwrap_or(i32::MAX),
        terminating_replicas: some(counts.terminating),
    });
    object
}

/// Returns a StatefulSet with its status.
fn stateful_set(sequence: &Sequence) -> k8s::StatefulSet {
    let mut object = sequence.stateful_set().object.clone();
    let state = sequence.state();
    complete(&mut object.metadata, state);
    if let Some(spec) = &mut object.spec {
        spec.template = shown_template(&sequence.stateful_set().head.template, &[]);
    }
    let (counts, conditions) = (sequence.counts(), sequence.conditions());
    let conditions = conditions.into_iter().map(|(type_, condition)| of_stateful_set(condition, type_)).collect();
    let mut revisions = state.history.revisions.iter();
    let current = revisions.find(|revision| revision.hash == sequence.current());
    let name = |revision: Option<&Revision>| revision.map(|revision| revision.name.name.to_string());
    object.status = Some(StatefulSetStatus {
        available_replicas: Some(i32::try_from(counts.available).unwrap_or(i32::MAX)),
        collision_count: Some(0),
        conditions: Some(conditions).filter(|all: &Vec<_>| !all.is_empty()),
        current_replicas: some(counts.current),
        current_revision: name(current),
        observed_generation: Some(state.generation),
        ready_replicas: some(counts.ready),
        replicas: i32::try_from(counts.replicas).unwrap_or(i32::MAX),
        update_revision: name(state.history.newest()),
        updated_replicas: some(counts.updated),
    });
    object
}

fn of_daemon_set(condition: &RolloutCondition, type_: &str) -> DaemonSetCondition {
    let DeploymentCondition { last_transition_time, message, reason, status, type_, .. } = condition.object(type_);
    DaemonSetCondition { last_transition_time, message, reason, status, type_ }
}

fn of_replica_set(condition: &RolloutCondition, type_: &str) -> ReplicaSetCondition {
    let DeploymentCondition { last_transition_time, message, reason, status, type_, .. } = condition.object(type_);
    ReplicaSetCondition { last_transition_time, message, reason, status, type_ }
}

fn of_stateful_set(condition: &RolloutCondition, type_: &str) -> StatefulSetCondition {
    let DeploymentCondition { last_transition_time, message, reason, status, type_, .. } = condition.object(type_);
    StatefulSetCondition { last_transition_time, message, reason, status, type_ }
}

fn owner(of: &WorkloadHead) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: of.key.kind.name().to_owned(),
        name: of.name().name.to_string(),
        uid: of.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn metadata_of(revision: &Revision, owner: OwnerReference) -> ObjectMeta {
    ObjectMeta {
        name: Some(revision.name.name.to_string()),
        namespace: Some(revision.name.namespace.to_string()),
        uid: Some(revision.uid.to_string()),
        creation_timestamp: revision.created.timestamp().map(whole),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

/// Returns the labels of the template, and `more`.
fn labels_of(revision: &Revision, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut labels = revision.template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    labels.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    labels
}

/// Returns a revision of a Deployment as a ReplicaSet.
fn revision_of_deployment(rollout: &Rollout, set: &Revision, now: Boot) -> k8s::ReplicaSet {
    let deployment = rollout.deployment();
    let mut annotations = set.annotations.clone();
    for (key, value) in [
        (REVISION, set.number.to_string()),
        (DESIRED, deployment.replicas().to_string()),
        (MOST, rollout.most().to_string()),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    let labels = [(HASH_LABEL, &*set.hash)];
    let metadata = ObjectMeta {
        generation: Some(1),
        labels: Some(labels_of(set, &labels)),
        annotations: Some(annotations),
        ..metadata_of(set, owner(&deployment.head))
    };
    let mut selector: LabelSelector = deployment.selector().clone();
    selector.match_labels.get_or_insert_with(BTreeMap::new).insert(HASH_LABEL.to_owned(), set.hash.clone());
    let min_ready = deployment.min_ready();
    let spec = ReplicaSetSpec {
        min_ready_seconds: i32::try_from(min_ready.as_secs()).ok().filter(|seconds| *seconds > 0),
        replicas: i32::try_from(set.wanted).ok(),
        selector,
        template: Some(shown_template(&set.template, &labels)),
    };
    let status = ReplicaSetStatus {
        available_replicas: some(set.available(min_ready, now)),
        conditions: None,
        fully_labeled_replicas: some(set.count()),
        observed_generation: Some(1),
        ready_replicas: some(set.ready()),
        replicas: i32::try_from(set.count()).unwrap_or(i32::MAX),
        terminating_replicas: some(u32::try_from(set.leaving.len()).unwrap_or(u32::MAX)),
    };
    k8s::ReplicaSet { metadata, spec: Some(spec), status: Some(status) }
}
