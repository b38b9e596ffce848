//! The results of a Job's pods. Each pod is counted once, also if Wherry restarts meanwhile.

use super::failure::FailureVerdict;
use crate::api::names::Uid;
use crate::api::workload::indexes::IndexSet;
use crate::api::workload::job::MAX_INDEXES;
use crate::engine::record_error::RecordError;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The delay after the first failure; each further failure doubles it. The values of the Job controller.
const FIRST_DELAY: Duration = Duration::from_secs(10);
const LONGEST_DELAY: Duration = Duration::from_secs(600);

/// The result of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodResult {
    Succeeded,
    Failed(FailureVerdict),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JobTally {
    /// For an Indexed Job: the number of indexes.
    pub succeeded: u32,
    pub failed: u32,
    pub completed_indexes: IndexSet,
    pub failed_indexes: IndexSet,
    /// The failures of each index that has neither succeeded nor failed.
    failures: BTreeMap<u32, IndexFailures>,
    /// The pods that are counted, and that may be seen again.
    counted: BTreeSet<Uid>,
    /// The failures since the last success, with those that do not count.
    in_a_row: u32,
}

/// The failed pods of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct IndexFailures {
    counted: u32,
    /// Those that a rule ignores. They delay the next pod too.
    #[serde(default)]
    ignored: u32,
}

/// The tally in the record of a Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredTally {
    succeeded: u32,
    failed: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    completed_indexes: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    failed_indexes: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<u32, IndexFailures>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    counted: BTreeSet<String>,
    #[serde(default)]
    in_a_row: u32,
}

impl JobTally {
    /// Counts the result of a pod. `index`: that of the pod of an Indexed Job, `limit`: the number of failures that do
    /// not fail an index. Returns false if the pod was counted before.
    pub fn count(&mut self, uid: &Uid, index: Option<u32>, result: &PodResult, limit: Option<u32>) -> bool {
        if !self.counted.insert(uid.clone()) {
            return false;
        }
        match result {
            PodResult::Succeeded => self.succeed(index),
            PodResult::Failed(FailureVerdict::Ignore) => self.ignore(index),
            PodResult::Failed(verdict) => self.fail(index, *verdict == FailureVerdict::FailIndex, limit),
        }
        true
    }

    fn succeed(&mut self, index: Option<u32>) {
        self.in_a_row = 0;
        let Some(index) = index else {
            self.succeeded += 1;
            return;
        };
        // A second pod of an index that has succeeded adds nothing.
        if !self.failed_indexes.contains(index) && self.completed_indexes.insert(index) {
            self.succeeded += 1;
            self.failures.remove(&index);
        }
    }

    fn ignore(&mut self, index: Option<u32>) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        if let Some(index) = index.filter(|index| self.is_open(*index)) {
            self.failures.entry(index).or_default().ignored += 1;
        }
    }

    fn fail(&mut self, index: Option<u32>, at_once: bool, limit: Option<u32>) {
        self.failed += 1;
        self.in_a_row = self.in_a_row.saturating_add(1);
        let Some(index) = index.filter(|index| self.is_open(*index)) else { return };
        let failures = self.failures.entry(index).or_default();
        failures.counted += 1;
        if at_once || limit.is_some_and(|limit| failures.counted > limit) {
            self.failed_indexes.insert(index);
            self.failures.remove(&index);
        }
    }

    pub fn has_counted(&self, uid: &Uid) -> bool {
        self.counted.contains(uid)
    }

    /// Marks a pod as counted, although its result does not matter.
    pub fn disregard(&mut self, uid: &Uid) {
        self.counted.insert(uid.clone());
    }

    /// Forgets the pods that will not be seen again.
    pub fn forget(&mut self, is_there: impl Fn(&Uid) -> bool) -> bool {
        let before = self.counted.len();
        self.counted.retain(is_there);
        before != self.counted.len()
    }

    /// Returns true if a pod of this index may still be created.
    pub fn is_open(&self, index: u32) -> bool {
        !self.completed_indexes.contains(index) && !self.failed_indexes.contains(index)
    }

    /// Returns the indexes that have neither succeeded nor failed, and of which a pod has failed.
    pub fn indexes_with_failures(&self) -> impl Iterator<Item = u32> {
        self.failures.keys().copied()
    }

    /// Returns how long no pod is created after the last failure.
    pub fn delay(&self) -> Duration {
        delay(self.in_a_row)
    }

    /// Returns how long no pod of this index is created after its last failure.
    pub fn index_delay(&self, index: u32) -> Duration {
        delay(self.failures.get(&index).map_or(0, |of| of.counted.saturating_add(of.ignored)))
    }

    /// Forgets the indexes from `limit` on, after the number of completions was reduced.
    pub fn truncate(&mut self, limit: u32) {
        self.completed_indexes.truncate(limit);
        self.failed_indexes.truncate(limit);
        self.failures.split_off(&limit);
        self.succeeded = u32::try_from(self.completed_indexes.len()).unwrap_or(u32::MAX);
    }

    pub fn stored(&self) -> StoredTally {
        StoredTally {
            succeeded: self.succeeded,
            failed: self.failed,
            completed_indexes: self.completed_indexes.to_string(),
            failed_indexes: self.failed_indexes.to_string(),
            failures: self.failures.clone(),
            counted: self.counted.iter().map(ToString::to_string).collect(),
            in_a_row: self.in_a_row,
        }
    }

    /// Restores the tally of a record.
    ///
    /// # Errors
    /// The indexes are not valid.
    pub fn restore(stored: StoredTally) -> Result<JobTally, RecordError> {
        let set =
            |field, text: &str| IndexSet::parse(text, MAX_INDEXES).map_err(|why| RecordError::Invalid { field, why });
        Ok(JobTally {
            succeeded: stored.succeeded,
            failed: stored.failed,
            completed_indexes: set("completedIndexes", &stored.completed_indexes)?,
            failed_indexes: set("failedIndexes", &stored.failed_indexes)?,
            failures: stored.failures,
            counted: stored.counted.into_iter().map(|uid| Uid::from(uid.as_str())).collect(),
            in_a_row: stored.in_a_row,
        })
    }
}

