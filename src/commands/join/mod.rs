//! `wherry join`: makes this machine a node of a cluster.
//!
//! - `arguments`: the command line; `discovery`: the server and the CA of the cluster;
//! - `certificate`: requests the client certificate and waits for it;
//! - `membership`: the cluster that the machine belongs to, and the configuration drop-in;
//! - `check`: `wherry check --join`.
//!
//! The order of the steps makes every interruption harmless. Nothing is written before the cluster is verified and
//! has accepted the token. The key is written to the disk before its certificate is requested. The drop-in, which
//! makes the agent a member, is written last.

mod arguments;
mod certificate;
pub mod check;
mod discovery;
pub mod membership;
pub mod service;

pub use arguments::{JoinArgs, JoinTarget};

use crate::adapters::api_server::{Blocking, Contents, Credentials, User};
use crate::adapters::identity::{self, IdentityDirectory, NodeKubeconfig};
use crate::api::cluster::certificate::common_name;
use crate::api::cluster::request::ApiResponse;
use crate::api::cluster::requests::{self, Signer};
use crate::api::cluster::status::{Failure as Cause, Refusal};
use crate::commands::output::{Failure, print_message, shown};
use crate::config::{self, cluster, registration};
use crate::net::x509;
use arguments::JoinSource;
use certificate::Failed;
use discovery::{NEW_TOKEN, TIMEOUT, discover, unreachable};
use membership::Membership;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

/// Runs the command.
///
/// # Errors
/// The exit code is 1, or 2 for an invalid command line. The message names what failed, and the remedy.
pub fn run(out: &mut dyn Write, arguments: JoinArgs) -> Result<u8, Failure> {
    let JoinArgs { server, target, node_name, timeout, no_restart, mut config } = arguments;
    if node_name.is_some() {
        config.hostname = node_name;
    }
    let source = target.source(server.as_deref()).map_err(|why| Failure::Message(why, 2))?;
    let flags = config;
    let loaded = config::load(&flags);
    if let Some(error) = loaded.problems.errors.first() {
        return Err(Failure::message(format!("configuration: {error}; wherry check shows all errors")));
    }
    let config = loaded.config;
    let node = config.node_name.clone();
    let membership = Membership::read(&config)?;
    if let Some(hashes) = source.authorities()? {
        membership.accepts(&hashes)?;
        if membership.is_node(&node)? {
            writeln!(out, "this machine is already the node {node} of {}", shown(membership.server()))?;
            return Ok(0);
        }
    }
    let cluster = Cluster::find(source)?;
    membership.accepts(&discovery::hashes(&cluster.contents))?;
    if membership.is_node(&node)? {
        writeln!(out, "this machine is already the node {node} of {}", shown(membership.server()))?;
        return Ok(0);
    }
    let directory = IdentityDirectory::new(&config.root_dir);
    let joined = cluster.join(&directory, &node, timeout, membership.is_managed());
    let has_settings = joined.map_err(Failed::into_failure)?;
    membership::write_drop_in(&flags, &config, has_settings)?;
    writeln!(out, "this machine is the node {node} of {}", shown(&cluster.contents.server))?;
    if config.registration.taints.is_none() {
        let taint = registration::DEFAULT;
        writeln!(
            out,
            "a new node has the taint {taint}:NoSchedule, which its pods have to tolerate; to remove it: kubectl taint \
             node {node} {taint}-"
        )?;
    }
    service::restart(out, !no_restart, &format!("To see the node: kubectl get node {node}"))?;
    Ok(0)
}

/// A verified cluster, and the credential for joining it.
struct Cluster {
    user: User,
    contents: Contents,
}

impl Cluster {
    fn find(source: JoinSource) -> Result<Cluster, Failure> {
        match source {
            JoinSource::Server { address, token, pins } => {
                let found = discover(&address, &token, &pins).map_err(|(_, why)| Failure::message(why))?;
                Ok(Cluster { user: User::Token(token.bearer()), contents: found })
            }
            JoinSource::Kubeconfig(path) => {
                // This reports unsupported fields, which `Contents` ignores.
                Credentials::read(&path).map_err(Failure::message)?;
                let mut contents = Contents::read(&path).map_err(Failure::message)?;
                let user = std::mem::replace(&mut contents.user, User::Anonymous);
                Ok(Cluster { user, contents })
            }
        }
    }

