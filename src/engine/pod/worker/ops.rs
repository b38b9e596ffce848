//! The operations of a worker that are in flight, and their classification.
//!
//! At most one *active* operation is in flight: the plan waits for its result. Any number of *background* operations
//! may run next to it. They change nothing that a plan depends on. Stops are the exception: together they count like
//! one active operation.

use super::needed_image::NeededImage;
use crate::api::names::{ContainerId, SandboxId};
use crate::api::time::Boot;
use crate::engine::op::OpId;
use crate::engine::slots::Class;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
pub enum ActiveOp {
    PreparePod {
        attempt: u32,
    },
    MakeCgroup {
        attempt: u32,
    },
    RunSandbox {
        began: Boot,
        attempt: u32,
    },
    StopSandbox {
        id: SandboxId,
    },
    ImageStatus {
        index: usize,
        attempt: u32,
        needed: NeededImage,
    },
    /// The read of the node's docker configuration, for a pull.
    DockerConfig {
        index: usize,
        attempt: u32,
    },
    /// A request to a credential provider, for a pull.
    AskProvider {
        index: usize,
        attempt: u32,
        name: String,
    },
    Pull {
        index: usize,
        attempt: u32,
        needed: NeededImage,
        image: String,
        began: Boot,
    },
    PrepareContainer {
        index: usize,
        attempt: u32,
    },
    /// G3: a device plugin gives devices to a container.
    Allocate {
        index: usize,
        attempt: u32,
        resource: String,
        ids: Vec<String>,
    },
    /// G3: a device plugin prepares the devices for a start.
    PreStartDevices {
        index: usize,
        attempt: u32,
        resource: String,
    },
    /// The volumes are mounted for the container.
    MountInContainer {
        index: usize,
        attempt: u32,
    },
    Create {
        index: usize,
        attempt: u32,
        level: u32,
    },
    Start {
        index: usize,
        id: ContainerId,
    },
    /// The postStart hook of a running container. `cancelled` says that the container no longer runs, and the hook
    /// was cancelled.
    PostStart {
        index: usize,
        id: ContainerId,
        cancelled: bool,
    },
    MountVolumes,
    /// R3: the pod's cgroup gets the larger of the old and the new limits.
    RaiseCgroup,
    /// R3: the pod's cgroup gets the new limits.
    SettleCgroup,
    /// R4: the memory use of a container is measured. Its limit decreases to `limit` bytes.
    MeasureMemory {
        id: ContainerId,
        limit: u64,
    },
    UpdateContainer {
        id: ContainerId,
    },
    /// `log_path` is the log of a dead container, which is removed together with it.
    RemoveContainer {
        id: ContainerId,
        log_path: Option<String>,
    },
    RemoveSandbox {
        id: SandboxId,
    },
}

/// The nature of an active operation, from which most of its other properties follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// Prepares the host for a sandbox or a container. The runtime does not take part.
    Preparation,
    /// Reads from the runtime.
    Read,
    /// Pulls an image, or collects credentials for a pull.
    Pull,
    /// Creates or starts a sandbox or a container.
    Start,
    Hook,
    /// Calls a device plugin.
    Devices,
    /// Changes the resources of a running container.
    Resize,
    /// Stops a sandbox.
    Stop,
    /// Removes a dead container or sandbox.
    Removal,
}

impl ActiveOp {
    fn nature(&self) -> Nature {
        match self {
            ActiveOp::PreparePod { .. }
            | ActiveOp::MakeCgroup { .. }
            | ActiveOp::PrepareContainer { .. }
            | ActiveOp::MountInContainer { .. }
            | ActiveOp::RaiseCgroup
            | ActiveOp::SettleCgroup
            | ActiveOp::MountVolumes => Nature::Preparation,
            ActiveOp::ImageStatus { .. } => Nature::Read,
            ActiveOp::DockerConfig { .. } | ActiveOp::AskProvider { .. } | ActiveOp::Pull { .. } => Nature::Pull,
            ActiveOp::RunSandbox { .. } | ActiveOp::Create { .. } | ActiveOp::Start { .. } => Nature::Start,
            ActiveOp::PostStart { .. } => Nature::Hook,
            ActiveOp::Allocate { .. } | ActiveOp::PreStartDevices { .. } => Nature::Devices,
            ActiveOp::MeasureMemory { .. } | ActiveOp::UpdateContainer { .. } => Nature::Resize,
            ActiveOp::StopSandbox { .. } => Nature::Stop,
            ActiveOp::RemoveContainer { .. } | ActiveOp::RemoveSandbox { .. } => Nature::Removal,
        }
    }

    /// Returns true if the call changes sandboxes or containers of the pod in the runtime. A call that fails may have
    /// changed them nevertheless.
    pub fn changes_runtime(&self) -> bool {
        matches!(self.nature(), Nature::Start | Nature::Stop | Nature::Removal)
    }

    /// Returns true if the kill of the pod cancels the operation (W2): it may take long, or its result is no longer
    /// wanted.
    pub fn is_cancelled_by_kill(&self) -> bool {
        match self {
            ActiveOp::PostStart { cancelled, .. } => !cancelled,
            _ => matches!(self.nature(), Nature::Start | Nature::Pull | Nature::Devices | Nature::Resize),
        }
    }

