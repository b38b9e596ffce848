//! Processes changes to manifests one at a time, so that each starts from the result of the previous one. A helper
//! thread writes or removes the file, and the client gets its response when the engine has accepted the result.

use super::request::Result;
use crate::api::kube::edit::{Edited, ManifestEdit};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::kube::versions::Key;
use crate::api::names::{FullName, Uid};
use crate::api::time::Boot;
use crate::engine::control::RequestId;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a client waits for the engine to accept a change. It is long because the manifests may be on a slow file
/// system.
pub(super) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of changes that wait for a helper or for the engine.
const MAX_CHANGES: usize = 64;

/// A change that a client has requested. It does not implement `Debug`, because it may contain a Secret.
pub struct RequestedChange {
    pub(super) of: ChangeOf,
    pub(super) file: FileChange,
}

/// The object of a change.
pub(super) struct ChangeOf {
    pub(super) key: Key,
    /// The subresource that the client changes, and gets in the response. None: the object itself.
    pub(super) subresource: Option<&'static str>,
    /// Whether to only check the change.
    pub(super) dry_run: bool,
    /// If the change removes a pod, the client's grace period. It can only shorten the pod's own.
    pub(super) grace: Option<Duration>,
    /// The pods that have to end before the client gets its response (`--cascade=foreground`).
    pub(super) pods: Vec<Uid>,
}

/// What a helper does with the manifests.
pub struct FileChange {
    /// The path of the file that currently defines the object. None if the object gets a new file.
    pub file: Option<String>,
    pub manifest: ManifestEdit,
    /// Whether to only check the change.
    pub dry_run: bool,
}

#[derive(Default)]
pub(super) struct ChangeQueue {
    waiting: VecDeque<(RequestId, RequestedChange)>,
    /// The change that a helper is carrying out.
    running: Option<RunningChange>,
    /// The changes that the engine has not accepted yet.
    pub(super) written: Vec<WrittenChange>,
}

pub(super) struct RunningChange {
    pub(super) request: RequestId,
    pub(super) of: ChangeOf,
    /// The UID of the pod before the change.
    pub(super) before: Option<Uid>,
}

pub(super) struct WrittenChange {
    pub(super) change: RunningChange,
    pub(super) edited: Edited,
    pub(super) awaited: Awaited,
}

/// What the client of a written change waits for.
pub(super) enum Awaited {
    /// The engine accepts or refuses the change. The client waits until this time.
    Engine { until: Boot },
    /// The change is in force, and the pods of the removed workload end.
    Pods,
}

