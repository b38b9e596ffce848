//! Container log rotation (L1 to L3).
//!
//! The kernel reports the first write to a log since its last check, so a container that writes nothing costs
//! nothing. A check of the size follows, at most once per interval. A log that has reached the maximum size is
//! renamed, and the runtime opens a new one. The same operation compresses and removes older files.

use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{ContainerId, Uid};
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::{Effect, LogCall, RuntimeCall, Severity};
use crate::engine::event::Answer;
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rotation_policy::RotationPolicy;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug, PartialEq, Serialize)]
enum RotationState {
    /// Nothing to do until the kernel reports the next write.
    Watched {
        checked: Boot,
    },
    /// The next check is due at this time.
    Due(Boot),
    Measuring,
    /// Waits for a rotation worker.
    Queued,
    /// Older files are compressed, and the log is renamed.
    Rotating,
    /// The runtime opens a new log. `rotated`: the new path of the old one; None if the log was missing.
    Reopening {
        rotated: Option<String>,
    },
    /// The runtime could not open a new log, so the old one gets its name back.
    Restoring,
}

/// The log of one running container.
#[derive(Debug, Serialize)]
struct Log {
    id: ContainerId,
    #[serde(skip)]
    pod: Rc<Pod>,
    container: String,
    path: String,
    state: RotationState,
    /// The last rotation failed, and the failure was reported.
    failed: bool,
}

/// The context of a step.
pub struct RotationInputs<'a> {
    pub now: Boot,
    pub policy: &'a RotationPolicy,
    pub request_timeout: Duration,
    pub outbox: &'a mut Outbox,
}

#[derive(Debug, Default, Serialize)]
pub struct LogRotation {
    logs: BTreeMap<Uid, Vec<Log>>,
    ops: BTreeMap<OpId, Operation>,
}

/// An operation in flight. Its container may have ended meanwhile.
#[derive(Debug, Serialize)]
struct Operation {
    uid: Uid,
    id: ContainerId,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Part {
    Check,
    /// L2: the operation occupies a rotation worker.
    Rotation,
}

impl LogRotation {
    /// Tracks the logs of the pod's running containers, and forgets all other logs of the pod.
    pub fn update(
        &mut self,
        uid: &Uid,
        pod: Option<&Rc<Pod>>,
        containers: &[ContainerFact],
        inputs: &mut RotationInputs<'_>,
    ) {
        let wanted = pod.filter(|_| inputs.policy.max_size.is_some());
        let runs =
            |c: &&ContainerFact| c.state == ContainerState::Running && !c.log_path.is_empty() && wanted.is_some();
        let running = || containers.iter().filter(runs);
        let known = self.logs.get(uid).map_or(&[][..], Vec::as_slice);
        if known.len() == running().count() && running().all(|c| known.iter().any(|log| log.id == c.id)) {
            return;
        }
        let mut logs = self.logs.remove(uid).unwrap_or_default();
        let ids: BTreeSet<&ContainerId> = running().map(|c| &c.id).collect_set();
        logs.retain(|log| {
            let stays = ids.contains(&log.id);
            if !stays && matches!(log.state, RotationState::Watched { .. }) {
                inputs.outbox.push(Effect::UnwatchLog { id: log.id.clone() });
            }
            stays
        });
        let known: BTreeSet<ContainerId> = logs.iter().map(|log| log.id.clone()).collect_set();
        if let Some(pod) = wanted {
            let new = running().filter(|c| !known.contains(&c.id)).map(|c| Log {
                id: c.id.clone(),
                pod: pod.clone(),
                container: c.name.clone(),
                path: c.log_path.clone(),
                // L3: if Wherry was killed during a rotation, the log may be missing.
                state: RotationState::Due(inputs.now),
                failed: false,
            });
            logs.extend(new);
        }
        if !logs.is_empty() {
            self.logs.insert(uid.clone(), logs);
        }
    }

    /// Returns the time of the next check.
    pub fn next_deadline(&self) -> Option<Boot> {
        let due = |log: &Log| if let RotationState::Due(at) = log.state { Some(at) } else { None };
        self.logs.values().flatten().filter_map(due).min()
    }

    /// Begins queued rotations while workers are free.
    pub fn begin_rotations(&mut self, inputs: &mut RotationInputs<'_>) {
        if !self.logs.values().flatten().any(|log| log.state == RotationState::Queued) {
            return;
        }
        let busy = self.ops.values().filter(|op| op.part == Part::Rotation).count();
        let max_files = inputs.policy.max_files;
        let queued = self.logs.iter_mut().flat_map(|(uid, logs)| logs.iter_mut().map(move |log| (uid, log)));
        let queued = queued.filter(|(_, log)| log.state == RotationState::Queued);
        for (uid, log) in queued.take(inputs.policy.workers.saturating_sub(busy)) {
            log.state = RotationState::Rotating;
            let call = LogCall::Rotate { path: log.path.clone(), max_files };
            let op = inputs.outbox.begin(Owner::Logs, |op| Effect::Log { op, call });
            self.ops.insert(op, Operation { uid: uid.clone(), id: log.id.clone(), part: Part::Rotation });
        }
    }

