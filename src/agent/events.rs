//! Passes the results of the adapters to the engine as events, and the configuration to everything that depends on
//! it.

use super::cluster::ClusterConnection;
use super::serving::Serving;
use super::tokens::RUNTIME;
use super::{Agent, logging, paths, start};
use crate::adapters::cri::client::ClientEvent;
use crate::adapters::cri::requests::RequestConfig;
use crate::api::node_facts::NodeFacts;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::config::{Config, Loaded};
use crate::engine::effect::Severity;
use crate::engine::event::{Answer, Event};
use crate::event_loop::JobError;
use log::Level;
use mio::Token;
use std::net::IpAddr;

impl Agent {
    /// Handles responses of the runtime.
    pub(super) fn drive_runtime(&mut self, now: Now) {
        let (out, again) = self.runtime.drive(now.boot);
        self.take_client_events(out, again, now);
    }

    /// Sends new calls, and handles calls whose deadline has passed.
    pub(super) fn flush_to_runtime(&mut self, now: Now) {
        let (out, again) = self.runtime.flush(now.boot);
        self.take_client_events(out, again, now);
    }

    fn take_client_events(&mut self, mut out: Vec<ClientEvent>, again: bool, now: Now) {
        if again {
            self.event_loop.again(RUNTIME);
        }
        for event in out.drain(..) {
            match event {
                ClientEvent::Up => {
                    log::info!("runtime=connected endpoint=unix://{}", self.config.runtime_socket.display());
                    let message = format!("connected to unix://{}", self.config.runtime_socket.display());
                    self.reporting.recorder.node_event(Severity::Normal, Reason::RuntimeConnected, &message, now);
                    self.events.push_back(Event::RuntimeUp);
                }
                ClientEvent::Down { why } => {
                    self.runtime.check(Err(&why), &self.config, &mut self.jobs, now);
                    log::warn!("runtime=disconnected error={why:?}");
                    self.reporting.service.runtime_told = true;
                    self.runtime.container_events.close();
                    self.reporting.recorder.node_event(Severity::Warning, Reason::RuntimeDisconnected, &why, now);
                    self.events.push_back(Event::RuntimeDown { why });
                }
                ClientEvent::Done { op, result } => {
                    if let Ok(Answer::Runtime(fact)) = &result {
                        self.runtime.check(Ok(fact), &self.config, &mut self.jobs, now);
                        let has_changed = self.runtime.report(fact, &mut self.reporting.recorder, now);
                        self.reporting.service.runtime_told |= has_changed;
                        self.runtime.open_container_events(&self.config.runtime_socket, self.event_loop.registry());
                    }
                    self.events.push_back(Event::Done { op, result });
                }
                ClientEvent::Driver(driver) => {
                    self.cgroups.take_driver(driver, now.boot);
                    self.disk.files.remove_cgroup = self.cgroups.remover();
                    self.drive_cgroups(now);
                }
                ClientEvent::InvalidAnswer { why } => {
                    if let Some(repeated) =
                        self.reporting.standing.repetitions(&format!("invalid response: {why}"), now.boot)
                    {
                        log::warn!("unexpected response from the runtime error={why:?} repeated={repeated}");
                    }
                }
                ClientEvent::Called { operation_type, handler, duration, error } => {
                    // Log the periodic calls at a lower level, because they would drown out the other lines.
                    let routine = !error && matches!(operation_type, "list_podsandbox" | "list_containers" | "status");
                    let level = if routine { Level::Trace } else { Level::Debug };
                    log::log!(level, "call={operation_type} ms={:.1} error={error}", duration.as_secs_f64() * 1e3);
                    self.metrics.runtime_operation(operation_type, duration, error);
                    if let Some(handler) = handler {
                        self.metrics.sandbox_run(&handler, duration, error);
                    }
                }
            }
        }
        self.runtime.reuse(out);
    }

    /// Handles events of the runtime's event stream.
    pub(super) fn drive_container_events(&mut self, now: Now) {
        let Agent { runtime, event_loop, metrics, reporting, .. } = self;
        let events = runtime.drive_container_events(event_loop, metrics, &mut reporting.standing, now);
        self.events.extend(events);
    }

    /// Called when logind's bus is ready, or one of its deadlines has passed.
    pub(super) fn drive_logind(&mut self, now: Now) {
        let events = self.logind.drive(self.event_loop.registry(), &mut self.reporting.recorder, now);
        self.events.extend(events);
    }

