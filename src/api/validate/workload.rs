//! Validation of what the objects that create pods have in common, with the messages of Kubernetes.

use super::complaints::{complain, one_of};
use super::{pod, syntax};
use crate::api::k8s::{IntOrString, LabelSelector, ObjectMeta, Pod, PodTemplateSpec};
use crate::api::problem::{At, Fault, Faults, FieldStep};
use crate::api::workload::deployment::MAX_REPLICAS;
use crate::api::workload::{label_selector, portion};

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Checks the numbers of these fields.
pub(super) fn not_negative(fields: &[(&str, Option<i32>)], at: At<'_>, faults: &mut Faults) {
    for (field, number) in fields {
        if let Some(number) = number.filter(|number| *number < 0) {
            faults.invalid(at.field(field), number, NOT_NEGATIVE);
        }
    }
}

/// Checks the number of replicas.
pub(super) fn replicas(replicas: Option<i32>, at: At<'_>, faults: &mut Faults) {
    if let Some(replicas) = replicas.filter(|replicas| *replicas > MAX_REPLICAS) {
        faults.invalid(at.field("replicas"), replicas, format_args!("must be at most {MAX_REPLICAS} on one machine"));
    }
}

pub(super) fn is_zero(value: Option<&IntOrString>) -> bool {
    match value {
        Some(IntOrString::Int(number)) => *number == 0,
        Some(IntOrString::String(text)) => portion::percent(text) == Some(0),
        None => false,
    }
}

pub(super) fn shown(value: &IntOrString) -> String {
    match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// Checks a number or a percentage of at most `most`.
pub(super) fn number_or_percentage(value: Option<&IntOrString>, most: Option<u32>, at: At<'_>, faults: &mut Faults) {
    match value {
        Some(IntOrString::Int(number)) if *number < 0 => faults.invalid(at, number, NOT_NEGATIVE),
        Some(IntOrString::Int(_)) | None => {}
        Some(IntOrString::String(text)) => match portion::percent(text) {
            None => faults.invalid(at, text, "must be an integer or a percentage (for example 5%)"),
            Some(percent) if most.is_some_and(|most| percent > most) => {
                faults.invalid(at, text, "must not be greater than 100%");
            }
            Some(_) => {}
        },
    }
}

/// Checks that the selector selects the pods of the template. `at`: the spec with both.
pub(super) fn selector(selector: &LabelSelector, template: &PodTemplateSpec, at: At<'_>, faults: &mut Faults) {
    let at_selector = at.field("selector");
    if label_selector::is_empty(selector) {
        return faults.required(at_selector, "write the labels of spec.template.metadata.labels");
    }
    let before = faults.0.len();
    requirements(selector, at_selector, faults);
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    if faults.0.len() == before && !label_selector::matches(selector, &labels) {
        let at = at.field("template");
        let at = at.field("metadata");
        faults.invalid(at.field("labels"), &labels, "`selector` does not match template `labels`");
    }
}

/// Checks the labels and the expressions of a selector.
pub(super) fn requirements(selector: &LabelSelector, at: At<'_>, faults: &mut Faults) {
    let at_labels = at.field("matchLabels");
    for (key, value) in selector.match_labels.iter().flatten() {
        complain(syntax::qualified_name(key), key, at_labels.key(key), faults);
        complain(syntax::label_value(value), value, at_labels.key(key), faults);
    }
    let at_expressions = at.field("matchExpressions");
    for (i, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let at = at_expressions.item(i);
        complain(syntax::qualified_name(&requirement.key), &requirement.key, at.field("key"), faults);
        let has_values = requirement.values.as_ref().is_some_and(|values| !values.is_empty());
        match requirement.operator.as_str() {
            "In" | "NotIn" if !has_values => {
                faults.required(at.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if has_values => {
                faults.forbidden(
                    at.field("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            operator => one_of(Some(operator), &label_selector::OPERATORS, at.field("operator"), faults),
        }
    }
}

/// Checks a template like a pod. The faults have the field paths of the object with the template.
pub(crate) fn in_template(template: &PodTemplateSpec, check: fn(&Pod) -> Vec<Fault>) -> Vec<Fault> {
    let (labels, annotations) =
        template.metadata.as_ref().map(|metadata| (metadata.labels.clone(), metadata.annotations.clone())).unzip();
    let metadata = ObjectMeta {
        name: Some("name".to_owned()),
        namespace: Some("default".to_owned()),
        uid: Some("uid".to_owned()),
        labels: labels.flatten(),
        annotations: annotations.flatten(),
        ..ObjectMeta::default()
    };
    let mut faults = check(&Pod { metadata, spec: template.spec.clone(), status: None });
    let of_template = ["spec", "template"].map(|field| FieldStep::Field(field.to_owned()));
    for fault in &mut faults {
        fault.at.0.splice(0..0, of_template.clone());
    }
    faults
}

/// Checks the template of pods that end.
pub(super) fn ending_template(template: &PodTemplateSpec, faults: &mut Faults) {
    faults.0.extend(in_template(template, pod));
    let root = At::Root;
    let at = root.field("spec");
    let (at, spec) = (at.field("template"), template.spec.as_ref());
    let at = at.field("spec");
    let policy = spec.and_then(|spec| spec.restart_policy.as_deref());
    one_of(policy, &["OnFailure", "Never"], at.field("restartPolicy"), faults);
}

/// Checks the template of pods that run for ever. `of`: the kind in the message of an error.
pub(super) fn template(template: &PodTemplateSpec, of: &str, faults: &mut Faults) {
    faults.0.extend(in_template(template, pod));
    let root = At::Root;
    let at = root.field("spec");
    let (at, spec) = (at.field("template"), template.spec.as_ref());
    let at = at.field("spec");
    if let Some(policy) = spec.and_then(|spec| spec.restart_policy.as_deref()).filter(|policy| *policy != "Always") {
        faults.unsupported_value(at.field("restartPolicy"), policy, &["Always"]);
    }
    if spec.is_some_and(|spec| spec.active_deadline_seconds.is_some()) {
        let message = format!("activeDeadlineSeconds in {of} is not Supported");
        faults.forbidden(at.field("activeDeadlineSeconds"), &message);
    }
}
