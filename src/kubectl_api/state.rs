//! The state of the API.

use super::change_queue::ChangeQueue;
use super::encoded::EncodedChanges;
use super::followed::Objects;
use crate::api::cluster::machine::MachineIdentity;

pub struct KubectlApi {
    pub(super) objects: Objects,
    pub(super) machine: MachineIdentity,
    pub(super) changes: ChangeQueue,
    pub(super) encoded: EncodedChanges,
}

impl KubectlApi {
    /// Creates the state. `run` is the number of this run of the API (`api::kube::versions`).
    pub fn new(run: u64, machine: MachineIdentity) -> KubectlApi {
        KubectlApi {
            objects: Objects::new(run),
            machine,
            changes: ChangeQueue::default(),
            encoded: EncodedChanges::default(),
        }
    }

    pub fn machine(&self) -> &MachineIdentity {
        &self.machine
    }
}
