//! Sorted lists, maps and sets that need little code.
//!
//! The compiler makes a copy of the standard library's sort for each type and each comparison: 5 to 10 kB. Collecting
//! into a `BTreeMap` or `BTreeSet` also sorts. The lists here are short, so all of them use one sort of indices, and
//! maps and sets are filled by insertion.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Replaces `collect` for maps and sets. Of two items with the same key, the last one wins, as with `collect`.
pub trait CollectOrdered: Iterator + Sized {
    fn collect_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        for (key, value) in self {
            map.insert(key, value);
        }
        map
    }

    fn collect_set<T: Ord>(self) -> BTreeSet<T>
    where
        Self: Iterator<Item = T>,
    {
        let mut set = BTreeSet::new();
        for item in self {
            set.insert(item);
        }
        set
    }

    /// Collects into a JSON object.
    fn collect_object(self) -> Map<String, Value>
    where
        Self: Iterator<Item = (String, Value)>,
    {
        let mut object = Map::new();
        for (key, value) in self {
            object.insert(key, value);
        }
        object
    }
}

impl<I: Iterator> CollectOrdered for I {}

/// Replaces the sort methods of slices. All of them are stable.
pub trait OrderSlice<T> {
    fn order_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    fn order_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.order_by(|a, b| key(a).cmp(&key(b)));
    }

    fn order(&mut self)
    where
        T: Ord,
    {
        self.order_by(Ord::cmp);
    }
}

impl<T> OrderSlice<T> for [T] {
    fn order_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let mut sources = sorted_indices(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        for start in 0..sources.len() {
            // Each item of a cycle moves to its position. A position that is its own source is done.
            let mut place = start;
            loop {
                let source = std::mem::replace(&mut sources[place], place);
                if source == start {
                    break;
                }
                self.swap(place, source);
                place = source;
            }
        }
    }
}

/// Returns the indices of the items in sorted order. This function is not generic, so it is compiled once.
fn sorted_indices(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..len).collect();
    indices.sort_by(|a, b| compare(*a, *b));
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns lists that contain equal keys, from a small generator of pseudo-random numbers.
    fn lists() -> impl Iterator<Item = Vec<(u32, usize)>> {
        let mut state = 1_u32;
        (0..200).map(move |len| {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 16
            };
            (0..len).map(|index| (next() % 20, index)).collect()
        })
    }

    #[test]
    fn lists_are_sorted_as_by_the_standard_library() {
        for list in lists() {
            let (mut own, mut reference) = (list.clone(), list.clone());
            own.order_by_key(|item| item.0);
            reference.sort_by_key(|item| item.0);
            assert_eq!(own, reference);
            own.order_by(|a, b| b.cmp(a));
            reference.sort_by(|a, b| b.cmp(a));
            assert_eq!(own, reference);
            own.order();
            reference.sort();
            assert_eq!(own, reference);
        }
    }

    #[test]
    fn maps_sets_and_objects_are_collected_as_by_the_standard_library() {
        for list in lists() {
            let items = || list.iter().copied();
            assert_eq!(items().collect_map(), items().collect::<BTreeMap<_, _>>());
            assert_eq!(items().collect_set(), items().collect::<BTreeSet<_>>());
            let texts = || items().map(|(key, value)| (key.to_string(), Value::from(value)));
            assert_eq!(texts().collect_object(), texts().collect::<Map<_, _>>());
        }
    }
}
