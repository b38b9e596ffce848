//! Sets values that come from the engine, or that need more than one line of code.

use super::families::{self, Counter, Gauge};
use super::labels::{
    CGROUP_OPERATIONS, CONTAINER_STATES, CONTAINER_TYPES, LIFECYCLES, OPERATIONS, START_ERRORS, WORKER_OPERATIONS,
    closed,
};
use super::{Metrics, node_resources};
use crate::api::node_facts::NodeFacts;
use crate::api::pod::Pod;
use crate::api::resources::Resources;
use crate::engine::cluster::connection::{Connection, ConnectionState};
use crate::engine::effect::Measure;
use crate::engine::probe::Kind;
use std::time::Duration;

/// The values of the labels `config` and `static` of `kubelet_working_pods`. Combined with the lifecycles, they
/// result in 15 series.
const WORKING: [(&str, &str); 5] =
    [("desired", ""), ("desired", "true"), ("orphan", ""), ("orphan", "true"), ("runtime_only", "unknown")];

impl Metrics {
    /// Records a measurement of the engine.
    pub fn record(&self, measure: &Measure) {
        match measure {
            Measure::RelistDuration(d) => self.observe(families::RELIST_DURATION, [], d.as_secs_f64()),
            Measure::RelistInterval(d) => self.observe(families::RELIST_INTERVAL, [], d.as_secs_f64()),
            Measure::PodStartDuration(d) => self.observe(families::POD_START_DURATION, [], d.as_secs_f64()),
            Measure::PodStatusDuration(d) => self.observe(families::POD_STATUS_DURATION, [], d.as_secs_f64()),
            Measure::PodWorkerDuration { operation, duration } => {
                let operation = closed(operation, &WORKER_OPERATIONS);
                self.observe(families::POD_WORKER_DURATION, [operation], duration.as_secs_f64());
            }
            Measure::PodWorkerStartDuration(d) => {
                self.observe(families::POD_WORKER_START_DURATION, [], d.as_secs_f64());
            }
            Measure::StartedPod => self.inc(families::STARTED_PODS, []),
            Measure::StartedPodError => self.inc(families::STARTED_POD_ERRORS, []),
            Measure::StartedContainer { container_type } => {
                self.inc(families::STARTED_CONTAINERS, [closed(container_type, &CONTAINER_TYPES)]);
            }
            Measure::StartedContainerError { container_type, code } => {
                let labels = [closed(container_type, &CONTAINER_TYPES), closed(code.as_str(), &START_ERRORS)];
                self.inc(families::STARTED_CONTAINER_ERRORS, labels);
            }
            Measure::AdmissionRejected { reason } => self.inc(families::ADMISSION_REJECTIONS, [reason.as_str()]),
            Measure::Preempted { signal } => self.inc(families::PREEMPTIONS, [signal]),
            Measure::Evicted { signal } => self.inc(families::EVICTIONS, [signal]),
            Measure::OrphanedPod => self.inc(families::ORPHANED_PODS, []),
            Measure::ImageCollected { reason } => self.inc(families::COLLECTED_IMAGES, [reason]),
            Measure::RestartedPod => self.inc(families::RESTARTED_PODS, ["true"]),
            Measure::Probe { kind, passed, pod, container } => {
                self.inc(families::PROBES, of_probe(*kind, *passed, pod, container));
            }
            Measure::NoMoreProbes { pod } => {
                for container in pod.all_containers() {
                    for kind in Kind::ALL.into_iter().filter(|kind| kind.spec(container).is_some()) {
                        for passed in [Some(true), Some(false), None] {
                            self.remove(families::PROBES, of_probe(kind, passed, pod, &container.name));
                        }
                    }
                }
            }
            Measure::ContainersPerPod(n) => self.observe(families::CONTAINERS_PER_POD, [], *n as f64),
        }
    }

    /// Records a call to the runtime that ended or could not be sent. `operation` is the kubelet's name for the call,
    /// such as `create_container` or `list_podsandbox`.
    pub fn runtime_operation(&self, operation: &str, duration: Duration, error: bool) {
        let operation = closed(operation, &OPERATIONS);
        self.inc(families::RUNTIME_OPERATIONS, [operation]);
        self.observe(families::RUNTIME_OPERATION_DURATION, [operation], duration.as_secs_f64());
        if error {
            self.inc(families::RUNTIME_OPERATION_ERRORS, [operation]);
        }
    }

    /// Records a RunPodSandbox call that ended or could not be sent, in addition to `runtime_operation`. `handler` is
    /// the runtime handler, empty for the default one.
    pub fn sandbox_run(&self, handler: &str, duration: Duration, error: bool) {
        self.observe(families::SANDBOX_DURATION, [handler], duration.as_secs_f64());
        if error {
            self.inc(families::SANDBOX_ERRORS, [handler]);
        }
    }

