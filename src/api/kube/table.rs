//! Formats objects as rows of a table (meta/v1, Table), with the columns of an API server. kubectl prints the cells
//! as they are.

use super::job_cells::{cron_job_cells, job_cells};
use super::plain_cells;
use super::pod_row::{Row, flag, list, since, text};
use super::resources::Kind;
use super::scale;
use super::service_cells;
use crate::api::ordered::OrderSlice;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column. A column with priority 1 is only printed with `-o wide`.
struct Column {
    name: &'static str,
    kind: &'static str,
    priority: u8,
    description: &'static str,
}

const fn column(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", priority: 0, description }
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", priority: 1, description }
}

const fn number(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", priority: 0, description }
}

const NAME: Column = column("Name", "Name of the object, unique in its namespace.");
const AGE: Column = column("Age", "Time since the object was created.");

const POD: &[Column] = &[
    NAME,
    column("Ready", "Number of ready containers, and number of containers."),
    column("Status", "State of the pod in one word."),
    column("Restarts", "Number of restarts of all containers, and the time since the last one."),
    AGE,
    wide("IP", "IP address of the pod."),
    wide("Node", "Node that runs the pod."),
    wide("Nominated Node", "Node on which other pods are preempted for this pod."),
    wide("Readiness Gates", "Number of true readiness gates, and number of readiness gates."),
];

const NODE: &[Column] = &[
    NAME,
    column("Status", "Readiness of the node, and whether it accepts new pods."),
    column("Roles", "Roles of the node according to its labels."),
    AGE,
    column("Version", "Version of the node agent."),
    wide("Internal-IP", "Address of the node in its network."),
    wide("External-IP", "Address of the node for other networks."),
    wide("OS-Image", "Operating system."),
    wide("Kernel-Version", "Version of the kernel."),
    wide("Container-Runtime", "Container runtime and its version."),
];

const EVENT: &[Column] = &[
    column("Last Seen", "Time since the last occurrence."),
    column("Type", "Normal or Warning."),
    column("Reason", "Reason in one word."),
    column("Object", "Object of the event."),
    wide("Subobject", "Part of the object."),
    wide("Source", "Component that reported the event."),
    column("Message", "Description of the event."),
    wide("First Seen", "Time since the first occurrence."),
    Column { name: "Count", kind: "integer", priority: 1, description: "Number of occurrences." },
    wide("Name", "Name of the event."),
];

const PRIORITY_CLASS: &[Column] = &[
    NAME,
    number("Value", "Priority of the pods of this class."),
    Column {
        name: "Global-Default",
        kind: "boolean",
        priority: 0,
        description: "Whether pods without a class get this one.",
    },
    AGE,
    column("PreemptionPolicy", "Whether the pods preempt other pods."),
];

const DEPLOYMENT: &[Column] = &[
    NAME,
    column("Ready", "Number of ready pods, and number of replicas."),
    number("Up-to-date", "Number of pods of the present template."),
    number("Available", "Number of available pods."),
    AGE,
    wide("Containers", "Names of the containers in the template."),
    wide("Images", "Images of the containers in the template."),
    wide("Selector", "Label selector of the pods."),
];

const REPLICA_SET: &[Column] = &[
    NAME,
    number("Desired", "Number of pods that the revision is to have."),
    number("Current", "Number of pods of the revision."),
    number("Ready", "Number of ready pods."),
    AGE,
    wide("Containers", "Names of the containers in the template."),
    wide("Images", "Images of the containers in the template."),
    wide("Selector", "Label selector of the pods."),
];

const DAEMON_SET: &[Column] = &[
    NAME,
    number("Desired", "Number of nodes that admit a pod: 0 or 1."),
    number("Current", "Number of nodes with a pod."),
    number("Ready", "Number of ready pods."),
    number("Up-to-date", "Number of pods of the present template."),
    number("Available", "Number of available pods."),
    column("Node Selector", "Labels that the node must have."),
    AGE,
    wide("Containers", "Names of the containers in the template."),
    wide("Images", "Images of the containers in the template."),
    wide("Selector", "Label selector of the pods."),
];

