//! The virtual clock and the engine's timers. Time passes only from one event of the queue to the next.

use super::{Item, MS, S, World};
use std::collections::BTreeMap;
use wherry::api::time::{Boot, Now, Wall};
use wherry::engine::effect::TimerKey;
use wherry::engine::event::Event;

/// The boot clock when a world begins (ns).
const START: u64 = 1000 * S;

pub struct Clock {
    /// The boot clock in nanoseconds.
    pub now: u64,
    /// The wall clock minus the boot clock, in nanoseconds.
    wall: i64,
    /// The machine was suspended, so operations in flight ended later than they otherwise could.
    pub slept: bool,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { now: START, wall: 1_800_000_000 * S as i64, slept: false }
    }
}

impl Clock {
    pub fn wall_now(&self) -> Wall {
        Wall(self.wall + self.now as i64)
    }

    pub fn time(&self) -> Now {
        Now { boot: Boot(self.now), wall: self.wall_now() }
    }

    /// The time since the world began (ns).
    pub fn since_start(&self) -> u64 {
        self.now - START
    }
}

/// The timers that the engine has set, with their due times (ns).
#[derive(Default)]
pub struct Timers(BTreeMap<TimerKey, u64>);

impl Timers {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes the timer if it is still due at that time.
    fn expire(&mut self, key: &TimerKey, at: u64) -> bool {
        let due = self.0.get(key) == Some(&at);
        if due {
            self.0.remove(key);
        }
        due
    }
}

impl World {
    /// Moves the wall clock by this number of nanoseconds.
    pub fn set_clock(&mut self, by: i64) {
        self.clock.wall = self.clock.wall.saturating_add(by);
        self.checks.clock_was_set();
    }

    /// Suspends the machine for this time (ns). On wake-up timers and deadlines expire at once; everything else continues.
    pub fn sleep(&mut self, ns: u64) {
        self.clock.slept = true;
        self.clock.now += ns;
        self.queue.delay(ns, |item| !matches!(item, Item::Timer { .. } | Item::Deadline { .. }));
        self.api.delay_lines(ns);
    }

    pub fn run_ms(&mut self, ms: u64) {
        let end = self.clock.now + ms * MS;
        while self.happen(end) {}
        self.clock.now = end;
    }

    pub fn run(&mut self, seconds: u64) {
        self.run_ms(seconds * 1000);
    }

    /// Handles the next event that is due by `end`.
    pub fn happen(&mut self, end: u64) -> bool {
        if self.checks.violation.is_some() {
            return false;
        }
        let Some((at, item)) = self.queue.pop(end) else { return false };
        self.clock.now = self.clock.now.max(at);
        self.item(item);
        true
    }

    /// Sets or removes a timer of the engine.
    pub(super) fn set_timer(&mut self, key: TimerKey, at: Option<Boot>) {
        self.note(|| format!("  < timer {key:?} {:?}", at.map(|a| a.0.saturating_sub(START) / MS)));
        match at {
            None => drop(self.timers.0.remove(&key)),
            Some(Boot(at)) => {
                self.timers.0.insert(key.clone(), at);
                let after = at.saturating_sub(self.clock.now);
                self.at(after, Item::Timer { life: self.process.life, key, at });
            }
        }
    }

    pub(super) fn timer_is_due(&mut self, life: u32, key: TimerKey, at: u64) {
        if life == self.process.life && self.timers.expire(&key, at) {
            self.step(Event::Timer(key));
        }
    }

    /// The due times of the pods' timers (ns).
    pub fn pod_timers(&self) -> Vec<(TimerKey, u64)> {
        let of_pods = self.timers.0.iter().filter(|(key, _)| matches!(key, TimerKey::Pod(_)));
        of_pods.map(|(key, at)| (key.clone(), *at)).collect()
    }

    pub fn timers(&self) -> Vec<TimerKey> {
        self.timers.0.keys().cloned().collect()
    }
}
