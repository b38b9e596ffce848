//! Randomness in a node's life. Each occasion (the third StartContainer of a pod, the second kill) has its own
//! generator, seeded with the seed and the occasion. So a life in which something was left out stays the same everywhere
//! else and can be shrunk.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wherry::engine::rng::Rng;

/// A random event: a fault, a late answer, or the end of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mishap {
    pub id: u64,
    pub what: String,
}

pub struct Chaos {
    seed: u64,
    /// Faults per 1000 calls.
    pub faults: u64,
    /// Nonsensical answers per 1000.
    pub lies: u64,
    /// Nothing goes wrong from now on: containers live, and ends are seen.
    pub calm: bool,
    /// Only these mishaps may happen; None: any.
    only: Option<Rc<BTreeSet<u64>>>,
    /// The number of times that each occasion has come up.
    seen: BTreeMap<u64, u64>,
    pub happened: Vec<Mishap>,
}

impl Chaos {
    pub fn new(seed: u64, faults: u64, lies: u64, only: Option<Rc<BTreeSet<u64>>>) -> Chaos {
        Chaos { seed, faults, lies, calm: false, only, seen: BTreeMap::new(), happened: Vec::new() }
    }

    fn occasion(&mut self, what: &str, of: &str) -> u64 {
        let mut hash = 0xCBF2_9CE4_8422_2325 ^ self.seed;
        for byte in what.bytes().chain([0]).chain(of.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        let n = self.seen.entry(hash).or_insert(0);
        *n += 1;
        // Mix the bits; otherwise neighbouring occasions would have the same numbers, shifted.
        Rng::new(hash ^ *n).draw()
    }

    /// The generator for this occasion.
    pub fn dice(&mut self, what: &str, of: &str) -> Rng {
        Rng::new(self.occasion(what, of))
    }

    /// Decides whether the mishap happens (`per_1000`). Returns the generator for its details if it does.
    pub fn mishap(&mut self, what: &str, of: &str, per_1000: u64) -> Option<Rng> {
        let id = self.occasion(what, of);
        let mut dice = Rng::new(id);
        let happens = dice.draw() % 1000 < per_1000;
        if self.calm || !happens || self.only.as_ref().is_some_and(|o| !o.contains(&id)) {
            return None;
        }
        self.happened.push(Mishap { id, what: format!("{what} {of}") });
        Some(dice)
    }
}

pub fn below(dice: &mut Rng, n: u64) -> u64 {
    dice.draw() % n
}
