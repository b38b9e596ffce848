//! The data that the server shows: pods, events, metrics, health, status. Borrowed from the agent for one drive of the
//! server, which collects the requests for the engine meanwhile.

use super::cluster::ClusterConnection;
use super::control::ControlEvent;
use super::descriptors;
use super::dump::{self, AgentParts};
use super::event_cache::EventCache;
use super::event_recorder::EventRecorder;
use super::kube::{Answered, Kube, NodeServer, log_part};
use super::reports::ConditionTimes;
use super::{Agent, views};
use crate::adapters::cgroups::CgroupUsage;
use crate::adapters::manifests::Manifests;
use crate::adapters::server::api::{self, ApiCursor, ApiRequest, Client, Part};
use crate::adapters::server::health::{self, Check};
use crate::adapters::server::http::{Body, Cursor, JSON, ListenerKind, Request, Response, Route, Ticket};
use crate::adapters::server::status::{
    ClusterStatus, ManifestStatus, NodeRoom, NodeStatus, PlegStatus, PodCounts, RuntimeStatus,
};
use crate::adapters::server::{Content, Server, control};
use crate::api::kube::status::Failure;
use crate::api::layout::Layout;
use crate::api::names::{FullName, Uid};
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::qos::Qos;
use crate::api::time::{Now, Wall};
use crate::config::Config;
use crate::engine::cluster::certificate::Certificate;
use crate::engine::cluster::connection::ConnectionState;
use crate::engine::control::{Reply, RequestError};
use crate::engine::node::{Engine, PodView, Summary};
use crate::metrics::{Metrics, families};
use crate::net::tls::server::Acceptor;
use std::rc::Rc;

/// Approximate size of one piece of a streamed body, in bytes.
const PIECE: usize = 8 * 1024;

/// Stages of a cursor: a list before its first piece, a list in progress, a watch.
const LIST: u32 = 0;
const LIST_BEGUN: u32 = 1;
const WATCH: u32 = 2;
/// A list with the additions of `?verbose`.
const VERBOSE_LIST: u32 = 3;
const VERBOSE_LIST_BEGUN: u32 = 4;
/// A list, and a watch, of events.
const EVENTS: u32 = 5;
const EVENTS_BEGUN: u32 = 6;
const EVENTS_WATCH: u32 = 7;

/// The parts of the agent that the server shows.
pub(super) struct View<'a> {
    pub(super) engine: &'a Engine,
    pub(super) metrics: &'a Metrics,
    pub(super) manifests: &'a Manifests,
    recorder: &'a EventRecorder,
    pub(super) event_cache: &'a EventCache,
    pub(super) conditions: &'a ConditionTimes,
    /// When the root directory was created: the begin of the node.
    pub(super) created: Wall,
    pub(super) config: &'a Config,
    pub(super) layout: &'a Layout,
    parts: AgentParts<'a>,
    cluster: Option<&'a ClusterConnection>,
    pub(super) started: Now,
    pub(super) now: Now,
}

/// The state of one call of `Server::drive`: the sources of its answers, and the received requests.
struct Drive<'a> {
    view: View<'a>,
    requests: Vec<ControlEvent>,
    /// None while the API is not served.
    kube: Option<&'a mut Kube>,
    /// None while the node's server does not exist.
    node_server: Option<&'a mut NodeServer>,
    answered: Vec<Answered>,
}

impl Agent {
    pub(super) fn drive_server(&mut self, now: Now) {
        let (view, server, mut kube, node_server) = self.view(now);
        if let Some(kube) = &mut kube
            && let Some(has_changed) = kube.follow(&view, server.has_connections(ListenerKind::Kubectl))
        {
            server.wake(has_changed);
        }
        let registry = view.parts.event_loop.registry();
        let mut drive = Drive { view, requests: Vec::new(), kube, node_server, answered: Vec::new() };
        let unfinished = server.drive(registry, now.boot, &mut drive);
        let Drive { requests, answered, .. } = drive;
        if unfinished {
            self.event_loop.again(mio::Token(super::SERVER));
        }
        self.carry_out_answers(answered, now);
        self.take_requests(requests, now);
        self.answer_changes(now);
        self.report_node_server();
    }

    /// The response of the Kubernetes API to a request that the engine has answered; None if the request goes on. The
    /// answer comes back if the request is not one of that API.
    pub(super) fn kube_answered(
        &mut self,
        ticket: Ticket,
        answer: Result<Reply, RequestError>,
        now: Now,
    ) -> Result<Option<Response>, Result<Reply, RequestError>> {
        match self.view(now) {
            (view, _, Some(kube), _) => kube.answered(&view, ticket, answer),
            _ => Err(answer),
        }
    }

