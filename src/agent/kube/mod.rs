//! Serves the Kubernetes API for kubectl on the secure listener. `kubectl_api` decides what a request means.
//!
//! `access` holds the certificates, and `prepare` reads them on a helper thread. `requests` carries out the first
//! steps of requests, `file_changes` changes manifests, `sessions` handles exec, attach and port-forward, `metrics`
//! measures the usage for `kubectl top`, and `logs` sends container logs. `kubelet` serves the paths of a kubelet:
//! `reading` has the usage of the node and its pods, which `resource_metrics`, `cadvisor` and `summary` write. None
//! of this exists while the listener is off. `node_server` is a separate server, which also uses `logs`, `sessions`
//! and `kubelet`.

mod access;
mod cadvisor;
mod file_changes;
mod kubelet;
mod logs;
mod metrics;
mod node_server;
mod prepare;
mod reading;
mod requests;
mod resource_metrics;
mod sessions;
mod summary;

pub(super) use file_changes::take_back;
pub(super) use kubelet::{UsagePage, usage_page};
pub(super) use logs::{open as open_log, response as log_response};
pub(super) use metrics::{Sample, Wanted};
pub(super) use node_server::{ask_permission, failure as node_server_failure, permitted};
pub(super) use prepare::{Prepared, prepare};
pub(super) use requests::response;
pub(super) use sessions::Session;

use super::bodies::Streamed;
use super::jobs::{JobSpec, Jobs};
use super::serving::Serving;
use crate::adapters::manifests::edit::Abandoned;
use crate::adapters::pki::{Names, Revoked};
use crate::adapters::server::routes::ListenerKind;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::event_loop::Class;
use crate::kubectl_api::KubectlApi;
use crate::net::addresses::addresses;
use crate::net::listener::Place;
use crate::net::server::Server;
use crate::net::tls::server::Acceptor;
use crate::net::x509;
use access::Access;
use mio::Registry;
pub(in crate::agent) use node_server::{NodeServer, NodeServerState};
use std::net::IpAddr;
use std::time::Duration;

/// Time limit for the preparation, which reads and writes small files and takes a lock that commands hold for a short
/// time.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed preparation.
const RETRY: Duration = Duration::from_secs(30);

/// The API, its certificates and its clients.
pub(super) struct Kube {
    pub(super) api: KubectlApi,
    access: Access,
    /// Tells the helper that is changing a manifest that its client has disconnected.
    abandoned: Abandoned,
}

impl Kube {
    fn new(Prepared { run, machine, certificate }: Prepared, config: &Config) -> Kube {
        Kube {
            api: KubectlApi::new(run, machine),
            access: Access::new(crate::adapters::pki::directory(&config.root_dir), certificate),
            abandoned: Abandoned::default(),
        }
    }

    pub(super) fn acceptor(&self) -> Acceptor {
        self.access.acceptor()
    }

    /// Returns a function that reports whether a client's certificate (DER) is revoked. A certificate is considered
    /// revoked if it or the list of revoked certificates cannot be read.
    pub(super) fn revoked(&mut self) -> impl Fn(&[u8]) -> bool + use<> {
        let revoked = self.access.revoked().cloned();
        let is_in = |revoked: &Revoked, certificate: &[u8]| {
            x509::read(certificate).map_or(true, |certificate| revoked.contains(&certificate.serial))
        };
        move |certificate| revoked.as_ref().is_none_or(|revoked| is_in(revoked, certificate))
    }
}

/// The state of the API.
pub(super) enum KubeState {
    Off,
    /// A helper thread is reading the certificates.
    Preparing,
    /// The preparation is due at this time: immediately at the start, later after a failure.
    Waiting(Boot),
    On(Box<Kube>),
}

impl KubeState {
    pub(super) fn new(config: &Config) -> KubeState {
        if config.kubectl().is_some() { KubeState::Waiting(Boot(0)) } else { KubeState::Off }
    }

