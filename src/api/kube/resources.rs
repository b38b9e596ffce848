//! The resources that Wherry serves.
use crate::api::ordered::OrderSlice;
use crate::api::plain_object::PlainKind;
use crate::api::workload::key::WorkloadKind;

/// The kind of a resource's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Node,
    Namespace,
    Event,
    ConfigMap,
    Secret,
    Claim,
    Volume,
    StorageClass,
    Service,
    Endpoints,
    EndpointSlice,
    /// See [`Kind::is_refused`].
    Ingress,
    /// See [`Kind::is_refused`].
    ReplicationController,
    PriorityClass,
    RuntimeClass,
    ServiceAccount,
    Role,
    RoleBinding,
    ClusterRole,
    ClusterRoleBinding,
    Autoscaler,
    /// The older version of an autoscaler.
    AutoscalerV1,
    NetworkPolicy,
    DisruptionBudget,
    Deployment,
    ReplicaSet,
    DaemonSet,
    StatefulSet,
    Job,
    CronJob,
    ControllerRevision,
    Lease,
    PodMetrics,
    NodeMetrics,
    SelfSubjectAccessReview,
    SelfSubjectRulesReview,
    SelfSubjectReview,
}

impl Kind {
    /// Reports whether the API shows this kind only to refuse its objects: kubectl sends an object of a kind that it
    /// finds, and shows the remedy in the response. `kubectl apply --prune` needs the lists of these kinds.
    pub fn is_refused(self) -> bool {
        matches!(self, Kind::Ingress | Kind::ReplicationController)
    }

    pub fn of_workload(kind: WorkloadKind) -> Kind {
        match kind {
            WorkloadKind::CronJob => Kind::CronJob,
            WorkloadKind::Deployment => Kind::Deployment,
            WorkloadKind::DaemonSet => Kind::DaemonSet,
            WorkloadKind::Job => Kind::Job,
            WorkloadKind::ReplicaSet => Kind::ReplicaSet,
            WorkloadKind::StatefulSet => Kind::StatefulSet,
        }
    }

    /// Returns the kinds in which the API shows such an object: one for each version.
    pub fn of_plain(kind: PlainKind) -> &'static [Kind] {
        match kind {
            PlainKind::ClusterRole => &[Kind::ClusterRole],
            PlainKind::ClusterRoleBinding => &[Kind::ClusterRoleBinding],
            PlainKind::HorizontalPodAutoscaler => &[Kind::Autoscaler, Kind::AutoscalerV1],
            PlainKind::Namespace => &[Kind::Namespace],
            PlainKind::NetworkPolicy => &[Kind::NetworkPolicy],
            PlainKind::PodDisruptionBudget => &[Kind::DisruptionBudget],
            PlainKind::Role => &[Kind::Role],
            PlainKind::RoleBinding => &[Kind::RoleBinding],
            PlainKind::ServiceAccount => &[Kind::ServiceAccount],
        }
    }
}

/// The properties of a resource that discovery shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    pub kind: Kind,
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub kind_name: &'static str,
    pub namespaced: bool,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Subresource],
}

#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    pub kind_name: &'static str,
    pub verbs: &'static [&'static str],
}

/// For kinds whose lists are always empty.
const LIST: &[&str] = &["get", "list"];
const READ: &[&str] = &["get", "list", "watch"];
const READ_AND_WRITE: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];

/// The group of the kind Eviction, and its version. (kubectl drain evicts pods only if the group exists.)
const POLICY: (&str, &str) = ("policy", "v1");
/// The group of the kind Scale, and its version.
const AUTOSCALING: (&str, &str) = ("autoscaling", "v1");

