//! Wherry's cordon on the node's object at an API server (C16). An annotation distinguishes it from a cordon by the
//! administrator of the cluster.

use crate::api::names::annotation::CORDONED;
use serde_json::{Value, json};

/// Returns true if the node's object shows Wherry's cordon.
pub fn is_shown(node: &Value) -> bool {
    let annotations = node.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(CORDONED)).is_some_and(|value| value == "true")
}

/// Returns a merge patch of the node's object that shows the cordon, or removes it.
pub fn patch(on: bool) -> String {
    let (annotation, unschedulable) = if on { (json!("true"), json!(true)) } else { (Value::Null, Value::Null) };
    json!({ "metadata": { "annotations": { CORDONED: annotation } }, "spec": { "unschedulable": unschedulable } })
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c16_the_cordon_is_an_annotation_and_unschedulable() {
        for (on, expected) in [
            (true, json!({ "metadata": { "annotations": { CORDONED: "true" } }, "spec": { "unschedulable": true } })),
            (false, json!({ "metadata": { "annotations": { CORDONED: null } }, "spec": { "unschedulable": null } })),
        ] {
            let patch: Value = serde_json::from_str(&patch(on)).unwrap();
            assert_eq!(patch, expected);
            assert_eq!(is_shown(&patch), on);
        }
        assert!(!is_shown(&json!({ "spec": { "unschedulable": true } })), "a cordon of the administrator");
    }
}
