//! What previous runs left on the host, and the progress of its removal.

use crate::api::facts::Listed;
use crate::api::names::SandboxId;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::orphaned_directories::OrphanedDirectories;
use serde::Serialize;

/// What previous runs left on the host.
#[derive(Debug, Default, Serialize)]
pub(super) struct Leftovers {
    pub host_cleanup: HostCleanup,
    pub orphaned_directories: OrphanedDirectories,
}

/// The progress in removing empty CNI results.
#[derive(Debug, Default, Serialize)]
pub(super) enum HostCleanup {
    /// No list has arrived yet.
    #[default]
    Due,
    /// The removal is in flight; the first list waits for it.
    RemovingNetworks(#[serde(skip)] Box<Listed>),
    Done,
}

impl HostCleanup {
    /// Takes the answer to a list call, and returns what to do next. `owner` is the value of Wherry's own annotation.
    pub fn take_list(&mut self, result: Result<Answer, OpError>, owner: &str) -> AfterList {
        match (&self, result) {
            (HostCleanup::Due, Ok(Answer::Listed(list))) => {
                let ours = list.sandboxes.iter().filter(|s| s.owner.as_deref() == Some(owner));
                let sandboxes: Vec<SandboxId> = ours.map(|s| s.id.clone()).collect();
                if sandboxes.is_empty() {
                    *self = HostCleanup::Done;
                    return AfterList::Handle(Ok(Answer::Listed(list)));
                }
                *self = HostCleanup::RemovingNetworks(Box::new(list));
                AfterList::RemoveNetworks(sandboxes)
            }
            (_, result) => AfterList::Handle(result),
        }
    }

    /// Notes that the removal has ended. Returns the list that waited for it.
    pub fn networks_removed(&mut self) -> Option<Listed> {
        match std::mem::replace(self, HostCleanup::Done) {
            HostCleanup::RemovingNetworks(list) => Some(*list),
            HostCleanup::Due | HostCleanup::Done => None,
        }
    }
}

/// What to do with the answer to a list call.
// The lint is disabled for the same reason as for `Event`.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, PartialEq)]
pub(super) enum AfterList {
    Handle(Result<Answer, OpError>),
    /// Remove the empty CNI results of these sandboxes first.
    RemoveNetworks(Vec<SandboxId>),
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
        assert_eq!(cleanup.take_list(failed.clone(), "me"), AfterList::Handle(failed));
        let first = list(&["me", "other"]);
        assert_eq!(cleanup.take_list(Ok(first.clone()), "me"), AfterList::RemoveNetworks(vec![SandboxId::from("s0")]));
        assert_eq!(cleanup.networks_removed().map(Answer::Listed), Some(first.clone()));
        assert_eq!(cleanup.networks_removed(), None);
        assert_eq!(cleanup.take_list(Ok(first.clone()), "me"), AfterList::Handle(Ok(first)));
    }

    #[test]
    fn a_first_list_without_own_sandboxes_is_handled_at_once() {
        let mut cleanup = HostCleanup::default();
        let others = list(&["other"]);
        assert_eq!(cleanup.take_list(Ok(others.clone()), "me"), AfterList::Handle(Ok(others)));
        let later = list(&["me"]);
        assert_eq!(cleanup.take_list(Ok(later.clone()), "me"), AfterList::Handle(Ok(later)));
    }
}
