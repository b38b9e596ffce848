//! Builds the reports of changed files, including their records, and the write operations for records.

use super::store::{MountPlace, Write};
use super::{Manifests, ReportedFile};
use crate::api::manifest_report::{FileContent, FileReport, NamedCredentials, RecordUpdate, RecordedDocument};
use crate::api::ordered::CollectOrdered;
use crate::api::time::Now;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The delay before another attempt to write the directory's record.
const RETRY: Duration = Duration::from_secs(60);

impl Manifests {
    /// Returns a write operation for these records. The caller runs it on any thread and reports its result to the
    /// engine.
    pub fn store(&self, updates: Vec<RecordUpdate>) -> Write {
        Write { store: self.store.clone(), directory: self.settings.directory.clone(), updates, place: None }
    }

    /// Returns a write operation for the directory's record, if one is due. The caller runs it on any thread, and
    /// passes the result to `written`.
    pub fn take_write(&mut self) -> Option<Write> {
        let place = self.new_place.take_if(|_| !self.writing)?;
        self.writing = true;
        Some(Write { place: Some(place), ..self.store(Vec::new()) })
    }

    /// Handles the result of writing the directory's record.
    pub fn written(&mut self, result: Result<(), String>, now: Now) {
        self.writing = false;
        if let Err(why) = result {
            let path = &self.settings.directory;
            log::warn!("manifests: failed to record the mount of the directory file={path:?} error={why:?}");
            // The next scan schedules the write again.
            self.recorded = None;
            self.full_within(RETRY, now);
        }
    }

    /// Adds a change to the next report. The first report of a file includes its record.
    pub(super) fn report(&mut self, name: &OsStr, content: FileContent) {
        let recorded = if self.sources.contains_key(name) { None } else { self.store.load(&self.path(name)) };
        self.report_with(name, recorded, content);
    }

    /// Reports the record of a file that was not reported before and cannot be read yet.
    pub(super) fn report_unread(&mut self, name: &OsStr) {
        if self.sources.contains_key(name) {
            return;
        }
        if let Some(recorded) = self.store.load(&self.path(name)) {
            self.report_with(name, Some(recorded), FileContent::NotRead);
            self.sources.insert(name.to_owned(), ReportedFile::default());
        }
    }

    /// Reports the records of all files in the directory, because the directory cannot be read.
    pub(super) fn report_recorded(&mut self) {
        for (path, recorded) in self.store.load_all(|_| true) {
            if let Some(name) = self.name_of(&path).filter(|name| !self.sources.contains_key(name)) {
                self.report_with(&name, Some(recorded), FileContent::NotRead);
                self.sources.insert(name, ReportedFile::default());
            }
        }
    }

    /// Reports the files that have a record and were removed while Wherry was not running.
    pub(super) fn report_removed(&mut self) {
        let known: BTreeSet<PathBuf> =
            self.sources.keys().map(|name| self.store.file_of(&self.path(name))).collect_set();
        for (path, recorded) in self.store.load_all(|file| !known.contains(file)) {
            if let Some(name) = self.name_of(&path) {
                self.report_with(&name, Some(recorded), FileContent::Removed);
            }
        }
    }

    fn report_with(&mut self, name: &OsStr, recorded: Option<Vec<RecordedDocument>>, content: FileContent) {
        let of_text = match &content {
            FileContent::Text(text) => text.documents.as_deref().unwrap_or_default(),
            FileContent::NotRead | FileContent::Unreadable(_) | FileContent::Removed => &[],
        };
        let of_record = recorded.iter().flatten().map(|document| &document.content);
        let contents = of_text.iter().map(|document| &document.content).chain(of_record);
        let credentials = NamedCredentials::of(contents, |name| self.settings.credentials.read(name));
        self.changes.push(FileReport { name: name.to_owned(), recorded, content, credentials });
    }

    /// Returns the file name of a manifest in the directory; None for any other path.
    fn name_of(&self, path: &Path) -> Option<OsString> {
        path.file_name().filter(|_| path.parent() == Some(&self.settings.directory)).map(OsStr::to_owned)
    }

    /// Returns the recorded mount of the directory.
    pub(super) fn recorded(&mut self) -> Option<MountPlace> {
        let (store, directory) = (&self.store, &self.settings.directory);
        self.recorded.get_or_insert_with(|| store.place(directory)).clone()
    }
}
