//! Services and their endpoints as objects of the API.

use super::endpoints::{EndpointState, ServiceEndpoint};
use super::entry::ServiceEntry;
use super::wanted::protocol_and_port;
use crate::api::address_range::Family;
use crate::api::hash::fnv1a;
use crate::api::k8s::ServicePort;
use crate::api::names::{FullName, Uid};
use crate::api::network_object::{NetworkObject, SERVICE_NAME};
use crate::api::uid as uids;
use crate::api::workload::template;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The label of the EndpointSlices of services with a selector, with the value of a cluster's controller.
const MANAGED_BY: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");
const IS_HEADLESS: &str = "service.kubernetes.io/headless";

/// Returns the UID of an object, which depends on its name alone.
pub fn uid(kind: &str, name: &FullName) -> Uid {
    Uid::from(uids::of_name(kind, &name.namespace, &name.name))
}

/// Returns a service with its addresses and its status.
pub fn service(name: &FullName, entry: &ServiceEntry) -> Value {
    let mut shown = json!(entry.service());
    shown["metadata"]["uid"] = uid("Service", name).to_string().into();
    let spec = &mut shown["spec"];
    let allocation = &entry.allocation;
    if let Some(first) = allocation.addresses.first() {
        let families: Vec<Family> = allocation.addresses.iter().map(|address| Family::of(*address)).collect();
        spec["clusterIP"] = first.to_string().into();
        spec["clusterIPs"] = json!(allocation.addresses);
        spec["ipFamilies"] = families.iter().map(|family| family.name()).collect();
        let policy = if families.len() > 1 { "PreferDualStack" } else { "SingleStack" };
        set_default(spec, "ipFamilyPolicy", policy.into());
    } else if entry.is_headless() {
        set_default(spec, "clusterIPs", json!(["None"]));
    }
    let ports = entry.service().spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    for (i, port) in ports.enumerate() {
        let node_port = protocol_and_port(port).and_then(|(protocol, port)| allocation.node_port(protocol, port));
        if let Some(node_port) = node_port {
            spec["ports"][i]["nodePort"] = node_port.into();
        }
    }
    shown["status"] = json!({ "loadBalancer": {} });
    shown
}

fn set_default(object: &mut Value, field: &str, value: Value) {
    if object.get(field).is_none_or(Value::is_null) {
        object[field] = value;
    }
}

/// Returns an EndpointSlice of a manifest.
pub fn manifest_slice(object: &NetworkObject) -> Option<Value> {
    let mut shown = json!(object.slice()?);
    shown["metadata"]["uid"] = uid("EndpointSlice", &object.name).to_string().into();
    Some(shown)
}

/// Returns the EndpointSlices of a service with a selector, by their names: one for each family and for all endpoints
/// with the same ports.
pub fn slices(name: &FullName, entry: &ServiceEntry, node_name: &str) -> BTreeMap<String, Value> {
    let mut groups: BTreeMap<(Family, Vec<Option<u16>>), Vec<Value>> = BTreeMap::new();
    for endpoint in &entry.endpoints {
        for family in families(entry) {
            if let Some(address) = endpoint.address(family) {
                let shown = slice_endpoint(endpoint, &address.to_string(), &name.namespace, node_name);
                groups.entry((family, endpoint.ports.clone())).or_default().push(shown);
            }
        }
    }
    if groups.is_empty() {
        let family = families(entry).first().copied().unwrap_or(Family::V4);
        groups.insert((family, Vec::new()), Vec::new());
    }
    let slice = |((family, ports), endpoints): ((Family, Vec<Option<u16>>), Vec<Value>)| {
        let hash = fnv1a(format!("{family:?} {ports:?}").as_bytes());
        let own = format!("{}-{}", name.name, template::suffix(u64::from(hash) * 0x1_0000_0001));
        let shown = slice(name, entry, &own, family, &ports, endpoints);
        (own, shown)
    };
    groups.into_iter().map(slice).collect()
}

/// Returns the families of the service's addresses. A headless service has those of its endpoints.
fn families(entry: &ServiceEntry) -> Vec<Family> {
    let of_addresses: Vec<Family> = entry.allocation.addresses.iter().map(|address| Family::of(*address)).collect();
    if of_addresses.is_empty() { Family::ALL.into() } else { of_addresses }
}

