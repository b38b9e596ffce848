//! The certificates that the node gets from its cluster. Each is a machine of its own (`certificate`).

use super::certificate::Certificate;
use crate::api::cluster::certificate::{Purpose, ServingNames};
use crate::api::cluster::node::Address;
use crate::api::cluster::requests::Signer;
use crate::engine::config::ServingIssuer;
use serde::Serialize;
use std::iter;

#[derive(Debug, Serialize)]
pub struct Certificates {
    /// The credential of the node.
    pub client: Certificate,
    /// Of the node's server. None: the cluster does not issue it.
    pub serving: Option<Certificate>,
}

impl Certificates {
    /// `addresses`: those in the status of the node.
    pub fn new(issuer: ServingIssuer, addresses: &[Address]) -> Certificates {
        let serving = match issuer {
            ServingIssuer::Node => None,
            ServingIssuer::Cluster => Some(ServingNames::of(addresses)),
        };
        Certificates {
            client: Certificate::new(Purpose::Client),
            serving: serving.map(|names| Certificate::new(Purpose::Serving(names))),
        }
    }

    /// The status of the node has these addresses from now on.
    pub fn addresses_changed(&mut self, addresses: &[Address]) {
        if let Some(serving) = &mut self.serving {
            serving.want(Purpose::Serving(ServingNames::of(addresses)));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Certificate> {
        iter::once(&self.client).chain(&self.serving)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Certificate> {
        iter::once(&mut self.client).chain(&mut self.serving)
    }

    pub fn of(&mut self, signer: Signer) -> Option<&mut Certificate> {
        self.iter_mut().find(|certificate| certificate.signer() == signer)
    }
}
