//! The engine: passes each event to its state machine, and steps the workers that the event concerns.
//!
//! `Engine::step` is the only function that changes the engine: it takes an event and the time, and returns effects.
//! Each state machine in `engine/` owns its state. The modules here connect these machines with the workers:
//! `desired` compares the desired pods with the workers, `replace` replaces edited pods, `kills` handles kills for
//! other causes, `requests` carries out the requests of users, `host_cleanup` removes what earlier runs left on the
//! host, `images` connects image garbage collection with the pods, `eviction` does so for node-pressure eviction,
//! `logs` for log rotation, `devices` for device plugins, `cordon` for cordons of the node, `cluster` for the pods of
//! an API server, `pleg` adopts the pods that a list shows, `admission` and `shutdown` carry out the decisions of
//! admission and the orders of the node shutdown, `readiness` decides whether the node is ready, `view` and
//! `worker_status` provide the data for the API (`shown`), `workloads`, `claims` and `services` connect these with
//! their pods, `shared` holds what the pods share, `reclaim` holds the machines that free disk space and memory,
//! `leftovers` holds what earlier runs left, `steps` knows which workers have to be stepped, `deadlines` finds what is
//! due without an event (`due`), and `dump` shows the whole state.

mod access;
mod admission;
mod budgets;
mod claims;
mod cluster;
mod cordon;
mod deadlines;
mod desired;
mod devices;
mod due;
mod dump;
mod ephemeral;
mod eviction;
mod host_cleanup;
mod images;
mod kills;
mod leftovers;
mod logs;
mod pleg;
mod readiness;
mod reclaim;
mod replace;
mod requests;
mod services;
mod shared;
mod shown;
mod shutdown;
mod steps;
#[cfg(test)]
mod tests;
mod view;
mod worker_status;
mod workloads;

pub use crate::engine::desired::conflict::Conflict;
pub use due::{Due, Part};
pub use shown::{Check, PodView, SHUTTING_DOWN, Summary};

use crate::api::eviction::Condition;
use crate::api::names::Uid;
use crate::api::time::Now;
use crate::engine::admission::machine::NodeAdmission;
use crate::engine::cluster::Cluster;
use crate::engine::cluster::member::Member;
use crate::engine::config::EngineConfig;
use crate::engine::container_ends::{ContainerEnds, Published};
use crate::engine::context::{Context, ObjectsOfPod};
use crate::engine::control::Requests;
use crate::engine::cordon::Cordon;
use crate::engine::desired::Desired;
use crate::engine::effect::{Effect, Measure};
use crate::engine::event::{Answer, Event};
use crate::engine::log_rotation::LogRotation;
use crate::engine::op::{OpError, OpId};
use crate::engine::outbox::Outbox;
use crate::engine::owner::Owner;
use crate::engine::pleg::Pleg;
use crate::engine::pleg::cache::{Entry, Generation};
use crate::engine::pod::record;
use crate::engine::pod::worker::Worker;
use crate::engine::rng::Rng;
use crate::engine::runtime::Runtime;
use crate::engine::shutdown::Shutdown;
use crate::engine::workloads::Workloads;
use leftovers::Leftovers;
use reclaim::Reclaim;
use serde::Serialize;
use shared::Shared;
use std::collections::BTreeMap;
use steps::Steps;

#[derive(Serialize)]
pub struct Engine {
    config: EngineConfig,
    generation: Generation,
    now: Now,
    rng: Rng,
    #[serde(flatten)]
    shared: Shared,
    runtime: Runtime,
    pleg: Pleg,
    #[serde(flatten)]
    leftovers: Leftovers,
    desired: Desired,
    workloads: Workloads,
    requests: Requests,
    #[serde(flatten)]
    reclaim: Reclaim,
    shutdown: Shutdown,
    cordon: Cordon,
    cluster: Cluster,
    admission: NodeAdmission,
    /// Boxed, because each node of a B-tree map allocates space for 11 values.
    workers: BTreeMap<Uid, Box<Worker>>,
    container_ends: ContainerEnds,
    #[serde(flatten)]
    steps: Steps,
    #[serde(flatten)]
    outbox: Outbox,
}

