//! The engine's process: its start, kill -9 at any point, and the manifests that it reads.

use super::{Item, MS, World};
use crate::chance::below;
use crate::runtime::{GivenUp, Outcome};
use wherry::engine::effect::RuntimeCall;
use wherry::engine::event::{ApiEvent, Event, LogindEvent, PodDirectory};
use wherry::engine::node::Engine;
use wherry::engine::rng::Rng;

pub struct EngineProcess {
    pub alive: bool,
    /// The number of the engine's run; each kill -9 starts the next one.
    pub life: u32,
    /// This engine has not received the desired pods yet.
    pub(super) unread: bool,
    /// The engine is killed after this number of further effects, and starts again after this time (ns).
    kill_after: Option<(u64, u64)>,
    /// The manifests are read this long after a start (ns).
    late_manifests: u64,
}

impl Default for EngineProcess {
    fn default() -> EngineProcess {
        EngineProcess { alive: true, life: 0, unread: false, kill_after: None, late_manifests: 0 }
    }
}

impl EngineProcess {
    /// Counts an effect. Returns the time until the next start (ns) if the engine is killed before it.
    pub(super) fn killed_before_effect(&mut self) -> Option<u64> {
        match &mut self.kill_after {
            Some((0, away)) => Some(*away),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        }
    }

    pub(super) fn never_killed(&mut self) {
        self.kill_after = None;
    }
}

impl World {
    /// The engine starts: it receives the records, the sources and, if the runtime is up, the connection.
    pub fn start(&mut self) {
        self.config.fixed.started = self.wall_now();
        self.new_engine();
        self.step(Event::Records(self.disk.found()));
        for (signer, in_use) in self.identity.read() {
            self.step(Event::Api(ApiEvent::Certificate(signer, in_use)));
        }
        let found = self.disk.directories.iter().map(|(uid, name)| {
            let path = format!("/pods/{uid}");
            PodDirectory { uid: uid.clone(), name: name.clone(), path }
        });
        let found = found.collect();
        self.step(Event::Directories(found));
        if self.logind.inherit() {
            self.step(Event::Logind(LogindEvent::Inherited));
        }
        if !self.config.shutdown.is_off() {
            self.logind.wanted = true;
            self.meet_logind();
        }
        let late = self.chaos.as_mut().and_then(|c| c.mishap("manifests are read late", "", 500));
        match self.process.late_manifests {
            _ if late.is_some() => {}
            0 => self.read_manifests(),
            after => self.at(after, Item::Manifests { life: self.process.life }),
        }
        if self.connection.up {
            self.step(Event::RuntimeUp);
        }
        if self.chaos.is_some() {
            self.plugins_register_again();
        }
        if let Some(mut dice) = late {
            let life = self.process.life;
            self.at(below(&mut dice, 3000) * MS, Item::Manifests { life });
        }
    }

    fn new_engine(&mut self) {
        self.engine = Engine::new(self.config.clone());
    }

    /// The engine's process starts again after this time (ns).
    pub fn start_in(&mut self, after: u64) {
        let life = self.process.life;
        self.at(after, Item::Start { life });
    }

    /// Kills the engine after this number of further effects, perhaps in the middle of a step; it starts again after `away` (ns).
    pub fn kill_after(&mut self, effects: u64, away: u64) {
        self.process.kill_after = Some((effects, away));
    }

    /// The manifests are read this long (ns) after each following start.
    pub fn manifests_take(&mut self, ns: u64) {
        self.process.late_manifests = ns;
    }

    pub fn restart_engine(&mut self) {
        self.kill_engine();
        self.start();
    }

    pub fn read_manifests(&mut self) {
        if !self.process.alive {
            return;
        }
        // Requests to an earlier engine that it did not record are void once this one receives the desired pods.
        if std::mem::take(&mut self.process.unread) {
            let before = self.manifests.in_force.clone();
            self.find_unfinished();
            self.other_versions_are_in_force(&before);
            self.checks.engine_starts(&self.manifests.in_force, &self.disk.records, &self.runtime);
            self.manifests.forget_precedence();
        }
        self.send_manifests();
    }

