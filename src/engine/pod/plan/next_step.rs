//! The steps of a pod in Sync.

use crate::api::names::{ContainerId, SandboxId};

/// The next step that changes something. The worker carries out one step at a time, and plans again after each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Every container that should run runs, or has to wait.
    Nothing,
    /// All containers ended and none will restart: the pod has ended (W1).
    Ended,
    /// Containers that survived their sandbox (W13), or whose state is unknown to the runtime.
    StopContainers(Vec<ContainerId>),
    /// The sandbox is dead or superfluous.
    StopSandbox(SandboxId),
    RunSandbox {
        attempt: u32,
    },
    /// `index`: the position in `Pod::every_container`.
    Create {
        index: usize,
        attempt: u32,
    },
    /// The container was created but not started, because Wherry was killed in between.
    Start {
        index: usize,
        id: ContainerId,
    },
}
