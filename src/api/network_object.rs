//! The Services and EndpointSlices of manifests.

use crate::api::duplicates;
use crate::api::k8s;
use crate::api::names::FullName;
use crate::api::problem::Problem;
use crate::api::source::Source;
use std::fmt;
use std::rc::Rc;

/// The label of an EndpointSlice that names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkKind {
    Service,
    EndpointSlice,
}

impl NetworkKind {
    pub const ALL: [NetworkKind; 2] = [NetworkKind::Service, NetworkKind::EndpointSlice];

    pub const fn name(self) -> &'static str {
        match self {
            NetworkKind::Service => "Service",
            NetworkKind::EndpointSlice => "EndpointSlice",
        }
    }
}

/// Identifies an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkKey {
    pub kind: NetworkKind,
    pub name: FullName,
}

impl fmt::Display for NetworkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

/// A valid object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkObject {
    pub name: FullName,
    pub content: NetworkContent,
    pub source: Source,
    /// The digest of the parsed content, as for a pod (D3).
    pub digest: String,
}

/// An object with all defaults.
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkContent {
    Service(Box<k8s::Service>),
    EndpointSlice(Box<k8s::EndpointSlice>),
}

impl NetworkObject {
    /// Makes an object of complete, valid content.
    pub fn new(content: NetworkContent, source: Source, digest: String) -> NetworkObject {
        let metadata = match &content {
            NetworkContent::Service(service) => &service.metadata,
            NetworkContent::EndpointSlice(slice) => &slice.metadata,
        };
        let name = FullName::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        NetworkObject { name, content, source, digest }
    }

    pub fn key(&self) -> NetworkKey {
        let kind = match &self.content {
            NetworkContent::Service(_) => NetworkKind::Service,
            NetworkContent::EndpointSlice(_) => NetworkKind::EndpointSlice,
        };
        NetworkKey { kind, name: self.name.clone() }
    }

    pub fn service(&self) -> Option<&k8s::Service> {
        if let NetworkContent::Service(service) = &self.content { Some(service) } else { None }
    }

    pub fn slice(&self) -> Option<&k8s::EndpointSlice> {
        if let NetworkContent::EndpointSlice(slice) = &self.content { Some(slice) } else { None }
    }
}

/// Returns a problem for each document that has the kind and the name of an earlier one, which is in force (D6).
pub fn duplicates(all: &[Rc<NetworkObject>]) -> Vec<Problem> {
    duplicates::find(all.iter().map(|one| (one.key().kind.name(), &one.name, &one.source)))
}