/// All resources. The resources of a group are adjacent, and those of its preferred version come first.
pub static RESOURCES: &[Resource] = &[
    Resource {
        kind: Kind::ConfigMap,
        group: "",
        version: "v1",
        plural: "configmaps",
        singular: "configmap",
        kind_name: "ConfigMap",
        namespaced: true,
        short_names: &["cm"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::Event,
        group: "",
        version: "v1",
        plural: "events",
        singular: "event",
        kind_name: "Event",
        namespaced: true,
        short_names: &["ev"],
        categories: &[],
        verbs: READ,
        subresources: &[],
    },
    Resource {
        kind: Kind::Namespace,
        group: "",
        version: "v1",
        plural: "namespaces",
        singular: "namespace",
        kind_name: "Namespace",
        namespaced: false,
        short_names: &["ns"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "Namespace", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::Node,
        group: "",
        version: "v1",
        plural: "nodes",
        singular: "node",
        kind_name: "Node",
        namespaced: false,
        short_names: &["no"],
        categories: &[],
        verbs: &["get", "list", "patch", "update", "watch"],
        subresources: &[],
    },
    Resource {
        kind: Kind::Service,
        group: "",
        version: "v1",
        plural: "services",
        singular: "service",
        kind_name: "Service",
        namespaced: true,
        short_names: &["svc"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "Service", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::Endpoints,
        group: "",
        version: "v1",
        plural: "endpoints",
        singular: "endpoints",
        kind_name: "Endpoints",
        namespaced: true,
        short_names: &["ep"],
        categories: &[],
        verbs: READ,
        subresources: &[],
    },
    Resource {
        kind: Kind::Claim,
        group: "",
        version: "v1",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        kind_name: "PersistentVolumeClaim",
        namespaced: true,
        short_names: &["pvc"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "PersistentVolumeClaim", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::Volume,
        group: "",
        version: "v1",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        kind_name: "PersistentVolume",
        namespaced: false,
        short_names: &["pv"],
        categories: &[],
        verbs: &["delete", "get", "list", "watch"],
        subresources: &[Subresource { name: "status", kind_name: "PersistentVolume", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::Pod,
        group: "",
        version: "v1",
        plural: "pods",
        singular: "pod",
        kind_name: "Pod",
        namespaced: true,
        short_names: &["po"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[
            Subresource { name: "attach", kind_name: "PodAttachOptions", verbs: &["create", "get"] },
            Subresource { name: "ephemeralcontainers", kind_name: "Pod", verbs: &["get", "patch", "update"] },
            Subresource { name: "eviction", kind_name: "Eviction", verbs: CREATE },
            Subresource { name: "exec", kind_name: "PodExecOptions", verbs: &["create", "get"] },
            Subresource { name: "log", kind_name: "Pod", verbs: &["get"] },
            Subresource { name: "portforward", kind_name: "PodPortForwardOptions", verbs: &["create", "get"] },
            Subresource { name: "status", kind_name: "Pod", verbs: &["get"] },
        ],
    },
    Resource {
        kind: Kind::ReplicationController,
        group: "",
        version: "v1",
        plural: "replicationcontrollers",
        singular: "replicationcontroller",
        kind_name: "ReplicationController",
        namespaced: true,
        short_names: &["rc"],
        categories: &[],
        verbs: LIST,
        subresources: &[],
    },
    Resource {
        kind: Kind::Secret,
        group: "",
        version: "v1",
        plural: "secrets",
        singular: "secret",
        kind_name: "Secret",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::ServiceAccount,
        group: "",
        version: "v1",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind_name: "ServiceAccount",
        namespaced: true,
        short_names: &["sa"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::Deployment,
        group: "apps",
        version: "v1",
        plural: "deployments",
        singular: "deployment",
        kind_name: "Deployment",
        namespaced: true,
        short_names: &["deploy"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[
            Subresource { name: "scale", kind_name: "Scale", verbs: &["get", "patch", "update"] },
            Subresource { name: "status", kind_name: "Deployment", verbs: &["get"] },
        ],
    },
    Resource {
        kind: Kind::ReplicaSet,
        group: "apps",
        version: "v1",
        plural: "replicasets",
        singular: "replicaset",
        kind_name: "ReplicaSet",
        namespaced: true,
        short_names: &["rs"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[
            Subresource { name: "scale", kind_name: "Scale", verbs: &["get", "patch", "update"] },
            Subresource { name: "status", kind_name: "ReplicaSet", verbs: &["get"] },
        ],
    },
    Resource {
        kind: Kind::DaemonSet,
        group: "apps",
        version: "v1",
        plural: "daemonsets",
        singular: "daemonset",
        kind_name: "DaemonSet",
        namespaced: true,
        short_names: &["ds"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "DaemonSet", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::StatefulSet,
        group: "apps",
        version: "v1",
        plural: "statefulsets",
        singular: "statefulset",
        kind_name: "StatefulSet",
        namespaced: true,
        short_names: &["sts"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[
            Subresource { name: "scale", kind_name: "Scale", verbs: &["get", "patch", "update"] },
            Subresource { name: "status", kind_name: "StatefulSet", verbs: &["get"] },
        ],
    },
    Resource {
        kind: Kind::ControllerRevision,
        group: "apps",
        version: "v1",
        plural: "controllerrevisions",
        singular: "controllerrevision",
        kind_name: "ControllerRevision",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: READ,
        subresources: &[],
    },
    Resource {
        kind: Kind::CronJob,
        group: "batch",
        version: "v1",
        plural: "cronjobs",
        singular: "cronjob",
        kind_name: "CronJob",
        namespaced: true,
        short_names: &["cj"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "CronJob", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::Job,
        group: "batch",
        version: "v1",
        plural: "jobs",
        singular: "job",
        kind_name: "Job",
        namespaced: true,
        short_names: &[],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "Job", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::SelfSubjectReview,
        group: "authentication.k8s.io",
        version: "v1",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        kind_name: "SelfSubjectReview",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: CREATE,
        subresources: &[],
    },
    Resource {
        kind: Kind::SelfSubjectAccessReview,
        group: "authorization.k8s.io",
        version: "v1",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        kind_name: "SelfSubjectAccessReview",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: CREATE,
        subresources: &[],
    },
    Resource {
        kind: Kind::SelfSubjectRulesReview,
        group: "authorization.k8s.io",
        version: "v1",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        kind_name: "SelfSubjectRulesReview",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: CREATE,
        subresources: &[],
    },
    Resource {
        kind: Kind::Lease,
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        singular: "lease",
        kind_name: "Lease",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: READ,
        subresources: &[],
    },
    Resource {
        kind: Kind::NodeMetrics,
        group: "metrics.k8s.io",
        version: "v1beta1",
        plural: "nodes",
        singular: "",
        kind_name: "NodeMetrics",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: &["get", "list"],
        subresources: &[],
    },
    Resource {
        kind: Kind::PodMetrics,
        group: "metrics.k8s.io",
        version: "v1beta1",
        plural: "pods",
        singular: "",
        kind_name: "PodMetrics",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: &["get", "list"],
        subresources: &[],
    },
    Resource {
        kind: Kind::RuntimeClass,
        group: "node.k8s.io",
        version: "v1",
        plural: "runtimeclasses",
        singular: "runtimeclass",
        kind_name: "RuntimeClass",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::PriorityClass,
        group: "scheduling.k8s.io",
        version: "v1",
        plural: "priorityclasses",
        singular: "priorityclass",
        kind_name: "PriorityClass",
        namespaced: false,
        short_names: &["pc"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::EndpointSlice,
        group: "discovery.k8s.io",
        version: "v1",
        plural: "endpointslices",
        singular: "endpointslice",
        kind_name: "EndpointSlice",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::Autoscaler,
        group: "autoscaling",
        version: "v2",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        kind_name: "HorizontalPodAutoscaler",
        namespaced: true,
        short_names: &["hpa"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "HorizontalPodAutoscaler", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::AutoscalerV1,
        group: "autoscaling",
        version: "v1",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        kind_name: "HorizontalPodAutoscaler",
        namespaced: true,
        short_names: &["hpa"],
        categories: &["all"],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "HorizontalPodAutoscaler", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::Ingress,
        group: "networking.k8s.io",
        version: "v1",
        plural: "ingresses",
        singular: "ingress",
        kind_name: "Ingress",
        namespaced: true,
        short_names: &["ing"],
        categories: &[],
        verbs: LIST,
        subresources: &[],
    },
    Resource {
        kind: Kind::NetworkPolicy,
        group: "networking.k8s.io",
        version: "v1",
        plural: "networkpolicies",
        singular: "networkpolicy",
        kind_name: "NetworkPolicy",
        namespaced: true,
        short_names: &["netpol"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::DisruptionBudget,
        group: "policy",
        version: "v1",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        kind_name: "PodDisruptionBudget",
        namespaced: true,
        short_names: &["pdb"],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[Subresource { name: "status", kind_name: "PodDisruptionBudget", verbs: &["get"] }],
    },
    Resource {
        kind: Kind::ClusterRoleBinding,
        group: "rbac.authorization.k8s.io",
        version: "v1",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        kind_name: "ClusterRoleBinding",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::ClusterRole,
        group: "rbac.authorization.k8s.io",
        version: "v1",
        plural: "clusterroles",
        singular: "clusterrole",
        kind_name: "ClusterRole",
        namespaced: false,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::RoleBinding,
        group: "rbac.authorization.k8s.io",
        version: "v1",
        plural: "rolebindings",
        singular: "rolebinding",
        kind_name: "RoleBinding",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::Role,
        group: "rbac.authorization.k8s.io",
        version: "v1",
        plural: "roles",
        singular: "role",
        kind_name: "Role",
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: READ_AND_WRITE,
        subresources: &[],
    },
    Resource {
        kind: Kind::StorageClass,
        group: "storage.k8s.io",
        version: "v1",
        plural: "storageclasses",
        singular: "storageclass",
        kind_name: "StorageClass",
        namespaced: false,
        short_names: &["sc"],
        categories: &[],
        verbs: READ,
        subresources: &[],
    },
];

impl Resource {
    /// Returns `apiVersion`: `v1`, `metrics.k8s.io/v1beta1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the name in the messages of an API server: `pods`, `leases.coordination.k8s.io`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
    }

    pub fn of(kind: Kind) -> &'static Resource {
        static NONE: &Resource = &RESOURCES[0];
        // Each kind has an entry (see the test).
        RESOURCES.iter().find(|r| r.kind == kind).unwrap_or(NONE)
    }

    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }
}

impl Subresource {
    /// Returns the group and version of the subresource's kind, if they differ from those of the resource.
    pub fn own_group(&self) -> Option<(&'static str, &'static str)> {
        match self.kind_name {
            "Eviction" => Some(POLICY),
            "Scale" => Some(AUTOSCALING),
            _ => None,
        }
    }
}

/// Returns the groups in order, each with its versions, except for the core group. The preferred version of a group
/// comes first.
pub fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<_> = RESOURCES.iter().map(|r| (r.group, r.version)).filter(|(g, _)| !g.is_empty()).collect();
    groups.order_by_key(|(group, _)| *group);
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_one_entry_and_groups_are_adjacent() {
        for (at, resource) in RESOURCES.iter().enumerate() {
            assert_eq!(Resource::of(resource.kind), resource);
            assert_eq!(RESOURCES.iter().filter(|r| r.kind == resource.kind).count(), 1);
            assert_eq!(Resource::find(resource.group, resource.version, resource.plural), Some(resource));
            let before = RESOURCES[..at].iter().rposition(|r| r.group == resource.group);
            assert!(before.is_none_or(|b| b + 1 == at), "{}", resource.plural);
        }
        assert_eq!(groups().len(), 15);
        assert_eq!(Resource::of(Kind::Lease).qualified(), "leases.coordination.k8s.io");
        assert_eq!(Resource::of(Kind::NodeMetrics).api_version(), "metrics.k8s.io/v1beta1");
    }
}
