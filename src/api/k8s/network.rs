//! Services and their endpoints: `v1` and `discovery.k8s.io/v1`.

use super::definition::kubernetes_types;
use super::field::IntOrString;
use super::metadata::{ObjectMeta, ObjectReference};
use super::scalars::Time;
use std::collections::BTreeMap;

kubernetes_types! {
    Service of "v1" {
        metadata: ObjectMeta = "metadata",
        spec: Option<ServiceSpec> = "spec",
        status: Option<ServiceStatus> = "status",
    }

    ServiceSpec {
        allocate_load_balancer_node_ports: Option<bool> = "allocateLoadBalancerNodePorts",
        cluster_ip: Option<String> = "clusterIP",
        cluster_ips: Option<Vec<String>> = "clusterIPs",
        external_ips: Option<Vec<String>> = "externalIPs",
        external_name: Option<String> = "externalName",
        external_traffic_policy: Option<String> = "externalTrafficPolicy",
        health_check_node_port: Option<i32> = "healthCheckNodePort",
        internal_traffic_policy: Option<String> = "internalTrafficPolicy",
        ip_families: Option<Vec<String>> = "ipFamilies",
        ip_family_policy: Option<String> = "ipFamilyPolicy",
        load_balancer_class: Option<String> = "loadBalancerClass",
        load_balancer_ip: Option<String> = "loadBalancerIP",
        load_balancer_source_ranges: Option<Vec<String>> = "loadBalancerSourceRanges",
        ports: Option<Vec<ServicePort>> = "ports",
        publish_not_ready_addresses: Option<bool> = "publishNotReadyAddresses",
        selector: Option<BTreeMap<String, String>> = "selector",
        session_affinity: Option<String> = "sessionAffinity",
        session_affinity_config: Option<SessionAffinityConfig> = "sessionAffinityConfig",
        traffic_distribution: Option<String> = "trafficDistribution",
        type_: Option<String> = "type",
    }

    ServicePort {
        app_protocol: Option<String> = "appProtocol",
        name: Option<String> = "name",
        node_port: Option<i32> = "nodePort",
        port: i32 = "port",
        protocol: Option<String> = "protocol",
        target_port: Option<IntOrString> = "targetPort",
    }

    SessionAffinityConfig {
        client_ip: Option<ClientIPConfig> = "clientIP",
    }

    ClientIPConfig {
        timeout_seconds: Option<i32> = "timeoutSeconds",
    }

    ServiceStatus {
        conditions: Option<Vec<Condition>> = "conditions",
        load_balancer: Option<LoadBalancerStatus> = "loadBalancer",
    }

    Condition {
        last_transition_time: Time = "lastTransitionTime",
        message: String = "message",
        observed_generation: Option<i64> = "observedGeneration",
        reason: String = "reason",
        status: String = "status",
        type_: String = "type",
    }

    LoadBalancerStatus {
        ingress: Option<Vec<LoadBalancerIngress>> = "ingress",
    }

    LoadBalancerIngress {
        hostname: Option<String> = "hostname",
        ip: Option<String> = "ip",
        ip_mode: Option<String> = "ipMode",
        ports: Option<Vec<PortStatus>> = "ports",
    }

    PortStatus {
        error: Option<String> = "error",
        port: i32 = "port",
        protocol: String = "protocol",
    }

    EndpointSlice of "discovery.k8s.io/v1" {
        address_type: String = "addressType",
        endpoints: Vec<Endpoint> = "endpoints",
        metadata: ObjectMeta = "metadata",
        ports: Option<Vec<EndpointPort>> = "ports",
    }

    Endpoint {
        addresses: Vec<String> = "addresses",
        conditions: Option<EndpointConditions> = "conditions",
        deprecated_topology: Option<BTreeMap<String, String>> = "deprecatedTopology",
        hints: Option<EndpointHints> = "hints",
        hostname: Option<String> = "hostname",
        node_name: Option<String> = "nodeName",
        target_ref: Option<ObjectReference> = "targetRef",
        zone: Option<String> = "zone",
    }

    EndpointConditions {
        ready: Option<bool> = "ready",
        serving: Option<bool> = "serving",
        terminating: Option<bool> = "terminating",
    }

    EndpointHints {
        for_nodes: Option<Vec<ForNode>> = "forNodes",
        for_zones: Option<Vec<ForZone>> = "forZones",
    }

    ForNode {
        name: String = "name",
    }

    ForZone {
        name: String = "name",
    }

    EndpointPort {
        app_protocol: Option<String> = "appProtocol",
        name: Option<String> = "name",
        port: Option<i32> = "port",
        protocol: Option<String> = "protocol",
    }
}