    fn log(&mut self, uid: &Uid, id: &ContainerId) -> Option<&mut Log> {
        self.logs.get_mut(uid)?.iter_mut().find(|log| log.id == *id)
    }

    fn by_id(&mut self, id: &ContainerId) -> Option<&mut Log> {
        self.logs.values_mut().flatten().find(|log| log.id == *id)
    }

    /// Handles the kernel's report that the log was written to since its last check.
    pub fn written(&mut self, id: &ContainerId, inputs: &mut RotationInputs<'_>) {
        if let Some(log) = self.by_id(id)
            && let RotationState::Watched { checked } = log.state
        {
            log.state = RotationState::Due(inputs.now.max(checked + inputs.policy.interval));
        }
    }

    /// Schedules a check after one interval, because the kernel cannot report writes to this log.
    pub fn not_watched(&mut self, id: &ContainerId, inputs: &mut RotationInputs<'_>) {
        if let Some(log) = self.by_id(id)
            && let RotationState::Watched { checked } = log.state
        {
            log.state = RotationState::Due(checked + inputs.policy.interval);
        }
    }

    pub fn check_due(&mut self, inputs: &mut RotationInputs<'_>) {
        for (uid, log) in self.logs.iter_mut().flat_map(|(uid, logs)| logs.iter_mut().map(move |log| (uid, log))) {
            if matches!(log.state, RotationState::Due(at) if at <= inputs.now) {
                log.state = RotationState::Measuring;
                let call = LogCall::Measure { path: log.path.clone() };
                let op = inputs.outbox.begin(Owner::Logs, |op| Effect::Log { op, call });
                self.ops.insert(op, Operation { uid: uid.clone(), id: log.id.clone(), part: Part::Check });
            }
        }
    }

    /// Handles the end of an operation. Its container may have ended meanwhile.
    pub fn answered(&mut self, op: OpId, result: Result<Answer, OpError>, inputs: &mut RotationInputs<'_>) {
        let Some(Operation { uid, id, .. }) = self.ops.remove(&op) else { return };
        let timeout = inputs.request_timeout;
        let Some(log) = self.log(&uid, &id) else { return };
        let next = match (
            std::mem::replace(&mut log.state, RotationState::Due(inputs.now + inputs.policy.interval)),
            result,
        ) {
            (RotationState::Measuring, Ok(Answer::LogSize(Some(size)))) => {
                match inputs.policy.max_size.is_some_and(|max| size >= max) {
                    true => log.state = RotationState::Queued,
                    false => log.watch(inputs),
                }
                None
            }
            (RotationState::Measuring, Ok(Answer::LogSize(None))) => Some(log.reopen(None, timeout, inputs)),
            (RotationState::Rotating, Ok(Answer::Rotated(path))) => Some(log.reopen(Some(path), timeout, inputs)),
            (RotationState::Reopening { .. }, Ok(_)) => {
                log.watch(inputs);
                None
            }
            (RotationState::Reopening { rotated }, Err(e)) => {
                log.failed(&e, inputs);
                rotated.map(|rotated| log.restore(rotated, inputs))
            }
            (RotationState::Measuring | RotationState::Rotating | RotationState::Restoring, Err(e)) => {
                log.failed(&e, inputs);
                None
            }
            _ => None,
        };
        if let Some(op) = next {
            self.ops.insert(op, Operation { uid, id, part: Part::Rotation });
        }
    }
}

impl Log {
    /// Waits for the next write to the log.
    fn watch(&mut self, inputs: &mut RotationInputs<'_>) {
        self.failed = false;
        self.state = RotationState::Watched { checked: inputs.now };
        inputs.outbox.push(Effect::WatchLog { id: self.id.clone(), path: self.path.clone() });
    }

    fn reopen(&mut self, rotated: Option<String>, timeout: Duration, inputs: &mut RotationInputs<'_>) -> OpId {
        self.state = RotationState::Reopening { rotated };
        let call = RuntimeCall::ReopenContainerLog { id: self.id.clone() };
        inputs.outbox.call_runtime(Owner::Logs, call, timeout)
    }

    fn restore(&mut self, rotated: String, inputs: &mut RotationInputs<'_>) -> OpId {
        self.state = RotationState::Restoring;
        let call = LogCall::Restore { path: self.path.clone(), rotated };
        inputs.outbox.begin(Owner::Logs, |op| Effect::Log { op, call })
    }

    /// Emits an event for the first failure in a row. A lost connection is reported elsewhere.
    fn failed(&mut self, e: &OpError, inputs: &mut RotationInputs<'_>) {
        if matches!(e, OpError::NotSent(_)) || std::mem::replace(&mut self.failed, true) {
            return;
        }
        let message = format!("failed to rotate the log {}: {e}; it grows until a rotation succeeds", self.path);
        let (pod, container) = (Some(&self.pod), Some(self.container.as_str()));
        inputs.outbox.emit_event(pod, container, Severity::Warning, Reason::FailedLogRotation, message);
    }
}
