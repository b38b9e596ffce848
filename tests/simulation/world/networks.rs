//! The CNI results of sandboxes. A power cut can leave one empty; the runtime can then neither stop nor remove the sandbox.

use super::{Item, MS, World};
use wherry::api::names::SandboxId;
use wherry::engine::event::Answer;
use wherry::engine::op::{OpError, OpId};

pub struct Networks {
    /// The sandboxes of each removal of empty results.
    pub removals: Vec<Vec<SandboxId>>,
    /// How long a removal takes (ns).
    pub removal_takes: u64,
}

impl Default for Networks {
    fn default() -> Networks {
        Networks { removals: Vec::new(), removal_takes: MS }
    }
}

impl World {
    /// The power fails while the runtime writes network results. (A false first list would hide a sandbox from the removal.)
    pub(super) fn empty_network_results(&mut self) {
        let World { chaos: Some(chaos), runtime, .. } = self else { return };
        if chaos.lies > 0 {
            return;
        }
        let owner = runtime.owner.clone();
        for s in runtime.sandboxes.values_mut().filter(|s| s.owner.as_ref() == Some(&owner)) {
            s.empty_network |= chaos.mishap("an empty network result of", &s.id, 300).is_some();
        }
    }

    pub(super) fn remove_empty_networks(&mut self, op: OpId, sandboxes: Vec<SandboxId>) {
        self.note(|| format!("  < {op} RemoveEmptyNetworks {sandboxes:?}"));
        self.begin(op);
        for id in &sandboxes {
            if let Some(s) = self.runtime.sandboxes.get_mut(id.as_str()) {
                s.empty_network = false;
            }
        }
        self.networks.removals.push(sandboxes);
        let result = match self.goes_wrong("no answer of the helper of", "RemoveEmptyNetworks", 2) {
            true => Err(OpError::Unknown("the helper did not answer".into())),
            false => Ok(Answer::Ok),
        };
        self.at(self.networks.removal_takes, Item::Answer { key: (self.process.life, op), result });
    }
}
