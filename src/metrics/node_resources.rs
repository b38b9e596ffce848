//! Capacity, allocatable resources and requests of the node. The first two have the names of kube-state-metrics
//! (without its `node` label, since there is only one node). The third is our own.

use super::{Families, Labels};
use crate::api::node_facts::NodeFacts;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use std::sync::atomic::AtomicU64;

/// Floating-point gauges, because cpu is in cores.
type Amounts = Family<Labels, Gauge<f64, AtomicU64>>;

pub(super) struct Node {
    capacity: Amounts,
    allocatable: Amounts,
    requested: Amounts,
}

impl Node {
    pub(super) fn new(r: &mut Families) -> Node {
        let mut amounts = |name, help| r.put(name, help, Amounts::default());
        Node {
            allocatable: amounts(
                "kube_node_status_allocatable",
                "Resources available to pods: the capacity minus reservations, by resource",
            ),
            capacity: amounts("kube_node_status_capacity", "Total resources of the node, by resource"),
            requested: amounts(
                "wherry_node_requested",
                "Total requests of the pods that count for admission, by resource",
            ),
        }
    }

    pub(super) fn set_size(&self, node: &NodeFacts) {
        for (family, amounts) in [(&self.capacity, &node.capacity), (&self.allocatable, &node.allocatable)] {
            // A reload may have removed a resource.
            family.clear();
            set(family, &node.capacity, amounts);
        }
    }

    pub(super) fn set_requested(&self, node: &NodeFacts, requested: &Resources) {
        self.requested.clear();
        set(&self.requested, &node.capacity, requested);
    }
}

/// One series for each resource of the node, including zero values, and for each further resource that is requested.
fn set(family: &Amounts, known: &Resources, amounts: &Resources) {
    let none = known.iter().map(|(name, _)| (name, 0)).filter(|(name, _)| amounts.get(name) == 0);
    for (name, amount) in none.chain(amounts.iter()) {
        let (unit, value) = match name {
            CPU => ("core", amount as f64 / 1000.0),
            MEMORY | EPHEMERAL_STORAGE => ("byte", amount as f64),
            huge if huge.starts_with("hugepages-") => ("byte", amount as f64),
            _ => ("integer", amount as f64),
        };
        let resource: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        family.get_or_create(&vec![("resource", resource.into()), ("unit", unit.into())]).set(value);
    }
}
