//! Access to files that Wherry does not own: the host's DNS settings and hosts file, termination messages, libcni's
//! network results of sandboxes, the configuration. Helper threads read them, because their file systems may hang. A
//! waiting operation continues with the answer or at the deadline.

use super::jobs::{JobSpec, Jobs};
use super::runtime::SandboxCall;
use super::{Agent, start};
use crate::adapters::cri::requests::HostDns;
use crate::adapters::host::disk_use::{Directories, Found};
use crate::adapters::host::memory_pressure::MemoryPressure;
use crate::adapters::host::{cni_cache, disk_use, file_system};
use crate::adapters::pod_files;
use crate::api::facts::{MeasuredPod, PodDiskFact};
use crate::api::names::SandboxId;
use crate::api::time::Now;
use crate::config;
use crate::engine::effect::FilesCall;
use crate::engine::event::{Answer, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file system that does not answer for this long is treated as hung.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Lets a helper read the host's current DNS settings, and then creates the sandbox.
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
                    log::warn!("failed to read the host's DNS settings; the pod gets none of them error={e:?}");
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

impl Agent {
    /// Returns the call if it needs no file that Wherry does not own.
    pub(super) fn use_foreign_files(&mut self, op: OpId, call: FilesCall, now: Now) -> Option<FilesCall> {
        let deadline = now.boot + READ_TIMEOUT;
        match call {
            FilesCall::ReadTermination { id: _, termination_file, log_path, fallback_to_logs, exit_code } => {
                let fallback = fallback_to_logs && exit_code != 0;
                // (All instances of a container share a directory, and therefore hang together.)
                let file = if fallback { &log_path } else { termination_file.as_ref().unwrap_or(&log_path) };
                let directory = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
                let spec = JobSpec::new(Class::Paths, "read a termination message", deadline).on(&directory);
                let work = move || Ok(pod_files::message(termination_file.as_deref(), &log_path, fallback));
                self.jobs.run_op(op, spec, work, Answer::Message);
                None
            }
            FilesCall::PrepareContainer { pod, container, ips, attempt: _, host_ips } if pod.host_network() => {
                let files = self.disk.files.clone();
                let path = PathBuf::from(&files.host_hosts);
                let spec = JobSpec::new(Class::Paths, "read the host's hosts file", deadline).on(&path);
                self.jobs.run(
                    spec,
                    move || files.host_hosts(),
                    move |agent, hosts, now| {
                        let result =
                            agent.reporting.standing.job_result(hosts, now.boot).and_then(pod_files::answer).and_then(
                                |hosts| {
                                    agent.disk.files.prepare_on_host_network(&pod, &container, &ips, &hosts, host_ips)
                                },
                            );
                        agent.events.push_back(Event::Done { op, result });
                    },
                );
                None
            }
            other => Some(other),
        }
    }

    /// The file system may hang. That of the images is of the runtime.
    pub(super) fn measure_file_system(&mut self, op: OpId, path: String, timeout: Duration, now: Now) {
        let measure = |path: &str| {
            file_system::measure(Path::new(path)).map_err(|e| OpError::Answered {
                code: Code::Other(2),
                message: format!("failed to get the statistics of the file system of {path}: {e}"),
            })
        };
        if Path::new(&path) == self.config.root_dir {
            // The loop uses this file system for the files of pods too.
            let result = measure(&path).map(Answer::FileSystem);
            return self.events.push_back(Event::Done { op, result });
        }
        let (of_thread, deadline) = (path.clone(), now.boot + timeout);
        let spec = JobSpec::new(Class::Paths, "measure a file system", deadline).on(Path::new(&path));
        self.jobs.run_op(op, spec, move || measure(&of_thread), Answer::FileSystem);
    }

    /// E4, E7: directories with many files take long.
    pub(super) fn measure_pods(&mut self, op: OpId, pods: Vec<MeasuredPod>, timeout: Duration, now: Now) {
        let directories: Vec<Directories> =
            pods.iter().map(|pod| Directories::of(pod, &self.disk.files.layout)).collect();
        let work = move || directories.iter().map(disk_use::measure).collect::<Vec<Found>>();
        let spec = JobSpec::new(Class::Measurements, "measure the disk usage of pods", now.boot + timeout);
        self.jobs.run(spec, work, move |agent, found, now| {
            let fact = |(pod, Found { volumes, logs }): (MeasuredPod, _)| PodDiskFact { uid: pod.uid, volumes, logs };
            let facts = |found: Vec<_>| Answer::PodDisks(pods.into_iter().zip(found).map(fact).collect());
            let result = agent.reporting.standing.job_result(found, now.boot).map(facts);
            agent.events.push_back(Event::Done { op, result });
        });
    }

    /// E1: without the kernel's reports, the engine measures more often.
    pub(super) fn watch_memory_pressure(&mut self, wanted: bool) {
        if let Some(watch) = self.kernel.memory_pressure.take() {
            watch.close(self.event_loop.registry());
        }
        if !wanted {
            return;
        }
        let token = self.event_loop.token();
        match MemoryPressure::watch(self.event_loop.registry(), token) {
            Ok(watch) => self.kernel.memory_pressure = Some(watch),
            Err(e) => log::info!(
                "the kernel does not report a lack of memory, so it is measured every 10 s \
                 path=/proc/pressure/memory error={:?}",
                e.to_string()
            ),
        }
        self.events.push_back(Event::MemoryWatched { works: self.kernel.memory_pressure.is_some() });
    }

    /// Reads the configuration again. A second request replaces the first, which may have read an older file.
    pub(super) fn read_configuration(&mut self, now: Now) {
        let flags = self.config.flags.clone();
        let path = flags.config.clone().unwrap_or_else(|| config::DEFAULT_FILE.into());
        let deadline = now.boot + READ_TIMEOUT;
        let spec = JobSpec::new(Class::Paths, "read the configuration", deadline).on(&path);
        let id = self.jobs.run(
            spec,
            move || config::load(&flags),
            |agent, loaded, now| {
                let loaded = loaded.inspect_err(|e| drop(agent.reporting.standing.job_failed(e, now.boot)));
                agent.reloaded(loaded, now);
            },
        );
        if let Some(earlier) = self.reporting.service.reload.replace(id) {
            self.jobs.drop_result(earlier);
        }
    }

    /// Has a helper remove the empty network results of these sandboxes.
    pub(super) fn remove_empty_networks(&mut self, op: OpId, sandboxes: &[SandboxId], now: Now) {
        let ids: Vec<String> = sandboxes.iter().map(ToString::to_string).collect();
        let deadline = now.boot + READ_TIMEOUT;
        let results = Path::new(cni_cache::RESULTS);
        let spec = JobSpec::new(Class::Paths, "check the network results of sandboxes", deadline).on(results);
        self.jobs.run_op(
            op,
            spec,
            move || Ok(cni_cache::remove_empty(results, &ids)),
            |gone| {
                gone.iter().for_each(|(path, removed)| log_removed_network(path, removed));
                Answer::Ok
            },
        );
    }
}

fn log_removed_network(path: &Path, removed: &io::Result<()>) {
    let path = path.display();
    match removed {
        Ok(()) => {
            log::warn!("removed the empty network result of a sandbox, which a power cut left behind path={path}");
        }
        Err(e) => log::error!(
            "failed to remove the empty network result of a sandbox, so its pod cannot end; \
             remove the file by hand path={path} error={e}"
        ),
    }
}
