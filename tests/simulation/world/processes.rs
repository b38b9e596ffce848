//! The processes of containers: how long they live, what they do at SIGTERM, and when the runtime shows their end.

use super::{Item, Key, MS, World};
use crate::chance::{Chaos, below};
use crate::runtime::{Container, Life, end};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

#[derive(Default)]
pub struct Processes {
    /// By `pod/container`, or `*/container` for all pods: the lives of its instances in order; the last one repeats.
    pub lives: BTreeMap<String, VecDeque<Life>>,
    /// How long the runtime does not show an end, in ms.
    pub exit_lag: u64,
}

impl Processes {
    /// The life of a new instance of a container.
    pub(super) fn life_of(&mut self, c: &Container, chaos: Option<&mut Chaos>) -> Life {
        let key = format!("{}/{}", c.pod_name.name, c.name);
        let of_all = format!("*/{}", c.name);
        let key = if self.lives.contains_key(&of_all) { of_all } else { key };
        if let Some(turns) = self.lives.get_mut(&key) {
            return match turns.len() {
                0 => Life::FOREVER,
                1 => turns[0],
                _ => turns.pop_front().unwrap_or(Life::FOREVER),
            };
        }
        // An init container that never ended would block its pod for ever.
        let ends = c.pod.init_containers().iter().any(|s| s.name == c.name && !wherry::api::pod::is_sidecar(s));
        match chaos {
            Some(chaos) if !chaos.calm && ends => crate::random::short_life(chaos, &key),
            _ if ends => Life::exits(0, Duration::from_millis(200)),
            Some(chaos) => crate::random::life(chaos, &key),
            None => Life::FOREVER,
        }
    }
}

impl World {
    pub(super) fn process_begins(&mut self, id: String) {
        let Some(c) = self.runtime.containers.get(&id) else { return };
        self.checks.started(&c.clone(), &self.runtime);
        if let Some((after, code)) = self.runtime.containers.get(&id).and_then(|c| c.life.ends) {
            self.at(after.as_nanos() as u64, Item::Exit { container: id, code });
        }
    }

    /// Ends a container's process.
    pub fn exit(&mut self, id: &str, code: i32) {
        let lag = match &mut self.chaos {
            Some(c) => c.mishap("shown late: the end of", id, 250).map_or(0, |mut d| below(&mut d, 2000)),
            None => self.processes.exit_lag,
        };
        let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs() && !c.dead) else { return };
        if c.held {
            c.pending_end.get_or_insert(code);
            return;
        }
        c.dead = true;
        self.note(|| format!("    {id} ends with {code}"));
        if lag == 0 {
            self.show_exit(id, code);
        } else {
            self.at(lag * MS, Item::Shown { container: id.into(), code });
        }
        self.look_at_pidfds();
        self.look_at_stream();
    }

    pub(super) fn show_exit(&mut self, id: &str, code: i32) {
        let wall = self.wall_now();
        if let Some(c) = self.runtime.containers.get_mut(id).filter(|c| c.runs()) {
            end(c, code, wall);
        }
    }

    pub fn kill_sandbox(&mut self, id: &str) {
        if let Some(s) = self.runtime.sandboxes.get_mut(id) {
            s.ready = false;
        }
        self.note(|| format!("    sandbox {id} dies"));
        self.look_at_pidfds();
        self.look_at_stream();
    }

    /// SIGTERM now, and SIGKILL after the grace period.
    pub(super) fn terminate(&mut self, id: &str, grace: Duration, by: Key) {
        let Some(c) = self.runtime.containers.get_mut(id) else { return };
        let first = !std::mem::replace(&mut c.terminating, true);
        let on_term = c.life.on_term;
        if first && let Some((after, code)) = on_term {
            self.at(after.as_nanos() as u64, Item::Exit { container: id.into(), code });
        }
        self.at(grace.as_nanos() as u64, Item::Kill { container: id.into(), by });
    }

    /// The grace period of a stop is over.
    pub(super) fn kill_process(&mut self, container: &str, by: Key) {
        // A call that is no longer pending has no second half.
        if by.0 == self.process.life && self.connection.is_pending(by) {
            self.exit(container, 137);
        }
    }

    pub fn free_in(&mut self, container: &str, after: u64) {
        self.at(after, Item::Freed { container: container.into() });
    }
}
