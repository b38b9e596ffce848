//! The numbers, under the kubelet's names, types, labels and buckets, so that existing dashboards and alerts work.
//!
//! What the engine measures arrives as `Measure`; gauges are set by whoever knows them before a scrape; `process_*` is
//! read when asked for. `render` gives the classic text format. A family without labels is there from the start, one with
//! labels shows what happened, as in a kubelet; what has no source yet and no labels is there and 0. docs/metrics.md
//! says what each counts here.

mod classic;
mod labels;
mod node_resources;
mod process;
#[cfg(test)]
mod tests;

use crate::api::node_facts::NodeFacts;
use crate::api::pod::Pod;
use crate::api::resources::Resources;
use crate::engine::effect::Measure;
use crate::engine::probe::Kind;
use classic::PlainCounter;
use labels::{CGROUP_OPERATIONS, CONTAINER_TYPES, LIFECYCLES, OPERATIONS, START_ERRORS, WORKER_OPERATIONS, closed};
use process::Process;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};
use std::borrow::Cow;
use std::time::Duration;

/// One type for all labels, so that the families are compiled once.
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
/// Each 2.5 times the one before.
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

/// `config` and `static` of `kubelet_working_pods`: with the lifecycles, 15 series.
const WORKING: [(&str, &str); 5] =
    [("desired", ""), ("desired", "true"), ("orphan", ""), ("orphan", "true"), ("runtime_only", "unknown")];

/// Pods in a state of the workers, by `config`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Working {
    pub desired: u64,
    /// Still here, and no longer desired (W20).
    pub orphan: u64,
    /// Known from the runtime only (W21).
    pub runtime_only: u64,
}

/// Containers by what the last relist showed of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerCounts {
    pub created: u64,
    pub running: u64,
    pub exited: u64,
    pub unknown: u64,
}

pub struct Metrics {
    registry: Registry,
    desired_pods: Gauges,
    active_pods: Gauges,
    working_pods: Gauges,
    running_pods: Gauge,
    running_containers: Gauges,
    restarted_pods: Counters,
    orphaned_pods: PlainCounter,
    admission_rejections: Counters,
    preemptions: Counters,
    containers_per_pod: Histogram,
    relist_duration: Histogram,
    relist_interval: Histogram,
    relist_seen: Gauge,
    shutdown_start: Gauge,
    shutdown_end: Gauge,
    event_streams: PlainCounter,
    event_stream_errors: PlainCounter,
    event_latency: Histogram,
    pod_start_duration: Histogram,
    pod_status_duration: Histogram,
    pod_worker_duration: Histograms,
    pod_worker_start_duration: Histogram,
    operations: Counters,
    operation_errors: Counters,
    operation_duration: Histograms,
    sandbox_duration: Histograms,
    sandbox_errors: Counters,
    started_pods: PlainCounter,
    started_pod_errors: PlainCounter,
    started_containers: Counters,
    probes: Counters,
    started_container_errors: Counters,
    cgroup_duration: Histograms,
    manifest_errors: Gauge,
    drained_pods: Gauge,
    node: node_resources::Node,
    log_lines_dropped: PlainCounter,
}