impl Engine {
    pub fn new(config: EngineConfig) -> Engine {
        Engine {
            generation: 0,
            now: Now::default(),
            rng: Rng::new(config.fixed.seed),
            shared: Shared::new(&config),
            runtime: Runtime::default(),
            pleg: Pleg::new(config.parallel_reads),
            leftovers: Leftovers::default(),
            desired: Desired::default(),
            workloads: Workloads::default(),
            requests: Requests::default(),
            reclaim: Reclaim::default(),
            shutdown: Shutdown::new(config.shutdown.clone()),
            cordon: Cordon::default(),
            cluster: match &config.cluster {
                Some(cluster) => Cluster::Member(Box::new(Member::new(&config.node.name, cluster))),
                None => Cluster::Standalone,
            },
            admission: NodeAdmission::default(),
            workers: BTreeMap::new(),
            container_ends: ContainerEnds::default(),
            steps: Steps::default(),
            outbox: Outbox::default(),
            config,
        }
    }

    fn configure(&mut self, config: EngineConfig) {
        self.shared.configure(&self.config, &config);
        self.pleg.reads.set_limit(config.parallel_reads);
        let addresses = config.cluster.as_ref().map(|cluster| cluster.addresses.clone()).unwrap_or_default();
        self.config.change_to(config);
        self.addresses_found(addresses);
    }

