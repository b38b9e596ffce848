//! The defaults of Kubernetes for Services and EndpointSlices.
//!
//! The engine chooses what depends on the machine and on other objects: addresses, families, ports of the node.

use crate::api::defaults::{self, default_text};
use crate::api::k8s::{self, ClientIPConfig, IntOrString, ServicePort, ServiceSpec, SessionAffinityConfig};

/// How long a client keeps its pod, in seconds.
const AFFINITY_TIMEOUT: i32 = 10_800;

/// Completes a Service. Existing values stay, except for a `sessionAffinityConfig` that has no effect.
pub(crate) fn service(service: &mut k8s::Service) {
    defaults::namespace(&mut service.metadata);
    let spec = service.spec.get_or_insert_default();
    default_text(&mut spec.type_, "ClusterIP");
    affinity(spec);
    cluster_ips(spec);
    spec.ports.iter_mut().flatten().for_each(port);
    if externally_accessible(spec) {
        default_text(&mut spec.external_traffic_policy, "Cluster");
    }
    let type_ = spec.type_.as_deref().unwrap_or_default();
    if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&type_) {
        spec.internal_traffic_policy.get_or_insert_with(|| "Cluster".to_owned());
    }
    if type_ == "LoadBalancer" {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
    }
}

/// Reports whether the type or the addresses of a Service let other machines reach it.
pub(crate) fn externally_accessible(spec: &ServiceSpec) -> bool {
    match spec.type_.as_deref() {
        Some("NodePort" | "LoadBalancer") => true,
        Some("ClusterIP") => spec.external_ips.as_ref().is_some_and(|addresses| !addresses.is_empty()),
        _ => false,
    }
}

fn affinity(spec: &mut ServiceSpec) {
    default_text(&mut spec.session_affinity, "None");
    match spec.session_affinity.as_deref() {
        Some("None") => spec.session_affinity_config = None,
        Some("ClientIP") => {
            let config: &mut SessionAffinityConfig = spec.session_affinity_config.get_or_insert_default();
            let client: &mut ClientIPConfig = config.client_ip.get_or_insert_default();
            client.timeout_seconds.get_or_insert(AFFINITY_TIMEOUT);
        }
        _ => {}
    }
}

/// Completes `clusterIP` and `clusterIPs` from each other.
fn cluster_ips(spec: &mut ServiceSpec) {
    spec.cluster_ip.take_if(|address| address.is_empty());
    spec.cluster_ips.take_if(|addresses| addresses.is_empty());
    match (&spec.cluster_ip, &spec.cluster_ips) {
        (Some(primary), None) => spec.cluster_ips = Some(vec![primary.clone()]),
        (None, Some(addresses)) => spec.cluster_ip = addresses.first().cloned(),
        _ => {}
    }
}

fn port(port: &mut ServicePort) {
    default_text(&mut port.protocol, "TCP");
    let is_missing = match &port.target_port {
        None => true,
        Some(IntOrString::Int(number)) => *number == 0,
        Some(IntOrString::String(name)) => name.is_empty(),
    };
    if is_missing {
        port.target_port = Some(IntOrString::Int(port.port));
    }
}

pub(crate) fn endpoint_slice(slice: &mut k8s::EndpointSlice) {
    defaults::namespace(&mut slice.metadata);
    for port in slice.ports.iter_mut().flatten() {
        port.name.get_or_insert_default();
        default_text(&mut port.protocol, "TCP");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a completed spec.
    fn completed(spec: Value) -> Value {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
        let mut object: k8s::Service = k8s::strict(&object).unwrap();
        service(&mut object);
        assert_eq!(object.metadata.namespace.as_deref(), Some("default"));
        serde_json::to_value(object).unwrap()["spec"].take()
    }

    #[test]
    fn a_service_gets_the_defaults_of_kubernetes() {
        let port = json!({"port": 80, "protocol": "TCP", "targetPort": 80});
        assert_eq!(
            completed(json!({"ports": [{"port": 80}, {"port": 80, "targetPort": 0}, {"port": 80, "targetPort": ""}]})),
            json!({"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "ports": [port, port, port]})
        );
        assert_eq!(
            completed(json!({"type": "NodePort"})),
            json!({"type": "NodePort", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster"})
        );
        assert_eq!(
            completed(json!({"type": "LoadBalancer"})),
            json!({"type": "LoadBalancer", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true})
        );
        assert_eq!(
            completed(json!({"type": "ExternalName"})),
            json!({"type": "ExternalName", "sessionAffinity": "None"})
        );
        assert_eq!(completed(json!({"externalIPs": ["192.0.2.1"]}))["externalTrafficPolicy"], "Cluster");
        let mut bare = k8s::Service::default();
        service(&mut bare);
        assert_eq!(bare.spec.unwrap().type_.as_deref(), Some("ClusterIP"));
    }

    #[test]
    fn values_of_the_manifest_stay() {
        let spec = json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}, "internalTrafficPolicy": "Local",
            "externalTrafficPolicy": "Local", "allocateLoadBalancerNodePorts": false,
            "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 1, "protocol": "UDP", "targetPort": "dns"}]});
        assert_eq!(completed(spec.clone()), spec);
    }

    #[test]
    fn the_affinity_of_clients_has_a_time() {
        let default = json!({"clientIP": {"timeoutSeconds": 10800}});
        for config in [json!(null), json!({}), json!({"clientIP": {}})] {
            let spec = completed(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}));
            assert_eq!(spec["sessionAffinityConfig"], default);
        }
        assert_eq!(completed(json!({"sessionAffinityConfig": default})).get("sessionAffinityConfig"), None);
    }

    #[test]
    fn the_first_address_is_the_primary_one() {
        for spec in [json!({"clusterIP": "None"}), json!({"clusterIPs": ["None"]})] {
            let spec = completed(spec);
            assert_eq!((&spec["clusterIP"], &spec["clusterIPs"]), (&json!("None"), &json!(["None"])));
        }
        let spec = completed(json!({"clusterIP": "", "clusterIPs": ["10.0.0.1", "fd00::1"]}));
        assert_eq!((&spec["clusterIP"], &spec["clusterIPs"][1]), (&json!("10.0.0.1"), &json!("fd00::1")));
        let spec = completed(json!({"clusterIP": "", "clusterIPs": []}));
        assert_eq!((spec.get("clusterIP"), spec.get("clusterIPs")), (None, None));
    }

    #[test]
    fn a_slice_gets_the_defaults_of_kubernetes() {
        let mut slice: k8s::EndpointSlice = k8s::strict(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a"},
            "addressType": "IPv4", "endpoints": [], "ports": [{"port": 80}, {"name": "dns", "protocol": "UDP"}],
        }))
        .unwrap();
        endpoint_slice(&mut slice);
        assert_eq!(slice.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(
            serde_json::to_value(slice.ports).unwrap(),
            json!([{"name": "", "port": 80, "protocol": "TCP"}, {"name": "dns", "protocol": "UDP"}])
        );
    }
}
