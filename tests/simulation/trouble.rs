//! Lasting trouble: processes that cannot be killed, states unknown to the runtime, lists that fail for minutes, changed settings, and retries of rejected pods.

use crate::chance::below;
use crate::world::World;
use std::time::Duration;
use wherry::api::names::Uid;
use wherry::engine::control::Request;
use wherry::engine::event::Event;

impl World {
    /// The container's process cannot be killed for this time (ns), for example because it waits for a disk.
    pub fn hold_process(&mut self, id: &str, ns: u64) {
        if let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs() && !c.dead) {
            c.held = true;
            self.note(|| format!("    the process of {id} hangs"));
            self.free_in(id, ns);
        }
    }

    pub fn free_process(&mut self, id: &str) {
        let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.held) else { return };
        c.held = false;
        let end = c.pending_end.take();
        self.note(|| format!("    the process of {id} goes on"));
        if let Some(code) = end {
            self.exit(id, code);
        }
    }

    /// The runtime does not know the state of a running container until it is stopped.
    pub fn lose_state(&mut self, id: &str) {
        if let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs() && !c.dead) {
            c.unknown = true;
            self.note(|| format!("    the state of {id} is unknown"));
            self.look_at_stream();
        }
    }

    /// Every list fails for this time (ns).
    pub fn fail_lists(&mut self, ns: u64) {
        self.faults.lists_fail_until = self.clock.now + ns;
    }

    /// Applies other settings, as after SIGHUP.
    pub fn reload(&mut self, pick: u64) {
        if !self.process.alive {
            return;
        }
        let mut dice = wherry::engine::rng::Rng::new(pick);
        self.config.parallel_sandboxes = 1 + below(&mut dice, 4) as usize;
        self.config.parallel_containers = 1 + below(&mut dice, 4) as usize;
        self.config.parallel_reads = 1 + below(&mut dice, 4) as usize;
        self.config.parallel_pulls = 1 + below(&mut dice, 2) as usize;
        self.config.sync_frequency = Duration::from_secs([20, 60, 120][below(&mut dice, 3) as usize]);
        let config = self.config.clone();
        self.step(Event::Configure(Box::new(config)));
    }

    /// A3: a user requests a retry, for a rejected pod or any other.
    pub fn retry(&mut self, uid: Uid) {
        self.ask(Request::Retry { uid });
    }
}
