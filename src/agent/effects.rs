//! Carries out the engine's effects: each goes to its adapter. Each effect with an `OpId` ends in one `Event::Done`.

use super::jobs::JobSpec;
use super::runtime::SandboxCall;
use super::{Agent, Reporting, paths};
use crate::adapters::cgroups::CgroupResult;
use crate::adapters::cri::requests::HostDns;
use crate::adapters::host::levels;
use crate::adapters::manifests::NotSeen;
use crate::adapters::records::Records;
use crate::adapters::records::queue::Queue;
use crate::adapters::volumes::{self, ForContainer, VolumeError};
use crate::api::kube::resources::Kind;
use crate::api::manifest_report::RecordUpdate;
use crate::api::names::{FullName, Uid};
use crate::api::time::{Boot, Now};
use crate::api::volume::Volume;
use crate::engine::effect::{ContainerVolumes, Effect, FilesCall, Notice, RecordChange, RuntimeCall, VolumesCall};
use crate::engine::event::{Answer, Event};
use crate::engine::handler::Handler;
use crate::engine::op::{Code, OpError, OpId};
use crate::engine::pod::kill::KillId;
use crate::event_loop::{Class, JobError};
use crate::net::addresses::addresses;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for a batch of records to become durable.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the removal of a pod's files: a log of gigabytes takes long on an SD card.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Time limit for a read of the manifest directory or of a file in it. On file systems that depend on a server the
/// limit is shorter.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(8);

fn answered<T>(result: Result<T, VolumeError>) -> Result<T, OpError> {
    result.map_err(|e| OpError::Answered { code: Code::Other(2), message: e.to_string() })
}

/// Records to be written. One batch at a time, so that changes of one record stay in order. A batch that timed out
/// changes nothing any more (`Records::batch`).
pub struct RecordQueue {
    records: Records,
    waiting: Queue,
    writing: bool,
}

impl RecordQueue {
    pub fn new(records: Records) -> RecordQueue {
        RecordQueue { records, waiting: Queue::default(), writing: false }
    }

    fn push(&mut self, op: OpId, change: RecordChange) {
        self.waiting.push(op, change);
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_writing(&self) -> bool {
        self.writing
    }
}

impl Agent {
    /// Returns true if the runtime was called: the request is to be sent.
    pub(super) fn carry_out(&mut self, effect: Effect, now: Now) -> bool {
        match effect {
            Effect::Runtime { op, call, timeout } => return self.call_runtime(op, call, timeout, now),
            Effect::Cancel { op } if self.handlers.cancel(op) => self.take_handled(),
            Effect::Cancel { op } if self.cancel_device_call(op) => {}
            Effect::Cancel { op } if self.cancel_api_call(op) => {}
            Effect::Cancel { op } => return self.cancel(op),
            Effect::Api { op, request, timeout } => self.call_api(op, request, timeout, now),
            Effect::Identity { op, call } => self.change_identity(op, call, now),
            Effect::Files { op, call } => self.use_files(op, call, now),
            Effect::Cgroup { op, call } => {
                self.cgroups.call(op, call, now.boot);
                self.drive_cgroups(now);
            }
            Effect::StoreManifests { op, updates } => self.store_manifests(op, updates, now),
            Effect::ManifestNews(news) => self.reporting.recorder.report_manifests(&news, &self.engine, now),
            Effect::RemoveEmptyNetworks { op, sandboxes } => self.remove_empty_networks(op, &sandboxes, now),
            Effect::Volumes { op, call, timeout } => self.use_volumes(op, call, timeout, now),
            Effect::ReadDockerConfig { op, timeout } => self.read_docker_config(op, timeout, now),
            Effect::AskProvider { op, provider, repository, timeout } => {
                self.ask_provider(op, *provider, repository, timeout, now);
            }
            Effect::MeasureFileSystem { op, path, timeout } => self.measure_file_system(op, path, timeout, now),
            Effect::MeasureMachine { op, pids } => self.measure_machine(op, pids),
            Effect::CountProcesses { op, pods } => {
                let counts = Answer::Processes(self.cgroups.count_processes(pods));
                self.events.push_back(Event::Done { op, result: Ok(counts) });
            }
            Effect::MeasurePods { op, pods, timeout } => self.measure_pods(op, pods, timeout, now),
            Effect::WatchMemoryPressure(wanted) => self.watch_memory_pressure(wanted),
            Effect::Log { op, call } => self.use_log(op, call, now),
            Effect::WatchLog { id, path } => self.watch_log(id, &path),
            Effect::UnwatchLog { id } => self.kernel.log_writes.unwatch(&id),
            Effect::Hook { op, call, timeout } => self.start_handler(op, Handler::Hook(call), timeout, now),
            Effect::Probe { op, call, timeout } => self.start_handler(op, Handler::Probe(call), timeout, now),
            Effect::ReadAddresses => self.events.push_back(Event::Addresses(addresses())),
            Effect::AddressesChanged => {
                log::info!("node addresses={}", self.engine.addresses().join(","));
                self.check_node_server(now);
            }
            Effect::AnswerRegistration { id, result } => self.answer_registration(id, result),
            Effect::WatchDevices { resource, endpoint } => self.watch_devices(&resource, &endpoint, now),
            Effect::Device { op, call, timeout } => self.call_device_plugin(op, call, timeout, now),
            Effect::Logind { op, call, timeout } => self.call_logind(op, call, timeout, now),
            Effect::ReleaseLock => self.release_lock(),
            Effect::StoreLock { op } => self.store_lock(op),
            Effect::UseLogind(wanted) => self.use_logind(wanted, now),
            Effect::Record { op, change } => self.disk.records.push(op, change),
            Effect::Watch { uid, id, pid } => self.watch_process(uid, id, pid),
            Effect::Unwatch { id } => self.kernel.pidfds.unwatch(self.event_loop.registry(), &id),
            Effect::Killed { id } => log_killed(&id),
            Effect::Answer { id, answer } => self.answered(id, answer, now),
            Effect::Publish { uid, name } => self.publish_change(&uid, &name, now),
            Effect::Notice(notice) => self.record_notice(&notice, now),
            Effect::ContainerEnded(end) => self.reporting.recorder.report_end(&end, now),
            Effect::Measure(measure) => self.metrics.record(&measure),
        }
        false
    }

