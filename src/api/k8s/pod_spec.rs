//! The spec of a pod, without its containers and volumes.

use super::container::{Container, EphemeralContainer, ResourceRequirements};
use super::definition::kubernetes_types;
use super::metadata::LocalObjectReference;
use super::placement::{Affinity, Toleration, TopologySpreadConstraint};
use super::scalars::Quantity;
use super::security::PodSecurityContext;
use super::volume::Volume;
use std::collections::BTreeMap;

kubernetes_types! {
    PodSpec {
        active_deadline_seconds: Option<i64> = "activeDeadlineSeconds",
        affinity: Option<Box<Affinity>> = "affinity",
        automount_service_account_token: Option<bool> = "automountServiceAccountToken",
        containers: Vec<Container> = "containers",
        dns_config: Option<Box<PodDNSConfig>> = "dnsConfig",
        dns_policy: Option<String> = "dnsPolicy",
        enable_service_links: Option<bool> = "enableServiceLinks",
        ephemeral_containers: Option<Vec<EphemeralContainer>> = "ephemeralContainers",
        host_aliases: Option<Vec<HostAlias>> = "hostAliases",
        host_ipc: Option<bool> = "hostIPC",
        host_network: Option<bool> = "hostNetwork",
        host_pid: Option<bool> = "hostPID",
        host_users: Option<bool> = "hostUsers",
        hostname: Option<String> = "hostname",
        hostname_override: Option<String> = "hostnameOverride",
        image_pull_secrets: Option<Vec<LocalObjectReference>> = "imagePullSecrets",
        init_containers: Option<Vec<Container>> = "initContainers",
        node_name: Option<String> = "nodeName",
        node_selector: Option<BTreeMap<String, String>> = "nodeSelector",
        os: Option<Box<PodOS>> = "os",
        overhead: Option<BTreeMap<String, Quantity>> = "overhead",
        preemption_policy: Option<String> = "preemptionPolicy",
        priority: Option<i32> = "priority",
        priority_class_name: Option<String> = "priorityClassName",
        readiness_gates: Option<Vec<PodReadinessGate>> = "readinessGates",
        resource_claims: Option<Vec<PodResourceClaim>> = "resourceClaims",
        resources: Option<Box<ResourceRequirements>> = "resources",
        restart_policy: Option<String> = "restartPolicy",
        runtime_class_name: Option<String> = "runtimeClassName",
        scheduler_name: Option<String> = "schedulerName",
        scheduling_gates: Option<Vec<PodSchedulingGate>> = "schedulingGates",
        security_context: Option<Box<PodSecurityContext>> = "securityContext",
        service_account: Option<String> = "serviceAccount",
        service_account_name: Option<String> = "serviceAccountName",
        set_hostname_as_fqdn: Option<bool> = "setHostnameAsFQDN",
        share_process_namespace: Option<bool> = "shareProcessNamespace",
        subdomain: Option<String> = "subdomain",
        termination_grace_period_seconds: Option<i64> = "terminationGracePeriodSeconds",
        tolerations: Option<Vec<Toleration>> = "tolerations",
        topology_spread_constraints: Option<Vec<TopologySpreadConstraint>> = "topologySpreadConstraints",
        volumes: Option<Vec<Volume>> = "volumes",
    }

    PodDNSConfig {
        nameservers: Option<Vec<String>> = "nameservers",
        options: Option<Vec<PodDNSConfigOption>> = "options",
        searches: Option<Vec<String>> = "searches",
    }

    PodDNSConfigOption {
        name: Option<String> = "name",
        value: Option<String> = "value",
    }

    HostAlias {
        hostnames: Option<Vec<String>> = "hostnames",
        ip: String = "ip",
    }

    PodOS {
        name: String = "name",
    }

    PodReadinessGate {
        condition_type: String = "conditionType",
    }

    PodResourceClaim {
        name: String = "name",
        resource_claim_name: Option<String> = "resourceClaimName",
        resource_claim_template_name: Option<String> = "resourceClaimTemplateName",
    }

    PodSchedulingGate {
        name: String = "name",
    }
}
