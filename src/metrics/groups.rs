//! The families, by subject.

use super::classic::PlainCounter;
use super::{
    CONTAINERS_BUCKETS, Counters, DEFAULT_BUCKETS, Families, Gauges, Histograms, OPERATION_BUCKETS, POD_START_BUCKETS,
    STATUS_BUCKETS,
};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::atomic::AtomicU64;

/// Pods, and what admission and kills do with them.
pub struct PodMetrics {
    pub active_pods: Gauges,
    pub desired_pods: Gauges,
    pub mirror_pods: Gauge,
    pub working_pods: Gauges,
    pub restarted_pods: Counters,
    pub orphaned_pods: PlainCounter,
    pub containers_per_pod: Histogram,
    pub drained_pods: Gauge,
    pub node_cordoned: Gauge,
    pub manifest_errors: Gauge,
    pub admission_rejections: Counters,
    pub preemptions: Counters,
    pub evictions: Counters,
}

impl PodMetrics {
    pub(super) fn new(r: &mut Families) -> PodMetrics {
        PodMetrics {
            active_pods: r.gauges("kubelet_active_pods", "Number of pods that admission counts"),
            desired_pods: r.gauges("kubelet_desired_pods", "Number of pods in the manifests"),
            mirror_pods: r.gauge("kubelet_mirror_pods", "Number of mirror pods; always 0 without an API server"),
            working_pods: r.gauges("kubelet_working_pods", "Number of pods that have a worker, by lifecycle state"),
            restarted_pods: r.counters(
                "kubelet_restarted_pods_total",
                "Number of pods that were created again with the same UID while they were terminating",
            ),
            orphaned_pods: r.counter(
                "kubelet_orphaned_runtime_pods_total",
                "Number of orphaned pods found in the runtime and stopped",
            ),
            containers_per_pod: r.histogram(
                "kubelet_containers_per_pod_count",
                "Number of containers in the spec of a pod without init containers, observed at its first sync",
                CONTAINERS_BUCKETS,
            ),
            drained_pods: r.gauge("wherry_drained_pods", "Pods that are drained"),
            node_cordoned: r.gauge("wherry_node_cordoned", "1 while the node is cordoned"),
            manifest_errors: r.gauge("wherry_manifest_errors", "Current number of errors in the manifest directory"),
            admission_rejections: r
                .counters("kubelet_admission_rejections_total", "Number of pods rejected at admission, by reason"),
            preemptions: r.counters(
                "kubelet_preemptions",
                "Number of preempted pods that have stopped, by the first resource that was short",
            ),
            evictions: r.counters("kubelet_evictions", "Number of evicted pods, by the eviction signal"),
        }
    }
}

/// How long pods take.
pub struct DurationMetrics {
    pub pod_start_duration: Histogram,
    pub pod_status_duration: Histogram,
    pub pod_worker_duration: Histograms,
    pub pod_worker_start_duration: Histogram,
}

impl DurationMetrics {
    pub(super) fn new(r: &mut Families) -> DurationMetrics {
        DurationMetrics {
            pod_start_duration: r.histogram(
                "kubelet_pod_start_duration_seconds",
                "Duration from the first time that a pod is seen until all its containers run, in seconds",
                POD_START_BUCKETS,
            ),
            pod_status_duration: r.histogram(
                "kubelet_pod_status_sync_duration_seconds",
                "Duration from an observed change until the new pod status is published locally, in seconds",
                STATUS_BUCKETS,
            ),
            pod_worker_duration: r.histograms(
                "kubelet_pod_worker_duration_seconds",
                "Duration of the work on a pod, in seconds, by operation; syncs without work are not counted",
                || Histogram::new(DEFAULT_BUCKETS),
            ),
            pod_worker_start_duration: r.histogram(
                "kubelet_pod_worker_start_duration_seconds",
                "Duration from the first time that a pod is seen until its worker's first sync, in seconds",
                DEFAULT_BUCKETS,
            ),
        }
    }
}