    fn store_manifests(&mut self, op: OpId, updates: Vec<RecordUpdate>, now: Now) {
        let write = self.manifests.store(updates);
        let spec = JobSpec::new(Class::Records, "write manifests' records", now.boot + RECORD_TIMEOUT);
        self.jobs.run_op(op, spec, move || write.run().map_err(OpError::Unknown), |()| Answer::Ok);
    }

    fn measure_machine(&mut self, op: OpId, pids: bool) {
        let result = levels::read(pids).map(Answer::Machine);
        let result = result.map_err(|message| OpError::Answered { code: Code::Other(2), message });
        self.events.push_back(Event::Done { op, result });
    }

    fn watch_process(&mut self, uid: Uid, id: String, pid: u32) {
        let token = self.event_loop.token();
        let watched = self.kernel.pidfds.watch(self.event_loop.registry(), token, uid.clone(), &id, pid);
        if let Err(why) = &watched {
            log::debug!("failed to watch the process; the next relist covers it id={id} pid={pid} error={why:?}");
        }
        self.events.push_back(Event::Watched { uid, id, ok: watched.is_ok() });
    }

    /// Returns true if the call is to be sent now.
    fn call_runtime(&mut self, op: OpId, call: RuntimeCall, timeout: Duration, now: Now) -> bool {
        let Some(sandbox) = self.runtime.call(op, call, timeout, now) else { return true };
        // A new sandbox gets the host's current DNS settings: a network may come up after Wherry.
        match &self.config.resolv_conf {
            Some(path) => {
                paths::read_host_dns(path, sandbox, &mut self.jobs, now);
                false
            }
            None => {
                self.run_sandbox(sandbox, Some(HostDns::none()), now);
                true
            }
        }
    }

    /// `host`: None if the read of the host's DNS settings gave no answer.
    pub(super) fn run_sandbox(&mut self, sandbox: SandboxCall, host: Option<HostDns>, now: Now) {
        for notice in self.runtime.run_sandbox(sandbox, host, now) {
            self.record_notice(&notice, now);
        }
    }

    /// Returns true if a cancellation is to be sent to the runtime.
    fn cancel(&mut self, op: OpId) -> bool {
        if !self.jobs.cancel(op) {
            self.runtime.client.cancel(op);
            return true;
        }
        let result = Err(OpError::NotSent("cancelled before it was sent".to_owned()));
        self.events.push_back(Event::Done { op, result });
        false
    }

