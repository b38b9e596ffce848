//! Evaluates a scan of the directory: which names exist, which are missing, and whether this is the right directory.
//!
//! A scan starts with the list of names and ends when each of them has been inspected. If the mount differs from the
//! recorded one, the names alone prove nothing, because a mount point without its file system may contain a
//! subdirectory or a README. In this case no file is considered removed until a manifest has been found.

use super::file::Stamp;
use super::inspection::DirectorySeen;
use super::inspections::Why;
use super::scan_progress::{Scan, ScanStage, ScannedDirectory};
use super::store::MountPlace;
use super::{GONE, Manifests, NET, SETTLE, Wait};
use crate::adapters::mount_table::Mount;
use crate::api::manifest_report::DirectoryState;
use crate::api::ordered::CollectOrdered;
use crate::api::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::time::Duration;

impl Manifests {
    /// Evaluates the list of names.
    pub(super) fn directory_seen(&mut self, seen: DirectorySeen, now: Now) {
        let DirectorySeen { names, stamps, real, mount, steps, watched } = seen;
        let stamps: BTreeMap<OsString, Stamp> = stamps.into_iter().collect_map();
        let moved = self.watcher.assign(None, watched.roles);
        self.moved(&moved, now);
        self.steps = steps;
        if let Some(why) = watched.failed {
            self.not_watched(why);
        }
        let (names, (real, identity)) = match (names, real) {
            (Ok(names), Some(real)) => (names, real),
            (Err(why), _) => return self.missing(&why, now),
            (Ok(_), None) => return self.missing("cannot be read", now),
        };
        let same = self.directory.as_ref().is_some_and(|old| old.identity.same_inode(&identity));
        // Without a mount table, this may be any file system, so it counts as another one.
        let is_other = |recorded: &MountPlace| mount.as_ref().is_none_or(|mount| !recorded.is(mount));
        let doubt = self.recorded().filter(is_other);
        self.directory = Some(ScannedDirectory { real: real.into(), identity, mount });
        // Wait longer in a new directory, because files may still be moved into it.
        let gone = if same || self.is_first() { GONE } else { SETTLE };
        let known = |name: &OsString| {
            self.sources.get(name).is_some_and(|source| {
                !source.link
                    && source.unreadable.is_none()
                    && source.stamp.is_some()
                    && source.stamp.as_ref() == stamps.get(name)
            })
        };
        let (unchanged, mut left): (BTreeSet<OsString>, BTreeSet<OsString>) = names.iter().cloned().partition(known);
        // A file that hangs is retried after its back-off.
        left.retain(|name| !self.inspections.is_hung(&Some(name.clone())));
        for name in unchanged {
            self.waits.remove(&name);
        }
        for name in &left {
            self.inspections.want(Some(name.clone()), Why::Listed, now.boot);
        }
        let scan = Scan { names, left, gone, doubt };
        if scan.doubt.is_none() {
            self.right_directory(&scan, now);
        }
        self.scan = Some(scan);
        self.end_scan(now);
    }

    /// Records that a file has been inspected, or cannot be.
    pub(super) fn scanned(&mut self, name: &OsStr, now: Now) {
        if self.scan.as_mut().is_some_and(|scan| scan.left.remove(name)) {
            self.end_scan(now);
        }
    }

    /// Ends the scan if no file is left to inspect.
    fn end_scan(&mut self, now: Now) {
        let Some(scan) = self.scan.take_if(|scan| scan.left.is_empty()) else { return };
        if let Some(recorded) = &scan.doubt {
            let has_documents = |name| self.sources.get(name).is_some_and(|source| source.has_documents);
            if !scan.names.iter().any(has_documents) {
                let why = format!(
                    "it contains no manifests, and the file system that contained them ({recorded}) is not mounted: \
                     mount it, or put a manifest here if this is the right directory"
                );
                return self.missing(&why, now);
            }
            self.right_directory(&scan, now);
        }
        if self.is_first() {
            self.report_removed();
        }
        self.now_read();
        self.note_place();
        self.full_within(self.interval(), now);
    }

    /// Marks the directory as usable, and schedules the removal of the files that it no longer contains.
    fn right_directory(&mut self, scan: &Scan, now: Now) {
        self.directory_state = DirectoryState::Usable;
        let gone: Vec<OsString> = self.sources.keys().filter(|name| !scan.names.contains(*name)).cloned().collect();
        for name in gone {
            if !self.waits.contains_key(&name) {
                self.wait(&name, scan.gone, Wait::Gone, now);
            }
        }
    }

    /// Handles a directory that cannot be used.
    pub(super) fn missing(&mut self, why: &str, now: Now) {
        self.directory_state = DirectoryState::Unusable(why.to_owned());
        self.waits.clear();
        self.inspections.forget_files();
        self.scan = None;
        if self.is_first() {
            self.report_recorded();
        }
        self.directory = None;
        self.now_read();
        self.full_within(self.settings.check_frequency, now);
    }

    /// Records that the desired pods are known (D1).
    fn now_read(&mut self) {
        self.stage = ScanStage::Read;
    }

    /// Returns the period of the full scan while no event arrives.
    pub(super) fn interval(&self) -> Duration {
        let foreign = self.directory.as_ref().and_then(|d| d.mount.as_ref()).is_some_and(Mount::is_foreign);
        let unwatched = self.unwatched || self.sources.values().any(|source| source.unwatched);
        if foreign || unwatched { self.settings.check_frequency } else { NET }
    }

    /// Schedules recording the directory's mount if the directory contains manifests and the recorded mount differs.
    pub(super) fn note_place(&mut self) {
        let in_doubt = self.scan.as_ref().is_some_and(|scan| scan.doubt.is_some());
        if in_doubt || !self.sources.values().any(|source| source.has_documents) {
            return;
        }
        let place = self.directory.as_ref().and_then(|directory| directory.mount.as_ref()).map(MountPlace::of);
        if place.is_some() && self.recorded() != place {
            self.recorded = Some(place.clone());
            self.new_place = place;
        }
    }
}
