//! The server of a cluster's node (C6), which a kubelet has on port 10250: through it, the API server gets logs and
//! sessions for its users, and collectors get metrics.
//!
//! `prepare` reads or creates the certificates on a helper. `answer` lets the engine decide about each request
//! (`engine::cluster::reviews`), and then answers it with the parts of the API for kubectl.

mod answer;
mod prepare;

pub(in crate::agent) use answer::{ask_permission, failure, permitted};
pub(super) use prepare::Prepared;

use super::Machine;
use crate::adapters::server::routes::ListenerKind;
use crate::agent::Agent;
use crate::agent::jobs::JobSpec;
use crate::api::cluster::requests::Signer;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::event::{ApiEvent, Event};
use crate::event_loop::Class;
use crate::net::listener::Place;
use crate::net::tls::server::Acceptor;
use prepare::{Inputs, Material, OfCluster, Own, prepare};
use std::sync::Arc;
use std::time::Duration;

/// Time limit for the preparation. The files can be on a file system that hangs.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause after a preparation that failed.
const RETRY: Duration = Duration::from_secs(30);
/// How often the files and the addresses of the node are compared with those in use. A kubelet's period.
const CHECK: Duration = Duration::from_secs(60);

pub(in crate::agent) struct NodeServer {
    acceptor: Acceptor,
    material: Material,
    own: Option<Arc<Own>>,
    check: Check,
    /// The last failure of a check.
    failure: Option<String>,
    /// The serving certificate that the engine knows.
    of_cluster: OfCluster,
    machine: Machine,
    /// The port that the engine knows.
    reported: u16,
}

/// The next check of the files.
enum Check {
    Due(Boot),
    Running,
    /// The serving certificate or the addresses were replaced meanwhile, so the result does not count.
    Outdated,
}

/// Whether the node's server exists.
pub(in crate::agent) enum NodeServerState {
    Off,
    /// The preparation is due at this time.
    Waiting(Boot),
    /// A helper prepares it.
    Preparing,
    On(Box<NodeServer>),
}

impl NodeServer {
    pub(in crate::agent) fn acceptor(&self) -> Acceptor {
        self.acceptor.clone()
    }

    pub(in crate::agent) fn machine(&self) -> &Machine {
        &self.machine
    }
}

impl NodeServerState {
    pub(in crate::agent) fn new(config: &Config) -> NodeServerState {
        if config.node_server().is_some() { NodeServerState::Waiting(Boot(0)) } else { NodeServerState::Off }
    }

    pub(in crate::agent) fn get(&mut self) -> Option<&mut NodeServer> {
        match self {
            NodeServerState::On(server) => Some(server),
            _ => None,
        }
    }

    pub(in crate::agent) fn next_deadline(&self) -> Option<Boot> {
        match self {
            NodeServerState::Waiting(at) => Some(*at),
            NodeServerState::On(server) => match server.check {
                Check::Due(at) => Some(at),
                Check::Running | Check::Outdated => None,
            },
            NodeServerState::Off | NodeServerState::Preparing => None,
        }
    }
}

impl Agent {
    /// Prepares the server when that is due, and looks for changed certificates.
    pub(in crate::agent) fn drive_node_server(&mut self, now: Now) {
        match &mut self.serving.node_server {
            NodeServerState::Waiting(at) if *at <= now.boot => {
                self.serving.node_server = NodeServerState::Preparing;
                self.prepare_node_server(now);
            }
            NodeServerState::On(server) => {
                if matches!(server.check, Check::Due(at) if at <= now.boot) {
                    server.check = Check::Running;
                    self.prepare_node_server(now);
                }
            }
            _ => {}
        }
    }

