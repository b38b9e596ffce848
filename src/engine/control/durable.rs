//! Answers that must remain true even if Wherry is killed (W27, A11): each is sent only when the records that it
//! depends on are durable.

use super::error::RequestError;
use super::reply::Reply;
use super::request_id::RequestId;
use crate::api::ordered::CollectOrdered;
use crate::engine::op::OpId;
use crate::engine::outbox::BegunRecord;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, Serialize)]
pub struct DurableAnswers {
    /// The changes to records that are not complete.
    changes: BTreeMap<OpId, Change>,
    /// Records whose last write failed, and why. The pod's worker writes them again.
    unwritten: BTreeMap<String, String>,
    waiting: BTreeMap<RequestId, WaitingAnswer>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
enum Change {
    /// Contains the record's key.
    Write(String),
    /// The record is removed. No answer depends on whether that succeeds.
    Removal,
}

#[derive(Debug, Serialize)]
struct WaitingAnswer {
    #[serde(skip)]
    reply: Reply,
    /// The changes that have to be complete first.
    changes: BTreeSet<OpId>,
    /// Why one of the changes could not be written.
    failure: Option<String>,
}

impl WaitingAnswer {
    fn answer(self) -> Result<Reply, RequestError> {
        match self.failure {
            None => Ok(self.reply),
            Some(why) => Err(RequestError::NotDurable { why }),
        }
    }
}

impl DurableAnswers {
    /// Notes that these changes to records have begun.
    pub fn begun(&mut self, records: &[BegunRecord]) {
        for BegunRecord { op, written } in records {
            self.changes.insert(*op, written.clone().map_or(Change::Removal, Change::Write));
        }
    }

    /// Answers the request when these changes to records and the earlier writes of the records `keys` are complete.
    /// Returns the answer at once if there is nothing to wait for.
    pub fn answer_when_durable(
        &mut self,
        request: RequestId,
        reply: Reply,
        records: &[BegunRecord],
        mut keys: BTreeSet<String>,
    ) -> Option<Result<Reply, RequestError>> {
        self.begun(records);
        let mut changes: BTreeSet<OpId> = records.iter().map(|record| record.op).collect_set();
        let mut written = BTreeSet::new();
        for (op, change) in &self.changes {
            if let Change::Write(key) = change
                && keys.contains(key)
            {
                changes.insert(*op);
                written.insert(key);
            }
        }
        keys.retain(|key| !written.contains(key));
        let failure = keys.iter().find_map(|key| self.unwritten.get(key)).cloned();
        let waiting = WaitingAnswer { reply, changes, failure };
        if waiting.changes.is_empty() {
            return Some(waiting.answer());
        }
        self.waiting.insert(request, waiting);
        None
    }

    /// Handles the end of an operation. Returns the requests that can be answered now, and their answers.
    pub fn ended(&mut self, op: OpId, failure: Option<&str>) -> Vec<(RequestId, Result<Reply, RequestError>)> {
        let Some(change) = self.changes.remove(&op) else { return Vec::new() };
        match (change, failure) {
            (Change::Write(key), Some(why)) => drop(self.unwritten.insert(key, why.to_owned())),
            (Change::Write(key), None) => drop(self.unwritten.remove(&key)),
            (Change::Removal, _) => {}
        }
        for waiting in self.waiting.values_mut() {
            if waiting.changes.remove(&op) {
                waiting.failure = failure.map(str::to_owned).or(waiting.failure.take());
            }
        }
        let (ready, waiting): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(_, waiting)| waiting.changes.is_empty());
        self.waiting = waiting;
        ready.into_iter().map(|(request, waiting): (_, WaitingAnswer)| (request, waiting.answer())).collect()
    }

    /// Forgets the record of a pod that is gone.
    pub fn forget(&mut self, key: &str) {
        self.unwritten.remove(key);
        for change in self.changes.values_mut() {
            if matches!(change, Change::Write(of) if of == key) {
                *change = Change::Removal;
            }
        }
    }