    /// Returns true if the operation may take long and concerns one container or the volumes, so the stop of another
    /// container does not wait for it.
    pub fn lets_others_stop(&self) -> bool {
        matches!(self, ActiveOp::MountVolumes | ActiveOp::MountInContainer { .. })
            || matches!(self.nature(), Nature::Pull | Nature::Devices | Nature::Hook | Nature::Resize)
    }

    /// Returns true if the operation pulls an image, or collects credentials for a pull.
    pub fn is_pull(&self) -> bool {
        self.nature() == Nature::Pull
    }

    /// Returns true if the operation brings the pod closer to its spec. A removal only tidies up and does not count
    /// as a sync.
    pub fn is_sync_work(&self) -> bool {
        self.nature() != Nature::Removal
    }

    /// Returns the class whose limit applies to the operation.
    pub fn start_class(&self) -> Option<Class> {
        match self {
            ActiveOp::PreparePod { .. } | ActiveOp::MakeCgroup { .. } | ActiveOp::RunSandbox { .. } => {
                Some(Class::Sandbox)
            }
            ActiveOp::ImageStatus { .. }
            | ActiveOp::PrepareContainer { .. }
            | ActiveOp::MountInContainer { .. }
            | ActiveOp::Allocate { .. }
            | ActiveOp::PreStartDevices { .. }
            | ActiveOp::Create { .. }
            | ActiveOp::Start { .. } => Some(Class::Container),
            ActiveOp::Pull { .. } => Some(Class::Pull),
            ActiveOp::DockerConfig { .. }
            | ActiveOp::AskProvider { .. }
            | ActiveOp::PostStart { .. }
            | ActiveOp::MountVolumes
            | ActiveOp::RaiseCgroup
            | ActiveOp::SettleCgroup
            | ActiveOp::MeasureMemory { .. }
            | ActiveOp::UpdateContainer { .. }
            | ActiveOp::StopSandbox { .. }
            | ActiveOp::RemoveContainer { .. }
            | ActiveOp::RemoveSandbox { .. } => None,
        }
    }
}

#[derive(Debug, Serialize)]
pub enum BackgroundOp {
    Stop {
        id: ContainerId,
    },
    Record,
    RecordRemoved,
    Message {
        id: ContainerId,
    },
    PreStop {
        container: String,
    },
    Probe,
    /// The files of mounted volumes are brought up to date.
    UpdateVolumes,
    Unmount,
    RemoveCgroup,
    /// `marker` is the time until which the empty directory stays (W26).
    RemovePodFiles {
        marker: Option<Boot>,
    },
    /// An operation whose result nothing waits for.
    Other,
}

/// The operations in flight.
#[derive(Debug, Default, Serialize)]
pub struct Operations {
    active: Option<(OpId, ActiveOp)>,
    background: BTreeMap<OpId, BackgroundOp>,
}

/// An operation that has ended.
pub enum Ended {
    Active(ActiveOp),
    Background(BackgroundOp),
}

impl Operations {
    /// Starts the active operation. The caller has checked that there is none.
    pub fn start(&mut self, op: OpId, active: ActiveOp) {
        self.active = Some((op, active));
    }

    pub fn start_background(&mut self, op: OpId, background: BackgroundOp) {
        self.background.insert(op, background);
    }

    /// Removes the operation and returns it. None if it does not belong to this worker.
    pub fn end(&mut self, op: OpId) -> Option<Ended> {
        if let Some(background) = self.background.remove(&op) {
            return Some(Ended::Background(background));
        }
        let (_, active) = self.active.take_if(|(active, _)| *active == op)?;
        Some(Ended::Active(active))
    }

    pub fn active(&self) -> Option<&ActiveOp> {
        self.active.as_ref().map(|(_, active)| active)
    }

