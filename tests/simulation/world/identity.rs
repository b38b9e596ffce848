//! The files of the node's certificates: for each kind the certificate in use, and the key of the next one. They survive the engine.

use super::{MS, World};
use std::time::Duration;
use wherry::api::cluster::certificate::{InUse, Purpose, ServingNames, SigningRequest, Validity};
use wherry::api::cluster::requests::Signer;
use wherry::engine::config::ServingIssuer;
use wherry::engine::effect::{IdentityCall, Key};
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{OpError, OpId};

#[derive(Default)]
pub struct Identity {
    pub client: Files,
    pub serving: Files,
    /// The lifetime of new certificates.
    pub lifetime: Duration,
    /// The signer leaves the DNS names out.
    pub drops_names: bool,
    /// The disk is full.
    pub full: bool,
}

/// The files of one kind of certificate.
#[derive(Default)]
pub struct Files {
    /// None: there is no certificate. As a client, the node has another kind of credential.
    pub in_use: Option<InUse>,
    /// The number of the next key, if it is on the disk.
    next: Option<u64>,
    /// The purpose of the last request.
    requested: Option<Purpose>,
    /// The number of keys so far.
    pub keys: u64,
}

/// The name of the request with this key.
fn request_name(purpose: &Purpose, key: u64) -> String {
    match purpose {
        Purpose::Client => format!("node-csr-{key}"),
        Purpose::Serving(names) => {
            let dns = names.dns.iter().cloned();
            let all: Vec<String> = dns.chain(names.addresses.iter().map(ToString::to_string)).collect();
            // A colon would be escaped in the path of a request.
            format!("serving-csr-{key}-{}", all.join("-").replace(':', "-"))
        }
    }
}

impl Identity {
    /// As Wherry reads them at its start.
    pub fn read(&self) -> [(Signer, Option<InUse>); 2] {
        [(Signer::Client, self.client.in_use.clone()), (Signer::Serving, self.serving.in_use.clone())]
    }

    fn files(&mut self, signer: Signer) -> &mut Files {
        match signer {
            Signer::Client => &mut self.client,
            Signer::Serving => &mut self.serving,
        }
    }
}

impl World {
    pub(super) fn change_identity(&mut self, op: OpId, call: &IdentityCall) {
        self.note(|| format!("  < {op} {call:?}"));
        let not_before = self.wall_now();
        let identity = &mut self.identity;
        let validity = Validity { not_before, not_after: not_before + identity.lifetime };
        let drops_names = identity.drops_names;
        let result = match call {
            _ if identity.full => Err(OpError::Unknown("no space left on device".into())),
            IdentityCall::Request { purpose, key } => {
                let files = identity.files(purpose.signer());
                if *key == Key::New || files.next.is_none() {
                    files.keys += 1;
                    files.next = Some(files.keys);
                }
                files.requested = Some(purpose.clone());
                let name = request_name(purpose, files.keys);
                Ok(Answer::CertificateRequest(SigningRequest { name: name.clone(), request: name }))
            }
            IdentityCall::Store { signer, chain } => {
                let files = identity.files(*signer);
                match (files.next.take(), files.requested.clone()) {
                    (Some(next), Some(purpose)) if *chain == request_name(&purpose, next) => {
                        let in_use = match purpose {
                            Purpose::Client => InUse::Client { validity, is_managed: true },
                            Purpose::Serving(names) if drops_names => {
                                InUse::Serving { validity, names: ServingNames { dns: [].into(), ..names } }
                            }
                            Purpose::Serving(names) => InUse::Serving { validity, names },
                        };
                        files.in_use = Some(in_use.clone());
                        Ok(Answer::Certificate(in_use))
                    }
                    _ => Err(OpError::Unknown("the certificate belongs to a different key".into())),
                }
            }
        };
        self.event_in(20 * MS, Event::Done { op, result });
    }

    /// The node has a client certificate that was issued now, and gets such ones.
    pub fn has_certificate(&mut self, lifetime: Duration, is_managed: bool) {
        let not_before = self.wall_now();
        self.identity.lifetime = lifetime;
        let validity = Validity { not_before, not_after: not_before + lifetime };
        self.identity.client.in_use = Some(InUse::Client { validity, is_managed });
    }

    /// The cluster issues the certificate of the node's server (`serverTLSBootstrap`), with this lifetime.
    pub fn wants_serving_certificate(&mut self, lifetime: Duration) {
        self.identity.lifetime = lifetime;
        self.config.cluster.as_mut().expect("a cluster").serving = ServingIssuer::Cluster;
    }

    /// The seconds until the end of the certificate in use. 0: there is none.
    pub fn certificate_left(&self, signer: Signer) -> u64 {
        let files = match signer {
            Signer::Client => &self.identity.client,
            Signer::Serving => &self.identity.serving,
        };
        files.in_use.as_ref().map_or(0, |in_use| in_use.validity().not_after.since(self.wall_now()).as_secs())
    }
}
