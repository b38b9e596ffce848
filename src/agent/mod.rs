//! The daemon: one loop that passes events to the engine and the engine's effects to the adapters. It makes no
//! decisions.
//!
//! `Agent::run` is the loop, and `sources` lists what wakes it. `start` builds the agent, `stopping` ends it.
//! `effects` carries out effects, `events` collects events, and `jobs` runs work that can block on helper threads.
//!
//! Only `sources`, `effects`, `events`, `serving` and this file extend `Agent`. Each of the other modules owns the
//! state of one concern: its functions get what they need as arguments, and return events or what the agent has to do
//! next. The continuation of a helper's job gets the agent as an argument, because the job cannot hold a reference to
//! it. `runtime` has the calls to the container runtime, `logind` graceful shutdown, `devices` the device plugins,
//! `handlers` probes and hooks, `kernel` what the kernel reports, `cluster` the connection to the API server,
//! `identity` the node's certificates. `disk` and `record_queue` write files and records, `manifests` reads manifests,
//! `logs` rotates logs. `paths` has helpers read files that Wherry does not own, and `credentials` reads the
//! credentials for image pulls.
//!
//! `serving` drives the server: `act` defines the next step of a request, `requests` has the requests that wait for
//! the engine, `content` the data that the server shows, `bodies` the lists and watches, `pod_changes` the positions
//! of watches, `kube` the API for kubectl, `views` the form in which it shows pods, `descriptors` and `dump` the
//! internal state. `event_recorder` writes the log lines and events of pods, `event_cache` keeps the events,
//! `reports` preserves them across a restart, `last_state` keeps the state for a crash report, `logging` formats the
//! log, and `service` notifies systemd.
//! `system_check` checks the machine. `purge` implements the command of that name; it does not use the engine.

mod act;
mod bodies;
mod cluster;
mod content;
mod credentials;
mod descriptors;
mod devices;
mod disk;
mod dump;
mod effects;
mod event_recorder;
mod events;
mod handlers;
mod identity;
mod jobs;
mod kernel;
mod kube;
mod last_state;
pub mod logging;
mod logind;
mod logs;
mod manifests;
mod paths;
mod pod_changes;
pub mod purge;
mod record_queue;
mod reports;
mod requests;
mod runtime;
pub mod seal_key;
pub mod service;
mod service_table;
mod serving;
mod sources;
mod start;
mod stopping;
pub mod system_check;
mod time_zones;
mod tokens;
mod views;

use crate::adapters::cgroups::PodCgroups;
use crate::adapters::manifests::Manifests;
use crate::adapters::records::Root;
use crate::adapters::service_table::KernelPlace;
use crate::api::reason::Reason;
use crate::api::sealing::KeyState;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::{Effect, Severity};
use crate::engine::event::Event;
use crate::engine::node::Engine;
use crate::event_loop::{Class, EventLoop, Signal, Signals, clock};
use crate::kubectl_api::condition_times::ConditionTimes;
use crate::metrics::Metrics;
use mio::Token;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::process::ExitCode;

pub use start::node_facts;

pub struct Agent {
    config: Config,
    process: Process,
    course: stopping::Course,
    event_loop: EventLoop,
    signals: Signals,
    jobs: jobs::Jobs,
    engine: Engine,
    /// Events for the engine, in order.
    events: VecDeque<Event>,
    runtime: runtime::Runtime,
    manifests: Manifests,
    logind: logind::Connection,
    cgroups: PodCgroups,
    kernel: kernel::KernelReports,
    /// Probes and hooks that do not need the runtime.
    handlers: handlers::LocalHandlers,
    devices: devices::DevicePlugins,
    disk: disk::Disk,
    serving: serving::Serving,
    /// The connection to the cluster. None if the node has no cluster and runs only the pods of its manifests.
    cluster: Option<cluster::ClusterConnection>,
    metrics: Metrics,
    reporting: Reporting,
}

/// The process and its root directory.
struct Process {
    started: Now,
    /// Held for the life of the process, to prevent a second instance on this root directory.
    root: Root,
    /// Descriptors inherited from the parent process. Wherry does not use them.
    inherited: BTreeSet<i32>,
    /// The state of the seal key when the process started.
    seal_key: KeyState,
    /// Where the kernel has the rules of services.
    service_rules: KernelPlace,
}

/// The log lines and events of pods and of the node, and the status of the service.
struct Reporting {
    service: service::Service,
    /// The lines that were logged recently, so that repetitions are suppressed.
    standing: logging::LogDeduplicator,
    recorder: event_recorder::EventRecorder,
    conditions: ConditionTimes,
    file: reports::ReportFile,
    last_state: last_state::LastState,
}

impl Reporting {
    fn notify_service(&mut self, engine: &Engine, now: Now) {
        self.service.notify(engine, &self.recorder, &mut self.standing, now);
    }

    fn follow_conditions(&mut self, engine: &Engine, started: Boot, now: Now) {
        if self.conditions.follow_node(engine, started, now) {
            self.file.changed(now.boot);
        }
    }

    fn report_previous_run(&mut self, metrics: &Metrics, now: Now) {
        self.last_state.report_previous(&mut self.recorder, metrics, now);
    }

