//! Validation of the objects that Wherry only keeps and shows (Y30): their metadata, and the names and forms of their
//! fields. What is in the fields is not checked.

use super::complaints::complain;
use super::{any_metadata, syntax};
use crate::api::k8s::{ObjectMeta, nearest};
use crate::api::plain_object::{PlainForm, PlainKind};
use crate::api::problem::{At, Fault, Faults};
use serde_json::Value;

/// The fields that every object has. The document has no `status`.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the errors of a document. `metadata`: its metadata with all defaults.
pub(crate) fn plain_object(kind: PlainKind, content: &Value, metadata: &ObjectMeta) -> Vec<Fault> {
    let mut faults = Faults::default();
    let root = At::Root;
    let at = root.field("metadata");
    if kind.is_namespaced() {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        complain(syntax::dns_label(namespace), namespace, at.field("namespace"), &mut faults);
    }
    let grammar = match kind {
        PlainKind::Namespace => syntax::dns_label,
        PlainKind::ClusterRole | PlainKind::ClusterRoleBinding | PlainKind::Role | PlainKind::RoleBinding => {
            syntax::path_segment
        }
        PlainKind::HorizontalPodAutoscaler
        | PlainKind::NetworkPolicy
        | PlainKind::PodDisruptionBudget
        | PlainKind::ServiceAccount => syntax::dns_subdomain,
    };
    any_metadata(metadata, &words(kind.name()), grammar, at, &mut faults);
    fields(kind, content, &mut faults);
    faults.0
}

/// Checks the names of the fields, and whether each is an object, a list or a boolean.
fn fields(kind: PlainKind, content: &Value, faults: &mut Faults) {
    let root = At::Root;
    for field in kind.fields() {
        let at = root.field(field.name);
        let (fits, expected) = match (&content[field.name], field.form) {
            (Value::Null, _) => {
                if field.is_required {
                    faults.required(at, "");
                }
                continue;
            }
            (value, PlainForm::Boolean) => (value.is_boolean(), "a boolean"),
            (value, PlainForm::List) => (value.is_array(), "a list"),
            (value, PlainForm::Object) => (value.is_object(), "an object"),
        };
        if !fits {
            faults.add(at, format!("must be {expected}"));
        }
    }
    let names: Vec<&str> = COMMON.into_iter().chain(kind.fields().iter().map(|field| field.name)).collect();
    for name in content.as_object().into_iter().flatten().map(|(name, _)| name) {
        if !names.contains(&name.as_str()) {
            let meant = nearest(name, &names).map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
            faults.add(root.field(name), format!("unknown field{meant}"));
        }
    }
}

