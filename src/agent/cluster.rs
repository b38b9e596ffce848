//! Passes the engine's requests to the API server of the cluster, and the responses to the engine. Helper threads
//! read the kubeconfig and resolve the server's name.

use super::identity;
use super::jobs::{JobSpec, Jobs};
use crate::adapters::api_server::{AnswerLimits, ApiServer, Arrived, Credentials};
use crate::api::cluster::request::{ApiError, ApiRequest};
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::event::{ApiEvent, Event};
use crate::engine::op::OpId;
use crate::event_loop::{Class, EventLoop, clock};
use mio::Token;
use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that the engine may spend on events that have arrived, in one turn of the loop. The rest waits for the next
/// turns, and nothing more is read until the engine has taken all of it. A server that never stops sending therefore
/// delays nothing else.
const TURN: Duration = Duration::from_millis(50);

/// The node's connection to its cluster.
pub struct ClusterConnection {
    kubeconfig: PathBuf,
    tokens: [Token; 2],
    server: Server,
    reading: Reading,
    /// Events that wait for the engine: at most those that one call of `drive` reads.
    arrived: VecDeque<ApiEvent>,
    /// The start of the turn in which the engine took the most recent of them.
    turn: Boot,
    /// A reused buffer.
    buffer: Vec<Arrived>,
}

/// Whether a helper thread is reading the kubeconfig.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    No,
    Running,
    /// The certificate was replaced meanwhile, so the result is ignored.
    Outdated,
}

enum Server {
    /// The kubeconfig cannot be used, for this reason.
    Unknown(String),
    Known(Box<ApiServer>),
}

impl ClusterConnection {
    /// Returns None if the node has no cluster.
    pub fn new(config: &Config, tokens: [Token; 2]) -> Option<ClusterConnection> {
        let kubeconfig = config.kubeconfig.clone()?;
        let server = match Credentials::read(&kubeconfig) {
            Ok(credentials) => {
                log::info!("cluster server={}", credentials.server());
                Server::Known(Box::new(ApiServer::new(credentials, AnswerLimits::default(), tokens)))
            }
            Err(why) => {
                log::error!("the node cannot join its cluster: {why}");
                Server::Unknown(why)
            }
        };
        Some(ClusterConnection {
            kubeconfig,
            tokens,
            server,
            reading: Reading::No,
            arrived: VecDeque::new(),
            turn: Boot(0),
            buffer: Vec::new(),
        })
    }

    pub fn owns(&self, token: Token) -> bool {
        matches!(&self.server, Server::Known(server) if server.owns(token))
    }

    pub fn next_deadline(&self) -> Option<Boot> {
        match &self.server {
            Server::Known(server) => server.next_deadline(),
            Server::Unknown(_) => None,
        }
    }

    /// Returns the number of bytes sent to the API server and received from it.
    pub fn traffic(&self) -> (u64, u64) {
        match &self.server {
            Server::Known(server) => server.traffic(),
            Server::Unknown(_) => (0, 0),
        }
    }

    /// Returns the URL of the server, or the path of the kubeconfig if it cannot be used.
    pub fn server(&self) -> String {
        self.credentials().map_or_else(|| self.kubeconfig.display().to_string(), |c| c.server().to_string())
    }

    /// Returns the credentials in use, if the kubeconfig could be read.
    pub fn credentials(&self) -> Option<&Credentials> {
        match &self.server {
            Server::Known(server) => Some(server.credentials()),
            Server::Unknown(_) => None,
        }
    }

    fn read(&mut self, credentials: Result<Credentials, String>) {
        match (credentials, &mut self.server) {
            (Ok(credentials), Server::Known(server)) => server.replace_credentials(credentials),
            (Ok(credentials), Server::Unknown(_)) => {
                log::info!("cluster server={}", credentials.server());
                let server = ApiServer::new(credentials, AnswerLimits::default(), self.tokens);
                self.server = Server::Known(Box::new(server));
            }
            // The last credentials may still be valid.
            (Err(why), Server::Known(_)) => log::warn!("cannot reload the kubeconfig: {why}"),
            (Err(why), Server::Unknown(last)) => *last = why,
        }
    }

    /// Starts a call. If the kubeconfig cannot be used, returns the event that ends the call.
    pub(super) fn call(
        &mut self,
        op: OpId,
        request: ApiRequest,
        deadline: Option<Boot>,
        event_loop: &mut EventLoop,
        jobs: &mut Jobs,
        now: Now,
    ) -> Option<Event> {
        match &mut self.server {
            Server::Known(server) => {
                server.call(op, request, deadline);
                self.drive_soon(event_loop);
                None
            }
            Server::Unknown(why) => {
                let why = why.clone();
                self.read_kubeconfig(jobs, now);
                Some(not_sent(op, why))
            }
        }
    }

    /// Cancels the operation. Returns false if it is not a request to the API server.
    pub(super) fn cancel(&mut self, op: OpId, event_loop: &mut EventLoop) -> bool {
        let Server::Known(server) = &mut self.server else { return false };
        let is_known = server.has(op);
        if is_known {
            server.cancel(op);
            self.drive_soon(event_loop);
        }
        is_known
    }

    pub(super) fn ready(&mut self, token: Token) {
        if let Server::Known(server) = &mut self.server {
            server.ready(token);
        }
    }

