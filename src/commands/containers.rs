//! The containers of a pod in JSON: its init containers, its containers, and its ephemeral containers.

use crate::api::kube::pod_row::{list, text};
use serde_json::Value;

const STATUSES: [&str; 3] =
    ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"];

/// The names in one list of the spec.
pub fn names<'p>(pod: &'p Value, of: &str) -> Vec<&'p str> {
    list(pod, of).iter().map(|c| text(c, "/name")).collect()
}

/// The status of the container of this name; null if it has none.
pub fn status<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let mut all = STATUSES.into_iter().flat_map(|of| list(pod, of));
    all.find(|c| text(c, "/name") == name).unwrap_or(&Value::Null)
}
