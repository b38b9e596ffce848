//! Deletes the records of workloads that are gone, until that succeeds: a record that stays would bring a Job back that
//! its CronJob or a user has removed.

use super::record;
use crate::api::time::Boot;
use crate::api::workload::key::WorkloadKey;
use crate::engine::effect::RecordChange;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::rewriting::Rewriting;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct RemovedRecords(BTreeMap<WorkloadKey, Rewriting>);

impl RemovedRecords {
    /// Begins to delete the record of a workload.
    pub(super) fn remove(&mut self, key: WorkloadKey, now: Boot, outbox: &mut Outbox) {
        let deletion = self.0.entry(key).or_default();
        deletion.changed();
        self.retry(now, outbox);
    }

    /// Notes that a workload with this key exists again. Its record replaces the old one.
    pub(super) fn is_back(&mut self, key: &WorkloadKey) {
        self.0.remove(key);
    }

    /// Begins the deletions that are due.
    pub(super) fn retry(&mut self, now: Boot, outbox: &mut Outbox) {
        for (key, deletion) in &mut self.0 {
            if deletion.begins(now) {
                let change = RecordChange::Delete { key: record::key(key) };
                outbox.record(Owner::RemovedWorkload(key.clone()), change);
            }
        }
    }

    /// Handles the end of a deletion.
    pub(super) fn ended(&mut self, key: &WorkloadKey, well: bool, now: Boot) {
        if let Some(deletion) = self.0.get_mut(key) {
            deletion.ended(well, now);
            self.0.retain(|_, deletion| !deletion.is_done());
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.0.values().filter_map(Rewriting::next_deadline).min()
    }
}

/// For a dump.
impl Serialize for RemovedRecords {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(key, deletion)| (key.to_string(), deletion)))
    }
}
