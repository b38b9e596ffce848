//! Connects services (`engine/services`) with the pods behind them, and with the pods that know their names.

use super::Engine;
use crate::api::names::Uid;
use crate::api::network_object::NetworkObject;
use crate::api::ordered::OrderSlice;
use crate::engine::effect::Effect;
use crate::engine::event::Answer;
use crate::engine::op::OpError;
use crate::engine::pleg::cache::Entry;
use crate::engine::pod::worker::connections::addresses;
use crate::engine::pod::worker::{State, Worker};
use crate::engine::services::endpoints::ServicePod;
use crate::engine::services::hosts_files::NamedPod;
use crate::engine::services::{ServiceDemand, Services, knows_names};
use std::rc::Rc;

impl Engine {
    /// Returns the services in force.
    pub fn services(&self) -> &Services {
        &self.shared.services
    }

    /// Returns the Services and EndpointSlices of the manifests.
    pub fn network_objects(&self) -> &[Rc<NetworkObject>] {
        self.desired.network()
    }

    /// Steps the services, if a manifest or a pod has changed.
    pub(super) fn step_services(&mut self) {
        let is_unused = self.desired.network().is_empty() && self.shared.services.is_unused();
        if !self.knows_its_pods() || is_unused {
            return;
        }
        if !self.outbox.published().is_empty() {
            self.shared.services.touch();
        }
        let Engine { shared, workers, pleg, desired, config, cluster, outbox, now, .. } = self;
        if shared.services.is_touched(now.boot) {
            let mut pods: Vec<ServicePod<'_>> = workers.values().filter_map(|worker| service_pod(worker)).collect();
            pods.order_by(|a, b| (&a.pod.name, &a.pod.uid).cmp(&(&b.pod.name, &b.pod.uid)));
            // The services of a cluster's nodes come from its API server, and have the same addresses.
            let objects = if cluster.member().is_some() { &[] } else { desired.network() };
            let is_known = |worker: &Worker| {
                pleg.cache.get(&worker.uid).is_none_or(Entry::known) && !worker.containers.probes.are_undecided()
            };
            let is_complete = workers.values().all(|worker| is_known(worker));
            let demand = ServiceDemand { objects, pods, settings: &config.services, is_complete };
            shared.services.step(demand, now.boot, outbox);
        }
        if shared.services.hosts_are_behind(now.boot) {
            let services = &shared.services;
            let pods: Vec<NamedPod<'_>> = workers.values().filter_map(|worker| named_pod(worker, services)).collect();
            shared.services.drive_hosts(&pods, now.boot, outbox);
        }
        shared.services.drive(now.boot, outbox);
        if shared.services.take_changed() {
            outbox.push(Effect::PublishServices);
        }
        self.continue_stops();
    }

    /// Continues the stops of pods to which services lead no more, or to which they lead until the pods end (Y29).
    fn continue_stops(&mut self) {
        let Engine { workers, shared, steps, now, .. } = self;
        for worker in workers.values_mut() {
            let State::Terminating(t) = &mut worker.state else { continue };
            if t.delay().is_some() && !shared.services.are_leaving(&addresses(&worker.shown.status)) {
                // (Without its runtime, a worker stops nothing when it is due.)
                t.end_delay();
                steps.due_at(&worker.uid, now.boot);
            }
        }
    }

    /// Handles the end of a write to the hosts file of a pod.
    pub(super) fn hosts_file_written(&mut self, uid: &Uid, result: Result<Answer, OpError>) {
        let Engine { shared, workers, outbox, now, .. } = self;
        let pod = workers.get(uid).and_then(|worker| worker.pod.as_ref());
        let error = result.err().map(|e| e.to_string());
        shared.services.hosts().written(uid, error, pod, now.boot, outbox);
    }
}

/// Returns the pod if it can be an endpoint: a pod of a manifest that has not ended, and that has addresses or is in
/// the network of the machine.
fn service_pod(worker: &Worker) -> Option<ServicePod<'_>> {
    let pod = worker.pod.as_ref().filter(|pod| !pod.is_from_api_server() && worker.is_shown())?;
    let status = &worker.shown.status;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let is_terminating = match worker.state {
        State::Terminating(_) => true,
        State::Waiting | State::Sync(_) => false,
        State::Terminated(_) | State::Finished(_) | State::Forgotten(_) => return None,
    };
    let addresses = addresses(status);
    let is_ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    (pod.host_network() || !addresses.is_empty()).then_some(ServicePod { pod, addresses, is_ready, is_terminating })
}

/// Returns the pod if its containers know the names of services and may run.
fn named_pod<'a>(worker: &'a Worker, services: &Services) -> Option<NamedPod<'a>> {
    let pod = worker.pod.as_ref()?;
    if !matches!(worker.state, State::Sync(_) | State::Terminating(_)) || !knows_names(pod) {
        return None;
    }
    let ips: Vec<String> = worker.shown.status.pod_ips.iter().flatten().map(|one| one.ip.clone()).collect();
    let lines = services.names(&pod.name.namespace).clone();
    (!ips.is_empty()).then(|| NamedPod { pod, ips, lines, is_busy: worker.ops().is_preparing_container() })
}
