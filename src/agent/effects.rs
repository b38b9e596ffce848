//! Carries out the engine's effects: each goes to its adapter. Each effect with an `OpId` ends in one `Event::Done`.

use super::handlers::Lookup;
use super::identity::Changed;
use super::kube::{KubeJob, KubeWork};
use super::paths::{ContainerFiles, Removed, SandboxCall};
use super::{Agent, system_check, views};
use crate::adapters::api_server::Credentials;
use crate::adapters::cgroups::CgroupResult;
use crate::adapters::credentials::docker_config;
use crate::adapters::cri::requests::HostDns;
use crate::adapters::host::disk_use::{self, Found};
use crate::adapters::host::levels;
use crate::adapters::manifests::{NotSeen, Seen};
use crate::adapters::records::Records;
use crate::adapters::records::queue::Queue;
use crate::adapters::server::http::Route;
use crate::adapters::volumes::{self, ForContainer, VolumeError};
use crate::api::credential_provider::Provided;
use crate::api::facts::{FileSystemFact, PodDiskFact};
use crate::api::finding::Finding;
use crate::api::mount::Mount;
use crate::api::names::Uid;
use crate::api::time::{Boot, Now};
use crate::api::volume::Volume;
use crate::config::Loaded;
use crate::engine::effect::{ContainerVolumes, Effect, FilesCall, RecordChange, VolumesCall};
use crate::engine::event::{Answer, Event};
use crate::engine::handler::Handler;
use crate::engine::op::{Code, OpError, OpId};
use crate::engine::pod::kill::KillId;
use crate::event_loop::{Class, Finished, Helpers, JobError, JobId};
use crate::net::addresses::addresses;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for a batch of records to become durable.
const RECORD_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the removal of a pod's files: a log of gigabytes takes long on an SD card.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Time limit for a read of the manifest directory or of a file in it. On file systems that depend on a server the
/// limit is shorter.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(8);

/// A job of a helper. Kept here, so that a job without an answer can be completed as well.
pub enum Job {
    Records(Vec<OpId>),
    /// The last good version of a manifest.
    Manifest,
    /// The events, for the next start.
    Reports,
    /// A read of the manifest directory or of a file in it, by its ticket.
    Inspection(u64),
    /// Files of a pod that has ended or of a removed container; or the drop-in for logind.
    Files(OpId),
    /// A container's termination message.
    Message(OpId),
    /// statvfs of a path.
    FileSystem(OpId),
    /// The disk usage of pods.
    PodDisks(OpId, Vec<Uid>),
    /// The rotation of a log.
    Rotation(OpId),
    /// The host's hosts file, for a container of a pod with hostNetwork.
    Hosts(ContainerFiles),
    /// The host's DNS settings, for a sandbox.
    Dns(SandboxCall),
    /// The address of a host, for a probe or a hook.
    Lookup(Box<Lookup>),
    /// The kubeconfig of the node.
    Kubeconfig,
    /// The addresses of this host, the API server.
    ApiServer(String),
    /// A change of the files of the node's certificate.
    Identity(OpId),
    /// The removal of empty network results.
    Networks(OpId),
    /// The node's docker configuration.
    DockerConfig(OpId),
    /// A credential provider, with its name.
    Provider(OpId, String),
    /// For a reload.
    Configuration,
    /// The search for the reason why the runtime is unavailable.
    Findings,
    /// For the Kubernetes API.
    Kube(KubeJob),
}

/// The result of a helper's job.
pub enum Work {
    Records(Vec<(OpId, Result<(), String>)>),
    Manifest(Result<(), String>),
    Reports(Result<(), String>),
    Inspection(Seen),
    Files(Result<(), OpError>),
    /// The volume mounts of a container.
    Mounts(Result<Vec<Mount>, OpError>),
    Message(String),
    Lookup(Result<IpAddr, String>),
    Kubeconfig(Result<Credentials, String>),
    ApiServer(Result<Vec<SocketAddr>, String>),
    Identity(Changed),
    FileSystem(Result<FileSystemFact, OpError>),
    /// The new path of a log.
    Rotated(Result<String, String>),
    /// In the order of the job.
    PodDisks(Vec<disk_use::Found>),
    Hosts(Result<String, String>),
    Dns(Result<HostDns, String>),
    Networks(Vec<Removed>),
    DockerConfig(docker_config::Found),
    Provided(Result<Provided, String>),
    Configuration(Box<Loaded>),
    Findings(Vec<Finding>),
    Kube(KubeWork),
    /// True if the drop-in for logind was written, false if it was up to date.
    DropIn(Result<bool, OpError>),
}

