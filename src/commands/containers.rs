//! Reads the containers of a pod in JSON: its init containers, containers and ephemeral containers.

use crate::api::kube::pod_row::{list, text};
use serde_json::Value;

const STATUSES: [&str; 3] =
    ["/status/initContainerStatuses", "/status/containerStatuses", "/status/ephemeralContainerStatuses"];

/// Returns the names in one container list of the spec.
pub fn names<'p>(pod: &'p Value, of: &str) -> Vec<&'p str> {
    list(pod, of).iter().map(|c| text(c, "/name")).collect()
}

/// Returns the status of the container with this name, or null if it has no status.
pub fn status<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let mut all = STATUSES.into_iter().flat_map(|of| list(pod, of));
    all.find(|c| text(c, "/name") == name).unwrap_or(&Value::Null)
}
