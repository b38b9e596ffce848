//! Metrics with the names, types, labels and buckets of the kubelet, so that existing dashboards and alerts work.
//!
//! The engine reports measurements as `Measure`. Gauges are set before a scrape. `process_*` is read during a scrape.
//! `render` writes the classic text format. As in a kubelet, a family without labels exists from the start, and a
//! family with labels has series only for observed values. A family without labels and without a source is 0.
//! docs/metrics.md documents each metric.

mod classic;
pub mod exposition;
mod groups;
mod labels;
mod node_resources;
mod process;
#[cfg(test)]
mod tests;

use crate::api::node_facts::NodeFacts;
use crate::api::pod::Pod;
use crate::api::resources::Resources;
use crate::engine::cluster::connection::{Connection, ConnectionState};
use crate::engine::effect::Measure;
use crate::engine::probe::Kind;
use classic::PlainCounter;
use groups::{AgentMetrics, ClusterMetrics, DurationMetrics, PlegMetrics, PodMetrics, RuntimeMetrics};
use labels::{
    CGROUP_OPERATIONS, CONTAINER_STATES, CONTAINER_TYPES, LIFECYCLES, OPERATIONS, START_ERRORS, WORKER_OPERATIONS,
    closed,
};
use process::Process;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::borrow::Cow;
use std::time::Duration;

/// One label type for all families, so that their code is generated once.
type Labels = Vec<(&'static str, Cow<'static, str>)>;
type Counters = Family<Labels, PlainCounter>;
type Gauges = Family<Labels, Gauge>;
type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Go's default buckets, in seconds.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const POD_START_BUCKETS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const STATUS_BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const CONTAINERS_BUCKETS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];
/// Each bound is 2.5 times the previous one.
const OPERATION_BUCKETS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];

/// The labels `config` and `static` of `kubelet_working_pods`. With the lifecycles they make 15 series.
const WORKING: [(&str, &str); 5] =
    [("desired", ""), ("desired", "true"), ("orphan", ""), ("orphan", "true"), ("runtime_only", "unknown")];

/// Gauges are set before a scrape.
pub struct Metrics {
    registry: Registry,
    pub pods: PodMetrics,
    pub durations: DurationMetrics,
    pub pleg: PlegMetrics,
    pub runtime: RuntimeMetrics,
    pub cluster: ClusterMetrics,
    pub agent: AgentMetrics,
    node: node_resources::Node,
}

impl Metrics {
    pub fn new(node_name: &str) -> Metrics {
        let mut r = Families(Registry::default());
        r.0.register_collector(Box::new(Process::new()));
        // Dashboards expect this metric although it never changes here.
        r.counter(
            "kubelet_pleg_discard_events",
            "Number of discarded pod lifecycle events; always 0, because there is no queue",
        );
        let name = r.gauges("kubelet_node_name", "Name of the node, as a label");
        name.get_or_create(&vec![("node", node_name.to_owned().into())]).set(1);
        let metrics = Metrics {
            pods: PodMetrics::new(&mut r),
            durations: DurationMetrics::new(&mut r),
            pleg: PlegMetrics::new(&mut r),
            runtime: RuntimeMetrics::new(&mut r),
            cluster: ClusterMetrics::new(&mut r),
            agent: AgentMetrics::new(&mut r),
            node: node_resources::Node::new(&mut r),
            registry: r.0,
        };
        metrics.always_there();
        metrics
    }

    /// Creates the series that dashboards expect from the first scrape on.
    fn always_there(&self) {
        self.set_desired_pods(0);
        self.set_active_pods(0);
        self.set_working_pods(|_, _| 0);
        for is_static in ["", "true"] {
            drop(self.pods.restarted_pods.get_or_create(&label("static", is_static)));
        }
    }

    /// None: the node has no cluster.
    pub fn set_connection(&self, connection: Option<&Connection<'_>>) {
        let Some(connection) = connection else { return };
        self.cluster.api_server_connected.set(i64::from(connection.state == ConnectionState::Registered));
        self.cluster.waiting_events.set(i64::try_from(connection.waiting_events).unwrap_or(i64::MAX));
        self.cluster.lost_events.set(connection.lost_events);
        self.cluster.node_name_conflict.set(i64::from(connection.is_shared));
    }

    /// Bytes.
    pub fn set_api_server_traffic(&self, (sent, received): (u64, u64)) {
        self.cluster.api_server_sent.set(sent);
        self.cluster.api_server_received.set(received);
    }

