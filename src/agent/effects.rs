//! Carries out the engine's effects: passes each of them to its adapter. Each effect with an `OpId` results in
//! exactly one `Event::Done`.

use super::jobs::JobSpec;
use super::runtime::SandboxCall;
use super::{
    Agent, Reporting, cluster, credentials, disk, identity, logs, manifests, paths, service_table, time_zones,
};
use crate::adapters::cgroups::CgroupResult;
use crate::adapters::cri::requests::HostDns;
use crate::adapters::host::levels;
use crate::api::cluster::request::ApiRequest;
use crate::api::credential_provider::Provider;
use crate::api::facts::MeasuredPod;
use crate::api::kube::resources::Kind;
use crate::api::manifest_report::RecordUpdate;
use crate::api::names::{FullName, SandboxId, Uid};
use crate::api::time::{Boot, Now};
use crate::engine::effect::{
    CgroupCall, DeviceCall, Effect, LogindCall, Notice, RuntimeCall, ServiceTableCall, VolumesCall,
};
use crate::engine::event::{Answer, Event};
use crate::engine::handler::Handler;
use crate::engine::op::{Code, OpError, OpId};
use crate::engine::pod::kill::KillId;
use crate::event_loop::Class;
use crate::net::addresses::addresses;
use std::time::Duration;

impl Agent {
    /// Carries out an effect. Returns true if the runtime was called, so that the request must be sent.
    pub(super) fn carry_out(&mut self, effect: Effect, now: Now) -> bool {
        match effect {
            Effect::Runtime { op, call, timeout } => return self.call_runtime(op, call, timeout, now),
            Effect::Cancel { op } => return self.cancel(op),
            Effect::Api { op, request, timeout } => self.call_api(op, request, timeout, now),
            Effect::Identity { op, call } => identity::change(op, call, &self.config, &mut self.jobs, now),
            Effect::Files { op, call } => self.events.extend(self.disk.use_files(op, call, &mut self.jobs, now)),
            Effect::Cgroup { op, call } => self.call_cgroups(op, call, now),
            Effect::StoreManifests { op, updates } => self.store_manifests(op, updates, now),
            Effect::ReadTimeZone { op, name } => time_zones::read(op, name, &mut self.jobs, now),
            Effect::RemoveManifest { op, removed } => {
                manifests::remove(removed, op, self.manifests.directory(), &mut self.jobs, now);
            }
            Effect::ManifestNews(news) => self.reporting.recorder.report_manifests(&news, &self.engine, now),
            Effect::RemoveEmptyNetworks { op, sandboxes } => self.remove_empty_networks(op, &sandboxes, now),
            Effect::Volumes { op, call, timeout } => self.use_volumes(op, call, now.boot + timeout),
            Effect::Claim { op, call, timeout } => disk::use_claim(op, call, now.boot + timeout, &mut self.jobs),
            Effect::ServiceTable { op, call, timeout } => self.use_service_table(op, &call, timeout, now),
            Effect::ReadDockerConfig { op, timeout } => self.read_docker_config(op, now.boot + timeout),
            Effect::AskProvider { op, provider, repository, timeout } => {
                self.ask_provider(op, *provider, repository, now.boot + timeout);
            }
            Effect::MeasureFileSystem { op, path, timeout } => self.measure_file_system(op, path, now.boot + timeout),
            Effect::MeasureMachine { op, pids } => self.events.push_back(measure_machine(op, pids)),
            Effect::CountProcesses { op, pods } => self.count_processes(op, pods),
            Effect::MeasurePods { op, pods, timeout } => self.measure_pods(op, pods, now.boot + timeout),
            Effect::WatchMemoryPressure(wanted) => self.watch_memory_pressure(wanted),
            Effect::Log { op, call } => self.events.extend(logs::use_log(op, call, &mut self.jobs, now)),
            Effect::WatchLog { id, path } => self.events.extend(self.kernel.watch_log(id, &path, &mut self.event_loop)),
            Effect::UnwatchLog { id } => self.kernel.log_writes.unwatch(&id),
            Effect::Hook { op, call, timeout } => self.start_handler(op, Handler::Hook(call), timeout, now),
            Effect::Probe { op, call, timeout } => self.start_handler(op, Handler::Probe(call), timeout, now),
            Effect::ReadAddresses => self.events.push_back(Event::Addresses(addresses())),
            Effect::AddressesChanged => self.addresses_changed(now),
            Effect::AnswerRegistration { id, result } => self.answer_registration(id, result),
            Effect::WatchDevices { resource, endpoint } => self.watch_devices(&resource, &endpoint, now),
            Effect::Device { op, call, timeout } => self.call_device_plugin(op, call, timeout, now),
            Effect::Logind { op, call, timeout } => self.call_logind(op, call, timeout, now),
            Effect::ReleaseLock => self.logind.release_lock(),
            Effect::StoreLock { op } => self.events.push_back(self.logind.store_lock(op)),
            Effect::UseLogind(wanted) => self.use_logind(wanted, now),
            Effect::Record { op, change } => self.disk.records.push(op, change),
            Effect::Watch { uid, id, pid } => self.watch_process(uid, id, pid),
            Effect::Unwatch { id } => self.kernel.pidfds.unwatch(self.event_loop.registry(), &id),
            Effect::Killed { id } => log_killed(&id),
            Effect::Answer { id, answer } => self.answered(id, answer, now),
            Effect::Publish { uid, name } => self.publish_change(&uid, &name, now),
            Effect::PublishWorkloads => self.publish_workloads(),
            Effect::PublishClaims => self.publish_claims(),
            Effect::PublishServices => self.publish_services(),
            Effect::Notice(notice) => self.record_notice(&notice, now),
            Effect::ContainerEnded(end) => self.reporting.recorder.report_end(&end, now),
            Effect::Measure(measure) => self.metrics.record(&measure),
        }
        false
    }

