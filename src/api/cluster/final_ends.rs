//! Terminations of containers that an API server considers final.

use crate::api::ordered::CollectOrdered;
use crate::api::pod::RestartPolicy;
use serde_json::Value;
use std::collections::BTreeMap;

/// An API server refuses a status in which a terminated container runs or waits again although its restart policy
/// rules out a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalEnds {
    policy: RestartPolicy,
    /// The policies of containers that have their own, by name.
    own: BTreeMap<String, RestartPolicy>,
}

impl FinalEnds {
    /// Reads the restart policies. `spec`: the spec of the pod on the server.
    pub fn of(spec: &Value) -> FinalEnds {
        let policy = |of: &Value| RestartPolicy::parse(of.get("restartPolicy")?.as_str()?);
        let lists = ["containers", "initContainers"].into_iter().filter_map(|list| spec.get(list)?.as_array());
        let own = lists
            .flatten()
            .filter_map(|container| Some((container.get("name")?.as_str()?.to_owned(), policy(container)?)));
        FinalEnds { policy: policy(spec).unwrap_or_default(), own: own.collect_map() }
    }

    /// Reports whether the termination in the server's status of this container is final.
    pub(super) fn has(&self, server: &Value) -> bool {
        let Some(end) = server.pointer("/state/terminated") else { return false };
        let name = server.get("name").and_then(Value::as_str).unwrap_or_default();
        match self.own.get(name).unwrap_or(&self.policy) {
            RestartPolicy::Always => false,
            RestartPolicy::OnFailure => end.get("exitCode").and_then(Value::as_i64).unwrap_or(0) == 0,
            RestartPolicy::Never => true,
        }
    }
}
