//! The containers of a pod.

use super::definition::kubernetes_types;
use super::environment::{EnvFromSource, EnvVar};
use super::field::IntOrString;
use super::scalars::Quantity;
use super::security::SecurityContext;
use std::collections::BTreeMap;

kubernetes_types! {
    Container {
        args: Option<Vec<String>> = "args",
        command: Option<Vec<String>> = "command",
        env: Option<Vec<EnvVar>> = "env",
        env_from: Option<Vec<EnvFromSource>> = "envFrom",
        image: Option<String> = "image",
        image_pull_policy: Option<String> = "imagePullPolicy",
        lifecycle: Option<Box<Lifecycle>> = "lifecycle",
        liveness_probe: Option<Box<Probe>> = "livenessProbe",
        name: String = "name",
        ports: Option<Vec<ContainerPort>> = "ports",
        readiness_probe: Option<Box<Probe>> = "readinessProbe",
        resize_policy: Option<Vec<ContainerResizePolicy>> = "resizePolicy",
        resources: Option<Box<ResourceRequirements>> = "resources",
        restart_policy: Option<String> = "restartPolicy",
        restart_policy_rules: Option<Vec<ContainerRestartRule>> = "restartPolicyRules",
        security_context: Option<Box<SecurityContext>> = "securityContext",
        startup_probe: Option<Box<Probe>> = "startupProbe",
        stdin: Option<bool> = "stdin",
        stdin_once: Option<bool> = "stdinOnce",
        termination_message_path: Option<String> = "terminationMessagePath",
        termination_message_policy: Option<String> = "terminationMessagePolicy",
        tty: Option<bool> = "tty",
        volume_devices: Option<Vec<VolumeDevice>> = "volumeDevices",
        volume_mounts: Option<Vec<VolumeMount>> = "volumeMounts",
        working_dir: Option<String> = "workingDir",
    }

    EphemeralContainer {
        args: Option<Vec<String>> = "args",
        command: Option<Vec<String>> = "command",
        env: Option<Vec<EnvVar>> = "env",
        env_from: Option<Vec<EnvFromSource>> = "envFrom",
        image: Option<String> = "image",
        image_pull_policy: Option<String> = "imagePullPolicy",
        lifecycle: Option<Box<Lifecycle>> = "lifecycle",
        liveness_probe: Option<Box<Probe>> = "livenessProbe",
        name: String = "name",
        ports: Option<Vec<ContainerPort>> = "ports",
        readiness_probe: Option<Box<Probe>> = "readinessProbe",
        resize_policy: Option<Vec<ContainerResizePolicy>> = "resizePolicy",
        resources: Option<Box<ResourceRequirements>> = "resources",
        restart_policy: Option<String> = "restartPolicy",
        restart_policy_rules: Option<Vec<ContainerRestartRule>> = "restartPolicyRules",
        security_context: Option<Box<SecurityContext>> = "securityContext",
        startup_probe: Option<Box<Probe>> = "startupProbe",
        stdin: Option<bool> = "stdin",
        stdin_once: Option<bool> = "stdinOnce",
        target_container_name: Option<String> = "targetContainerName",
        termination_message_path: Option<String> = "terminationMessagePath",
        termination_message_policy: Option<String> = "terminationMessagePolicy",
        tty: Option<bool> = "tty",
        volume_devices: Option<Vec<VolumeDevice>> = "volumeDevices",
        volume_mounts: Option<Vec<VolumeMount>> = "volumeMounts",
        working_dir: Option<String> = "workingDir",
    }

    ContainerPort {
        container_port: i32 = "containerPort",
        host_ip: Option<String> = "hostIP",
        host_port: Option<i32> = "hostPort",
        name: Option<String> = "name",
        protocol: Option<String> = "protocol",
    }

    ContainerResizePolicy {
        resource_name: String = "resourceName",
        restart_policy: String = "restartPolicy",
    }

    ContainerRestartRule {
        action: String = "action",
        exit_codes: Option<ContainerRestartRuleOnExitCodes> = "exitCodes",
    }

    ContainerRestartRuleOnExitCodes {
        operator: String = "operator",
        values: Option<Vec<i32>> = "values",
    }

    ResourceRequirements {
        claims: Option<Vec<ResourceClaim>> = "claims",
        limits: Option<BTreeMap<String, Quantity>> = "limits",
        requests: Option<BTreeMap<String, Quantity>> = "requests",
    }

    ResourceClaim {
        name: String = "name",
        request: Option<String> = "request",
    }

    VolumeDevice {
        device_path: String = "devicePath",
        name: String = "name",
    }

    VolumeMount {
        mount_path: String = "mountPath",
        mount_propagation: Option<String> = "mountPropagation",
        name: String = "name",
        read_only: Option<bool> = "readOnly",
        recursive_read_only: Option<String> = "recursiveReadOnly",
        sub_path: Option<String> = "subPath",
        sub_path_expr: Option<String> = "subPathExpr",
    }

    Lifecycle {
        post_start: Option<Box<LifecycleHandler>> = "postStart",
        pre_stop: Option<Box<LifecycleHandler>> = "preStop",
        stop_signal: Option<String> = "stopSignal",
    }

    LifecycleHandler {
        exec: Option<Box<ExecAction>> = "exec",
        http_get: Option<Box<HTTPGetAction>> = "httpGet",
        sleep: Option<Box<SleepAction>> = "sleep",
        tcp_socket: Option<Box<TCPSocketAction>> = "tcpSocket",
    }

    Probe {
        exec: Option<Box<ExecAction>> = "exec",
        failure_threshold: Option<i32> = "failureThreshold",
        grpc: Option<Box<GRPCAction>> = "grpc",
        http_get: Option<Box<HTTPGetAction>> = "httpGet",
        initial_delay_seconds: Option<i32> = "initialDelaySeconds",
        period_seconds: Option<i32> = "periodSeconds",
        success_threshold: Option<i32> = "successThreshold",
        tcp_socket: Option<Box<TCPSocketAction>> = "tcpSocket",
        termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        timeout_seconds: Option<i32> = "timeoutSeconds",
    }

    ExecAction {
        command: Option<Vec<String>> = "command",
    }

    GRPCAction {
        port: i32 = "port",
        service: Option<String> = "service",
    }

    HTTPGetAction {
        host: Option<String> = "host",
        http_headers: Option<Vec<HTTPHeader>> = "httpHeaders",
        path: Option<String> = "path",
        port: IntOrString = "port",
        scheme: Option<String> = "scheme",
    }

    HTTPHeader {
        name: String = "name",
        value: String = "value",
    }

    SleepAction {
        seconds: i64 = "seconds",
    }

    TCPSocketAction {
        host: Option<String> = "host",
        port: IntOrString = "port",
    }
}