fn delay(failures: u32) -> Duration {
    match failures.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_DELAY.saturating_mul(1 << doublings.min(10)).min(LONGEST_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: PodResult = PodResult::Failed(FailureVerdict::Count);

    fn uid(n: u32) -> Uid {
        Uid::from(format!("pod-{n}").as_str())
    }

    #[test]
    fn a_pod_is_counted_once_also_after_a_restart() {
        let mut tally = JobTally::default();
        assert!(tally.count(&uid(1), None, &PodResult::Succeeded, None));
        assert!(!tally.count(&uid(1), None, &PodResult::Succeeded, None));
        assert!(tally.count(&uid(2), None, &FAILED, None));
        let mut tally = JobTally::restore(tally.stored()).expect("a tally");
        assert!(!tally.count(&uid(2), None, &FAILED, None));
        assert_eq!((tally.succeeded, tally.failed), (1, 1));
        assert!(tally.forget(|of| *of == uid(2)) && !tally.has_counted(&uid(1)));
    }

    #[test]
    fn an_index_succeeds_once_and_fails_above_its_limit() {
        let mut tally = JobTally::default();
        for (n, index, result) in
            [(1, 0, PodResult::Succeeded), (2, 0, PodResult::Succeeded), (3, 1, FAILED), (4, 1, FAILED), (5, 2, FAILED)]
        {
            tally.count(&uid(n), Some(index), &result, Some(1));
        }
        tally.count(&uid(6), Some(3), &PodResult::Failed(FailureVerdict::FailIndex), Some(1));
        tally.count(&uid(7), Some(4), &PodResult::Failed(FailureVerdict::Ignore), Some(1));
        assert_eq!((tally.succeeded, tally.failed), (1, 4));
        assert_eq!((tally.completed_indexes.to_string(), tally.failed_indexes.to_string()), ("0".into(), "1,3".into()));
        assert!(tally.is_open(2) && tally.is_open(4) && !tally.is_open(1) && !tally.is_open(0));
        let delays = [2, 4, 0].map(|index| tally.index_delay(index).as_secs());
        assert_eq!(delays, [10, 10, 0], "an ignored failure delays the next pod too");
        tally.truncate(1);
        assert_eq!((tally.succeeded, tally.failed_indexes.len()), (1, 0));
    }

    #[test]
    fn the_delay_doubles_with_each_failure_in_a_row() {
        let mut tally = JobTally::default();
        let mut delays = vec![tally.delay().as_secs()];
        for n in 0..9 {
            tally.count(&uid(n), None, &FAILED, None);
            delays.push(tally.delay().as_secs());
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        tally.count(&uid(20), None, &PodResult::Succeeded, None);
        assert_eq!(tally.delay().as_secs(), 0);
    }
}
