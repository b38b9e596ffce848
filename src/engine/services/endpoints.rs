//! The endpoints of services: the pods that their selectors choose, or the entries of EndpointSlices.

use crate::api::address_range::Family;
use crate::api::k8s::{self, IntOrString};
use crate::api::names::{FullName, Uid};
use crate::api::network_object::{NetworkObject, SERVICE_NAME};
use crate::api::pod::Pod;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

/// A pod that can be an endpoint: it has not ended, and has addresses or is in the network of the machine.
#[derive(Clone, Debug)]
pub struct ServicePod<'a> {
    pub pod: &'a Pod,
    /// The first of each family is used.
    pub addresses: Vec<IpAddr>,
    pub is_ready: bool,
    pub is_terminating: bool,
}

/// One place behind a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceEndpoint {
    /// Not empty. With more than one of a family, the first one gets the connections.
    pub addresses: Vec<IpAddr>,
    pub state: EndpointState,
    /// The ports behind those of the service, in their order. None: the endpoint has no such port.
    pub ports: Vec<Option<u16>>,
    pub pod: Option<EndpointPod>,
    /// The name of the endpoint below that of its headless service.
    pub hostname: Option<Rc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPod {
    pub name: Rc<str>,
    pub uid: Uid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    Ready,
    NotReady,
    /// It gets connections only if no other endpoint is ready. `serves`: it is still ready.
    Terminating {
        serves: bool,
    },
}

impl ServiceEndpoint {
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| Family::of(*address) == family)
    }
}

/// Returns the endpoints that get connections: those that are ready, or else those that end and are still ready, as in
/// kube-proxy.
pub fn in_use(all: &[ServiceEndpoint]) -> impl Iterator<Item = &ServiceEndpoint> {
    let any_ready = all.iter().any(|one| one.state == EndpointState::Ready);
    let wanted = if any_ready { EndpointState::Ready } else { EndpointState::Terminating { serves: true } };
    all.iter().filter(move |one| one.state == wanted)
}

/// Returns the endpoints of a service with a selector. `pods`: those of its namespace.
pub fn of_pods(service: &k8s::Service, pods: &[ServicePod<'_>]) -> Vec<ServiceEndpoint> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else { return Vec::new() };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let all_are_ready = spec.publish_not_ready_addresses == Some(true);
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let chosen = pods.iter().filter(|one| is_selected(selector, one.pod));
    let endpoint = |one: &ServicePod<'_>| ServiceEndpoint {
        addresses: one.addresses.clone(),
        state: match (one.is_terminating, one.is_ready || all_are_ready) {
            (false, true) => EndpointState::Ready,
            (true, true) if all_are_ready => EndpointState::Ready,
            (false, false) => EndpointState::NotReady,
            (true, serves) => EndpointState::Terminating { serves },
        },
        ports: ports.iter().map(|port| port_of_pod(port, one.pod)).collect(),
        pod: Some(EndpointPod { name: one.pod.name.name.clone(), uid: one.pod.uid.clone() }),
        hostname: hostname(one.pod, name),
    };
    chosen.map(endpoint).collect()
}

/// Returns true if a pod has all labels of the selector.
pub fn is_selected(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    let labels = pod.object.metadata.labels.as_ref();
    selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// Returns the host name of a pod whose subdomain is this service.
fn hostname(pod: &Pod, service: &str) -> Option<Rc<str>> {
    let spec = pod.spec();
    let is_of_service = spec.subdomain.as_deref() == Some(service);
    spec.hostname.as_deref().filter(|name| is_of_service && !name.is_empty()).map(Rc::from)
}

/// Returns the port of the pod behind this port of a service. A name is that of a port of a container.
fn port_of_pod(port: &k8s::ServicePort, pod: &Pod) -> Option<u16> {
    let name = match &port.target_port {
        Some(IntOrString::String(name)) => name,
        Some(IntOrString::Int(number)) => return u16::try_from(*number).ok(),
        None => return u16::try_from(port.port).ok(),
    };
    let spec = pod.spec();
    // As in a cluster, also those of init containers that go on.
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let is_it = |one: &&k8s::ContainerPort| one.name.as_deref() == Some(name) && one.protocol == port.protocol;
    ports.find(is_it).and_then(|one| u16::try_from(one.container_port).ok())
}

/// Returns the endpoints of a service without a selector. `slices`: the EndpointSlices of its namespace.
pub fn of_slices(name: &FullName, service: &k8s::Service, slices: &[&NetworkObject]) -> Vec<ServiceEndpoint> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let mut all = Vec::new();
    for slice in slices.iter().filter_map(|object| object.slice()) {
        let of = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        if of.map(String::as_str) != Some(&*name.name) {
            continue;
        }
        let port = |of: &k8s::ServicePort| {
            let is_it = |one: &&k8s::EndpointPort| {
                let same_name = one.name.as_deref().unwrap_or_default() == of.name.as_deref().unwrap_or_default();
                same_name && one.protocol == of.protocol
            };
            let found = slice.ports.iter().flatten().find(is_it)?;
            u16::try_from(found.port?).ok()
        };
        let ports: Vec<Option<u16>> = ports.iter().map(port).collect();
        all.extend(slice.endpoints.iter().filter_map(|one| of_slice(one, &ports)));
    }
    all
}

fn of_slice(one: &k8s::Endpoint, ports: &[Option<u16>]) -> Option<ServiceEndpoint> {
    let addresses: Vec<IpAddr> = one.addresses.iter().filter_map(|text| text.parse().ok()).collect();
    let conditions = one.conditions.as_ref();
    let is = |field: Option<bool>, default: bool| field.unwrap_or(default);
    let ready = is(conditions.and_then(|all| all.ready), true);
    let terminating = is(conditions.and_then(|all| all.terminating), false);
    let state = match (ready, terminating) {
        (true, _) => EndpointState::Ready,
        (false, false) => EndpointState::NotReady,
        (false, true) => EndpointState::Terminating { serves: is(conditions.and_then(|all| all.serving), false) },
    };
    let hostname = one.hostname.as_deref().map(Rc::from);
    (!addresses.is_empty()).then(|| ServiceEndpoint { addresses, state, ports: ports.to_vec(), pod: None, hostname })
}
