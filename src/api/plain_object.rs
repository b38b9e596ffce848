//! Objects that belong to an application and that run nothing: namespaces, accounts, roles, autoscalers, network
//! policies, disruption budgets. Wherry keeps them, and shows what their manifests say (Y30). Only the budgets have an
//! effect (`disruption_budget`).

use crate::api::duplicates;
use crate::api::k8s::ObjectMeta;
use crate::api::names::FullName;
use crate::api::ordered::CollectOrdered;
use crate::api::problem::Problem;
use crate::api::source::Source;
use serde_json::{Map, Value, json};
use std::fmt;
use std::rc::Rc;

/// The error of a NetworkPolicy, unless the configuration permits it (Y31).
pub const REFUSED_POLICY: &str = "nothing on one machine enforces a NetworkPolicy, so its pods would accept every \
                                  connection; leave the document out, or set networkPolicies: Ignore in the \
                                  WherryConfiguration";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlainKind {
    ClusterRole,
    ClusterRoleBinding,
    HorizontalPodAutoscaler,
    Namespace,
    NetworkPolicy,
    PodDisruptionBudget,
    Role,
    RoleBinding,
    ServiceAccount,
}

/// The form of a field of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainForm {
    Boolean,
    List,
    Object,
}

/// A field of the document besides `apiVersion`, `kind`, `metadata` and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainField {
    pub name: &'static str,
    pub form: PlainForm,
    pub is_required: bool,
}

const fn field(name: &'static str, form: PlainForm) -> PlainField {
    PlainField { name, form, is_required: false }
}

const fn required(name: &'static str, form: PlainForm) -> PlainField {
    PlainField { name, form, is_required: true }
}

impl PlainKind {
    pub const ALL: [PlainKind; 9] = [
        PlainKind::ClusterRole,
        PlainKind::ClusterRoleBinding,
        PlainKind::HorizontalPodAutoscaler,
        PlainKind::Namespace,
        PlainKind::NetworkPolicy,
        PlainKind::PodDisruptionBudget,
        PlainKind::Role,
        PlainKind::RoleBinding,
        PlainKind::ServiceAccount,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            PlainKind::ClusterRole => "ClusterRole",
            PlainKind::ClusterRoleBinding => "ClusterRoleBinding",
            PlainKind::HorizontalPodAutoscaler => "HorizontalPodAutoscaler",
            PlainKind::Namespace => "Namespace",
            PlainKind::NetworkPolicy => "NetworkPolicy",
            PlainKind::PodDisruptionBudget => "PodDisruptionBudget",
            PlainKind::Role => "Role",
            PlainKind::RoleBinding => "RoleBinding",
            PlainKind::ServiceAccount => "ServiceAccount",
        }
    }

    /// Returns the kind with this name.
    pub fn of(name: &str) -> Option<PlainKind> {
        PlainKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the versions of the API in which a manifest can define such an object.
    pub const fn api_versions(self) -> &'static [&'static str] {
        match self {
            PlainKind::Namespace | PlainKind::ServiceAccount => &["v1"],
            PlainKind::HorizontalPodAutoscaler => &["autoscaling/v2", "autoscaling/v1"],
            PlainKind::NetworkPolicy => &["networking.k8s.io/v1"],
            PlainKind::PodDisruptionBudget => &["policy/v1"],
            PlainKind::ClusterRole | PlainKind::ClusterRoleBinding | PlainKind::Role | PlainKind::RoleBinding => {
                &["rbac.authorization.k8s.io/v1"]
            }
        }
    }

    /// Returns false if such an object does not belong to a namespace.
    pub const fn is_namespaced(self) -> bool {
        !matches!(self, PlainKind::ClusterRole | PlainKind::ClusterRoleBinding | PlainKind::Namespace)
    }

    pub const fn fields(self) -> &'static [PlainField] {
        use PlainForm::{Boolean, List, Object};
        match self {
            PlainKind::ClusterRole => const { &[field("aggregationRule", Object), field("rules", List)] },
            PlainKind::ClusterRoleBinding | PlainKind::RoleBinding => {
                const { &[required("roleRef", Object), field("subjects", List)] }
            }
            PlainKind::HorizontalPodAutoscaler => const { &[required("spec", Object)] },
            PlainKind::Namespace | PlainKind::NetworkPolicy | PlainKind::PodDisruptionBudget => {
                const { &[field("spec", Object)] }
            }
            PlainKind::Role => const { &[field("rules", List)] },
            PlainKind::ServiceAccount => {
                const {
                    &[
                        field("automountServiceAccountToken", Boolean),
                        field("imagePullSecrets", List),
                        field("secrets", List),
                    ]
                }
            }
        }
    }

    /// Returns what has no effect, and what can be done instead. None if nothing is missing.
    const fn without_effect(self) -> Option<&'static str> {
        match self {
            PlainKind::Namespace | PlainKind::PodDisruptionBudget => None,
            PlainKind::ServiceAccount => {
                Some("no pod has access to an API on one machine, so pods get no tokens of the account")
            }
            PlainKind::ClusterRole | PlainKind::Role => {
                Some("no pod has access to an API on one machine, so the role has no effect")
            }
            PlainKind::ClusterRoleBinding | PlainKind::RoleBinding => {
                Some("no pod has access to an API on one machine, so the binding has no effect")
            }
            PlainKind::HorizontalPodAutoscaler => {
                Some("the number of replicas stays as written; change it with kubectl scale")
            }
            PlainKind::NetworkPolicy => Some("the policy has no effect: pods accept every connection"),
        }
    }
}