const STATEFUL_SET: &[Column] = &[
    NAME,
    column("Ready", "Number of ready pods, and number of replicas."),
    AGE,
    wide("Containers", "Names of the containers in the template."),
    wide("Images", "Images of the containers in the template."),
];

const JOB: &[Column] = &[
    NAME,
    column("Status", "Condition of the Job."),
    column("Completions", "Number of pods that have succeeded, and number of completions."),
    column("Duration", "Time from the start of the Job to its end."),
    AGE,
    wide("Containers", "Names of the containers in the template."),
    wide("Images", "Images of the containers in the template."),
    wide("Selector", "Label selector of the pods."),
];

const CRON_JOB: &[Column] = &[
    NAME,
    column("Schedule", "Schedule of the Jobs."),
    column("Timezone", "Time zone of the schedule."),
    column("Suspend", "Whether no Jobs are created."),
    number("Active", "Number of Jobs that have not ended."),
    column("Last Schedule", "Time since the last Job was due."),
    AGE,
    wide("Containers", "Names of the containers in the template."),
    wide("Images", "Images of the containers in the template."),
    wide("Selector", "Label selector of the pods."),
];

const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    column("Controller", "Object to which the revision belongs."),
    number("Revision", "Number of the revision."),
    AGE,
];

const CLAIM: &[Column] = &[
    NAME,
    column("Status", "Phase of the claim."),
    column("Volume", "Volume of the claim."),
    column("Capacity", "Size that the claim requests."),
    column("Access Modes", "Access modes of the volume."),
    column("StorageClass", "Storage class of the claim."),
    column("VolumeAttributesClass", "Attributes of the volume."),
    AGE,
    wide("VolumeMode", "Mode of the volume."),
];

const VOLUME: &[Column] = &[
    NAME,
    column("Capacity", "Size that the claim requests."),
    column("Access Modes", "Access modes of the volume."),
    column("Reclaim Policy", "What happens with the directory when its claim is deleted."),
    column("Status", "Phase of the volume."),
    column("Claim", "Claim of the volume."),
    column("StorageClass", "Storage class of the volume."),
    column("VolumeAttributesClass", "Attributes of the volume."),
    column("Reason", "Why the volume is in this phase."),
    AGE,
    wide("VolumeMode", "Mode of the volume."),
];

const SERVICE: &[Column] = &[
    NAME,
    column("Type", "How the service is reached."),
    column("Cluster-IP", "Address of the service for pods."),
    column("External-IP", "Further addresses of the service."),
    column("Port(s)", "Ports of the service and of the node."),
    AGE,
    wide("Selector", "Labels of the pods behind the service."),
];

const ENDPOINTS: &[Column] = &[NAME, column("Endpoints", "Addresses and ports of the ready endpoints."), AGE];

const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    column("AddressType", "Family of the addresses."),
    column("Ports", "Ports of the endpoints."),
    column("Endpoints", "Addresses of the endpoints."),
    AGE,
];

const STORAGE_CLASS: &[Column] = &[
    NAME,
    column("Provisioner", "Who creates the volumes."),
    column("ReclaimPolicy", "What happens with the directory when its claim is deleted."),
    column("VolumeBindingMode", "When a claim gets its volume."),
    column("AllowVolumeExpansion", "Whether the requested size can grow."),
    AGE,
];

const ROLE: &[Column] = &[
    NAME,
    Column { name: "Created At", kind: "date", priority: 0, description: "Time at which the object was created." },
];

const BINDING: &[Column] = &[
    NAME,
    column("Role", "Role that the binding grants."),
    AGE,
    wide("Users", "Users that get the role."),
    wide("Groups", "Groups that get the role."),
    wide("ServiceAccounts", "Accounts that get the role."),
];

const AUTOSCALER: &[Column] = &[
    NAME,
    column("Reference", "Object whose replicas the autoscaler would change."),
    column("Targets", "Metrics and their targets. The present values are unknown."),
    column("MinPods", "Minimum number of replicas."),
    number("MaxPods", "Maximum number of replicas."),
    number("Replicas", "Number of pods of the object."),
    AGE,
];

