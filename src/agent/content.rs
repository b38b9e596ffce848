//! The data that the server shows: pods, events, metrics, health, status. It is borrowed from the agent for one call
//! of `Server::drive`, which also collects the next steps of the requests.

use super::act::{Act, Origin, Then};
use super::bodies::{EventList, EventWatch, PodList, PodWatch, Streamed};
use super::cluster::ClusterConnection;
use super::descriptors;
use super::dump::{self, AgentParts};
use super::event_recorder::EventRecorder;
use super::kube::{Kube, NodeServer, Sample};
use super::pod_changes::PodChanges;
use super::views;
use crate::adapters::cgroups::CgroupUsage;
use crate::adapters::server::api;
use crate::adapters::server::control;
use crate::adapters::server::health::{self, Check};
use crate::adapters::server::routes::{ListenerKind, Page, Route};
use crate::adapters::server::status::{
    ClusterStatus, ManifestStatus, NodeRoom, NodeStatus, PlegStatus, PodCounts, RuntimeStatus,
};
use crate::api::kube::status::Failure;
use crate::api::layout::Layout;
use crate::api::names::Uid;
use crate::api::pod::Pod;
use crate::api::problem::Problem;
use crate::api::qos::Qos;
use crate::api::time::{Boot, Now, Wall};
use crate::config::Config;
use crate::engine::cluster::certificate::Certificate;
use crate::engine::cluster::connection::ConnectionState;
use crate::engine::node::{Engine, PodView, Summary};
use crate::kubectl_api::condition_times::ConditionTimes;
use crate::kubectl_api::event_cache::EventCache;
use crate::kubectl_api::snapshot::Snapshot;
use crate::metrics::{Metrics, families};
use crate::net::http1::{self, Accepts};
use crate::net::server::exchange::{self, Body, Content, JSON, Part, Request, Ticket};
use crate::net::server::listeners::ListenerId;
use crate::net::tls::server::Acceptor;

/// A response whose body can be streamed by the agent.
pub(super) type Response = exchange::Response<Streamed>;

/// The parts of the agent that the server shows.
pub(super) struct View<'a> {
    pub(super) engine: &'a Engine,
    pub(super) metrics: &'a Metrics,
    pub(super) recorder: &'a EventRecorder,
    pub(super) event_cache: &'a EventCache,
    pub(super) conditions: &'a ConditionTimes,
    /// When the root directory was created, which is when the node was created.
    pub(super) created: Wall,
    pub(super) config: &'a Config,
    pub(super) layout: &'a Layout,
    pub(super) parts: AgentParts<'a>,
    pub(super) cluster: Option<&'a ClusterConnection>,
    pub(super) started: Now,
    pub(super) now: Now,
}

impl<'a> View<'a> {
    /// Returns the data that the API for kubectl shows.
    pub(super) fn snapshot(&self) -> Snapshot<'a> {
        Snapshot {
            engine: self.engine,
            events: self.event_cache,
            conditions: self.conditions,
            layout: self.layout,
            node_name: &self.config.node_name,
            port: self.config.kubectl_port,
            created: self.created,
            started: self.started.wall,
            now: self.now,
        }
    }
}

/// The state of one call of `Server::drive`: the sources of its responses, and the next steps of the requests.
pub(super) struct Drive<'a> {
    pub(super) view: View<'a>,
    pub(super) served: Served<'a>,
    pub(super) acts: Vec<(Ticket, Origin, Act)>,
    /// The requests whose clients have disconnected.
    pub(super) gone: Vec<Ticket>,
}

impl<'a> Drive<'a> {
    pub(super) fn new(view: View<'a>, served: Served<'a>) -> Drive<'a> {
        Drive { view, served, acts: Vec::new(), gone: Vec::new() }
    }
}

/// The parts of the agent that change while the server is driven.
pub(super) struct Served<'a> {
    /// The API for kubectl. None while it is not served.
    pub(super) kube: Option<&'a mut Kube>,
    /// The node's server in a cluster. None while it does not exist.
    pub(super) node_server: Option<&'a mut NodeServer>,
    /// The last measurement of the CPU usage.
    pub(super) sample: &'a mut Option<Sample>,
    /// The numbered changes of pods. None while no client of the control socket watches pods.
    pub(super) pod_changes: &'a mut Option<PodChanges>,
}

impl Content for Drive<'_> {
    type Stream = Streamed;

    fn accepts(&self, listener: ListenerId, path: &str) -> Accepts {
        Route::accepts(kind_of(listener), path)
    }

    fn answer(&mut self, request: &Request<'_>) -> Response {
        let (origin, act, until) = self.first_step(request);
        let response = match act {
            Act::Respond(response) => response,
            act => {
                self.acts.push((request.ticket, origin, act));
                Response::later()
            }
        };
        Response { until, ..response }
    }

    fn next(&mut self, body: &mut Streamed, out: &mut Vec<u8>) -> Part {
        body.as_mut().next(self, out)
    }

    fn refusal(&mut self, request: &Request<'_>) -> Option<Response> {
        match kind_of(request.listener) {
            ListenerKind::Kubectl => self.served.kube.as_mut()?.refusal(&self.view, request),
            _ => None,
        }
    }

    fn failure(&self, listener: ListenerId, status: u16, why: &str) -> Response {
        match kind_of(listener) {
            ListenerKind::Kubectl => api::failure(&Failure::http(status, why)),
            _ => Response::text(status, format!("{why}\n")),
        }
    }

    fn gone(&mut self, ticket: Ticket) {
        self.gone.push(ticket);
    }

    fn acceptor(&self, listener: ListenerId) -> Option<Acceptor> {
        match kind_of(listener) {
            ListenerKind::Node => self.served.node_server.as_ref().map(|server| server.acceptor()),
            _ => self.served.kube.as_ref().map(|kube| kube.acceptor()),
        }
    }
}

