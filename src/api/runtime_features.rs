//! The optional features that a container runtime reports in its status (CRI `StatusResponse`).

use serde::Serialize;
use std::collections::BTreeMap;

/// A runtime that reports nothing has none of the features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuntimeFeatures {
    /// `supplementalGroupsPolicy: Strict`.
    pub supplemental_groups_policy: bool,
    /// The runtime handlers by name. The default handler has the empty name. Empty if the runtime does not report them.
    pub handlers: BTreeMap<String, HandlerFeatures>,
}

/// The features of one runtime handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HandlerFeatures {
    /// `recursiveReadOnly` of a mount.
    pub recursive_read_only_mounts: bool,
    /// `hostUsers: false`, also for pods with volumes.
    pub user_namespaces: bool,
}

impl RuntimeFeatures {
    /// The features of a handler; none if it is unknown.
    pub fn of_handler(&self, name: &str) -> HandlerFeatures {
        self.handlers.get(name).copied().unwrap_or_default()
    }
}
