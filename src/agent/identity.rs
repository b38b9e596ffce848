//! The files of the node's client certificate: makes requests and stores certificates on a helper thread, and tells the engine
//! which certificate is in use (C7).

use super::Agent;
use super::effects::{Job, Work};
use crate::adapters::api_server::Credentials;
use crate::adapters::identity::{self, Directory};
use crate::api::cluster::certificate::{Request, Validity};
use crate::api::time::{Now, Wall};
use crate::engine::effect::{IdentityCall, Key};
use crate::engine::event::{Answer, ApiEvent, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use crate::net::x509;
use jiff::Timestamp;
use std::time::Duration;

/// Time limit for the generation of a key and for durable writes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The result of an `IdentityCall`.
pub enum Changed {
    Requested(Result<Request, String>),
    /// The credentials with the new certificate.
    Stored(Result<Credentials, String>),
}

fn wall(at: Timestamp) -> Wall {
    Wall(i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX))
}

/// The certificate in the credentials. None: there is none, or it cannot be read (then the server refuses it, too).
pub(super) fn validity(credentials: &Credentials, is_managed: bool) -> Option<Validity> {
    let certificate = x509::read(credentials.client_certificate()?).ok()?;
    Some(Validity { not_before: wall(certificate.not_before), not_after: wall(certificate.not_after), is_managed })
}

impl Agent {
    pub(super) fn change_identity(&mut self, op: OpId, call: IdentityCall, now: Now) {
        let (directory, node) = (Directory::new(&self.config.root_dir), self.config.node_name.clone());
        let kubeconfig = identity::kubeconfig(&self.config.root_dir);
        let of_thread = kubeconfig.clone();
        let work = move || {
            Work::Identity(match call {
                IdentityCall::Request { key } => {
                    let fresh = if key == Key::New { directory.forget_key() } else { Ok(()) };
                    Changed::Requested(fresh.and_then(|()| directory.request(&node)))
                }
                IdentityCall::Store { chain } => {
                    let stored = identity::store(&directory, &node, &chain);
                    Changed::Stored(stored.and_then(|_| Credentials::read(&of_thread)))
                }
            })
        };
        let deadline = now.boot + TIMEOUT;
        let id =
            self.sources.helpers.submit_for(Class::Credentials, "change the certificate", &kubeconfig, deadline, work);
        self.sources.jobs.insert(id, Job::Identity(op));
    }

    pub(super) fn identity_changed(&mut self, op: OpId, changed: Changed, now: Now) {
        let answer = match changed {
            Changed::Requested(request) => request.map(Answer::CertificateRequest),
            Changed::Stored(Ok(credentials)) => {
                let stored = validity(&credentials, true).map(Answer::Certificate);
                self.use_new_credentials(credentials);
                self.drive_cluster(now);
                stored.ok_or_else(|| "the kubeconfig contains no certificate".to_owned())
            }
            Changed::Stored(Err(why)) => Err(why),
        };
        let result = answer.map_err(|message| OpError::Answered { code: Code::Other(2), message });
        self.events.push_back(Event::Done { op, result });
    }

    /// Tells the engine which certificate is in use.
    pub(super) fn certificate_in_use(&mut self, credentials: &Credentials) {
        let is_managed =
            self.config.kubeconfig.as_ref().is_some_and(|path| identity::is_managed(path, &self.config.root_dir));
        self.events.push_back(Event::Api(ApiEvent::Certificate(validity(credentials, is_managed))));
    }
}
