//! The label selectors of objects (meta/v1 LabelSelector).

use crate::api::k8s::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;

/// The operators of `matchExpressions`.
pub const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// Reports whether the selector selects nothing in particular. Such a selector would select everything.
pub fn is_empty(selector: &LabelSelector) -> bool {
    let no_labels = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty);
    no_labels && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Reports whether all requirements hold for these labels. An unknown operator never holds.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let same = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    selector.match_labels.iter().flatten().all(same)
        && selector.match_expressions.iter().flatten().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let is_listed = |value: &String| requirement.values.iter().flatten().any(|listed| listed == value);
    match requirement.operator.as_str() {
        "In" => value.is_some_and(is_listed),
        "NotIn" => !value.is_some_and(is_listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::from_value;
    use serde_json::json;

    #[test]
    fn each_operator_holds_as_in_kubernetes() {
        let labels: BTreeMap<String, String> =
            [("app", "web"), ("tier", "front")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for (selector, expected) in [
            (json!({"matchLabels": {"app": "web"}}), true),
            (json!({"matchLabels": {"app": "web", "tier": "back"}}), false),
            (json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["back", "front"]}]}), true),
            (json!({"matchExpressions": [{"key": "none", "operator": "In", "values": ["a"]}]}), false),
            (json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "app", "operator": "Like"}]}), false),
        ] {
            let typed: LabelSelector = from_value(&selector).expect("a selector");
            assert_eq!(matches(&typed, &labels), expected, "{selector}");
            assert!(!is_empty(&typed));
        }
        assert!(is_empty(&LabelSelector::default()));
    }
}