    fn kubeconfig(&self) -> NodeKubeconfig<'_> {
        let Contents { server, tls_name, authorities, .. } = &self.contents;
        NodeKubeconfig { server, tls_name: tls_name.as_deref(), authorities }
    }

    /// Gets the certificate and writes the files. Returns true if the cluster has settings for its nodes.
    fn join(
        &self,
        directory: &IdentityDirectory,
        node: &str,
        timeout: Duration,
        was_joined: bool,
    ) -> Result<bool, Failed> {
        let (mut api, credential) = self.connect(node)?;
        // This request also shows whether the server accepts the credential, before anything is written.
        let settings = read_settings(&mut api, credential)?;
        let _lock = directory.lock()?;
        if !was_joined {
            directory.remove_serving()?;
        }
        let stored = self.store(&mut api, directory, node, timeout, settings.as_deref());
        if !was_joined && matches!(stored, Err(Failed::Other(_))) {
            // Remove everything after a failed join. A request that still waits for approval is not a failure, so its
            // key stays.
            let _ = directory.remove_all();
        }
        stored.map(|()| settings.is_some())
    }

    /// Returns a connection with the credential for joining, and the name of the credential.
    fn connect(&self, node: &str) -> Result<(Blocking, &'static str), String> {
        let (text, credential) = match &self.user {
            User::Anonymous => {
                return Err(
                    "the user of the kubeconfig has neither a client certificate nor a token; provide one".to_owned()
                );
            }
            User::Certificate { chain, key } => {
                check_name(chain, node)?;
                (self.kubeconfig().with_certificate(chain, key), "client certificate")
            }
            User::Token(token) => (self.kubeconfig().with_token(Some(token)), "token"),
        };
        Ok((Credentials::parse(&text).and_then(Blocking::new)?, credential))
    }

    fn store(
        &self,
        api: &mut Blocking,
        directory: &IdentityDirectory,
        node: &str,
        timeout: Duration,
        settings: Option<&str>,
    ) -> Result<(), Failed> {
        match &self.user {
            User::Certificate { chain, key } => identity::import(directory, node, chain, key)?,
            User::Token(_) | User::Anonymous => {
                let chain = certificate::get(api, directory, node, timeout)?;
                identity::store(directory, node, Signer::Client, &chain)?
            }
        };
        match settings {
            Some(text) => directory.write_settings(text)?,
            None => directory.remove_settings()?,
        }
        Ok(self.kubeconfig().write(directory)?)
    }
}

/// Checks that the certificate is for this node. With another node's certificate, the join would succeed, but every
/// later request would be refused.
fn check_name(chain: &[u8], node: &str) -> Result<(), String> {
    use rustls::pki_types::pem::PemObject as _;
    let der = rustls::pki_types::CertificateDer::from_pem_slice(chain).map_err(|_| "no certificate in PEM")?;
    let name = x509::read(&der).map_err(|e| e.to_string())?.common_name.unwrap_or_default();
    if name == common_name(node) {
        return Ok(());
    }
    Err(match name.strip_prefix("system:node:") {
        Some(other) => {
            format!("the kubeconfig is for the node {other}, and this is the node {node}; add --node-name {other}")
        }
        None => format!(
            "the user of the kubeconfig is {name}, and not a node (system:node:{node}); use a kubeconfig of the node, \
             or one with a bootstrap token"
        ),
    })
}

/// Returns the cluster's settings for all nodes, or None if there are none or they cannot be read.
fn read_settings(api: &mut Blocking, credential: &str) -> Result<Option<String>, String> {
    let url = api.url();
    let answered = api.call(requests::read_kubelet_configuration(), TIMEOUT).map_err(|e| unreachable(&url, &e))?;
    if let Some(refusal) = Refusal::of(&answered.response) {
        return match refusal.failure {
            Cause::Unauthorized if credential == "token" => Err(format!(
                "the API server does not accept the token ({refusal}): it has expired or was removed; {NEW_TOKEN}"
            )),
            Cause::Unauthorized => {
                Err(format!("the API server does not accept the {credential} ({refusal}); provide a valid one"))
            }
            _ => {
                print_message(&format!(
                    "note: the cluster's kubelet configuration cannot be read ({refusal}); set clusterDNS and \
                     clusterDomain in the configuration if pods need them"
                ));
                Ok(None)
            }
        };
    }
    Ok(selected(&answered.response))
}

fn selected(response: &ApiResponse) -> Option<String> {
    let object: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    match cluster::settings(object["data"]["kubelet"].as_str().unwrap_or_default()) {
        Err(why) => {
            print_message(&format!("note: the cluster's kubelet configuration cannot be used: {why}"));
            None
        }
        Ok(settings) => {
            for wrong in &settings.wrong {
                print_message(&format!("note: the cluster's kubelet configuration: {wrong}; the field is ignored"));
            }
            if !settings.left_out.is_empty() {
                let fields = settings.left_out.join(", ");
                print_message(&format!("note: ignored settings of the cluster's kubelets: {fields}"));
            }
            settings.text
        }
    }
}
