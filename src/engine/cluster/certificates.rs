//! The certificates that the node gets from its cluster. Each is a machine of its own (`certificate`).

use super::certificate::Certificate;
use crate::api::cluster::certificate::{Purpose, ServingNames};
use crate::api::cluster::requests::Signer;
use crate::engine::config::{ClusterConfig, ServingIssuer};
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
    pub fn new(node: &str, config: &ClusterConfig) -> Certificates {
        let serving = match config.serving {
            ServingIssuer::Node => None,
            ServingIssuer::Cluster => Some(ServingNames::of(&config.reported_addresses(node))),
        };
        Certificates {
            client: Certificate::new(Purpose::Client),
            serving: serving.map(|names| Certificate::new(Purpose::Serving(names))),
        }
    }

    /// A reload of the configuration reads the addresses of the node again. The issuer needs a restart.
    pub fn configure(&mut self, node: &str, config: &ClusterConfig) {
        if let Some(serving) = &mut self.serving {
            serving.want(Purpose::Serving(ServingNames::of(&config.reported_addresses(node))));
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