    pub(super) fn get(&mut self) -> Option<&mut Kube> {
        match self {
            KubeState::On(kube) => Some(kube),
            _ => None,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        match self {
            KubeState::Waiting(at) => Some(*at),
            KubeState::On(kube) => kube.api.next_deadline(),
            KubeState::Off | KubeState::Preparing => None,
        }
    }

    /// Prepares the API when that is due, and renews the server's certificate before it expires.
    pub(super) fn drive(&mut self, config: &Config, jobs: &mut Jobs, now: Now) {
        let is_due = match self {
            KubeState::Waiting(at) => *at <= now.boot,
            KubeState::On(kube) => kube.access.is_renewal_due(now),
            KubeState::Off | KubeState::Preparing => false,
        };
        if !is_due {
            return;
        }
        if let KubeState::Waiting(_) = self {
            *self = KubeState::Preparing;
        }
        let names = names(&config.node_name, config.kubectl_address, &addresses());
        let (root, node) = (config.root_dir.clone(), config.node_name.clone());
        let spec = JobSpec::new(Class::Records, "prepare the API for kubectl", now.boot + PREPARE_TIMEOUT);
        jobs.run(
            spec,
            move || prepare(&root, &node, &names),
            |agent, prepared, now| {
                let log = &mut agent.reporting.standing;
                let prepared = prepared.unwrap_or_else(|e| Err(log.job_failed(&e, now.boot)));
                let Serving { kube, server, .. } = &mut agent.serving;
                if kube.prepared(prepared, &agent.config, server, now.boot) {
                    agent.drive_server(now);
                }
            },
        );
    }

    /// Takes the result of a preparation. Returns true if the API has just been created: its port opens when `server`
    /// is driven.
    fn prepared(
        &mut self,
        prepared: Result<Box<Prepared>, String>,
        config: &Config,
        server: &mut Server<Streamed>,
        now: Boot,
    ) -> bool {
        match (&mut *self, prepared) {
            (KubeState::On(kube), Ok(prepared)) => kube.access.renewed(prepared.certificate),
            (state, Ok(prepared)) => {
                let Some(address) = config.kubectl() else { return false };
                *state = KubeState::On(Box::new(Kube::new(*prepared, config)));
                server.listen(ListenerKind::Kubectl.id(), Place::Tcp(address));
                return true;
            }
            (KubeState::On(kube), Err(why)) => {
                kube.access.not_renewed(now + RETRY);
                log_failure("failed to renew the certificate of the API for kubectl", &why);
            }
            (state, Err(why)) => {
                *state = KubeState::Waiting(now + RETRY);
                log_failure("failed to prepare the API for kubectl", &why);
            }
        }
        false
    }

    /// Applies a reload that has changed the address or the port of the API. `before` is the old address.
    ///
    /// # Errors
    /// The new listener cannot be opened. The old one stays.
    pub(super) fn relocate(
        &mut self,
        before: IpAddr,
        config: &Config,
        server: &mut Server<Streamed>,
        registry: &Registry,
        now: Boot,
    ) -> Result<(), String> {
        let KubeState::On(kube) = self else {
            *self = KubeState::new(config);
            return Ok(());
        };
        let new = config.kubectl();
        if let Err(e) = server.relocate(ListenerKind::Kubectl.id(), new, registry) {
            let wanted = new.map(|a| a.to_string()).unwrap_or_default();
            return Err(format!("cannot listen on {wanted}: {e}"));
        }
        if before != config.kubectl_address {
            // The certificate contains the addresses of the server, so it must be renewed.
            kube.access.not_renewed(now);
        }
        Ok(())
    }
}

fn log_failure(doing: &str, why: &str) {
    log::error!("{doing}; trying again error={why:?} retry={RETRY:?}");
}

/// Returns the names and addresses for the certificate of a server that listens on `address`. `of_node` are the
/// addresses of the node.
fn names(node: &str, address: IpAddr, of_node: &[String]) -> Names {
    let all: Vec<IpAddr> = of_node.iter().filter_map(|a| a.parse().ok()).collect();
    Names::new(node, if address.is_unspecified() { all } else { vec![address] })
}