    /// Records a finished operation on a pod's cgroup: `create`, `update` or `destroy`.
    pub fn cgroup_operation(&self, operation: &str, duration: Duration) {
        let operation = closed(operation, &CGROUP_OPERATIONS);
        self.observe(families::CGROUP_DURATION, [operation], duration.as_secs_f64());
    }

    /// Sets the metrics of the connection to the API server. `connection` is None if the node has no cluster.
    pub fn set_connection(&self, connection: Option<&Connection<'_>>) {
        let Some(connection) = connection else { return };
        self.set(families::API_SERVER_CONNECTED, [], connection.state == ConnectionState::Registered);
        self.set(families::WAITING_EVENTS, [], connection.waiting_events);
        self.set_total(families::LOST_EVENTS, [], connection.lost_events);
        self.set(families::NODE_NAME_CONFLICT, [], connection.is_shared);
    }

    /// Sets the numbers of bytes sent to the API server and received from it.
    pub fn set_api_server_traffic(&self, (sent, received): (u64, u64)) {
        self.set_total(families::API_SERVER_SENT, [], sent);
        self.set_total(families::API_SERVER_RECEIVED, [], received);
    }

    /// Sets the number of seconds until the certificate expires (None if there is no certificate), and the number of
    /// failures.
    pub(crate) fn set_certificate(&self, (ttl, errors): (Gauge<0>, Counter<0>), (left, failures): (Option<i64>, u64)) {
        self.set_number(ttl, [], left.map_or(f64::INFINITY, |seconds| seconds as f64));
        self.set_total(errors, [], failures);
    }

    pub fn set_desired_pods(&self, n: u64) {
        self.set_static(families::DESIRED_PODS, n);
    }

    pub fn set_active_pods(&self, n: u64) {
        self.set_static(families::ACTIVE_PODS, n);
    }

    /// Sets a gauge with the label `static`. All counted pods are static; the other series is 0, as in a kubelet.
    fn set_static(&self, family: Gauge<1>, n: u64) {
        self.set(family, [""], 0);
        self.set(family, ["true"], n);
    }

    /// Sets the number of pods that have a worker. `count` returns the number for a lifecycle state (`sync`,
    /// `terminating`, `terminated`) and a value of `config`: `desired`; `orphan`, for pods that are no longer desired
    /// but not finished (W20); `runtime_only`, for pods that only the runtime knows (W21). All pods from manifests
    /// are static.
    pub fn set_working_pods(&self, count: impl Fn(&'static str, &'static str) -> u64) {
        for lifecycle in LIFECYCLES {
            for (config, is_static) in WORKING {
                let n = if is_static.is_empty() { 0 } else { count(lifecycle, config) };
                self.set(families::WORKING_PODS, [lifecycle, config, is_static], n);
            }
        }
    }

    /// Sets the number of containers by state. `count` returns the number of containers in a state, from the last
    /// relist.
    pub fn set_running_containers(&self, count: impl Fn(&'static str) -> u64) {
        for state in CONTAINER_STATES {
            self.set(families::RUNNING_CONTAINERS, [state], count(state));
        }
    }

    /// S8: sets the start and the end of a shutdown in whole seconds, as in a kubelet. Both are 0 if there was no
    /// shutdown; the end is also 0 while a shutdown is in progress.
    pub fn set_graceful_shutdown(&self, started: f64, ended: f64) {
        self.set(families::SHUTDOWN_START, [], started as i64);
        self.set(families::SHUTDOWN_END, [], ended as i64);
    }

    /// Sets the capacity and the allocatable resources of the node.
    pub fn set_node_size(&self, node: &NodeFacts) {
        node_resources::set(self, families::NODE_CAPACITY, &node.capacity, &node.capacity);
        node_resources::set(self, families::NODE_ALLOCATABLE, &node.capacity, &node.allocatable);
    }

    /// Sets the total requests of all pods that admission takes into account.
    pub fn set_node_requested(&self, node: &NodeFacts, requested: &Resources) {
        node_resources::set(self, families::NODE_REQUESTED, &node.capacity, requested);
    }
}

/// Returns the labels of a probe's result.
fn of_probe<'a>(kind: Kind, passed: Option<bool>, pod: &'a Pod, container: &'a str) -> [&'a str; 6] {
    let result = match passed {
        Some(true) => "successful",
        Some(false) => "failed",
        None => "unknown",
    };
    [container, &pod.name.namespace, &pod.name.name, pod.uid.as_str(), kind.title(), result]
}
