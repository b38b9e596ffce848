//! The disk: records, the pods' directories, and termination messages.

use super::{Item, Key, MS, World};
use crate::text::files_text;
use std::collections::{BTreeMap, BTreeSet};
use wherry::api::mount::Mount;
use wherry::api::names::{FullName, Uid};
use wherry::api::sealing::{Content, StoredRecord};
use wherry::engine::effect::{FilesCall, RecordChange};
use wherry::engine::event::{Answer, Prepared};
use wherry::engine::op::{Code, OpError, OpId};

/// A power failure may lose writes that the disk acknowledged within this time before it (ns).
const UNSAFE: u64 = 5 * super::S;

#[derive(Default)]
pub struct Disk {
    pub records: BTreeMap<String, String>,
    /// The sealed ones, by the key that opens them.
    pub sealed: BTreeMap<String, u32>,
    /// The key of the service. The configuration has to agree.
    pub key: Option<u32>,
    /// No record can be written or deleted.
    pub failing: bool,
    /// No record can be written.
    pub full: bool,
    /// Added to the time of each change of a record (ns).
    pub delay: u64,
    /// Writes of records failed at some time.
    pub was_full: bool,
    /// Acknowledged changes of records: time, key, and the previous content.
    acknowledged: Vec<(u64, String, Option<Before>)>,
    pub directories: BTreeMap<Uid, FullName>,
    /// The files in the directories of claims, by path.
    pub claims: BTreeMap<String, BTreeSet<String>>,
    /// Those that were removed: the time, the path and the files.
    pub removed_claims: Vec<(u64, String, BTreeSet<String>)>,
    /// The content of termination message files.
    pub termination_message: String,
    /// Added to the time of each read of a termination message (ns).
    pub message_delay: u64,
}

/// The previous content of a record.
struct Before {
    value: String,
    sealed: Option<u32>,
}

impl Disk {
    /// Carries out and acknowledges a change of a record.
    pub(super) fn keep(&mut self, now: u64, change: RecordChange) {
        let key = record_key(&change).to_owned();
        let seal = self.key.filter(|_| matches!(change, RecordChange::Seal { .. }));
        let sealed = match seal {
            Some(with) => self.sealed.insert(key.clone(), with),
            None => self.sealed.remove(&key),
        };
        let before = match change {
            RecordChange::Put { key, value } | RecordChange::Seal { key, value } => self.records.insert(key, value),
            RecordChange::Delete { key } | RecordChange::SetAside { key } => self.records.remove(&key),
            RecordChange::RemoveCorrupt { .. } => return,
        };
        self.acknowledged.push((now, key, before.map(|value| Before { value, sealed })));
    }

    /// The records as a start finds them.
    pub fn found(&self) -> Vec<StoredRecord> {
        let content = |key: &String, value: &String| match (self.sealed.get(key), self.key) {
            (None, _) => Content::Plain(value.clone()),
            (Some(with), Some(key)) if *with == key => Content::Sealed(value.clone()),
            (Some(_), _) => Content::Locked,
        };
        let all = self.records.iter();
        all.map(|(key, value)| StoredRecord { key: key.clone(), content: content(key, value) }).collect()
    }
}

fn record_key(change: &RecordChange) -> &str {
    match change {
        RecordChange::Put { key, .. } | RecordChange::Seal { key, .. } => key,
        RecordChange::Delete { key } | RecordChange::SetAside { key } | RecordChange::RemoveCorrupt { kind: key } => {
            key
        }
    }
}

impl World {
    /// No record can be written for this time (ns).
    pub fn disk_full(&mut self, ns: u64) {
        self.disk.full = true;
        self.disk.was_full = true;
        self.at(ns, Item::DiskWell);
    }

    /// No record can be written or deleted for this time (ns).
    pub fn disk_fails(&mut self, ns: u64) {
        self.disk.failing = true;
        self.disk_full(ns);
    }

    /// A power failure loses some of the writes that the disk acknowledged recently.
    pub(super) fn lose_writes(&mut self) {
        // A removal that is younger than the loss of a record is lost too.
        for (at, path, files) in std::mem::take(&mut self.disk.removed_claims) {
            if at + UNSAFE >= self.clock.now {
                self.disk.claims.entry(path).or_insert(files);
            }
        }
        for (at, key, before) in std::mem::take(&mut self.disk.acknowledged).into_iter().rev() {
            let recent = at + UNSAFE >= self.clock.now;
            let lost =
                recent && self.chaos.as_mut().is_some_and(|c| c.mishap("lost by the disk:", &key, 500).is_some());
            if !lost {
                continue;
            }
            self.note(|| format!("    what was written to {key} is lost"));
            self.checks.record_lost(&key);
            match before {
                Some(Before { value, sealed }) => {
                    match sealed {
                        Some(with) => self.disk.sealed.insert(key.clone(), with),
                        None => self.disk.sealed.remove(&key),
                    };
                    self.disk.records.insert(key, value);
                }
                None => {
                    self.disk.sealed.remove(&key);
                    self.disk.records.remove(&key);
                }
            }
        }
    }

