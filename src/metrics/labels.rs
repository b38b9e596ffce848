//! The values that labels can have. Every label's value comes from one of these sets, whatever reaches the registry, so the
//! number of series has a bound; the node's name alone is from outside, and there is one of it.

/// Stands for everything that is in no set; a kubelet's own word for a reason that it does not list.
pub const OTHER: &str = "Other";

/// Calls of the CRI by a kubelet's names (its `instrumented_services.go`), those that wherry does not make included; and two of
/// containerd's own.
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

/// Work of a pod's worker.
pub const WORKER_OPERATIONS: [&str; 5] = ["create", "update", "sync", "kill", "terminated"];

pub const CGROUP_OPERATIONS: [&str; 3] = ["create", "update", "destroy"];

pub const CONTAINER_TYPES: [&str; 3] = ["container", "init_container", "ephemeral_container"];

pub const LIFECYCLES: [&str; 3] = ["sync", "terminating", "terminated"];

/// Why a container's start failed: the waiting reason that comes of it (W10).
pub const START_ERRORS: [&str; 9] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "PostStartHookError",
    "RunContainerError",
];

/// `value` as it stands in `set`, or `OTHER`.
pub fn closed(value: &str, set: &[&'static str]) -> &'static str {
    set.iter().find(|known| **known == value).copied().unwrap_or(OTHER)
}
