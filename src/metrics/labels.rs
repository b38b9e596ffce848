//! The closed sets of label values. A value outside its set becomes `OTHER`, so the number of series is limited. Only
//! the node name, resource names, runtime handlers and the labels of probes can have any value. The series of probes
//! are removed with their pod.

/// The replacement for all other values. A kubelet uses the same word for a reason that it does not list.
pub const OTHER: &str = "Other";

/// CRI calls with the kubelet's names (from its `instrumented_services.go`), including calls that Wherry never makes,
/// and two containerd calls.
pub const OPERATIONS: [&str; 36] = [
    "attach",
    "checkpoint_container",
    "container_stats",
    "container_status",
    "create_container",
    "delete_task",
    "exec",
    "exec_sync",
    "get_container_events",
    "image_fs_info",
    "image_status",
    "kill_task",
    "list_container_stats",
    "list_containers",
    "list_images",
    "list_metric_descriptors",
    "list_podsandbox",
    "list_podsandbox_metrics",
    "list_podsandbox_stats",
    "podsandbox_stats",
    "podsandbox_status",
    "port_forward",
    "pull_image",
    "remove_container",
    "remove_image",
    "remove_podsandbox",
    "reopen_container_log",
    "run_podsandbox",
    "runtime_config",
    "start_container",
    "status",
    "stop_container",
    "stop_podsandbox",
    "update_container",
    "update_runtime_config",
    "version",
];

/// The operations of a pod worker.
pub const WORKER_OPERATIONS: [&str; 5] = ["create", "update", "sync", "kill", "terminated"];

pub const CGROUP_OPERATIONS: [&str; 3] = ["create", "update", "destroy"];

pub const CONTAINER_TYPES: [&str; 3] = ["container", "init_container", "ephemeral_container"];

pub const CONTAINER_STATES: [&str; 4] = ["created", "running", "exited", "unknown"];

pub const LIFECYCLES: [&str; 3] = ["sync", "terminating", "terminated"];

/// The waiting reasons that result from a failed start of a container (W10).
pub const START_ERRORS: [&str; 11] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "PostStartHookError",
    "RegistryUnavailable",
    "RunContainerError",
    "SignatureValidationFailed",
];

/// Returns the matching element of `set`, or `OTHER`.
pub fn closed(value: &str, set: &[&'static str]) -> &'static str {
    set.iter().find(|known| **known == value).copied().unwrap_or(OTHER)
}
