//! Drives the server: passes requests to the engine and to helper threads, and sends the responses to clients.

use super::Agent;
use super::act::{Act, Origin};
use super::bodies::Streamed;
use super::content::{Drive, Response, Served, View};
use super::dump::AgentParts;
use super::jobs::JobSpec;
use super::kube::{self, KubeState, NodeServerState, Sample};
use super::pod_changes::PodChanges;
use super::requests::PendingRequests;
use super::tokens::SERVER;
use crate::adapters::server::api;
use crate::adapters::server::routes::{LISTENERS, ListenerKind};
use crate::api::kube::resources::Kind;
use crate::api::kube::status::Failure;
use crate::api::names::{FullName, Uid};
use crate::api::time::{Boot, Now};
use crate::config::Config;
use crate::engine::control::{Reply, Request, RequestError, RequestId};
use crate::engine::event::Event;
use crate::event_loop::Class;
use crate::kubectl_api::log_request::LogRequest;
use crate::kubectl_api::{AfterChange, EndedChange, RequestedChange};
use crate::net::listener::Place;
use crate::net::server::Server;
use crate::net::server::exchange::Ticket;
use mio::Token;
use std::time::Duration;

/// Time limit for finding the start of a log. `--tail` may have to count the lines of compressed files.
const LOG_TIMEOUT: Duration = Duration::from_secs(60);

/// What the agent serves over HTTP.
pub(super) struct Serving {
    pub(super) server: Server<Streamed>,
    /// The Kubernetes API for kubectl.
    pub(super) kube: KubeState,
    /// The node's server in a cluster.
    pub(super) node_server: NodeServerState,
    requests: PendingRequests,
    /// The last measurement of the CPU usage.
    sample: Option<Sample>,
    /// The numbered changes of pods. None while no client of the control socket watches pods.
    pod_changes: Option<PodChanges>,
}

impl Serving {
    /// Opens the listeners that exist from the start. The listeners for kubectl and for the cluster are added once
    /// their certificates are ready.
    pub(super) fn new(config: &Config) -> Serving {
        let mut server = Server::new(&LISTENERS, SERVER);
        server.listen(ListenerKind::Control.id(), Place::Unix(config.socket.clone()));
        for (kind, address) in [(ListenerKind::Health, config.healthz()), (ListenerKind::ReadOnly, config.read_only())]
        {
            if let Some(address) = address {
                server.listen(kind.id(), Place::Tcp(address));
            }
        }
        Serving {
            server,
            kube: KubeState::new(config),
            node_server: NodeServerState::new(config),
            requests: PendingRequests::default(),
            sample: None,
            pod_changes: None,
        }
    }

    /// Returns the earlier of `Server::next_deadline` and the deadline of the pending requests.
    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.server.next_deadline().into_iter().chain(self.requests.next_deadline()).min()
    }

    /// Notes that a pod has changed or is gone.
    pub(super) fn pod_changed(&mut self, uid: &Uid, name: &FullName, exists: bool) {
        match &mut self.pod_changes {
            Some(changes) if exists => changes.changed(uid),
            Some(changes) => changes.removed(uid, name),
            None => {}
        }
    }

    /// Notes that events of pods or of the node were recorded.
    pub(super) fn events_changed(&mut self) {
        if let Some(kube) = self.kube.get() {
            kube.api.events_changed();
        }
        self.wake(Kind::Event);
    }

    /// Continues the bodies that wait for changes to objects of this kind.
    pub(super) fn wake(&mut self, kind: Kind) {
        self.server.wake(|body| body.waits_for() == Some(kind));
    }
}