/// Relists and the events of the runtime.
pub struct PlegMetrics {
    pub relist_duration: Histogram,
    pub relist_interval: Histogram,
    /// In seconds since the Unix epoch.
    pub relist_seen: Gauge,
    pub event_streams: PlainCounter,
    pub event_stream_errors: PlainCounter,
    pub event_latency: Histogram,
}

impl PlegMetrics {
    pub(super) fn new(r: &mut Families) -> PlegMetrics {
        PlegMetrics {
            relist_duration: r.histogram(
                "kubelet_pleg_relist_duration_seconds",
                "Duration of a relist, successful or failed, in seconds, without the status reads that follow",
                DEFAULT_BUCKETS,
            ),
            relist_interval: r.histogram(
                "kubelet_pleg_relist_interval_seconds",
                "Interval between the starts of two successful relists, in seconds",
                DEFAULT_BUCKETS,
            ),
            relist_seen: r.gauge(
                "kubelet_pleg_last_seen_seconds",
                "Start time of the last successful relist, in seconds since the Unix epoch",
            ),
            event_streams: r.counter(
                "kubelet_evented_pleg_connection_success_count",
                "Number of requests for the container event stream of the runtime",
            ),
            event_stream_errors: r.counter(
                "kubelet_evented_pleg_connection_error_count",
                "Number of times that the container event stream failed or ended",
            ),
            event_latency: r.histogram(
                "kubelet_evented_pleg_connection_latency_seconds",
                "Latency from a container event to its arrival, in seconds",
                DEFAULT_BUCKETS,
            ),
        }
    }
}

/// The container runtime and cgroups.
pub struct RuntimeMetrics {
    pub running_pods: Gauge,
    pub running_containers: Gauges,
    pub operations: Counters,
    pub operation_errors: Counters,
    pub operation_duration: Histograms,
    pub sandbox_duration: Histograms,
    pub sandbox_errors: Counters,
    pub started_pods: PlainCounter,
    pub started_pod_errors: PlainCounter,
    pub started_containers: Counters,
    pub started_container_errors: Counters,
    pub probes: Counters,
    pub cgroup_duration: Histograms,
    pub collected_images: Counters,
}

impl RuntimeMetrics {
    pub(super) fn new(r: &mut Families) -> RuntimeMetrics {
        RuntimeMetrics {
            running_pods: r.gauge("kubelet_running_pods", "Number of pods with a ready sandbox"),
            running_containers: r.gauges("kubelet_running_containers", "Number of containers in the runtime, by state"),
            operations: r.counters("kubelet_runtime_operations_total", "Number of calls to the runtime"),
            operation_errors: r
                .counters("kubelet_runtime_operations_errors_total", "Number of failed calls to the runtime"),
            operation_duration: r.histograms(
                "kubelet_runtime_operations_duration_seconds",
                "Duration of calls to the runtime, in seconds",
                || Histogram::new(OPERATION_BUCKETS),
            ),
            sandbox_duration: r.histograms(
                "kubelet_run_podsandbox_duration_seconds",
                "Duration of RunPodSandbox calls, successful or failed, in seconds",
                || Histogram::new(DEFAULT_BUCKETS),
            ),
            sandbox_errors: r.counters("kubelet_run_podsandbox_errors_total", "Number of failed RunPodSandbox calls"),
            started_pods: r.counter(
                "kubelet_started_pods_total",
                "Number of attempts to create a pod sandbox, including failed ones",
            ),
            started_pod_errors: r
                .counter("kubelet_started_pods_errors_total", "Number of failed attempts to create a pod sandbox"),
            started_containers: r.counters(
                "kubelet_started_containers_total",
                "Number of attempts to start a container, including failed ones",
            ),
            started_container_errors: r.counters(
                "kubelet_started_containers_errors_total",
                "Number of failed attempts to start a container, by the resulting waiting reason",
            ),
            probes: r.counters("prober_probe_total", "Number of container probes, by result"),
            cgroup_duration: r.histograms(
                "kubelet_cgroup_manager_duration_seconds",
                "Duration of operations on pod cgroups, in seconds",
                || Histogram::new(DEFAULT_BUCKETS),
            ),
            collected_images: r.counters(
                "kubelet_image_garbage_collected_total",
                "Number of images that the garbage collection removed, by reason",
            ),
        }
    }
}

