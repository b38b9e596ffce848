//! The files of the node's certificates: creates requests and stores certificates on a helper thread, and tells the
//! engine which client certificate is in use (C7). `kube::node_server` reads the serving certificate.

use super::cluster::ClusterConnection;
use super::jobs::{JobSpec, Jobs};
use super::kube::NodeServerState;
use crate::adapters::api_server::Credentials;
use crate::adapters::identity::{self, IdentityDirectory};
use crate::api::cluster::certificate::{InUse, SigningRequest};
use crate::api::cluster::requests::Signer;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::{IdentityCall, Key};
use crate::engine::event::{Answer, ApiEvent, Event};
use crate::engine::op::{Code, OpError, OpId};
use crate::event_loop::Class;
use crate::net::x509;
use std::time::Duration;

/// Time limit for generating a key and for durable writes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The result of an `IdentityCall`.
enum Changed {
    Requested(Result<SigningRequest, String>),
    /// The credentials with the new certificate.
    Client(Result<Credentials, String>),
    Serving(Result<InUse, String>),
}

/// Returns the certificate in the credentials, or None if there is none or it cannot be read. A server refuses a
/// certificate that cannot be read, too.
pub(super) fn in_use(credentials: &Credentials, is_managed: bool) -> Option<InUse> {
    let certificate = x509::read(credentials.client_certificate()?).ok()?;
    Some(InUse::Client { validity: identity::validity(&certificate), is_managed })
}

pub(super) fn change(op: OpId, call: IdentityCall, config: &Config, jobs: &mut Jobs, now: Now) {
    let (directory, node) = (IdentityDirectory::new(&config.root_dir), config.node_name.clone());
    let kubeconfig = identity::kubeconfig(&config.root_dir);
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
    jobs.run(spec, work, move |agent, changed, now| {
        let changed = agent.reporting.standing.job_result(changed, now.boot);
        let has_credentials = matches!(changed, Ok(Changed::Client(Ok(_))));
        let (cluster, node_server) = (agent.cluster.as_mut(), &mut agent.serving.node_server);
        let result = changed.and_then(|changed| use_changed(changed, cluster, node_server, now.boot));
        agent.events.push_back(Event::Done { op, result });
        if has_credentials {
            agent.drive_cluster(now);
        }
    });
}

fn use_changed(
    changed: Changed,
    cluster: Option<&mut ClusterConnection>,
    node_server: &mut NodeServerState,
    now: Boot,
) -> Result<Answer, OpError> {
    let answer = match changed {
        Changed::Requested(request) => request.map(Answer::CertificateRequest),
        Changed::Client(Ok(credentials)) => {
            let stored = in_use(&credentials, true).map(Answer::Certificate);
            if let Some(cluster) = cluster {
                cluster.use_new_credentials(credentials);
            }
            stored.ok_or_else(|| "the kubeconfig contains no certificate".to_owned())
        }
        Changed::Serving(Ok(stored)) => {
            node_server.check_at_once(now);
            Ok(Answer::Certificate(stored))
        }
        Changed::Client(Err(why)) | Changed::Serving(Err(why)) => Err(why),
    };
    answer.map_err(|message| OpError::Answered { code: Code::Other(2), message })
}

/// Returns the event that tells the engine which client certificate is in use.
pub(super) fn client_certificate(credentials: &Credentials, config: &Config) -> Event {
    let is_managed = config.kubeconfig.as_ref().is_some_and(|path| identity::is_managed(path, &config.root_dir));
    Event::Api(ApiEvent::Certificate(Signer::Client, in_use(credentials, is_managed)))
}