    /// Kills the engine with kill -9. Calls in flight may or may not take effect, and records in flight
    /// may or may not be written.
    pub fn kill_engine(&mut self) {
        self.note(|| "--- the engine is killed".into());
        self.process.alive = false;
        self.process.unread = true;
        self.process.kill_after = None;
        self.logind.process_dies();
        self.logind.wanted = false;
        self.process.life += 1;
        self.observed.engine_killed();
        self.users_are_disconnected();
        self.clients.disconnect();
        self.planned = None;
        self.pidfds.close();
        self.host.watched = false;
        self.logs.engine_killed();
        self.connection.forget_pending();
        self.api_disconnected();
        self.handlers.probing.clear();
        let given_up = self.lose_what_is_in_flight();
        let now = self.wall_now();
        for (call, mut dice) in given_up {
            match &call {
                RuntimeCall::StartContainer { .. } if !self.runtime.personality.cancels_starts() => {
                    self.complete_start(&call);
                }
                RuntimeCall::StartContainer { id } => {
                    let how = [GivenUp::InTheShim, GivenUp::BeforeTheShim][below(&mut dice, 2) as usize];
                    self.runtime.give_up_start(id.as_str(), how, now);
                }
                _ => self.give_up_sandbox(&call, below(&mut dice, 10_000) * MS),
            }
        }
        self.config.fixed.seed += 1;
        self.new_engine();
        let before = std::mem::take(&mut self.manifests.in_force);
        self.manifests.engine_killed(&self.files);
        self.other_versions_are_in_force(&before);
        self.checks.engine_killed(&self.runtime, &self.disk.records);
    }

    /// Removes the calls and the records in flight that the kill prevents, and writes the other records. Returns the lost calls
    /// that the runtime gives up halfway.
    fn lose_what_is_in_flight(&mut self) -> Vec<(RuntimeCall, Rng)> {
        let (mut kept, mut kept_manifests, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
        let World { queue, checks, chaos, connection, process, .. } = self;
        let mut lost_by_the_kill = |what: &str| chaos.as_mut().and_then(|c| c.mishap(what, "", 500));
        queue.retain(|item| match item {
            Item::Act { .. } if checks.strict => false,
            Item::Act { key } if lost_by_the_kill("lost by the kill").is_some() => {
                // A call of an earlier engine can no longer be cancelled; otherwise its name would still be taken.
                if let Some(call) = connection.start_in_flight(*key).filter(|_| key.0 == process.life)
                    && let Some(dice) = lost_by_the_kill("given up by the kill")
                {
                    given_up.push((call.clone(), dice));
                }
                false
            }
            Item::Record { change, .. } => {
                if lost_by_the_kill("lost by the kill").is_none() {
                    kept.push(change.clone());
                }
                false
            }
            Item::ManifestRecords { updates, .. } => {
                let stored =
                    if lost_by_the_kill("lost by the kill").is_none() { updates.len() } else { updates.len() / 2 };
                kept_manifests.extend(updates.iter().take(stored).cloned());
                false
            }
            _ => true,
        });
        self.keep_manifest_records(kept_manifests.into_iter());
        kept.into_iter().for_each(|change| self.disk.keep(self.clock.now, change));
        given_up
    }

    /// A start whose caller is gone takes effect.
    fn complete_start(&mut self, call: &RuntimeCall) {
        let wall = self.wall_now();
        let World { runtime, processes, chaos, .. } = self;
        if let Outcome::Started(id, _) = runtime.call(call, wall, |c| processes.life_of(c, chaos.as_mut())) {
            self.process_begins(id);
        }
    }

    pub(super) fn starts_again(&mut self, life: u32) {
        if life == self.process.life && !self.process.alive {
            self.start();
        }
    }
}
