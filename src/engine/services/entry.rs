//! One service: its object, its addresses and its endpoints.

use super::allocation::{Allocation, AllocationError};
use super::endpoints::ServiceEndpoint;
use super::wanted;
use crate::api::k8s;
use crate::api::network_object::NetworkObject;
use std::net::IpAddr;
use std::rc::Rc;

/// A service in force, with what it has.
#[derive(Debug)]
pub struct ServiceEntry {
    pub object: Rc<NetworkObject>,
    pub allocation: Allocation,
    pub errors: Vec<AllocationError>,
    pub endpoints: Vec<ServiceEndpoint>,
    /// The number of changes that the API shows.
    pub version: u64,
}

impl ServiceEntry {
    pub fn new(object: Rc<NetworkObject>) -> ServiceEntry {
        let (allocation, errors, endpoints) = (Allocation::default(), Vec::new(), Vec::new());
        // The first version differs from that of a service which is not there.
        ServiceEntry { object, allocation, errors, endpoints, version: 1 }
    }

    pub fn service(&self) -> &k8s::Service {
        static EMPTY: std::sync::LazyLock<k8s::Service> = std::sync::LazyLock::new(k8s::Service::default);
        self.object.service().unwrap_or(&EMPTY)
    }

    pub fn has_selector(&self) -> bool {
        let selector = self.service().spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some_and(|selector| !selector.is_empty())
    }

    /// Returns true if the name of the service stands for its endpoints.
    pub fn is_headless(&self) -> bool {
        self.service().spec.as_ref().is_some_and(wanted::is_headless)
    }

    /// Returns the addresses for which the name of the service stands, except those of endpoints.
    pub fn named_addresses(&self) -> Vec<IpAddr> {
        match self.service().spec.as_ref().and_then(wanted::external_address) {
            Some(address) => vec![address],
            None => self.allocation.addresses.clone(),
        }
    }
}