impl Agent {
    pub(super) fn drive_server(&mut self, now: Now) {
        let (view, server, served) = self.view(now);
        let mut drive = Drive::new(view, served);
        if let Some(kube) = &mut drive.served.kube
            && let Some(has_changed) = kube.follow(&drive.view, server.has_connections(ListenerKind::Kubectl.id()))
        {
            server.wake(|body| body.waits_for().is_some_and(&has_changed));
        }
        let registry = drive.view.parts.event_loop.registry();
        let unfinished = server.drive(registry, now.boot, &mut drive);
        let Drive { acts, gone, served, .. } = drive;
        if !server.has_body(ListenerKind::Control.id(), |body| body.waits_for() == Some(Kind::Pod)) {
            *served.pod_changes = None;
        }
        if unfinished {
            self.drive_server_again();
        }
        let is_idle = acts.is_empty() && gone.is_empty();
        for (ticket, origin, act) in acts {
            self.act(ticket, origin, act, now);
        }
        gone.into_iter().for_each(|ticket| self.client_gone(ticket));
        if !is_idle {
            self.settle(now);
            // Responses and watch changes are sent to the clients in the next turn.
            self.drive_server_again();
        }
        self.answer_changes(now);
        let port = self.serving.node_server.report_port(&self.serving.server);
        if let Some(event) = port {
            self.events.push_back(event);
            self.drive_server_again();
        }
    }

    pub(super) fn drive_server_again(&mut self) {
        self.event_loop.again(Token(SERVER));
    }

    /// Sends a deferred response. Does nothing if the client has disconnected.
    pub(super) fn respond(&mut self, ticket: Ticket, response: Response, now: Now) {
        self.serving.server.answer(ticket, response, now.boot);
        self.drive_server_again();
    }

    /// Carries out the next step of a request.
    fn act(&mut self, ticket: Ticket, origin: Origin, act: Act, now: Now) {
        match act {
            Act::Respond(response) => self.respond(ticket, response, now),
            Act::Ask(request, then) => {
                self.serving.requests.asked(ticket, origin, then);
                self.ask(ticket, request);
            }
            Act::AskAt(at, request, then) => self.serving.requests.ask_at(at, ticket, origin, request, then),
            Act::OpenLog(request) => self.open_log(ticket, origin, request, now),
            Act::Change(change) => self.change(ticket, *change, now),
            Act::CloseRevoked => {
                let closed = self.close_revoked(now);
                log::info!("kubectl certificates=reloaded closed_connections={closed}");
                let text = format!("closed {closed} connections of revoked certificates\n");
                self.respond(ticket, Response::text(200, text), now);
            }
        }
    }

    fn change(&mut self, ticket: Ticket, change: RequestedChange, now: Now) {
        let Some(kube) = self.serving.kube.get() else { return };
        let manifests = self.manifests.directory();
        let queued = kube.queue_change(ticket, change, manifests, &self.engine, &mut self.jobs, now);
        if let Err(refused) = queued {
            self.respond(ticket, api::failure(&refused), now);
        }
    }

    /// Responds to the clients whose changes the engine has accepted or refused.
    fn answer_changes(&mut self, now: Now) {
        let (view, _, served) = self.view(now);
        let Some(ended) = served.kube.and_then(|kube| kube.api.take_ended(&view.snapshot())) else { return };
        for EndedChange { request: RequestId(id), response, next } in ended {
            let response = response.map_or_else(|refused| api::failure(&refused), kube::response);
            self.respond(Ticket(id), response, now);
            match next {
                AfterChange::Nothing => {}
                AfterChange::Ask(request) => self.ask(Ticket(id), request),
                AfterChange::TakeBack(edited) => {
                    kube::take_back(self.manifests.directory(), *edited, &mut self.jobs, now);
                }
            }
        }
        self.settle(now);
    }

    fn ask(&mut self, ticket: Ticket, request: Request) {
        self.events.push_back(Event::Request { id: RequestId(ticket.0), request });
    }

    /// Passes delayed requests to the engine if their time has come.
    pub(super) fn ask_what_is_due(&mut self, now: Now) {
        for (ticket, request) in self.serving.requests.due(now.boot) {
            self.ask(ticket, request);
        }
    }