    pub(super) fn drive(&mut self, event_loop: &mut EventLoop, jobs: &mut Jobs, now: Now) {
        let Server::Known(server) = &mut self.server else { return };
        if !self.arrived.is_empty() {
            return self.drive_soon(event_loop);
        }
        let mut all = std::mem::take(&mut self.buffer);
        if server.drive(event_loop.registry(), now.boot, &mut all) {
            self.drive_soon(event_loop);
        }
        for arrived in all.drain(..) {
            match arrived {
                Arrived::Connected { address } => log::info!("api-server=connected address={address}"),
                Arrived::Disconnected { why } => {
                    log::debug!("api-server=disconnected error={why:?}");
                    // Another program may have renewed the credentials.
                    self.read_kubeconfig(jobs, now);
                }
                Arrived::Resolve { host, port } => look_up(host, port, jobs, now),
                Arrived::Item { id: op, json } => self.arrived.push_back(ApiEvent::Item { op, json }),
                Arrived::Line { id: op, json } => self.arrived.push_back(ApiEvent::Line { op, json }),
                Arrived::Done { id: op, result } => {
                    if let Err(e) = &result {
                        log::debug!("op={op} api-server error={e:?}");
                    }
                    self.arrived.push_back(ApiEvent::Done { op, result });
                }
            }
        }
        // Release the memory after a burst.
        all.shrink_to(16);
        self.buffer = all;
    }

    /// Returns the next event of the API server, if there is time for it in this turn, which began at `now`.
    pub(super) fn next_event(&mut self, event_loop: &mut EventLoop, now: Now) -> Option<Event> {
        if self.arrived.is_empty() {
            return None;
        }
        let is_first = std::mem::replace(&mut self.turn, now.boot) != now.boot;
        if !is_first && clock::boot().since(now.boot) >= TURN {
            self.drive_soon(event_loop);
            return None;
        }
        let event = self.arrived.pop_front().map(Event::Api);
        if self.arrived.is_empty() {
            self.arrived.shrink_to(16);
        }
        event
    }

    /// Continues in the next turn of the loop, which does not block. Within one turn, requests and responses could
    /// trigger each other forever.
    fn drive_soon(&self, event_loop: &mut EventLoop) {
        event_loop.again(self.tokens[0]);
    }

    fn read_kubeconfig(&mut self, jobs: &mut Jobs, now: Now) {
        if self.reading != Reading::No {
            return;
        }
        self.reading = Reading::Running;
        let of_thread = self.kubeconfig.clone();
        let deadline = now.boot + READ_TIMEOUT;
        let spec = JobSpec::new(Class::Credentials, "read the kubeconfig", deadline).on(&self.kubeconfig);
        jobs.run(
            spec,
            move || Credentials::read(&of_thread),
            |agent, credentials, now| {
                let no_answer = |_| Err("the file system does not respond".to_owned());
                let credentials = credentials.unwrap_or_else(no_answer);
                let Some(cluster) = &mut agent.cluster else { return };
                agent.events.extend(cluster.kubeconfig_read(credentials, &agent.config, &mut agent.jobs, now));
            },
        );
    }

    /// Returns an event with the certificate that is in use now.
    fn kubeconfig_read(
        &mut self,
        credentials: Result<Credentials, String>,
        config: &Config,
        jobs: &mut Jobs,
        now: Now,
    ) -> Option<Event> {
        if std::mem::replace(&mut self.reading, Reading::No) == Reading::Outdated {
            self.read_kubeconfig(jobs, now);
            return None;
        }
        let event = credentials.as_ref().ok().map(|credentials| identity::client_certificate(credentials, config));
        self.read(credentials);
        event
    }

    /// Uses the new certificate for new requests.
    pub(super) fn use_new_credentials(&mut self, credentials: Credentials) {
        if self.reading == Reading::Running {
            self.reading = Reading::Outdated;
        }
        self.read(Ok(credentials));
    }

    /// Takes the result of a helper's look-up of the server's name.
    fn looked_up(&mut self, host: &str, found: Result<Vec<SocketAddr>, String>) {
        if let Server::Known(server) = &mut self.server {
            match found {
                Ok(addresses) => server.set_addresses(host, addresses),
                Err(why) => server.not_resolved(host, &why),
            }
        }
    }
}

/// Returns the event that ends a request that cannot be sent.
pub(super) fn not_sent(op: OpId, why: String) -> Event {
    Event::Api(ApiEvent::Done { op, result: Err(ApiError::NotSent(why)) })
}

fn look_up(host: String, port: u16, jobs: &mut Jobs, now: Now) {
    let of_thread = host.clone();
    let work = move || {
        let found = (of_thread.as_str(), port).to_socket_addrs();
        found.map(Iterator::collect).map_err(|e| e.to_string())
    };
    let path = PathBuf::from(&host);
    let spec = JobSpec::new(Class::Names, "look up the API server", now.boot + LOOKUP_TIMEOUT).on(&path);
    jobs.run(spec, work, move |agent, found, now| {
        if let Some(cluster) = &mut agent.cluster {
            cluster.looked_up(&host, found.unwrap_or_else(|_| Err("i/o timeout".to_owned())));
        }
        agent.drive_cluster(now);
    });
}
