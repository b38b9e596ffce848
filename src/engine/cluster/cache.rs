//! A cache of positive and negative answers with a limited number of entries.

use crate::api::time::Boot;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a cached answer may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub fresh: Duration,
    /// How long it may be used while the API server is unreachable. At least `fresh`.
    pub kept: Duration,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    /// A positive answer is worth more than a negative one, which any client can cause at no cost.
    is_yes: bool,
    fresh_until: Boot,
    kept_until: Boot,
}

#[derive(Clone, Debug)]
pub struct Cache<K, V> {
    most: usize,
    entries: BTreeMap<K, Entry<V>>,
}

impl<K: Ord + Clone, V> Cache<K, V> {
    pub fn new(most: usize) -> Cache<K, V> {
        Cache { most, entries: BTreeMap::new() }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the answer while it is fresh.
    pub fn fresh(&self, key: &K, now: Boot) -> Option<&V> {
        self.entries.get(key).filter(|entry| now < entry.fresh_until).map(|entry| &entry.value)
    }

    /// Returns the answer while it is kept, even if it is no longer fresh.
    pub fn kept(&self, key: &K, now: Boot) -> Option<&V> {
        self.entries.get(key).filter(|entry| now < entry.kept_until).map(|entry| &entry.value)
    }

    /// Adds or replaces the answer. If the cache is too large, removes expired answers and then, as far as necessary,
    /// negative answers before positive ones, and those that expire first.
    pub fn insert(&mut self, key: K, value: V, is_yes: bool, life: Life, now: Boot) {
        let entry = Entry { value, is_yes, fresh_until: now + life.fresh, kept_until: now + life.kept.max(life.fresh) };
        self.entries.insert(key, entry);
        if self.entries.len() <= self.most {
            return;
        }
        self.entries.retain(|_, entry| now < entry.kept_until);
        while self.entries.len() > self.most {
            let worth = |entry: &Entry<V>| (entry.is_yes, entry.kept_until);
            let Some(least) = self.entries.iter().min_by_key(|(_, e)| worth(e)).map(|(key, _)| key.clone()) else {
                return;
            };
            self.entries.remove(&least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Life = Life { fresh: Duration::from_secs(30), kept: Duration::from_secs(100) };

    fn at(seconds: u64) -> Boot {
        Boot(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn an_answer_is_fresh_then_kept_then_gone() {
        let mut cache = Cache::new(10);
        cache.insert("a", 1, true, LIFE, at(0));
        assert_eq!((cache.fresh(&"a", at(29)), cache.fresh(&"a", at(30))), (Some(&1), None));
        assert_eq!((cache.kept(&"a", at(99)), cache.kept(&"a", at(100))), (Some(&1), None));
        cache.insert("a", 2, false, LIFE, at(99));
        assert_eq!((cache.fresh(&"a", at(100)), cache.len()), (Some(&2), 1));
    }

    #[test]
    fn a_no_is_forgotten_before_a_yes_and_the_oldest_first() {
        let mut cache = Cache::new(3);
        cache.insert("yes", 0, true, LIFE, at(0));
        for (n, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
            cache.insert(key, 0, false, LIFE, at(1 + n as u64));
        }
        let held: Vec<_> = ["yes", "a", "b", "c", "d"].into_iter().filter(|k| cache.kept(k, at(5)).is_some()).collect();
        assert_eq!(held, ["yes", "c", "d"]);
        // Expired answers are removed first, even positive ones.
        cache.insert("new", 0, false, LIFE, at(101));
        assert!(cache.len() == 3 && cache.kept(&"d", at(101)).is_some() && cache.kept(&"new", at(101)).is_some());
    }
}
