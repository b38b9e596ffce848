//! Writes records on helper threads, because fsync blocks, and on a worn SD card it blocks for long.

use super::jobs::{JobSpec, Jobs};
use super::logging::LogDeduplicator;
use crate::adapters::records::Records;
use crate::adapters::records::queue::Queue;
use crate::api::time::{Boot, Now};
use crate::engine::effect::RecordChange;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::{Class, JobError};
use std::time::Duration;

/// Time limit for a batch of records to become durable.
pub(super) const RECORD_TIMEOUT: Duration = Duration::from_secs(60);

/// The queue of records to be written. Only one batch is written at a time, so that the changes of a record stay in
/// order. A batch that has timed out makes no further changes (`Records::batch`).
pub(super) struct RecordQueue {
    records: Records,
    waiting: Queue,
    writing: bool,
}

/// The results of a batch's changes, in the order of the changes.
type Made = Result<Vec<Result<(), String>>, JobError>;

impl RecordQueue {
    pub(super) fn new(records: Records) -> RecordQueue {
        RecordQueue { records, waiting: Queue::default(), writing: false }
    }

    pub(super) fn push(&mut self, op: OpId, change: RecordChange) {
        self.waiting.push(op, change);
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing
    }

    /// Passes the waiting records to a helper, unless a batch is already being written.
    pub(super) fn write(&mut self, jobs: &mut Jobs, now: Now) {
        if self.waiting.is_empty() || self.writing {
            return;
        }
        let (ops, changes) = self.waiting.take();
        self.writing = true;
        let records = self.records.batch();
        let spec = JobSpec::new(Class::Records, "write pods' records", now.boot + RECORD_TIMEOUT);
        let work = move || records.make(&changes);
        jobs.run(spec, work, |agent, made, now| {
            let done = agent.disk.records.written(ops, made, &mut agent.reporting.standing, now.boot);
            agent.events.extend(done);
        });
    }

    /// Returns the events for a batch that was written. `ops` are the operations of each change of the batch.
    fn written(
        &mut self,
        ops: Vec<Vec<OpId>>,
        made: Made,
        log: &mut LogDeduplicator,
        now: Boot,
    ) -> impl Iterator<Item = Event> + use<> {
        self.writing = false;
        let made = made.unwrap_or_else(|e| vec![Err(log.job_failed(&e, now)); ops.len()]);
        ops.into_iter().zip(made).flat_map(|(ops, made)| {
            let result = made.map(|()| Answer::Ok).map_err(OpError::Unknown);
            ops.into_iter().map(move |op| Event::Done { op, result: result.clone() })
        })
    }
}
