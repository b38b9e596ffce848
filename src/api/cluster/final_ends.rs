//! The ends of containers that an API server takes for final.

use serde_json::Value;
use std::collections::BTreeMap;

/// An API server refuses a status in which a container has left the state Terminated, if its restart policy does not restart it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalEnds {
    policy: Policy,
    /// Of the containers with a policy of their own, by name.
    own: BTreeMap<String, Policy>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Policy {
    #[default]
    Always,
    OnFailure,
    Never,
}

impl Policy {
    /// None: there is no policy, or one that this version does not know.
    fn of(value: Option<&Value>) -> Option<Policy> {
        match value?.as_str()? {
            "Always" => Some(Policy::Always),
            "OnFailure" => Some(Policy::OnFailure),
            "Never" => Some(Policy::Never),
            _ => None,
        }
    }
}

impl FinalEnds {
    /// `spec`: of the pod, as the server has it.
    pub fn of(spec: &Value) -> FinalEnds {
        let lists = ["containers", "initContainers"].into_iter().filter_map(|list| spec.get(list)?.as_array());
        let own = lists.flatten().filter_map(|container| {
            Some((container.get("name")?.as_str()?.to_owned(), Policy::of(container.get("restartPolicy"))?))
        });
        FinalEnds { policy: Policy::of(spec.get("restartPolicy")).unwrap_or_default(), own: own.collect() }
    }

    /// Whether the server keeps the end that it has in the status of this container.
    pub(super) fn has(&self, server: &Value) -> bool {
        let Some(end) = server.pointer("/state/terminated") else { return false };
        let name = server.get("name").and_then(Value::as_str).unwrap_or_default();
        match self.own.get(name).unwrap_or(&self.policy) {
            Policy::Always => false,
            Policy::OnFailure => end.get("exitCode").and_then(Value::as_i64).unwrap_or(0) == 0,
            Policy::Never => true,
        }
    }
}