/// Identifies an object. The namespace is empty if its kind has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlainKey {
    pub kind: PlainKind,
    pub name: FullName,
}

impl PlainKey {
    /// Returns the key of an object of this kind. `namespace` is ignored if the kind has none, as by an API server.
    pub fn new(kind: PlainKind, namespace: &str, name: &str) -> PlainKey {
        PlainKey { kind, name: FullName::new(if kind.is_namespaced() { namespace } else { "" }, name) }
    }
}

impl fmt::Display for PlainKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.is_namespaced() {
            true => write!(f, "{} {}", self.kind.name(), self.name),
            false => write!(f, "{} {}", self.kind.name(), self.name.name),
        }
    }
}

/// A valid object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainObject {
    pub key: PlainKey,
    /// The object as JSON text, which needs less memory than a tree of values. Its metadata has only the name, the
    /// namespace, the labels and the annotations.
    text: Box<str>,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

impl PlainObject {
    /// Makes an object of a valid document. `metadata`: its metadata with all defaults.
    pub fn new(kind: PlainKind, metadata: &ObjectMeta, content: &Value, source: Source, digest: String) -> PlainObject {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = PlainKey::new(kind, &text(&metadata.namespace), &text(&metadata.name));
        let mut object: Map<String, Value> = content.as_object().cloned().unwrap_or_default();
        object.retain(|_, value| !value.is_null());
        let mut shown = json!({ "name": &*key.name.name });
        if kind.is_namespaced() {
            shown["namespace"] = (&*key.name.namespace).into();
        }
        for (field, map) in [("labels", &metadata.labels), ("annotations", &metadata.annotations)] {
            if let Some(map) = map.as_ref().filter(|map| !map.is_empty()) {
                shown[field] =
                    map.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect_object().into();
            }
        }
        object.insert("metadata".to_owned(), shown);
        PlainObject { key, text: Value::from(object).to_string().into(), source, digest }
    }

    /// Returns the object as its manifest defines it.
    pub fn content(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Returns what the author of the manifest should know: what has no effect on one machine.
    pub fn warning(&self) -> Option<String> {
        let mut warning = self.key.kind.without_effect()?.to_owned();
        let has_secrets = |content: Value| content["imagePullSecrets"].as_array().is_some_and(|all| !all.is_empty());
        if self.key.kind == PlainKind::ServiceAccount && has_secrets(self.content()) {
            warning.push_str("; its imagePullSecrets have no effect unless the pods name them too");
        }
        Some(warning)
    }
}

/// Returns a problem for each document that has the kind and the name of an earlier one, which is in force (D6).
pub fn duplicates(all: &[Rc<PlainObject>]) -> Vec<Problem> {
    duplicates::find(all.iter().map(|one| (one.key.kind.name(), &one.key.name, &one.source)))
}
