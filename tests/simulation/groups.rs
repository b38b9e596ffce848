//! S4: the groups of pods end in their order, each within its time, and nothing of a group that has begun is started.

use crate::runtime::Container;
use crate::world::{S, World};
use wherry::api::names::Uid;
use wherry::api::time::Boot;
use wherry::engine::effect::{Notice, RuntimeCall};

impl World {
    /// S4: no container of a group that has begun is started.
    pub fn no_start_in_a_shutdown(&mut self, call: &RuntimeCall) {
        let uid = match call {
            RuntimeCall::RunSandbox { pod, .. } => &pod.uid,
            RuntimeCall::CreateContainer(c) => &c.pod.uid,
            RuntimeCall::StartContainer { id } => match self.runtime.containers.get(id.as_str()) {
                Some(c) => &c.uid,
                None => return,
            },
            _ => return,
        };
        let Some(progress) = self.engine.shutdown(Boot(self.clock.now)).in_progress else { return };
        let group = self.group_of(uid);
        let begun = progress.group.map_or(usize::MAX, |p| self.config.shutdown.index_of(p));
        if group.is_some_and(|g| g <= begun) {
            let text = self.runtime.text_of(call);
            self.checks.fail("S4: nothing of a group that has begun is started", text);
        }
    }

    /// S4: no pod of a later group is killed before the earlier group is done or out of time.
    pub fn groups_end_in_turn(&mut self, notice: &Notice) {
        let view = self.engine.shutdown(Boot(self.clock.now));
        let (Some(pod), Some(progress)) = (notice.subject.pod(), view.in_progress) else { return };
        // Without a lock no group has time. False lists may hide running containers.
        let lies = self.chaos.as_ref().is_some_and(|c| c.lies > 0);
        let Some(group) = self.group_of(&pod.uid).filter(|_| self.logind.locked() && !lies) else { return };
        self.logind.groups.entry(group).or_insert(self.clock.now);
        let granted = |g: usize| view.groups.get(g).and_then(|g| g.granted_seconds).unwrap_or(0) * S;
        let planned = |g: usize| (0..=g).map(granted).sum::<u64>() as f64 / S as f64;
        let in_time = |g: usize| {
            self.logind.groups.get(&g).is_some_and(|at| self.clock.now < at + granted(g))
                && progress.since_seconds + 0.001 < planned(g)
        };
        let earlier =
            |c: &&Container| c.runs() && !c.dead && self.group_of(&c.uid).is_some_and(|g| g < group && in_time(g));
        let ours = |c: &&Container| c.owner.as_ref() == Some(&self.runtime.owner);
        if let Some(c) = self.runtime.containers.values().filter(ours).find(earlier) {
            let what = format!("{} runs when {} is killed after {:.1}s", c.id, pod.uid, progress.since_seconds);
            self.checks.fail("S4: groups end in their order", what);
        }
    }

    /// Called when the maximum delay of a shutdown is over.
    pub fn lock_is_released_in_time(&mut self, since: u64) {
        let on = self.logind.preparing == Some((since, true)) && self.process.alive && self.logind.locked();
        let view = self.engine.shutdown(Boot(self.clock.now));
        // If the record was lost with an earlier engine, the shutdown starts from the beginning.
        let sum = view.needed_seconds as f64;
        if on && view.in_progress.is_some_and(|p| !p.released && p.since_seconds > sum + 0.5) {
            self.checks.fail("S4: the lock is released in time", "it is held longer than the periods' sum".into());
        }
    }

    /// The group of a pod that the engine knows.
    fn group_of(&self, uid: &Uid) -> Option<usize> {
        let view = self.engine.pod(uid)?;
        Some(self.config.shutdown.index_of(wherry::api::priority::of(view.pod.spec())))
    }
}
