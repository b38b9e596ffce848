//! The status of a pod.

use super::container::ResourceRequirements;
use super::definition::kubernetes_types;
use super::scalars::{Quantity, Time};
use std::collections::BTreeMap;

kubernetes_types! {
    PodStatus {
        conditions: Option<Vec<PodCondition>> = "conditions",
        container_statuses: Option<Vec<ContainerStatus>> = "containerStatuses",
        ephemeral_container_statuses: Option<Vec<ContainerStatus>> = "ephemeralContainerStatuses",
        extended_resource_claim_status: Option<PodExtendedResourceClaimStatus> = "extendedResourceClaimStatus",
        host_ip: Option<String> = "hostIP",
        host_ips: Option<Vec<HostIP>> = "hostIPs",
        init_container_statuses: Option<Vec<ContainerStatus>> = "initContainerStatuses",
        message: Option<String> = "message",
        nominated_node_name: Option<String> = "nominatedNodeName",
        observed_generation: Option<i64> = "observedGeneration",
        phase: Option<String> = "phase",
        pod_ip: Option<String> = "podIP",
        pod_ips: Option<Vec<PodIP>> = "podIPs",
        qos_class: Option<String> = "qosClass",
        reason: Option<String> = "reason",
        resize: Option<String> = "resize",
        resource_claim_statuses: Option<Vec<PodResourceClaimStatus>> = "resourceClaimStatuses",
        start_time: Option<Time> = "startTime",
    }

    PodCondition {
        last_probe_time: Option<Time> = "lastProbeTime",
        last_transition_time: Option<Time> = "lastTransitionTime",
        message: Option<String> = "message",
        observed_generation: Option<i64> = "observedGeneration",
        reason: Option<String> = "reason",
        status: String = "status",
        type_: String = "type",
    }

    HostIP {
        ip: String = "ip",
    }

    PodIP {
        ip: String = "ip",
    }

    PodResourceClaimStatus {
        name: String = "name",
        resource_claim_name: Option<String> = "resourceClaimName",
    }

    PodExtendedResourceClaimStatus {
        request_mappings: Vec<ContainerExtendedResourceRequest> = "requestMappings",
        resource_claim_name: String = "resourceClaimName",
    }

    ContainerExtendedResourceRequest {
        container_name: String = "containerName",
        request_name: String = "requestName",
        resource_name: String = "resourceName",
    }

    ContainerStatus {
        allocated_resources: Option<BTreeMap<String, Quantity>> = "allocatedResources",
        allocated_resources_status: Option<Vec<ResourceStatus>> = "allocatedResourcesStatus",
        container_id: Option<String> = "containerID",
        image: String = "image",
        image_id: String = "imageID",
        last_state: Option<ContainerState> = "lastState",
        name: String = "name",
        ready: bool = "ready",
        resources: Option<ResourceRequirements> = "resources",
        restart_count: i32 = "restartCount",
        started: Option<bool> = "started",
        state: Option<ContainerState> = "state",
        stop_signal: Option<String> = "stopSignal",
        user: Option<ContainerUser> = "user",
        volume_mounts: Option<Vec<VolumeMountStatus>> = "volumeMounts",
    }

    ContainerState {
        running: Option<Box<ContainerStateRunning>> = "running",
        terminated: Option<Box<ContainerStateTerminated>> = "terminated",
        waiting: Option<Box<ContainerStateWaiting>> = "waiting",
    }

    ContainerStateRunning {
        started_at: Option<Time> = "startedAt",
    }

    ContainerStateTerminated {
        container_id: Option<String> = "containerID",
        exit_code: i32 = "exitCode",
        finished_at: Option<Time> = "finishedAt",
        message: Option<String> = "message",
        reason: Option<String> = "reason",
        signal: Option<i32> = "signal",
        started_at: Option<Time> = "startedAt",
    }

    ContainerStateWaiting {
        message: Option<String> = "message",
        reason: Option<String> = "reason",
    }

    ContainerUser {
        linux: Option<LinuxContainerUser> = "linux",
    }

    LinuxContainerUser {
        gid: i64 = "gid",
        supplemental_groups: Option<Vec<i64>> = "supplementalGroups",
        uid: i64 = "uid",
    }

    ResourceStatus {
        name: String = "name",
        resources: Option<Vec<ResourceHealth>> = "resources",
    }

    ResourceHealth {
        health: Option<String> = "health",
        resource_id: String = "resourceID",
    }

    VolumeMountStatus {
        mount_path: String = "mountPath",
        name: String = "name",
        read_only: Option<bool> = "readOnly",
        recursive_read_only: Option<String> = "recursiveReadOnly",
    }
}
