//! The Kubernetes API for kubectl: answers requests of the secure listener from the engine's state.
//!
//! `access` has the certificates and `prepare` reads them on a helper. `versions` follows the objects and gives each
//! change a resource version; `objects` shows them in the form of the API, `node` this machine; `body` writes lists and
//! watches, `encoded` has the last changes that it wrote; `logs` sends container logs; `head` checks the head of a
//! request, `answer` finds its first step; those that need the engine are for `sessions` (exec, attach, port-forward),
//! `metrics` (top), `evictions` (also cordons) and `ephemeral` (debug). `kubelet` answers the paths of a kubelet:
//! `reading` has the usage of the node and its pods, which `resource_metrics`, `cadvisor` and `summary` write. Nothing
//! of it exists while the listener is off. `node_server` is another server, which uses `logs`, `sessions` and `kubelet`
//! too.

mod access;
mod answer;
mod body;
mod cadvisor;
mod encoded;
mod ephemeral;
mod evictions;
mod head;
mod kubelet;
mod logs;
mod metrics;
mod node;
mod node_server;
mod objects;
mod prepare;
mod reading;
mod resource_metrics;
mod sessions;
mod summary;
mod versions;
mod writes;

pub(super) use ephemeral::Debugging;
pub(super) use kubelet::{UsagePage, usage_page};
pub(super) use logs::{LogRequest, open as open_log, response as log_response};
pub(super) use metrics::{Sample, Wanted};
pub(super) use node_server::{ask_permission, failure as node_server_failure, permitted};
pub(super) use prepare::{Prepared, prepare};
pub(super) use sessions::Session;
pub(super) use writes::Change;

use super::Agent;
use super::jobs::JobSpec;
use crate::adapters::pki::{Names, Revoked};
use crate::adapters::server::routes::ListenerKind;
use crate::api::reason::Reason;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::effect::Severity;
use crate::event_loop::Class;
use crate::net::addresses::addresses;
use crate::net::listener::Place;
use crate::net::server::exchange::Ticket;
use crate::net::tls::server::Acceptor;
use crate::net::x509;
use access::Access;
use encoded::EncodedChanges;
pub(in crate::agent) use node::Machine;
pub(in crate::agent) use node_server::{NodeServer, NodeServerState};
use std::net::IpAddr;
use std::time::Duration;
use versions::Objects;
use writes::Writes;

/// Time limit for the preparation: reads and writes of small files, and the lock, which commands hold shortly.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a preparation that failed.
const RETRY: Duration = Duration::from_secs(30);

/// The state of the API.
pub(super) struct Kube {
    objects: Objects,
    access: Access,
    machine: Machine,
    /// The names under which clients may address the server.
    names: Names,
    writes: Writes,
    encoded: EncodedChanges,
}

impl Kube {
    /// The client of a request has disconnected.
    pub(super) fn gone(&mut self, ticket: Ticket) {
        self.writes.gone(ticket);
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn acceptor(&self) -> Acceptor {
        self.access.acceptor()
    }

    /// Returns whether the certificate of a client (DER) is revoked. If it or the list cannot be read, it counts as
    /// revoked.
    pub(super) fn revoked(&mut self) -> impl Fn(&[u8]) -> bool + use<> {
        let revoked = self.access.revoked().cloned();
        let is_in = |revoked: &Revoked, certificate: &[u8]| {
            x509::read(certificate).map_or(true, |certificate| revoked.contains(&certificate.serial))
        };
        move |certificate| revoked.as_ref().is_none_or(|revoked| is_in(revoked, certificate))
    }
}

/// Whether the API is served.
pub(super) enum KubeState {
    Off,
    /// A helper reads the certificates.
    Preparing,
    /// The preparation failed, and is repeated at this time.
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
            KubeState::On(kube) => kube.writes.next_deadline(),
            KubeState::Off | KubeState::Preparing => None,
        }
    }
}

