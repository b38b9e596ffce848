//! Deadlines, one per key, with fast access to the earliest one.

use crate::api::time::Boot;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub struct Timers<K> {
    by_key: BTreeMap<K, Boot>,
    by_time: BTreeSet<(Boot, K)>,
}

/// Serialized as a map of the deadlines, in seconds.
impl<K: Serialize + Ord> Serialize for Timers<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.by_key.serialize(serializer)
    }
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { by_key: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    pub fn new() -> Self {
        Timers::default()
    }

    /// Sets the deadline of `key` and replaces a previous one.
    pub fn set(&mut self, key: K, at: Boot) {
        if let Some(old) = self.by_key.insert(key.clone(), at) {
            if old == at {
                return;
            }
            self.by_time.remove(&(old, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Sets the deadline of `key`, or clears it with None.
    pub fn change(&mut self, key: &K, at: Option<Boot>) {
        match at {
            Some(at) => self.set(key.clone(), at),
            None => self.clear(key),
        }
    }

    pub fn clear(&mut self, key: &K) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_time.remove(&(old, key.clone()));
        }
    }

    /// Returns the earliest deadline.
    pub fn next(&self) -> Option<Boot> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns the keys that are due at `now`, ordered by time and then by key. A timer that is set while
    /// they are handled waits for the next call, even if it is due already, so that a turn of the loop always ends.
    pub fn expired(&mut self, now: Boot) -> Vec<K> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            if let Some((_, key)) = self.by_time.pop_first() {
                self.by_key.remove(&key);
                due.push(key);
            }
        }
        due
    }

    /// Returns all keys with their deadlines.
    pub fn all(&self) -> impl Iterator<Item = (&K, Boot)> {
        self.by_key.iter().map(|(key, at)| (key, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_timers_come_in_the_order_of_their_times_then_of_their_keys() {
        let mut timers = Timers::new();
        timers.set("late", Boot(30));
        timers.set("b", Boot(10));
        timers.set("a", Boot(10));
        timers.set("future", Boot(31));
        assert_eq!(timers.next(), Some(Boot(10)));
        assert_eq!(timers.expired(Boot(9)), Vec::<&str>::new());
        assert_eq!(timers.expired(Boot(30)), ["a", "b", "late"]);
        assert_eq!(timers.next(), Some(Boot(31)));
        assert_eq!(timers.all().count(), 1);
    }

    #[test]
    fn a_key_has_one_deadline() {
        let mut timers = Timers::new();
        timers.set(1u8, Boot(10));
        timers.set(1, Boot(20));
        timers.set(1, Boot(20));
        assert!(timers.expired(Boot(19)).is_empty());
        assert_eq!(timers.expired(Boot(20)), [1]);
        assert!(timers.expired(Boot(20)).is_empty());
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_cleared_timer_never_fires() {
        let mut timers = Timers::new();
        timers.set('x', Boot(1));
        timers.clear(&'x');
        timers.clear(&'y');
        assert_eq!(timers.next(), None);
        assert!(timers.expired(Boot(u64::MAX)).is_empty());
    }
}