    pub fn observe(&self, measure: &Measure) {
        match measure {
            Measure::RelistDuration(d) => self.pleg.relist_duration.observe(d.as_secs_f64()),
            Measure::RelistInterval(d) => self.pleg.relist_interval.observe(d.as_secs_f64()),
            Measure::PodStartDuration(d) => self.durations.pod_start_duration.observe(d.as_secs_f64()),
            Measure::PodStatusDuration(d) => self.durations.pod_status_duration.observe(d.as_secs_f64()),
            Measure::PodWorkerDuration { operation, duration } => {
                let labels = label("operation_type", closed(operation, &WORKER_OPERATIONS));
                self.durations.pod_worker_duration.get_or_create(&labels).observe(duration.as_secs_f64());
            }
            Measure::PodWorkerStartDuration(d) => self.durations.pod_worker_start_duration.observe(d.as_secs_f64()),
            Measure::StartedPod => self.runtime.started_pods.inc(),
            Measure::StartedPodError => self.runtime.started_pod_errors.inc(),
            Measure::StartedContainer { container_type } => {
                let labels = label("container_type", closed(container_type, &CONTAINER_TYPES));
                self.runtime.started_containers.get_or_create(&labels).inc();
            }
            Measure::StartedContainerError { container_type, code } => {
                let (kind, code) = (closed(container_type, &CONTAINER_TYPES), closed(code.as_str(), &START_ERRORS));
                let labels = vec![("container_type", kind.into()), ("code", code.into())];
                self.runtime.started_container_errors.get_or_create(&labels).inc();
            }
            Measure::AdmissionRejected { reason } => {
                self.pods.admission_rejections.get_or_create(&vec![("reason", Cow::Owned(reason.to_string()))]).inc();
            }
            Measure::Preempted { signal } => {
                self.pods.preemptions.get_or_create(&vec![("preemption_signal", Cow::Owned(signal.to_string()))]).inc();
            }
            Measure::Evicted { signal } => self.pods.evictions.get_or_create(&label("eviction_signal", signal)).inc(),
            Measure::OrphanedPod => self.pods.orphaned_pods.inc(),
            Measure::ImageCollected { reason } => {
                self.runtime.collected_images.get_or_create(&label("reason", reason)).inc()
            }
            Measure::RestartedPod => self.pods.restarted_pods.get_or_create(&label("static", "true")).inc(),
            Measure::Probe { kind, passed, pod, container } => {
                self.runtime.probes.get_or_create(&of_probe(*kind, *passed, pod, container)).inc();
            }
            Measure::NoMoreProbes { pod } => {
                for container in pod.all_containers() {
                    for kind in Kind::ALL.into_iter().filter(|kind| kind.spec(container).is_some()) {
                        for passed in [Some(true), Some(false), None] {
                            self.runtime.probes.remove(&of_probe(kind, passed, pod, &container.name));
                        }
                    }
                }
            }
            Measure::ContainersPerPod(n) => self.pods.containers_per_pod.observe(*n as f64),
        }
    }

    /// Records a call to the runtime that ended or could not be sent. `operation` is the kubelet's name of the call:
    /// `create_container`, `list_podsandbox`.
    pub fn runtime_operation(&self, operation: &str, duration: Duration, error: bool) {
        let labels = label("operation_type", closed(operation, &OPERATIONS));
        self.runtime.operations.get_or_create(&labels).inc();
        self.runtime.operation_duration.get_or_create(&labels).observe(duration.as_secs_f64());
        if error {
            self.runtime.operation_errors.get_or_create(&labels).inc();
        }
    }

    /// Records a RunPodSandbox call that ended or could not be sent, in addition to `runtime_operation`. `handler` is
    /// the runtime handler, empty for the default one.
    pub fn sandbox_run(&self, handler: &str, duration: Duration, error: bool) {
        let labels = vec![("runtime_handler", Cow::Owned(handler.to_owned()))];
        self.runtime.sandbox_duration.get_or_create(&labels).observe(duration.as_secs_f64());
        if error {
            self.runtime.sandbox_errors.get_or_create(&labels).inc();
        }
    }

    pub fn event_stream_asked(&self) {
        self.pleg.event_streams.inc();
    }

    pub fn event_stream_failed(&self) {
        self.pleg.event_stream_errors.inc();
    }

    /// Records a container event that arrived `late` after it happened.
    pub fn event_received(&self, late: Duration) {
        self.pleg.event_latency.observe(late.as_secs_f64());
    }