impl Metrics {
    pub fn new(node_name: &str) -> Metrics {
        let mut r = Registry::default();
        r.register_collector(Box::new(Process::new()));
        // What never changes here is a metric all the same: dashboards ask for it.
        put(&mut r, "kubelet_mirror_pods", "Mirror pods in the API server: none without one", Gauge::<i64>::default());
        put(
            &mut r,
            "kubelet_pleg_discard_events",
            "Events thrown away because nobody took them: none, there is no queue",
            PlainCounter::default(),
        );
        let name = put(&mut r, "kubelet_node_name", "The node's name, as a label", Gauges::default());
        name.get_or_create(&vec![("node", node_name.to_owned().into())]).set(1);
        let metrics = Metrics {
            active_pods: put(&mut r, "kubelet_active_pods", "Pods that count for admission", Gauges::default()),
            cgroup_duration: put(
                &mut r,
                "kubelet_cgroup_manager_duration_seconds",
                "How long work on pods' cgroups took, in seconds",
                histograms(default_histogram),
            ),
            containers_per_pod: put(
                &mut r,
                "kubelet_containers_per_pod_count",
                "Containers in the spec of a pod, init containers aside, counted at its worker's first sync",
                Histogram::new(CONTAINERS_BUCKETS),
            ),
            desired_pods: put(&mut r, "kubelet_desired_pods", "Pods that manifests ask for", Gauges::default()),
            drained_pods: put(
                &mut r,
                "wherry_drained_pods",
                "Pods that wherry drain has taken down, until wherry undrain",
                Gauge::default(),
            ),
            manifest_errors: put(
                &mut r,
                "wherry_manifest_errors",
                "Things in the manifest directory that are wrong at present",
                Gauge::default(),
            ),
            node: node_resources::Node::new(&mut r),
            admission_rejections: put(
                &mut r,
                "kubelet_admission_rejections_total",
                "Pods that the node did not take, by the first reason against them",
                Counters::default(),
            ),
            preemptions: put(
                &mut r,
                "kubelet_preemptions",
                "Pods that have stopped to make room for another one, by the first resource that was short",
                Counters::default(),
            ),
            orphaned_pods: put(
                &mut r,
                "kubelet_orphaned_runtime_pods_total",
                "Pods found in the runtime that no worker knew, and stopped",
                PlainCounter::default(),
            ),
            relist_duration: put(
                &mut r,
                "kubelet_pleg_relist_duration_seconds",
                "How long a relist took that came back or failed, in seconds; without the status reads that follow",
                default_histogram(),
            ),
            relist_interval: put(
                &mut r,
                "kubelet_pleg_relist_interval_seconds",
                "From the begin of the last good relist to the begin of the next, in seconds",
                default_histogram(),
            ),
            relist_seen: put(
                &mut r,
                "kubelet_pleg_last_seen_seconds",
                "When the last successful relist began, in seconds since the Unix epoch",
                Gauge::default(),
            ),
            shutdown_start: put(
                &mut r,
                "kubelet_graceful_shutdown_start_time_seconds",
                "When the last graceful shutdown of the node began, in seconds since the Unix epoch",
                Gauge::default(),
            ),
            shutdown_end: put(
                &mut r,
                "kubelet_graceful_shutdown_end_time_seconds",
                "When the last graceful shutdown of the node was over, in seconds since the Unix epoch; 0 while it is not",
                Gauge::default(),
            ),
            event_streams: put(
                &mut r,
                "kubelet_evented_pleg_connection_success_count",
                "How often the runtime was asked for its stream of container events",
                PlainCounter::default(),
            ),
            event_stream_errors: put(
                &mut r,
                "kubelet_evented_pleg_connection_error_count",
                "How often that stream was not to be had, or ended",
                PlainCounter::default(),
            ),
            event_latency: put(
                &mut r,
                "kubelet_evented_pleg_connection_latency_seconds",
                "From a container event to its arrival here, in seconds",
                default_histogram(),
            ),
            pod_start_duration: put(
                &mut r,
                "kubelet_pod_start_duration_seconds",
                "From the first sight of a pod to all of its containers running, in seconds",
                Histogram::new(POD_START_BUCKETS),
            ),
            pod_status_duration: put(
                &mut r,
                "kubelet_pod_status_sync_duration_seconds",
                "From the sight of what changes a pod's status to the new status being shown here, in seconds; no API \
                 server is waited for",
                Histogram::new(STATUS_BUCKETS),
            ),
            pod_worker_duration: put(
                &mut r,
                "kubelet_pod_worker_duration_seconds",
                "From the request for work on a pod until nothing of that work is left to do, in seconds; syncs that \
                 found nothing to do are left out",
                histograms(default_histogram),
            ),
            pod_worker_start_duration: put(
                &mut r,
                "kubelet_pod_worker_start_duration_seconds",
                "From the first sight of a pod to its worker's first sync, in seconds",
                default_histogram(),
            ),
            restarted_pods: put(
                &mut r,
                "kubelet_restarted_pods_total",
                "Pods that were made anew under the same UID while they were terminating",
                Counters::default(),
            ),
            sandbox_duration: put(
                &mut r,
                "kubelet_run_podsandbox_duration_seconds",
                "How long RunPodSandbox took that succeeded or failed, in seconds",
                histograms(default_histogram),
            ),
            sandbox_errors: put(
                &mut r,
                "kubelet_run_podsandbox_errors_total",
                "RunPodSandbox calls that failed",
                Counters::default(),
            ),
            running_containers: put(
                &mut r,
                "kubelet_running_containers",
                "Containers in the runtime, by state",
                Gauges::default(),
            ),
            running_pods: put(&mut r, "kubelet_running_pods", "Pods with a sandbox that is ready", Gauge::default()),
            operation_duration: put(
                &mut r,
                "kubelet_runtime_operations_duration_seconds",
                "How long calls to the runtime took, in seconds",
                histograms(|| Histogram::new(OPERATION_BUCKETS)),
            ),
            operation_errors: put(
                &mut r,
                "kubelet_runtime_operations_errors_total",
                "Calls to the runtime that failed",
                Counters::default(),
            ),
            operations: put(&mut r, "kubelet_runtime_operations_total", "Calls to the runtime", Counters::default()),
            started_container_errors: put(
                &mut r,
                "kubelet_started_containers_errors_total",
                "Tries to start a container that failed, by the waiting reason that came of it",
                Counters::default(),
            ),
            started_containers: put(
                &mut r,
                "kubelet_started_containers_total",
                "Tries to start a container, those that failed included",
                Counters::default(),
            ),
            started_pod_errors: put(
                &mut r,
                "kubelet_started_pods_errors_total",
                "Tries to make a pod's sandbox that failed",
                PlainCounter::default(),
            ),
            started_pods: put(
                &mut r,
                "kubelet_started_pods_total",
                "Tries to make a pod's sandbox, those that failed included",
                PlainCounter::default(),
            ),
            working_pods: put(
                &mut r,
                "kubelet_working_pods",
                "Pods that the workers know, by how far they are",
                Gauges::default(),
            ),
            probes: put(&mut r, "prober_probe_total", "Probes of containers, by their results", Counters::default()),
            log_lines_dropped: put(
                &mut r,
                "wherry_log_lines_dropped_total",
                "Log lines given up because nobody took them",
                PlainCounter::default(),
            ),
            registry: r,
        };
        metrics.always_there();
        metrics
    }