    fn call_api(&mut self, op: OpId, request: ApiRequest, timeout: Option<Duration>, now: Now) {
        let Agent { cluster, event_loop, jobs, .. } = self;
        let deadline = timeout.map(|timeout| now.boot + timeout);
        let ended = match cluster {
            Some(cluster) => cluster.call(op, request, deadline, event_loop, jobs, now),
            None => Some(cluster::not_sent(op, "the node has no cluster".to_owned())),
        };
        self.events.extend(ended);
    }

    fn call_cgroups(&mut self, op: OpId, call: CgroupCall, now: Now) {
        self.cgroups.call(op, call, now.boot);
        self.drive_cgroups(now);
    }

    fn count_processes(&mut self, op: OpId, pods: Vec<Uid>) {
        let counts = Answer::Processes(self.cgroups.count_processes(pods));
        self.events.push_back(Event::Done { op, result: Ok(counts) });
    }

    fn store_manifests(&mut self, op: OpId, updates: Vec<RecordUpdate>, now: Now) {
        manifests::store(&mut self.manifests, op, updates, &mut self.jobs, now);
    }

    fn remove_empty_networks(&mut self, op: OpId, sandboxes: &[SandboxId], now: Now) {
        paths::remove_empty_networks(op, sandboxes, &mut self.jobs, now);
    }

    fn use_volumes(&mut self, op: OpId, call: VolumesCall, deadline: Boot) {
        self.disk.use_volumes(op, call, deadline, &mut self.jobs);
    }

    fn measure_pods(&mut self, op: OpId, pods: Vec<MeasuredPod>, deadline: Boot) {
        self.disk.measure_pods(op, pods, deadline, &mut self.jobs);
    }

    fn measure_file_system(&mut self, op: OpId, path: String, deadline: Boot) {
        let root = &self.config.root_dir;
        self.events.extend(paths::measure_file_system(op, path, root, &mut self.jobs, deadline));
    }

    fn read_docker_config(&mut self, op: OpId, deadline: Boot) {
        credentials::read_docker_config(op, &self.config, deadline, &mut self.jobs);
    }

    fn ask_provider(&mut self, op: OpId, provider: Provider, repository: String, deadline: Boot) {
        let directory = self.config.image_credential_provider_bin_dir.as_deref();
        credentials::ask_provider(op, provider, repository, directory, deadline, &mut self.jobs);
    }

    fn watch_memory_pressure(&mut self, wanted: bool) {
        self.events.extend(self.kernel.watch_memory_pressure(wanted, &mut self.event_loop));
    }

    fn watch_process(&mut self, uid: Uid, id: String, pid: u32) {
        self.events.push_back(self.kernel.watch_process(uid, id, pid, &mut self.event_loop));
    }

    fn start_handler(&mut self, op: OpId, handler: Handler, timeout: Duration, now: Now) {
        let Agent { handlers, event_loop, jobs, .. } = self;
        self.events.extend(handlers.start(op, handler, timeout, event_loop, jobs, now));
    }

    fn answer_registration(&mut self, id: u64, result: Result<(), String>) {
        self.events.extend(self.devices.answer_registration(id, result, &mut self.event_loop));
    }

    fn watch_devices(&mut self, resource: &str, endpoint: &str, now: Now) {
        self.events.extend(self.devices.watch(resource, endpoint, &mut self.event_loop, now));
    }

    fn call_device_plugin(&mut self, op: OpId, call: DeviceCall, timeout: Duration, now: Now) {
        self.events.extend(self.devices.call(op, call, timeout, &mut self.event_loop, now));
    }

    fn call_logind(&mut self, op: OpId, call: LogindCall, timeout: Duration, now: Now) {
        if self.logind.call(op, call, timeout, &self.config.logind_conf_dir, &mut self.jobs, now) {
            self.drive_logind(now);
        }
    }

