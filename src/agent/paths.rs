//! Access to files that Wherry does not own: the host's DNS settings and hosts file, termination messages, libcni's
//! network results of sandboxes, the configuration. Helper threads read them, because their file systems may hang. A
//! waiting operation continues with the result or at the deadline.

use super::jobs::{JobSpec, Jobs};
use super::runtime::SandboxCall;
use super::start;
use crate::adapters::cri::requests::HostDns;
use crate::adapters::host::{cni_cache, file_system};
use crate::adapters::pod_files::{self, PodFiles};
use crate::api::names::SandboxId;
use crate::api::time::{Boot, Now};
use crate::config::{self, Flags};
use crate::engine::effect::FilesCall;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::{Class, JobId};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file system that does not respond within this time is considered hung.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Has a helper read the host's current DNS settings, and then creates the sandbox.
pub(super) fn read_host_dns(path: &Path, sandbox: SandboxCall, jobs: &mut Jobs, now: Now) {
    let (of_thread, op) = (path.to_owned(), sandbox.op);
    let spec = JobSpec::new(Class::Paths, "read the host's resolv.conf", now.boot + READ_TIMEOUT).on(path);
    let id = jobs.run(
        spec,
        move || start::host_dns(&of_thread),
        |agent, host, now| {
            let host = match host {
                Ok(Ok(host)) => Some(host),
                Ok(Err(e)) => {
                    log::warn!("failed to read the host's DNS settings; the pod runs without them error={e:?}");
                    Some(HostDns::none())
                }
                Err(e) => {
                    agent.reporting.standing.job_failed(&e, now.boot);
                    None
                }
            };
            agent.run_sandbox(sandbox, host, now);
            agent.flush_to_runtime(now);
        },
    );
    jobs.make_cancellable(id, op);
}

/// Has a helper carry out the call if it needs a file that Wherry does not own. Returns any other call.
pub(super) fn use_foreign_files(
    op: OpId,
    call: FilesCall,
    files: &PodFiles,
    jobs: &mut Jobs,
    now: Now,
) -> Option<FilesCall> {
    let deadline = now.boot + READ_TIMEOUT;
    match call {
        FilesCall::ReadTermination { id: _, termination_file, log_path, fallback_to_logs, exit_code } => {
            let fallback = fallback_to_logs && exit_code != 0;
            // All instances of a container share a directory, and therefore hang together.
            let file = if fallback { &log_path } else { termination_file.as_ref().unwrap_or(&log_path) };
            let directory = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
            let spec = JobSpec::new(Class::Paths, "read a termination message", deadline).on(&directory);
            let work = move || Ok(pod_files::message(termination_file.as_deref(), &log_path, fallback));
            jobs.run_op(op, spec, work, Answer::Message);
            None
        }
        FilesCall::PrepareContainer { pod, container, ips, names, attempt: _, host_ips } if pod.host_network() => {
            with_host_hosts(op, files, jobs, deadline, move |files, host| {
                let hosts = files.hosts(&pod, &ips, Some(&host), &names);
                files.prepare_on_host_network(&pod, &container, &hosts, host_ips)
            });
            None
        }
        FilesCall::WriteHosts { pod, ips, names } if pod.host_network() => {
            with_host_hosts(op, files, jobs, deadline, move |files, host| {
                pod_files::answer(files.write_hosts(&pod, &ips, Some(&host), &names)).map(|()| Answer::Ok)
            });
            None
        }
        other => Some(other),
    }
}

/// Has a helper read the host's hosts file, and then carries out the call with it.
fn with_host_hosts(
    op: OpId,
    files: &PodFiles,
    jobs: &mut Jobs,
    deadline: Boot,
    call: impl FnOnce(&PodFiles, String) -> Result<Answer, OpError> + 'static,
) {
    let files = files.clone();
    let path = PathBuf::from(&files.host_hosts);
    let spec = JobSpec::new(Class::Paths, "read the host's hosts file", deadline).on(&path);
    jobs.run(
        spec,
        move || files.host_hosts(),
        move |agent, hosts, now| {
            let hosts = agent.reporting.standing.job_result(hosts, now.boot).and_then(pod_files::answer);
            let result = hosts.and_then(|hosts| call(&agent.disk.files, hosts));
            agent.events.push_back(Event::Done { op, result });
        },
    );
}

/// Measures a file system. A helper does this, because the file system may hang: the one for images belongs to the
/// runtime. Only the file system of the root directory is measured directly, because the loop uses it for the files
/// of pods anyway. Returns the event that ends the operation, unless a job ends it later.
pub(super) fn measure_file_system(
    op: OpId,
    path: String,
    root: &Path,
    jobs: &mut Jobs,
    deadline: Boot,
) -> Option<Event> {
    let measure = |path: &str| {
        file_system::measure(Path::new(path)).map_err(|e| OpError::Answered {
            code: Code::Other(2),
            message: format!("failed to get the statistics of the file system of {path}: {e}"),
        })
    };
    if Path::new(&path) == root {
        return Some(Event::Done { op, result: measure(&path).map(Answer::FileSystem) });
    }
    let of_thread = path.clone();
    let spec = JobSpec::new(Class::Paths, "read the usage of a file system", deadline).on(Path::new(&path));
    jobs.run_op(op, spec, move || measure(&of_thread), Answer::FileSystem);
    None
}

/// Reads the configuration again.
pub(super) fn read_configuration(flags: Flags, jobs: &mut Jobs, now: Now) -> JobId {
    let path = flags.config.clone().unwrap_or_else(|| config::DEFAULT_FILE.into());
    let spec = JobSpec::new(Class::Paths, "read the configuration", now.boot + READ_TIMEOUT).on(&path);
    jobs.run(
        spec,
        move || config::load(&flags),
        |agent, loaded, now| {
            let log = &mut agent.reporting.standing;
            let loaded = loaded.inspect_err(|e| drop(log.job_failed(e, now.boot)));
            agent.reloaded(loaded, now);
        },
    )
}

/// Has a helper remove the empty network results of these sandboxes.
pub(super) fn remove_empty_networks(op: OpId, sandboxes: &[SandboxId], jobs: &mut Jobs, now: Now) {
    let ids: Vec<String> = sandboxes.iter().map(ToString::to_string).collect();
    let deadline = now.boot + READ_TIMEOUT;
    let results = Path::new(cni_cache::RESULTS);
    let spec = JobSpec::new(Class::Paths, "check the network results of sandboxes", deadline).on(results);
    jobs.run_op(
        op,
        spec,
        move || Ok(cni_cache::remove_empty(results, &ids)),
        |gone| {
            gone.iter().for_each(|(path, removed)| log_removed_network(path, removed));
            Answer::Ok
        },
    );
}

fn log_removed_network(path: &Path, removed: &io::Result<()>) {
    let path = path.display();
    match removed {
        Ok(()) => {
            log::warn!("removed an empty CNI result of a sandbox, left by a power failure path={path}");
        }
        Err(e) => log::error!(
            "failed to remove an empty CNI result of a sandbox, so its pod cannot terminate; remove the file by hand \
             path={path} error={e}"
        ),
    }
}
