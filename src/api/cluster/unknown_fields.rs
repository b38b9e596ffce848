//! C18: the fields of a pod that a newer API server knows and this version does not.

use crate::api::problem::{Fault, FieldPath, FieldStep, What};
use serde_json::Value;

/// Fields of `spec` that do not concern the node: the first two are for the scheduler, and the last one is for
/// clients that request an eviction. Source: the documentation of the fields in the API of Kubernetes 1.35 to 1.37.
const OF_OTHERS: [&str; 3] = ["schedulingGroup", "workloadRef", "evictionResponders"];

/// Returns the faults of a pod with these unknown fields. Fields outside of `spec`, fields for other components, and
/// empty fields are no faults, because they do not affect how the pod runs.
pub(super) fn faults(pod: &Value, unknown: &[FieldPath]) -> Vec<Fault> {
    let matters = |at: &&FieldPath| match at.0.as_slice() {
        [FieldStep::Field(spec), FieldStep::Field(field), ..] if spec == "spec" => {
            !OF_OTHERS.contains(&field.as_str()) && value_at(pod, at).is_some_and(|value| !is_empty(value))
        }
        _ => false,
    };
    unknown.iter().filter(matters).map(|at| Fault { at: at.clone(), what: What::NotYet }).collect()
}

fn value_at<'v>(pod: &'v Value, at: &FieldPath) -> Option<&'v Value> {
    at.0.iter().try_fold(pod, |value, step| match step {
        FieldStep::Field(name) | FieldStep::Key(name) | FieldStep::HiddenKey(name) => value.get(name),
        FieldStep::Item(index) => value.get(index),
    })
}

/// Reports whether Go omits the value from its JSON, or a server writes it for a feature that is off.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
