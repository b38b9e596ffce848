//! The files of the node's certificate: the certificate in use, and the key of the next one. They survive the engine.

use super::{MS, World};
use std::time::Duration;
use wherry::api::cluster::certificate::{Request, Validity};
use wherry::engine::effect::{IdentityCall, Key};
use wherry::engine::event::{Answer, Event};
use wherry::engine::op::{OpError, OpId};

#[derive(Default)]
pub struct Identity {
    /// None: the node has another kind of credential.
    pub in_use: Option<Validity>,
    /// The number of the next key, if it is on the disk.
    next: Option<u64>,
    /// The number of keys so far.
    pub keys: u64,
    /// The lifetime of new certificates.
    pub lifetime: Duration,
    /// The disk is full.
    pub full: bool,
}

impl World {
    pub(super) fn change_identity(&mut self, op: OpId, call: &IdentityCall) {
        self.note(|| format!("  < {op} {call:?}"));
        let now = self.wall_now();
        let identity = &mut self.identity;
        let result = match call {
            _ if identity.full => Err(OpError::Unknown("no space left on device".into())),
            IdentityCall::Request { key } => {
                if *key == Key::New || identity.next.is_none() {
                    identity.keys += 1;
                    identity.next = Some(identity.keys);
                }
                let name = format!("node-csr-{}", identity.keys);
                Ok(Answer::CertificateRequest(Request { name: name.clone(), request: name }))
            }
            IdentityCall::Store { chain } => match identity.next.take() {
                Some(next) if *chain == format!("node-csr-{next}") => {
                    let validity = Validity { not_before: now, not_after: now + identity.lifetime, is_managed: true };
                    identity.in_use = Some(validity);
                    Ok(Answer::Certificate(validity))
                }
                _ => Err(OpError::Unknown("the certificate belongs to another key".into())),
            },
        };
        self.event_in(20 * MS, Event::Done { op, result });
    }

    /// The node has a certificate that was issued now, and gets such ones.
    pub fn has_certificate(&mut self, lifetime: Duration) {
        let not_before = self.wall_now();
        self.identity.lifetime = lifetime;
        self.identity.in_use = Some(Validity { not_before, not_after: not_before + lifetime, is_managed: true });
    }

    /// The seconds until the end of the certificate in use.
    pub fn certificate_left(&self) -> u64 {
        self.identity.in_use.map_or(0, |validity| validity.not_after.since(self.wall_now()).as_secs())
    }
}