const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    column("Min Available", "Number or percentage of pods that must stay available."),
    column("Max Unavailable", "Number or percentage of pods that may be unavailable."),
    number("Allowed Disruptions", "Number of pods that may be evicted now."),
    AGE,
];

const METRICS: &[Column] = &[
    NAME,
    column("CPU", "CPU usage."),
    column("Memory", "Memory usage."),
    column("Window", "Time over which the CPU usage was measured."),
];

fn columns(kind: Kind) -> &'static [Column] {
    match kind {
        Kind::Pod => POD,
        Kind::Node => NODE,
        Kind::Event => EVENT,
        Kind::Deployment => DEPLOYMENT,
        Kind::ReplicaSet => REPLICA_SET,
        Kind::DaemonSet => DAEMON_SET,
        Kind::StatefulSet => STATEFUL_SET,
        Kind::Job => JOB,
        Kind::CronJob => CRON_JOB,
        Kind::ControllerRevision => CONTROLLER_REVISION,
        Kind::Namespace => const { &[NAME, column("Status", "Phase of the namespace."), AGE] },
        Kind::ConfigMap => const { &[NAME, number("Data", "Number of entries."), AGE] },
        Kind::Secret => {
            const { &[NAME, column("Type", "Type of the secret."), number("Data", "Number of entries."), AGE] }
        }
        Kind::Claim => CLAIM,
        Kind::Volume => VOLUME,
        Kind::StorageClass => STORAGE_CLASS,
        Kind::Service => SERVICE,
        Kind::Endpoints => ENDPOINTS,
        Kind::EndpointSlice => ENDPOINT_SLICE,
        Kind::PriorityClass => PRIORITY_CLASS,
        Kind::RuntimeClass => const { &[NAME, column("Handler", "Handler of the container runtime."), AGE] },
        Kind::ServiceAccount => const { &[NAME, column("Secrets", "Number of Secrets of the account."), AGE] },
        Kind::Role | Kind::ClusterRole => ROLE,
        Kind::RoleBinding | Kind::ClusterRoleBinding => BINDING,
        Kind::Autoscaler | Kind::AutoscalerV1 => AUTOSCALER,
        Kind::NetworkPolicy => const { &[NAME, column("Pod-Selector", "Label selector of the pods."), AGE] },
        Kind::DisruptionBudget => DISRUPTION_BUDGET,
        Kind::Lease => const { &[NAME, column("Holder", "Holder of the lease."), AGE] },
        Kind::PodMetrics | Kind::NodeMetrics => METRICS,
        Kind::Ingress
        | Kind::ReplicationController
        | Kind::SelfSubjectAccessReview
        | Kind::SelfSubjectRulesReview
        | Kind::SelfSubjectReview => const { &[NAME] },
    }
}

/// Returns `columnDefinitions` of the table.
pub fn definitions(kind: Kind) -> Value {
    let one = |column: &Column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "format": if column.name == "Name" { "name" } else { "" },
            "description": column.description,
            "priority": column.priority,
        })
    };
    columns(kind).iter().map(one).collect()
}

/// The part of an object that a row contains (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    None,
    Metadata,
    Object,
}

/// Returns the row of an object.
pub fn row(kind: Kind, object: Value, include: Include, now: Timestamp) -> Value {
    let cells = cells(kind, &object, now);
    let object = match include {
        Include::None => Value::Null,
        Include::Metadata => metadata_only(object),
        Include::Object => object,
    };
    json!({ "cells": cells, "object": object })
}

/// Returns the object as `PartialObjectMetadata`.
pub fn metadata_only(mut object: Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"].take() })
}