    /// Writes the last state on a helper thread.
    fn write_last_state(&mut self, engine: &Engine, started: Now, jobs: &mut jobs::Jobs, now: Now) {
        let spec = jobs::JobSpec::new(Class::Records, "write the last state", now.boot + reports::WRITE_TIMEOUT);
        jobs.run(spec, self.last_state.write(engine, started, now), |agent, written, now| {
            let Reporting { last_state, standing, .. } = &mut agent.reporting;
            let written = written.unwrap_or_else(|e| Err(standing.job_failed(&e, now.boot)));
            last_state.written(written, standing, now.boot);
        });
    }

    fn write_file(&mut self, jobs: &mut jobs::Jobs, now: Now) {
        self.file.write(&self.conditions, self.recorder.cache(), jobs, now);
    }
}

/// Runs the agent until SIGTERM or SIGINT. Pods keep running afterwards (S10).
pub fn run(config: Config) -> ExitCode {
    let mut agent = match start::agent(config) {
        Ok(agent) => agent,
        Err(message) => {
            log::error!("cannot start: {message}");
            service::notify_failure(&message);
            return ExitCode::FAILURE;
        }
    };
    match agent.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            log::error!("the event loop failed: {e}");
            ExitCode::FAILURE
        }
    }
}

impl Agent {
    fn run(&mut self) -> io::Result<()> {
        let mut ready: Vec<Token> = Vec::with_capacity(64);
        let now = clock::now();
        let message = concat!("wherry ", env!("CARGO_PKG_VERSION"), " has started");
        self.reporting.recorder.node_event(Severity::Normal, Reason::Starting, message, now);
        self.reporting.report_previous_run(&self.metrics, now);
        let credentials = self.cluster.as_ref().and_then(cluster::ClusterConnection::credentials);
        self.events.extend(credentials.map(|credentials| identity::client_certificate(credentials, &self.config)));
        // The first calls open the listeners and start to connect.
        self.drive_runtime(now);
        self.drive_logind(now);
        self.drive_server(now);
        self.drive_devices(now);
        self.settle(now);
        self.reporting.notify_service(&self.engine, now);
        loop {
            self.event_loop.turn(self.next_deadline(), &mut ready)?;
            let now = clock::now();
            for token in &ready {
                self.ready(*token, now);
            }
            self.do_what_is_due(now);
            self.settle(now);
            let records = &self.disk.records;
            let writes_records = records.is_writing() || records.waiting() > 0;
            let has_reported = self.reporting.file.is_closed() && !self.reporting.last_state.is_writing();
            if self.course.has_stopped(writes_records, has_reported, now.boot) {
                self.reporting.last_state.stopped();
                return Ok(());
            }
            self.reporting.follow_conditions(&self.engine, self.process.started.boot, now);
            self.drive_server(now);
            self.reporting.notify_service(&self.engine, now);
        }
    }

    /// Passes the pending events to the engine and carries out its effects, until no event is left.
    fn settle(&mut self, now: Now) {
        self.settle_after(Vec::new(), now);
    }

    /// Like `settle`, but first carries out effects that the engine has already returned.
    fn settle_after(&mut self, mut effects: Vec<Effect>, now: Now) {
        let mut called = false;
        loop {
            for effect in effects.drain(..) {
                called |= self.carry_out(effect, now);
            }
            if let Some(event) = self.events.pop_front() {
                if let (Event::Manifests(_), Some(kube)) = (&event, self.serving.kube.get()) {
                    kube.api.manifests_changed();
                }
                effects = self.engine.step(event, now);
                continue;
            }
            if let Some(event) = self.next_api_event(now) {
                effects = self.engine.step(event, now);
                continue;
            }
            self.disk.records.write(&mut self.jobs, now);
            manifests::write_directory(&mut self.manifests, &mut self.jobs, now);
            manifests::inspect(&mut self.manifests, &mut self.jobs, now);
            if std::mem::take(&mut called) {
                // Send the requests at once.
                self.flush_to_runtime(now);
                continue;
            }
            // Start the submitted jobs now instead of in the next turn of the loop. A job that finished meanwhile may
            // have added records to write.
            let jobs = self.jobs.count();
            if self.jobs.next_deadline() == Some(Boot(0)) {
                self.drive_jobs(now);
            }
            if self.jobs.count() == jobs && self.events.is_empty() {
                break;
            }
        }
        self.publish_events(now);
    }

    /// Notifies the components that depend on the recorded events.
    fn publish_events(&mut self, now: Now) {
        if self.reporting.recorder.take_changed() {
            self.reporting.service.changed();
            self.reporting.file.changed(now.boot);
            self.reporting.last_state.changed(now.boot);
            self.serving.events_changed();
        }
    }

    fn take_signals(&mut self, now: Now) {
        for signal in self.signals.take() {
            match signal {
                Signal::Terminate | Signal::Interrupt => self.stop(signal, now),
                Signal::Hangup => self.reload(now),
            }
        }
    }

    fn stop(&mut self, signal: Signal, now: Now) {
        if self.course.stop(now.boot) {
            log::info!("stopping signal={signal:?}; pods keep running");
            service::notify_stopping(&mut self.reporting.standing, now.boot);
            self.events.push_back(Event::Stopping);
            self.publish_events(now);
            self.reporting.file.close();
        }
    }
}