    /// The same for the node's server.
    pub(super) fn node_server_answered(
        &mut self,
        ticket: Ticket,
        answer: Result<Reply, RequestError>,
        now: Now,
    ) -> Result<Option<Response>, Result<Reply, RequestError>> {
        let (view, _, _, Some(node_server)) = self.view(now) else { return Err(answer) };
        let mut orders = Vec::new();
        let response = node_server.answered(&view, ticket, answer, &mut orders)?;
        self.carry_out_answers(orders, now);
        Ok(response)
    }

    /// Closes the connections of clients whose certificates are not valid any more.
    pub(super) fn close_revoked(&mut self, now: Now) -> usize {
        let (view, server, kube, node_server) = self.view(now);
        let Some(kube) = kube else { return 0 };
        let revoked = kube.revoked();
        let registry = view.parts.event_loop.registry();
        let mut drive = Drive { view, requests: Vec::new(), kube: Some(kube), node_server, answered: Vec::new() };
        let closed = server.close_clients(registry, revoked, &mut drive);
        let requests = drive.requests;
        self.take_requests(requests, now);
        closed
    }

    /// The data that the server shows, the server, and the Kubernetes API and the node's server if they are served.
    pub(super) fn view(&mut self, now: Now) -> (View<'_>, &mut Server, Option<&mut Kube>, Option<&mut NodeServer>) {
        let parts = AgentParts {
            jobs: &self.jobs,
            records: &self.records,
            cgroups: &self.cgroups,
            pidfds: &self.pidfds,
            memory_pressure: self.memory_pressure.as_ref(),
            log_writes: &self.log_writes,
            devices: self.devices.as_ref(),
            client: &self.runtime.client,
            connections: self.server.connections(),
            event_loop: &self.event_loop,
            signals: &self.signals,
            lock: &self.lock,
            root: &self.process.root,
            inherited: &self.process.inherited,
            events_waiting: self.events.len(),
            event_stream: !self.runtime.container_events.is_closed(),
        };
        let view = View {
            engine: &self.engine,
            metrics: &self.metrics,
            manifests: &self.manifests,
            recorder: &self.reporting.recorder,
            event_cache: &self.reporting.event_cache,
            conditions: &self.reporting.conditions,
            created: self.process.root.created.unwrap_or(self.process.started.wall),
            config: &self.config,
            layout: &self.files.layout,
            parts,
            cluster: self.cluster.as_ref(),
            started: self.process.started,
            now,
        };
        (view, &mut self.server, self.kube.get(), self.node_server.get())
    }
}

impl Content for Drive<'_> {
    fn answer(&mut self, request: &Request) -> Response {
        if let (Route::Api, Some(kube)) = (request.route, &mut self.kube) {
            // Necessary for a client that has connected in this turn. It was the first one, so there are no watches to
            // wake.
            let _ = kube.follow(&self.view, true);
            return kube.answer(&self.view, request, &mut self.answered);
        }
        if let (Route::Node, Some(node_server)) = (request.route, &mut self.node_server) {
            return node_server.answer(&self.view, request, &mut self.answered);
        }
        if request.route == Route::KubectlReload {
            self.answered.push(Answered::Reload(request.ticket));
            return Response::later();
        }
        match control::parse(request) {
            None => self.view.answer(request),
            Some(Err(error)) => control::response(Err(error)),
            Some(Ok(parsed)) => {
                self.requests.push(ControlEvent::Request(request.ticket, parsed));
                Response::later()
            }
        }
    }

    fn refusal(&mut self, request: &ApiRequest) -> Option<Response> {
        self.kube.as_mut()?.refusal(&self.view, request)
    }

    fn gone(&mut self, ticket: Ticket) {
        self.requests.push(ControlEvent::Gone(ticket));
    }

    fn part(&mut self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool {
        if cursor.stage >= EVENTS { self.view.part_of_events(cursor, out) } else { self.view.part_of_pods(cursor, out) }
    }

    fn api_part(&mut self, cursor: &mut ApiCursor, out: &mut Vec<u8>) -> Part {
        match (cursor, &mut self.kube) {
            (ApiCursor::Log(log), _) => log_part(&self.view, log.as_mut(), out),
            (cursor, Some(kube)) => kube.part(&self.view, cursor, out),
            (_, None) => Part::End,
        }
    }

    fn acceptor(&mut self, listener_kind: ListenerKind) -> Option<Acceptor> {
        match listener_kind {
            ListenerKind::Node => self.node_server.as_ref().map(|server| server.acceptor()),
            _ => self.kube.as_ref().map(|kube| kube.acceptor()),
        }
    }

    fn client_of(&mut self, certificate: &[u8]) -> Result<Rc<Client>, Failure> {
        let now = self.view.now;
        match &mut self.kube {
            Some(kube) => kube.client(certificate, now),
            None => Err(Failure::service_unavailable("the API is not ready")),
        }
    }
}