    fn use_logind(&mut self, wanted: bool, now: Now) {
        self.logind.bus.set_enabled(wanted);
        self.drive_logind(now);
    }

    fn addresses_changed(&mut self, now: Now) {
        log::info!("node addresses={}", self.engine.addresses().join(","));
        self.serving.node_server.check_at_once(now.boot);
    }

    /// Returns true if the call must be sent now.
    fn call_runtime(&mut self, op: OpId, call: RuntimeCall, timeout: Duration, now: Now) -> bool {
        let Some(sandbox) = self.runtime.call(op, call, timeout, now) else { return true };
        // A new sandbox gets the host's current DNS settings, because a network may come up after Wherry.
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

    /// Creates a sandbox. `host` is None if the host's DNS settings could not be read in time.
    pub(super) fn run_sandbox(&mut self, sandbox: SandboxCall, host: Option<HostDns>, now: Now) {
        for notice in self.runtime.run_sandbox(sandbox, host, now) {
            self.record_notice(&notice, now);
        }
    }

    /// Cancels an operation. Returns true if a cancellation must be sent to the runtime.
    fn cancel(&mut self, op: OpId) -> bool {
        if self.handlers.cancel(op) {
            self.events.extend(self.handlers.take_events());
        } else if self.devices.cancel(op) {
            self.events.extend(self.devices.take_events(&mut self.event_loop));
        } else if self.jobs.cancel(op) {
            let result = Err(OpError::NotSent("cancelled before it was sent".to_owned()));
            self.events.push_back(Event::Done { op, result });
        } else if !self.cluster.as_mut().is_some_and(|cluster| cluster.cancel(op, &mut self.event_loop)) {
            self.runtime.client.cancel(op);
            return true;
        }
        false
    }

    fn publish_workloads(&mut self) {
        if let Some(kube) = self.serving.kube.get() {
            kube.api.workloads_changed();
        }
    }

    /// Has a helper change or check the rules of services in the kernel.
    fn use_service_table(&mut self, op: OpId, call: &ServiceTableCall, timeout: Duration, now: Now) {
        let deadline = now.boot + timeout + service_table::AFTER_PROGRAM;
        let spec = JobSpec::new(Class::Paths, "use the rules of services", deadline);
        let job = service_table::job(call, timeout, &self.process.service_rules);
        self.jobs.run_op(op, spec, job, |found| found.map_or(Answer::Ok, Answer::TableInForce));
    }

    fn publish_services(&mut self) {
        if let Some(kube) = self.serving.kube.get() {
            kube.api.services_changed();
        }
    }

    fn publish_claims(&mut self) {
        if let Some(kube) = self.serving.kube.get() {
            kube.api.claims_changed();
        }
    }

    fn record_notice(&mut self, notice: &Notice, now: Now) {
        let Reporting { recorder, standing, .. } = &mut self.reporting;
        recorder.record_notice(notice, &self.engine, standing, now);
    }

    /// Shows a changed pod to the clients that follow it.
    fn publish_change(&mut self, uid: &Uid, name: &FullName, now: Now) {
        self.reporting.service.changed();
        if let Some(kube) = self.serving.kube.get() {
            kube.api.pod_changed(name, self.engine.pod(uid).as_ref());
        }
        if self.reporting.recorder.report_change(&self.engine, uid, name, now) {
            self.serving.pod_changed(uid, name, self.engine.pod(uid).is_some());
        }
        // A followed log ends when its container ends.
        self.serving.wake(Kind::Pod);
    }

    /// Continues the cgroup calls, and handles their results.
    pub(super) fn drive_cgroups(&mut self, now: Now) {
        self.cgroups.drive(self.event_loop.registry(), now.boot);
        for result in self.cgroups.take_results() {
            match result {
                CgroupResult::Done { op, result } => self.events.push_back(Event::Done { op, result }),
                CgroupResult::RemoveByForce { op, uid } => self.disk.remove_by_force(op, &uid, &mut self.jobs, now),
                CgroupResult::Counted { operation, took } => self.metrics.cgroup_operation(operation, took),
                CgroupResult::LevelFailed { why } => {
                    if let Some(repeated) = self.reporting.standing.repetitions(&format!("slice: {why}"), now.boot) {
                        log::warn!("failed to set the cgroups of the QoS levels error={why:?} repeated={repeated}");
                    }
                }
            }
        }
    }
}

fn measure_machine(op: OpId, pids: bool) -> Event {
    let result = levels::read(pids).map(Answer::Machine);
    Event::Done { op, result: result.map_err(|message| OpError::Answered { code: Code::Other(2), message }) }
}

fn log_killed(id: &KillId) {
    match id {
        KillId::Drain(pod) => log::info!("pod={pod} reason=Drained the drained pod has stopped"),
        KillId::ApiEviction(pod) => log::info!("pod={pod} reason=Evicted the evicted pod has stopped"),
        KillId::Event(_) => {}
    }
}