impl Agent {
    /// Prepares the API when that is due, and renews the server's certificate in time.
    pub(super) fn drive_kube(&mut self, now: Now) {
        let due = match &mut self.serving.kube {
            KubeState::Waiting(at) => *at <= now.boot,
            KubeState::On(kube) => kube.access.is_renewal_due(now),
            KubeState::Off | KubeState::Preparing => false,
        };
        if !due {
            return;
        }
        if let KubeState::Waiting(_) = self.serving.kube {
            self.serving.kube = KubeState::Preparing;
        }
        let names = names(&self.config.node_name, self.config.kubectl_address, &addresses());
        let (root, node) = (self.config.root_dir.clone(), self.config.node_name.clone());
        let spec = JobSpec::new(Class::Records, "prepare the API for kubectl", now.boot + PREPARE_TIMEOUT);
        self.jobs.run(
            spec,
            move || prepare(&root, &node, &names),
            |agent, prepared, now| match prepared
                .unwrap_or_else(|e| Err(agent.reporting.standing.job_failed(&e, now.boot)))
            {
                Ok(prepared) => agent.kube_prepared(*prepared, now),
                Err(why) => agent.kube_not_prepared(&why, now),
            },
        );
    }

    fn kube_prepared(&mut self, prepared: Prepared, now: Now) {
        let Prepared { run, machine, certificate } = prepared;
        if let KubeState::On(kube) = &mut self.serving.kube {
            kube.access.renewed(certificate);
            return;
        }
        let Some(address) = self.config.kubectl() else { return };
        let kube = Kube {
            objects: Objects::new(run),
            access: Access::new(crate::adapters::pki::directory(&self.config.root_dir), certificate),
            machine,
            names: names(&self.config.node_name, self.config.kubectl_address, &addresses()),
            writes: Writes::default(),
            encoded: EncodedChanges::default(),
        };
        self.serving.kube = KubeState::On(Box::new(kube));
        self.serving.server.listen(ListenerKind::Kubectl.id(), Place::Tcp(address));
        self.drive_server(now);
    }

    fn kube_not_prepared(&mut self, why: &str, now: Now) {
        let doing = match &mut self.serving.kube {
            KubeState::On(kube) => {
                kube.access.not_renewed(now.boot + RETRY);
                "failed to renew the certificate of the API for kubectl"
            }
            state => {
                *state = KubeState::Waiting(now.boot + RETRY);
                "failed to prepare the API for kubectl"
            }
        };
        log::error!("{doing}; trying again error={why:?} retry={RETRY:?}");
    }

    /// A reload has perhaps changed the address of the API. If the new one cannot be opened, the old one stays.
    pub(super) fn kubectl_configured(&mut self, address: IpAddr, port: u16, now: Now) {
        if (address, port) == (self.config.kubectl_address, self.config.kubectl_port) {
            return;
        }
        let new = self.config.kubectl();
        if let KubeState::On(kube) = &mut self.serving.kube {
            let registry = self.event_loop.registry();
            if let Err(e) = self.serving.server.relocate(ListenerKind::Kubectl.id(), new, registry) {
                let wanted = new.map(|a| a.to_string()).unwrap_or_default();
                (self.config.kubectl_address, self.config.kubectl_port) = (address, port);
                let why = format!(
                    "kubectlPort: cannot listen on {wanted}: {e}; the API for kubectl stays at {address}, port {port}; \
                     choose another port, or end the process that uses it, and reload again"
                );
                log::error!("reload: {why}");
                self.reporting.recorder.node_event(Severity::Warning, Reason::FailedListen, &why, now);
                self.reporting.service.reload_error.get_or_insert(why);
            } else if address != self.config.kubectl_address {
                // The certificate has the addresses of the server.
                kube.names = names(&self.config.node_name, self.config.kubectl_address, &addresses());
                kube.access.not_renewed(now.boot);
            }
        } else {
            self.serving.kube = KubeState::new(&self.config);
        }
        self.drive_server_again();
    }
}

/// The names and addresses of a server that listens on `address`, for its certificate. `of_node`: the addresses of the
/// node.
fn names(node: &str, address: IpAddr, of_node: &[String]) -> Names {
    let all: Vec<IpAddr> = of_node.iter().filter_map(|a| a.parse().ok()).collect();
    Names::new(node, if address.is_unspecified() { all } else { vec![address] })
}
