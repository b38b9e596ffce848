//! The last good version of each file on disk (D2): what is written, and what is restored from it.

use super::contents::Held;
use super::open_problems::Kind;
use super::store::{Change, RecordedDocument, Write};
use super::{Manifests, Source, seen};
use crate::api::document::{Context, Document};
use crate::api::objects::Given;
use crate::api::problem::Problem;
use crate::api::system_credentials::Credentials;
use crate::api::time::{Boot, Now};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

/// The delay before a failed write is retried.
pub(super) const RETRY: Duration = Duration::from_secs(60);
/// Maximum number of records in one write.
const BATCH: usize = 16;

impl Manifests {
    /// Returns the next batch of records to write; None while a write is in flight. The caller runs it, on any thread
    /// and with low priority, and passes the result to `written`.
    pub fn take_write(&mut self, now: Now) -> Option<Write> {
        if self.writing.is_some() || now.boot < self.no_write_before {
            return None;
        }
        let changes: Vec<Change> = std::iter::from_fn(|| self.next_change()).take(BATCH).collect();
        self.writing = (!changes.is_empty()).then_some(Write { changes });
        self.writing.clone()
    }

    /// Handles the result of a write.
    pub fn written(&mut self, result: Result<(), String>, now: Now) {
        let Some(write) = self.writing.take() else { return };
        let path = self.settings.directory.to_string_lossy().into_owned();
        match result {
            Ok(()) => {
                self.no_write_before = Boot(0);
                self.standing.set(None, &path, Kind::Record, Vec::new(), now);
            }
            Err(why) => {
                self.no_write_before = now.boot + RETRY;
                let message = format!("failed to record the last good version: {why}");
                self.standing.set(None, &path, Kind::Record, vec![Problem::of_file(&path, message)], now);
                // `next_change` skips the records that are on disk already.
                write.changes.iter().for_each(|change| self.put_back(change, now));
            }
        }
    }

    /// Brings the recorded version of a file into force. Returns false if there is no record.
    pub(super) fn restore(&mut self, name: &OsStr, now: Now) -> bool {
        let Some(held) = self.recall(name, now) else { return false };
        self.changed = true;
        self.sources.insert(name.to_owned(), Source { held, ..Source::default() });
        true
    }

    /// Returns the last good version of a file; None if there is no record.
    pub(super) fn recall(&self, name: &OsStr, now: Now) -> Option<Vec<Held>> {
        let shown = self.shown(name);
        let path = self.path(name);
        let record = self.store.load(&path)?;
        let seen = seen(now);
        let read = |name: &str| self.settings.credentials.read(name);
        let credentials = Credentials::Service(&read);
        let context = Context { node_name: &self.settings.node_name, seen: &seen, credentials };
        let mut held = Vec::new();
        for RecordedDocument { number, content, priority, runtime_class, .. } in record.documents {
            match Document::from_content(number, content).recorded(&shown, context) {
                Ok(object) => held.push(Held::recorded(object, Given { priority, runtime_class })),
                Err(problems) => {
                    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
                    log::warn!(
                        "manifests: a recorded document is not valid any more; ignoring it path={shown:?} \
                         error={problems:?}"
                    );
                }
            }
        }
        Some(held)
    }

    pub(super) fn restore_all(&mut self, now: Now) {
        for record in self.store.load_all() {
            if let Some(name) = self.name_of(&record.manifest()) {
                self.restore(&name, now);
            }
        }
    }

    /// Returns the next change that is not on disk yet.
    fn next_change(&mut self) -> Option<Change> {
        if let Some(place) = self.new_place.take() {
            return Some(self.store.put_place(&self.settings.directory, &place));
        }
        if std::mem::take(&mut self.sweep) {
            // Files that were removed while Wherry was not running.
            for record in self.store.load_all() {
                let name = self.name_of(&record.manifest());
                self.dirty.extend(name.filter(|name| !self.sources.contains_key(name)));
            }
        }
        while let Some(name) = self.dirty.pop_first() {
            let path = self.path(&name);
            let mut old = self.store.load(&path);
            let has_one = |source: &&mut Source| source.held.iter().any(|held| held.in_force().is_some());
            let Some(source) = self.sources.get_mut(&name).filter(has_one) else {
                if old.is_some() {
                    return Some(self.store.delete(&path));
                }
                continue;
            };
            let recorded = old.iter().flat_map(|record| &record.documents);
            let given =
                |d: &RecordedDocument| Given { priority: d.priority.clone(), runtime_class: d.runtime_class.clone() };
            let recorded = recorded.map(|d| (d.digest.as_str(), given(d)));
            let in_force = source.held.iter().filter_map(Held::in_force);
            if old.is_some() && recorded.eq(in_force.map(|held| (held.digest(), held.given()))) {
                source.held.iter_mut().filter_map(Held::in_force_mut).for_each(|held| held.content = None);
                continue;
            }
            let mut documents = Vec::new();
            for held in source.held.iter_mut().filter_map(Held::in_force_mut) {
                let digest = held.digest().to_owned();
                let Given { priority, runtime_class } = held.given();
                let mut old = old.iter_mut().flat_map(|record| &mut record.documents);
                let content = held
                    .content
                    .take()
                    .and_then(|text| serde_json::from_str(&text).ok())
                    .or_else(|| old.find(|d| d.digest == digest).map(|d| std::mem::take(&mut d.content)));
                if let Some(content) = content {
                    documents.push(RecordedDocument {
                        number: held.number(),
                        digest,
                        content,
                        priority,
                        runtime_class,
                    });
                }
            }
            return Some(self.store.put(&path, documents));
        }
        None
    }

    /// Schedules the change again after a failed write.
    fn put_back(&mut self, change: &Change, now: Now) {
        let Some(record) = change.record() else {
            // A removal, or the record of the directory: the next sweep or scan schedules it again.
            self.sweep = true;
            self.recorded = None;
            return self.full_within(RETRY, now);
        };
        let Some(name) = self.name_of(&record.manifest()) else { return };
        self.dirty.insert(name.clone());
        for document in record.documents {
            let held = self.sources.get_mut(&name).into_iter().flat_map(|source| &mut source.held);
            for held in held.filter_map(Held::in_force_mut).filter(|held| held.digest() == document.digest) {
                held.content.get_or_insert_with(|| document.content.to_string().into());
            }
        }
    }

    /// Returns the file name of a manifest in the directory; None for any other path.
    fn name_of(&self, path: &Path) -> Option<OsString> {
        path.file_name().filter(|_| path.parent() == Some(&self.settings.directory)).map(OsStr::to_owned)
    }
}
