//! Evaluates the inspection of one file: decides whether the content is complete and has changed, and reports new
//! content.

use super::file::{FoundPath, Stamp, Unread};
use super::inspection::{FileReading, FileSeen};
use super::inspections::Why;
use super::watch::Touch;
use super::{GONE, Manifests, SETTLE, Wait};
use crate::api::data_object::DataKind;
use crate::api::document::{self, Document, Key};
use crate::api::manifest_report::{FileContent, FileText};
use crate::api::time::Now;
use crate::api::uid;
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// The result of reading a file.
struct Read {
    reading: FileReading,
    text: Vec<u8>,
    link: bool,
    stamp: Option<Stamp>,
    /// Whether the file has not changed for 1 s, or its change is complete.
    settled: bool,
}

impl Manifests {
    /// Evaluates the inspection of a file.
    pub(super) fn file_seen(&mut self, name: &OsStr, why: Why, seen: FileSeen, text: Vec<u8>, now: Now) {
        let FileSeen { found, reading, directory, steps, watched, foreign } = seen;
        let link = matches!(found, FoundPath::Entry { link: true, .. });
        let was_link = self.sources.get(name).is_some_and(|source| source.link);
        if link || was_link {
            let moved = self.watcher.assign(Some(name), watched.roles);
            self.moved(&moved, now);
        }
        let stamp = if let FoundPath::Entry { stamp, .. } = found { stamp } else { None };
        let read = Read { reading, text, link, stamp, settled: true };
        match (why, found) {
            (Why::Touched(touch), found) => self.touched(name, touch, found, read, now),
            (Why::Listed, FoundPath::Nothing) => {}
            (Why::Listed, FoundPath::Entry { .. }) => self.listed(name, read, now),
            (Why::Gone, FoundPath::Nothing) if self.is_the_directory(directory) => self.remove(name),
            (Why::Gone, FoundPath::Nothing) => self.start_scan(now),
            (Why::Settling(_), FoundPath::Nothing) => self.wait(name, GONE, Wait::Gone, now),
            (Why::Settling(before), FoundPath::Entry { stamp, .. }) if stamp == before => self.take(name, read, now),
            (Why::Gone, FoundPath::Entry { link: true, .. }) => self.take(name, read, now),
            (_, FoundPath::Entry { stamp, .. }) => self.wait(name, SETTLE, Wait::Settle(stamp), now),
        }
        if let Some(source) = self.sources.get_mut(name) {
            source.link = link;
            source.steps = if link { steps } else { Vec::new() };
            source.unwatched = foreign || (link && watched.failed.is_some());
            if source.unwatched {
                self.full_within(self.settings.check_frequency, now);
            }
        }
    }

    /// Handles a file after an event. The file may have changed again since the event.
    fn touched(&mut self, name: &OsStr, touch: Touch, found: FoundPath, read: Read, now: Now) {
        let known = self.sources.get(name);
        let FoundPath::Entry { link, hard_links, stamp } = found else {
            if known.is_some() || self.waits.contains_key(name) {
                self.wait(name, GONE, Wait::Gone, now);
            }
            return;
        };
        let unreadable = known.is_some_and(|source| source.unreadable.is_some());
        // The permissions of the file matter if it contains a Secret.
        let guarded = known.is_some_and(|source| source.open || source.has_secret);
        let same = known.is_some_and(|source| source.stamp == stamp && stamp.is_some());
        // The target of a link may still be incomplete. The link itself was created atomically.
        let at_once = if touch.step { stamp.is_none_or(|stamp| settled(stamp, now)) } else { link || hard_links };
        if touch.complete || (touch.attributes && (unreadable || guarded && !same)) {
            self.take(name, read, now);
        } else if same {
            self.waits.remove(name);
        } else if at_once {
            self.take(name, read, now);
        } else if !touch.attributes || known.is_none() {
            self.settle_later(name, stamp, now);
        }
    }

