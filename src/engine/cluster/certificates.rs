//! The certificates that the node gets from its cluster. Each has its own state machine (`certificate`).

use super::certificate::Certificate;
use crate::api::cluster::certificate::{Purpose, ServingNames};
use crate::api::cluster::node::Address;
use crate::api::cluster::requests::Signer;
use crate::engine::config::ServingIssuer;
use serde::Serialize;
use std::iter;

#[derive(Debug, Serialize)]
pub struct Certificates {
    /// The node's client certificate.
    pub client: Certificate,
    /// The certificate of the node's server. None: the cluster does not issue it.
    pub serving: Option<Certificate>,
}

impl Certificates {
    /// Creates the state machines of the certificates. `addresses`: the addresses in the node's status.
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

    /// Takes the new addresses of the node's status, which the serving certificate has to cover.
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
