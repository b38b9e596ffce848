//! The kinds that a document of a manifest can have, and their versions of the API.

use super::other_kinds;
use crate::api::claim::CLAIM;
use crate::api::k8s;
use crate::api::network_object::NetworkKind;
use crate::api::plain_object::PlainKind;
use crate::api::problem::{Fault, FieldPath, FieldStep};
use crate::api::workload::key::WorkloadKind;
use serde_json::Value;

/// The supported kinds of single objects.
const KINDS: [&str; 23] = [
    "Pod",
    CRON_JOB,
    DEPLOYMENT,
    DAEMON_SET,
    JOB,
    REPLICA_SET,
    STATEFUL_SET,
    SERVICE,
    ENDPOINT_SLICE,
    CLAIM,
    "ConfigMap",
    "Secret",
    PRIORITY_CLASS,
    RUNTIME_CLASS,
    PlainKind::ClusterRole.name(),
    PlainKind::ClusterRoleBinding.name(),
    PlainKind::HorizontalPodAutoscaler.name(),
    PlainKind::Namespace.name(),
    PlainKind::NetworkPolicy.name(),
    PlainKind::PodDisruptionBudget.name(),
    PlainKind::Role.name(),
    PlainKind::RoleBinding.name(),
    PlainKind::ServiceAccount.name(),
];
/// The kinds of lists of objects.
const LISTS: [&str; 2] = ["List", "PodList"];

pub(super) const CRON_JOB: &str = WorkloadKind::CronJob.name();
pub(super) const DEPLOYMENT: &str = WorkloadKind::Deployment.name();
pub(super) const DAEMON_SET: &str = WorkloadKind::DaemonSet.name();
pub(super) const JOB: &str = WorkloadKind::Job.name();
pub(super) const REPLICA_SET: &str = WorkloadKind::ReplicaSet.name();
pub(super) const STATEFUL_SET: &str = WorkloadKind::StatefulSet.name();
pub(super) const SERVICE: &str = NetworkKind::Service.name();
pub(super) const ENDPOINT_SLICE: &str = NetworkKind::EndpointSlice.name();
pub(super) const PRIORITY_CLASS: &str = "PriorityClass";
pub(super) const RUNTIME_CLASS: &str = "RuntimeClass";

/// Reports whether the kind is supported, or is near to the name of one that is.
pub(super) fn is_near_one(kind: &str) -> bool {
    supported().any(|known| near(kind, known))
}

/// Reports whether the name of a kind is this one, or a misspelt form of it.
pub(super) fn near(kind: &str, known: &str) -> bool {
    k8s::nearest(kind, &[known]).is_some()
}

fn supported() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().chain(LISTS)
}

/// Returns the errors that are found before the types are checked: not an object, no kind, an unsupported kind.
pub(super) fn faults_of(value: &Value) -> Vec<Fault> {
    if !value.is_object() {
        let message = "must be an object with apiVersion, kind, metadata and spec".to_owned();
        return vec![Fault::invalid(FieldPath::default(), message)];
    }
    let mut faults = Vec::new();
    match value.get("kind") {
        Some(Value::String(kind)) if supported().any(|known| known == kind) => {
            let right = api_versions(kind);
            match value.get("apiVersion") {
                Some(Value::String(version)) if right.contains(&version.as_str()) => {}
                None | Some(Value::Null) => {
                    faults.push(fault("apiVersion", &format!("Required value: must be {}", right.join(" or "))));
                }
                Some(other) => {
                    let right: Vec<String> = right.iter().map(|version| format!("{version:?}")).collect();
                    let message = format!("Unsupported value: {other}: supported values: {}", right.join(", "));
                    faults.push(fault("apiVersion", &message));
                }
            }
        }
        Some(Value::String(kind)) => match supported().find(|known| near(kind, known)) {
            Some(meant) => faults.push(fault("kind", &format!("Unsupported value: {kind:?}; did you mean {meant}?"))),
            None => faults.push(fault("kind", &other_kinds::refusal(kind))),
        },
        None | Some(Value::Null) => {
            faults.push(fault("kind", &format!("Required value: must be {} or List", KINDS.join(", "))));
        }
        Some(other) => faults.push(fault("kind", &format!("must be a string, not {other}"))),
    }
    faults
}

/// Returns the versions of the API in which a manifest can define this supported kind.
fn api_versions(kind: &str) -> Vec<&'static str> {
    let version = match kind {
        PRIORITY_CLASS => "scheduling.k8s.io/v1",
        RUNTIME_CLASS => "node.k8s.io/v1",
        ENDPOINT_SLICE => "discovery.k8s.io/v1",
        kind => match PlainKind::of(kind) {
            Some(plain) => return plain.api_versions().to_vec(),
            None => WorkloadKind::of(kind).map_or("v1", WorkloadKind::api_version),
        },
    };
    vec![version]
}

/// Returns the error of a field at the top of a document.
pub(super) fn fault(field: &str, message: &str) -> Fault {
    Fault::invalid(FieldPath(vec![FieldStep::Field(field.to_owned())]), message)
}