fn cells(kind: Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = || Value::from(text(object, "/metadata/name"));
    let age = || age(text(object, "/metadata/creationTimestamp"), now);
    let or = |path, other| text_or(object, path, other);
    let entries = |fields: &[&str]| -> Value {
        fields.iter().map(|f| object[*f].as_object().map_or(0, serde_json::Map::len)).sum::<usize>().into()
    };
    match kind {
        Kind::Pod => {
            let Row { name, ready, status, restarts, age, ip, node, .. } = Row::new(object, now);
            let nominated = or("/status/nominatedNodeName", "<none>");
            let cells = [name, ready, status, restarts, age, ip, node].map(Value::from);
            cells.into_iter().chain([nominated, gates(object)]).collect()
        }
        Kind::Node => node_cells(object, name(), age()),
        Kind::Event => event_cells(object, name(), now),
        Kind::Deployment | Kind::ReplicaSet | Kind::DaemonSet | Kind::StatefulSet | Kind::Job | Kind::CronJob => {
            workload_cells(kind, object, name(), age(), now)
        }
        Kind::ControllerRevision => {
            let revision = object["revision"].as_i64().unwrap_or_default();
            vec![name(), controller_of(object).into(), revision.into(), age()]
        }
        Kind::Namespace => vec![name(), or("/status/phase", ""), age()],
        Kind::ConfigMap => vec![name(), entries(&["data", "binaryData"]), age()],
        Kind::Secret => vec![name(), or("/type", ""), entries(&["data"]), age()],
        Kind::Claim => claim_cells(object, name(), age()),
        Kind::Volume => volume_cells(object, name(), age()),
        Kind::StorageClass => storage_class_cells(object, age()),
        Kind::Service => service_cells::service(object, name(), age()),
        Kind::Endpoints => service_cells::endpoints(object, name(), age()),
        Kind::EndpointSlice => service_cells::slice(object, name(), age()),
        Kind::PriorityClass => {
            let value = object["value"].as_i64().unwrap_or(0);
            let policy = or("/preemptionPolicy", "PreemptLowerPriority");
            vec![name(), value.into(), flag(object, "/globalDefault").into(), age(), policy]
        }
        Kind::RuntimeClass => vec![name(), or("/handler", ""), age()],
        Kind::ServiceAccount => plain_cells::service_account(object, name(), age()),
        Kind::Role | Kind::ClusterRole => plain_cells::role(object, name()),
        Kind::RoleBinding | Kind::ClusterRoleBinding => plain_cells::binding(object, name(), age()),
        Kind::Autoscaler | Kind::AutoscalerV1 => plain_cells::autoscaler(object, name(), age()),
        Kind::NetworkPolicy => plain_cells::network_policy(object, name(), age()),
        Kind::DisruptionBudget => plain_cells::disruption_budget(object, name(), age()),
        Kind::Lease => vec![name(), or("/spec/holderIdentity", ""), age()],
        Kind::PodMetrics | Kind::NodeMetrics => {
            vec![name(), or("/usage/cpu", "<none>"), or("/usage/memory", "<none>"), or("/window", "")]
        }
        Kind::Ingress
        | Kind::ReplicationController
        | Kind::SelfSubjectAccessReview
        | Kind::SelfSubjectRulesReview
        | Kind::SelfSubjectReview => vec![name()],
    }
}

fn workload_cells(kind: Kind, object: &Value, name: Value, age: Value, now: Timestamp) -> Vec<Value> {
    let count = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let (wanted, ready) = (count("/spec/replicas"), count("/status/readyReplicas"));
    let counts = match kind {
        Kind::StatefulSet => vec![format!("{ready}/{wanted}").into()],
        Kind::Job => job_cells(object, now).to_vec(),
        Kind::CronJob => cron_job_cells(object, now).to_vec(),
        Kind::DaemonSet => vec![
            count("/status/desiredNumberScheduled").into(),
            count("/status/currentNumberScheduled").into(),
            count("/status/numberReady").into(),
            count("/status/updatedNumberScheduled").into(),
            count("/status/numberAvailable").into(),
            node_selector(object),
        ],
        Kind::Deployment => vec![
            format!("{ready}/{wanted}").into(),
            count("/status/updatedReplicas").into(),
            count("/status/availableReplicas").into(),
        ],
        _ => vec![wanted.into(), count("/status/replicas").into(), ready.into()],
    };
    let template = if kind == Kind::CronJob { "/spec/jobTemplate/spec/template" } else { "/spec/template" };
    let containers = list(object, &format!("{template}/spec/containers"));
    let of_containers = |field: &str| -> Value {
        containers.iter().map(|container| text(container, field)).collect::<Vec<_>>().join(",").into()
    };
    let selector = scale::selector(&object["spec"]["selector"]);
    let selector = (kind != Kind::StatefulSet).then(|| selector.into());
    let wide = [of_containers("/name"), of_containers("/image")].into_iter().chain(selector);
    [name].into_iter().chain(counts).chain([age]).chain(wide).collect()
}

