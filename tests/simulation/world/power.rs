//! Power, logind and systemd's descriptor store: shutdowns, reboots, power failures, and a bus that comes and goes.

use super::{Item, Key, MS, S, World};
use crate::chance::below;
use crate::logind::Trouble;
use crate::runtime::{Container, end};
use std::time::Duration;
use wherry::engine::effect::LogindCall;
use wherry::engine::event::{Event, LogindEvent};
use wherry::engine::node::Engine;
use wherry::engine::op::{Code, OpError, OpId};

impl World {
    /// The events about logind when the engine starts.
    pub(super) fn meet_logind(&mut self) {
        if !self.logind.wanted {
            return;
        }
        let life = self.process.life;
        let event = match self.logind.up {
            true => LogindEvent::Up,
            false => LogindEvent::Down { why: "no bus".into() },
        };
        self.at(MS, Item::Event { life, event: Event::Logind(event) });
    }

    fn signal(&mut self, preparing: bool) {
        self.note(|| format!("--- PrepareForShutdown({preparing})"));
        if self.process.alive && self.logind.up && self.logind.subscribed == Some(self.process.life) {
            let life = self.process.life;
            self.at(MS / 10, Item::Event { life, event: Event::Logind(LogindEvent::Preparing(preparing)) });
        }
    }

    /// `systemctl poweroff`.
    pub fn power_off(&mut self) {
        if self.logind.preparing.is_some() || !self.logind.up {
            return;
        }
        let (since, locked) = (self.clock.now, self.logind.locked());
        self.logind.preparing = Some((since, locked));
        self.logind.groups.clear();
        self.signal(true);
        let sum = self.config.shutdown.sum().as_nanos() as u64;
        self.at(sum + S, Item::LockDue { since });
    }

    pub fn call_off(&mut self) {
        if self.logind.preparing.take().is_some() {
            self.signal(false);
        }
    }

    /// The bus goes away or comes back.
    pub fn bus(&mut self, up: bool) {
        if self.logind.up == up || !self.logind.wanted {
            return;
        }
        self.logind.up = up;
        self.logind.subscribed = None;
        self.note(|| format!("--- the bus is {}", if up { "back" } else { "gone" }));
        if self.process.alive {
            self.meet_logind();
        }
    }

    /// Starts a problem with logind.
    pub fn logind_trouble(&mut self, trouble: Trouble) {
        self.logind.trouble(trouble);
        let restarts = matches!(trouble, Trouble::Lost | Trouble::LostInShutdown);
        if restarts && self.logind.up {
            self.bus(false);
            self.bus(true);
        }
    }

    /// The node reboots: nothing runs, and the boot id changes.
    pub fn reboot(&mut self, away: u64) {
        self.kill_engine();
        self.runtime.cgroups.clear();
        self.runtime.reserved.clear();
        self.queue.retain(|item| !matches!(item, Item::LateCgroup { .. }));
        self.note(|| "--- the node boots".into());
        self.logind.boots();
        let wall = self.wall_now();
        let ours = |c: &&Container| c.runs() && c.owner.as_ref() == Some(&self.runtime.owner);
        let ids: Vec<String> = self.runtime.containers.values().filter(ours).map(|c| c.id.clone()).collect();
        for id in ids {
            if let Some(c) = self.runtime.containers.get_mut(&id) {
                c.dead = true;
                (c.held, c.pending_end) = (false, None);
                end(c, 255, wall);
            }
        }
        let ours = self.runtime.owner.clone();
        let sandboxes = self.runtime.sandboxes.values_mut().filter(|s| s.owner.as_ref() == Some(&ours));
        sandboxes.for_each(|s| s.ready = false);
        self.flush_rules();
        self.config.fixed.boot_id.push('+');
        self.engine = Engine::new(self.config.clone());
        self.start_in(away);
    }

    /// A power failure. The disk has lost some of the writes that it acknowledged recently.
    pub fn power_cut(&mut self, away: u64) {
        self.lose_writes();
        self.empty_network_results();
        self.reboot(away);
    }

    /// The engine calls logind.
    pub(super) fn logind_call(&mut self, op: OpId, call: LogindCall, timeout: Duration) {
        self.note(|| format!("  < {op} {call:?}"));
        self.begin(op);
        let key = (self.process.life, op);
        let late = self.chaos.as_mut().and_then(|c| c.mishap("logind is slow", "", 60));
        let after = late.map_or(MS / 2, |mut dice| below(&mut dice, 4000) * MS);
        let after = if self.logind.silent { timeout.as_nanos() as u64 } else { self.logind.slow.unwrap_or(after) };
        self.at(after, Item::Logind { key, call });
    }

    /// logind carries out a call and answers.
    pub(super) fn logind_acts(&mut self, key: Key, call: &LogindCall) {
        // A process that has ended sends no requests.
        if key.0 != self.process.life {
            return;
        }
        let result = match self.goes_wrong("logind says no to", &format!("{call:?}"), 4) {
            true => Err(OpError::Answered { code: Code::Other(2), message: "no such unit".into() }),
            false => self.logind.call(self.process.life, call),
        };
        self.finish(key, result);
    }

    pub(super) fn store_lock(&mut self, op: OpId) {
        self.note(|| format!("  < {op} the store"));
        self.begin(op);
        let wrong = self.goes_wrong("systemd does not read", "what it is to keep", 4);
        let result = match wrong {
            true => Err(OpError::Answered { code: Code::Other(2), message: "systemd is busy".into() }),
            false => self.logind.store(),
        };
        self.at(MS / 10, Item::Answer { key: (self.process.life, op), result });
    }

    pub(super) fn use_logind(&mut self, wanted: bool) {
        if std::mem::replace(&mut self.logind.wanted, wanted) != wanted {
            self.note(|| format!("  < use logind: {wanted}"));
            self.logind.subscribed = None;
            self.meet_logind();
        }
    }
}