impl View<'_> {
    fn answer(&self, request: &Request) -> Response {
        match request.route {
            Route::Livez | Route::Healthz | Route::Readyz => {
                health::response(request.route, &self.health_checks(request.route), request.verbose)
            }
            Route::Metrics => self.metrics_page(),
            Route::ProbeMetrics => self.probe_metrics_page(),
            Route::Pods if request.watch => Response::new(200, JSON, Body::Watch(Cursor { stage: WATCH, after: None })),
            Route::Pods => self.pod_list(request.verbose && request.listener_kind == ListenerKind::Control),
            Route::Events => {
                let cursor = |stage| Cursor { stage, after: None };
                let body = if request.watch { Body::Watch(cursor(EVENTS_WATCH)) } else { Body::Parts(cursor(EVENTS)) };
                Response::new(200, JSON, body)
            }
            Route::Dump => {
                let dump = dump::dump(self.engine, &self.parts, self.event_cache, self.started, self.now);
                Response::json(serde_json::to_vec(&dump).unwrap_or_default())
            }
            Route::Descriptors => {
                let list = descriptors::list(&self.parts, self.engine, self.config, self.now);
                Response::json(serde_json::to_vec(&list).unwrap_or_default())
            }
            Route::Status => Response::json(serde_json::to_vec(&self.status()).unwrap_or_default()),
            Route::ShutdownPlan => Response::json(serde_json::to_vec(&self.engine.shutdown_plan()).unwrap_or_default()),
            // Requests for the engine.
            Route::Retry
            | Route::Drain
            | Route::Undrain
            | Route::Cordon
            | Route::Uncordon
            | Route::Ephemeral
            | Route::Exec
            | Route::Stream
            | Route::Usage
            | Route::Images
            | Route::KubectlReload => Response::later(),
            // Not served yet, or any more.
            Route::Node => Response::text(503, "the server is not ready"),
            Route::Api => api::failure(&Failure::service_unavailable("the API is not ready")),
        }
    }

    pub(super) fn metrics_page(&self) -> Response {
        self.fill_gauges();
        Response::metrics(self.metrics.render())
    }

    pub(super) fn probe_metrics_page(&self) -> Response {
        Response::metrics(self.metrics.render_probes())
    }

    /// A `PodList`, with `verbose` with the additions for the commands.
    pub(super) fn pod_list(&self, verbose: bool) -> Response {
        let stage = if verbose { VERBOSE_LIST } else { LIST };
        Response::new(200, JSON, Body::Parts(Cursor { stage, after: None }))
    }

    /// The usage of a pod's cgroup, if it has one.
    pub(super) fn pod_cgroup(&self, uid: &Uid) -> Option<CgroupUsage> {
        self.parts.cgroups.usage_of(uid)
    }

    /// The path of a container's cgroup.
    pub(super) fn container_cgroup(&self, pod: &Pod, id: &str) -> String {
        let qos = pod.object.spec.as_ref().map_or(Qos::BestEffort, Qos::of);
        self.parts.cgroups.names().container(qos, &pod.uid, self.engine.runtime_name(), id)
    }

    /// The checks of a health route.
    pub(super) fn health_checks(&self, route: Route) -> Vec<Check> {
        match route {
            // A slow runtime is no reason to restart the agent: the liveness check ignores it.
            Route::Livez => vec![ping()],
            // As in a kubelet, a node that shuts down is healthy but not ready.
            Route::Readyz => {
                let mut checks = self.checks();
                checks.push(views::shutdown_check(self.engine.shutting_down()));
                checks
            }
            _ => self.checks(),
        }
    }

    fn part_of_pods(&self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool {
        let watch = cursor.stage == WATCH;
        // `out` may already contain earlier output.
        let enough = out.len() + PIECE;
        let pods = self.engine.pods();
        let from = match cursor.after.as_deref().and_then(parse_key) {
            None => 0,
            Some(after) => pods.partition_point(|p| (&p.pod.name, &p.pod.uid) <= (&after.0, &after.1)),
        };
        let verbose = matches!(cursor.stage, VERBOSE_LIST | VERBOSE_LIST_BEGUN);
        if matches!(cursor.stage, LIST | VERBOSE_LIST) {
            cursor.stage = if verbose { VERBOSE_LIST_BEGUN } else { LIST_BEGUN };
            out.extend_from_slice(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#);
        }
        let mut written = from;
        for view in &pods[from..] {
            if out.len() >= enough {
                break;
            }
            if watch {
                views::write_change("ADDED", view, out);
            } else {
                if cursor.after.is_some() || written > from {
                    out.push(b',');
                }
                let worker_status =
                    if verbose { self.engine.worker_status(&view.pod.uid, self.now.boot) } else { None };
                let own = |status| {
                    let logs = self.layout.pod_logs(&view.pod.name, &view.pod.uid);
                    views::Own::new(view, status, logs, self.engine.outlook(view.pod))
                };
                views::write_pod(view, worker_status.map(own), out);
            }
            written += 1;
        }
        if let Some(last) = pods[from..written].last() {
            cursor.after = Some(key(last).into());
        }
        let more = written < pods.len();
        if !more {
            out.extend_from_slice(if watch { views::BOOKMARK } else { b"]}\n" });
        }
        more
    }
}

fn key(view: &PodView<'_>) -> String {
    format!("{}/{}", view.pod.name, view.pod.uid)
}

fn parse_key(key: &str) -> Option<(FullName, Uid)> {
    let mut parts = key.splitn(3, '/');
    let name = FullName::new(parts.next()?, parts.next()?);
    Some((name, Uid::from(parts.next()?)))
}

fn ping() -> Check {
    Check { name: "ping", failure: None }
}

impl View<'_> {
    fn part_of_events(&self, cursor: &mut Cursor, out: &mut Vec<u8>) -> bool {
        let watch = cursor.stage == EVENTS_WATCH;
        if cursor.stage == EVENTS {
            cursor.stage = EVENTS_BEGUN;
            out.extend_from_slice(br#"{"kind":"EventList","apiVersion":"v1","metadata":{},"items":["#);
        }
        let after = cursor.after.as_deref().and_then(|a| a.parse().ok());
        let (after, more) = self.event_cache.write_after(after, self.now.boot, watch, out.len() + PIECE, out);
        cursor.after = after.map(|a| a.to_string().into());
        if !more {
            out.extend_from_slice(if watch { views::BOOKMARK } else { b"]}\n" });
        }
        more
    }

    fn checks(&self) -> Vec<Check> {
        let of_engine = self.engine.checks(self.now.boot).into_iter();
        let mut checks = vec![ping()];
        checks.extend(of_engine.map(|c| Check { name: c.name, failure: c.result.err() }));
        checks
    }

    fn fill_gauges(&self) {
        let s = self.engine.summary(self.now.boot);
        let m = self.metrics;
        m.set_desired_pods(s.desired as u64);
        m.set_active_pods(s.active as u64);
        m.set_working_pods(|lifecycle, config| s.working.get(&(lifecycle, config)).copied().unwrap_or(0) as u64);
        m.set(families::RUNNING_PODS, [], s.running_pods);
        m.set_running_containers(|state| s.containers.get(state).copied().unwrap_or(0) as u64);
        if let Some(age) = s.pleg_age {
            let seen = self.now.wall.0 - i64::try_from(age.as_nanos()).unwrap_or(0);
            m.set(families::RELIST_SEEN, [], seen / 1_000_000_000);
        }
        let shutdown = self.engine.shutdown(self.now.boot);
        m.set_graceful_shutdown(shutdown.started_seconds, shutdown.ended_seconds);
        let in_files: usize = self.engine.manifest_problems().map(|p| p.problems.len()).sum();
        let (node, requested) = self.engine.node();
        m.set_node_requested(&node, &requested);
        m.set(families::MIRROR_PODS, [], self.engine.mirrors());
        m.set(families::DRAINED_PODS, [], s.drained);
        m.set(families::NODE_CORDONED, [], s.cordoned);
        let certificates = self.engine.certificates();
        let shown = |certificate: Option<&Certificate>| {
            let not_after = certificate.and_then(Certificate::not_after);
            let left = not_after.map(|at| (at.0 - self.now.wall.0) / 1_000_000_000);
            (left, certificate.map_or(0, Certificate::failures))
        };
        m.set_certificate(families::CLIENT_CERTIFICATE, shown(certificates.map(|all| &all.client)));
        let serving = certificates.and_then(|all| all.serving.as_ref());
        m.set_certificate(families::SERVING_CERTIFICATE, shown(serving));
        m.set_connection(self.engine.connection(self.now.boot).as_ref());
        m.set_api_server_traffic(self.cluster.map_or((0, 0), ClusterConnection::traffic));
        m.set(families::MANIFEST_ERRORS, [], in_files + self.engine.conflicts().len());
        m.set_total(families::LOG_LINES_DROPPED, [], super::logging::dropped());
    }

    /// The errors of the manifests: of single documents, and conflicts between them (D4).
    fn manifest_errors(&self) -> Vec<Problem> {
        let conflicts = self.engine.conflicts().iter().map(|c| Problem {
            path: c.source.path.clone(),
            document: c.source.document,
            line: None,
            field: None,
            message: c.message(),
        });
        self.engine.manifest_problems().flat_map(|p| &p.problems).cloned().chain(conflicts).collect()
    }

    fn cluster_status(&self) -> Option<ClusterStatus> {
        let connection = self.engine.connection(self.now.boot)?;
        let away = match &connection.state {
            ConnectionState::Away { duration, why } => Some((duration.as_secs(), (*why).to_owned())),
            ConnectionState::Registered | ConnectionState::Unregistered => None,
        };
        let (unreachable_seconds, error) = away.unzip();
        Some(ClusterStatus {
            server: self.cluster.map(ClusterConnection::server).unwrap_or_default(),
            registered: connection.state == ConnectionState::Registered,
            unreachable_seconds,
            error,
            waiting_events: connection.waiting_events as u64,
            lost_events: connection.lost_events,
            name_conflict: connection.is_shared,
        })
    }

    fn status(&self) -> NodeStatus {
        let s = self.engine.summary(self.now.boot);
        let runtime = s.runtime.clone().unwrap_or_default();
        let errors: Vec<String> = self.manifest_errors().iter().map(Problem::to_string).collect();
        let pods = self.engine.pods();
        let pressure = self.engine.conditions().map(|condition| condition.name().to_owned()).collect();
        let mut waiting: Vec<String> =
            self.engine.checks(self.now.boot).into_iter().filter_map(|c| c.result.err()).collect();
        let not_ready = self.engine.not_ready(self.now.boot);
        waiting.extend(views::unready(&pods, |uid| self.recorder.warning(uid)));
        waiting.extend(self.engine.sealing_problem());
        let (node, requested) = self.engine.node();
        NodeStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            node_name: self.config.node_name.clone(),
            root_directory: self.config.root_dir.display().to_string(),
            kubectl: self.config.kubectl().map(|address| address.to_string()),
            uptime_seconds: self.now.boot.since(self.started.boot).as_secs(),
            ready: not_ready.is_none(),
            not_ready_reason: not_ready.as_ref().map(|(reason, _)| (*reason).to_owned()),
            not_ready_message: not_ready.map(|(_, message)| message),
            runtime: RuntimeStatus {
                endpoint: format!("unix://{}", self.config.runtime_socket.display()),
                connected: s.runtime_up,
                name: runtime.name,
                version: runtime.version,
                not_ready: views::runtime_not_ready(&s),
                network_not_ready: runtime.network_not_ready,
            },
            cluster: self.cluster_status(),
            node: NodeRoom { cordoned: s.cordoned, ..NodeRoom::of(&node, &requested, pressure) },
            pleg: PlegStatus {
                healthy: self.engine.pleg_healthy(self.now.boot),
                age_seconds: s.pleg_age.map(|d| d.as_secs_f64()),
            },
            pods: pod_counts(&s, &pods),
            manifests: ManifestStatus {
                directory: self.config.manifests.display().to_string(),
                files: self.engine.manifest_files() as u64,
                errors,
            },
            shutdown: self.engine.shutdown(self.now.boot),
            waiting_for: waiting,
        }
    }
}

fn pod_counts(s: &Summary, pods: &[PodView<'_>]) -> PodCounts {
    let phase = |name: &str| pods.iter().filter(|p| p.status.phase.as_deref() == Some(name)).count() as u64;
    let terminating: usize = s.working.iter().filter(|((l, _), _)| *l == "terminating").map(|(_, n)| n).sum();
    PodCounts {
        desired: s.desired as u64,
        active: s.active as u64,
        pending: phase("Pending"),
        running: phase("Running"),
        not_ready: pods.iter().filter(|p| views::is_unready(p.status)).count() as u64,
        succeeded: phase("Succeeded"),
        failed: phase("Failed"),
        rejected: s.rejected as u64,
        waiting_for_room: s.waiting_for_room as u64,
        drained: s.drained as u64,
        waiting_for_uncordon: s.waiting_for_uncordon as u64,
        terminating: terminating as u64,
        containers: s.containers.get("running").copied().unwrap_or(0) as u64,
    }
}
