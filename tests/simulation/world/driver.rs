//! The driver: it carries the events of the world to the engine, and the engine's effects to the models.

use super::{Item, World};
use crate::text::{brief, short};
use wherry::api::names::Uid;
use wherry::api::reason::Reason;
use wherry::engine::effect::{ContainerEnd, Effect, Notice, RuntimeCall};
use wherry::engine::event::Event;
use wherry::engine::node::Due;
use wherry::engine::pod::kill::KillId;

impl World {
    /// An event of the queue happens.
    pub(super) fn item(&mut self, item: Item) {
        match item {
            Item::Act { key } => self.act(key),
            Item::Answer { key, result } => self.finish(key, result),
            Item::Deadline { key } => self.deadline_is_over(key),
            Item::Due { life, at } => self.engine_is_due(life, at),
            Item::Record { key, change } => self.write_record(key, change),
            Item::ManifestRecords { key, updates } => self.write_manifest_records(key, updates),
            Item::Exit { container, code } => self.exit(&container, code),
            Item::Shown { container, code } => self.show_exit(&container, code),
            Item::Kill { container, by } => self.kill_process(&container, by),
            Item::LateCgroup { uid, attempt } => self.late_cgroup(uid, attempt),
            Item::Freed { container } => self.free_process(&container),
            Item::Up => self.runtime_up(),
            Item::Start { life } => self.starts_again(life),
            Item::Manifests { life } if life == self.process.life => self.read_manifests(),
            Item::Pidfd { life, id } => self.pidfd_fires(life, id),
            Item::DiskWell => (self.disk.full, self.disk.failing) = (false, false),
            Item::Logind { key, call } => self.logind_acts(key, &call),
            Item::LockDue { since } => self.lock_is_released_in_time(since),
            Item::CatchesUp => self.cache_is_due(),
            Item::WatchOver { life, op } => self.watch_is_over(life, op),
            Item::Event { life, event } if life == self.process.life => self.step(event),
            Item::Written { life } if life == self.process.life => self.files_are_written(),
            Item::Kubectl { life } if life == self.process.life => self.helper_of_kubectl(),
            // For an earlier engine.
            Item::Manifests { .. } | Item::Written { .. } | Item::Kubectl { .. } | Item::Event { .. } => {}
        }
        self.look_at_pidfds();
        self.look_at_stream();
        self.answer_stops();
    }

    /// The engine receives an event, and its effects are carried out.
    pub fn step(&mut self, event: Event) {
        self.process.alive |= matches!(event, Event::Records(_));
        if !self.process.alive {
            return;
        }
        self.note(|| format!("> {}", short(&event)));
        let now = self.time();
        // A runtime event of a change that the cache already shows has no effect.
        if let Event::RuntimeEvent { uid: Some(uid), event } = &event
            && event.id == crate::stream::UNKNOWN
        {
            self.checks.hinted(uid);
        }
        let effects = self.engine.step(event, now);
        self.stepped(effects);
    }

    /// The engine handles a part or a pod that is not due.
    pub fn step_early(&mut self, due: &Due) {
        if self.process.alive {
            self.note(|| format!("> {due}, early"));
            let now = self.time();
            let effects = self.engine.step_early(due, now);
            self.stepped(effects);
        }
    }

    fn stepped(&mut self, effects: Vec<Effect>) {
        let steps_now = self.observed.step(self.clock.now);
        // A story would not end.
        assert!(self.chaos.is_some() || steps_now < 50_000, "{steps_now} steps at one moment");
        if self.chaos.is_some() && steps_now > 5000 {
            let due: Vec<_> = self.engine.deadlines().into_iter().filter(|(_, at)| at.0 <= self.clock.now).collect();
            self.checks.fail("effects are bounded", format!("5000 steps at one moment; due: {due:?}"));
        }
        self.checks.pods_of_workloads(&self.engine);
        if !self.engine.is_cordoned() {
            self.checks.uncordoned();
        }
        if !self.process.unread {
            self.checks.replaced(&self.engine, self.clock.now, &self.runtime);
            self.checks.leaving(&self.engine, &self.api, self.clock.now, &self.runtime);
        }
        self.count(effects.len() as u64);
        self.carry_out(effects);
        self.plan_due();
        self.checks.shown_ends_are_reported();
        self.end_changes_of_kubectl();
    }

    /// A step without a preceding change has no effects.
    pub fn idempotent(&mut self, uid: &Uid) {
        self.step_early(&Due::Pod(uid.clone()));
        let now = self.time();
        if !self.process.alive {
            return;
        }
        let again = self.engine.step_early(&Due::Pod(uid.clone()), now);
        if let Some(effect) = again.first() {
            self.checks.fail("a second step asks for nothing", format!("{uid}: {effect:?}"));
        }
        self.carry_out(again);
    }