fn claim_cells(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let phase = match text(object, "/metadata/deletionTimestamp") {
        "" => text(object, "/status/phase"),
        _ => "Terminating",
    };
    vec![
        name,
        phase.into(),
        text(object, "/spec/volumeName").into(),
        text(object, "/status/capacity/storage").into(),
        modes(object, "/status/accessModes").into(),
        text(object, "/spec/storageClassName").into(),
        "<unset>".into(),
        age,
        text(object, "/spec/volumeMode").into(),
    ]
}

fn volume_cells(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let (namespace, claim) = (text(object, "/spec/claimRef/namespace"), text(object, "/spec/claimRef/name"));
    let claim = if claim.is_empty() { String::new() } else { format!("{namespace}/{claim}") };
    vec![
        name,
        text(object, "/spec/capacity/storage").into(),
        modes(object, "/spec/accessModes").into(),
        text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        text(object, "/status/phase").into(),
        claim.into(),
        text(object, "/spec/storageClassName").into(),
        "<unset>".into(),
        text(object, "/status/reason").into(),
        age,
        text(object, "/spec/volumeMode").into(),
    ]
}

fn storage_class_cells(object: &Value, age: Value) -> Vec<Value> {
    let is_default = text(object, "/metadata/annotations/storageclass.kubernetes.io~1is-default-class") == "true";
    let name = format!("{}{}", text(object, "/metadata/name"), if is_default { " (default)" } else { "" });
    vec![
        name.into(),
        text(object, "/provisioner").into(),
        text(object, "/reclaimPolicy").into(),
        text(object, "/volumeBindingMode").into(),
        flag(object, "/allowVolumeExpansion").into(),
        age,
    ]
}

/// Returns the access modes in the short form of kubectl: `RWO,RWX`.
fn modes(object: &Value, path: &str) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    list(object, path).iter().map(short).collect::<Vec<_>>().join(",")
}

/// Returns the node selector of a DaemonSet as `KEY=VALUE,...`.
fn node_selector(object: &Value) -> Value {
    let selector = object.pointer("/spec/template/spec/nodeSelector").and_then(Value::as_object);
    let pairs = selector.into_iter().flatten().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
    match pairs.collect::<Vec<_>>().join(",") {
        none if none.is_empty() => "<none>".into(),
        pairs => pairs.into(),
    }
}

/// Returns the controller of an object as `daemonset.apps/NAME`.
fn controller_of(object: &Value) -> String {
    let owners = list(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|owner| owner["controller"] == true) else { return "<none>".to_owned() };
    let group = text(owner, "/apiVersion").split('/').next().unwrap_or_default();
    format!("{}.{group}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name"))
}

fn text_or(object: &Value, path: &str, other: &str) -> Value {
    match text(object, path) {
        "" => other.into(),
        text => text.into(),
    }
}

fn node_cells(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let info = |name: &str| text_or(object, &format!("/status/nodeInfo/{name}"), "<unknown>");
    let address = |kind: &str| {
        let all = list(object, "/status/addresses");
        let address = all.iter().find(|a| a["type"] == kind).map(|a| text(a, "/address"));
        Value::from(address.unwrap_or("<none>"))
    };
    vec![
        name,
        node_status(object).into(),
        roles(object).into(),
        age,
        info("kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn event_cells(object: &Value, name: Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, "/involvedObject/kind").to_lowercase();
    let source = [text(object, "/source/component"), text(object, "/source/host")];
    let source: Vec<&str> = source.into_iter().filter(|s| !s.is_empty()).collect();
    vec![
        age(text(object, "/lastTimestamp"), now),
        text_or(object, "/type", ""),
        text_or(object, "/reason", ""),
        format!("{kind}/{}", text(object, "/involvedObject/name")).into(),
        text_or(object, "/involvedObject/fieldPath", ""),
        source.join(", ").into(),
        text(object, "/message").trim().into(),
        age(text(object, "/firstTimestamp"), now),
        object["count"].as_i64().unwrap_or(1).into(),
        name,
    ]
}

fn age(at: &str, now: Timestamp) -> Value {
    at.parse().map_or("<unknown>".to_owned(), |at| since(at, now)).into()
}

fn gates(pod: &Value) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".into();
    }
    let conditions = list(pod, "/status/conditions");
    let is_true = |gate: &&Value| {
        let kind = text(gate, "/conditionType");
        conditions.iter().any(|c| text(c, "/type") == kind && text(c, "/status") == "True")
    };
    format!("{}/{}", gates.iter().filter(is_true).count(), gates.len()).into()
}