    /// Records a finished operation on a pod's cgroup: `create`, `update` or `destroy`.
    pub fn cgroup_operation(&self, operation: &str, duration: Duration) {
        let labels = label("operation_type", closed(operation, &CGROUP_OPERATIONS));
        self.runtime.cgroup_duration.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts a request to the API for kubectl. `verb`: as an authorizer sees it (a closed set).
    pub fn kubectl_request(&self, verb: &'static str) {
        self.agent.kubectl_requests.get_or_create(&label("verb", verb)).inc();
    }

    pub fn set_desired_pods(&self, n: u64) {
        set_static(&self.pods.desired_pods, n);
    }

    pub fn set_active_pods(&self, n: u64) {
        set_static(&self.pods.active_pods, n);
    }

    /// `count` returns the number of pods in a lifecycle state (`sync`, `terminating`, `terminated`) by `config`:
    /// `desired`; `orphan`, not desired any more, but not finished (W20); `runtime_only`, known only from the runtime
    /// (W21). All pods from manifests are static.
    pub fn set_working_pods(&self, count: impl Fn(&'static str, &'static str) -> u64) {
        for lifecycle in LIFECYCLES {
            for (config, is_static) in WORKING {
                let labels =
                    vec![("lifecycle", lifecycle.into()), ("config", config.into()), ("static", is_static.into())];
                let n = if is_static.is_empty() { 0 } else { count(lifecycle, config) };
                self.pods.working_pods.get_or_create(&labels).set(signed(n));
            }
        }
    }

    /// `count` returns the number of containers in a state of the last relist.
    pub fn set_running_containers(&self, count: impl Fn(&'static str) -> u64) {
        for state in CONTAINER_STATES {
            self.runtime.running_containers.get_or_create(&label("container_state", state)).set(signed(count(state)));
        }
    }

    /// S8: whole seconds, as in a kubelet. 0 if there was no shutdown; the end is also 0 while a shutdown is in
    /// progress.
    pub fn set_graceful_shutdown(&self, started: f64, ended: f64) {
        self.agent.shutdown_start.set(started as i64);
        self.agent.shutdown_end.set(ended as i64);
    }

    /// Sets the capacity and the allocatable resources of the node.
    pub fn set_node_size(&self, node: &NodeFacts) {
        self.node.set_size(node);
    }

    /// Sets the total requests of all pods that count for admission.
    pub fn set_node_requested(&self, node: &NodeFacts, requested: &Resources) {
        self.node.set_requested(node, requested);
    }

    /// All metrics in the classic text format.
    pub fn render(&self) -> Vec<u8> {
        // The approximate size on a node that has run some pods.
        let mut text = String::with_capacity(48 * 1024);
        // Writing to a string cannot fail.
        let _ = prometheus_client::encoding::text::encode_registry(&mut text, &self.registry);
        classic::as_go(&text)
    }

    /// The content of a kubelet's `/metrics/probes`: the results of probes, and the start time of the process.
    pub fn render_probes(&self) -> Vec<u8> {
        classic::only(&self.render(), |family| family.starts_with("prober_") || family == "process_start_time_seconds")
    }
}

/// Registers families of each kind.
struct Families(Registry);

impl Families {
    fn put<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn gauge(&mut self, name: &str, help: &str) -> Gauge {
        self.put(name, help, Gauge::default())
    }

    fn gauges(&mut self, name: &str, help: &str) -> Gauges {
        self.put(name, help, Gauges::default())
    }

    fn counter(&mut self, name: &str, help: &str) -> PlainCounter {
        self.put(name, help, PlainCounter::default())
    }

    fn counters(&mut self, name: &str, help: &str) -> Counters {
        self.put(name, help, Counters::default())
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: impl IntoIterator<Item = f64>) -> Histogram {
        self.put(name, help, Histogram::new(buckets))
    }

    fn histograms(&mut self, name: &str, help: &str, make: fn() -> Histogram) -> Histograms {
        self.put(name, help, Family::new_with_constructor(make))
    }
}

fn label(key: &'static str, value: &'static str) -> Labels {
    vec![(key, Cow::Borrowed(value))]
}

fn of_probe(kind: Kind, passed: Option<bool>, pod: &Pod, container: &str) -> Labels {
    let result = match passed {
        Some(true) => "successful",
        Some(false) => "failed",
        None => "unknown",
    };
    vec![
        ("container", container.to_string().into()),
        ("namespace", pod.name.namespace.to_string().into()),
        ("pod", pod.name.name.to_string().into()),
        ("pod_uid", pod.uid.to_string().into()),
        ("probe_type", kind.title().into()),
        ("result", result.into()),
    ]
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Sets the series of static pods. All pods come from manifests and are static; the other series is 0, as in a kubelet.
fn set_static(family: &Gauges, n: u64) {
    family.get_or_create(&label("static", "")).set(0);
    family.get_or_create(&label("static", "true")).set(signed(n));
}