    /// Carries out the effects of one step, or only the first ones if the engine is killed.
    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Some(away) = self.process.killed_before_effect() {
                self.kill_engine();
                return self.start_in(away);
            }
            self.effect(effect);
        }
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Runtime { op, call: RuntimeCall::Handler(call), .. } => self.exec_handler(op, *call),
            Effect::Runtime { op, call, timeout } => self.runtime_call(op, call, timeout),
            Effect::Cancel { op } if self.api_cancel(op) => {}
            Effect::Cancel { op } => self.cancel(op),
            Effect::Api { op, request, timeout } => self.api_request(op, &request, timeout),
            Effect::Identity { op, call } => self.change_identity(op, &call),
            Effect::Files { op, call } => self.files_call(op, call),
            Effect::Cgroup { op, call } => self.cgroup_call(op, &call),
            Effect::StoreManifests { op, updates } => self.store_manifests(op, updates),
            Effect::RemoveManifest { op, removed } => self.remove_manifest(op, &removed),
            Effect::Claim { op, call, .. } => self.claim_call(op, &call),
            Effect::ServiceTable { op, call, .. } => self.service_table_call(op, call),
            Effect::ReadTimeZone { op, name } => self.read_time_zone(op, name.as_deref()),
            Effect::ManifestNews(_) => {}
            Effect::RemoveEmptyNetworks { op, sandboxes } => self.remove_empty_networks(op, sandboxes),
            Effect::Volumes { op, call, timeout } => self.volumes_call(op, &call, timeout),
            Effect::ReadDockerConfig { op, timeout } => self.read_docker_config(op, timeout),
            Effect::AskProvider { op, provider, repository, timeout } => {
                self.ask_provider(op, &provider, &repository, timeout);
            }
            Effect::MeasureFileSystem { op, path, .. } => self.measure_file_system(op, &path),
            Effect::Log { op, call } => self.log_call(op, call),
            Effect::WatchLog { id, path } => self.watch_log(id, path),
            Effect::UnwatchLog { id } => self.unwatch_log(&id),
            Effect::MeasureMachine { op, .. } => self.measure_machine(op),
            Effect::CountProcesses { op, pods } => self.count_processes(op, &pods),
            Effect::MeasurePods { op, pods, .. } => self.measure_pods(op, &pods),
            Effect::WatchMemoryPressure(wanted) => self.watch_memory(wanted),
            Effect::ReadAddresses => self.read_addresses(),
            Effect::AddressesChanged => self.host.addresses_used += 1,
            Effect::AnswerRegistration { result, .. } => self.devices.answers.push(result),
            Effect::WatchDevices { resource, .. } => self.watch_devices(resource),
            Effect::Device { op, call, timeout } => self.device_call(op, call, timeout),
            Effect::Hook { op, call, timeout } => self.hook(op, &call, timeout),
            Effect::Probe { op, call, timeout } => self.probe(op, &call, timeout),
            Effect::Logind { op, call, timeout } => self.logind_call(op, call, timeout),
            Effect::ReleaseLock => {
                self.note(|| "  < release the lock".into());
                self.logind.release(self.clock.now);
            }
            Effect::StoreLock { op } => self.store_lock(op),
            Effect::UseLogind(wanted) => self.use_logind(wanted),
            Effect::Record { op, change } => self.change_record(op, change),
            Effect::Watch { uid, id, pid } => self.watch(uid, id, pid),
            Effect::Unwatch { id } => self.unwatch(&id),
            Effect::Killed { id } => {
                self.note(|| format!("  < {id:?} is done"));
                if matches!(id, KillId::Event(_)) {
                    self.observed.killed.push(id);
                }
            }
            Effect::Answer { id, answer } => self.answered(id, answer),
            Effect::Publish { uid, name } => {
                self.clients.pod_changed(&name, self.engine.pod(&uid).as_ref());
                self.publish(&uid);
            }
            Effect::PublishClaims => self.clients.claims_changed(),
            Effect::PublishServices => self.clients.services_changed(),
            Effect::PublishWorkloads => self.clients.workloads_changed(),
            Effect::Notice(notice) => self.notice(notice),
            Effect::ContainerEnded(end) => self.container_ended(*end),
            Effect::Measure(m) => {
                if self.chaos.is_none() {
                    self.observed.measures.push(m);
                }
            }
        }
    }

    fn publish(&mut self, uid: &Uid) {
        self.observed.published += 1;
        let Some(view) = self.engine.pod(uid) else { return };
        let phase = view.status.phase.clone().unwrap_or_default();
        self.checks.published(uid, &phase, &self.runtime);
        self.checks.ends_shown(uid, view.status, self.config.fixed.started);
        if view.desired && view.status.start_time.is_some() {
            self.checks.count(uid, view.status, &self.runtime);
        }
        if self.history.is_some() {
            let text = brief(view.status);
            self.note(|| format!("  < publish {uid} {text}"));
        }
    }

    fn container_ended(&mut self, end: ContainerEnd) {
        self.note(|| format!("  < {} of {} ended", end.container, end.pod.uid));
        self.checks.end_reported(&end, self.config.fixed.started);
        if self.chaos.is_none() {
            self.observed.ends.push((self.observed.notices.len(), end));
        }
    }

    fn notice(&mut self, n: Notice) {
        if let Some(pod) = n.subject.pod().filter(|_| n.reason == Reason::DeadlineExceeded) {
            self.checks.deadline_exceeded(&pod.uid, &self.runtime);
        }
        if n.reason == Reason::Terminated {
            self.groups_end_in_turn(&n);
        }
        self.no_rejection_while_lower_pods_hold_the_room(&n);
        if let Some(pod) = n.subject.pod().filter(|_| [Reason::Terminated, Reason::Preempting].contains(&n.reason)) {
            self.checks.bounds.has_a_reason(&pod.uid, &self.runtime);
        }
        if let Some(pod) = n.subject.pod().filter(|_| n.reason == Reason::Evicted) {
            self.check_eviction(pod, &n.message);
            self.checks.evicted(&pod.uid, &self.runtime);
        }
        self.note(|| format!("  < notice {} {}", n.reason, n.message));
        if self.chaos.is_none() {
            self.observed.notices.push((self.clock.now, n));
        }
    }
}
