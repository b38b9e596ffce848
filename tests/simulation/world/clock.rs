//! The virtual clock and the engine's deadlines. Time passes only from one event of the queue to the next.

use super::{Item, MS, S, World};
use wherry::api::names::Uid;
use wherry::api::time::{Boot, Now, Wall};
use wherry::engine::event::Event;
use wherry::engine::node::Due;

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

impl World {
    /// Moves the wall clock by this number of nanoseconds.
    pub fn set_clock(&mut self, by: i64) {
        self.clock.wall = self.clock.wall.saturating_add(by);
        self.checks.clock_was_set();
    }

    /// Suspends the machine for this time (ns). On wake-up deadlines expire at once; everything else continues.
    pub fn sleep(&mut self, ns: u64) {
        self.clock.slept = true;
        self.clock.now += ns;
        self.queue.delay(ns, |item| !matches!(item, Item::Due { .. } | Item::Deadline { .. }));
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

    /// Plans the engine's next step without an event. Called after each step.
    pub(super) fn plan_due(&mut self) {
        let next = self.engine.next_deadline().filter(|_| self.process.alive).map(|at| at.0);
        if next == self.planned {
            return;
        }
        self.planned = next;
        if let Some(at) = next {
            self.at(at.saturating_sub(self.clock.now), Item::Due { life: self.process.life, at });
        }
    }

    pub(super) fn engine_is_due(&mut self, life: u32, at: u64) {
        if life == self.process.life && self.planned == Some(at) {
            self.planned = None;
            self.step(Event::Due);
        }
    }

    /// The deadlines of the pods (ns).
    pub fn pod_deadlines(&self) -> Vec<(Uid, u64)> {
        let of_pod = |(due, at)| if let Due::Pod(uid) = due { Some((uid, at)) } else { None };
        self.deadlines().into_iter().filter_map(of_pod).collect()
    }

    /// The deadlines of the engine (ns).
    pub fn deadlines(&self) -> Vec<(Due, u64)> {
        self.engine.deadlines().into_iter().map(|(due, at)| (due, at.0)).collect()
    }
}