fn node_status(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|c| c["type"] == "Ready");
    let ready = match ready.map(|c| text(c, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let closed = flag(node, "/spec/unschedulable");
    if closed { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

/// Returns the roles from the labels `node-role.kubernetes.io/ROLE` and `kubernetes.io/role=ROLE`, sorted.
fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.order();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

#[cfg(test)]
mod tests {
    use super::super::resources::RESOURCES;
    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T15:00:00Z".parse().unwrap()
    }

    #[test]
    fn each_row_has_a_cell_for_each_column() {
        for resource in RESOURCES {
            let row = row(resource.kind, json!({ "metadata": { "name": "x" } }), Include::Metadata, now());
            let columns = definitions(resource.kind);
            assert_eq!(row["cells"].as_array().unwrap().len(), columns.as_array().unwrap().len(), "{resource:?}");
            assert_eq!(row["object"], metadata_only(json!({ "metadata": { "name": "x" } })));
            let names = columns.as_array().unwrap().iter().filter(|c| c["format"] == "name").count();
            assert_eq!(names, 1, "{resource:?}");
        }
    }

    #[test]
    fn a_node_shows_its_readiness_and_roles() {
        let node = json!({
            "metadata": {
                "name": "edge",
                "creationTimestamp": "2026-11-20T14:00:00Z",
                "labels": { "node-role.kubernetes.io/gateway": "", "kubernetes.io/role": "camera" },
            },
            "spec": { "unschedulable": true },
            "status": {
                "conditions": [{ "type": "MemoryPressure", "status": "False" }, { "type": "Ready", "status": "True" }],
                "addresses": [{ "type": "InternalIP", "address": "10.0.0.9" }],
                "nodeInfo": { "kubeletVersion": "v1", "osImage": "Debian" },
            },
        });
        let cells = cells(Kind::Node, &node, now());
        let expected =
            ["edge", "Ready,SchedulingDisabled", "camera,gateway", "60m", "v1", "10.0.0.9", "<none>", "Debian"];
        assert_eq!(cells[..8], expected.map(Value::from));
    }

    #[test]
    fn an_event_names_its_object() {
        let event = json!({
            "metadata": { "name": "web.1" },
            "involvedObject": { "kind": "Pod", "name": "web", "fieldPath": "spec.containers{main}" },
            "source": { "component": "kubelet", "host": "edge" },
            "type": "Normal", "reason": "Started", "message": "Started container main\n", "count": 3,
            "firstTimestamp": "2026-11-20T14:59:00Z", "lastTimestamp": "2026-11-20T14:59:55Z",
        });
        let expected = json!([
            "5s",
            "Normal",
            "Started",
            "pod/web",
            "spec.containers{main}",
            "kubelet, edge",
            "Started container main",
            "60s",
            3,
            "web.1"
        ]);
        assert_eq!(Value::from(cells(Kind::Event, &event, now())), expected);
    }

    #[test]
    fn a_pod_shows_its_readiness_gates() {
        let pod = json!({
            "metadata": { "name": "web" },
            "spec": { "containers": [{}], "readinessGates": [{ "conditionType": "a" }, { "conditionType": "b" }] },
            "status": { "conditions": [{ "type": "a", "status": "True" }] },
        });
        assert_eq!(cells(Kind::Pod, &pod, now())[8], "1/2");
    }
}