/// Returns the name of a kind as words: `service account`.
fn words(kind: &str) -> String {
    let mut words = String::new();
    for letter in kind.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use crate::api::document::context::{Context, NetworkPolicies};
    use crate::api::document::{self, Object};
    use crate::api::plain_object::{PlainKind, PlainObject};
    use serde_json::json;

    fn read(text: &str) -> Result<PlainObject, Vec<String>> {
        let context = Context { network_policies: NetworkPolicies::Ignore, ..Context::new("lab", "now") };
        let (mut objects, problems) = document::read_objects(text.as_bytes(), "/m/a.yaml", context);
        match objects.pop() {
            Some(Object::Plain(object)) => Ok(*object),
            Some(other) => panic!("{other:?}"),
            None => Err(problems.iter().map(ToString::to_string).collect()),
        }
    }

    fn error(text: &str) -> String {
        read(text).unwrap_err().join("\n")
    }

    fn of(version: &str, kind: &str, rest: &str) -> String {
        format!("{{apiVersion: {version}, kind: {kind}, metadata: {{name: web}}{rest}}}")
    }

    #[test]
    fn y30_each_kind_is_accepted_in_each_of_its_versions() {
        for kind in PlainKind::ALL {
            for version in kind.api_versions() {
                let rest = match kind {
                    PlainKind::ClusterRoleBinding | PlainKind::RoleBinding => ", roleRef: {kind: Role, name: r}",
                    PlainKind::HorizontalPodAutoscaler => ", spec: {maxReplicas: 3}",
                    _ => "",
                };
                let object = read(&of(version, kind.name(), rest)).unwrap_or_else(|why| panic!("{why:?}"));
                assert_eq!((object.key.kind, &*object.key.name.name), (kind, "web"));
                assert_eq!(object.content()["apiVersion"], *version);
                let is_complete = matches!(kind, PlainKind::Namespace | PlainKind::PodDisruptionBudget);
                assert_eq!(object.warning().is_none(), is_complete, "{kind:?}");
            }
        }
    }

    #[test]
    fn y30_a_version_that_the_kind_does_not_have_is_an_error() {
        assert_eq!(
            error(&of("autoscaling/v3", "HorizontalPodAutoscaler", ", spec: {}")),
            "/m/a.yaml:1: apiVersion: Unsupported value: \"autoscaling/v3\": supported values: \"autoscaling/v2\", \
             \"autoscaling/v1\""
        );
    }

    #[test]
    fn y30_the_fields_of_a_kind_are_checked_but_not_what_is_in_them() {
        assert_eq!(
            error(&of("rbac.authorization.k8s.io/v1", "Role", ", rulez: []")),
            "/m/a.yaml:1: rulez: unknown field; did you mean rules?"
        );
        assert_eq!(error(&of("v1", "ServiceAccount", ", secrets: {}")), "/m/a.yaml:1: secrets: must be a list");
        let binding = of("rbac.authorization.k8s.io/v1", "RoleBinding", "");
        assert_eq!(error(&binding), "/m/a.yaml:1: roleRef: Required value");
        let inside = of("rbac.authorization.k8s.io/v1", "Role", ", rules: [{anything: 1}]");
        assert_eq!(read(&inside).unwrap().content()["rules"], json!([{ "anything": 1 }]));
    }

    #[test]
    fn y30_the_metadata_is_checked_as_for_other_kinds() {
        let named = |kind: &str, metadata: &str| {
            let version = PlainKind::of(kind).unwrap().api_versions()[0];
            read(&format!("{{apiVersion: {version}, kind: {kind}, metadata: {metadata}}}"))
        };
        assert_eq!(&*named("Role", "{name: 'system:node:web'}").unwrap().key.name.name, "system:node:web");
        for (kind, metadata, expected) in [
            ("Role", "{name: a/b}", "may not contain '/'"),
            ("Role", "{name: '..'}", "may not be '..'"),
            ("Role", "{name: a, namespace: A}", "metadata.namespace: Invalid value"),
            ("Namespace", "{name: a.b}", "a lowercase RFC 1123 label"),
            ("ServiceAccount", "{name: 'a:b'}", "a lowercase RFC 1123 subdomain"),
            ("ServiceAccount", "{}", "metadata.name: Required value: name is needed for the service account"),
            ("ServiceAccount", "{name: a, label: {}}", "metadata.label: unknown field; did you mean labels?"),
            ("ServiceAccount", "{name: a, labels: {x: 1}}", "must be a string"),
            ("ServiceAccount", "1", "metadata: must be an object"),
        ] {
            let found = named(kind, metadata).unwrap_err().join("\n");
            assert!(found.contains(expected), "{kind} {metadata}: {found}");
        }
    }

    #[test]
    fn y30_an_object_keeps_its_metadata_without_the_fields_of_a_server() {
        let text = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: web, creationTimestamp: null, uid: u, \
                    labels: {a: b}}, secrets: null, automountServiceAccountToken: false, status: {}}";
        let expected = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
            "metadata": { "name": "web", "namespace": "default", "labels": { "a": "b" } },
        });
        assert_eq!(read(text).unwrap().content(), expected);
    }

    #[test]
    fn y30_a_namespace_of_a_kind_without_namespaces_is_ignored() {
        let text =
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r, namespace: shop}}";
        let object = read(text).unwrap();
        assert_eq!((&*object.key.name.namespace, object.key.to_string()), ("", "ClusterRole r".to_owned()));
        assert_eq!(object.content()["metadata"], json!({ "name": "r" }));
    }

    #[test]
    fn y30_a_service_account_says_what_its_secrets_for_images_do() {
        let with = |rest: &str| read(&of("v1", "ServiceAccount", rest)).unwrap().warning().unwrap();
        assert!(with(", imagePullSecrets: [{name: login}]").ends_with("unless the pods name them too"));
        assert!(with(", imagePullSecrets: []").ends_with("tokens of the account"));
    }
}
