//! Compares requested resources with the free resources of the node (A2, A3).

use crate::api::ordered::OrderSlice;
use crate::api::reason::Reason;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources};

/// A resource of which too little is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insufficient {
    pub resource: String,
    pub requested: u64,
    pub used: u64,
    pub capacity: u64,
}

impl Insufficient {
    /// Returns the reason in a kubelet's wording, for example `OutOfcpu`.
    pub fn reason(&self) -> Reason {
        Reason::out_of(&self.resource)
    }

    /// Returns the amount that has to be freed. If the resource is already overcommitted, this includes the excess.
    pub fn shortage(&self) -> u64 {
        (self.requested.saturating_add(self.used)).saturating_sub(self.capacity)
    }

    /// Returns the message in a kubelet's wording.
    pub fn message(&self) -> String {
        let Insufficient { resource, requested, used, capacity } = self;
        format!(
            "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
        )
    }

    /// Returns the message, in a kubelet's wording, for a resize that would not fit even without other pods on the
    /// node.
    pub fn capacity_message(&self) -> String {
        let Insufficient { resource, requested, capacity, .. } = self;
        format!("Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}")
    }
}

/// The order of the reasons (A3). Other resources follow by name.
const ORDER: [&str; 4] = [PODS, CPU, MEMORY, EPHEMERAL_STORAGE];

/// Returns the insufficient resources in the order of A3. The capacity of a resource that the node does not know is
/// zero.
pub fn insufficient(requested: &Resources, used: &Resources, allocatable: &Resources) -> Vec<Insufficient> {
    let mut missing: Vec<Insufficient> = requested
        .iter()
        .map(|(resource, requested)| Insufficient {
            resource: resource.to_owned(),
            requested,
            used: used.get(resource),
            capacity: allocatable.get(resource),
        })
        .filter(|i| i.shortage() > 0)
        .collect();
    let place = |name: &str| ORDER.iter().position(|o| *o == name).unwrap_or(ORDER.len());
    missing.order_by(|a, b| (place(&a.resource), &a.resource).cmp(&(place(&b.resource), &b.resource)));
    missing
}

/// Returns the amounts that have to be freed, by resource: the input of `preempt::victims`.
pub fn shortages(missing: &[Insufficient]) -> Resources {
    let mut all = Resources::default();
    missing.iter().for_each(|i| all.set(&i.resource, i.shortage()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a3_all_reasons_are_found_in_their_order() {
        let allocatable =
            Resources::from([(CPU, 2000), (MEMORY, 1000), (PODS, 2), ("x.io/gpu", 1), (EPHEMERAL_STORAGE, 5)]);
        let used = Resources::from([(CPU, 1500), (MEMORY, 1200), (PODS, 2)]);
        let requested = Resources::from([
            (CPU, 501),
            (MEMORY, 1),
            (PODS, 1),
            ("x.io/gpu", 1),
            ("a.io/unknown", 3),
            (EPHEMERAL_STORAGE, 6),
        ]);
        let missing = insufficient(&requested, &used, &allocatable);
        let reasons: Vec<String> = missing.iter().map(|i| i.reason().to_string()).collect();
        assert_eq!(reasons, ["OutOfpods", "OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfa.io/unknown"]);
        assert_eq!(
            missing[1].message(),
            "Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"
        );
        let short = Resources::from([(PODS, 1), (CPU, 1), (MEMORY, 201), (EPHEMERAL_STORAGE, 1), ("a.io/unknown", 3)]);
        assert_eq!(shortages(&missing), short);
    }

    #[test]
    fn a2_an_exact_fit_fits_and_resources_that_are_not_requested_do_not_count() {
        let allocatable = Resources::from([(CPU, 2000), (PODS, 110)]);
        let used = Resources::from([(CPU, 1500), (PODS, 109), (MEMORY, 99)]);
        assert_eq!(insufficient(&Resources::from([(CPU, 500), (PODS, 1)]), &used, &allocatable), []);
        assert_eq!(insufficient(&Resources::default(), &used, &allocatable), []);
    }

    #[test]
    fn a2_amounts_beyond_counting_are_too_much() {
        let most = Resources::from([(CPU, u64::MAX)]);
        assert_eq!(insufficient(&most, &most, &Resources::from([(CPU, u64::MAX - 1)])).len(), 1);
    }
}
