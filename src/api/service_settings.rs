//! The settings of services.

use crate::api::address_range::AddressRange;
use serde::Serialize;
use std::ops::RangeInclusive;

/// The range of service addresses without a configuration, as in kubeadm.
pub const DEFAULT_RANGE: &str = "10.96.0.0/16";
/// The ports that services can have on the node, as in an API server.
pub const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;
/// The domain of the names of services without `clusterDomain`.
pub const DEFAULT_DOMAIN: &str = "cluster.local";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceSettings {
    /// One range, or two of different families. The first is that of services which do not choose a family.
    pub ranges: Vec<AddressRange>,
    /// The domain of the names of services.
    pub domain: String,
}

impl Default for ServiceSettings {
    fn default() -> ServiceSettings {
        let ranges = AddressRange::parse(DEFAULT_RANGE).into_iter().collect();
        ServiceSettings { ranges, domain: DEFAULT_DOMAIN.to_owned() }
    }
}
