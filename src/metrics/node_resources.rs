//! Capacity, allocatable resources and requests of the node, by resource and unit.

use super::Metrics;
use super::families::Gauge;
use crate::api::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources};

/// Sets one series for each resource of the node (`known`), even if the value is zero, and for each further resource
/// in `amounts`.
pub(super) fn set(metrics: &Metrics, family: Gauge<2>, known: &Resources, amounts: &Resources) {
    // Remove the old series first, because a reload may have removed a resource.
    metrics.clear(family);
    let none = known.iter().map(|(name, _)| (name, 0)).filter(|(name, _)| amounts.get(name) == 0);
    for (name, amount) in none.chain(amounts.iter()) {
        let (unit, value) = match name {
            CPU => ("core", amount as f64 / 1000.0),
            MEMORY | EPHEMERAL_STORAGE => ("byte", amount as f64),
            huge if huge.starts_with("hugepages-") => ("byte", amount as f64),
            _ => ("integer", amount as f64),
        };
        let resource: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        metrics.set_number(family, [&resource, unit], value);
    }
}