    /// The engine changes a record.
    pub(super) fn change_record(&mut self, op: OpId, change: RecordChange) {
        self.note(|| match &change {
            RecordChange::Put { key, .. } => format!("  < put {key}"),
            RecordChange::Seal { key, .. } => format!("  < seal {key}"),
            RecordChange::RemoveCorrupt { kind } => format!("  < remove corrupt {kind}"),
            RecordChange::Delete { key } => format!("  < delete {key}"),
            RecordChange::SetAside { key } => format!("  < set aside {key}"),
        });
        if let Some(uid) = record_key(&change).strip_prefix("pods/") {
            let put = matches!(change, RecordChange::Put { .. });
            self.checks.record(op, &Uid::from(uid), put, &self.runtime);
        }
        let key = (self.process.life, op);
        self.begin(op);
        self.at(2 * MS + self.disk.delay, Item::Record { key, change });
    }

    /// The disk carries out a change of a record, or fails.
    pub(super) fn write_record(&mut self, key: Key, change: RecordChange) {
        if key.0 != self.process.life {
            return;
        }
        let wrong = self.disk.full && matches!(change, RecordChange::Put { .. } | RecordChange::Seal { .. })
            || self.disk.failing
            || self.goes_wrong("no space for", record_key(&change), 4);
        let result = if wrong {
            Err(OpError::Answered { code: Code::Other(28), message: "no space left on device".into() })
        } else {
            self.disk.keep(self.clock.now, change);
            Ok(Answer::Ok)
        };
        self.finish(key, result);
    }

    pub(super) fn files_call(&mut self, op: OpId, call: FilesCall) {
        self.note(|| format!("  < {op} {}", files_text(&call)));
        self.begin(op);
        match &call {
            FilesCall::PreparePod { pod } => self.checks.prepares_pod(&pod.uid),
            FilesCall::PrepareContainer { pod, .. } => self.checks.acts_on_status(&pod.uid, "PrepareContainer"),
            _ => {}
        }
        let key = (self.process.life, op);
        let delay = if matches!(call, FilesCall::ReadTermination { .. }) { self.disk.message_delay } else { 0 };
        let result = match self.goes_wrong("an I/O error in", &files_text(&call), 2) {
            true => Err(OpError::Answered { code: Code::Other(5), message: "input/output error".into() }),
            false => self.change_files(call),
        };
        self.at(MS / 2 + delay, Item::Answer { key, result });
    }

    fn change_files(&mut self, call: FilesCall) -> Result<Answer, OpError> {
        match call {
            FilesCall::PreparePod { pod } => {
                self.disk.directories.insert(pod.uid.clone(), pod.name.clone());
                Ok(Answer::Ok)
            }
            FilesCall::PrepareContainer { pod, container, attempt, names, .. } => {
                self.disk.directories.insert(pod.uid.clone(), pod.name.clone());
                self.rules.hosts.insert(pod.uid.clone(), names);
                let host_path = format!("/pods/{}/{container}/{attempt}", pod.uid);
                let mounts = vec![Mount::writable("/dev/termination-log", host_path)];
                Ok(Answer::Prepared(Prepared { mounts, host_ips: vec!["192.0.2.7".into()] }))
            }
            FilesCall::ReadTermination { id, .. } => {
                let now = self.wall_now();
                let lags = self.runtime.containers.values().any(|c| c.id == id.as_str() && c.log_lags(now));
                Ok(Answer::Message(if lags { String::new() } else { self.disk.termination_message.clone() }))
            }
            FilesCall::RemovePod { uid, .. } if self.volumes.mounted.contains(&uid) => {
                self.checks.fail("W2", format!("{uid} is taken away while its volumes are mounted"));
                Ok(Answer::Ok)
            }
            FilesCall::RemovePod { uid, kill, keep_directory, .. } => {
                let result = self.remove_cgroup(&uid, kill);
                if result.is_ok() && !keep_directory {
                    self.disk.directories.remove(&uid);
                    self.rules.hosts.remove(&uid);
                }
                result
            }
            FilesCall::WriteHosts { pod, names, .. } => {
                self.rules.writes += 1;
                if let Some(lines) = self.rules.hosts.get_mut(&pod.uid) {
                    *lines = names;
                }
                Ok(Answer::Ok)
            }
            _ => Ok(Answer::Ok),
        }
    }
}