    fn record_notice(&mut self, notice: &Notice, now: Now) {
        let Reporting { recorder, standing, .. } = &mut self.reporting;
        recorder.record_notice(notice, &self.engine, standing, now);
    }

    /// Shows a changed pod to the clients that follow it.
    fn publish_change(&mut self, uid: &Uid, name: &FullName, now: Now) {
        self.reporting.service.changed();
        if let Some(kube) = self.serving.kube.get() {
            kube.pod_changed(name, self.engine.pod(uid).as_ref());
        }
        if self.reporting.recorder.report_change(&self.engine, uid, name, now) {
            self.serving.pod_changed(uid, name, self.engine.pod(uid).is_some());
        }
        // A log ends with its container.
        self.serving.wake(Kind::Pod);
    }

    /// Takes the results of probes and hooks.
    pub(super) fn take_handled(&mut self) {
        let done = self.handlers.take_done();
        self.events.extend(done.into_iter().map(|(op, result)| Event::Done { op, result }));
    }

    /// A helper sets up and removes volumes: file systems of others may hang.
    fn use_volumes(&mut self, op: OpId, call: VolumesCall, timeout: Duration, now: Now) {
        let (layout, deadline) = (self.disk.files.layout.clone(), now.boot + timeout);
        let host_path = |volumes: &[Volume]| volumes.iter().find_map(Volume::host_path).map(PathBuf::from);
        match call {
            VolumesCall::Mount { uid, volumes } => {
                let (uid, path) = (uid.to_string(), host_path(&volumes));
                let spec = volumes_job("set up a pod's volumes", path.as_deref(), deadline);
                let work = move || answered(volumes::set_up(&layout, &uid, &volumes));
                self.jobs.run_op(op, spec, work, |()| Answer::Ok);
            }
            VolumesCall::InContainer(of) => {
                let ContainerVolumes { uid, container, volumes, env, recursive_read_only } = *of;
                let (uid, path) = (uid.to_string(), host_path(&volumes));
                let spec = volumes_job("mount volumes in a container", path.as_deref(), deadline);
                let work = move || {
                    let of = ForContainer { container: &container, env: &env, recursive_read_only };
                    answered(volumes::container_mounts(&layout, &uid, &volumes, of))
                };
                self.jobs.run_op(op, spec, work, Answer::Mounts);
            }
            VolumesCall::Unmount { uid } => {
                let uid = uid.to_string();
                let spec = JobSpec::new(Class::Removals, "remove a pod's volumes", deadline);
                self.jobs.run_op(op, spec, move || answered(volumes::tear_down(&layout, &uid)), |()| Answer::Ok);
            }
        }
    }

    /// Small files are created here. Removals may be large and files of others may hang: helpers do that.
    fn use_files(&mut self, op: OpId, call: FilesCall, now: Now) {
        let Some(call) = self.use_foreign_files(op, call, now) else { return };
        let files = self.disk.files.clone();
        let deadline = now.boot + REMOVE_TIMEOUT;
        match call {
            FilesCall::RemovePod { uid, namespace, name, kill, keep_directory } => {
                let (uid, namespace, name) = (uid.to_string(), namespace.to_string(), name.to_string());
                let spec = JobSpec::new(Class::Removals, "remove a pod's files", deadline);
                let work = move || files.remove_pod(&uid, &namespace, &name, kill, keep_directory);
                self.jobs.run_op(op, spec, work, |()| Answer::Ok);
            }
            FilesCall::RemoveContainerFiles { id, log_path } => {
                let id = id.to_string();
                let spec = JobSpec::new(Class::Removals, "remove a container's log", deadline);
                self.jobs.run_op(op, spec, move || files.remove_container(&id, &log_path), |()| Answer::Ok);
            }
            other => self.events.push_back(Event::Done { op, result: files.execute(&other) }),
        }
    }

