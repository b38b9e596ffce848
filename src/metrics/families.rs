//! The table of all metric families of `/metrics`, in the order of the page. The families of `process` follow them on
//! the page.
//!
//! A row has the kind, the constant with which the code sets the values, the name, the names of the labels, the
//! bucket bounds of a histogram, and the help text. The type of the constant contains the kind and the number of
//! labels, so a value of another kind or a missing label does not compile. The compiler also reports a row that no
//! code sets.

use super::exposition::Kind;

/// A counter with `N` labels. The field is the index of the row in `TABLE`, here and below.
#[derive(Clone, Copy, Debug)]
pub struct Counter<const N: usize>(pub(super) usize);

/// A gauge with `N` labels.
#[derive(Clone, Copy, Debug)]
pub struct Gauge<const N: usize>(pub(super) usize);

/// A histogram with `N` labels.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<const N: usize>(pub(super) usize);

/// A row of the table.
pub(super) struct Row {
    pub name: &'static str,
    pub kind: Kind,
    /// In their order on the page, which is also the order of the values in the code.
    pub labels: &'static [&'static str],
    /// The upper bucket bounds of a histogram, without +Inf.
    pub bounds: &'static [f64],
    /// A sentence.
    pub help: &'static str,
}

/// Go's default buckets, in seconds.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const POD_START: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
const STATUS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const CONTAINERS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
/// Each bound is 2.5 times the previous one.
const OPERATION: &[f64] = &[
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

/// Returns the bucket bounds of a row, or an empty slice if it has none.
const fn first(bounds: &[&'static [f64]]) -> &'static [f64] {
    match bounds {
        [bounds, ..] => bounds,
        [] => &[],
    }
}

/// Defines `TABLE`, and a constant for each row.
macro_rules! families {
    ($($kind:ident $id:ident = $name:literal [$($label:literal),*] $($bounds:ident)? $help:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Position {
            $($id,)*
        }

        $(
            #[doc = $help]
            pub const $id: $kind<{ const LABELS: &[&str] = &[$($label),*]; LABELS.len() }> =
                $kind(Position::$id as usize);
        )*

        pub(super) static TABLE: &[Row] = &[$(Row {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            bounds: first(&[$($bounds)?]),
            help: $help,
        },)*];
    };
}

families! {
    // Dashboards expect this metric, although its value never changes in Wherry.
    Counter _DISCARDED_EVENTS = "kubelet_pleg_discard_events" []
        "Number of discarded pod lifecycle events; always 0, because there is no queue.";
    Gauge NODE_NAME = "kubelet_node_name" ["node"] "Name of the node, as a label.";

    // Pods, and the outcomes of admission, preemption and eviction.
    Gauge ACTIVE_PODS = "kubelet_active_pods" ["static"] "Number of active pods that admission takes into account.";
    Gauge DESIRED_PODS = "kubelet_desired_pods" ["static"] "Number of pods in the manifests.";
    Gauge MIRROR_PODS = "kubelet_mirror_pods" [] "Number of mirror pods; always 0 without an API server.";
    Gauge WORKING_PODS = "kubelet_working_pods" ["lifecycle", "config", "static"]
        "Number of pods that have a worker, by lifecycle state.";
    Counter RESTARTED_PODS = "kubelet_restarted_pods_total" ["static"]
        "Number of pods that were created again with the same UID while they were terminating.";
    Counter ORPHANED_PODS = "kubelet_orphaned_runtime_pods_total" []
        "Number of orphaned pods found in the runtime and stopped.";
    Histogram CONTAINERS_PER_POD = "kubelet_containers_per_pod_count" [] CONTAINERS
        "Number of containers in the spec of a pod without init containers, observed at its first sync.";
    Gauge PREVIOUS_AGENT_CRASHED = "wherry_previous_agent_crashed" ["reason"]
        "1 if the previous process of the agent crashed: panic, watchdog, memory, signal or timeout.";
    Gauge DRAINED_PODS = "wherry_drained_pods" [] "Pods that are drained.";
    Gauge NODE_CORDONED = "wherry_node_cordoned" [] "1 while the node is cordoned.";
    Gauge MANIFEST_ERRORS = "wherry_manifest_errors" [] "Current number of errors in the manifest directory.";
    Counter ADMISSION_REJECTIONS = "kubelet_admission_rejections_total" ["reason"]
        "Number of pods rejected at admission, by reason.";
    Counter PREEMPTIONS = "kubelet_preemptions" ["preemption_signal"]
        "Number of preempted pods that have stopped, by the first resource that was short.";
    Counter EVICTIONS = "kubelet_evictions" ["eviction_signal"] "Number of evicted pods, by the eviction signal.";

    // Durations of the work on pods.
    Histogram POD_START_DURATION = "kubelet_pod_start_duration_seconds" [] POD_START
        "Duration from the first time that a pod is seen until all its containers run, in seconds.";
    Histogram POD_STATUS_DURATION = "kubelet_pod_status_sync_duration_seconds" [] STATUS
        "Duration from an observed change until the new pod status is published locally, in seconds.";
    Histogram POD_WORKER_DURATION = "kubelet_pod_worker_duration_seconds" ["operation_type"] DEFAULT
        "Duration of the work on a pod, in seconds, by operation; syncs without work are not counted.";
    Histogram POD_WORKER_START_DURATION = "kubelet_pod_worker_start_duration_seconds" [] DEFAULT
        "Duration from the first time that a pod is seen until its worker's first sync, in seconds.";

    // Relists and the events of the runtime.
    Histogram RELIST_DURATION = "kubelet_pleg_relist_duration_seconds" [] DEFAULT
        "Duration of a relist, successful or failed, in seconds, without the status reads that follow.";
    Histogram RELIST_INTERVAL = "kubelet_pleg_relist_interval_seconds" [] DEFAULT
        "Interval between the starts of two successful relists, in seconds.";
    Gauge RELIST_SEEN = "kubelet_pleg_last_seen_seconds" []
        "Start time of the last successful relist, in seconds since the Unix epoch.";
    Counter EVENT_STREAMS = "kubelet_evented_pleg_connection_success_count" []
        "Number of requests for the container event stream of the runtime.";
    Counter EVENT_STREAM_ERRORS = "kubelet_evented_pleg_connection_error_count" []
        "Number of times that the container event stream failed or ended.";
    Histogram EVENT_LATENCY = "kubelet_evented_pleg_connection_latency_seconds" [] DEFAULT
        "Latency from a container event to its arrival, in seconds.";

    // The container runtime and cgroups.
    Gauge RUNNING_PODS = "kubelet_running_pods" [] "Number of pods with a ready sandbox.";
    Gauge RUNNING_CONTAINERS = "kubelet_running_containers" ["container_state"]
        "Number of containers in the runtime, by state.";
    Counter RUNTIME_OPERATIONS = "kubelet_runtime_operations_total" ["operation_type"]
        "Number of calls to the runtime.";
    Counter RUNTIME_OPERATION_ERRORS = "kubelet_runtime_operations_errors_total" ["operation_type"]
        "Number of failed calls to the runtime.";
    Histogram RUNTIME_OPERATION_DURATION = "kubelet_runtime_operations_duration_seconds" ["operation_type"] OPERATION
        "Duration of calls to the runtime, in seconds.";
    Histogram SANDBOX_DURATION = "kubelet_run_podsandbox_duration_seconds" ["runtime_handler"] DEFAULT
        "Duration of RunPodSandbox calls, successful or failed, in seconds.";
    Counter SANDBOX_ERRORS = "kubelet_run_podsandbox_errors_total" ["runtime_handler"]
        "Number of failed RunPodSandbox calls.";
    Counter STARTED_PODS = "kubelet_started_pods_total" []
        "Number of attempts to create a pod sandbox, including failed ones.";
    Counter STARTED_POD_ERRORS = "kubelet_started_pods_errors_total" []
        "Number of failed attempts to create a pod sandbox.";
    Counter STARTED_CONTAINERS = "kubelet_started_containers_total" ["container_type"]
        "Number of attempts to start a container, including failed ones.";
    Counter STARTED_CONTAINER_ERRORS = "kubelet_started_containers_errors_total" ["container_type", "code"]
        "Number of failed attempts to start a container, by the resulting waiting reason.";
    Counter PROBES = "prober_probe_total" ["container", "namespace", "pod", "pod_uid", "probe_type", "result"]
        "Number of container probes, by result.";
    Histogram CGROUP_DURATION = "kubelet_cgroup_manager_duration_seconds" ["operation_type"] DEFAULT
        "Duration of operations on pod cgroups, in seconds.";
    Counter COLLECTED_IMAGES = "kubelet_image_garbage_collected_total" ["reason"]
        "Number of images that the garbage collection removed, by reason.";

    // The connection to the API server.
    Gauge CLIENT_CERTIFICATE_TTL = "kubelet_certificate_manager_client_ttl_seconds" []
        "Time until the client certificate of the node expires, in seconds; negative if it has expired, \
         infinite without one.";
    Counter CLIENT_CERTIFICATE_ERRORS = "kubelet_certificate_manager_client_expiration_renew_errors" []
        "Number of failed renewals of the client certificate of the node.";
    Gauge SERVING_CERTIFICATE_TTL = "kubelet_certificate_manager_server_ttl_seconds" []
        "Time until the serving certificate that the cluster has issued expires, in seconds; negative if \
         it has expired, infinite without one.";
    Counter SERVING_CERTIFICATE_ERRORS = "kubelet_server_expiration_renew_errors" []
        "Number of failed requests for and renewals of the serving certificate of the node.";
    Gauge API_SERVER_CONNECTED = "wherry_api_server_connected" []
        "1 while the API server of the cluster responds and the node is registered there; 0 without a cluster.";
    Gauge WAITING_EVENTS = "wherry_events_waiting" [] "Number of events that the API server has not received yet.";
    Counter LOST_EVENTS = "wherry_events_lost_total" []
        "Number of events dropped because the queue was full while the API server was unavailable.";
    Gauge NODE_NAME_CONFLICT = "wherry_node_name_conflict" [] "1 while another machine acts as this node.";
    Counter API_SERVER_SENT = "wherry_api_server_sent_bytes_total" []
        "Number of bytes sent to the API server of the cluster, including TLS but not TCP and IP.";
    Counter API_SERVER_RECEIVED = "wherry_api_server_received_bytes_total" []
        "Number of bytes received from the API server of the cluster, including TLS but not TCP and IP.";

    // The agent itself.
    Gauge SHUTDOWN_START = "kubelet_graceful_shutdown_start_time_seconds" []
        "Start time of the last graceful shutdown of the node, in seconds since the Unix epoch.";
    Gauge SHUTDOWN_END = "kubelet_graceful_shutdown_end_time_seconds" []
        "End time of the last graceful shutdown of the node, in seconds since the Unix epoch; 0 while \
         one is in progress.";
    Counter LOG_LINES_DROPPED = "wherry_log_lines_dropped_total" []
        "Log lines dropped because their reader was too slow.";
    Counter KUBECTL_REQUESTS = "wherry_kubectl_requests_total" ["verb"]
        "Number of requests to the API for kubectl, by verb.";
    Counter KUBECTL_REFUSALS = "wherry_kubectl_refusals_total" []
        "Number of requests to the API for kubectl that the client's certificate does not permit.";

    // The size of the node. The first two have the names of kube-state-metrics, without its label `node`.
    Gauge NODE_ALLOCATABLE = "kube_node_status_allocatable" ["resource", "unit"]
        "Resources available to pods: the capacity minus reservations, by resource.";
    Gauge NODE_CAPACITY = "kube_node_status_capacity" ["resource", "unit"] "Total resources of the node, by resource.";
    Gauge NODE_REQUESTED = "wherry_node_requested" ["resource", "unit"]
        "Total requests of the pods that count for admission, by resource.";
}

/// The remaining lifetime of a certificate in seconds, and the number of failures to get one.
pub const CLIENT_CERTIFICATE: (Gauge<0>, Counter<0>) = (CLIENT_CERTIFICATE_TTL, CLIENT_CERTIFICATE_ERRORS);
pub const SERVING_CERTIFICATE: (Gauge<0>, Counter<0>) = (SERVING_CERTIFICATE_TTL, SERVING_CERTIFICATE_ERRORS);
