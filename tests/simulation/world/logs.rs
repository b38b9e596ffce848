//! The logs of containers (L1 to L3): files, the runtime's open descriptor, and the kernel's reports of writes.

use super::{Item, MS, World};
use std::collections::BTreeMap;
use wherry::api::names::ContainerId;
use wherry::engine::effect::LogCall;
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{Code, OpError, OpId};

/// How long a rotation takes.
const ROTATION: u64 = 50 * MS;

pub struct Logs {
    /// By path. A log without an entry exists and is empty.
    files: BTreeMap<String, File>,
    watched: BTreeMap<ContainerId, String>,
    /// The rotations in progress, with their paths.
    rotating: BTreeMap<OpId, String>,
    /// The kernel has watches left.
    pub can_watch: bool,
    /// The file system refuses renames.
    pub read_only: bool,
    pub measured: u64,
}

#[derive(Clone, Default)]
struct File {
    /// Of the file into which the runtime writes.
    size: u64,
    /// The runtime writes into the file with the log's name.
    in_place: bool,
    rotations: u32,
}

impl Default for Logs {
    fn default() -> Logs {
        Logs {
            files: BTreeMap::new(),
            watched: BTreeMap::new(),
            rotating: BTreeMap::new(),
            can_watch: true,
            read_only: false,
            measured: 0,
        }
    }
}

impl Logs {
    fn file(&mut self, path: &str) -> &mut File {
        self.files.entry(path.to_owned()).or_insert(File { in_place: true, ..File::default() })
    }

    pub(super) fn engine_killed(&mut self) {
        self.watched.clear();
        self.rotating.clear();
    }
}

fn failed(message: &str) -> Result<Answer, OpError> {
    Err(OpError::Answered { code: Code::Other(2), message: message.to_owned() })
}

impl World {
    fn log_of(&self, of: &str) -> Option<(ContainerId, String)> {
        let is = |c: &&crate::runtime::Container| c.runs() && format!("{}/{}", c.pod_name.name, c.name) == of;
        let c = self.runtime.containers.values().find(is)?;
        Some((c.id.as_str().into(), c.log_path()))
    }

    /// The running container `pod/container` writes this many bytes into its log.
    pub fn writes(&mut self, of: &str, bytes: u64) {
        let Some((id, path)) = self.log_of(of) else { return };
        let file = self.logs.file(&path);
        file.size += bytes;
        if file.in_place && self.logs.watched.remove(&id).is_some() {
            self.event_in(MS / 10, Event::LogWritten { id });
        }
    }

    /// How often the log of `pod/container` was rotated, and the size of the current file. None: there is no file.
    pub fn log_file(&mut self, of: &str) -> (u32, Option<u64>) {
        let Some((_, path)) = self.log_of(of) else { return (0, None) };
        let file = self.logs.file(&path);
        (file.rotations, file.in_place.then_some(file.size))
    }

    /// A running container without a log.
    pub fn lost_log(&self) -> Option<String> {
        let lost = |c: &&crate::runtime::Container| {
            c.runs()
                && c.owner.as_ref() == Some(&self.runtime.owner)
                && self.logs.files.get(&c.log_path()).is_some_and(|file| !file.in_place)
        };
        self.runtime.containers.values().find(lost).map(|c| c.id.clone())
    }

    /// L3: all at once, as a user would do it.
    pub fn remove_log(&mut self, of: &str) {
        if let Some((_, path)) = self.log_of(of) {
            self.logs.file(&path).in_place = false;
        }
    }

    pub(super) fn log_call(&mut self, op: OpId, call: LogCall) {
        self.note(|| format!("  < {op} {call:?}"));
        self.begin(op);
        let wrong = self.goes_wrong("a failed work on a log", &op.to_string(), 10);
        let read_only = self.logs.read_only;
        let (after, result) = match call {
            LogCall::Measure { path } => {
                self.logs.measured += 1;
                let file = self.logs.file(&path);
                (MS / 10, Ok(Answer::LogSize(file.in_place.then_some(file.size))))
            }
            LogCall::Rotate { .. } if wrong || read_only => (ROTATION, failed("read-only file system")),
            LogCall::Rotate { path, .. } => {
                self.check_rotation(&path);
                self.logs.rotating.insert(op, path.clone());
                let file = self.logs.file(&path);
                file.in_place = false;
                file.rotations += 1;
                (ROTATION, Ok(Answer::Rotated(format!("{path}.{}", file.rotations))))
            }
            LogCall::Restore { path, .. } => {
                let file = self.logs.file(&path);
                if !file.in_place {
                    file.in_place = true;
                    file.rotations -= 1;
                }
                (MS / 10, Ok(Answer::Ok))
            }
        };
        self.at(after, Item::Answer { key: (self.process.life, op), result });
    }

    /// L1, L2: only a log of at least the maximum size is rotated, and not more at once than there are workers.
    fn check_rotation(&mut self, path: &str) {
        let Some(max) = self.config.log_rotation.max_size else {
            return self.checks.fail("L1: rotation is off", path.to_owned());
        };
        let size = self.logs.file(path).size;
        if size < max {
            self.checks.fail("L1: a small log stays", format!("{path} has {size} bytes"));
        }
        let (connection, life) = (&self.connection, self.process.life);
        self.logs.rotating.retain(|op, _| connection.is_pending((life, *op)));
        if self.logs.rotating.len() >= self.config.log_rotation.workers {
            self.checks.fail("L2: the workers are bounded", format!("{path} and {:?}", self.logs.rotating));
        }
    }

    /// The runtime opens the log again.
    pub fn reopen_log(&mut self, id: &ContainerId) -> Result<Answer, OpError> {
        let Some(c) = self.runtime.containers.get(id.as_str()).filter(|c| c.runs()) else {
            return failed("container is not running");
        };
        let path = c.log_path();
        let file = self.logs.file(&path);
        if !file.in_place {
            (file.in_place, file.size) = (true, 0);
        }
        Ok(Answer::Ok)
    }

    pub(super) fn watch_log(&mut self, id: ContainerId, path: String) {
        if !self.logs.can_watch || !self.logs.file(&path).in_place {
            return self.event_in(MS / 10, Event::LogNotWatched { id });
        }
        self.logs.watched.insert(id, path);
    }

    pub(super) fn unwatch_log(&mut self, id: &ContainerId) {
        self.logs.watched.remove(id);
    }

    pub fn watched_logs(&self) -> usize {
        self.logs.watched.len()
    }
}
