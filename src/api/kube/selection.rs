//! Which objects a list or a watch contains: resource, namespace, labels and fields.

use super::path::ObjectPath;
use super::pod_row::text;
use super::query::Query;
use super::resources::{Kind, Resource};
use super::status::Failure;
use crate::api::selector::Selector;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    pub resource: &'static Resource,
    pub namespace: Option<String>,
    /// The name in the path.
    pub name: Option<String>,
    labels: Option<Selector>,
    fields: Vec<FieldCondition>,
}

/// `PATH=VALUE` or `PATH!=VALUE`
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldCondition {
    path: &'static str,
    value: String,
    equal: bool,
}

/// Returns the fields of a resource by which an API server can select, with their paths as JSON pointers.
fn fields_of(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Pod => &[
            ("metadata.name", "/metadata/name"),
            ("metadata.namespace", "/metadata/namespace"),
            ("spec.nodeName", "/spec/nodeName"),
            ("spec.restartPolicy", "/spec/restartPolicy"),
            ("spec.schedulerName", "/spec/schedulerName"),
            ("spec.serviceAccountName", "/spec/serviceAccountName"),
            ("spec.hostNetwork", "/spec/hostNetwork"),
            ("status.phase", "/status/phase"),
            ("status.podIP", "/status/podIP"),
            ("status.nominatedNodeName", "/status/nominatedNodeName"),
        ],
        Kind::Event => &[
            ("metadata.name", "/metadata/name"),
            ("metadata.namespace", "/metadata/namespace"),
            ("involvedObject.kind", "/involvedObject/kind"),
            ("involvedObject.namespace", "/involvedObject/namespace"),
            ("involvedObject.name", "/involvedObject/name"),
            ("involvedObject.uid", "/involvedObject/uid"),
            ("involvedObject.apiVersion", "/involvedObject/apiVersion"),
            ("involvedObject.resourceVersion", "/involvedObject/resourceVersion"),
            ("involvedObject.fieldPath", "/involvedObject/fieldPath"),
            ("reason", "/reason"),
            ("reportingComponent", "/reportingComponent"),
            ("source", "/source/component"),
            ("type", "/type"),
        ],
        Kind::Node => &[("metadata.name", "/metadata/name"), ("spec.unschedulable", "/spec/unschedulable")],
        Kind::Namespace => &[("metadata.name", "/metadata/name"), ("status.phase", "/status/phase")],
        Kind::Secret => {
            &[("metadata.name", "/metadata/name"), ("metadata.namespace", "/metadata/namespace"), ("type", "/type")]
        }
        _ => &[("metadata.name", "/metadata/name"), ("metadata.namespace", "/metadata/namespace")],
    }
}

impl Selection {
    /// # Errors
    /// A selector is invalid, or the resource has no such field.
    pub fn new(path: &ObjectPath, query: &Query) -> Result<Selection, Failure> {
        let labels = query.get("labelSelector").map(Selector::parse).transpose().map_err(Failure::bad_request)?;
        let known = fields_of(path.resource.kind);
        let field = |part: &str| -> Result<FieldCondition, Failure> {
            let (name, value, equal) = match (part.split_once("!="), part.split_once("=="), part.split_once('=')) {
                (Some((name, value)), ..) => (name, value, false),
                (None, Some((name, value)), _) | (None, None, Some((name, value))) => (name, value, true),
                (None, None, None) => {
                    let why = format!("invalid field selector {part:?}: it has neither '=' nor '!='");
                    return Err(Failure::bad_request(why));
                }
            };
            match known.iter().find(|(n, _)| *n == name.trim()) {
                Some((_, path)) => Ok(FieldCondition { path, value: value.trim().to_owned(), equal }),
                None => Err(Failure::bad_request(format!("field label not supported: {}", name.trim()))),
            }
        };
        let selector = query.get("fieldSelector").unwrap_or_default();
        let parts = selector.split(',').map(str::trim).filter(|part| !part.is_empty());
        let fields = parts.map(field).collect::<Result<_, _>>()?;
        Ok(Selection {
            resource: path.resource,
            namespace: path.namespace.clone(),
            name: path.name.clone(),
            labels,
            fields,
        })
    }

    /// Reports whether the selection can contain an object of this name. Checks only properties that never change.
    pub fn may_contain(&self, namespace: &str, name: &str) -> bool {
        let fixed = |f: &FieldCondition| match f.path {
            "/metadata/name" => (f.value == name) == f.equal,
            "/metadata/namespace" => (f.value == namespace) == f.equal,
            _ => true,
        };
        self.namespace.as_deref().is_none_or(|n| n == namespace)
            && self.name.as_deref().is_none_or(|n| n == name)
            && self.fields.iter().all(fixed)
    }

    pub fn contains(&self, object: &Value) -> bool {
        let field = |f: &FieldCondition| {
            let value = match object.pointer(f.path) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Bool(true)) => "true".to_owned(),
                // An API server treats an unset boolean as false.
                _ if matches!(f.path, "/spec/unschedulable" | "/spec/hostNetwork") => "false".to_owned(),
                _ => String::new(),
            };
            (value == f.value) == f.equal
        };
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        self.may_contain(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
            && self.labels.as_ref().is_none_or(|labels| labels.matches(label))
            && self.fields.iter().all(field)
    }

    /// Reports whether a change can move an object into or out of the selection.
    pub fn is_mutable(&self) -> bool {
        self.labels.is_some() || self.fields.iter().any(|f| !f.path.starts_with("/metadata/"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::{Target, parse};
    use super::*;
    use serde_json::json;

    fn selection(path: &str, query: &str) -> Result<Selection, Failure> {
        let Ok(Target::Object(path)) = parse(path) else { panic!("{path}") };
        Selection::new(&path, &Query::parse(query))
    }

    #[test]
    fn labels_and_fields_select() {
        let pod = json!({
            "metadata": { "name": "web", "namespace": "shop", "labels": { "app": "web" } },
            "spec": { "nodeName": "n" },
            "status": { "phase": "Running" },
        });
        let all = "/api/v1/pods";
        for (path, query, expected) in [
            (all, "", true),
            ("/api/v1/namespaces/shop/pods", "", true),
            ("/api/v1/namespaces/other/pods", "", false),
            (all, "labelSelector=app%3Dweb", true),
            (all, "labelSelector=app%20in%20(a,web),!none", true),
            (all, "labelSelector=app!=web", false),
            (all, "fieldSelector=metadata.name%3Dweb", true),
            (all, "fieldSelector=metadata.name!=web", false),
            (all, "fieldSelector=spec.nodeName%3Dn,status.phase!%3DSucceeded,status.phase!%3DFailed", true),
            (all, "fieldSelector=status.phase==Pending", false),
            (all, "fieldSelector=spec.hostNetwork=false", true),
            (all, "fieldSelector=", true),
        ] {
            assert_eq!(selection(path, query).unwrap().contains(&pod), expected, "{path} {query}");
        }
        assert!(!selection(all, "fieldSelector=metadata.name%3Dweb").unwrap().is_mutable());
        assert!(selection(all, "fieldSelector=status.phase%3DRunning").unwrap().is_mutable());
    }

    #[test]
    fn invalid_selectors_are_errors() {
        for query in ["labelSelector=%3D", "fieldSelector=spec.nothing%3D1", "fieldSelector=web", "labelSelector=a%20b"]
        {
            let failure = selection("/api/v1/pods", query).unwrap_err();
            assert_eq!(failure.code, 400, "{query}");
        }
    }
}
