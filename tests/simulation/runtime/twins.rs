//! Pods of other owners in the same runtime, with the UIDs of our pods.

use super::{Life, Outcome, Runtime};
use std::collections::BTreeMap;
use std::rc::Rc;
use wherry::api::expand::Expanded;
use wherry::api::facts::ImageFact;
use wherry::api::names::Uid;
use wherry::api::pod::Pod;
use wherry::api::time::Wall;
use wherry::engine::effect::{CreateContainer, RuntimeCall};
use wherry::engine::event::Answer;

/// The name of another owner's pod with the UID of one of our pods.
const TWIN: &str = "twin";

impl Runtime {
    /// Adds another owner's pod with the UID of one of our pods and a different name, for example a kubelet's.
    pub fn add_twin(&mut self, pod: &Rc<Pod>, now: Wall) {
        const OTHER: &str = "root-2";
        let mut twin = (**pod).clone();
        twin.name.name = TWIN.into();
        let twin = Rc::new(twin);
        if self.sandboxes.values().any(|s| s.uid == twin.uid && s.name == twin.name) {
            return;
        }
        let Outcome::Answer(Ok(Answer::Sandbox(sandbox))) = self.run_sandbox(&twin, 0, None, now) else { return };
        if let Some(s) = self.sandboxes.get_mut(sandbox.id.as_str()) {
            s.owner = Some(OTHER.into());
        }
        let call = CreateContainer {
            container: twin.at(0).name.clone(),
            pod: twin,
            sandbox: sandbox.id,
            sandbox_attempt: 0,

            user_namespace: None,
            attempt: 0,
            backoff_level: 0,
            boot: None,
            image: ImageFact { id: "sha256:other".into(), uid: None, username: String::new(), size: 0 },
            ips: Vec::new(),
            process: Expanded::default(),
            mounts: Vec::new(),
            devices: Default::default(),
            target: None,
        };
        let Outcome::Answer(Ok(Answer::Created(id))) = self.create(&call, now) else { return };
        if let Some(c) = self.containers.get_mut(id.as_str()) {
            c.owner = Some(OTHER.into());
        }
        let _ = self.start(id.as_str(), now, |_| Life::FOREVER);
    }

    /// The pods that `add_twin` created end, and their owner removes them.
    pub fn twins_end(&mut self) {
        let twins: BTreeMap<String, Uid> =
            self.sandboxes.values().filter(|s| &*s.name.name == TWIN).map(|s| (s.id.clone(), s.uid.clone())).collect();
        self.sandboxes.retain(|id, _| !twins.contains_key(id));
        self.containers.retain(|_, c| !twins.contains_key(&c.sandbox));
        // The model has one cgroup for both pods.
        for uid in twins.into_values() {
            let in_use =
                self.sandboxes.values().any(|s| s.uid == uid && s.ready) || self.of(&uid).any(|c| c.runs() || c.stuck);
            if !in_use {
                self.cgroups.remove(&uid);
            }
        }
    }

    /// The call would stop or remove an object of another owner.
    pub fn is_of_another(&self, call: &RuntimeCall) -> bool {
        let other = |owner: &Option<String>| owner.as_ref() != Some(&self.owner);
        match call {
            RuntimeCall::StopContainer { id, .. }
            | RuntimeCall::RemoveContainer { id }
            | RuntimeCall::StartContainer { id }
            | RuntimeCall::UpdateContainer { id, .. }
            | RuntimeCall::ReopenContainerLog { id }
            | RuntimeCall::DeleteTask { id } => self.containers.get(id.as_str()).is_some_and(|c| other(&c.owner)),
            RuntimeCall::StopSandbox { id } | RuntimeCall::RemoveSandbox { id } => {
                self.sandboxes.get(id.as_str()).is_some_and(|s| other(&s.owner))
            }
            _ => false,
        }
    }
}
