//! The reviews that a client creates to learn what it may do: `kubectl auth can-i`, `kubectl auth whoami`.

use super::access::Role;
use super::pod_row::text;
use super::resources::{Kind, RESOURCES, Resource};
use serde_json::{Value, json};

/// Completes the review of this kind. `request`: the client's object.
pub fn answer(kind: Kind, mut request: Value, user: &str, role: Role) -> Value {
    let resource = Resource::of(kind);
    if !request.is_object() {
        request = json!({});
    }
    request["kind"] = resource.kind_name.into();
    request["apiVersion"] = resource.api_version().into();
    if request.get("metadata").is_none() {
        request["metadata"] = json!({ "creationTimestamp": null });
    }
    request["status"] = match kind {
        Kind::SelfSubjectAccessReview => {
            let allowed = is_allowed(&request["spec"], role);
            let mut status = json!({ "allowed": allowed });
            if !allowed {
                status["reason"] = "the certificate has the role view".into();
            }
            status
        }
        Kind::SelfSubjectRulesReview => rules(role),
        _ => json!({ "userInfo": { "username": user, "groups": [role.group(), "system:authenticated"] } }),
    };
    request
}

fn is_allowed(spec: &Value, role: Role) -> bool {
    if let Some(path) = spec.get("nonResourceAttributes") {
        return role == Role::Edit || matches!(text(path, "/verb"), "get" | "head");
    }
    let attributes = &spec["resourceAttributes"];
    let [verb, group, plural, sub] =
        ["verb", "group", "resource", "subresource"].map(|f| text(attributes, &format!("/{f}")));
    // kubectl splits `pods/log` itself; other clients may not.
    let (plural, sub) = match plural.split_once('/') {
        Some((plural, sub)) => (plural, sub),
        None => (plural, sub),
    };
    let found = RESOURCES.iter().find(|r| r.plural == plural && (r.group == group || group == "*"));
    role.may(verb, found.map(|r| r.kind), (!sub.is_empty()).then_some(sub))
}

fn rules(role: Role) -> Value {
    let (resources, paths) = match role {
        Role::Edit => (
            vec![json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] })],
            json!([{ "verbs": ["*"], "nonResourceURLs": ["*"] }]),
        ),
        Role::View => {
            let mut all: Vec<Value> = Vec::new();
            for resource in RESOURCES {
                let verbs: Vec<&str> =
                    resource.verbs.iter().copied().filter(|verb| role.may(verb, Some(resource.kind), None)).collect();
                if !verbs.is_empty() {
                    all.push(json!({ "verbs": verbs, "apiGroups": [resource.group], "resources": [resource.plural] }));
                }
                for sub in resource.subresources.iter().filter(|s| role.may("get", Some(resource.kind), Some(s.name))) {
                    let name = format!("{}/{}", resource.plural, sub.name);
                    all.push(json!({ "verbs": ["get"], "apiGroups": [resource.group], "resources": [name] }));
                }
            }
            (all, json!([{ "verbs": ["get"], "nonResourceURLs": ["*"] }]))
        }
    };
    json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(role: Role, verb: &str, resource: &str, sub: &str) -> bool {
        let spec = json!({ "resourceAttributes": { "verb": verb, "resource": resource, "subresource": sub } });
        let review = answer(Kind::SelfSubjectAccessReview, json!({ "spec": spec }), "ann", role);
        assert_eq!(review["apiVersion"], "authorization.k8s.io/v1");
        review["status"]["allowed"] == true
    }

    #[test]
    fn a_review_says_what_the_role_permits() {
        assert!(allowed(Role::View, "list", "pods", "") && allowed(Role::View, "get", "pods", "log"));
        assert!(!allowed(Role::View, "create", "pods", "exec") && !allowed(Role::View, "create", "pods/exec", ""));
        assert!(!allowed(Role::View, "delete", "pods", "") && !allowed(Role::View, "get", "secrets", ""));
        assert!(!allowed(Role::View, "*", "*", "") && allowed(Role::Edit, "*", "*", ""));
        let who = answer(Kind::SelfSubjectReview, Value::Null, "ann", Role::View);
        assert_eq!(who["status"]["userInfo"]["groups"][0], "wherry:view");
        let rules = answer(Kind::SelfSubjectRulesReview, json!({}), "ann", Role::View);
        let rules = rules["status"]["resourceRules"].to_string();
        assert!(rules.contains("pods/log") && !rules.contains("secrets") && !rules.contains("pods/exec"), "{rules}");
    }
}
