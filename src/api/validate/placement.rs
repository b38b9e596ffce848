//! Placement rules: node selector, required node affinity, node name and operating system. This module rejects only
//! rules that are invalid on every node. Admission checks whether the rules match this node (A2).

use crate::api::k8s::{NodeSelectorRequirement, PodSpec};
use crate::api::problem::{At, Faults};
use crate::api::validate::complaints::complain;
use crate::api::validate::syntax;

pub(super) fn placement(spec: &PodSpec, at: At<'_>, faults: &mut Faults) {
    if let Some(name) = spec.node_name.as_deref() {
        complain(syntax::dns_subdomain(name), name, at.field("nodeName"), faults);
    }
    let at_selector = at.field("nodeSelector");
    for (key, value) in spec.node_selector.iter().flatten() {
        let at = at_selector.key(key);
        complain(syntax::qualified_name(key), key, at, faults);
        complain(syntax::label_value(value), value, at, faults);
    }
    if let Some(os) = &spec.os {
        let at = at.field("os");
        match os.name.as_str() {
            "" => faults.required(at.field("name"), ""),
            "linux" | "windows" => {}
            other => faults.unsupported_value(at.field("name"), other, &["linux", "windows"]),
        }
    }
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else { return };
    let at = at.field("affinity");
    let at = at.field("nodeAffinity");
    let at = at.field("requiredDuringSchedulingIgnoredDuringExecution");
    let at = at.field("nodeSelectorTerms");
    if required.node_selector_terms.is_empty() {
        faults.required(at, "must have at least one node selector term");
    }
    for (i, term) in required.node_selector_terms.iter().enumerate() {
        let at = at.item(i);
        let of_labels = at.field("matchExpressions");
        for (i, requirement) in term.match_expressions.iter().flatten().enumerate() {
            of_label(requirement, of_labels.item(i), faults);
        }
        let of_fields = at.field("matchFields");
        for (i, requirement) in term.match_fields.iter().flatten().enumerate() {
            of_field(requirement, of_fields.item(i), faults);
        }
    }
}

const NO_OPERATOR: &str = "not a valid selector operator";

fn of_label(requirement: &NodeSelectorRequirement, at: At<'_>, faults: &mut Faults) {
    let values = requirement.values.as_deref().unwrap_or_default();
    let at_values = at.field("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" => {
            if values.is_empty() {
                faults.required(at_values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                faults.forbidden(at_values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        "Gt" | "Lt" => match values {
            [value] if value.parse::<i64>().is_err() => {
                faults.invalid(at_values.item(0), value, "for 'Gt', 'Lt' operators, the value must be an integer");
            }
            [_] => {}
            _ => faults.required(at_values, "must be specified single value when `operator` is 'Lt' or 'Gt'"),
        },
        other => faults.invalid(at.field("operator"), other, NO_OPERATOR),
    }
    complain(syntax::qualified_name(&requirement.key), &requirement.key, at.field("key"), faults);
    for (i, value) in values.iter().enumerate() {
        complain(syntax::label_value(value), value, at_values.item(i), faults);
    }
}

/// Checks a field selector. `metadata.name` is the only field of a node that can be selected.
fn of_field(requirement: &NodeSelectorRequirement, at: At<'_>, faults: &mut Faults) {
    let values = requirement.values.as_deref().unwrap_or_default();
    match requirement.operator.as_str() {
        "In" | "NotIn" => {
            if values.len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                faults.required(at.field("values"), detail);
            }
        }
        other => faults.invalid(at.field("operator"), other, NO_OPERATOR),
    }
    if requirement.key != "metadata.name" {
        return faults.invalid(at.field("key"), &requirement.key, "not a valid field selector key");
    }
    for (i, value) in values.iter().enumerate() {
        complain(syntax::dns_subdomain(value), value, at.field("values").item(i), faults);
    }
}
