//! Removes what previous runs left on the host, once in a run.
//!
//! With the first list: the empty CNI results of our sandboxes. libcni writes the network result of a sandbox without
//! fsync. A power cut can leave the file empty, and then the runtime can neither stop nor remove the sandbox. The
//! engine handles the list only after the removal. Pods with a record do not wait for it. If the removal fails, the log
//! names the file.
//!
//! After the first list: the cgroups of pods that neither the runtime nor the engine knows.

use super::Engine;
use crate::api::facts::Listed;
use crate::api::names::SandboxId;
use crate::api::ordered::CollectOrdered;
use crate::engine::context::Owner;
use crate::engine::effect::{CgroupCall, Effect};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::orphaned_directories::OrphanedDirectories;
use serde::Serialize;

/// What previous runs left on the host.
#[derive(Debug, Default, Serialize)]
pub(super) struct Leftovers {
    host_cleanup: HostCleanup,
    pub orphaned_directories: OrphanedDirectories,
}

#[derive(Debug, Default, Serialize)]
enum HostCleanup {
    /// No list has arrived yet.
    #[default]
    Due,
    /// The removal is in flight; the first list waits for it.
    RemovingNetworks(#[serde(skip)] Box<Listed>),
    Done,
}

impl HostCleanup {
    /// Takes the answer to a list call. `owner`: the value of our own annotation.
    fn take_list(&mut self, result: Result<Answer, OpError>, owner: &str) -> Next {
        match (&self, result) {
            (HostCleanup::Due, Ok(Answer::Listed(list))) => {
                let ours = list.sandboxes.iter().filter(|s| s.owner.as_deref() == Some(owner));
                let sandboxes: Vec<SandboxId> = ours.map(|s| s.id.clone()).collect();
                if sandboxes.is_empty() {
                    *self = HostCleanup::Done;
                    return Next::Handle(Ok(Answer::Listed(list)));
                }
                *self = HostCleanup::RemovingNetworks(Box::new(list));
                Next::RemoveNetworks(sandboxes)
            }
            (_, result) => Next::Handle(result),
        }
    }

    /// The removal has ended. Returns the list that waited for it.
    fn networks_removed(&mut self) -> Option<Listed> {
        match std::mem::replace(self, HostCleanup::Done) {
            HostCleanup::RemovingNetworks(list) => Some(*list),
            HostCleanup::Due | HostCleanup::Done => None,
        }
    }
}

// As for `Event`.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq)]
enum Next {
    Handle(Result<Answer, OpError>),
    /// Remove the empty network results of these sandboxes first.
    RemoveNetworks(Vec<SandboxId>),
}

impl Engine {
    /// The runtime has answered a list call.
    pub(super) fn list_answered(&mut self, result: Result<Answer, OpError>) {
        match self.leftovers.host_cleanup.take_list(result, &self.config.fixed.owner) {
            Next::Handle(result) => self.listed(result),
            Next::RemoveNetworks(sandboxes) => {
                self.outbox.begin(Owner::EmptyNetworks, |op| Effect::RemoveEmptyNetworks { op, sandboxes });
            }
        }
    }

    pub(super) fn networks_removed(&mut self) {
        if let Some(list) = self.leftovers.host_cleanup.networks_removed() {
            self.listed(Ok(Answer::Listed(list)));
        }
    }

    /// Removes the cgroups of dead pods. A pod with a worker loses its cgroup at its end.
    pub(super) fn sweep_cgroups(&mut self, list: &Listed) {
        let in_runtime = list.sandboxes.iter().map(|s| &s.uid).chain(list.containers.iter().map(|c| &c.uid));
        let known = in_runtime.chain(self.workers.keys()).cloned().collect_set();
        self.outbox.begin(Owner::CgroupSweep, |op| Effect::Cgroup { op, call: CgroupCall::Sweep { known } });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::facts::ListedSandbox;
    use crate::api::names::{FullName, Uid};
    use crate::api::time::Wall;

    fn list(owners: &[&str]) -> Answer {
        let sandbox = |(n, owner): (usize, &&str)| ListedSandbox {
            user_namespace: None,
            id: SandboxId::from(format!("s{n}").as_str()),
            uid: Uid::from(format!("u{n}").as_str()),
            name: FullName::new("default", "web"),
            attempt: 0,
            ready: true,
            owner: Some((*owner).to_owned()),
            grace_seconds: None,
            created_at: Wall(0),
        };
        Answer::Listed(Listed { sandboxes: owners.iter().enumerate().map(sandbox).collect(), containers: Vec::new() })
    }

    #[test]
    fn only_the_first_list_with_own_sandboxes_waits() {
        let mut cleanup = HostCleanup::default();
        let failed = Err(OpError::Unknown("lost".into()));
        assert_eq!(cleanup.take_list(failed.clone(), "me"), Next::Handle(failed));
        let first = list(&["me", "other"]);
        assert_eq!(cleanup.take_list(Ok(first.clone()), "me"), Next::RemoveNetworks(vec![SandboxId::from("s0")]));
        assert_eq!(cleanup.networks_removed().map(Answer::Listed), Some(first.clone()));
        assert_eq!(cleanup.networks_removed(), None);
        assert_eq!(cleanup.take_list(Ok(first.clone()), "me"), Next::Handle(Ok(first)));
    }

    #[test]
    fn a_first_list_without_own_sandboxes_is_handled_at_once() {
        let mut cleanup = HostCleanup::default();
        let others = list(&["other"]);
        assert_eq!(cleanup.take_list(Ok(others.clone()), "me"), Next::Handle(Ok(others)));
        let later = list(&["me"]);
        assert_eq!(cleanup.take_list(Ok(later.clone()), "me"), Next::Handle(Ok(later)));
    }
}