    /// Series that a dashboard finds from the first scrape on.
    fn always_there(&self) {
        self.set_desired_pods(0);
        self.set_active_pods(0);
        for lifecycle in LIFECYCLES {
            self.set_working_pods(lifecycle, Working::default());
        }
        for is_static in ["", "true"] {
            drop(self.restarted_pods.get_or_create(&label("static", is_static)));
        }
    }

    pub fn observe(&self, measure: &Measure) {
        match measure {
            Measure::RelistDuration(d) => self.relist_duration.observe(d.as_secs_f64()),
            Measure::RelistInterval(d) => self.relist_interval.observe(d.as_secs_f64()),
            Measure::PodStartDuration(d) => self.pod_start_duration.observe(d.as_secs_f64()),
            Measure::PodStatusDuration(d) => self.pod_status_duration.observe(d.as_secs_f64()),
            Measure::PodWorkerDuration { operation, duration } => {
                let labels = label("operation_type", closed(operation, &WORKER_OPERATIONS));
                self.pod_worker_duration.get_or_create(&labels).observe(duration.as_secs_f64());
            }
            Measure::PodWorkerStartDuration(d) => self.pod_worker_start_duration.observe(d.as_secs_f64()),
            Measure::StartedPod => self.started_pods.inc(),
            Measure::StartedPodError => self.started_pod_errors.inc(),
            Measure::StartedContainer { container_type } => {
                let labels = label("container_type", closed(container_type, &CONTAINER_TYPES));
                self.started_containers.get_or_create(&labels).inc();
            }
            Measure::StartedContainerError { container_type, code } => {
                let (kind, code) = (closed(container_type, &CONTAINER_TYPES), closed(code, &START_ERRORS));
                let labels = vec![("container_type", kind.into()), ("code", code.into())];
                self.started_container_errors.get_or_create(&labels).inc();
            }
            Measure::AdmissionRejected { reason } => {
                let labels = label("reason", reason);
                self.admission_rejections.get_or_create(&labels).inc();
            }
            Measure::Preempted { signal } => {
                self.preemptions.get_or_create(&vec![("preemption_signal", Cow::Owned(signal.to_string()))]).inc();
            }
            Measure::OrphanedPod => self.orphaned_pods.inc(),
            Measure::RestartedPod => self.restarted_pods.get_or_create(&label("static", "true")).inc(),
            Measure::Probe { kind, passed, pod, container } => {
                self.probes.get_or_create(&of_probe(*kind, *passed, pod, container)).inc();
            }
            Measure::NoMoreProbes { pod } => {
                for container in pod.all_containers() {
                    for kind in Kind::ALL.into_iter().filter(|kind| kind.spec(container).is_some()) {
                        for passed in [Some(true), Some(false), None] {
                            self.probes.remove(&of_probe(kind, passed, pod, &container.name));
                        }
                    }
                }
            }
            Measure::ContainersPerPod(n) => self.containers_per_pod.observe(*n as f64),
        }
    }

