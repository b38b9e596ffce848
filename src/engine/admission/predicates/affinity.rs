//! Matches the node's labels against `nodeSelector` and the terms of the required node affinity. Both functions
//! return the mismatches as text for users.

use crate::api::k8s::{NodeSelectorRequirement, NodeSelectorTerm};
use crate::api::node_facts::NodeFacts;

/// The only field that `matchFields` supports.
const NAME: &str = "metadata.name";

/// Returns the entries of a `nodeSelector` that do not match the node.
pub(super) fn of_selector<'a>(
    selector: impl IntoIterator<Item = (&'a String, &'a String)>,
    node: &NodeFacts,
) -> Vec<String> {
    selector
        .into_iter()
        .filter(|(key, wanted)| node.labels.get(*key) != Some(wanted))
        .map(|(key, wanted)| format!("nodeSelector {key}={wanted}: {}", has(key, label(node, key))))
        .collect()
}

/// Returns None if one of the terms matches, otherwise the mismatch of each term. An empty list of terms matches
/// nothing.
pub(super) fn of_terms(terms: &[NodeSelectorTerm], node: &NodeFacts) -> Option<String> {
    let mut mismatches = Vec::new();
    for (i, term) in terms.iter().enumerate() {
        match mismatch(term, node) {
            Some(why) => mismatches.push(format!("nodeSelectorTerms[{i}] {why}")),
            None => return None,
        }
    }
    match mismatches.is_empty() {
        true => Some("nodeSelectorTerms is empty, which matches no node".to_owned()),
        false => Some(mismatches.join(", ")),
    }
}

/// Returns the first requirement of the term that does not match.
fn mismatch(term: &NodeSelectorTerm, node: &NodeFacts) -> Option<String> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return Some("is empty, which matches no node".to_owned());
    }
    let of_label = |r: &NodeSelectorRequirement| unmet(r, label(node, &r.key), holds);
    let of_field =
        |r: &NodeSelectorRequirement| unmet(r, (r.key == NAME).then_some(node.name.as_str()), holds_of_field);
    expressions.iter().find_map(of_label).or_else(|| fields.iter().find_map(of_field))
}

fn label<'a>(node: &'a NodeFacts, key: &str) -> Option<&'a str> {
    node.labels.get(key).map(String::as_str)
}

fn has(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("the node has {key}={value}"),
        None => format!("the node has no {key}"),
    }
}

/// Returns the requirement as text if it does not match.
fn unmet(
    requirement: &NodeSelectorRequirement,
    value: Option<&str>,
    holds: fn(&NodeSelectorRequirement, Option<&str>) -> Option<bool>,
) -> Option<String> {
    let NodeSelectorRequirement { key, operator, values } = requirement;
    let values = values.as_ref().map(|values| format!(" [{}]", values.join(" "))).unwrap_or_default();
    match holds(requirement, value) {
        Some(true) => None,
        Some(false) => Some(format!("{key} {operator}{values}: {}", has(key, value))),
        None => Some(format!("{key} {operator}{values}: such a requirement matches no node")),
    }
}

/// Reports whether the requirement matches a label with this value. None if the operator is unknown or its values are
/// invalid; the term then does not match, as in the scheduler.
fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> Option<bool> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_one_of_them = || values.iter().any(|one| Some(one.as_str()) == value);
    // `Gt` and `Lt` need integers on both sides. A label that is not an integer matches neither.
    let compared = || match values {
        [limit] => {
            limit.parse::<i64>().ok().map(|limit| value.and_then(|v| v.parse().ok()).map(|v: i64| v.cmp(&limit)))
        }
        _ => None,
    };
    match requirement.operator.as_str() {
        "In" => (!values.is_empty()).then(is_one_of_them),
        "NotIn" => (!values.is_empty()).then(|| !is_one_of_them()),
        "Exists" => values.is_empty().then_some(value.is_some()),
        "DoesNotExist" => values.is_empty().then_some(value.is_none()),
        "Gt" => compared().map(|order| order.is_some_and(|order| order.is_gt())),
        "Lt" => compared().map(|order| order.is_some_and(|order| order.is_lt())),
        _ => None,
    }
}

/// Like `holds`, but for a field: only the node's name is supported, and only `In` or `NotIn` with one value.
fn holds_of_field(requirement: &NodeSelectorRequirement, value: Option<&str>) -> Option<bool> {
    let one_value = requirement.values.as_ref().is_some_and(|values| values.len() == 1);
    let possible = one_value && matches!(requirement.operator.as_str(), "In" | "NotIn") && value.is_some();
    if possible { holds(requirement, value) } else { None }
}
