//! What of the node is taken, by whom and for how long (A1, A4), and what that means for one more pod.
//!
//! Three kinds of pods have a part of the node: those that were admitted hold theirs; those that end give theirs back soon; those
//! that wait, and came before, were promised theirs. Of a fourth kind it is not known yet whether they take room. A successor was promised what its predecessor gives back: the two never
//! run at one time (W8), so that together they count as the larger one.

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
    /// Held, or promised.
    taken: Resources,
    /// That, and what is given back soon.
    in_use: Resources,
    ports: Vec<HostPort>,
    /// Given back soon.
    ports_in_use: Vec<HostPort>,
    /// Of names with pods that end or wait.
    names: BTreeMap<FullName, Shared>,
}

/// What pods of one full name give back and were promised.
#[derive(Clone, Debug, Default)]
struct Shared {
    ending: Resources,
    promised: Resources,
}

/// What there is for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Fits,
    /// A4: once the pods that end are gone. What is missing till then; empty if it is a port.
    Later(Vec<Insufficient>),
    /// A3: all that is against it.
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

    /// An admitted pod.
    pub fn hold(&mut self, requests: &PodRequests) {
        self.taken.add(&requests.resources);
        self.in_use.add(&requests.resources);
        self.ports.extend_from_slice(&requests.ports);
    }

    /// A pod that ends: its part is in use still.
    pub fn give_back(&mut self, name: &FullName, requests: &PodRequests) {
        self.share(name, |shared| shared.ending.add(&requests.resources));
        self.ports_in_use.extend_from_slice(&requests.ports);
    }

    /// A pod that waits, before all that are asked for after it.
    pub fn promise(&mut self, name: &FullName, requests: &PodRequests) {
        self.taken.add(&requests.resources);
        self.share(name, |shared| shared.promised.add(&requests.resources));
        self.ports.extend_from_slice(&requests.ports);
    }

    /// A pod of which nobody knows yet whether it takes room: nothing is admitted into its room, and nothing rejected because of it.
    pub fn doubt(&mut self, name: &FullName, requests: &PodRequests) {
        self.share(name, |shared| shared.promised.add(&requests.resources));
        self.ports_in_use.extend_from_slice(&requests.ports);
    }

    fn share(&mut self, name: &FullName, change: impl FnOnce(&mut Shared)) {
        let shared = self.names.entry(name.clone()).or_default();
        self.in_use.subtract(&shared.larger());
        change(shared);
        self.in_use.add(&shared.larger());
    }

    /// What pods that were admitted, end or wait ask for together.
    pub fn in_use(&self) -> &Resources {
        &self.in_use
    }

    pub fn look_at(&self, pod: &Pod, requests: &PodRequests) -> Verdict {
        let allocatable = &self.node.allocatable;
        let mut refusals = predicates::against(pod, self.node);
        if let Some(port) = clash(&requests.ports, &self.ports) {
            refusals.push(predicates::port_is_taken(port));
            predicates::in_order(&mut refusals);
        }
        let missing = insufficient(&requests.resources, &self.taken, allocatable);
        if !refusals.is_empty() || !missing.is_empty() {
            return Verdict::Against { refusals, missing };
        }
        let missing = insufficient(&requests.resources, &self.in_use, allocatable);
        match missing.is_empty() && clash(&requests.ports, &self.ports_in_use).is_none() {
            true => Verdict::Fits,
            false => Verdict::Later(missing),
        }
    }
}

impl Shared {
    fn larger(&self) -> Resources {
        let mut larger = self.ending.clone();
        larger.raise_to(&self.promised);
        larger
    }
}
