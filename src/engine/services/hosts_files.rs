//! Keeps the names of services in the hosts files of running pods up to date (Y27).

use crate::api::names::Uid;
use crate::api::ordered::CollectOrdered;
use crate::api::pod::Pod;
use crate::api::reason::Reason;
use crate::api::time::Boot;
use crate::engine::effect::{Effect, FilesCall, Severity};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The maximum number of files that are being written at the same time.
const IN_FLIGHT: usize = 16;
const RETRY: Duration = Duration::from_secs(10);

/// A pod whose hosts file has the names of services.
pub struct NamedPod<'a> {
    pub pod: &'a Rc<Pod>,
    pub ips: Vec<String>,
    /// The lines that the file should have.
    pub lines: Rc<str>,
    /// A container of the pod is being prepared, which writes the same file.
    pub is_busy: bool,
}

#[derive(Debug, Default, Serialize)]
pub struct HostsFiles {
    #[serde(skip)]
    files: BTreeMap<Uid, HostsFile>,
    /// Some files may not have the present lines.
    is_behind: bool,
    /// There were names at some time, also in an earlier run. A file of which nothing is known may then have some.
    may_be_stale: bool,
}

#[derive(Debug)]
enum HostsFile {
    Written(Rc<str>),
    Writing(Rc<str>),
    Failed {
        again: Boot,
    },
    /// The next write is due as soon as it is possible. An event precedes that.
    Due,
}

impl HostsFiles {
    /// Notes that there are names, or were some in an earlier run.
    pub fn may_be_stale(&mut self) {
        self.may_be_stale = true;
        self.is_behind = true;
    }

    /// Notes that names or pods have changed.
    pub fn changed(&mut self) {
        self.is_behind = true;
    }

    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns true if all files have the present lines.
    pub fn are_written(&self) -> bool {
        !self.is_behind && self.files.values().all(|file| matches!(file, HostsFile::Written(_)))
    }

    /// Returns true if no file can have names. A new pod may get names that end before its addresses are known.
    pub fn are_unused(&self) -> bool {
        !self.may_be_stale && self.files.is_empty()
    }

    /// Begins the writes that are due. `pods`: all pods with the names of services.
    pub fn drive(&mut self, pods: &[NamedPod<'_>], now: Boot, outbox: &mut Outbox) {
        let present = pods.iter().map(|one| &one.pod.uid).collect_set();
        self.files.retain(|uid, _| present.contains(uid));
        let is_writing = |file: &&HostsFile| matches!(file, HostsFile::Writing(_));
        let mut free = IN_FLIGHT.saturating_sub(self.files.values().filter(is_writing).count());
        self.is_behind = false;
        for one in pods {
            let is_due = match self.files.get(&one.pod.uid) {
                None => self.may_be_stale,
                Some(HostsFile::Written(lines)) => *lines != one.lines,
                // The end of the write is an event.
                Some(HostsFile::Writing(_)) => false,
                Some(HostsFile::Failed { again }) => *again <= now,
                Some(HostsFile::Due) => true,
            };
            if !is_due {
                continue;
            }
            if free == 0 || one.is_busy {
                self.is_behind = true;
                self.files.insert(one.pod.uid.clone(), HostsFile::Due);
                continue;
            }
            free -= 1;
            let (pod, ips, names) = (one.pod.clone(), one.ips.clone(), one.lines.clone());
            self.files.insert(pod.uid.clone(), HostsFile::Writing(names.clone()));
            let call = FilesCall::WriteHosts { pod: pod.clone(), ips, names };
            outbox.begin(Owner::HostsFile(pod.uid.clone()), |op| Effect::Files { op, call });
        }
    }

    /// Handles the end of a write. `error`: why it failed.
    pub fn written(&mut self, uid: &Uid, error: Option<String>, pod: Option<&Rc<Pod>>, now: Boot, outbox: &mut Outbox) {
        self.is_behind = true;
        let Some(file) = self.files.get_mut(uid) else { return };
        match (&*file, error) {
            (HostsFile::Writing(lines), None) => *file = HostsFile::Written(lines.clone()),
            (HostsFile::Writing(_), Some(why)) => {
                let message = format!("the names of services in its hosts file may be old: {why}");
                outbox.emit_event(pod, None, Severity::Warning, Reason::FailedServiceNames, message);
                *file = HostsFile::Failed { again: now + RETRY };
            }
            _ => {}
        }
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        let again = |file: &HostsFile| if let HostsFile::Failed { again } = file { Some(*again) } else { None };
        self.files.values().filter_map(again).min()
    }
}