    /// One call to the runtime that ended, or could not be sent. `operation` as the kubelet names it:
    /// `create_container`, `list_podsandbox`.
    pub fn runtime_operation(&self, operation: &str, duration: Duration, error: bool) {
        let labels = label("operation_type", closed(operation, &OPERATIONS));
        self.operations.get_or_create(&labels).inc();
        self.operation_duration.get_or_create(&labels).observe(duration.as_secs_f64());
        if error {
            self.operation_errors.get_or_create(&labels).inc();
        }
        if operation == "run_podsandbox" {
            // Pods name no runtime class yet: the handler is the default one.
            let labels = label("runtime_handler", "");
            self.sandbox_duration.get_or_create(&labels).observe(duration.as_secs_f64());
            if error {
                self.sandbox_errors.get_or_create(&labels).inc();
            }
        }
    }

    pub fn event_stream_asked(&self) {
        self.event_streams.inc();
    }

    pub fn event_stream_failed(&self) {
        self.event_stream_errors.inc();
    }

    /// A container event came, so long after it happened.
    pub fn event_received(&self, late: Duration) {
        self.event_latency.observe(late.as_secs_f64());
    }

    /// Work on a pod's cgroup that ended: `create`, `update` or `destroy`.
    pub fn cgroup_operation(&self, operation: &str, duration: Duration) {
        let labels = label("operation_type", closed(operation, &CGROUP_OPERATIONS));
        self.cgroup_duration.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    pub fn set_desired_pods(&self, n: u64) {
        set_static(&self.desired_pods, n);
    }

    pub fn set_active_pods(&self, n: u64) {
        set_static(&self.active_pods, n);
    }

    /// `lifecycle` is `sync`, `terminating` or `terminated`. Every pod of a manifest is static.
    pub fn set_working_pods(&self, lifecycle: &str, pods: Working) {
        let lifecycle = closed(lifecycle, &LIFECYCLES);
        for (config, is_static) in WORKING {
            let labels = vec![("lifecycle", lifecycle.into()), ("config", config.into()), ("static", is_static.into())];
            let n = match (config, is_static) {
                ("desired", "true") => pods.desired,
                ("orphan", "true") => pods.orphan,
                ("runtime_only", _) => pods.runtime_only,
                _ => 0,
            };
            self.working_pods.get_or_create(&labels).set(signed(n));
        }
    }

    pub fn set_running_pods(&self, n: u64) {
        self.running_pods.set(signed(n));
    }

    pub fn set_running_containers(&self, counts: ContainerCounts) {
        let ContainerCounts { created, running, exited, unknown } = counts;
        for (state, n) in [("created", created), ("running", running), ("exited", exited), ("unknown", unknown)] {
            self.running_containers.get_or_create(&label("container_state", state)).set(signed(n));
        }
    }

    /// Seconds since the Unix epoch.
    pub fn set_pleg_last_seen(&self, seconds: i64) {
        self.relist_seen.set(seconds);
    }

    /// S8: whole seconds, as a kubelet gives them; 0 for never, and for an end that is to come.
    pub fn set_graceful_shutdown(&self, started: f64, ended: f64) {
        self.shutdown_start.set(started as i64);
        self.shutdown_end.set(ended as i64);
    }

    pub fn set_drained_pods(&self, n: u64) {
        self.drained_pods.set(signed(n));
    }

    pub fn set_manifest_errors(&self, n: u64) {
        self.manifest_errors.set(signed(n));
    }

    /// What the node has and what of it is for pods.
    pub fn set_node_size(&self, node: &NodeFacts) {
        self.node.set_size(node);
    }

    /// What the pods that count for admission ask for, all together.
    pub fn set_node_requested(&self, node: &NodeFacts, requested: &Resources) {
        self.node.set_requested(node, requested);
    }

    /// All that were dropped since the start.
    pub fn set_log_lines_dropped(&self, total: u64) {
        self.log_lines_dropped.set(total);
    }

    /// All of it in the classic text format.
    pub fn render(&self) -> Vec<u8> {
        // About what a node shows that has run some pods.
        let mut text = String::with_capacity(48 * 1024);
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode_registry(&mut text, &self.registry);
        classic::go_bounds(&text)
    }

    /// What a kubelet has at `/metrics/probes`: the results of probes, and since when they are counted.
    pub fn render_probes(&self) -> Vec<u8> {
        classic::only(&self.render(), |family| family.starts_with("prober_") || family == "process_start_time_seconds")
    }
}

fn put<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

fn histograms(make: fn() -> Histogram) -> Histograms {
    Family::new_with_constructor(make)
}

fn default_histogram() -> Histogram {
    Histogram::new(DEFAULT_BUCKETS)
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

/// All pods come from manifests, and so are static; the other series is there and 0, as in a kubelet.
fn set_static(family: &Gauges, n: u64) {
    family.get_or_create(&label("static", "")).set(0);
    family.get_or_create(&label("static", "true")).set(signed(n));
}
