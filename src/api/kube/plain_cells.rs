//! The cells of tables for objects that are only kept and shown, as an API server makes them.

use super::plain_objects;
use super::pod_row::{list, text};
use super::scale;
use serde_json::Value;

/// The maximum number of metrics in a cell.
const MAX_METRICS: usize = 2;

/// Returns the name and the time of the creation of a role. A role has no age.
pub(super) fn role(object: &Value, name: Value) -> Vec<Value> {
    vec![name, text(object, "/metadata/creationTimestamp").into()]
}

/// Returns the role, the age, the users, the groups and the accounts of a binding.
pub(super) fn binding(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| -> Value {
        let subjects = list(object, "/subjects").iter().filter(|subject| subject["kind"] == kind);
        let shown = |subject: &Value| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        };
        subjects.map(shown).collect::<Vec<_>>().join(", ").into()
    };
    vec![name, role.into(), age, subjects("User"), subjects("Group"), subjects("ServiceAccount")]
}

/// Returns the number of Secrets and the age of an account.
pub(super) fn service_account(object: &Value, name: Value, age: Value) -> Vec<Value> {
    vec![name, list(object, "/secrets").len().into(), age]
}

/// Returns the selector and the age of a network policy.
pub(super) fn network_policy(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let selector = scale::selector(&object["spec"]["podSelector"]);
    let selector = if selector.is_empty() { "<none>".to_owned() } else { selector };
    vec![name, selector.into(), age]
}

/// Returns the limits, the allowed disruptions and the age of a budget.
pub(super) fn disruption_budget(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let limit = |field: &str| match &object["spec"][field] {
        Value::String(percentage) => percentage.clone().into(),
        Value::Number(number) => number.to_string().into(),
        _ => Value::from("N/A"),
    };
    let allowed = object.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).unwrap_or_default();
    vec![name, limit("minAvailable"), limit("maxUnavailable"), allowed.into(), age]
}

/// Returns the target, the metrics, the limits, the replicas and the age of an autoscaler.
pub(super) fn autoscaler(object: &Value, name: Value, age: Value) -> Vec<Value> {
    let object = plain_objects::in_version(object, "v2");
    let target =
        format!("{}/{}", text(&object, "/spec/scaleTargetRef/kind"), text(&object, "/spec/scaleTargetRef/name"));
    let count = |path: &str| object.pointer(path).and_then(Value::as_i64);
    let least = count("/spec/minReplicas").map_or("<unset>".to_owned(), |least| least.to_string());
    vec![
        name,
        target.into(),
        metrics(list(&object, "/spec/metrics")).into(),
        least.into(),
        count("/spec/maxReplicas").unwrap_or_default().into(),
        count("/status/currentReplicas").unwrap_or_default().into(),
        age,
    ]
}

/// Returns the metrics of an autoscaler. Their present values are unknown.
fn metrics(all: &[Value]) -> String {
    let shown: Vec<String> = all.iter().take(MAX_METRICS).map(metric).collect();
    match all.len().saturating_sub(MAX_METRICS) {
        _ if all.is_empty() => "<none>".to_owned(),
        0 => shown.join(", "),
        more => format!("{} + {more} more...", shown.join(", ")),
    }
}

fn metric(metric: &Value) -> String {
    let amount = |value: &Value| match value {
        Value::String(amount) => amount.clone(),
        Value::Number(number) => number.to_string(),
        _ => "<nil>".to_owned(),
    };
    let kind = metric["type"].as_str().unwrap_or_default();
    let source = match kind {
        "Resource" => &metric["resource"],
        "ContainerResource" => &metric["containerResource"],
        "Pods" => &metric["pods"],
        "Object" => &metric["object"],
        "External" => &metric["external"],
        _ => return "<unknown type>".to_owned(),
    };
    let target = &source["target"];
    let average = Some(&target["averageValue"]).filter(|value| !value.is_null()).map(amount);
    match (kind, average) {
        ("Resource" | "ContainerResource", average) => {
            let usage =
                || target["averageUtilization"].as_i64().map_or("<auto>".to_owned(), |usage| format!("{usage}%"));
            format!("{}: <unknown>/{}", text(source, "/name"), average.unwrap_or_else(usage))
        }
        ("Object" | "External", Some(average)) => format!("<unknown>/{average} (avg)"),
        (_, Some(average)) => format!("<unknown>/{average}"),
        (_, None) => format!("<unknown>/{}", amount(&target["value"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(cells: Vec<Value>) -> String {
        let text = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned);
        cells.iter().map(text).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn y30_the_cells_are_those_of_an_api_server() {
        let (name, age) = (|| Value::from("web"), || Value::from("5s"));
        let created = json!({ "metadata": { "creationTimestamp": "2026-11-20T15:00:00Z" } });
        assert_eq!(shown(role(&created, name())), "web | 2026-11-20T15:00:00Z");
        let object = json!({
            "roleRef": { "kind": "ClusterRole", "name": "admin" },
            "subjects": [{ "kind": "User", "name": "ann" }, { "kind": "User", "name": "bob" },
                { "kind": "ServiceAccount", "name": "web", "namespace": "shop" }],
        });
        assert_eq!(shown(binding(&object, name(), age())), "web | ClusterRole/admin | 5s | ann, bob |  | shop/web");
        assert_eq!(shown(service_account(&json!({ "secrets": [{}, {}] }), name(), age())), "web | 2 | 5s");
        let policy = |selector: Value| json!({ "spec": { "podSelector": selector } });
        let selected = policy(json!({ "matchLabels": { "app": "web" } }));
        assert_eq!(shown(network_policy(&selected, name(), age())), "web | app=web | 5s");
        assert_eq!(shown(network_policy(&policy(json!({})), name(), age())), "web | <none> | 5s");
        let budget = json!({ "spec": { "minAvailable": "50%" }, "status": { "disruptionsAllowed": 1 } });
        assert_eq!(shown(disruption_budget(&budget, name(), age())), "web | 50% | N/A | 1 | 5s");
    }

    #[test]
    fn y30_an_autoscaler_shows_its_metrics_as_an_api_server_does() {
        let cells = |spec: Value| {
            let object = json!({
                "kind": "HorizontalPodAutoscaler", "spec": spec, "status": { "currentReplicas": 2 },
            });
            shown(autoscaler(&object, "web".into(), "5s".into()))
        };
        let target = json!({ "kind": "Deployment", "name": "web" });
        let old = json!({
            "scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4, "targetCPUUtilizationPercentage": 80,
        });
        assert_eq!(cells(old), "web | Deployment/web | cpu: <unknown>/80% | 1 | 4 | 2 | 5s");
        assert_eq!(cells(json!({ "scaleTargetRef": target })), "web | Deployment/web | <none> | <unset> | 0 | 2 | 5s");
        let of = |kind: &str, field: &str, target: Value| json!({ "type": kind, (field): { "target": target } });
        let all = [
            of("Pods", "pods", json!({ "averageValue": "1k" })),
            of("External", "external", json!({ "averageValue": 30 })),
            of("Object", "object", json!({ "value": "10" })),
            of("Other", "other", json!({})),
        ];
        let shown: Vec<String> = all.iter().map(metric).collect();
        assert_eq!(shown, ["<unknown>/1k", "<unknown>/30 (avg)", "<unknown>/10", "<unknown type>"]);
        assert_eq!(metrics(&all), "<unknown>/1k, <unknown>/30 (avg) + 2 more...");
    }
}
