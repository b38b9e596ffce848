//! Deployments and their revisions as objects of the API.

use super::deployment::Rollout;
use super::progress::whole;
use super::replica_set::ReplicaSet;
use crate::api::k8s::{
    self, DeploymentStatus, LabelSelector, ObjectMeta, OwnerReference, PodTemplateSpec, ReplicaSetSpec,
    ReplicaSetStatus,
};
use crate::api::time::Boot;
use crate::api::workload::template::HASH_LABEL;
use std::collections::BTreeMap;

/// The annotation with the number of a revision, which kubectl reads.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MOST: &str = "deployment.kubernetes.io/max-replicas";

/// Returns a Deployment with its status.
pub fn deployment(rollout: &Rollout) -> k8s::Deployment {
    let deployment = rollout.deployment();
    let mut object = deployment.object.clone();
    let metadata = &mut object.metadata;
    metadata.creation_timestamp = rollout.created().timestamp().map(whole);
    metadata.generation = Some(rollout.generation());
    metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), rollout.revision().to_string());
    if let Some(spec) = &mut object.spec {
        spec.template = shown_template(&deployment.template, None);
    }
    let counts = rollout.counts();
    let conditions = rollout.conditions().into_iter().map(|(type_, condition)| condition.object(type_)).collect();
    object.status = Some(DeploymentStatus {
        available_replicas: some(counts.available),
        collision_count: None,
        conditions: Some(conditions),
        observed_generation: Some(rollout.generation()),
        ready_replicas: some(counts.ready),
        replicas: some(counts.replicas),
        terminating_replicas: some(counts.terminating),
        unavailable_replicas: some(deployment.replicas().max(counts.replicas).saturating_sub(counts.available)),
        updated_replicas: some(counts.updated),
    });
    object
}

/// Returns a revision as a ReplicaSet.
pub fn replica_set(rollout: &Rollout, set: &ReplicaSet, now: Boot) -> k8s::ReplicaSet {
    let deployment = rollout.deployment();
    let mut annotations = set.annotations.clone();
    for (key, value) in [
        (REVISION, set.revision.to_string()),
        (DESIRED, deployment.replicas().to_string()),
        (MOST, rollout.most().to_string()),
    ] {
        annotations.insert(key.to_owned(), value);
    }
    let mut labels = set.template.metadata.as_ref().and_then(|m| m.labels.clone()).unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), set.hash.clone());
    let metadata = ObjectMeta {
        name: Some(set.name.name.to_string()),
        namespace: Some(set.name.namespace.to_string()),
        uid: Some(set.uid.to_string()),
        generation: Some(1),
        creation_timestamp: set.created.timestamp().map(whole),
        labels: Some(labels),
        annotations: Some(annotations),
        owner_references: Some(vec![OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: deployment.name.name.to_string(),
            uid: deployment.uid.to_string(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    let mut selector: LabelSelector = deployment.selector().clone();
    selector.match_labels.get_or_insert_with(BTreeMap::new).insert(HASH_LABEL.to_owned(), set.hash.clone());
    let min_ready = deployment.min_ready();
    let spec = ReplicaSetSpec {
        min_ready_seconds: i32::try_from(min_ready.as_secs()).ok().filter(|seconds| *seconds > 0),
        replicas: i32::try_from(set.wanted).ok(),
        selector,
        template: Some(shown_template(&set.template, Some(&set.hash))),
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

/// Returns a number of the status. As in an API server, zero is absent.
fn some(count: u32) -> Option<i32> {
    i32::try_from(count).ok().filter(|count| *count > 0)
}

/// Returns a template with the label of its revision and the default DNS policy, which the stored template lacks.
fn shown_template(template: &PodTemplateSpec, hash: Option<&str>) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(hash) = hash {
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    }
    if let Some(spec) = &mut template.spec {
        spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
    }
    template
}
