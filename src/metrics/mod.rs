//! The numbers, under the kubelet's names, types, labels and buckets, so that existing dashboards and alerts work.
//!
//! What the engine measures arrives as `Measure`; gauges are set by whoever knows them before a scrape; `process_*` is
//! read when asked for. `render` gives the classic text format. A metric appears here when it has a source.

mod classic;
mod process;
#[cfg(test)]
mod tests;

use crate::engine::effect::Measure;
use classic::PlainCounter;
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

const LIFECYCLES: [&str; 3] = ["sync", "terminating", "terminated"];
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
    containers_per_pod: Histogram,
    relist_duration: Histogram,
    relist_interval: Histogram,
    relist_seen: Gauge,
    pod_start_duration: Histogram,
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
    started_container_errors: Counters,
    cgroup_duration: Histograms,
    manifest_errors: Gauge,
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
                "How long work on cgroups took, in seconds",
                histograms(default_histogram),
            ),
            containers_per_pod: put(
                &mut r,
                "kubelet_containers_per_pod_count",
                "Containers in the spec of each pod",
                Histogram::new(CONTAINERS_BUCKETS),
            ),
            desired_pods: put(&mut r, "kubelet_desired_pods", "Pods that are to run here", Gauges::default()),
            manifest_errors: put(
                &mut r,
                "wherry_manifest_errors",
                "Things in the manifest directory that are wrong at present",
                Gauge::default(),
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
                "How long a relist took, in seconds",
                default_histogram(),
            ),
            relist_interval: put(
                &mut r,
                "kubelet_pleg_relist_interval_seconds",
                "Time from one relist to the next, in seconds",
                default_histogram(),
            ),
            relist_seen: put(
                &mut r,
                "kubelet_pleg_last_seen_seconds",
                "When the last successful relist began, in seconds since the Unix epoch",
                Gauge::default(),
            ),
            pod_start_duration: put(
                &mut r,
                "kubelet_pod_start_duration_seconds",
                "From the first sight of a pod to all of its containers running, in seconds",
                Histogram::new(POD_START_BUCKETS),
            ),
            pod_worker_duration: put(
                &mut r,
                "kubelet_pod_worker_duration_seconds",
                "How long a sync of a pod took, in seconds",
                histograms(default_histogram),
            ),
            pod_worker_start_duration: put(
                &mut r,
                "kubelet_pod_worker_start_duration_seconds",
                "From the first sight of a pod to the first work for it, in seconds",
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
                "How long RunPodSandbox took, in seconds",
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
                "Containers that could not be started",
                Counters::default(),
            ),
            started_containers: put(
                &mut r,
                "kubelet_started_containers_total",
                "Containers whose start was tried",
                Counters::default(),
            ),
            started_pod_errors: put(
                &mut r,
                "kubelet_started_pods_errors_total",
                "Pods that could not be started",
                PlainCounter::default(),
            ),
            started_pods: put(
                &mut r,
                "kubelet_started_pods_total",
                "Pods whose start was tried",
                PlainCounter::default(),
            ),
            working_pods: put(
                &mut r,
                "kubelet_working_pods",
                "Pods that the workers know, by how far they are",
                Gauges::default(),
            ),
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
            Measure::PodWorkerDuration { operation, duration } => {
                let labels = label("operation_type", operation);
                self.pod_worker_duration.get_or_create(&labels).observe(duration.as_secs_f64());
            }
            Measure::PodWorkerStartDuration(d) => self.pod_worker_start_duration.observe(d.as_secs_f64()),
            Measure::StartedPod => self.started_pods.inc(),
            Measure::StartedPodError => self.started_pod_errors.inc(),
            Measure::StartedContainer => {
                self.started_containers.get_or_create(&label("container_type", "container")).inc()
            }
            Measure::StartedContainerError { code } => {
                let labels = vec![("container_type", "container".into()), ("code", code.clone().into())];
                self.started_container_errors.get_or_create(&labels).inc();
            }
            Measure::RunSandboxDuration(d) => {
                self.sandbox_duration.get_or_create(&label("runtime_handler", "")).observe(d.as_secs_f64())
            }
            Measure::RunSandboxError => self.sandbox_errors.get_or_create(&label("runtime_handler", "")).inc(),
            Measure::OrphanedPod => self.orphaned_pods.inc(),
            Measure::RestartedPod => self.restarted_pods.get_or_create(&label("static", "true")).inc(),
            Measure::ContainersPerPod(n) => self.containers_per_pod.observe(*n as f64),
        }
    }

    /// One call to the runtime that ended. `operation` as the kubelet names it: `create_container`, `list_podsandbox`.
    pub fn runtime_operation(&self, operation: &'static str, duration: Duration, error: bool) {
        let labels = label("operation_type", operation);
        self.operations.get_or_create(&labels).inc();
        self.operation_duration.get_or_create(&labels).observe(duration.as_secs_f64());
        if error {
            self.operation_errors.get_or_create(&labels).inc();
        }
    }

    /// Work on a pod's cgroup that ended: `create`, `update` or `destroy`.
    pub fn cgroup_operation(&self, operation: &'static str, duration: Duration) {
        self.cgroup_duration.get_or_create(&label("operation_type", operation)).observe(duration.as_secs_f64());
    }

    pub fn set_desired_pods(&self, n: u64) {
        set_static(&self.desired_pods, n);
    }

    pub fn set_active_pods(&self, n: u64) {
        set_static(&self.active_pods, n);
    }

    /// `lifecycle` is `sync`, `terminating` or `terminated`. Every pod of a manifest is static.
    pub fn set_working_pods(&self, lifecycle: &'static str, pods: Working) {
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

    pub fn set_manifest_errors(&self, n: u64) {
        self.manifest_errors.set(signed(n));
    }

    /// All that were dropped since the start.
    pub fn set_log_lines_dropped(&self, total: u64) {
        self.log_lines_dropped.set(total);
    }

    /// All of it in the classic text format.
    pub fn render(&self) -> Vec<u8> {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode_registry(&mut text, &self.registry);
        classic::go_bounds(&text)
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

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// All pods come from manifests, and so are static; the other series is there and 0, as in a kubelet.
fn set_static(family: &Gauges, n: u64) {
    family.get_or_create(&label("static", "")).set(0);
    family.get_or_create(&label("static", "true")).set(signed(n));
}