/// Returns the kind of a listener. Every id comes from the table of listeners, so the fallback is never used.
fn kind_of(listener: ListenerId) -> ListenerKind {
    ListenerKind::of(listener).unwrap_or(ListenerKind::ReadOnly)
}

impl Drive<'_> {
    /// Returns the first step of a request, and the time at which its streamed body or session ends.
    fn first_step(&mut self, request: &Request<'_>) -> (Origin, Act, Option<Boot>) {
        let local = |act| (Origin::Local, act, None);
        let Some(route) = Route::find(kind_of(request.listener), &request.head.path) else {
            return local(Act::Respond(Response::text(404, "not found\n")));
        };
        match (route, &mut self.served) {
            (Route::Api, Served { kube: Some(kube), .. }) => {
                // Follow the objects now, because the first client may have connected in this turn. No watch has to be
                // woken yet.
                let _ = kube.follow(&self.view, true);
                let (act, until) = kube.answer(&self.view, request);
                return (Origin::Kubectl, act, until);
            }
            (Route::Node, Served { node_server: Some(_), .. }) => {
                return (Origin::Node, super::kube::ask_permission(&self.view, request), None);
            }
            _ => {}
        }
        local(match route {
            Route::Page(page) => Act::Respond(self.show(page, request)),
            Route::Ask(ask) => match control::parse(ask, &request.head.query, request.body) {
                Ok(parsed) => Act::Ask(parsed, Then::Show),
                Err(error) => Act::Respond(control::response(Err(error))),
            },
            Route::KubectlReload => Act::CloseRevoked,
            // Not served yet, or no longer served.
            Route::Node => Act::Respond(Response::text(503, "the server is not ready")),
            Route::Api => Act::Respond(api::failure(&Failure::service_unavailable("the API is not ready"))),
        })
    }

    /// Returns the response of a read-only route.
    fn show(&mut self, page: Page, request: &Request<'_>) -> Response {
        let query = &request.head.query;
        let is_control = kind_of(request.listener) == ListenerKind::Control;
        let is_watch = is_control && http1::query_has(query, "watch");
        let is_verbose = http1::query_has(query, "verbose");
        match page {
            Page::Pods if is_watch => {
                let engine = self.view.engine;
                let begin = || PodChanges::new(engine.pods().iter().map(|pod| &pod.pod.uid));
                self.served.pod_changes.get_or_insert_with(begin);
                streamed(PodWatch::new())
            }
            Page::Pods => streamed(PodList::new(is_verbose && is_control)),
            Page::Events if is_watch => streamed(EventWatch::new(self.view.event_cache)),
            Page::Events => streamed(EventList::default()),
            Page::Livez | Page::Healthz | Page::Readyz => {
                health::response(page, &self.view.health_checks(page), is_verbose)
            }
            Page::Metrics => self.view.metrics_page(),
            Page::ProbeMetrics => self.view.probe_metrics_page(),
            Page::Dump => {
                let View { engine, parts, event_cache, started, now, .. } = &self.view;
                json(&dump::dump(engine, parts, event_cache, *started, *now))
            }
            Page::Descriptors => {
                let View { engine, parts, config, now, .. } = &self.view;
                json(&descriptors::list(parts, engine, config, *now))
            }
            Page::Status => json(&self.view.status()),
            Page::Volumes => json(&self.view.engine.volumes()),
            Page::ShutdownPlan => json(&self.view.engine.shutdown_plan()),
        }
    }
}

pub(super) fn streamed(body: impl super::bodies::PieceWriter + 'static) -> Response {
    Response::new(200, JSON, Body::Stream(Box::new(body)))
}

pub(super) fn json(value: &impl serde::Serialize) -> Response {
    Response::json(serde_json::to_vec(value).unwrap_or_default())
}

impl View<'_> {
    pub(super) fn metrics_page(&self) -> Response {
        self.fill_gauges();
        Response::metrics(self.metrics.render())
    }

    pub(super) fn probe_metrics_page(&self) -> Response {
        Response::metrics(self.metrics.render_probes())
    }

    /// Returns the usage of a pod's cgroup, if the pod has one.
    pub(super) fn pod_cgroup(&self, uid: &Uid) -> Option<CgroupUsage> {
        self.parts.cgroups.usage_of(uid)
    }

    /// Returns the path of a container's cgroup.
    pub(super) fn container_cgroup(&self, pod: &Pod, id: &str) -> String {
        let qos = pod.object.spec.as_ref().map_or(Qos::BestEffort, Qos::of);
        self.parts.cgroups.names().container(qos, &pod.uid, self.engine.runtime_name(), id)
    }

    /// Returns the checks of a health route.
    pub(super) fn health_checks(&self, page: Page) -> Vec<Check> {
        match page {
            // A slow runtime is not a reason to restart the agent: the liveness check ignores it.
            Page::Livez => vec![ping()],
            // As in a kubelet, a node that shuts down is healthy but not ready.
            Page::Readyz => {
                let mut checks = self.checks();
                checks.push(views::shutdown_check(self.engine.shutting_down()));
                checks
            }
            _ => self.checks(),
        }
    }
}

fn ping() -> Check {
    Check { name: "ping", failure: None }
}

impl View<'_> {
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

    /// Returns the errors of the manifests: those of single documents, and conflicts between documents (D4).
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
