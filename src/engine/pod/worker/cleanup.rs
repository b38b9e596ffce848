//! What is left of a pod: dead containers beyond those kept for their logs while it lives, and everything once it is over
//! and nobody desires it any more (W23, W26). Also the termination messages, read while their files are there.

use super::{Beside, Record, State, Worker};
use crate::api::facts::ContainerState;
use crate::engine::context::Context;
use crate::engine::effect::{FilesCall, RecordChange, RuntimeCall};
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::{plan, record};

impl Worker {
    /// W26: in the background, never in anybody's way.
    pub(super) fn clear_away(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        for c in plan::superfluous(entry.facts()) {
            let asked = self.beside.values().any(|b| matches!(b, Beside::RemoveContainer { id, .. } if *id == c.id));
            if !asked {
                let op = ctx.runtime(&self.uid, RuntimeCall::RemoveContainer { id: c.id.clone() });
                self.beside.insert(op, Beside::RemoveContainer { id: c.id.clone(), log_path: c.log_path.clone() });
            }
        }
        for id in plan::superfluous_sandboxes(entry.facts()) {
            if self.stopped.contains(&id) {
                self.remove_sandbox(id, ctx);
            }
        }
    }

    fn remove_sandbox(&mut self, id: crate::api::names::SandboxId, ctx: &mut Context<'_>) {
        let asked = self.beside.values().any(|b| matches!(b, Beside::RemoveSandbox { id: i } if *i == id));
        if !asked {
            let op = ctx.runtime(&self.uid, RuntimeCall::RemoveSandbox { id: id.clone() });
            self.beside.insert(op, Beside::RemoveSandbox { id });
        }
    }

    /// Finished: kept for its status and logs while desired (W23), else taken away to the last file.
    pub(super) fn step_finished(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        if self.desired && self.restart.is_none() {
            return;
        }
        if let Some(at) = self.retry_at.filter(|at| *at > ctx.now.boot) {
            return self.wake_at(at);
        }
        // A pod that waited to the end has nothing anywhere, or what the status says.
        if !entry.usable() {
            return;
        }
        let facts = entry.facts().clone();
        for s in &facts.sandboxes {
            self.remove_sandbox(s.id.clone(), ctx);
        }
        // A sandbox takes its containers along; these have none left.
        for c in facts.containers.iter().filter(|c| !facts.sandboxes.iter().any(|s| s.id == c.sandbox)) {
            let asked = self.beside.values().any(|b| matches!(b, Beside::RemoveContainer { id, .. } if *id == c.id));
            if !asked {
                let op = ctx.runtime(&self.uid, RuntimeCall::RemoveContainer { id: c.id.clone() });
                self.beside.insert(op, Beside::RemoveContainer { id: c.id.clone(), log_path: c.log_path.clone() });
            }
        }
        if !facts.sandboxes.is_empty() || !facts.containers.is_empty() || !self.beside.is_empty() {
            return;
        }
        if !self.files_removed {
            let (namespace, name) = (self.name.namespace.clone(), self.name.name.clone());
            let op = ctx.files(&self.uid, FilesCall::RemovePod { uid: self.uid.clone(), namespace, name });
            self.beside.insert(op, Beside::RemovePodFiles);
        } else if self.record != Record::None && !self.record_removed {
            // Not waited for: a record that stays behind is of a pod without anything, and goes at the next start.
            self.record_removed = true;
            let op = ctx.record(&self.uid, RecordChange::Delete { key: record::key(&self.uid) });
            self.beside.insert(op, Beside::Other);
        } else {
            self.state = State::Forgotten;
        }
    }

    /// The termination messages of containers that ended, once each.
    pub(super) fn read_messages(&mut self, entry: &Entry, ctx: &mut Context<'_>) {
        if self.pod.is_none() {
            return;
        }
        let facts = entry.facts();
        self.messages.retain(|id, _| facts.containers.iter().any(|c| c.id == *id));
        self.start_errors.retain(|id, _| facts.containers.iter().any(|c| c.id == *id));
        for c in facts.containers.iter().filter(|c| c.state == ContainerState::Exited) {
            if self.messages.contains_key(&c.id) {
                continue;
            }
            self.messages.insert(c.id.clone(), String::new());
            let call = FilesCall::ReadTermination {
                id: c.id.clone(),
                termination_file: c.termination_file.clone(),
                log_path: c.log_path.clone(),
                fallback_to_logs: c.fallback_to_logs,
                exit_code: c.exit_code,
            };
            let op = ctx.files(&self.uid, call);
            self.beside.insert(op, Beside::Message { id: c.id.clone() });
        }
    }
}
