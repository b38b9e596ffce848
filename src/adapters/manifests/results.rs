//! The part of an inspection that runs on the event loop: builds the request and handles the result.

use super::inspection::{InspectionAnswer, InspectionOutcome, InspectionSubject, Question};
use super::inspection_job::{Inspected, Inspection};
use super::inspections::{self, FileKey, Means, Why};
use super::unfinished::Unfinished;
use super::walk::Avoid;
use super::{Manifests, NotSeen};
use crate::adapters::mount_table::{Mount, Table};
use crate::api::manifest_report::ManifestReport;
use crate::api::time::Now;

impl Manifests {
    /// Returns the next inspection to run on a helper thread. The caller passes its result to `inspected`.
    pub fn take_inspection(&mut self, now: Now) -> Option<Inspection> {
        let (key, why) = self.inspections.next()?;
        let directory = self.settings.directory.clone().into_os_string();
        let mountinfo = self.settings.mountinfo.clone().into_os_string();
        let (base, subject) = match &key {
            None => (
                None,
                InspectionSubject::Directory {
                    stamps: self.inspections.none_hung() && !self.one_by_one && !self.is_first(),
                },
            ),
            Some(name) => {
                let Some(directory) = &self.directory else {
                    self.inspections.forget_files();
                    return self.take_inspection(now);
                };
                let source = self.sources.get(name).filter(|source| source.unreadable.is_none());
                let complete = matches!(why, Why::Touched(touch) if touch.complete);
                let known = source.filter(|_| !complete).and_then(|source| source.stamp);
                let base = directory.real.clone().into_os_string();
                let watch = self.watcher.has_room() || self.sources.get(name).is_some_and(|source| source.link);
                (Some(directory.real.clone()), InspectionSubject::File { base, name: name.clone(), known, watch })
            }
        };
        let stamps = matches!(subject, InspectionSubject::Directory { stamps: true });
        let question = Question { directory, subject, mountinfo, avoid: Avoid::default() };
        let means = Means { inotify: self.watcher.inotify(), reader: self.settings.reader.clone() };
        Some(self.inspections.begin(key, question, base, stamps, means, now.boot))
    }

    /// Handles the result of an inspection. Returns a report if something changed, and after the first scan.
    pub fn inspected(&mut self, ticket: u64, seen: Result<Inspected, NotSeen>, now: Now) -> Option<ManifestReport> {
        let inspections::EndedInspection { key, why, base, stamps, at, alive } = self.inspections.end(ticket)?;
        let subject = (!stamps).then(|| key.clone());
        match seen {
            Ok(Inspected(InspectionOutcome::Seen(answer, text))) => {
                self.inspections.answered(&key);
                match (*answer, &key) {
                    (InspectionAnswer::Directory(seen), _) => self.directory_seen(seen, now),
                    // The directory was replaced in the meantime; repeat the inspection.
                    (InspectionAnswer::File(_), Some(_))
                        if base.as_ref() != self.directory.as_ref().map(|d| &d.real) =>
                    {
                        self.inspections.want(key.clone(), why, now.boot);
                    }
                    (InspectionAnswer::File(seen), Some(name)) => {
                        self.file_seen(name, why, seen, text, now);
                        self.scanned(name, now);
                    }
                    (InspectionAnswer::File(_), None) => {}
                }
            }
            Ok(Inspected(InspectionOutcome::Refused(mount))) => self.hangs(key, Some(&mount), stamps, now),
            Ok(Inspected(InspectionOutcome::Hung(mount, unfinished))) => {
                self.inspections.leave(subject, mount.as_ref().map(|mount| mount.id), unfinished);
                self.hangs(key, mount.as_ref(), stamps, now);
            }
            Err(NotSeen::Stuck) => {
                let mount = Table::read(&self.settings.mountinfo).by_id(at);
                self.inspections.leave(subject, Some(at).filter(|at| *at > 0), Unfinished::Thread(alive));
                self.hangs(key, mount.as_ref(), stamps, now);
            }
            Ok(Inspected(InspectionOutcome::Failed(why))) | Err(NotSeen::NotBegun(why)) => {
                self.not_inspected(key, &why, now)
            }
        }
        if !self.inspections.any_running() {
            self.watcher.rest();
        }
        self.take_report(now)
    }

    /// Handles a file system that does not respond.
    fn hangs(&mut self, key: FileKey, mount: Option<&Mount>, stamps: bool, now: Now) {
        if stamps {
            // Perhaps only one of the files hangs: repeat the scan without stamps.
            self.one_by_one = true;
            return self.start_scan(now);
        }
        let what = mount.map_or_else(
            || "the file system does not respond: check its server, or unmount it".to_owned(),
            |mount| {
                let Mount { point, kind, source, .. } = mount;
                format!(
                    "the file system on {point} ({source}, {kind}) does not respond: check its server, or unmount it \
                     (umount -l {point})"
                )
            },
        );
        self.inspections.hangs(key.clone(), mount.map(|mount| mount.id), now.boot);
        self.not_inspected(key, &what, now);
    }

    /// Handles an inspection that failed. The last good version stays in force (D2).
    fn not_inspected(&mut self, key: FileKey, why: &str, now: Now) {
        match key {
            None => self.missing(why, now),
            Some(name) => {
                if self.directory.is_some() {
                    self.waits.remove(&name);
                    self.cannot_read(&name, why);
                    self.full_within(self.settings.check_frequency, now);
                }
                self.scanned(&name, now);
            }
        }
    }
}
