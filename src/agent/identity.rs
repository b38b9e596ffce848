//! The files of the node's certificates: makes requests and stores certificates on a helper thread, and tells the
//! engine which client certificate is in use (C7). `kube::node_server` reads the serving certificate.

use super::Agent;
use super::jobs::JobSpec;
use crate::adapters::api_server::Credentials;
use crate::adapters::identity::{self, Directory};
use crate::api::cluster::certificate::{InUse, Request};
use crate::api::cluster::requests::Signer;
use crate::api::time::Now;
use crate::engine::effect::{IdentityCall, Key};
use crate::engine::event::{Answer, ApiEvent, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use crate::net::x509;
use std::time::Duration;

/// Time limit for the generation of a key and for durable writes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The result of an `IdentityCall`.
enum Changed {
    Requested(Result<Request, String>),
    /// The credentials with the new certificate.
    Client(Result<Credentials, String>),
    Serving(Result<InUse, String>),
}

/// The certificate in the credentials. None: there is none, or it cannot be read (then the server refuses it, too).
pub(super) fn in_use(credentials: &Credentials, is_managed: bool) -> Option<InUse> {
    let certificate = x509::read(credentials.client_certificate()?).ok()?;
    Some(InUse::Client { validity: identity::validity(&certificate), is_managed })
}

impl Agent {
    pub(super) fn change_identity(&mut self, op: OpId, call: IdentityCall, now: Now) {
        let (directory, node) = (Directory::new(&self.config.root_dir), self.config.node_name.clone());
        let kubeconfig = identity::kubeconfig(&self.config.root_dir);
        let of_thread = kubeconfig.clone();
        let work = move || match call {
            IdentityCall::Request { purpose, key } => {
                let fresh = if key == Key::New { directory.forget_key(purpose.signer()) } else { Ok(()) };
                Changed::Requested(fresh.and_then(|()| directory.request(&node, &purpose)))
            }
            IdentityCall::Store { signer, chain } => {
                let stored = identity::store(&directory, &node, signer, &chain);
                match signer {
                    Signer::Client => Changed::Client(stored.and_then(|_| Credentials::read(&of_thread))),
                    Signer::Serving => Changed::Serving(stored.map(identity::serving_in_use)),
                }
            }
        };
        let spec = JobSpec::new(Class::Credentials, "change the certificate", now.boot + TIMEOUT).on(&kubeconfig);
        self.jobs.run(spec, work, move |agent, changed, now| {
            let result = agent
                .reporting
                .standing
                .job_result(changed, now.boot)
                .and_then(|changed| agent.identity_changed(changed, now));
            agent.events.push_back(Event::Done { op, result });
        });
    }

    fn identity_changed(&mut self, changed: Changed, now: Now) -> Result<Answer, OpError> {
        let answer = match changed {
            Changed::Requested(request) => request.map(Answer::CertificateRequest),
            Changed::Client(Ok(credentials)) => {
                let stored = in_use(&credentials, true).map(Answer::Certificate);
                self.use_new_credentials(credentials);
                self.drive_cluster(now);
                stored.ok_or_else(|| "the kubeconfig contains no certificate".to_owned())
            }
            Changed::Serving(Ok(stored)) => {
                self.serving.node_server.check_at_once(now.boot);
                Ok(Answer::Certificate(stored))
            }
            Changed::Client(Err(why)) | Changed::Serving(Err(why)) => Err(why),
        };
        answer.map_err(|message| OpError::Answered { code: Code::Other(2), message })
    }

    /// Tells the engine which certificate is in use.
    pub(super) fn certificate_in_use(&mut self, credentials: &Credentials) {
        let is_managed =
            self.config.kubeconfig.as_ref().is_some_and(|path| identity::is_managed(path, &self.config.root_dir));
        self.events.push_back(Event::Api(ApiEvent::Certificate(Signer::Client, in_use(credentials, is_managed))));
    }
}
