//! Decides which records of manifests have to be written (D2). At most one write is in flight at a time, and it
//! contains at most `BATCH` records. A pod never waits for a write.

use super::contents::Held;
use super::file::{File, Fingerprint};
use crate::api::manifest_report::{DocumentUpdate, RecordUpdate};
use crate::api::time::Boot;
use crate::engine::effect::Effect;
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::Duration;

/// The delay before a failed write is repeated.
const RETRY: Duration = Duration::from_secs(60);
/// The maximum number of records in one write.
const BATCH: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Records {
    /// Files whose record may differ from the documents in force.
    unchecked: BTreeSet<OsString>,
    /// The files of the write in flight, with what it writes. None: the record is removed.
    in_flight: BTreeMap<OsString, Option<Fingerprint>>,
    /// The last write failed; the next attempt is at this time.
    again_at: Option<Boot>,
}

impl Records {
    pub(super) fn check_later(&mut self, name: &OsStr) {
        self.unchecked.insert(name.to_owned());
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.again_at
    }

    pub(super) fn write(&mut self, files: &mut BTreeMap<OsString, File>, now: Boot, outbox: &mut Outbox) {
        if !self.in_flight.is_empty() || self.again_at.is_some_and(|at| at > now) {
            return;
        }
        self.again_at = None;
        let mut updates = Vec::new();
        while updates.len() < BATCH
            && let Some(name) = self.unchecked.pop_first()
        {
            let Some(file) = files.get_mut(&name) else {
                self.in_flight.insert(name.clone(), None);
                updates.push(RecordUpdate { name, documents: Vec::new() });
                continue;
            };
            let wanted = Fingerprint::of_file(file);
            if file.recorded == wanted {
                drop_contents(file);
                continue;
            }
            file.recorded = None;
            self.in_flight.insert(name.clone(), wanted);
            updates.push(RecordUpdate { name, documents: file.in_force().map(update_of).collect() });
        }
        if !updates.is_empty() {
            outbox.begin(Owner::ManifestRecords, |op| Effect::StoreManifests { op, updates });
        }
    }

    pub(super) fn written(&mut self, files: &mut BTreeMap<OsString, File>, well: bool, now: Boot) {
        for (name, fingerprint) in std::mem::take(&mut self.in_flight) {
            if let Some(file) = files.get_mut(&name).filter(|_| well) {
                file.recorded = fingerprint;
            }
            // Otherwise the file is checked again: the write failed, the file has changed since, or the contents are
            // no longer needed.
            let is_removed = well && fingerprint.is_none() && !files.contains_key(&name);
            if !is_removed {
                self.unchecked.insert(name);
            }
        }
        self.again_at = (!well).then(|| now + RETRY);
    }
}

fn update_of(held: &Held) -> DocumentUpdate {
    let (number, digest, given) = (held.number(), held.digest().to_owned(), held.given());
    DocumentUpdate { number, digest, content: held.content.clone(), given }
}

/// Drops the contents of the documents, because the record contains them.
fn drop_contents(file: &mut File) {
    file.documents.iter_mut().filter_map(Held::in_force_mut).for_each(|held| held.content = None);
}
