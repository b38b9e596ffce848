//! The node's server in a cluster (C6), which a kubelet has on port 10250. Through it, the API server gets logs and
//! sessions for its users, and collectors get metrics.
//!
//! `prepare` reads or creates the certificates on a helper thread. `answer` has the engine authorize each request
//! (`engine::cluster::reviews`), and then serves it with parts of the API for kubectl.

mod answer;
mod prepare;

pub(in crate::agent) use answer::{ask_permission, failure, permitted};
pub(super) use prepare::Prepared;

use crate::adapters::server::routes::ListenerKind;
use crate::agent::bodies::Streamed;
use crate::agent::jobs::{JobSpec, Jobs};
use crate::agent::serving::Serving;
use crate::api::cluster::machine::MachineIdentity;
use crate::api::cluster::requests::Signer;
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::event::{ApiEvent, Event};
use crate::event_loop::Class;
use crate::net::listener::Place;
use crate::net::server::Server;
use crate::net::tls::server::Acceptor;
use prepare::{Inputs, Material, OfCluster, Own, prepare};
use std::sync::Arc;
use std::time::Duration;

/// Time limit for the preparation, because the files can be on a file system that hangs.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause after a failed preparation.
const RETRY: Duration = Duration::from_secs(30);
/// The interval at which the files and the addresses of the node are compared with those in use. The same as in a
/// kubelet.
const CHECK: Duration = Duration::from_secs(60);

pub(in crate::agent) struct NodeServer {
    acceptor: Acceptor,
    material: Material,
    own: Option<Arc<Own>>,
    check: Check,
    /// The last failure of a check.
    failure: Option<String>,
    /// The serving certificate that was last reported to the engine.
    of_cluster: OfCluster,
    machine: MachineIdentity,
    /// The port that was last reported to the engine.
    reported: u16,
}

/// The next check of the files.
enum Check {
    Due(Boot),
    Running,
    /// The serving certificate or the addresses were replaced meanwhile, so the result is ignored.
    Outdated,
}

/// The state of the node's server.
pub(in crate::agent) enum NodeServerState {
    Off,
    /// The preparation is due at this time.
    Waiting(Boot),
    /// A helper thread is preparing the server.
    Preparing,
    On(Box<NodeServer>),
}

impl NodeServer {
    pub(in crate::agent) fn acceptor(&self) -> Acceptor {
        self.acceptor.clone()
    }

    pub(in crate::agent) fn machine(&self) -> &MachineIdentity {
        &self.machine
    }

    fn new(prepared: Prepared, now: Boot) -> NodeServer {
        let Prepared { acceptor, material, machine, own, of_cluster: _ } = prepared;
        NodeServer {
            acceptor,
            material,
            own,
            check: Check::Due(now + CHECK),
            failure: None,
            of_cluster: OfCluster::Unwanted,
            machine,
            reported: 0,
        }
    }

    /// Takes the result of a check.
    fn checked(&mut self, prepared: Result<Prepared, String>, now: Boot) {
        self.check = Check::Due(now + CHECK);
        match prepared {
            Ok(prepared) => {
                if self.material != prepared.material {
                    log::info!("node-server certificates=replaced");
                    self.material = prepared.material;
                    self.acceptor = prepared.acceptor;
                }
                self.own = prepared.own;
                self.failure = None;
            }
            Err(why) => {
                if self.failure.as_ref() != Some(&why) {
                    log::error!(
                        "failed to reload the certificates of the node's server; keeping the previous ones \
                         error={why:?}"
                    );
                }
                self.failure = Some(why);
            }
        }
    }

