//! A set of completion indexes of a Job, as its status and its policies write it: `1,3-5,7`.

use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexSet(BTreeSet<u32>);

impl IndexSet {
    /// Parses intervals in ascending order, which do not overlap. Indexes below `limit` are permitted.
    ///
    /// # Errors
    /// The text has another form, with the reason.
    pub fn parse(text: &str, limit: u32) -> Result<IndexSet, String> {
        let mut all = BTreeSet::new();
        if text.is_empty() {
            return Ok(IndexSet(all));
        }
        for interval in text.split(',') {
            let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
            let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is not a number"));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("{interval:?}: the first number is greater than the last"));
            }
            if last >= limit {
                return Err(format!("{last} is too large; the number of completions is {limit}"));
            }
            if all.last().is_some_and(|before| *before >= first) {
                return Err(format!("{interval:?}: the intervals must be in ascending order"));
            }
            all.extend(first..=last);
        }
        Ok(IndexSet(all))
    }

    /// Adds an index. Returns false if it was there.
    pub fn insert(&mut self, index: u32) -> bool {
        self.0.insert(index)
    }

    pub fn contains(&self, index: u32) -> bool {
        self.0.contains(&index)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of indexes that both sets have.
    pub fn count_common(&self, other: &IndexSet) -> usize {
        self.0.intersection(&other.0).count()
    }

    /// Forgets the indexes from `limit` on.
    pub fn truncate(&mut self, limit: u32) {
        self.0.split_off(&limit);
    }
}

/// Formats as intervals. Two indexes in a row are written as in a cluster: `1,2`, three as `1-3`.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = all.next() {
            let mut last = first;
            while let Some(next) = all.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for IndexSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_they_are_written() {
        for text in ["", "0", "1,2", "1-3", "0,2-4,7,8,10"] {
            assert_eq!(IndexSet::parse(text, 20).map(|set| set.to_string()).as_deref(), Ok(text));
        }
        let set = IndexSet::parse("0,2-4", 5).expect("a set");
        assert!(set.contains(3) && !set.contains(1) && set.len() == 4);
        assert_eq!(set.count_common(&IndexSet::parse("3-4", 5).expect("a set")), 2);
    }

    #[test]
    fn wrong_intervals_have_a_reason() {
        for (text, why) in [
            ("a", "is not a number"),
            ("1-", "is not a number"),
            ("3-1", "greater"),
            ("3,1", "ascending"),
            ("1,1", "ascending"),
            ("5", "too large"),
            ("0-4294967295", "too large"),
        ] {
            let said = IndexSet::parse(text, 5).expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
