//! The termination messages of ended containers. They are read while the containers' files still exist.

use super::ops::{BackgroundOp, Operations};
use super::timer::Timer;
use crate::api::facts::{ContainerFact, ContainerState};
use crate::api::names::{ContainerId, Uid};
use crate::api::time::Wall;
use crate::engine::context::Context;
use crate::engine::effect::FilesCall;
use crate::engine::pleg::cache::Entry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the runtime may still write to the log after a container has ended. This usually takes a moment, and
/// longer on a busy machine.
const LOG_SETTLES: Duration = Duration::from_millis(200);

/// The messages by container ID. A message is empty while it is being read.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct TerminationMessages(BTreeMap<ContainerId, String>);

impl TerminationMessages {
    pub fn all(&self) -> &BTreeMap<ContainerId, String> {
        &self.0
    }

    /// Returns true if the container has ended, and its message has not been requested yet.
    pub fn lack(&self, c: &ContainerFact) -> bool {
        c.state == ContainerState::Exited && !self.0.contains_key(&c.id)
    }

    pub fn insert(&mut self, id: ContainerId, message: String) {
        self.0.insert(id, message);
    }

    /// Drops the messages of containers that no longer exist.
    pub fn forget_gone(&mut self, containers: &[ContainerFact]) {
        self.0.retain(|id, _| containers.iter().any(|c| c.id == *id));
    }

    /// Reads the termination message of each ended container once.
    pub fn read(&mut self, uid: &Uid, ops: &mut Operations, timer: &mut Timer, entry: &Entry, ctx: &mut Context<'_>) {
        for c in entry.facts().containers.iter().filter(|c| c.state == ContainerState::Exited) {
            if self.0.contains_key(&c.id) {
                continue;
            }
            if let Some(left) = log_settles(c, ctx.now.wall) {
                timer.wake_at(ctx.now.boot + left);
                continue;
            }
            self.0.insert(c.id.clone(), String::new());
            let call = FilesCall::ReadTermination {
                id: c.id.clone(),
                termination_file: c.termination_file.clone(),
                log_path: c.log_path.clone(),
                fallback_to_logs: c.fallback_to_logs,
                exit_code: c.exit_code,
            };
            let op = ctx.files(uid, call);
            ops.start_background(op, BackgroundOp::Message { id: c.id.clone() });
        }
    }
}

/// Returns how long to wait for the last log lines of a container, if its message comes from the log. containerd 1.6
/// to 1.7 reports the end of a container when these lines have reached the log writer, but perhaps not the file.
fn log_settles(c: &ContainerFact, now: Wall) -> Option<Duration> {
    let wanted = c.fallback_to_logs && c.exit_code != 0;
    // If the end is in the future, the clock was set back, and the time since the end is unknown. In that case do not
    // wait.
    let left = LOG_SETTLES.checked_sub(now.since(c.finished_at)).filter(|left| !left.is_zero());
    left.filter(|_| wanted && c.finished_at <= now)
}