/// A `path` on a file system that hangs holds up only the pods that use it.
fn set_up(
    helpers: &mut Helpers<Work>,
    name: &'static str,
    path: Option<PathBuf>,
    deadline: Boot,
    work: impl FnOnce() -> Work + Send + 'static,
) -> JobId {
    match path {
        Some(path) => helpers.submit_for(Class::Volumes, name, &path, deadline, work),
        None => helpers.submit(Class::Volumes, name, deadline, work),
    }
}

fn answered<T>(result: Result<T, VolumeError>) -> Result<T, OpError> {
    result.map_err(|e| OpError::Answered { code: Code::Other(2), message: e.to_string() })
}

/// The helpers' jobs in flight.
pub type Jobs = BTreeMap<JobId, Job>;

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
            Effect::AcceptPods(pods) => self.manifests.accept(&pods),
            Effect::ObjectProblems(problems) => {
                self.manifests.object_problems(problems, now);
                self.report_manifest_errors(now);
            }
            Effect::RemoveEmptyNetworks { op, sandboxes } => self.remove_empty_networks(op, &sandboxes, now),
            Effect::Volumes { op, call, timeout } => self.use_volumes(op, call, timeout, now),
            Effect::ReadDockerConfig { op, timeout } => self.read_docker_config(op, timeout, now),
            Effect::AskProvider { op, provider, repository, timeout } => {
                self.ask_provider(op, *provider, repository, timeout, now);
            }
            Effect::MeasureFileSystem { op, path, timeout } => self.measure_file_system(op, path, timeout, now),
            Effect::MeasureMachine { op, pids } => {
                let result = levels::read(pids).map(Answer::Machine);
                let result = result.map_err(|message| OpError::Answered { code: Code::Other(2), message });
                self.events.push_back(Event::Done { op, result });
            }
            Effect::CountProcesses { op, pods } => {
                let counts = self.cgroups.count_processes(pods);
                self.events.push_back(Event::Done { op, result: Ok(Answer::Processes(counts)) });
            }
            Effect::MeasurePods { op, pods, timeout } => self.measure_pods(op, pods, timeout, now),
            Effect::WatchMemoryPressure(wanted) => self.watch_memory_pressure(wanted),
            Effect::Log { op, call } => self.use_log(op, call, now),
            Effect::WatchLog { id, path } => self.watch_log(id, &path),
            Effect::UnwatchLog { id } => self.log_writes.unwatch(&id),
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
            Effect::Record { op, change } => self.records.push(op, change),
            Effect::Watch { uid, id, pid } => {
                let token = self.event_loop.token();
                let watched = self.pidfds.watch(self.event_loop.registry(), token, uid.clone(), &id, pid);
                if let Err(why) = &watched {
                    log::debug!(
                        "failed to watch the process; the next relist covers it id={id} pid={pid} error={why:?}"
                    );
                }
                self.events.push_back(Event::Watched { uid, id, ok: watched.is_ok() });
            }
            Effect::Unwatch { id } => self.pidfds.unwatch(self.event_loop.registry(), &id),
            Effect::Killed { id: KillId::Drain(pod) } => {
                log::info!("pod={pod} reason=Drained the drained pod has stopped");
            }
            Effect::Killed { id: KillId::ApiEviction(pod) } => {
                log::info!("pod={pod} reason=Evicted the evicted pod has stopped");
            }
            Effect::Killed { id: KillId::Event(_) } => {}
            Effect::Answer { id, answer } => self.answer(id, answer, now),
            Effect::Timer { key, at: Some(at) } => self.sources.timers.set(key, at),
            Effect::Timer { key, at: None } => self.sources.timers.clear(&key),
            Effect::Publish { uid, name } => {
                self.service.changed();
                if let Some(kube) = self.kube.get() {
                    kube.pod_changed(&name, self.engine.pod(&uid).as_ref());
                }
                if self.node_server.get().is_some() {
                    self.server.wake_logs();
                }
                if self.report_change(&uid, &name, now) && self.server.has_watches(Route::Pods) {
                    let mut line = Vec::with_capacity(4096);
                    match self.engine.pod(&uid) {
                        Some(view) => views::write_change("MODIFIED", &view, &mut line),
                        None => views::write_gone(&uid, &name, &mut line),
                    }
                    self.server.publish(Route::Pods, line, now.boot);
                }
            }
            Effect::Notice(notice) => self.record_notice(&notice, now),
            Effect::ContainerEnded(end) => self.report_end(&end, now),
            Effect::Measure(measure) => self.metrics.observe(&measure),
        }
        false
    }

    /// Takes the results of probes and hooks.
    pub(super) fn take_handled(&mut self) {
        let done = self.handlers.take_done();
        self.events.extend(done.into_iter().map(|(op, result)| Event::Done { op, result }));
    }

    /// A helper sets up and removes volumes: file systems of others may hang.
    fn use_volumes(&mut self, op: OpId, call: VolumesCall, timeout: Duration, now: Now) {
        let (layout, deadline) = (self.files.layout.clone(), now.boot + timeout);
        let helpers = &mut self.sources.helpers;
        let host_path = |volumes: &[Volume]| volumes.iter().find_map(Volume::host_path).map(PathBuf::from);
        let id = match call {
            VolumesCall::Mount { uid, volumes } => {
                let (uid, path) = (uid.to_string(), host_path(&volumes));
                let work = move || Work::Files(answered(volumes::set_up(&layout, &uid, &volumes)));
                set_up(helpers, "set up a pod's volumes", path, deadline, work)
            }
            VolumesCall::InContainer(of) => {
                let ContainerVolumes { uid, container, volumes, env, recursive_read_only } = *of;
                let (uid, path) = (uid.to_string(), host_path(&volumes));
                let work = move || {
                    let of = ForContainer { container: &container, env: &env, recursive_read_only };
                    Work::Mounts(answered(volumes::container_mounts(&layout, &uid, &volumes, of)))
                };
                set_up(helpers, "mount volumes in a container", path, deadline, work)
            }
            VolumesCall::Unmount { uid } => {
                let uid = uid.to_string();
                let work = move || Work::Files(answered(volumes::tear_down(&layout, &uid)));
                helpers.submit(Class::Removals, "remove a pod's volumes", deadline, work)
            }
        };
        self.sources.jobs.insert(id, Job::Files(op));
    }

    /// Small files are created here. Removals may be large and files of others may hang: helpers do that.
    fn use_files(&mut self, op: OpId, call: FilesCall, now: Now) {
        let Some(call) = self.use_foreign_files(op, call, now) else { return };
        let files = self.files.clone();
        let deadline = now.boot + REMOVE_TIMEOUT;
        let id = match call {
            FilesCall::RemovePod { uid, namespace, name, kill, keep_directory } => {
                let (uid, namespace, name) = (uid.to_string(), namespace.to_string(), name.to_string());
                self.sources.helpers.submit(Class::Removals, "remove a pod's files", deadline, move || {
                    Work::Files(files.remove_pod(&uid, &namespace, &name, kill, keep_directory))
                })
            }
            FilesCall::RemoveContainerFiles { id, log_path } => {
                let id = id.to_string();
                self.sources.helpers.submit(Class::Removals, "remove a container's log", deadline, move || {
                    Work::Files(files.remove_container(&id, &log_path))
                })
            }
            other => {
                self.events.push_back(Event::Done { op, result: files.execute(&other) });
                return;
            }
        };
        self.sources.jobs.insert(id, Job::Files(op));
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
                    if let Some(repeated) = self.standing.repetitions(&format!("slice: {why}"), now.boot) {
                        log::warn!("failed to set the cgroups of the QoS levels error={why:?} repeated={repeated}");
                    }
                }
            }
        }
    }

    /// Removes a pod's cgroup together with processes that the runtime has lost. Killing them takes a moment.
    fn remove_by_force(&mut self, op: OpId, uid: &Uid, now: Now) {
        let (remove, uid) = (self.files.remove_cgroup.clone(), uid.to_string());
        let id = self.sources.helpers.submit(
            Class::Removals,
            "remove a pod's cgroup",
            now.boot + REMOVE_TIMEOUT,
            move || Work::Files(remove(&uid, true).map_err(OpError::Unknown)),
        );
        self.sources.jobs.insert(id, Job::Files(op));
    }

    /// Passes pending records to a helper: fsync blocks, on a worn SD card for long.
    pub(super) fn write_records(&mut self, now: Now) {
        let deadline = now.boot + RECORD_TIMEOUT;
        let queue = &mut self.records;
        if !queue.waiting.is_empty() && !queue.writing {
            let (ops, changes) = queue.waiting.take();
            queue.writing = true;
            let records = queue.records.batch();
            let of = ops.clone();
            let id = self.sources.helpers.submit(Class::Records, "write pods' records", deadline, move || {
                let made = of.into_iter().zip(records.make(&changes));
                Work::Records(made.flat_map(|(ops, made)| ops.into_iter().map(move |op| (op, made.clone()))).collect())
            });
            self.sources.jobs.insert(id, Job::Records(ops.concat()));
        }
        if let Some(write) = self.manifests.take_write(now) {
            let work = move || Work::Manifest(write.run());
            let id = self.sources.helpers.submit(Class::Records, "write a manifest's record", deadline, work);
            self.sources.jobs.insert(id, Job::Manifest);
        }
    }

    /// Has helpers read the manifests that may have changed: each read may block as long as the file system does.
    pub(super) fn inspect_manifests(&mut self, now: Now) {
        while let Some(inspection) = self.manifests.take_inspection(now) {
            let ticket = inspection.ticket();
            let deadline = now.boot + INSPECTION_TIMEOUT;
            let id = self
                .sources
                .helpers
                .submit(Class::Manifests, "read manifests", deadline, move || Work::Inspection(inspection.run()));
            self.sources.jobs.insert(id, Job::Inspection(ticket));
        }
    }

    pub(super) fn helpers_done(&mut self, now: Now) {
        let mut finished = Vec::new();
        self.sources.helpers.drive(now.boot, &mut finished);
        for Finished { id, result } in finished {
            let Some(job) = self.sources.jobs.remove(&id) else { continue };
            match result {
                Ok(work) => self.work_done(job, work, now),
                Err(e) => self.work_failed(job, &e, now),
            }
        }
    }

    fn work_done(&mut self, job: Job, work: Work, now: Now) {
        match (job, work) {
            (_, Work::Records(written)) => {
                self.records.writing = false;
                for (op, result) in written {
                    let result = result.map(|()| Answer::Ok).map_err(OpError::Unknown);
                    self.events.push_back(Event::Done { op, result });
                }
            }
            (_, Work::Manifest(result)) => self.manifests.written(result, now),
            (_, Work::Reports(result)) => self.reports_written(result, now),
            (Job::Inspection(ticket), Work::Inspection(seen)) => self.manifest_inspected(ticket, Ok(seen), now),
            (Job::Files(op), Work::Files(result)) => {
                self.events.push_back(Event::Done { op, result: result.map(|()| Answer::Ok) });
            }
            (Job::Message(op), Work::Message(text)) => {
                self.events.push_back(Event::Done { op, result: Ok(Answer::Message(text)) });
            }
            (Job::FileSystem(op), Work::FileSystem(result)) => {
                self.events.push_back(Event::Done { op, result: result.map(Answer::FileSystem) });
            }
            (Job::Rotation(op), Work::Rotated(result)) => self.log_answered(op, result.map(Answer::Rotated)),
            (Job::PodDisks(op, uids), Work::PodDisks(found)) => {
                let fact = |(uid, Found { volumes, logs })| PodDiskFact { uid, volumes, logs };
                let facts = uids.into_iter().zip(found).map(fact).collect();
                self.events.push_back(Event::Done { op, result: Ok(Answer::PodDisks(facts)) });
            }
            (Job::Lookup(lookup), Work::Lookup(address)) => self.host_looked_up(*lookup, address, now),
            (Job::Kubeconfig, Work::Kubeconfig(credentials)) => self.kubeconfig_read(Some(credentials), now),
            (Job::ApiServer(host), Work::ApiServer(found)) => self.api_server_looked_up(&host, found, now),
            (Job::Identity(op), Work::Identity(changed)) => self.identity_changed(op, changed, now),
            (Job::Hosts(waiting), Work::Hosts(hosts)) => self.prepare_on_host_network(waiting, hosts),
            (Job::Dns(sandbox), Work::Dns(host)) => {
                let host = host.unwrap_or_else(|e| {
                    log::warn!("failed to read the host's DNS settings; the pod gets none of them error={e:?}");
                    HostDns::none()
                });
                self.run_sandbox(sandbox, Some(host), now);
                self.flush_to_runtime(now);
            }
            (Job::DockerConfig(op), Work::DockerConfig(found)) => self.docker_config_read(op, found, now),
            (Job::Provider(op, name), Work::Provided(result)) => self.provider_asked(op, &name, result, now),
            (Job::Networks(op), Work::Networks(gone)) => self.empty_networks_removed(op, gone),
            (Job::Kube(job), Work::Kube(work)) => self.kube_work_done(job, work, now),
            (Job::Findings, Work::Findings(found)) => found.iter().for_each(system_check::line),
            (Job::Configuration, Work::Configuration(loaded)) => self.reloaded(Ok(*loaded), now),
            (Job::Files(op), Work::Mounts(result)) => {
                self.events.push_back(Event::Done { op, result: result.map(Answer::Mounts) });
            }
            (Job::Files(op), Work::DropIn(result)) => {
                self.events.push_back(Event::Done { op, result: result.map(Answer::Written) });
            }
            // The kind of an answer always matches its job.
            _ => {}
        }
    }

    fn work_failed(&mut self, job: Job, e: &JobError, now: Now) {
        if let Job::Inspection(ticket) = job {
            // The manifests report these errors in more detail.
            let not_seen = match e {
                JobError::Stuck { .. } => NotSeen::Stuck,
                e => NotSeen::NotBegun(e.to_string()),
            };
            return self.manifest_inspected(ticket, Err(not_seen), now);
        }
        let job = match job {
            // The handler failed.
            Job::Lookup(lookup) => return self.host_looked_up(*lookup, Err("i/o timeout".to_owned()), now),
            Job::Kubeconfig => return self.kubeconfig_read(None, now),
            Job::ApiServer(host) => return self.api_server_looked_up(&host, Err("i/o timeout".to_owned()), now),
            other => other,
        };
        if let Some(repeated) = self.standing.repetitions(&e.to_string(), now.boot) {
            log::warn!("a helper job failed error={:?} repeated={repeated}", e.to_string());
        }
        let result = Err(OpError::Unknown(e.to_string()));
        let ops = match job {
            Job::Records(ops) => {
                self.records.writing = false;
                ops
            }
            Job::Findings => Vec::new(),
            Job::Kube(job) => {
                self.kube_work_failed(job, &e.to_string(), now);
                Vec::new()
            }
            Job::Manifest => {
                self.manifests.written(Err(e.to_string()), now);
                Vec::new()
            }
            Job::Reports => {
                self.reports_written(Err(e.to_string()), now);
                Vec::new()
            }
            // (A container without a termination message has an empty one.)
            Job::Files(op)
            | Job::Identity(op)
            | Job::Message(op)
            | Job::DockerConfig(op)
            | Job::Provider(op, _)
            | Job::FileSystem(op)
            | Job::PodDisks(op, _)
            | Job::Rotation(op)
            | Job::Networks(op)
            | Job::Hosts(ContainerFiles { op, .. }) => vec![op],
            Job::Dns(sandbox) => {
                self.run_sandbox(sandbox, None, now);
                self.flush_to_runtime(now);
                Vec::new()
            }
            Job::Configuration => {
                self.reloaded(Err(e), now);
                Vec::new()
            }
            Job::Inspection(_) | Job::Lookup(_) | Job::Kubeconfig | Job::ApiServer(_) => Vec::new(),
        };
        for op in ops {
            self.events.push_back(Event::Done { op, result: result.clone() });
        }
    }
}
