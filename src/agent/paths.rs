//! What the agent needs from paths that Wherry does not own: the host's DNS settings and hosts file, termination messages, the
//! results that libcni keeps of sandboxes' networks, the configuration. Helpers read them, because their file systems may
//! hang; what waits for an answer goes on when it is there, or when the deadline passes.

use super::effects::{Job, Work};
use super::{Agent, start};
use crate::adapters::cri::requests::{HostDns, dns_notices};
use crate::adapters::host::cni_cache;
use crate::adapters::pod_files;
use crate::api::pod::Pod;
use crate::api::time::{Boot, Now};
use crate::config;
use crate::engine::effect::{FilesCall, Notice, RuntimeCall, Severity};
use crate::engine::event::{Answer, Event};
use crate::engine::op::{OpError, OpId};
use crate::event_loop::Class;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// A file system that gives no answer for this long hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// RunPodSandbox, before it is sent.
pub struct SandboxCall {
    op: OpId,
    pod: Rc<Pod>,
    call: RuntimeCall,
    deadline: Boot,
}

/// PrepareContainer, of a pod on the host's network.
pub struct ContainerFiles {
    pub op: OpId,
    pod: Rc<Pod>,
    container: String,
    ips: Vec<String>,
}

impl Agent {
    /// True if the call is to be sent now.
    pub(super) fn call_runtime(&mut self, op: OpId, call: RuntimeCall, timeout: Duration, now: Now) -> bool {
        let RuntimeCall::RunSandbox { pod, .. } = &call else {
            self.client.start(op, call, timeout, now.boot);
            return true;
        };
        let sandbox = SandboxCall { op, pod: pod.clone(), deadline: now.boot + timeout, call };
        // A new sandbox gets the host's DNS settings of now: a network may come up after Wherry.
        let Some(path) = self.config.resolv_conf.clone() else {
            self.run_sandbox(sandbox, Some(HostDns::none()), now);
            return true;
        };
        let deadline = now.boot + READ_TIMEOUT;
        let of_thread = path.clone();
        let id = self.helpers.submit_for(Class::Paths, "read the host's resolv.conf", &path, deadline, move || {
            Work::Dns(start::host_dns(&of_thread))
        });
        self.jobs.insert(id, Job::Dns(sandbox));
        false
    }

    /// `host`: the host's DNS settings; None if there is no answer, and those read last are used.
    pub(super) fn run_sandbox(&mut self, sandbox: SandboxCall, host: Option<HostDns>, now: Now) {
        let SandboxCall { op, pod, call, deadline } = sandbox;
        let cfg = self.client.config_mut();
        if let Some(host) = host {
            cfg.host_dns = host;
        }
        // The pod's owner learns what the pod does not get of its DNS settings.
        for (reason, message) in dns_notices(&pod, cfg) {
            let severity = Severity::Warning;
            self.tell(&Notice { pod: Some(pod.clone()), container: None, severity, reason, message }, now);
        }
        self.client.start(op, call, deadline.since(now.boot), now.boot);
    }

    /// True if the runtime is to be told.
    pub(super) fn cancel(&mut self, op: OpId) -> bool {
        let waits = |job: &Job| matches!(job, Job::Dns(sandbox) if sandbox.op == op);
        let Some(id) = self.jobs.iter().find(|(_, job)| waits(job)).map(|(id, _)| *id) else {
            self.client.cancel(op);
            return true;
        };
        // (The helper's answer finds no job and is dropped.)
        self.jobs.remove(&id);
        let result = Err(OpError::NotSent("cancelled before it was sent".to_owned()));
        self.events.push_back(Event::Done { op, result });
        false
    }

