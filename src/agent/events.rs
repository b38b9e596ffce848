//! The way in: what the runtime's client and the manifest directory have to say becomes events of the engine.

use super::{Agent, RUNTIME, logging, start};
use crate::adapters::cri::client::ClientEvent;
use crate::api::time::Now;
use crate::config::Config;
use crate::engine::event::{Answer, Event};
use log::Level;
use mio::Token;

impl Agent {
    pub(super) fn drive_runtime(&mut self, now: Now) {
        let mut out = std::mem::take(&mut self.client_events);
        if self.client.drive(now.boot, &mut out) {
            self.event_loop.again(RUNTIME);
        }
        for event in out.drain(..) {
            match event {
                ClientEvent::Up => {
                    log::info!("runtime=connected endpoint=unix://{}", self.config.runtime_socket.display());
                    self.events.push_back(Event::RuntimeUp);
                }
                ClientEvent::Down { why } => {
                    log::warn!("runtime=disconnected error={why:?}");
                    self.events.push_back(Event::RuntimeDown { why });
                }
                ClientEvent::Done { op, result } => {
                    if let Ok(Answer::Runtime(fact)) = &result {
                        self.tell_runtime(fact);
                    }
                    self.events.push_back(Event::Done { op, result });
                }
                ClientEvent::Called { operation_type, duration, error } => {
                    // The lists of each second would drown the rest.
                    let routine = !error && matches!(operation_type, "list_podsandbox" | "list_containers" | "status");
                    let level = if routine { Level::Trace } else { Level::Debug };
                    log::log!(level, "call={operation_type} ms={:.1} error={error}", duration.as_secs_f64() * 1e3);
                    self.metrics.runtime_operation(operation_type, duration, error);
                }
            }
        }
        self.client_events = out;
    }

    /// P8.
    pub(super) fn process_ended(&mut self, token: Token) {
        if let Some((uid, id)) = self.pidfds.ended(self.event_loop.registry(), token) {
            self.events.push_back(Event::Ended { uid, id });
        }
    }

    /// The directory changed.
    pub(super) fn read_manifests(&mut self, now: Now) {
        let pods = self.manifests.ready(now);
        self.events.extend(pods.map(Event::Desired));
    }

    /// It is to be looked at again.
    pub(super) fn manifests_due(&mut self, now: Now) {
        let pods = self.manifests.due(now);
        self.events.extend(pods.map(Event::Desired));
    }

    /// SIGHUP: the configuration and all manifests are read again.
    pub(super) fn reload(&mut self, now: Now) {
        let loaded = crate::config::load(&self.config.flags);
        for problem in loaded.problems.errors.iter().chain(&loaded.problems.warnings) {
            log::warn!("reload: {problem}");
        }
        if loaded.is_ok() {
            self.apply(loaded.config);
        } else {
            log::error!("reload: the configuration has errors, the one of before stays in force");
        }
        let pods = self.manifests.reload(now);
        self.events.extend(pods.map(Event::Desired));
        log::info!("reloaded manifests={}", self.config.manifests.display());
    }

    /// What can change while wherry runs, does; the rest needs a restart, which leaves pods running.
    fn apply(&mut self, new: Config) {
        logging::set_verbosity(new.verbosity);
        self.engine.configure(start::engine_config(&new, &self.root.id));
        *self.client.config_mut() = start::request_config(&new, &self.root.id);
        let mut fixed = new.clone();
        fixed.verbosity = self.config.verbosity;
        fixed.sync_frequency = self.config.sync_frequency;
        fixed.runtime_request_timeout = self.config.runtime_request_timeout;
        fixed.max_container_restart_period = self.config.max_container_restart_period;
        fixed.serialize_image_pulls = self.config.serialize_image_pulls;
        fixed.max_parallel_image_pulls = self.config.max_parallel_image_pulls;
        fixed.cluster_dns.clone_from(&self.config.cluster_dns);
        fixed.resolv_conf.clone_from(&self.config.resolv_conf);
        fixed.seccomp_default = self.config.seccomp_default;
        fixed.cpu_cfs_quota = self.config.cpu_cfs_quota;
        fixed.cpu_cfs_quota_period = self.config.cpu_cfs_quota_period;
        if fixed != self.config {
            log::warn!("reload: some of what changed (paths, ports, names, cgroups) takes effect at the next start");
        }
        self.config = new;
    }
}
