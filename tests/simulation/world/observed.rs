//! What the engine did, for the assertions of stories, and the bounds on the number of its effects.

use super::{S, World};
use wherry::engine::effect::{ContainerEnd, Measure, Notice};
use wherry::engine::pod::kill::KillId;

#[derive(Default)]
pub struct Observed {
    /// The changing calls as the engine requested them: (time, text).
    pub calls: Vec<(u64, String)>,
    /// The steps of resizes: `container`, and `cgroup` with the sum of the pod's requests of cpu.
    pub resizes: Vec<String>,
    pub notices: Vec<(u64, Notice)>,
    pub measures: Vec<Measure>,
    /// The ends of containers that this engine has reported, with the number of notices before each.
    pub ends: Vec<(usize, ContainerEnd)>,
    /// Kills that were answered.
    pub killed: Vec<KillId>,
    /// Kills that were requested.
    pub kills: u64,
    /// Kills requested from earlier engines.
    pub kills_before: u64,
    /// The number of changing calls.
    pub changing_calls: u64,
    pub published: u64,
    pub reads: u64,
    pub lists: u64,
    pub steps: u64,
    /// The number of times that the engine was woken.
    pub wake_ups: u64,
    last_step: u64,
    /// The number of steps since `last_step`.
    steps_now: u64,
    /// The current minute, and the number of effects in it.
    minute: (u64, u64),
}

impl Observed {
    /// A later engine does not answer earlier kills.
    pub fn engine_killed(&mut self) {
        self.killed.clear();
        self.ends.clear();
        self.kills_before = self.kills;
    }

    /// Counts a step at this time. Returns the number of steps at this time.
    pub fn step(&mut self, now: u64) -> u64 {
        self.steps += 1;
        if self.last_step != now {
            self.wake_ups += 1;
            self.last_step = now;
            self.steps_now = 0;
        }
        self.steps_now += 1;
        self.steps_now
    }

    /// Counts the effects of a step. Returns the number of effects in the current minute.
    fn effects(&mut self, effects: u64, now: u64) -> u64 {
        if self.minute.0 != now / (60 * S) {
            self.minute = (now / (60 * S), 0);
        }
        self.minute.1 += effects;
        self.minute.1
    }
}

impl World {
    /// The number of effects is bounded, per step and per minute.
    pub(super) fn count(&mut self, effects: u64) {
        let n = self.observed.effects(effects, self.clock.now);
        let (many, long) = (effects > 20, self.chaos.is_some() && n > 1500);
        // Counting the pods is slow.
        if !many && !long {
            return;
        }
        let pods = (self.engine.pods().len() + self.runtime.sandboxes.len() + self.runtime.containers.len()) as u64;
        if effects > 20 + 10 * pods {
            self.checks.fail("effects are bounded", format!("{effects} in one step, of {pods} pods and their parts"));
        }
        if long && n > 1500 + 200 * pods {
            self.checks.fail("effects are bounded", format!("{n} in one minute, of {pods} pods and their parts"));
        }
    }
}