    /// Returns an event for the engine if this serving certificate has not been reported to it yet.
    fn report_certificate(&mut self, found: OfCluster) -> Option<Event> {
        if self.of_cluster == found {
            return None;
        }
        self.of_cluster = found.clone();
        let in_use = match found {
            OfCluster::Unwanted => return None,
            OfCluster::Found(in_use) => Some(in_use),
            OfCluster::Nothing(why) => {
                log::info!("node-server certificate=own reason={why:?}");
                None
            }
        };
        Some(Event::Api(ApiEvent::Certificate(Signer::Serving, in_use)))
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

    /// Prepares the server when that is due, and checks for changed certificates. `addresses` are the node's addresses.
    pub(in crate::agent) fn drive(&mut self, config: &Config, addresses: &[String], jobs: &mut Jobs, now: Now) {
        let own = match self {
            NodeServerState::Waiting(at) if *at <= now.boot => {
                *self = NodeServerState::Preparing;
                None
            }
            NodeServerState::On(server) if matches!(server.check, Check::Due(at) if at <= now.boot) => {
                server.check = Check::Running;
                server.own.clone()
            }
            _ => return,
        };
        let Some(inputs) = Inputs::new(config, addresses, own) else { return };
        let (deadline, path) = (now.boot + PREPARE_TIMEOUT, inputs.kubeconfig.clone());
        let spec = JobSpec::new(Class::Credentials, "prepare the node's server", deadline).on(&path);
        jobs.run(
            spec,
            move || prepare(&inputs),
            |agent, prepared, now| {
                let log = &mut agent.reporting.standing;
                let prepared = prepared.unwrap_or_else(|e| Err(log.job_failed(&e, now.boot)));
                let Serving { node_server, server, .. } = &mut agent.serving;
                let (listens, certificate) = node_server.prepared(prepared, &agent.config, server, now.boot);
                if listens {
                    agent.drive_server(now);
                }
                agent.events.extend(certificate);
            },
        );
    }

    /// Takes the result of a preparation or a check. Returns true if the server has just been created (its port opens
    /// when `listeners` is driven), and an event if another serving certificate was found.
    fn prepared(
        &mut self,
        prepared: Result<Prepared, String>,
        config: &Config,
        listeners: &mut Server<Streamed>,
        now: Boot,
    ) -> (bool, Option<Event>) {
        let Some(address) = config.node_server() else { return (false, None) };
        let of_cluster = prepared.as_ref().ok().map(|prepared| prepared.of_cluster.clone());
        let mut listens = false;
        match (&mut *self, prepared) {
            (NodeServerState::On(server), _) if matches!(server.check, Check::Outdated) => {
                server.check = Check::Due(now);
                return (false, None);
            }
            (NodeServerState::On(server), prepared) => server.checked(prepared, now),
            (state, Ok(prepared)) => {
                *state = NodeServerState::On(Box::new(NodeServer::new(prepared, now)));
                listeners.listen(ListenerKind::Node.id(), Place::Tcp(address));
                listens = true;
            }
            (state, Err(why)) => {
                *state = NodeServerState::Waiting(now + RETRY);
                log::error!("cannot start the node's server (field port); trying again error={why:?} retry={RETRY:?}");
            }
        }
        let server = self.get();
        (listens, server.zip(of_cluster).and_then(|(server, found)| server.report_certificate(found)))
    }

    /// Checks the certificates at once, because the serving certificate or the node's addresses have changed. New
    /// connections get the new certificate as soon as a helper thread has read or issued it.
    pub(in crate::agent) fn check_at_once(&mut self, now: Boot) {
        let Some(server) = self.get() else { return };
        server.check = match server.check {
            Check::Due(_) => Check::Due(now),
            Check::Running | Check::Outdated => Check::Outdated,
        };
    }

    /// Returns an event for the engine when the server starts or stops listening on its port.
    pub(in crate::agent) fn report_port(&mut self, listeners: &Server<Streamed>) -> Option<Event> {
        let port = listeners.local_address(ListenerKind::Node.id()).map_or(0, |address| address.port());
        let server = self.get().filter(|server| server.reported != port)?;
        server.reported = port;
        Some(Event::NodeServer { port })
    }
}