impl ChangeQueue {
    /// Reports whether there are no pending changes.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty() && self.written.is_empty()
    }

    /// Appends a change to the queue.
    ///
    /// # Errors
    /// Too many changes are pending. A written change counts even if its client has disconnected.
    pub(super) fn push(&mut self, request: RequestId, change: RequestedChange) -> Result<()> {
        if self.waiting.len() + self.written.len() >= MAX_CHANGES {
            return Err(Failure::too_many_requests("too many changes at the same time"));
        }
        self.waiting.push_back((request, change));
        Ok(())
    }

    /// Returns the next change for a helper, unless a helper is already carrying one out. `uid` returns the UID of
    /// the pod that a manifest defines under a name.
    pub(super) fn next(&mut self, uid: impl Fn(&FullName) -> Option<Uid>) -> Option<(RequestId, FileChange)> {
        if self.running.is_some() {
            return None;
        }
        let (request, RequestedChange { of, file }) = self.waiting.pop_front()?;
        let name = FullName::new(&of.key.namespace, &of.key.name);
        let before = (of.key.kind == Kind::Pod).then(|| uid(&name)).flatten();
        self.running = Some(RunningChange { request, of, before });
        Some((request, file))
    }

    /// Handles the helper's result. Returns the failure if the change was refused.
    pub(super) fn done(&mut self, result: Result<Edited>, now: Boot) -> Option<(RequestId, Failure)> {
        let change = self.running.take()?;
        match result {
            Err(refused) => Some((change.request, refused)),
            Ok(edited) => {
                self.written.push(WrittenChange {
                    change,
                    edited,
                    awaited: Awaited::Engine { until: now + ACCEPT_TIMEOUT },
                });
                None
            }
        }
    }

    /// Removes the change of a client that has disconnected, unless it is written and not yet in force. Returns true if
    /// the helper must abandon the change.
    pub(super) fn gone(&mut self, request: RequestId) -> bool {
        let ended =
            |written: &WrittenChange| matches!(written.awaited, Awaited::Pods) && written.change.request == request;
        self.written.retain(|written| !ended(written));
        self.waiting.retain(|(waits, _)| *waits != request);
        self.running.as_ref().is_some_and(|running| running.request == request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::NetworkPolicies;
    use crate::api::kube::edit::{EditOutcome, PlannedEdit};
    use crate::api::kube::path::{Target, parse};
    use crate::kubectl_api::keys::key_of;
    use serde_json::Value;

    fn change(name: &str) -> RequestedChange {
        let Ok(Target::Object(object)) = parse(&format!("/api/v1/namespaces/default/configmaps/{name}")) else {
            panic!("{name}")
        };
        let key = key_of(&object).unwrap();
        let (node_name, seen) = (String::new(), String::new());
        let network_policies = NetworkPolicies::default();
        let manifest =
            ManifestEdit { object, document: None, digest: None, change: None, node_name, seen, network_policies };
        let of = ChangeOf { key, subresource: None, dry_run: false, grace: None, pods: Vec::new() };
        RequestedChange { of, file: FileChange { file: None, manifest, dry_run: false } }
    }

    fn edited() -> Edited {
        let (digest, object, warnings) = (String::new(), Value::Null, Vec::new());
        let planned = PlannedEdit { outcome: EditOutcome::Created, text: None, digest, object, warnings };
        planned.carried_out("/m/a.yaml".into(), None)
    }

    #[test]
    fn a_client_that_is_gone_gives_up_its_change_and_no_other() {
        let mut queue = ChangeQueue::default();
        for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
            queue.push(RequestId(id), change(name)).unwrap();
        }
        let next = |queue: &mut ChangeQueue| queue.next(|_| None).unwrap().1.manifest.object.name;
        assert_eq!(next(&mut queue).as_deref(), Some("a"));
        assert!(queue.next(|_| None).is_none(), "one at a time");
        assert!(!queue.gone(RequestId(2)));
        assert!(queue.gone(RequestId(1)), "the helper is to give it up");
        assert!(queue.next(|_| None).is_none(), "its result is still awaited");
        let failure = Failure::timeout("the client has disconnected");
        assert_eq!(queue.done(Err(failure), Boot(0)).unwrap().0, RequestId(1));
        assert_eq!(next(&mut queue).as_deref(), Some("c"));
    }

    #[test]
    fn too_many_changes_are_refused() {
        let mut queue = ChangeQueue::default();
        for id in 0..MAX_CHANGES as u64 {
            queue.push(RequestId(id), change("a")).unwrap();
        }
        let refused = |queue: &mut ChangeQueue| queue.push(RequestId(99), change("b")).is_err_and(|f| f.code == 429);
        assert!(refused(&mut queue));
        // A written change still counts, even if its client disconnects.
        queue.next(|_| None).unwrap();
        assert!(queue.done(Ok(edited()), Boot(0)).is_none());
        queue.gone(RequestId(0));
        assert!(refused(&mut queue));
        // A change in force has nothing to do without its client, and only without its own.
        queue.written[0].awaited = Awaited::Pods;
        queue.gone(RequestId(MAX_CHANGES as u64));
        assert!(refused(&mut queue));
        queue.gone(RequestId(0));
        assert!(!refused(&mut queue));
    }
}