    /// Returns the container whose postStart hook is in flight.
    pub fn post_start(&self) -> Option<&ContainerId> {
        match self.active() {
            Some(ActiveOp::PostStart { id, .. }) => Some(id),
            _ => None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Returns the operation to cancel when the pod is killed.
    pub fn cancelled_by_kill(&self) -> Option<OpId> {
        self.active.as_ref().filter(|(_, active)| active.is_cancelled_by_kill()).map(|(op, _)| *op)
    }

    /// Returns the active operation if it belongs to a pull.
    pub fn pull(&self) -> Option<OpId> {
        self.active.as_ref().filter(|(_, active)| active.is_pull()).map(|(op, _)| *op)
    }

    /// Returns the postStart hook in flight, to be cancelled, if `ended` returns true for its container. Each hook is
    /// returned only once.
    pub fn take_post_start(&mut self, ended: impl Fn(&ContainerId) -> bool) -> Option<OpId> {
        match &mut self.active {
            Some((op, ActiveOp::PostStart { id, cancelled, .. })) if !*cancelled && ended(id) => {
                *cancelled = true;
                Some(*op)
            }
            _ => None,
        }
    }

    pub fn background_is_empty(&self) -> bool {
        self.background.is_empty()
    }

    pub fn is_in_background(&self, op: OpId) -> bool {
        self.background.contains_key(&op)
    }

    fn any(&self, is: impl Fn(&BackgroundOp) -> bool) -> bool {
        self.background.values().any(is)
    }

    /// Returns true if a container is being stopped.
    pub fn is_stopping(&self) -> bool {
        self.any(|b| matches!(b, BackgroundOp::Stop { .. }))
    }

    /// Returns true if this container is being stopped.
    pub fn is_stopping_container(&self, id: &str) -> bool {
        self.any(|b| matches!(b, BackgroundOp::Stop { id: stopping } if stopping.as_str() == id))
    }

    fn is_stopping_sandbox(&self, id: &str) -> bool {
        matches!(self.active(), Some(ActiveOp::StopSandbox { id: stopping }) if stopping.as_str() == id)
    }

    /// Returns true if a call that changes a sandbox or container is in flight. Its outcome is still open.
    pub fn is_changing(&self) -> bool {
        self.active().is_some_and(ActiveOp::changes_runtime)
    }

    /// Returns true if the files of a container are being prepared.
    pub fn is_preparing_container(&self) -> bool {
        matches!(self.active(), Some(ActiveOp::PrepareContainer { .. }))
    }

    /// Returns true if a call that stops this container or sandbox is in flight.
    pub fn is_stopping_object(&self, id: &str) -> bool {
        self.is_stopping_sandbox(id) || self.is_stopping_container(id)
    }

    pub fn is_writing_record(&self) -> bool {
        self.any(|b| matches!(b, BackgroundOp::Record))
    }

    pub fn is_reading_message(&self) -> bool {
        self.any(|b| matches!(b, BackgroundOp::Message { .. }))
    }

    pub fn is_updating_volumes(&self) -> bool {
        self.any(|b| matches!(b, BackgroundOp::UpdateVolumes))
    }

    pub fn is_unmounting(&self) -> bool {
        self.any(|b| matches!(b, BackgroundOp::Unmount))
    }

    pub fn is_removing_cgroup(&self) -> bool {
        self.any(|b| matches!(b, BackgroundOp::RemoveCgroup))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> ActiveOp {
        ActiveOp::Start { index: 0, id: "c".into() }
    }

    #[test]
    fn an_operation_ends_once_and_only_in_its_own_worker() {
        let mut ops = Operations::default();
        ops.start(OpId(1), start());
        ops.start_background(OpId(2), BackgroundOp::Record);
        assert!(ops.end(OpId(3)).is_none() && ops.is_active() && ops.is_writing_record());
        assert!(matches!(ops.end(OpId(2)), Some(Ended::Background(BackgroundOp::Record))));
        assert!(matches!(ops.end(OpId(1)), Some(Ended::Active(ActiveOp::Start { .. }))));
        assert!(ops.end(OpId(1)).is_none() && !ops.is_active() && ops.background_is_empty());
    }

    #[test]
    fn w2_a_kill_cancels_starts_pulls_and_hooks_and_nothing_else() {
        let hook = |cancelled| ActiveOp::PostStart { index: 0, id: "c".into(), cancelled };
        let pull =
            ActiveOp::Pull { index: 0, attempt: 0, needed: NeededImage::Own, image: String::new(), began: Boot(0) };
        let sandbox = ActiveOp::RunSandbox { began: Boot(0), attempt: 0 };
        let provider = ActiveOp::AskProvider { index: 0, attempt: 0, name: String::new() };
        let cancelled =
            [start(), sandbox, pull, provider, ActiveOp::Create { index: 0, attempt: 0, level: 0 }, hook(false)];
        assert!(cancelled.iter().all(ActiveOp::is_cancelled_by_kill));
        let stop = ActiveOp::StopSandbox { id: "s".into() };
        let kept = [hook(true), ActiveOp::PreparePod { attempt: 0 }, stop, ActiveOp::MountVolumes];
        assert!(!kept.iter().any(ActiveOp::is_cancelled_by_kill));
    }

    #[test]
    fn a_preparation_changes_nothing_in_the_runtime() {
        let preparations = [
            ActiveOp::PreparePod { attempt: 0 },
            ActiveOp::MakeCgroup { attempt: 0 },
            ActiveOp::PrepareContainer { index: 0, attempt: 0 },
        ];
        assert!(!preparations.iter().any(ActiveOp::changes_runtime));
        assert!(start().changes_runtime() && ActiveOp::RemoveSandbox { id: "s".into() }.changes_runtime());
    }

    #[test]
    fn a_post_start_hook_is_given_up_once() {
        let mut ops = Operations::default();
        ops.start(OpId(1), ActiveOp::PostStart { index: 0, id: "c".into(), cancelled: false });
        assert_eq!(ops.take_post_start(|_| false), None);
        assert_eq!(ops.take_post_start(|id| id.as_str() == "c"), Some(OpId(1)));
        assert_eq!(ops.take_post_start(|_| true), None);
    }
}