    /// Handles an event. Returns the effects in the order in which they have to start.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.begin_step(now);
        let could_start = self.may_start();
        match event {
            Event::Records(records) => self.take_records(records),
            Event::Directories(found) => {
                self.leftovers.orphaned_directories.found(found, |uid| self.workers.contains_key(uid), now.boot);
            }
            Event::Manifests(report) => self.manifests_reported(report),
            Event::Configure(config) => {
                self.configure(*config);
                self.reclaim.eviction.configured(now.boot);
                self.with_shutdown(|shutdown, _, ctx| shutdown.configure(ctx));
                self.admission.room_changed();
            }
            Event::RuntimeUp => {
                self.runtime.connected();
                self.reclaim.eviction.runtime_connected();
                self.read_runtime_status();
                self.relist();
                self.touch_all();
            }
            Event::RuntimeDown { why } => self.runtime.disconnected(why),
            Event::Due => self.handle_due(),
            Event::RuntimeEvent { uid, event } => self.runtime_event(uid, event),
            Event::Kill { id, uid, kill } => self.kill(id, uid, kill),
            Event::Release { by, uids } => self.release(by, uids),
            Event::MemoryWatched { works } => self.reclaim.eviction.memory_watched(works),
            Event::MemoryIsShort => self.memory_is_short(),
            Event::LogWritten { id } => self.with_logs(|logs, inputs| logs.written(&id, inputs)),
            Event::LogNotWatched { id } => self.with_logs(|logs, inputs| logs.not_watched(&id, inputs)),
            Event::Request { id, request } => self.request(id, request),
            Event::RequestGone { id } => self.request_gone(id),
            Event::Device(event) => self.device_event(event),
            Event::Logind(event) => {
                self.with_shutdown(|shutdown, _, ctx| shutdown.logind(event, ctx));
            }
            Event::Api(event) => self.api_event(event),
            Event::NodeServer { port } => self.node_server_listens(port),
            Event::Addresses(found) => self.addresses_found(found),
            Event::Stopping => {
                self.with_member(|member, _| member.stopping());
            }
            Event::Watched { uid, id, ok } => self.pleg.watch_answered(&uid, &id, ok, now.boot),
            Event::Ended { uid, id } => self.process_ended(&uid, &id),
            Event::Done { op, result } => self.operation_ended(op, result),
        }
        if !could_start && self.may_start() {
            self.touch_all();
        }
        self.end_step()
    }

    fn begin_step(&mut self, now: Now) {
        self.generation += 1;
        self.now = now;
    }

    /// Returns true if the pods that should run and those that run are known.
    fn knows_its_pods(&self) -> bool {
        self.desired.is_known() && self.pleg.was_compared()
    }

    /// Steps the pods and the parts that the event concerns, and returns the effects.
    fn end_step(&mut self) -> Vec<Effect> {
        self.admission.consider_victims(self.now.boot);
        self.settle_all();
        self.step_workloads();
        self.step_claims();
        self.step_services();
        self.requests.durable.begun(self.outbox.begun_records());
        self.admission.victims.forget_gone(&self.workers);
        self.plan_images();
        self.plan_eviction();
        self.with_logs(LogRotation::begin_rotations);
        self.report_ends();
        self.desired.in_force.write(self.now.boot, &mut self.outbox);
        self.desired.files.write_records(self.now.boot, &mut self.outbox);
        self.step_cluster();
        self.outbox.take()
    }

    /// Reports the ends of containers that this step publishes.
    fn report_ends(&mut self) {
        let Engine { workers, pleg, now, .. } = self;
        let published = |uid: &Uid| {
            let worker = workers.get(uid).filter(|w| w.is_shown())?;
            let (pod, facts) = (worker.pod.as_ref()?, pleg.cache.get(uid)?.facts());
            Some(Published { pod, status: &worker.shown.status, facts })
        };
        self.container_ends.report(published, self.config.fixed.started, *now, &mut self.outbox);
    }

    /// Passes the answer of an operation to its owner.
    fn operation_ended(&mut self, op: OpId, result: Result<Answer, OpError>) {
        self.answer_durable(op, result.as_ref().err());
        match self.outbox.ops.end(op) {
            // The operation was forgotten, so its result is dropped.
            None => {}
            Some(Owner::Exec) => self.executed(op, result),
            Some(Owner::Stream) => self.stream_answered(op, result),
            Some(Owner::Usage) => self.usage_read(op, result),
            Some(Owner::Images) => {
                self.images_answered(result);
                self.images_may_be_reclaimed();
            }
            Some(Owner::Logs) => self.with_logs(|logs, inputs| logs.answered(op, result, inputs)),
            Some(Owner::Eviction) => self.eviction_answered(op, result),
            Some(Owner::ImageList) => self.images_listed(op, result),
            Some(Owner::Relist) => self.list_answered(result),
            Some(Owner::EmptyNetworks) => self.networks_removed(),
            // The adapter logs what it removes. A cgroup that remains does no harm.
            Some(Owner::CgroupSweep) => {}
            // Without the record, images only stay longer. A later garbage collection writes it again.
            Some(Owner::ImageRecord) => {}
            Some(Owner::RuntimeStatus) => self.runtime_status(result),
            Some(Owner::Cluster) => self.cluster_recorded(op, result.map(|_| ())),
            Some(Owner::Certificate) => self.identity_done(op, &result),
            Some(Owner::Cordon) => self.cordon_recorded(op, result),
            Some(Owner::Workload(key)) => self.workloads.recorded(&key, result.is_ok(), self.now.boot),
            Some(Owner::RemovedWorkload(key)) => {
                self.workloads.record_removed(&key, result.is_ok(), self.now.boot);
            }
            Some(Owner::ManifestRemoval(key)) => {
                let Engine { workloads, now, outbox, .. } = self;
                workloads.manifest_removed(&key, result, *now, outbox);
            }
            Some(Owner::TimeZone { of, name }) => {
                let Engine { workloads, now, outbox, .. } = self;
                workloads.time_zone_read(&of, name.as_deref(), result, now.boot, outbox);
            }
            Some(Owner::ClaimRecord(key)) => self.shared.claims.recorded(&key, result.is_ok(), self.now.boot),
            Some(Owner::ClaimDirectory(key)) => self.claim_answered(&key, result),
            Some(Owner::ServiceRecord) => self.shared.services.recorded(result.is_ok(), self.now.boot),
            Some(Owner::ServiceTable) => {
                let Engine { shared, now, outbox, .. } = self;
                shared.services.table_answered(result, now.boot, outbox);
            }
            Some(Owner::HostsFile(uid)) => self.hosts_file_written(&uid, result),
            Some(Owner::InForce) => self.desired.in_force.written(result.is_ok(), self.now.boot),
            Some(Owner::ManifestRecords) => self.manifests_recorded(result.map(|_| ())),
            Some(Owner::Cgroups) => self.admission.cpu_weight.answered(result, &mut self.outbox),
            Some(Owner::Logind) => {
                self.with_shutdown(|shutdown, _, ctx| shutdown.logind_answered(op, result, ctx));
            }
            Some(Owner::LockStore) => {
                self.with_shutdown(|shutdown, _, ctx| {
                    shutdown.lock_stored(op, result, ctx);
                    None
                });
            }
            Some(Owner::ShutdownRecord) => {
                self.with_shutdown(|shutdown, _, ctx| {
                    shutdown.record_kept(result, ctx);
                    None
                });
            }
            Some(Owner::Read(uid)) => self.pod_read(op, &uid, result),
            Some(Owner::Worker(uid)) => {
                self.with_worker(&uid, |worker, entry, ctx| worker.done(op, result, entry, ctx));
                self.pod_of_claim_changed(&uid);
                self.recheck_waiting_events(&uid);
                self.steps.touch(uid);
            }
        }
    }

    /// Returns true if pods may start: the runtime is ready and PLEG is healthy (P6), and it is known which pods a
    /// shutdown has begun to stop (S4).
    fn may_start(&self) -> bool {
        self.runtime.is_ready() && self.pleg.schedule.is_healthy(self.now.boot) && !self.shutdown.holds_starts()
    }

    fn touch_all(&mut self) {
        self.steps.touch_all(self.workers.keys().cloned());
    }

    /// Steps the touched workers and the node's own state machines until no step causes another one.
    fn settle_all(&mut self) {
        self.remove_orphaned_directories();
        // S4: once the shutdown of a group begins in this step, its pods start nothing more.
        self.step_shutdown();
        self.settle();
        while self.replace_outdated() || self.admit() || self.step_shutdown() {
            self.settle();
        }
        self.record_added();
    }

    /// Steps the touched workers until no step causes another one.
    fn settle(&mut self) {
        loop {
            while let Some(uid) = self.steps.take_next() {
                self.with_worker(&uid, |worker, entry, ctx| worker.step(entry, ctx));
                self.after_step(&uid);
            }
            match self.shared.slots.grant(self.now.boot) {
                Some(uid) if self.workers.contains_key(&uid) => {
                    self.steps.touch(uid);
                }
                Some(uid) => self.shared.slots.forget(&uid),
                None => break,
            }
        }
        self.begin_reads();
    }

    fn with_worker(&mut self, uid: &Uid, f: impl FnOnce(&mut Worker, &mut Entry, &mut Context<'_>)) {
        let may_start = self.may_start();
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let entry = self.pleg.entry(uid);
        let member = self.cluster.member().filter(|_| worker.is_from_api_server());
        let mut ctx = Context {
            now: self.now,
            generation: self.generation,
            config: &self.config,
            objects: ObjectsOfPod {
                data: member.map_or(self.desired.data(), |member| member.data.objects()),
                claims: &self.shared.claims,
                services: &self.shared.services,
                variables: member.map_or(self.shared.services.variables(), |member| member.lists.services()),
            },
            cluster: member.map(Member::values),
            rng: &mut self.rng,
            slots: &mut self.shared.slots,
            provider_cache: &mut self.shared.provider_cache,
            devices: &mut self.shared.devices,
            user_namespaces: &mut self.shared.user_namespaces,
            outbox: &mut self.outbox,
            up: self.runtime.is_up(),
            may_start,
            hurried: self.shutdown.is_hurried(),
            shutting_down: self.shutdown.is_on(),
            short_of_disk: self.reclaim.eviction.pressure().has(Condition::DiskPressure),
            network_ready: self.runtime.network_ready(),
            runtime_name: self.runtime.name(),
            runtime_classes: member.map_or(self.desired.runtime_classes(), |member| member.lists.classes()),
            runtime_features: self.runtime.features(),
        };
        f(worker, entry, &mut ctx);
        worker.write_record(&mut ctx);
        let has_begun = worker.state.has_begun();
        self.pleg.worker_stepped(uid, has_begun, self.now.boot, &mut self.outbox);
    }

    /// Handles the consequences of a worker's new state: its deadline, the next pod with its name, its end.
    fn after_step(&mut self, uid: &Uid) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        self.steps.stepped(uid, worker.timer.next());
        let placement = worker.placement(self.cordon.is_on());
        if std::mem::replace(&mut worker.shown.placement, placement) != placement {
            self.outbox.publish(uid, &worker.name);
        }
        let (finished, worker_is_over, name) =
            (worker.state.is_finished(), worker.state.is_over(), worker.name.clone());
        if worker_is_over {
            self.admission.room_changed();
            if worker_is_over && worker.history.take_devices() && self.shared.devices.release(uid) {
                self.devices_changed();
            }
        }
        if finished {
            self.shared.user_namespaces.release(uid);
            self.free_name(&name, uid);
        }
        self.update_logs(uid);
        if self.workers.get(uid).is_some_and(|w| w.state.is_forgotten()) {
            self.forget(uid);
        }
    }

    /// Removes a worker, and everything that other parts of the node store for it.
    fn remove_worker(&mut self, uid: &Uid) -> Option<Box<Worker>> {
        let worker = self.workers.remove(uid)?;
        self.shared.claims.touch();
        self.free_name(&worker.name, uid);
        self.pleg.forget(uid, self.generation, &mut self.outbox);
        self.shared.slots.forget(uid);
        self.update_logs(uid);
        self.steps.forget(uid);
        self.outbox.publish(uid, &worker.name);
        Some(worker)
    }

    fn forget(&mut self, uid: &Uid) {
        let Some(worker) = self.remove_worker(uid) else { return };
        self.deleted_pod_is_gone(&worker);
        self.requests.durable.forget(&record::key(uid));
        if let Some(attempt) = worker.sandbox.lost {
            self.pleg.without_worker.lost(uid, attempt, self.now.boot + self.config.request_timeout * 2);
        }
        if let Some(due) = worker.state.kept_directory() {
            self.leftovers.orphaned_directories.keep(uid.clone(), worker.name.clone(), due);
        }
        // W6: a create for this UID that arrived meanwhile starts the pod again.
        if let Some(pod) = worker.demand.successor.clone() {
            self.outbox.push(Effect::Measure(Measure::RestartedPod));
            let uid = pod.uid.clone();
            self.add_worker(pod, Some(worker.admission.place));
            if let Some(next) = self.workers.get_mut(&uid) {
                next.inherit(&worker);
            }
        }
        self.admission.room_changed();
    }

    fn read_runtime_status(&mut self) {
        self.runtime.read_status(self.config.request_timeout, &mut self.outbox);
    }

    fn runtime_status(&mut self, result: Result<Answer, OpError>) {
        if self.runtime.answered(result, self.now.boot, &mut self.rng) {
            self.touch_all();
        }
    }

    /// Starts the removal of each orphaned directory that is due, once everything that could refer to it has been
    /// read.
    fn remove_orphaned_directories(&mut self) {
        if !self.knows_its_pods() {
            return;
        }
        // Another owner's pod (W21), or one of Wherry's own that is not an orphan yet (C3), may use the directory.
        let may_run = |uid: &Uid| !self.pleg.knows_nothing_of(uid);
        for (uid, name) in self.leftovers.orphaned_directories.take_due(may_run, self.now.boot, &mut self.outbox) {
            // The runtime has nothing of Wherry's own for this UID, so no status read is needed.
            let worker = Worker::leftover(uid.clone(), name, self.now);
            self.insert_worker(&uid, Entry::empty(self.generation), worker);
            self.steps.touch(uid);
        }
    }
}