    /// The call back if it needs no path that is not ours.
    pub(super) fn use_foreign_files(&mut self, op: OpId, call: FilesCall, now: Now) -> Option<FilesCall> {
        let deadline = now.boot + READ_TIMEOUT;
        match call {
            FilesCall::ReadTermination { id: _, termination_file, log_path, fallback_to_logs, exit_code } => {
                let fallback = fallback_to_logs && exit_code != 0;
                // (All instances of a container share a directory, and so hang together.)
                let file = if fallback { &log_path } else { termination_file.as_ref().unwrap_or(&log_path) };
                let directory = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
                let id = self.helpers.submit_for(
                    Class::Paths,
                    "read a termination message",
                    &directory,
                    deadline,
                    move || Work::Message(pod_files::message(termination_file.as_deref(), &log_path, fallback)),
                );
                self.jobs.insert(id, Job::Message(op));
                None
            }
            FilesCall::PrepareContainer { pod, container, ips, attempt: _ } if pod.host_network() => {
                let files = self.files.clone();
                let path = PathBuf::from(&files.host_hosts);
                let id =
                    self.helpers.submit_for(Class::Paths, "read the host's hosts file", &path, deadline, move || {
                        Work::Hosts(files.host_hosts())
                    });
                self.jobs.insert(id, Job::Hosts(ContainerFiles { op, pod, container, ips }));
                None
            }
            other => Some(other),
        }
    }

    pub(super) fn prepare_on_host_network(&mut self, waiting: ContainerFiles, hosts: Result<String, String>) {
        let ContainerFiles { op, pod, container, ips } = waiting;
        let result = pod_files::answer(hosts)
            .and_then(|hosts| self.files.prepare_on_host_network(&pod, &container, &ips, &hosts));
        self.events.push_back(Event::Done { op, result });
    }

    /// Reads the configuration again. Of two requests the later one counts: it reads what the earlier one has read, or more.
    pub(super) fn read_configuration(&mut self, now: Now) {
        self.jobs.retain(|_, job| !matches!(job, Job::Configuration));
        let flags = self.config.flags.clone();
        let path = flags.config.clone().unwrap_or_else(|| config::DEFAULT_FILE.into());
        let deadline = now.boot + READ_TIMEOUT;
        let id = self.helpers.submit_for(Class::Paths, "read the configuration", &path, deadline, move || {
            Work::Configuration(Box::new(config::load(&flags)))
        });
        self.jobs.insert(id, Job::Configuration);
    }

    /// Before the engine hears of sandboxes for the first time: after a power cut the runtime cannot stop one of ours whose
    /// network's result is an empty file.
    pub(super) fn mend_networks(&mut self, op: OpId, result: Result<Answer, OpError>, now: Now) {
        self.networks_mended = true;
        let listed = match &result {
            Ok(Answer::Listed(listed)) => listed.sandboxes.as_slice(),
            _ => &[],
        };
        let ours = listed.iter().filter(|s| s.owner.as_ref() == Some(&self.root.id));
        let ids: Vec<String> = ours.map(|s| s.id.to_string()).collect();
        if ids.is_empty() {
            self.events.push_back(Event::Done { op, result });
            return;
        }
        let deadline = now.boot + READ_TIMEOUT;
        let results = Path::new(cni_cache::RESULTS);
        let name = "look at the results of sandboxes' networks";
        let id = self.helpers.submit_for(Class::Paths, name, results, deadline, move || {
            Work::Networks(cni_cache::remove_empty(results, &ids))
        });
        self.jobs.insert(id, Job::Networks { op, result: Box::new(result) });
    }

    pub(super) fn networks_mended(&mut self, op: OpId, result: Result<Answer, OpError>, gone: Vec<Removed>) {
        for (path, removed) in gone {
            let path = path.display();
            match removed {
                Ok(()) => log::warn!(
                    "the empty result of a sandbox's network was removed, as a power cut leaves it path={path}"
                ),
                Err(e) => log::error!(
                    "the empty result of a sandbox's network could not be removed, and so its pod will not end; \
                     remove it by hand path={path} error={e}"
                ),
            }
        }
        self.events.push_back(Event::Done { op, result });
    }
}

/// A file, and what came of its removal.
pub type Removed = (PathBuf, io::Result<()>);
