//! Removes what previous runs left on the host, once per run.
//!
//! With the first list: the empty CNI result files of Wherry's own sandboxes. libcni writes the network result of a
//! sandbox without fsync. A power cut can leave the file empty, and then the runtime can neither stop nor remove the
//! sandbox. The engine handles the list only after the removal. Pods with a record do not wait for the removal. If
//! the removal fails, the log names the file.
//!
//! After the first list: the cgroups of pods that neither the runtime nor the engine knows.

use super::Engine;
use super::leftovers::AfterList;
use crate::api::facts::Listed;
use crate::api::ordered::CollectOrdered;
use crate::engine::effect::{CgroupCall, Effect};
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::owner::Owner;

impl Engine {
    /// Handles the runtime's answer to a list call.
    pub(super) fn list_answered(&mut self, result: Result<Answer, OpError>) {
        match self.leftovers.host_cleanup.take_list(result, &self.config.fixed.owner) {
            AfterList::Handle(result) => self.listed(result),
            AfterList::RemoveNetworks(sandboxes) => {
                self.outbox.begin(Owner::EmptyNetworks, |op| Effect::RemoveEmptyNetworks { op, sandboxes });
            }
        }
    }

    pub(super) fn networks_removed(&mut self) {
        if let Some(list) = self.leftovers.host_cleanup.networks_removed() {
            self.listed(Ok(Answer::Listed(list)));
        }
    }

    /// Removes the cgroups of pods that have no worker and of which the runtime has nothing. A worker removes the
    /// cgroup of its own pod when the pod ends.
    pub(super) fn sweep_cgroups(&mut self, list: &Listed) {
        let in_runtime = list.sandboxes.iter().map(|s| &s.uid).chain(list.containers.iter().map(|c| &c.uid));
        let known = in_runtime.chain(self.workers.keys()).cloned().collect_set();
        self.outbox.begin(Owner::CgroupSweep, |op| Effect::Cgroup { op, call: CgroupCall::Sweep { known } });
    }
}
