//! Two machines with one API server. Their clocks advance together, and the objects of the server are always with the machine that
//! acts.

use super::{S, World};

pub struct Pair {
    machines: [World; 2],
    /// The one that has the objects of the server.
    at: usize,
}

impl Pair {
    /// The objects are those of the first machine's server.
    pub fn new(first: World, second: World) -> Pair {
        Pair { machines: [first, second], at: 0 }
    }

    /// The machine, with the objects of the server.
    pub fn machine(&mut self, number: usize) -> &mut World {
        self.pass_to(number);
        &mut self.machines[number]
    }

    /// The other machine learns the changes that were made.
    pub fn change(&mut self, number: usize, change: impl FnOnce(&mut World)) {
        let machine = self.machine(number);
        let (before, now) = (machine.api.version(), machine.clock.now);
        change(machine);
        if machine.api.version() != before {
            let other = self.machine(1 - number);
            other.clock.now = other.clock.now.max(now);
            other.tell_watches();
        }
    }

    pub fn run(&mut self, seconds: u64) {
        let end = self.machines[0].clock.now.max(self.machines[1].clock.now) + seconds * S;
        loop {
            let next = self.machines.each_ref().map(|machine| machine.queue.next().unwrap_or(u64::MAX));
            if next[0].min(next[1]) > end {
                break;
            }
            let mut well = false;
            self.change(usize::from(next[1] < next[0]), |machine| well = machine.happen(end));
            assert!(well, "{:?}", self.machines.each_ref().map(|machine| &machine.checks.violation));
        }
        self.machines.iter_mut().for_each(|machine| machine.clock.now = end);
    }

    fn pass_to(&mut self, number: usize) {
        if self.at != number {
            let [first, second] = &mut self.machines;
            first.api.pass_to(&mut second.api);
            self.at = number;
        }
    }
}
