//! Rounds of stops: each running container is asked to stop once; a status read after the last answer tells which of them
//! run still, and those are asked again after a back-off (W2). A shorter period sends a second stop beside one that is in
//! flight (W4).

use super::{Beside, Worker};
use crate::api::names::ContainerId;
use crate::api::time::Boot;
use crate::engine::context::Context;
use crate::engine::effect::{RuntimeCall, Severity};
use crate::engine::pleg::cache::Entry;
use std::collections::BTreeMap;
use std::time::Duration;

/// W4: the runtime gets at least so long for a stop.
const SHORTEST_STOP: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Stops {
    /// Asked in this round, and by when they are to be dead.
    asked: BTreeMap<ContainerId, Boot>,
    /// Rounds that left something running.
    rounds: u32,
    retry_at: Option<Boot>,
}

impl Stops {
    /// Nothing runs that should not.
    pub fn over(&mut self) {
        *self = Stops::default();
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

    /// Has `running` stopped by `cut`; called again and again until they have.
    pub(super) fn stop_all(&mut self, running: &[ContainerId], cut: Boot, entry: &Entry, ctx: &mut Context<'_>) {
        let stopping = self.stopping();
        // A status read after the last answer shows that they run still.
        if !stopping && entry.usable() && running.iter().any(|id| self.stops.asked.contains_key(id)) {
            self.stops.asked.clear();
            self.stops.retry_at = Some(ctx.now.boot + retry_after(self.stops.rounds, ctx));
            self.stops.rounds = self.stops.rounds.saturating_add(1);
        }
        if let Some(at) = self.stops.retry_at.filter(|at| *at > ctx.now.boot) {
            return self.wake_at(at);
        }
        for id in running {
            let in_flight = self.beside.values().any(|b| matches!(b, Beside::Stop { id: i } if i == id));
            match self.stops.asked.get(id) {
                Some(by) if *by <= cut || !in_flight => {}
                _ => self.stop_container(id, cut, entry, ctx),
            }
        }
    }

    fn stop_container(&mut self, id: &ContainerId, cut: Boot, entry: &Entry, ctx: &mut Context<'_>) {
        if self.stops.rounds == 0
            && !self.stops.asked.contains_key(id)
            && let Some(c) = entry.facts().containers.iter().find(|c| c.id == *id)
        {
            let message = format!("Stopping container {}", c.name);
            ctx.tell(self.pod.as_ref(), Some(&c.name), (Severity::Normal, "Killing"), message);
        }
        self.stops.asked.insert(id.clone(), cut);
        // The CRI counts in whole seconds.
        let left = cut.since(ctx.now.boot) + Duration::from_millis(500);
        let grace = Duration::from_secs(left.as_secs()).max(SHORTEST_STOP);
        let op = ctx.runtime(&self.uid, RuntimeCall::StopContainer { id: id.clone(), grace });
        self.beside.insert(op, Beside::Stop { id: id.clone() });
    }
}