    /// Called when the poll reports a socket of the device plugins.
    pub(super) fn device_ready(&mut self, token: Token, now: Now) {
        self.events.extend(self.devices.ready(token, &mut self.event_loop, now));
    }

    /// Called when a deadline of the device plugins has passed.
    pub(super) fn drive_devices(&mut self, now: Now) {
        self.events.extend(self.devices.drive(&mut self.event_loop, now));
    }

    pub(super) fn cluster_ready(&mut self, token: Token, now: Now) {
        if let Some(cluster) = &mut self.cluster {
            cluster.ready(token);
        }
        self.drive_cluster(now);
    }

    /// Returns None if there is nothing to do for the cluster, or if the process is stopping.
    pub(super) fn cluster_deadline(&self) -> Option<Boot> {
        let cluster = self.cluster.as_ref().filter(|_| self.course.stops_at().is_none());
        cluster.and_then(ClusterConnection::next_deadline)
    }

    pub(super) fn drive_cluster(&mut self, now: Now) {
        if let Some(cluster) = self.cluster.as_mut().filter(|_| self.course.stops_at().is_none()) {
            cluster.drive(&mut self.event_loop, &mut self.jobs, now);
        }
    }

    /// Returns the next event of the API server, if there is time for it in this turn, which began at `now`. A
    /// stopping process takes no events, because each could cause another record to be written.
    pub(super) fn next_api_event(&mut self, now: Now) -> Option<Event> {
        let cluster = self.cluster.as_mut().filter(|_| self.course.stops_at().is_none())?;
        cluster.next_event(&mut self.event_loop, now)
    }

    /// Called when inotify reports a change to the manifests.
    pub(super) fn manifests_moved(&mut self, now: Now) {
        let report = self.manifests.ready(now);
        self.events.extend(report.map(Event::Manifests));
    }

    /// Called when a deadline of the manifests has passed.
    pub(super) fn manifests_due(&mut self, now: Now) {
        let report = self.manifests.due(now);
        self.events.extend(report.map(Event::Manifests));
    }

    /// Handles SIGHUP: reads the configuration and all manifests again.
    pub(super) fn reload(&mut self, now: Now) {
        self.reporting.service.notify_reload(&mut self.reporting.standing, now.boot);
        let id = paths::read_configuration(self.config.flags.clone(), &mut self.jobs, now);
        // A second reload replaces the first, which may have read an older file.
        if let Some(earlier) = self.reporting.service.reload.replace(id) {
            self.jobs.drop_result(earlier);
        }
    }

    /// Takes the configuration that a reload has read, or the error.
    pub(super) fn reloaded(&mut self, loaded: Result<Loaded, JobError>, now: Now) {
        match loaded {
            Ok(loaded) => self.take_configuration(loaded, now),
            Err(e) => {
                let why = format!(
                    "failed to read the configuration: {e}; keeping the previous one; reload again once this is \
                     resolved"
                );
                log::error!("reload: {why}");
                self.reporting.service.reload_error = Some(why);
            }
        }
        self.manifests.reload(now);
        self.reporting.service.end_reload();
        log::info!("reloaded manifests={}", self.config.manifests.display());
    }

    fn take_configuration(&mut self, loaded: Loaded, now: Now) {
        for problem in loaded.problems.errors.iter().chain(&loaded.problems.warnings) {
            log::warn!("reload: {problem}");
        }
        let new = loaded.config;
        // Changes to the node name and the root directory take effect only at the next start.
        let at_start =
            Config { node_name: self.config.node_name.clone(), root_dir: self.config.root_dir.clone(), ..new.clone() };
        let node = start::node_facts(&at_start);
        for problem in node.as_ref().err().into_iter().flatten() {
            log::warn!("reload: {problem}");
        }
        let of_node = node.as_ref().err().into_iter().flatten();
        self.reporting.service.reload_error =
            loaded.problems.errors.iter().chain(of_node).next().map(ToString::to_string);
        match node {
            Ok(node) if loaded.problems.errors.is_empty() => self.apply(new, node, now),
            _ => log::error!("reload: invalid configuration; keeping the previous one"),
        }
    }