    /// Continues the cgroup calls, and takes their results.
    pub(super) fn drive_cgroups(&mut self, now: Now) {
        self.cgroups.drive(self.event_loop.registry(), now.boot);
        for result in self.cgroups.take_results() {
            match result {
                CgroupResult::Done { op, result } => self.events.push_back(Event::Done { op, result }),
                CgroupResult::RemoveByForce { op, uid } => self.remove_by_force(op, &uid, now),
                CgroupResult::Counted { operation, took } => self.metrics.cgroup_operation(operation, took),
                CgroupResult::LevelFailed { why } => {
                    if let Some(repeated) = self.reporting.standing.repetitions(&format!("slice: {why}"), now.boot) {
                        log::warn!("failed to set the cgroups of the QoS levels error={why:?} repeated={repeated}");
                    }
                }
            }
        }
    }

    /// Removes a pod's cgroup together with processes that the runtime has lost. Killing them takes a moment.
    fn remove_by_force(&mut self, op: OpId, uid: &Uid, now: Now) {
        let (remove, uid) = (self.disk.files.remove_cgroup.clone(), uid.to_string());
        let spec = JobSpec::new(Class::Removals, "remove a pod's cgroup", now.boot + REMOVE_TIMEOUT);
        self.jobs.run_op(op, spec, move || remove(&uid, true).map_err(OpError::Unknown), |()| Answer::Ok);
    }

    /// Passes pending records to a helper: fsync blocks, on a worn SD card for long.
    pub(super) fn write_records(&mut self, now: Now) {
        let deadline = now.boot + RECORD_TIMEOUT;
        let queue = &mut self.disk.records;
        if !queue.waiting.is_empty() && !queue.writing {
            let (ops, changes) = queue.waiting.take();
            queue.writing = true;
            let records = queue.records.batch();
            let spec = JobSpec::new(Class::Records, "write pods' records", deadline);
            let work = move || records.make(&changes);
            self.jobs.run(spec, work, |agent, made, now| agent.records_written(ops, made, now));
        }
        if let Some(write) = self.manifests.take_write() {
            let spec = JobSpec::new(Class::Records, "write the directory's record", deadline);
            self.jobs.run(
                spec,
                move || write.run(),
                |agent, written, now| {
                    let written = written.unwrap_or_else(|e| Err(agent.reporting.standing.job_failed(&e, now.boot)));
                    agent.manifests.written(written, now);
                },
            );
        }
    }

    /// `ops`: the operations of each change of the batch. `made`: the results of the changes, in their order.
    fn records_written(&mut self, ops: Vec<Vec<OpId>>, made: Result<Vec<Result<(), String>>, JobError>, now: Now) {
        self.disk.records.writing = false;
        let made = match made {
            Ok(made) => made,
            Err(e) => vec![Err(self.reporting.standing.job_failed(&e, now.boot)); ops.len()],
        };
        for (ops, made) in ops.into_iter().zip(made) {
            let result = made.map(|()| Answer::Ok).map_err(OpError::Unknown);
            self.events.extend(ops.into_iter().map(|op| Event::Done { op, result: result.clone() }));
        }
    }

    /// Has helpers read the manifests that may have changed: each read may block as long as the file system does.
    pub(super) fn inspect_manifests(&mut self, now: Now) {
        while let Some(inspection) = self.manifests.take_inspection(now) {
            let ticket = inspection.ticket();
            let spec = JobSpec::new(Class::Manifests, "read manifests", now.boot + INSPECTION_TIMEOUT);
            self.jobs.run(
                spec,
                move || inspection.run(),
                move |agent, seen, now| {
                    // The manifests report these errors in more detail.
                    let seen = seen.map_err(|e| match e {
                        JobError::Stuck { .. } => NotSeen::Stuck,
                        e => NotSeen::NotBegun(e.to_string()),
                    });
                    agent.manifest_inspected(ticket, seen, now);
                },
            );
        }
    }
}

fn log_killed(id: &KillId) {
    match id {
        KillId::Drain(pod) => log::info!("pod={pod} reason=Drained the drained pod has stopped"),
        KillId::ApiEviction(pod) => log::info!("pod={pod} reason=Evicted the evicted pod has stopped"),
        KillId::Event(_) => {}
    }
}

/// A `path` on a file system that hangs holds up only the pods that use it.
fn volumes_job<'a>(name: &'static str, path: Option<&'a Path>, deadline: Boot) -> JobSpec<'a> {
    let spec = JobSpec::new(Class::Volumes, name, deadline);
    match path {
        Some(path) => spec.on(path),
        None => spec,
    }
}
