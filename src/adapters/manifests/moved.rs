//! Decides what to inspect after inotify events and changes to the mount table.

use super::inspections::Why;
use super::scan_progress::{ScanStage, ScannedDirectory};
use super::walk::PathStep;
use super::watch::{Moved, Touch};
use super::{GONE, MOUNTS, Manifests, SETTLE, Wait, file};
use crate::adapters::mount_table::Table;
use crate::api::time::Now;
use std::ffi::OsStr;
use std::path::Path;

impl Manifests {
    /// Handles a change to the mount table.
    pub fn mounted(&mut self, now: Now) {
        let next = self.mounts_read.map_or(now.boot, |at| at + MOUNTS);
        // Read the table at once if an inspection is in progress, which may have read it before the change.
        if next <= now.boot || self.inspections.any_running() {
            self.read_mounts(now);
        } else {
            self.mounts_due = Some(next);
        }
    }

    pub(super) fn read_mounts(&mut self, now: Now) {
        (self.mounts_read, self.mounts_due) = (Some(now.boot), None);
        let table = Table::read(&self.settings.mountinfo);
        let id = |path: &Path| table.of(path).map_or(0, |mount| mount.id);
        let moved = |steps: &[PathStep]| steps.iter().any(|step| id(&step.path()) != step.mount);
        let other =
            |directory: &ScannedDirectory| id(&directory.real) != directory.mount.as_ref().map_or(0, |mount| mount.id);
        if self.inspections.is_running(&None) || moved(&self.steps) || self.directory.as_ref().is_some_and(other) {
            self.start_scan(now);
        }
        let sources = self.sources.iter().filter(|(_, source)| moved(&source.steps));
        let mut files = self.inspections.running_files();
        files.extend(sources.map(|(name, _)| name.clone()));
        for name in files {
            let touch = Touch { step: true, complete: true, ..Touch::default() };
            self.inspections.want(Some(name), Why::Touched(touch), now.boot);
        }
        self.inspections.mounted(|id| table.by_id(id).is_some(), now.boot);
    }

    /// Reads the pending inotify events, up to the limit of one call.
    pub(super) fn events(&mut self, now: Now) {
        let moved = self.watcher.read(self.inspections.any_running()).unwrap_or_else(|why| {
            log::warn!("manifests: failed to read inotify events; reading the directory again error={why:?}");
            Moved { overflow: true, ..Moved::default() }
        });
        self.more = moved.more;
        self.moved(&moved, now);
    }

    /// Handles the inotify events that were read.
    pub(super) fn moved(&mut self, moved: &Moved, now: Now) {
        if self.directory.is_none() {
            if !moved.files.is_empty() {
                // The directory may be usable again.
                self.full_within(SETTLE, now);
            }
        } else {
            for (name, touch) in &moved.files {
                self.happened(name, *touch, now);
            }
        }
        if (moved.directory || moved.overflow) && self.stage != ScanStage::New {
            self.start_scan(now);
        }
        if moved.overflow {
            self.full_within(self.settings.check_frequency, now);
        }
    }

    fn happened(&mut self, name: &OsStr, touch: Touch, now: Now) {
        if !file::counts(name) {
            return;
        }
        let key = Some(name.to_owned());
        if touch.gone == Some(true) && !self.inspections.is_running(&key) {
            // There is nothing to inspect until the file is considered removed.
            if self.sources.contains_key(name) || self.waits.contains_key(name) || self.inspections.is_wanted(&key) {
                self.inspections.forget(&key);
                self.wait(name, GONE, Wait::Gone, now);
                self.scanned(name, now);
            }
            return;
        }
        self.inspections.want(key, Why::Touched(touch), now.boot);
    }
}
