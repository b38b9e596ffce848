//! Terminating: stops every container and the sandbox, again and again, until a status read after the last call shows
//! that none runs (W2, W4). Terminated: the cgroup goes.

use super::{Beside, Doing, State, Terminating, Worker};
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{FilesCall, RuntimeCall, Severity};
use crate::engine::pleg::cache::Entry;
use std::collections::BTreeSet;
use std::time::Duration;

/// W4: the runtime gets at least so long for a stop.
const SHORTEST_STOP: Duration = Duration::from_secs(2);
/// W4: no grace period is shorter.
const SHORTEST_GRACE: Duration = Duration::from_secs(1);
/// W2: after so many failed tries a sandbox holds nothing up any more.
const SANDBOX_TRIES: u32 = 5;
const LONGEST_RETRY: Duration = Duration::from_secs(10);

impl Terminating {
    pub(super) fn new(began: Boot, grace: Duration) -> Terminating {
        Terminating {
            began,
            cut: began + grace.max(SHORTEST_GRACE),
            rounds: 0,
            asked: BTreeSet::new(),
            sandbox_tries: 0,
            retry_at: None,
        }
    }

    pub(super) fn shrink(&mut self, grace: Duration) {
        self.cut = self.cut.min(self.began + grace.max(SHORTEST_GRACE));
    }
}

/// 0.5, 1, 2 ... 10 s, and jitter.
pub(super) fn retry_after(tries: u32, ctx: &mut Context<'_>) -> Duration {
    let d = Duration::from_millis(500).saturating_mul(1 << tries.min(5)).min(LONGEST_RETRY);
    ctx.rng.jitter(d)
}

impl Worker {
    pub(super) fn stopping(&self) -> bool {
        self.beside.values().any(|b| matches!(b, Beside::Stop { .. }))
    }

    /// A stop that ends by `cut`; none if one that is at least as short is in flight.
    pub(super) fn stop_container(&mut self, id: ContainerId, cut: Boot, entry: &Entry, ctx: &mut Context<'_>) {
        let asked = self.beside.values().any(|b| matches!(b, Beside::Stop { id: i, cut: c } if *i == id && *c <= cut));
        if asked {
            return;
        }
        if let Some(name) = entry.facts().containers.iter().find(|c| c.id == id).map(|c| c.name.clone()) {
            let message = format!("Stopping container {name}");
            ctx.tell(self.pod.as_ref(), Some(&name), (Severity::Normal, "Killing"), message);
        }
        let grace = cut.since(ctx.now.boot).max(SHORTEST_STOP);
        let op = ctx.runtime(&self.uid, RuntimeCall::StopContainer { id: id.clone(), grace });
        self.beside.insert(op, Beside::Stop { id, cut });
    }

    pub(super) fn step_terminating(&mut self, entry: &mut Entry, ctx: &mut Context<'_>) {
        let State::Terminating(t) = &self.state else { return };
        let (cut, retry_at) = (t.cut, t.retry_at);
        if !entry.known() {
            return;
        }
        if let Some(at) = retry_at.filter(|at| *at > ctx.now.boot) {
            self.wake_at(at);
            // A period that shrank is acted on at once all the same (W4).
            if !self.stopping() {
                return;
            }
        }
        // Stops do not wait for a cancelled call, nor for a status read under way.
        if self.stopping() || entry.usable() {
            let running: Vec<ContainerId> = entry.running().map(|c| c.id.clone()).collect();
            if !running.is_empty() {
                if !self.stopping() && self.back_off_after_a_round(ctx) {
                    return;
                }
                for id in running {
                    // One that was answered while others still stop may have ended since the last look: it waits for the next
                    // round.
                    let in_flight = self.beside.values().any(|b| matches!(b, Beside::Stop { id: i, .. } if *i == id));
                    let first = match &mut self.state {
                        State::Terminating(t) => t.asked.insert(id.clone()),
                        _ => false,
                    };
                    if first || in_flight {
                        self.stop_container(id, cut, entry, ctx);
                    }
                }
                return;
            }
        }
        if self.op.is_some() || self.stopping() || !entry.usable() {
            return;
        }
        let tries = match &self.state {
            State::Terminating(t) => t.sandbox_tries,
            _ => 0,
        };
        let sandbox = entry.facts().sandboxes.iter().find(|s| s.ready || !self.stopped.contains(&s.id));
        if let Some(sandbox) = sandbox
            && tries < SANDBOX_TRIES
        {
            let id = sandbox.id.clone();
            let op = ctx.runtime(&self.uid, RuntimeCall::StopSandbox { id: id.clone() });
            self.op = Some((op, Doing::StopSandbox { id }));
            return;
        }
        self.state = State::Terminated;
    }

    /// A round of stops left something running: the next one waits. True while it does.
    fn back_off_after_a_round(&mut self, ctx: &mut Context<'_>) -> bool {
        let State::Terminating(t) = &mut self.state else { return false };
        if t.asked.is_empty() {
            return false;
        }
        t.asked.clear();
        let tries = t.rounds;
        t.rounds += 1;
        let at = ctx.now.boot + retry_after(tries, ctx);
        if let State::Terminating(t) = &mut self.state {
            t.retry_at = Some(at);
        }
        self.wake_at(at);
        true
    }

    /// A sandbox could not be stopped.
    pub(super) fn sandbox_stop_failed(&mut self, ctx: &mut Context<'_>) {
        if let State::Terminating(t) = &mut self.state {
            let tries = t.sandbox_tries;
            t.sandbox_tries += 1;
            t.retry_at = Some(ctx.now.boot + retry_after(tries, ctx));
        }
    }

    pub(super) fn step_terminated(&mut self, ctx: &mut Context<'_>) {
        if !self.cgroup_tried {
            self.cgroup_tried = true;
            let op = ctx.files(&self.uid, FilesCall::RemoveCgroup { uid: self.uid.clone() });
            self.beside.insert(op, Beside::RemoveCgroup);
        }
        if !self.beside.values().any(|b| matches!(b, Beside::RemoveCgroup)) {
            self.state = State::Finished;
        }
    }
}
