//! Changes of manifests, one after the other, so that each begins with the result of the one before. A helper writes or
//! removes the file, and the client gets its answer when the engine has accepted the result.

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

/// How long a client waits for the engine to accept a change. (The manifests may be on a file system that is slow.)
pub(super) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum number of changes that wait.
const MAX_WAITING: usize = 64;

/// A change that a client has requested. (Without `Debug`: it may be a Secret.)
pub struct RequestedChange {
    pub(super) key: Key,
    /// The file that defines the object now.
    pub(super) file: Option<String>,
    pub(super) manifest: ManifestEdit,
    /// Only check the change.
    pub(super) dry_run: bool,
    /// For the removal of a pod: the client's grace period, which can only be shorter than the pod's.
    pub(super) grace: Option<Duration>,
}

/// What a helper does with the manifests.
pub struct FileChange {
    pub request: RequestId,
    /// The path of the file that defines the object now. None: the object gets a new file.
    pub file: Option<String>,
    pub manifest: ManifestEdit,
    /// Only check the change.
    pub dry_run: bool,
}

#[derive(Default)]
pub(super) struct ChangeQueue {
    waiting: VecDeque<(RequestId, RequestedChange)>,
    /// The change that a helper carries out.
    running: Option<Running>,
    /// The changes that the engine has not accepted yet.
    pub(super) written: Vec<WrittenChange>,
}

struct Running {
    request: RequestId,
    change: RequestedChange,
    /// The UID of the pod before the change.
    before: Option<Uid>,
}

pub(super) struct WrittenChange {
    pub(super) request: RequestId,
    pub(super) change: RequestedChange,
    pub(super) edited: Edited,
    pub(super) before: Option<Uid>,
    pub(super) until: Boot,
}

impl ChangeQueue {
    /// Whether a client waits for the answer to a change.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty() && self.written.is_empty()
    }

    /// # Errors
    /// Too many changes wait.
    pub(super) fn push(&mut self, request: RequestId, change: RequestedChange) -> Result<()> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(Failure::too_many_requests("too many changes at the same time"));
        }
        self.waiting.push_back((request, change));
        Ok(())
    }

    /// The next change for a helper, unless one is carried out. `uid`: of the pod that a manifest defines.
    pub(super) fn next(&mut self, uid: impl Fn(&FullName) -> Option<Uid>) -> Option<FileChange> {
        if self.running.is_some() {
            return None;
        }
        let (request, change) = self.waiting.pop_front()?;
        let name = FullName::new(&change.key.namespace, &change.key.name);
        let before = (change.key.kind == Kind::Pod).then(|| uid(&name)).flatten();
        let (file, manifest, dry_run) = (change.file.clone(), change.manifest.clone(), change.dry_run);
        self.running = Some(Running { request, change, before });
        Some(FileChange { request, file, manifest, dry_run })
    }

    /// The helper has carried out the change. Returns the failure if it is refused.
    pub(super) fn done(&mut self, result: Result<Edited>, now: Boot) -> Option<(RequestId, Failure)> {
        let Running { request, change, before } = self.running.take()?;
        match result {
            Err(refused) => Some((request, refused)),
            Ok(edited) => {
                self.written.push(WrittenChange { request, change, edited, before, until: now + ACCEPT_TIMEOUT });
                None
            }
        }
    }

    /// Returns true if the helper is to give the change up.
    pub(super) fn gone(&mut self, request: RequestId) -> bool {
        self.waiting.retain(|(waits, _)| *waits != request);
        self.running.as_ref().is_some_and(|running| running.request == request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kube::path::{Target, parse};
    use crate::kubectl_api::keys::key_of;

    fn change(name: &str) -> RequestedChange {
        let Ok(Target::Object(object)) = parse(&format!("/api/v1/namespaces/default/configmaps/{name}")) else {
            panic!("{name}")
        };
        let key = key_of(&object).unwrap();
        let (node_name, seen) = (String::new(), String::new());
        let manifest = ManifestEdit { object, document: None, change: None, node_name, seen };
        RequestedChange { key, file: None, manifest, dry_run: false, grace: None }
    }

    #[test]
    fn a_client_that_is_gone_gives_up_its_change_and_no_other() {
        let mut queue = ChangeQueue::default();
        for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
            queue.push(RequestId(id), change(name)).unwrap();
        }
        assert_eq!(queue.next(|_| None).unwrap().manifest.object.name.as_deref(), Some("a"));
        assert!(queue.next(|_| None).is_none(), "one at a time");
        assert!(!queue.gone(RequestId(2)));
        assert!(queue.gone(RequestId(1)), "the helper is to give it up");
        assert!(queue.next(|_| None).is_none(), "its result is still awaited");
        let failure = Failure::timeout("the client has disconnected");
        assert_eq!(queue.done(Err(failure), Boot(0)).unwrap().0, RequestId(1));
        assert_eq!(queue.next(|_| None).unwrap().manifest.object.name.as_deref(), Some("c"));
    }

    #[test]
    fn too_many_changes_are_refused() {
        let mut queue = ChangeQueue::default();
        for id in 0..MAX_WAITING as u64 {
            queue.push(RequestId(id), change("a")).unwrap();
        }
        assert_eq!(queue.push(RequestId(99), change("b")).unwrap_err().code, 429);
        queue.next(|_| None).unwrap();
        queue.push(RequestId(99), change("b")).unwrap();
    }
}
