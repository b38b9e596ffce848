//! Taints and tolerations, with the rules of the scheduler and the taint eviction controller.

use crate::api::k8s;
use serde::Serialize;
use std::fmt;

const NO_EXECUTE: &str = "NoExecute";

/// A taint with the effect NoExecute: pods without a toleration neither start on the node nor stay there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NoExecute {
    pub key: String,
    /// Empty: the taint has no value.
    pub value: String,
}

impl NoExecute {
    /// Returns a taint without a value.
    pub fn of_key(key: &str) -> NoExecute {
        NoExecute { key: key.to_owned(), value: String::new() }
    }

    /// Converts a taint. None if it has another effect.
    pub fn of(taint: k8s::Taint) -> Option<NoExecute> {
        let k8s::Taint { effect, key, value, .. } = taint;
        (effect == NO_EXECUTE).then(|| NoExecute { key, value: value.unwrap_or_default() })
    }

    /// Reports whether the toleration matches the taint. Without a key, a toleration matches every key; without an
    /// effect, every effect. The default operator is `Equal`.
    pub fn is_tolerated_by(&self, toleration: &k8s::Toleration) -> bool {
        let k8s::Toleration { key, operator, value, effect, .. } = toleration;
        let [key, operator, value, effect] =
            [key, operator, value, effect].map(|text| text.as_deref().unwrap_or_default());
        let value = match operator {
            "Exists" => true,
            "" | "Equal" => value == self.value,
            _ => false,
        };
        (effect.is_empty() || effect == NO_EXECUTE) && (key.is_empty() || key == self.key) && value
    }

    pub fn is_tolerated(&self, tolerations: Option<&Vec<k8s::Toleration>>) -> bool {
        tolerations.into_iter().flatten().any(|toleration| self.is_tolerated_by(toleration))
    }
}

/// Formats as `dedicated=quay:NoExecute` or `dedicated:NoExecute`, like kubectl.
impl fmt::Display for NoExecute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}:{NO_EXECUTE}", self.key),
            value => write!(f, "{}={value}:{NO_EXECUTE}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn taint(value: Value) -> Option<NoExecute> {
        NoExecute::of(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn only_the_effect_no_execute_concerns_a_node() {
        let found = taint(json!({ "key": "dedicated", "value": "quay", "effect": "NoExecute" })).unwrap();
        assert_eq!(found.to_string(), "dedicated=quay:NoExecute");
        assert_eq!(NoExecute::of_key("gone").to_string(), "gone:NoExecute");
        assert_eq!(taint(json!({ "key": "dedicated", "effect": "NoSchedule" })), None);
    }

    #[test]
    fn a_toleration_matches_key_value_and_effect() {
        let of = NoExecute { key: "dedicated".into(), value: "quay".into() };
        for (toleration, tolerates) in [
            (json!({ "operator": "Exists" }), true),
            (json!({ "key": "dedicated", "operator": "Exists" }), true),
            (json!({ "key": "other", "operator": "Exists" }), false),
            (json!({ "key": "dedicated", "value": "quay" }), true),
            (json!({ "key": "dedicated", "operator": "Equal", "value": "quay", "tolerationSeconds": 9 }), true),
            (json!({ "key": "dedicated", "operator": "Equal", "value": "dock" }), false),
            (json!({ "key": "dedicated" }), false),
            (json!({ "key": "dedicated", "operator": "Exists", "effect": "NoExecute" }), true),
            (json!({ "key": "dedicated", "operator": "Exists", "effect": "NoSchedule" }), false),
            // An operator of a later version.
            (json!({ "key": "dedicated", "operator": "Gt", "value": "1" }), false),
        ] {
            let list = vec![serde_json::from_value(toleration.clone()).unwrap()];
            assert_eq!(of.is_tolerated(Some(&list)), tolerates, "{toleration}");
        }
        assert!(!of.is_tolerated(None));
    }
}
