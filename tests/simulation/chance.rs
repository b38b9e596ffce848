//! Chance in a node's life. Each occasion (the third StartContainer of a pod, the second kill) has dice of its own, made
//! from the seed and the occasion: a life in which something was left out is the same everywhere else, so that it can be
//! shrunk.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wherry::engine::rng::Rng;

/// What chance let happen, and need not have: a fault, a late answer, a container that ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mishap {
    pub id: u64,
    pub what: String,
}

pub struct Chaos {
    seed: u64,
    /// Faults in 1000 calls.
    pub faults: u64,
    /// Answers in 1000 that make no sense.
    pub lies: u64,
    /// All is well from now on: containers live, ends are seen.
    pub calm: bool,
    /// No mishaps but these; all that come, if None.
    only: Option<Rc<BTreeSet<u64>>>,
    /// How often each occasion came.
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
        // (Mixed, or neighbours would have the same numbers, shifted.)
        Rng::new(hash ^ *n).draw()
    }

    /// The dice of this occasion.
    pub fn dice(&mut self, what: &str, of: &str) -> Rng {
        Rng::new(self.occasion(what, of))
    }

    /// Does it happen, so often in 1000 times? If so, the dice that tell how.
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