    /// Applies the settings that can change while Wherry runs. Other changes need a restart of Wherry, which leaves
    /// pods running.
    fn apply(&mut self, mut new: Config, node: NodeFacts, now: Now) {
        logging::set_verbosity(new.verbosity);
        self.metrics.set_node_size(&node);
        let settings =
            start::engine_config(&new, node, &self.process.root.id, self.process.started.wall, &self.process.seal_key);
        self.events.push_back(Event::Configure(Box::new(settings)));
        // Keep the host's DNS settings: they are read again for each new sandbox anyway.
        let host_dns = self.runtime.client.config_mut().host_dns.clone();
        let requests = start::request_config(&new, &self.process.root.id, host_dns);
        self.cgroups.set_rules(start::pod_rules(&new));
        // Existing pods stay in their cgroups, so the cgroup names do not change.
        *self.runtime.client.config_mut() = RequestConfig { cgroups: self.cgroups.names().clone(), ..requests };
        let mut fixed = new.clone();
        fixed.verbosity = self.config.verbosity;
        fixed.sync_frequency = self.config.sync_frequency;
        fixed.runtime_request_timeout = self.config.runtime_request_timeout;
        fixed.max_container_restart_period = self.config.max_container_restart_period;
        fixed.serialize_image_pulls = self.config.serialize_image_pulls;
        fixed.max_parallel_image_pulls = self.config.max_parallel_image_pulls;
        fixed.docker_config.clone_from(&self.config.docker_config);
        fixed.image_credential_provider_config.clone_from(&self.config.image_credential_provider_config);
        fixed.image_credential_provider_bin_dir.clone_from(&self.config.image_credential_provider_bin_dir);
        fixed.credential_providers.clone_from(&self.config.credential_providers);
        fixed.max_parallel_sandbox_starts = self.config.max_parallel_sandbox_starts;
        fixed.max_parallel_container_starts = self.config.max_parallel_container_starts;
        fixed.logind_conf_dir.clone_from(&self.config.logind_conf_dir);
        fixed.cluster_dns.clone_from(&self.config.cluster_dns);
        fixed.resolv_conf.clone_from(&self.config.resolv_conf);
        fixed.seccomp_default = self.config.seccomp_default;
        fixed.cpu_cfs_quota = self.config.cpu_cfs_quota;
        fixed.cpu_cfs_quota_period = self.config.cpu_cfs_quota_period;
        fixed.limited_swap = self.config.limited_swap;
        fixed.node.clone_from(&self.config.node);
        fixed.allowed_unsafe_sysctls.clone_from(&self.config.allowed_unsafe_sysctls);
        fixed.metered_connection = self.config.metered_connection;
        fixed.shutdown_configured.clone_from(&self.config.shutdown_configured);
        fixed.shutdown.clone_from(&self.config.shutdown);
        (fixed.kubectl_address, fixed.kubectl_port) = (self.config.kubectl_address, self.config.kubectl_port);
        if fixed != self.config {
            log::warn!("reload: some changes (paths, ports, names, cgroups) take effect only when wherry is restarted");
        }
        new.node_name.clone_from(&self.config.node_name);
        new.kubeconfig.clone_from(&self.config.kubeconfig);
        new.node_server.clone_from(&self.config.node_server);
        new.registration.clone_from(&self.config.registration);
        new.seal_secrets = self.config.seal_secrets;
        let before = std::mem::replace(&mut self.config, new);
        self.kubectl_configured(before.kubectl_address, before.kubectl_port, now);
    }

    /// Moves the API for kubectl if a reload has changed its address or port. If the new listener cannot be opened,
    /// the old one stays.
    fn kubectl_configured(&mut self, address: IpAddr, port: u16, now: Now) {
        if (address, port) == (self.config.kubectl_address, self.config.kubectl_port) {
            return;
        }
        let (Serving { kube, server, .. }, registry) = (&mut self.serving, self.event_loop.registry());
        if let Err(why) = kube.relocate(address, &self.config, server, registry, now.boot) {
            (self.config.kubectl_address, self.config.kubectl_port) = (address, port);
            let why = format!(
                "kubectlPort: {why}; the API for kubectl stays at {address}, port {port}; choose another port, or end \
                 the process that uses it, and reload again"
            );
            log::error!("reload: {why}");
            self.reporting.recorder.node_event(Severity::Warning, Reason::FailedListen, &why, now);
            self.reporting.service.reload_error.get_or_insert(why);
        }
        self.drive_server_again();
    }
}