/// The connection to the API server.
pub struct ClusterMetrics {
    pub client_certificate: CertificateMetrics,
    pub serving_certificate: CertificateMetrics,
    pub api_server_connected: Gauge,
    pub waiting_events: Gauge,
    pub lost_events: PlainCounter,
    pub node_name_conflict: Gauge,
    pub api_server_sent: PlainCounter,
    pub api_server_received: PlainCounter,
}

impl ClusterMetrics {
    pub(super) fn new(r: &mut Families) -> ClusterMetrics {
        ClusterMetrics {
            client_certificate: CertificateMetrics {
                ttl: r.put(
                    "kubelet_certificate_manager_client_ttl_seconds",
                    "Time until the client certificate of the node expires, in seconds; negative if it has expired, \
                     infinite without one",
                    Gauge::default(),
                ),
                errors: r.counter(
                    "kubelet_certificate_manager_client_expiration_renew_errors",
                    "Number of failed renewals of the client certificate of the node",
                ),
            },
            serving_certificate: CertificateMetrics {
                ttl: r.put(
                    "kubelet_certificate_manager_server_ttl_seconds",
                    "Time until the serving certificate that the cluster has issued expires, in seconds; negative if \
                     it has expired, infinite without one",
                    Gauge::default(),
                ),
                errors: r.counter(
                    "kubelet_server_expiration_renew_errors",
                    "Number of failed requests for and renewals of the serving certificate of the node",
                ),
            },
            api_server_connected: r.gauge(
                "wherry_api_server_connected",
                "1 while the API server of the cluster answers and has the node; 0 without a cluster",
            ),
            waiting_events: r.gauge("wherry_events_waiting", "Number of events that the API server does not have yet"),
            lost_events: r.counter(
                "wherry_events_lost_total",
                "Number of events that found no room while the API server was away",
            ),
            node_name_conflict: r.gauge("wherry_node_name_conflict", "1 while another machine acts as this node"),
            api_server_sent: r.counter(
                "wherry_api_server_sent_bytes_total",
                "Number of bytes sent to the API server of the cluster, with TLS and without TCP",
            ),
            api_server_received: r.counter(
                "wherry_api_server_received_bytes_total",
                "Number of bytes received from the API server of the cluster, with TLS and without TCP",
            ),
        }
    }
}

/// The agent itself.
pub struct AgentMetrics {
    pub shutdown_start: Gauge,
    pub shutdown_end: Gauge,
    pub log_lines_dropped: PlainCounter,
    pub kubectl_requests: Counters,
    pub kubectl_refusals: PlainCounter,
}

impl AgentMetrics {
    pub(super) fn new(r: &mut Families) -> AgentMetrics {
        AgentMetrics {
            shutdown_start: r.gauge(
                "kubelet_graceful_shutdown_start_time_seconds",
                "Start time of the last graceful shutdown of the node, in seconds since the Unix epoch",
            ),
            shutdown_end: r.gauge(
                "kubelet_graceful_shutdown_end_time_seconds",
                "End time of the last graceful shutdown of the node, in seconds since the Unix epoch; 0 while \
                 one is in progress",
            ),
            log_lines_dropped: r
                .counter("wherry_log_lines_dropped_total", "Log lines dropped because their reader was too slow"),
            kubectl_requests: r
                .counters("wherry_kubectl_requests_total", "Number of requests to the API for kubectl, by verb"),
            kubectl_refusals: r.counter(
                "wherry_kubectl_refusals_total",
                "Number of requests to the API for kubectl that the client's certificate does not permit",
            ),
        }
    }
}

/// A certificate that the node gets from its cluster.
pub struct CertificateMetrics {
    ttl: Gauge<f64, AtomicU64>,
    errors: PlainCounter,
}

impl CertificateMetrics {
    /// The seconds until the certificate expires (None: there is none), and the number of failures.
    pub fn set(&self, (seconds, errors): (Option<i64>, u64)) {
        self.ttl.set(seconds.map_or(f64::INFINITY, |seconds| seconds as f64));
        self.errors.set(errors);
    }
}
