//! The usage of the node's resources by pods (A1, A4), and the resulting verdict about one more pod.
//!
//! Three kinds of pods take resources: admitted pods hold theirs, terminating pods release theirs soon, and waiting
//! pods that came earlier have theirs reserved. For a fourth kind, it is not known yet whether they take resources. A
//! successor may use the resources of its predecessor: the two never run at the same time (W8), so together they
//! count as the larger of the two.

use super::fit::{Insufficient, insufficient};
use super::pod_requests::PodRequests;
use super::predicates::{self, HostPort, Refusal, clash};
use crate::api::names::FullName;
use crate::api::node_facts::NodeFacts;
use crate::api::pod::Pod;
use crate::api::resources::Resources;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct NodeSnapshot<'a> {
    node: &'a NodeFacts,
    /// The resources that are held by admitted pods or reserved for waiting ones.
    taken: Resources,
    /// The same, plus the resources of terminating pods and of pods that may take resources.
    in_use: Resources,
    ports: Vec<HostPort>,
    /// The ports of terminating pods and of pods that may take ports.
    ports_in_use: Vec<HostPort>,
    /// The full names that have terminating or waiting pods, or pods that may take resources.
    names: BTreeMap<FullName, Shared>,
}

/// The resources that the terminating pods of one full name release, and those reserved for its other pods.
#[derive(Clone, Debug, Default)]
struct Shared {
    ending: Resources,
    reserved: Resources,
}

/// The verdict about one pod.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionVerdict {
    Fits,
    /// A4: the pod fits once the terminating pods are gone. Lists the insufficient resources; empty if only a port is
    /// in use.
    Later(Vec<Insufficient>),
    /// A3: all reasons against the pod.
    Against {
        refusals: Vec<Refusal>,
        missing: Vec<Insufficient>,
    },
}

impl<'a> NodeSnapshot<'a> {
    pub fn new(node: &'a NodeFacts) -> NodeSnapshot<'a> {
        NodeSnapshot {
            node,
            taken: Resources::default(),
            in_use: Resources::default(),
            ports: Vec::new(),
            ports_in_use: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    /// Adds an admitted pod.
    pub fn hold(&mut self, requests: &PodRequests) {
        self.taken.add(&requests.resources);
        self.in_use.add(&requests.resources);
        self.ports.extend_from_slice(&requests.ports);
    }

    /// Adds a terminating pod: its resources are still in use.
    pub fn add_ending(&mut self, name: &FullName, requests: &PodRequests) {
        self.share(name, |shared| shared.ending.add(&requests.resources));
        self.ports_in_use.extend_from_slice(&requests.ports);
    }

    /// Adds a waiting pod, which comes before all pods that are evaluated later.
    pub fn reserve(&mut self, name: &FullName, requests: &PodRequests) {
        self.taken.add(&requests.resources);
        self.share(name, |shared| shared.reserved.add(&requests.resources));
        self.ports.extend_from_slice(&requests.ports);
    }

    /// Adds a pod for which it is not known yet whether it takes resources. Until this is known, no pod gets these
    /// resources, and none is rejected because of them.
    pub fn reserve_uncertain(&mut self, name: &FullName, requests: &PodRequests) {
        self.share(name, |shared| shared.reserved.add(&requests.resources));
        self.ports_in_use.extend_from_slice(&requests.ports);
    }

    fn share(&mut self, name: &FullName, change: impl FnOnce(&mut Shared)) {
        let shared = self.names.entry(name.clone()).or_default();
        self.in_use.subtract(&shared.larger());
        change(shared);
        self.in_use.add(&shared.larger());
    }

    /// R2: replaces the resources that an admitted pod holds.
    pub fn exchange(&mut self, old: &PodRequests, new: &PodRequests) {
        for sum in [&mut self.taken, &mut self.in_use] {
            sum.subtract(&old.resources);
            sum.add(&new.resources);
        }
    }

    pub fn allocatable(&self) -> &Resources {
        &self.node.allocatable
    }

    /// Returns the sum of the requests of all admitted, terminating and waiting pods.
    pub fn in_use(&self) -> &Resources {
        &self.in_use
    }

    pub fn evaluate(&self, pod: &Pod, requests: &PodRequests) -> AdmissionVerdict {
        let allocatable = &self.node.allocatable;
        let mut refusals = predicates::against(pod, self.node);
        if let Some(port) = clash(&requests.ports, &self.ports) {
            refusals.push(predicates::port_is_taken(port));
            predicates::in_order(&mut refusals);
        }
        let missing = insufficient(&requests.resources, &self.taken, allocatable);
        if !refusals.is_empty() || !missing.is_empty() {
            return AdmissionVerdict::Against { refusals, missing };
        }
        let missing = insufficient(&requests.resources, &self.in_use, allocatable);
        match missing.is_empty() && clash(&requests.ports, &self.ports_in_use).is_none() {
            true => AdmissionVerdict::Fits,
            false => AdmissionVerdict::Later(missing),
        }
    }
}

impl AdmissionVerdict {
    /// Adds one more reason against the pod, if there is one.
    pub fn and_against(self, refusal: Option<Refusal>) -> AdmissionVerdict {
        let Some(refusal) = refusal else { return self };
        let (mut refusals, missing) = match self {
            AdmissionVerdict::Against { refusals, missing } => (refusals, missing),
            AdmissionVerdict::Fits | AdmissionVerdict::Later(_) => (Vec::new(), Vec::new()),
        };
        refusals.push(refusal);
        predicates::in_order(&mut refusals);
        AdmissionVerdict::Against { refusals, missing }
    }
}

impl Shared {
    fn larger(&self) -> Resources {
        let mut larger = self.ending.clone();
        larger.raise_to(&self.reserved);
        larger
    }
}