    /// Drops the request of a client that has disconnected.
    pub fn gone(&mut self, request: RequestId) {
        self.waiting.remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(ops: std::ops::Range<u64>) -> Vec<BegunRecord> {
        ops.map(|n| BegunRecord { op: OpId(n), written: Some(format!("pods/{n}")) }).collect()
    }

    /// Makes a request that writes `new` and concerns the records `keys`. Returns the status of the answer if it does
    /// not have to wait.
    fn change(answers: &mut DurableAnswers, request: u64, new: std::ops::Range<u64>, keys: &[&str]) -> Option<u16> {
        let (new, keys) = (writes(new), keys.iter().map(|key| (*key).to_owned()).collect());
        let now = answers.answer_when_durable(RequestId(request), Reply::Shortened, &new, keys);
        now.map(|answer| answer.map_or_else(|e| e.status(), |_| 200))
    }

    fn statuses(ended: Vec<(RequestId, Result<Reply, RequestError>)>) -> Vec<(u64, u16)> {
        ended.into_iter().map(|(id, answer)| (id.0, answer.map_or_else(|e| e.status(), |_| 200))).collect()
    }

    #[test]
    fn w27_an_answer_waits_for_all_records_that_it_depends_on() {
        let mut answers = DurableAnswers::default();
        answers.begun(&writes(0..2));
        assert_eq!(change(&mut answers, 1, 2..4, &[]), None);
        // Other changes neither delay the answer nor make it fail.
        answers.begun(&writes(4..5));
        let disk_full = Some("disk full");
        assert_eq!(statuses(answers.ended(OpId(1), disk_full)), []);
        assert_eq!(statuses(answers.ended(OpId(2), None)), []);
        assert_eq!(statuses(answers.ended(OpId(3), None)), [(1, 200)]);
        assert_eq!(statuses(answers.ended(OpId(4), disk_full)), [], "once");
    }

    #[test]
    fn w27_a_repeated_request_waits_for_the_record_of_the_first() {
        let mut answers = DurableAnswers::default();
        assert_eq!(change(&mut answers, 1, 0..1, &["pods/0"]), None);
        assert_eq!(change(&mut answers, 2, 1..1, &["pods/0"]), None, "the record is not durable yet");
        assert_eq!(change(&mut answers, 3, 1..1, &["pods/1"]), Some(200), "nothing is written");
        assert_eq!(statuses(answers.ended(OpId(0), None)), [(1, 200), (2, 200)]);
        assert_eq!(change(&mut answers, 4, 1..1, &["pods/0"]), Some(200));
    }

    #[test]
    fn w27_a_record_that_could_not_be_written_is_no_success() {
        let mut answers = DurableAnswers::default();
        assert_eq!((change(&mut answers, 1, 0..2, &[]), change(&mut answers, 2, 2..3, &[])), (None, None));
        assert_eq!(statuses(answers.ended(OpId(0), Some("disk full"))), []);
        let ended = answers.ended(OpId(1), None);
        let Err(error) = &ended[0].1 else { panic!("{ended:?}") };
        assert_eq!(error.to_string(), "done, but a restart would undo it: disk full; Wherry retries the write");
        assert_eq!(statuses(ended), [(1, 500)]);
        answers.gone(RequestId(2));
        assert_eq!(statuses(answers.ended(OpId(2), None)), [], "its client is gone");

        assert_eq!(change(&mut answers, 3, 3..3, &["pods/0"]), Some(500), "it is not written again yet");
        assert_eq!(change(&mut answers, 5, 5..6, &["pods/0", "pods/5"]), None);
        assert_eq!(statuses(answers.ended(OpId(5), None)), [(5, 500)], "one of its records is not durable");
        answers.begun(&writes(0..1));
        assert_eq!(change(&mut answers, 4, 3..3, &["pods/0"]), None);
        assert_eq!(statuses(answers.ended(OpId(0), None)), [(4, 200)]);
        answers.begun(&writes(7..8));
        answers.forget("pods/7");
        answers.ended(OpId(7), Some("disk full"));
        assert_eq!(answers.unwritten, BTreeMap::new(), "nothing is kept of a pod that is gone");
    }
}
