//! Passes the engine's requests to the API server of the cluster, and its answers to the engine. Helper threads read
//! the kubeconfig and look up the server's name.

use super::Agent;
use super::jobs::JobSpec;
use crate::adapters::api_server::{ApiServer, Arrived, Credentials, Limits};
use crate::api::cluster::request::{ApiError, ApiRequest};
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::event::{ApiEvent, Event};
use crate::engine::op::OpId;
use crate::event_loop::{Class, clock};
use mio::Token;
use std::collections::VecDeque;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// In a turn of the loop, the engine takes what has arrived for so long. The rest waits for the next turns, and nothing
/// more is read until it is taken. So a server that sends without end delays no one else.
const TURN: Duration = Duration::from_millis(50);

/// The node's connection to its cluster.
pub struct ClusterConnection {
    kubeconfig: PathBuf,
    tokens: [Token; 2],
    server: Server,
    reading: Reading,
    /// What has arrived and waits for the engine, at most what one drive reads.
    arrived: VecDeque<ApiEvent>,
    /// The beginning of the turn in which the engine took the last of it.
    turn: Boot,
    /// A reused buffer.
    buffer: Vec<Arrived>,
}

/// The read of the kubeconfig by a helper thread.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    No,
    Running,
    /// The certificate was replaced meanwhile, so the result does not count.
    Outdated,
}

enum Server {
    /// The kubeconfig cannot be used, for this reason.
    Unknown(String),
    Known(Box<ApiServer>),
}

impl ClusterConnection {
    /// None: the node has no cluster.
    pub fn new(config: &Config, tokens: [Token; 2]) -> Option<ClusterConnection> {
        let kubeconfig = config.kubeconfig.clone()?;
        let server = match Credentials::read(&kubeconfig) {
            Ok(credentials) => {
                log::info!("cluster server={}", credentials.server());
                Server::Known(Box::new(ApiServer::new(credentials, Limits::default(), tokens)))
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

    /// The bytes sent to the API server and received from it.
    pub fn traffic(&self) -> (u64, u64) {
        match &self.server {
            Server::Known(server) => server.traffic(),
            Server::Unknown(_) => (0, 0),
        }
    }

    /// The URL of the server; the path of the kubeconfig if that cannot be used.
    pub fn server(&self) -> String {
        self.credentials().map_or_else(|| self.kubeconfig.display().to_string(), |c| c.server().to_string())
    }

    /// The credentials in use, if the kubeconfig could be read.
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
                let server = ApiServer::new(credentials, Limits::default(), self.tokens);
                self.server = Server::Known(Box::new(server));
            }
            // The last credentials may still be valid.
            (Err(why), Server::Known(_)) => log::warn!("the kubeconfig cannot be read again: {why}"),
            (Err(why), Server::Unknown(last)) => *last = why,
        }
    }
}

impl Agent {
    pub(super) fn call_api(&mut self, op: OpId, request: ApiRequest, timeout: Option<Duration>, now: Now) {
        let deadline = timeout.map(|timeout| now.boot + timeout);
        let why = match self.cluster.as_mut().map(|cluster| &mut cluster.server) {
            Some(Server::Known(server)) => {
                server.call(op, request, deadline);
                return self.drive_cluster_soon();
            }
            Some(Server::Unknown(why)) => why.clone(),
            None => "the node has no cluster".to_owned(),
        };
        self.events.push_back(Event::Api(ApiEvent::Done { op, result: Err(ApiError::NotSent(why)) }));
        self.read_kubeconfig(now);
    }

    /// True if it is a request to the API server.
    pub(super) fn cancel_api_call(&mut self, op: OpId) -> bool {
        let Some(Server::Known(server)) = self.cluster.as_mut().map(|cluster| &mut cluster.server) else {
            return false;
        };
        let is_known = server.has(op);
        if is_known {
            server.cancel(op);
            self.drive_cluster_soon();
        }
        is_known
    }

    pub(super) fn cluster_ready(&mut self, token: Token, now: Now) {
        if let Some(Server::Known(server)) = self.cluster.as_mut().map(|cluster| &mut cluster.server) {
            server.ready(token);
        }
        self.drive_cluster(now);
    }

    /// None: nothing is to be done for the cluster, also because the process ends.
    pub(super) fn cluster_deadline(&self) -> Option<Boot> {
        let cluster = self.cluster.as_ref().filter(|_| self.course.stops_at().is_none());
        cluster.and_then(ClusterConnection::next_deadline)
    }

