//! Evaluates the inspection of one file: whether its content is complete and has changed. A file that cannot be read
//! keeps its last good version (D2).

use super::contents::{self, Held};
use super::file::{Found, Stamp, Unread};
use super::inspection::{FileSeen, Reading};
use super::inspections::Why;
use super::open_problems::Kind;
use super::watch::Touch;
use super::{GONE, Manifests, OpenSecrets, SETTLE, Wait, seen};
use crate::api::document::{self, Context, Document};
use crate::api::problem::Problem;
use crate::api::system_credentials::Credentials;
use crate::api::time::Now;
use crate::api::uid;
use std::collections::BTreeSet;
use std::ffi::OsStr;

/// The warning about a file with a Secret.
pub const OPEN_SECRET: &str = "contains a Secret, and every user of this machine can read the file; chmod o-r, or move \
                               the Secret to a file of its own";

fn open_secret(path: &str, document: u32) -> Problem {
    Problem { document, ..Problem::of_file(path, OPEN_SECRET) }
}

/// The result of reading a file.
struct Read {
    reading: Reading,
    text: Vec<u8>,
    link: bool,
    stamp: Option<Stamp>,
}

impl Manifests {
    /// Evaluates the inspection of a file.
    pub(super) fn file_seen(&mut self, name: &OsStr, why: Why, seen: FileSeen, text: Vec<u8>, now: Now) {
        let FileSeen { found, reading, directory, steps, watched, foreign } = seen;
        let link = matches!(found, Found::Entry { link: true, .. });
        let was_link = self.sources.get(name).is_some_and(|source| source.link);
        if link || was_link {
            let moved = self.watcher.assign(Some(name), watched.roles);
            self.moved(&moved, now);
        }
        let stamp = if let Found::Entry { stamp, .. } = found { stamp } else { None };
        let read = Read { reading, text, link, stamp };
        match (why, found) {
            (Why::Touched(touch), found) => self.touched(name, touch, found, read, now),
            (Why::Listed, Found::Nothing) => {}
            (Why::Listed, Found::Entry { .. }) => self.listed(name, read, now),
            (Why::Gone, Found::Nothing) if self.is_the_directory(directory) => self.remove(name, now),
            (Why::Gone, Found::Nothing) => self.start_scan(now),
            (Why::Settling(_), Found::Nothing) => self.wait(name, GONE, Wait::Gone, now),
            (Why::Settling(before), Found::Entry { stamp, .. }) if stamp == before => self.take(name, read, now),
            (Why::Gone, Found::Entry { link: true, .. }) => self.take(name, read, now),
            (_, Found::Entry { stamp, .. }) => self.wait(name, SETTLE, Wait::Settle(stamp), now),
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

    /// Handles a file after an event. The file may have changed again since.
    fn touched(&mut self, name: &OsStr, touch: Touch, found: Found, read: Read, now: Now) {
        let known = self.sources.get(name);
        let Found::Entry { link, hard_links, stamp } = found else {
            if known.is_some() || self.waits.contains_key(name) {
                self.wait(name, GONE, Wait::Gone, now);
            }
            return;
        };
        let unreadable = known.is_some_and(|source| source.unreadable);
        // Who may read the file matters if it contains a Secret.
        let guarded = known.is_some_and(|source| source.open || source.held.iter().any(Held::is_secret));
        let same = known.is_some_and(|source| source.stamp == stamp && stamp.is_some());
        // The target of a link may still be written. The link itself was created in one step.
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
            Some(stamp) if known.is_some_and(|source| source.stamp == Some(stamp) && !source.unreadable) => {
                self.waits.remove(name);
            }
            // The file may be incomplete. At the start this matters only if it could remove pods.
            Some(stamp) if !settled(stamp, now) => match self.is_first() && !self.restore(name, now) {
                true => self.take(name, read, now),
                false => self.settle_later(name, Some(stamp), now),
            },
            _ => self.take(name, read, now),
        }
    }

    /// Waits until the file has not changed for 1 s.
    fn settle_later(&mut self, name: &OsStr, stamp: Option<Stamp>, now: Now) {
        if self.is_first() && !self.sources.contains_key(name) {
            // Until then its recorded version is in force.
            self.restore(name, now);
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
            Reading::Text { stamp, open } => (stamp, open),
            Reading::Same => return,
            Reading::Not(Unread::Gone) => return self.wait(name, GONE, Wait::Gone, now),
            Reading::Not(Unread::Changing) => return self.settle_later(name, read.stamp, now),
            Reading::Not(Unread::Broken { why, passing }) => {
                self.cannot_read(name, &why, now);
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
        let unchanged = |source: &&mut super::Source| {
            !source.unreadable && source.open == open && source.text.as_ref().is_some_and(|old| *old == digest)
        };
        if let Some(source) = self.sources.get_mut(name).filter(unchanged) {
            source.stamp = Some(stamp);
            return;
        }
        match document::parse(&read.text, &shown) {
            Err(problem) => {
                self.keep(name, vec![problem], now);
                if let Some(source) = self.sources.get_mut(name) {
                    source.has_documents = false;
                }
            }
            Ok(documents) => {
                if open
                    && self.settings.open_secrets == OpenSecrets::Warn
                    && documents.iter().any(Document::has_secret_values)
                {
                    log::warn!("manifest warning file={shown:?} warning={OPEN_SECRET:?}");
                }
                self.merge(name, &read.text, documents, open, now);
            }
        }
        let source = self.sources.entry(name.to_owned()).or_default();
        (source.text, source.stamp, source.unreadable) = (Some(digest), Some(stamp), false);
        source.open = open;
        self.note_place();
    }

    /// Handles a file that exists and cannot be read. Clearing the stamp makes the next scan read it again.
    pub(super) fn cannot_read(&mut self, name: &OsStr, why: &str, now: Now) {
        let problem = Problem::of_file(&self.shown(name), why);
        self.keep(name, vec![problem], now);
        let source = self.sources.entry(name.to_owned()).or_default();
        source.unreadable = true;
        source.has_documents = false;
        source.stamp = None;
    }

    /// Brings the documents of a parsed file into force, each one independently of the others.
    fn merge(&mut self, name: &OsStr, text: &[u8], documents: Vec<Document>, open: bool, now: Now) {
        let has_documents = documents.iter().any(|document| document.may_be_ours() && document.key().is_some());
        let shown = self.shown(name);
        let seen = seen(now);
        let node_name = self.settings.node_name.clone();
        let credentials = self.settings.credentials.clone();
        let read = |name: &str| credentials.read(name);
        let context = Context { node_name: &node_name, seen: &seen, credentials: Credentials::Service(&read) };
        let refuse = open && self.settings.open_secrets == OpenSecrets::Refuse;
        let make = |document: &Document| match refuse && document.has_secret_values() {
            true => Err(vec![open_secret(&shown, document.number)]),
            false => document.object(&shown, Some(text), context),
        };
        let old = self.sources.get_mut(name).map(|source| std::mem::take(&mut source.held));
        let (held, problems) = contents::merge(old, || self.recall(name, now).unwrap_or_default(), documents, make);
        self.changed = true;
        let source = self.sources.entry(name.to_owned()).or_default();
        source.held = held;
        source.has_documents = has_documents;
        self.dirty.insert(name.to_owned());
        self.standing.set(Some(name), &shown, Kind::Content, problems, now);
    }

    /// Keeps the last good version of a file that exists but is broken (D2).
    pub(super) fn keep(&mut self, name: &OsStr, problems: Vec<Problem>, now: Now) {
        if !self.sources.contains_key(name) {
            self.restore(name, now);
        }
        let shown = self.shown(name);
        self.standing.set(Some(name), &shown, Kind::Content, problems, now);
    }

    pub(super) fn remove(&mut self, name: &OsStr, now: Now) {
        let shown = self.shown(name);
        if self.sources.remove(name).is_some() {
            self.changed = true;
            self.dirty.insert(name.to_owned());
        }
        self.standing.set(Some(name), &shown, Kind::Content, Vec::new(), now);
        self.standing.set(Some(name), &shown, Kind::Class, Vec::new(), now);
        self.watcher.assign(Some(name), BTreeSet::new());
    }
}

/// True if the file has not changed for 1 s.
fn settled(stamp: Stamp, now: Now) -> bool {
    stamp.latest().saturating_add(SETTLE.as_nanos() as i64) <= now.wall.0
}