    /// Handles a file that a scan found.
    fn listed(&mut self, name: &OsStr, read: Read, now: Now) {
        let known = self.sources.get(name);
        match read.stamp {
            Some(stamp) if known.is_some_and(|source| source.stamp == Some(stamp) && source.unreadable.is_none()) => {
                self.waits.remove(name);
            }
            // The file may be incomplete. In the first scan, the engine decides how to handle such a file.
            Some(stamp) if !settled(stamp, now) => {
                if self.is_first() {
                    self.take(name, Read { settled: false, ..read }, now);
                }
                self.settle_later(name, Some(stamp), now);
            }
            _ => self.take(name, read, now),
        }
    }

    /// Waits until the file has not changed for 1 s.
    fn settle_later(&mut self, name: &OsStr, stamp: Option<Stamp>, now: Now) {
        if self.is_first() {
            self.report_unread(name);
        }
        if !matches!(self.waits.get(name), Some((_, Wait::Settle(before))) if *before == stamp) {
            self.wait(name, SETTLE, Wait::Settle(stamp), now);
        }
    }

    /// Evaluates the content of a file.
    fn take(&mut self, name: &OsStr, read: Read, now: Now) {
        let shown = self.shown(name);
        self.waits.remove(name);
        let (stamp, open) = match read.reading {
            FileReading::Text { stamp, open } => (stamp, open),
            FileReading::Same => return,
            FileReading::Not(Unread::Gone) => return self.wait(name, GONE, Wait::Gone, now),
            FileReading::Not(Unread::Changing) => return self.settle_later(name, read.stamp, now),
            FileReading::Not(Unread::Broken { why, passing }) => {
                self.cannot_read(name, &why);
                if let Some(source) = self.sources.get_mut(name) {
                    source.link = read.link;
                }
                if passing {
                    self.full_within(self.settings.check_frequency, now);
                }
                return;
            }
        };
        let digest = uid::digest_of_bytes(&read.text);
        let unchanged = |source: &&mut super::ReportedFile| {
            source.unreadable.is_none() && source.open == open && source.text.as_ref().is_some_and(|old| *old == digest)
        };
        if let Some(source) = self.sources.get_mut(name).filter(unchanged) {
            source.stamp = Some(stamp);
            return;
        }
        let documents = document::parse(&read.text, &shown);
        let parsed = documents.as_deref().unwrap_or_default();
        let has_documents = parsed.iter().any(|document| document.may_be_ours() && document.key().is_some());
        let has_secret = documents.as_ref().ok().map(|all| all.iter().any(is_secret));
        let text = FileText { bytes: read.text, documents, open, settled: read.settled };
        self.report(name, FileContent::Text(Box::new(text)));
        let source = self.sources.entry(name.to_owned()).or_default();
        // Content that may be incomplete gets no digest and no stamp, so it is read and reported again.
        (source.text, source.stamp) = if read.settled { (Some(digest), Some(stamp)) } else { (None, None) };
        (source.unreadable, source.has_documents, source.open) = (None, has_documents, open);
        source.has_secret = has_secret.unwrap_or(source.has_secret);
        self.note_place();
    }

    /// Handles a file that exists but cannot be read. Clears the stamp, so that the next scan reads the file again.
    pub(super) fn cannot_read(&mut self, name: &OsStr, why: &str) {
        let is_reported = self.sources.get(name).is_some_and(|source| source.unreadable.as_deref() == Some(why));
        if !is_reported {
            self.report(name, FileContent::Unreadable(why.to_owned()));
        }
        let source = self.sources.entry(name.to_owned()).or_default();
        source.unreadable = Some(why.to_owned());
        source.has_documents = false;
        source.stamp = None;
    }

    pub(super) fn remove(&mut self, name: &OsStr) {
        if self.sources.contains_key(name) {
            self.report(name, FileContent::Removed);
            self.sources.remove(name);
        }
        self.watcher.assign(Some(name), BTreeSet::new());
    }
}

fn is_secret(document: &Document) -> bool {
    matches!(document.key(), Some(Key::Data(key)) if key.kind == DataKind::Secret)
}

/// Reports whether the file has not changed for 1 s.
fn settled(stamp: Stamp, now: Now) -> bool {
    stamp.latest().saturating_add(SETTLE.as_nanos() as i64) <= now.wall.0
}
