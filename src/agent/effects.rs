//! Carries out the engine's effects: each goes to its adapter. Each effect with an `OpId` ends in one `Event::Done`.

use super::jobs::Outcome;
use super::runtime::SandboxCall;
use super::{Agent, Reporting, credentials, logs, manifests, paths};
use crate::adapters::cgroups::CgroupResult;
use crate::adapters::cri::requests::HostDns;
use crate::adapters::host::levels;
use crate::api::kube::resources::Kind;
use crate::api::names::{FullName, Uid};
use crate::api::time::Now;
use crate::engine::effect::{Effect, Notice, RuntimeCall};
use crate::engine::event::{Answer, Event};
use crate::engine::handler::Handler;
use crate::engine::op::{Code, OpError, OpId};
use crate::engine::pod::kill::KillId;
use crate::net::addresses::addresses;
use std::time::Duration;

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
            Effect::Files { op, call } => {
                let outcome = self.disk.use_files(op, call, &mut self.jobs, now);
                self.done(op, outcome);
            }
            Effect::Cgroup { op, call } => {
                self.cgroups.call(op, call, now.boot);
                self.drive_cgroups(now);
            }
            Effect::StoreManifests { op, updates } => {
                manifests::store(&mut self.manifests, op, updates, &mut self.jobs, now)
            }
            Effect::ManifestNews(news) => self.reporting.recorder.report_manifests(&news, &self.engine, now),
            Effect::RemoveEmptyNetworks { op, sandboxes } => {
                paths::remove_empty_networks(op, &sandboxes, &mut self.jobs, now);
            }
            Effect::Volumes { op, call, timeout } => {
                self.disk.use_volumes(op, call, now.boot + timeout, &mut self.jobs);
            }
            Effect::ReadDockerConfig { op, timeout } => {
                credentials::read_docker_config(op, &self.config, now.boot + timeout, &mut self.jobs);
            }
            Effect::AskProvider { op, provider, repository, timeout } => {
                let directory = self.config.image_credential_provider_bin_dir.as_deref();
                let deadline = now.boot + timeout;
                credentials::ask_provider(op, *provider, repository, directory, deadline, &mut self.jobs);
            }
            Effect::MeasureFileSystem { op, path, timeout } => {
                let (root, deadline) = (&self.config.root_dir, now.boot + timeout);
                let outcome = paths::measure_file_system(op, path, root, &mut self.jobs, deadline);
                self.done(op, outcome);
            }
            Effect::MeasureMachine { op, pids } => self.done(op, Some(measure_machine(pids))),
            Effect::CountProcesses { op, pods } => {
                let counts = Answer::Processes(self.cgroups.count_processes(pods));
                self.done(op, Some(Ok(counts)));
            }
            Effect::MeasurePods { op, pods, timeout } => {
                self.disk.measure_pods(op, pods, now.boot + timeout, &mut self.jobs);
            }
            Effect::WatchMemoryPressure(wanted) => {
                self.events.extend(self.kernel.watch_memory_pressure(wanted, &mut self.event_loop));
            }
            Effect::Log { op, call } => {
                let outcome = logs::use_log(op, call, &mut self.jobs, now);
                self.done(op, outcome);
            }
            Effect::WatchLog { id, path } => self.events.extend(self.kernel.watch_log(id, &path, &mut self.event_loop)),
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
            Effect::Watch { uid, id, pid } => {
                self.events.push_back(self.kernel.watch_process(uid, id, pid, &mut self.event_loop));
            }
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

    /// The operation has ended, or a job ends it later.
    fn done(&mut self, op: OpId, outcome: Outcome) {
        self.events.extend(outcome.map(|result| Event::Done { op, result }));
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

    /// Continues the cgroup calls, and takes their results.
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

fn measure_machine(pids: bool) -> Result<Answer, OpError> {
    let result = levels::read(pids).map(Answer::Machine);
    result.map_err(|message| OpError::Answered { code: Code::Other(2), message })
}

fn log_killed(id: &KillId) {
    match id {
        KillId::Drain(pod) => log::info!("pod={pod} reason=Drained the drained pod has stopped"),
        KillId::ApiEviction(pod) => log::info!("pod={pod} reason=Evicted the evicted pod has stopped"),
        KillId::Event(_) => {}
    }
}