    pub(super) fn drive_cluster(&mut self, now: Now) {
        if self.course.stops_at().is_some() {
            return;
        }
        let Some(ClusterConnection { server: Server::Known(server), arrived, buffer, .. }) = &mut self.cluster else {
            return;
        };
        if !arrived.is_empty() {
            return self.drive_cluster_soon();
        }
        let mut all = std::mem::take(buffer);
        if server.drive(self.event_loop.registry(), now.boot, &mut all) {
            self.drive_cluster_soon();
        }
        for arrived in all.drain(..) {
            match arrived {
                Arrived::Connected { address } => log::info!("api-server=connected address={address}"),
                Arrived::Disconnected { why } => {
                    log::debug!("api-server=disconnected error={why:?}");
                    // Another program may have renewed the credentials.
                    self.read_kubeconfig(now);
                }
                Arrived::Resolve { host, port } => self.look_up_api_server(host, port, now),
                Arrived::Item { id: op, json } => self.has_arrived(ApiEvent::Item { op, json }),
                Arrived::Line { id: op, json } => self.has_arrived(ApiEvent::Line { op, json }),
                Arrived::Done { id: op, result } => {
                    if let Err(e) = &result {
                        log::debug!("op={op} api-server error={e:?}");
                    }
                    self.has_arrived(ApiEvent::Done { op, result });
                }
            }
        }
        // Release the memory after a burst.
        all.shrink_to(16);
        if let Some(cluster) = &mut self.cluster {
            cluster.buffer = all;
        }
    }

    fn has_arrived(&mut self, event: ApiEvent) {
        if let Some(cluster) = &mut self.cluster {
            cluster.arrived.push_back(event);
        }
    }

    /// The next event of the API server, if there is time for it in this turn, which has begun at `now`. A process that
    /// ends takes none: each could be a reason for another record, which it would have to write.
    pub(super) fn next_api_event(&mut self, now: Now) -> Option<Event> {
        if self.course.stops_at().is_some() {
            return None;
        }
        let cluster = self.cluster.as_mut()?;
        if cluster.arrived.is_empty() {
            return None;
        }
        let is_first = std::mem::replace(&mut cluster.turn, now.boot) != now.boot;
        if !is_first && clock::boot().since(now.boot) >= TURN {
            self.drive_cluster_soon();
            return None;
        }
        let event = cluster.arrived.pop_front().map(Event::Api);
        if cluster.arrived.is_empty() {
            cluster.arrived.shrink_to(16);
        }
        event
    }

    /// In the next turn of the loop, which does not wait. In this one, requests that cause answers and answers that
    /// cause requests could follow each other without end.
    fn drive_cluster_soon(&mut self) {
        self.event_loop.again(self.cluster_token());
    }

    fn cluster_token(&self) -> Token {
        self.cluster.as_ref().map_or(Token(0), |cluster| cluster.tokens[0])
    }

    pub(super) fn read_kubeconfig(&mut self, now: Now) {
        let Some(cluster) = self.cluster.as_mut().filter(|cluster| cluster.reading == Reading::No) else { return };
        cluster.reading = Reading::Running;
        let path = cluster.kubeconfig.clone();
        let (of_thread, deadline) = (path.clone(), now.boot + READ_TIMEOUT);
        let spec = JobSpec::new(Class::Credentials, "read the kubeconfig", deadline).on(&path);
        self.jobs.run(
            spec,
            move || Credentials::read(&of_thread),
            |agent, credentials, now| {
                let no_answer = |_| Err("the file system does not answer".to_owned());
                agent.kubeconfig_read(credentials.unwrap_or_else(no_answer), now);
            },
        );
    }

    fn kubeconfig_read(&mut self, credentials: Result<Credentials, String>, now: Now) {
        let Some(cluster) = &mut self.cluster else { return };
        if std::mem::replace(&mut cluster.reading, Reading::No) == Reading::Outdated {
            return self.read_kubeconfig(now);
        }
        if let Ok(credentials) = &credentials {
            self.certificate_in_use(credentials);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.read(credentials);
        }
    }

    /// The certificate was replaced. New requests use the new one.
    pub(super) fn use_new_credentials(&mut self, credentials: Credentials) {
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.reading == Reading::Running {
            cluster.reading = Reading::Outdated;
        }
        cluster.read(Ok(credentials));
    }

    fn look_up_api_server(&mut self, host: String, port: u16, now: Now) {
        let of_thread = host.clone();
        let work = move || {
            let found = (of_thread.as_str(), port).to_socket_addrs();
            found.map(Iterator::collect).map_err(|e| e.to_string())
        };
        let path = PathBuf::from(&host);
        let spec = JobSpec::new(Class::Names, "look up the API server", now.boot + LOOKUP_TIMEOUT).on(&path);
        self.jobs.run(spec, work, move |agent, found, now| {
            agent.api_server_looked_up(&host, found.unwrap_or_else(|_| Err("i/o timeout".to_owned())), now);
        });
    }

    fn api_server_looked_up(&mut self, host: &str, found: Result<Vec<SocketAddr>, String>, now: Now) {
        if let Some(Server::Known(server)) = self.cluster.as_mut().map(|cluster| &mut cluster.server) {
            match found {
                Ok(addresses) => server.set_addresses(host, addresses),
                Err(why) => server.not_resolved(host, &why),
            }
        }
        self.drive_cluster(now);
    }
}