    /// Takes the engine's answer to a request.
    pub(super) fn answered(&mut self, RequestId(id): RequestId, answer: Result<Reply, RequestError>, now: Now) {
        if let Ok(Reply::Retried { pod, outcome }) = &answer {
            log::info!("pod={pod} reason=Retried outcome={:?}", outcome.to_string());
        }
        let ticket = Ticket(id);
        // If there is no such request, the client already has its response, or has disconnected.
        let Some((origin, then)) = self.serving.requests.take(ticket) else { return };
        let (view, _, served) = self.view(now);
        let act = then.go_on(&view, served, origin, answer);
        let act = act.unwrap_or_else(|failure| Act::Respond(origin.failure(&failure)));
        self.act(ticket, origin, act, now);
    }

    /// Drops the request of a client that has disconnected.
    fn client_gone(&mut self, ticket: Ticket) {
        self.serving.requests.take(ticket);
        if let Some(kube) = self.serving.kube.get() {
            kube.gone(ticket);
        }
        self.events.push_back(Event::RequestGone { id: RequestId(ticket.0) });
    }

    fn open_log(&mut self, ticket: Ticket, origin: Origin, request: LogRequest, now: Now) {
        let spec = JobSpec::new(Class::Logs, "open a log", now.boot + LOG_TIMEOUT);
        self.jobs.run(
            spec,
            move || kube::open_log(request),
            move |agent, opened, now| {
                let response = match opened {
                    Ok(opened) => kube::log_response(opened),
                    Err(e) => Err(Failure::internal(format!(
                        "failed to open the log: {}",
                        agent.reporting.standing.job_failed(&e, now.boot)
                    ))),
                };
                agent.respond(ticket, response.unwrap_or_else(|failure| origin.failure(&failure)), now);
            },
        );
    }

    /// Closes the connections of clients whose certificates are no longer valid.
    fn close_revoked(&mut self, now: Now) -> usize {
        let (view, server, served) = self.view(now);
        let mut drive = Drive::new(view, served);
        let Some(kube) = &mut drive.served.kube else { return 0 };
        let is_revoked = kube.revoked();
        let registry = drive.view.parts.event_loop.registry();
        let closed = server.close_clients(ListenerKind::Kubectl.id(), registry, is_revoked, &mut drive);
        let gone = drive.gone;
        gone.into_iter().for_each(|ticket| self.client_gone(ticket));
        closed
    }

    /// Returns the data that the server shows, the server, and the parts of the agent that change while the server is
    /// driven.
    pub(super) fn view(&mut self, now: Now) -> (View<'_>, &mut Server<Streamed>, Served<'_>) {
        let parts = AgentParts {
            jobs: &self.jobs,
            records: &self.disk.records,
            cgroups: &self.cgroups,
            pidfds: &self.kernel.pidfds,
            memory_pressure: self.kernel.memory_pressure.as_ref(),
            log_writes: &self.kernel.log_writes,
            devices: self.devices.get(),
            client: &self.runtime.client,
            connections: self.serving.server.connections(),
            event_loop: &self.event_loop,
            signals: &self.signals,
            lock: &self.logind.lock,
            root: &self.process.root,
            inherited: &self.process.inherited,
            events_waiting: self.events.len(),
            event_stream: !self.runtime.container_events.is_closed(),
        };
        let view = View {
            engine: &self.engine,
            metrics: &self.metrics,
            recorder: &self.reporting.recorder,
            event_cache: self.reporting.recorder.cache(),
            conditions: &self.reporting.conditions,
            created: self.process.root.created.unwrap_or(self.process.started.wall),
            config: &self.config,
            layout: &self.disk.files.layout,
            parts,
            cluster: self.cluster.as_ref(),
            started: self.process.started,
            now,
        };
        let Serving { server, kube, node_server, sample, pod_changes, requests: _ } = &mut self.serving;
        (view, server, Served { kube: kube.get(), node_server: node_server.get(), sample, pod_changes })
    }
}
