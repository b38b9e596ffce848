//! The methods that the client calls, each with its gRPC path and the label under which a kubelet counts it
//! (`kubelet_runtime_operations_total{operation_type}`). A kubelet has no label for the last two.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    pub path: &'static str,
    pub operation_type: &'static str,
    /// See `Call::header`.
    pub header: Option<(&'static str, &'static str)>,
}

const fn method(path: &'static str, operation_type: &'static str) -> Method {
    Method { path, operation_type, header: None }
}

/// A method of containerd's own API, in the containerd namespace of its CRI plugin.
const fn containerd(path: &'static str, operation_type: &'static str) -> Method {
    Method { path, operation_type, header: Some(("containerd-namespace", "k8s.io")) }
}

pub const VERSION: Method = method("/runtime.v1.RuntimeService/Version", "version");
pub const STATUS: Method = method("/runtime.v1.RuntimeService/Status", "status");
pub const RUNTIME_CONFIG: Method = method("/runtime.v1.RuntimeService/RuntimeConfig", "runtime_config");
pub const LIST_POD_SANDBOX: Method = method("/runtime.v1.RuntimeService/ListPodSandbox", "list_podsandbox");
pub const POD_SANDBOX_STATUS: Method = method("/runtime.v1.RuntimeService/PodSandboxStatus", "podsandbox_status");
pub const RUN_POD_SANDBOX: Method = method("/runtime.v1.RuntimeService/RunPodSandbox", "run_podsandbox");
pub const STOP_POD_SANDBOX: Method = method("/runtime.v1.RuntimeService/StopPodSandbox", "stop_podsandbox");
pub const REMOVE_POD_SANDBOX: Method = method("/runtime.v1.RuntimeService/RemovePodSandbox", "remove_podsandbox");
pub const LIST_CONTAINERS: Method = method("/runtime.v1.RuntimeService/ListContainers", "list_containers");
pub const CONTAINER_STATUS: Method = method("/runtime.v1.RuntimeService/ContainerStatus", "container_status");
pub const CREATE_CONTAINER: Method = method("/runtime.v1.RuntimeService/CreateContainer", "create_container");
pub const START_CONTAINER: Method = method("/runtime.v1.RuntimeService/StartContainer", "start_container");
pub const STOP_CONTAINER: Method = method("/runtime.v1.RuntimeService/StopContainer", "stop_container");
pub const UPDATE_CONTAINER_RESOURCES: Method =
    method("/runtime.v1.RuntimeService/UpdateContainerResources", "update_container");
pub const REOPEN_CONTAINER_LOG: Method =
    method("/runtime.v1.RuntimeService/ReopenContainerLog", "reopen_container_log");
pub const REMOVE_CONTAINER: Method = method("/runtime.v1.RuntimeService/RemoveContainer", "remove_container");
pub const EXEC_SYNC: Method = method("/runtime.v1.RuntimeService/ExecSync", "exec_sync");
pub const EXEC: Method = method("/runtime.v1.RuntimeService/Exec", "exec");
pub const ATTACH: Method = method("/runtime.v1.RuntimeService/Attach", "attach");
pub const PORT_FORWARD: Method = method("/runtime.v1.RuntimeService/PortForward", "port_forward");
pub const LIST_CONTAINER_STATS: Method =
    method("/runtime.v1.RuntimeService/ListContainerStats", "list_container_stats");
pub const IMAGE_STATUS: Method = method("/runtime.v1.ImageService/ImageStatus", "image_status");
pub const LIST_IMAGES: Method = method("/runtime.v1.ImageService/ListImages", "list_images");
pub const IMAGE_FS_INFO: Method = method("/runtime.v1.ImageService/ImageFsInfo", "image_fs_info");
pub const REMOVE_IMAGE: Method = method("/runtime.v1.ImageService/RemoveImage", "remove_image");
pub const PULL_IMAGE: Method = method("/runtime.v1.ImageService/PullImage", "pull_image");
pub const KILL_TASK: Method = containerd("/containerd.services.tasks.v1.Tasks/Kill", "kill_task");
pub const DELETE_TASK: Method = containerd("/containerd.services.tasks.v1.Tasks/Delete", "delete_task");