fn slice(
    name: &FullName,
    entry: &ServiceEntry,
    own: &str,
    family: Family,
    ports: &[Option<u16>],
    endpoints: Vec<Value>,
) -> Value {
    let own_name = FullName::new(&name.namespace, own);
    let mut labels: Map<String, Value> = Map::new();
    labels.extend(entry.service().metadata.labels.iter().flatten().map(|(k, v)| (k.clone(), v.as_str().into())));
    labels.insert(MANAGED_BY.0.to_owned(), MANAGED_BY.1.into());
    labels.insert(SERVICE_NAME.to_owned(), (*name.name).into());
    if entry.is_headless() {
        labels.insert(IS_HEADLESS.to_owned(), "".into());
    }
    let of_service = entry.service().spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports: Vec<Value> = of_service
        .zip(ports)
        .filter_map(|(port, number)| {
            Some(json!({
                "name": port.name.as_deref().unwrap_or_default(),
                "port": (*number)?,
                "protocol": port.protocol,
            }))
        })
        .collect();
    json!({
        "metadata": {
            "name": own,
            "generateName": format!("{}-", name.name),
            "namespace": *name.namespace,
            "uid": uid("EndpointSlice", &own_name).to_string(),
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Service",
                "name": *name.name,
                "uid": uid("Service", name).to_string(),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "addressType": family.name(),
        "endpoints": endpoints,
        "ports": ports,
    })
}

fn slice_endpoint(endpoint: &ServiceEndpoint, address: &str, namespace: &str, node_name: &str) -> Value {
    let (ready, serving, terminating) = match endpoint.state {
        EndpointState::Ready => (true, true, false),
        EndpointState::NotReady => (false, false, false),
        EndpointState::Terminating { serves } => (false, serves, true),
    };
    let mut shown = json!({
        "addresses": [address],
        "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
    });
    if let Some(target) = target(endpoint, namespace) {
        shown["targetRef"] = target;
        shown["nodeName"] = node_name.into();
    }
    if let Some(hostname) = &endpoint.hostname {
        shown["hostname"] = (**hostname).into();
    }
    shown
}

fn target(endpoint: &ServiceEndpoint, namespace: &str) -> Option<Value> {
    let pod = endpoint.pod.as_ref()?;
    Some(json!({ "kind": "Pod", "namespace": namespace, "name": *pod.name, "uid": pod.uid.to_string() }))
}

/// The endpoints with the same ports, as parts of Endpoints.
#[derive(Default)]
struct Subset {
    ready: Vec<Value>,
    not_ready: Vec<Value>,
}

impl Subset {
    /// Returns the subset. `numbers`: the ports of the endpoints. None: it has no addresses.
    fn shown(self, entry: &ServiceEntry, numbers: Vec<Option<u16>>) -> Option<Value> {
        let mut subset = Map::new();
        for (field, addresses) in [("addresses", self.ready), ("notReadyAddresses", self.not_ready)] {
            if !addresses.is_empty() {
                subset.insert(field.to_owned(), addresses.into());
            }
        }
        if subset.is_empty() {
            return None;
        }
        let of_service = entry.service().spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let shown = |(port, number): (&ServicePort, Option<u16>)| {
            let mut shown = json!({ "port": number?, "protocol": port.protocol });
            if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                shown["name"] = name.into();
            }
            Some(shown)
        };
        let ports: Vec<Value> = of_service.zip(numbers).filter_map(shown).collect();
        subset.insert("ports".to_owned(), ports.into());
        Some(Value::Object(subset))
    }
}

/// Returns the Endpoints of a service with a selector: an older form of its EndpointSlices. It has the addresses of one
/// family, and no endpoint that ends.
pub fn endpoints(name: &FullName, entry: &ServiceEntry, node_name: &str) -> Value {
    let family = families(entry).first().copied().unwrap_or(Family::V4);
    let mut groups: BTreeMap<Vec<Option<u16>>, Subset> = BTreeMap::new();
    for endpoint in &entry.endpoints {
        let Some(address) = endpoint.address(family) else { continue };
        let mut shown = json!({ "ip": address.to_string() });
        if let Some(target) = target(endpoint, &name.namespace) {
            shown["targetRef"] = target;
            shown["nodeName"] = node_name.into();
        }
        if let Some(hostname) = &endpoint.hostname {
            shown["hostname"] = (**hostname).into();
        }
        let subset = groups.entry(endpoint.ports.clone()).or_default();
        match endpoint.state {
            EndpointState::Ready => subset.ready.push(shown),
            EndpointState::NotReady => subset.not_ready.push(shown),
            EndpointState::Terminating { .. } => {}
        }
    }
    let subsets: Vec<Value> = groups.into_iter().filter_map(|(numbers, subset)| subset.shown(entry, numbers)).collect();
    let labels = entry.service().metadata.labels.clone().unwrap_or_default();
    json!({
        "metadata": {
            "name": *name.name,
            "namespace": *name.namespace,
            "uid": uid("Endpoints", name).to_string(),
            "labels": labels,
        },
        "subsets": subsets,
    })
}
