//! The fields of workloads in the API that the manifest does not have.

use super::controller::ControllerState;
use super::progress::whole;
use crate::api::k8s::{ObjectMeta, PodTemplateSpec};

/// Sets the fields that the manifest does not have.
pub fn complete(metadata: &mut ObjectMeta, state: &ControllerState) {
    metadata.creation_timestamp = state.created.timestamp().map(whole);
    metadata.generation = Some(state.generation);
}

/// Returns a number of the status. As in an API server, zero is absent.
pub fn some(count: u32) -> Option<i32> {
    i32::try_from(count).ok().filter(|count| *count > 0)
}

/// Returns a template with more labels and the default DNS policy, which the stored template lacks.
pub fn shown_template(template: &PodTemplateSpec, more: &[(&str, &str)]) -> PodTemplateSpec {
    let mut template = template.clone();
    if !more.is_empty() {
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    }
    if let Some(spec) = &mut template.spec {
        spec.dns_policy.get_or_insert_with(|| "ClusterFirst".to_owned());
    }
    template
}
