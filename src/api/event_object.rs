//! The form of an event in the API (core/v1 Event).

use serde::{Deserialize, Serialize};

/// The value of `source.component` and of the reporting component.
pub const COMPONENT: &str = "wherry";
/// The namespace of the events of a node. A node itself has no namespace.
pub const NODE_NAMESPACE: &str = "default";

/// The kind of an object that has events. A node has events too, but is identified in another way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum InvolvedKind {
    #[default]
    Pod,
    Deployment,
    DaemonSet,
    StatefulSet,
    ReplicaSet,
    Job,
    CronJob,
    PersistentVolumeClaim,
    Service,
}

impl InvolvedKind {
    /// Returns the kind and its version.
    pub fn in_api(self) -> (&'static str, &'static str) {
        match self {
            InvolvedKind::Pod => ("Pod", "v1"),
            InvolvedKind::Deployment => ("Deployment", "apps/v1"),
            InvolvedKind::DaemonSet => ("DaemonSet", "apps/v1"),
            InvolvedKind::StatefulSet => ("StatefulSet", "apps/v1"),
            InvolvedKind::ReplicaSet => ("ReplicaSet", "apps/v1"),
            InvolvedKind::Job => ("Job", "batch/v1"),
            InvolvedKind::CronJob => ("CronJob", "batch/v1"),
            InvolvedKind::PersistentVolumeClaim => ("PersistentVolumeClaim", "v1"),
            InvolvedKind::Service => ("Service", "v1"),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventObject<'a> {
    /// `Event`
    pub kind: &'static str,
    /// `v1`
    pub api_version: &'static str,
    pub metadata: Metadata<'a>,
    pub involved_object: InvolvedObject<'a>,
    pub reason: &'a str,
    pub message: &'a str,
    pub source: EventSource<'a>,
    /// RFC 3339
    pub first_timestamp: Option<String>,
    pub last_timestamp: Option<String>,
    pub count: u32,
    /// `Normal` or `Warning`
    pub r#type: &'static str,
    /// Only for an API server, which requires these fields in some events.
    #[serde(flatten)]
    pub reporting: Option<Reporting<'a>>,
}

#[derive(Serialize)]
pub struct Metadata<'a> {
    pub name: String,
    pub namespace: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InvolvedObject<'a> {
    /// `Pod`, `Node`, or the kind of a workload
    pub kind: &'static str,
    /// None for a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<&'a str>,
    pub name: &'a str,
    /// For a node, this is its name, as in a kubelet. `kubectl describe node` searches for the name and for the UID.
    pub uid: &'a str,
    pub api_version: &'static str,
    /// `spec.containers{main}`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<&'a str>,
}

#[derive(Serialize)]
pub struct EventSource<'a> {
    pub component: &'static str,
    /// The name of the node.
    pub host: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reporting<'a> {
    /// None for an event that does not use the newer events API.
    pub event_time: Option<String>,
    pub reporting_component: &'static str,
    /// The name of the node.
    pub reporting_instance: &'a str,
}