    fn prepare_node_server(&mut self, now: Now) {
        let own = self.serving.node_server.get().and_then(|server| server.own.clone());
        let Some(inputs) = Inputs::new(&self.config, self.engine.addresses(), own) else { return };
        let (deadline, path) = (now.boot + PREPARE_TIMEOUT, inputs.kubeconfig.clone());
        let spec = JobSpec::new(Class::Credentials, "prepare the node's server", deadline).on(&path);
        self.jobs.run(
            spec,
            move || prepare(&inputs),
            |agent, prepared, now| {
                let prepared = prepared.unwrap_or_else(|e| Err(agent.reporting.standing.job_failed(&e, now.boot)));
                agent.node_server_prepared(prepared, now);
            },
        );
    }

    fn node_server_prepared(&mut self, prepared: Result<Prepared, String>, now: Now) {
        let Some(address) = self.config.node_server() else { return };
        let of_cluster = prepared.as_ref().ok().map(|prepared| prepared.of_cluster.clone());
        match (&mut self.serving.node_server, prepared) {
            (NodeServerState::On(server), _) if matches!(server.check, Check::Outdated) => {
                server.check = Check::Due(now.boot);
                return;
            }
            (NodeServerState::On(server), Ok(prepared)) => {
                if server.material != prepared.material {
                    log::info!("node-server certificates=replaced");
                    server.material = prepared.material;
                    server.acceptor = prepared.acceptor;
                }
                server.own = prepared.own;
                server.failure = None;
                server.check = Check::Due(now.boot + CHECK);
            }
            (NodeServerState::On(server), Err(why)) => {
                if server.failure.as_ref() != Some(&why) {
                    log::error!(
                        "failed to read the certificates of the node's server again; keeping the last ones \
                         error={why:?}"
                    );
                }
                server.failure = Some(why);
                server.check = Check::Due(now.boot + CHECK);
            }
            (state, Ok(prepared)) => {
                let Prepared { acceptor, material, machine, own, of_cluster: _ } = prepared;
                let server = NodeServer {
                    acceptor,
                    material,
                    own,
                    check: Check::Due(now.boot + CHECK),
                    failure: None,
                    of_cluster: OfCluster::Unwanted,
                    machine,
                    reported: 0,
                };
                *state = NodeServerState::On(Box::new(server));
                self.serving.server.listen(ListenerKind::Node.id(), Place::Tcp(address));
                self.drive_server(now);
            }
            (state, Err(why)) => {
                *state = NodeServerState::Waiting(now.boot + RETRY);
                log::error!("cannot start the node's server (port); trying again error={why:?} retry={RETRY:?}");
            }
        }
        if let Some(found) = of_cluster {
            self.report_serving_certificate(found);
        }
    }

    /// Tells the engine which serving certificate was found.
    fn report_serving_certificate(&mut self, found: OfCluster) {
        let Some(server) = self.serving.node_server.get().filter(|server| server.of_cluster != found) else { return };
        server.of_cluster = found.clone();
        let in_use = match found {
            OfCluster::Unwanted => return,
            OfCluster::Found(in_use) => Some(in_use),
            OfCluster::Nothing(why) => {
                log::info!("node-server certificate=own reason={why:?}");
                None
            }
        };
        self.events.push_back(Event::Api(ApiEvent::Certificate(Signer::Serving, in_use)));
    }

    /// The serving certificate was replaced, or the node has other addresses. New connections get the new certificate
    /// as soon as a helper has read or issued it.
    pub(in crate::agent) fn check_node_server(&mut self, now: Now) {
        let Some(server) = self.serving.node_server.get() else { return };
        server.check = match server.check {
            Check::Due(_) => Check::Due(now.boot),
            Check::Running | Check::Outdated => Check::Outdated,
        };
    }

    /// Tells the engine when the port begins or ceases to listen.
    pub(in crate::agent) fn report_node_server(&mut self) {
        let port = self.serving.server.local_address(ListenerKind::Node.id()).map_or(0, |address| address.port());
        if let Some(server) = self.serving.node_server.get().filter(|server| server.reported != port) {
            server.reported = port;
            self.events.push_back(Event::NodeServer { port });
            self.drive_server_again();
        }
    }
}
